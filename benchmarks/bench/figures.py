"""Pictures of a summary: pass@k over training, gains of later episodes, diversity, ablations, games by episode.

What does not live here: the numbers (`summary.py`) and the drawing of training curves (`plot_training.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plot_training import COLOURS, MARKERS, draw, load_pyplot

from bench.measures import PASS, Measure, measure_of, scores
from bench.table import different

_STYLE = {"font.size": 12, "axes.titlesize": 13, "axes.spines.top": False, "axes.spines.right": False}


def draw_all(summary: dict[str, Any], folder: Path, only: set[str] | None = None) -> list[Path]:
    """Draw the figures that the plan asks for, as `<block>_<figure>.png`, where there is something to draw.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    made = []
    for block in summary["blocks"]:
        for name in block["figures"] if only is None or block["name"] in only else ():
            path = folder / f"{block['name']}_{name}.png"
            if FIGURES[name](block, path):
                made.append(path)
    return made


def training(block: dict[str, Any], path: Path) -> bool:
    """Draw pass@k over training, one panel for each trained method."""
    trained = different([row for row in block["rows"] if row["curves"]], "models")
    methods = {row["label"]: [_series(entry["curves"]) for entry in row["curves"]] for row in trained}
    if methods:
        draw(methods, window=10, output=path)
    return bool(methods)


def gain(block: dict[str, Any], path: Path) -> bool:
    """Draw pass@1 and what the later episodes add, as bars with the interval of the last pass@k."""
    rows = [row for row in block["rows"] if row["pass"] and row["meaningful"]]
    if not rows:
        return False

    def fill(axes: Any) -> None:
        ks = list(rows[0]["pass"])
        places = range(len(rows))
        below = [0.0] * len(rows)
        for index, k in enumerate(ks):
            heights = [100 * row["pass"][k]["share"] for row in rows]
            added = [height - low for height, low in zip(heights, below, strict=True)]
            axes.barh(places, added, left=below, color=COLOURS[index], label=f"pass@{k}", height=0.7)
            below = heights
        last = [row["pass"][ks[-1]] for row in rows]
        bars = [
            [100 * (v["share"] - v["interval"][0]) for v in last],
            [100 * (v["interval"][1] - v["share"]) for v in last],
        ]
        axes.errorbar(below, places, xerr=bars, fmt="none", ecolor="#333333", capsize=3, elinewidth=1.2)
        axes.set_yticks(list(places), [row["label"] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("tasks solved (%)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=len(ks), frameon=False)

    return _picture(path, (8.5, 1.4 + 0.42 * len(rows)), fill)


def diversity(block: dict[str, Any], path: Path) -> bool:
    """Draw the entropy of first episodes: base model, RL, meta-RL."""
    rows = different([row for row in block["rows"] if row["diversity"] and row["meaningful"]], "player")
    if not rows:
        return False

    def fill(axes: Any) -> None:
        places = range(len(rows))
        nats = [row["diversity"]["nats"] for row in rows]
        edges = [row["diversity"]["interval"] or [value] * 2 for row, value in zip(rows, nats, strict=True)]
        bars = [[value - low for value, (low, _) in zip(nats, edges, strict=True)]]
        bars.append([high - value for value, (_, high) in zip(nats, edges, strict=True)])
        axes.barh(places, nats, color=COLOURS[2], height=0.7)
        axes.errorbar(nats, places, xerr=bars, fmt="none", ecolor="#333333", capsize=3, elinewidth=1.2)
        axes.set_yticks(list(places), [row["label"] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("entropy of first episodes (nats)")

    return _picture(path, (8.5, 1.2 + 0.42 * len(rows)), fill)


def episodes(block: dict[str, Any], path: Path) -> bool:
    """Draw what each row's measure is in each episode of a trial, as a line with intervals."""
    measure = measure_of(block)
    rows = [(row["label"], scores(row, measure)) for row in block["rows"] if row["meaningful"]]
    rows = [(label, found) for label, found in rows if found]
    if not rows:
        return False

    def fill(axes: Any) -> None:
        ks = list(rows[0][1])
        for index, (label, found) in enumerate(rows):
            # Side by side, so that no interval hides another one.
            aside = 0.06 * (index - (len(rows) - 1) / 2)
            values = [found[k] for k in ks if k in found]
            _curve(axes, [n + aside for n in range(len(values))], values, measure, index, label)
        axes.set_xticks(range(len(ks)), [f"episode {k}" for k in ks])
        axes.set_ylabel(measure.axis)
        axes.axhline(0.0, color="#999999", linewidth=0.8)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=1, frameon=False)

    return _picture(path, (7.5, 4.2 + 0.28 * len(rows)), fill, along="y")


def ablation(block: dict[str, Any], path: Path) -> bool:
    """Draw what the table leads with over the variants, one panel for each method."""
    measure = measure_of(block)
    there = [row for row in block["rows"] if scores(row, measure) and row["variant"] is not None]
    methods = list(dict.fromkeys(row["method"] for row in there))
    if not there:
        return False
    plt = load_pyplot()
    values = block["vary"]["values"]
    with plt.rc_context(_STYLE):
        size = (max(4.2, 1.1 * len(values)) * len(methods), 3.9)
        figure, grid = plt.subplots(1, len(methods), figsize=size, sharey=True, squeeze=False)
        for axes, method in zip(grid.flat, methods, strict=True):
            rows = [row for row in there if row["method"] == method]
            _variants(axes, rows, values, measure)
            axes.set_title(rows[0]["label"].split(";")[0])
            axes.set_xlabel(block["vary"]["name"])
        grid[0, 0].set_ylabel(measure.axis)
        grid[0, 0].legend(frameon=False)
        _save(plt, figure, path)
    return True


FIGURES: dict[str, Callable[[dict[str, Any], Path], bool]] = {
    "training": training,
    "gain": gain,
    "diversity": diversity,
    "ablation": ablation,
    "episodes": episodes,
}
"""What a plan may ask for under `figures`; each returns whether there was something to draw."""


def _variants(axes: Any, rows: Sequence[dict[str, Any]], values: Sequence[str], measure: Measure) -> None:
    places = [values.index(row["variant"]) for row in rows]
    for index, k in enumerate(scores(rows[0], measure)):
        found = [scores(row, measure)[k] for row in rows]
        _curve(axes, places, found, measure, index, measure.column.format(k=k))
    axes.set_xticks(range(len(values)), values, rotation=20 if max(map(len, values)) > 6 else 0)
    if measure is PASS:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, linewidth=0.8)


def _curve(
    axes: Any, places: Sequence[float], found: Sequence[dict[str, Any]], measure: Measure, index: int, label: str
) -> None:
    """Draw numbers with their intervals."""
    scale = 100 if measure.is_share else 1
    bars = [
        [scale * max(0.0, v["share"] - v["interval"][0]) for v in found],
        [scale * max(0.0, v["interval"][1] - v["share"]) for v in found],
    ]
    style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
    dashes = "-" if index < len(COLOURS) else "--"
    middle = [scale * v["share"] for v in found]
    axes.errorbar(places, middle, yerr=bars, label=label, capsize=3, elinewidth=1.2, linestyle=dashes, **style)


def _series(curves: dict[str, dict[str, list[list[float]]]]) -> dict[str, dict[str, dict[int, float]]]:
    return {
        prefix: {name: {int(step): value for step, value in points} for name, points in found.items()}
        for prefix, found in curves.items()
    }


def _picture(path: Path, size: tuple[float, float], fill: Callable[[Any], None], along: str = "x") -> bool:
    plt = load_pyplot()
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=size)
        fill(axes)
        axes.grid(axis=along, alpha=0.25, linewidth=0.8)
        axes.set_axisbelow(True)
        _save(plt, figure, path)
    return True


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
