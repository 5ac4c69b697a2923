r"""Draw sequential pass@k over training steps, one panel for each method, from the logs of its runs.

    python benchmarks/plot_training.py runs/gigpo-0 runs/gigpo-1 runs/lamer-0 runs/lamer-1 \
        --labels GiGPO GiGPO LaMer LaMer --output docs/training.png

Lines are training episodes, averaged over a sliding window; markers are evaluations on fixed tasks. Runs with the same
label are seeds of one method: the mean over them, with a band (bars at the markers) from lowest to highest. A method is
drawn as far as all of its runs have come.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metarl_agents.errors import ConfigError
from metarl_agents.tracking.writers import METRICS_FILE

Series = dict[str, dict[int, float]]
"""Metric name to {step: value}."""

_PREFIXES = ("train", "eval")
_PASS = re.compile(r"pass@(\d+)$")
# Okabe and Ito's palette, which colour-blind readers can tell apart; shapes repeat what colours say.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v")
_PANEL_WIDTH, _PANEL_HEIGHT, _MAX_COLUMNS = 4.6, 3.7, 3


def read_metrics(run: str | Path) -> dict[str, Series]:
    """Read a run's `metrics.jsonl` as {"train" or "eval": {pass@k: {step: value}}}, nulls left out.

    A step that was logged twice counts as it was logged last; a torn last line is skipped.

    Raises:
        ConfigError: the run has no such file, or it holds no pass@k.
    """
    path = Path(run) / METRICS_FILE
    if not path.is_file():
        raise ConfigError(f'"{run}" has no {METRICS_FILE}: give the folder of a training run.')
    found: dict[str, Series] = {prefix: defaultdict(dict) for prefix in _PREFIXES}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        for name, value in record["metrics"].items() if record["prefix"] in found else ():
            if _PASS.match(name) and value is not None:
                found[record["prefix"]][name][record["step"]] = value
    if not any(found.values()):
        raise ConfigError(f'"{path}" holds no pass@k: let the run log at least one step.')
    return found


def sliding_mean(values: Sequence[float], window: int) -> np.ndarray:
    """Return (T,) the mean of each value and up to `window - 1` before it.

    >>> sliding_mean([1.0, 3.0, 5.0], 2).tolist()
    [1.0, 2.0, 4.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    return (sums[ends] - sums[starts]) / (ends - starts)


def training_curves(runs: Sequence[dict[int, float]], window: int) -> tuple[np.ndarray, np.ndarray]:
    """Smooth each run and put all on the same steps.

    Args:
        runs: {step: value} of each run, none empty.
        window: logged steps that are averaged.

    Returns:
        (T,) the steps that lie within every run, and (runs, T) the values there, interpolated where a run did not log.
    """
    first, last = max(map(min, runs)), min(map(max, runs))
    steps = np.array(sorted({step for run in runs for step in run if first <= step <= last}))
    curves = []
    for run in runs:
        own = sorted(run)
        curves.append(np.interp(steps, own, sliding_mean([run[step] for step in own], window)))
    return steps, np.array(curves)


def evaluation_points(runs: Sequence[dict[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return (T,) the steps at which every run was evaluated, and (runs, T) the values there."""
    steps = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    return np.array(steps), np.array([[run[step] for step in steps] for run in runs])


def draw(methods: dict[str, list[dict[str, Series]]], *, window: int, output: str | Path) -> None:
    """Draw one panel a method, all with the same axes, and write the picture.

    Args:
        methods: label to what `read_metrics` found in each of its runs.
        window: logged steps that a training line averages.
        output: the picture; its ending decides the format.
    """
    plt = load_pyplot()
    columns = 2 if len(methods) == 4 else min(len(methods), _MAX_COLUMNS)
    rows = -(-len(methods) // columns)
    size = (_PANEL_WIDTH * columns, _PANEL_HEIGHT * rows + 0.7)
    with plt.rc_context({"font.size": 12, "axes.titlesize": 13, "axes.spines.top": False, "axes.spines.right": False}):
        figure, grid = plt.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
        logged = {name for runs in methods.values() for run in runs for prefix in _PREFIXES for name in run[prefix]}
        names = sorted(logged, key=_episodes)
        for panel, (label, runs) in zip(grid.flat, methods.items(), strict=False):
            for index, name in enumerate(names):
                _draw_metric(panel, name, index, runs, window)
            panel.set_title(f"{label} ({len(runs)} {'runs' if len(runs) > 1 else 'run'})")
            panel.grid(alpha=0.25, linewidth=0.8)
            panel.tick_params(labelbottom=True, labelleft=True)
        for panel in grid.flat[len(methods) :]:
            panel.set_visible(False)
        grid[0, 0].set_ylim(bottom=0)
        for panel in grid[:, 0]:
            panel.set_ylabel("tasks solved (%)")
        for panel in list(grid.flat)[: len(methods)]:
            panel.set_xlabel("training step")
        _legend(figure, names, window, several=any(len(runs) > 1 for runs in methods.values()))
        figure.tight_layout(rect=(0, 0.75 / size[1], 1, 1))
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, dpi=150)
        plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of training runs")
    parser.add_argument("--labels", nargs="+", help="one for each run; equal labels are seeds of one method")
    parser.add_argument("--window", type=int, default=10, help="logged steps that a training line averages")
    parser.add_argument("--output", required=True, help="the picture, for example docs/training.png")
    args = parser.parse_args(arguments)
    labels = args.labels or [Path(run).resolve().name for run in args.runs]
    if len(labels) != len(args.runs):
        parser.error(f"--labels has {len(labels)} entries, but there are {len(args.runs)} runs: give one for each.")
    if args.window < 1:
        parser.error(f"--window is {args.window}, but must be at least 1.")
    methods: dict[str, list[dict[str, Series]]] = defaultdict(list)
    try:
        for label, run in zip(labels, args.runs, strict=True):
            methods[label].append(read_metrics(run))
        draw(methods, window=args.window, output=args.output)
    except ConfigError as error:
        parser.error(str(error))
    print(f"wrote {args.output}")


def _draw_metric(panel: Any, name: str, index: int, runs: Sequence[dict[str, Series]], window: int) -> None:
    """Draw one pass@k of one method: a line with its band, and markers with their bars."""
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    trained = [run["train"][name] for run in runs if run["train"].get(name)]
    if len(trained) == len(runs):
        steps, curves = training_curves(trained, window)
        curves = 100 * curves
        panel.plot(steps, curves.mean(axis=0), color=colour, linewidth=2)
        if len(runs) > 1:
            panel.fill_between(steps, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.18, linewidth=0)
    evaluated = [run["eval"][name] for run in runs if run["eval"].get(name)]
    if len(evaluated) == len(runs):
        steps, points = evaluation_points(evaluated)
        points = 100 * points
        mean = points.mean(axis=0)
        bars = np.array([mean - points.min(axis=0), points.max(axis=0) - mean]) if len(runs) > 1 else None
        style = {"color": colour, "marker": marker, "markersize": 7, "markeredgecolor": "white", "linestyle": "none"}
        panel.errorbar(steps, mean, yerr=bars, capsize=3, elinewidth=1.2, zorder=3, **style)


def _legend(figure: Any, names: Sequence[str], window: int, *, several: bool) -> None:
    """Explain colours, lines, bands and markers once, below all panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colours = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], linewidth=2, label=name)
        for i, name in enumerate(names)
    ]
    kinds: list[Any] = [
        Line2D([], [], color="#555555", linewidth=2, label=f"training (mean of {window} steps)"),
        Line2D([], [], color="#555555", marker="o", linestyle="none", label="evaluation"),
    ]
    kinds += [Patch(color="#555555", alpha=0.25, label="lowest to highest run")] * several
    place = {"loc": "lower center", "frameon": False, "columnspacing": 1.6, "fontsize": 11}
    height = figure.get_figheight()
    figure.legend(handles=colours, ncols=len(colours), bbox_to_anchor=(0.5, 0.34 / height), **place)
    figure.legend(handles=kinds, ncols=len(kinds), bbox_to_anchor=(0.5, 0.08 / height), **place)


def _episodes(name: str) -> int:
    """Return the k of pass@k."""
    return int(_PASS.match(name)[1])


def load_pyplot() -> Any:
    """Import matplotlib for files only, without a display."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'metarl_agents[plots]'.") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


if __name__ == "__main__":
    main()
