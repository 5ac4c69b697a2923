"""Pictures of a summary: pass@k over training, the gain of later episodes, diversity, ablations.

What does not live here: the numbers (`summary.py`) and the drawing of training curves (`plot_training.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plot_training import COLOURS, MARKERS, draw, load_pyplot

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
    methods: dict[str, list[dict[str, Any]]] = {}
    for row in block["rows"]:
        runs = [_series(entry["curves"]) for entry in row["curves"]]
        known = [series for earlier in methods.values() for series in earlier]
        # Rows that play the same model share its curve.
        if runs and runs[0] not in known:
            methods[row["label"]] = runs
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
    rows = [row for row in block["rows"] if row["diversity"] and row["meaningful"]]
    seen: set[float] = set()
    rows = [row for row in rows if not (row["diversity"]["nats"] in seen or seen.add(row["diversity"]["nats"]))]
    if not rows:
        return False

    def fill(axes: Any) -> None:
        places = range(len(rows))
        axes.barh(places, [row["diversity"]["nats"] for row in rows], color=COLOURS[2], height=0.7)
        axes.set_yticks(list(places), [row["label"] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("entropy of first episodes (nats)")

    return _picture(path, (8.5, 1.2 + 0.42 * len(rows)), fill)


def ablation(block: dict[str, Any], path: Path) -> bool:
    """Draw pass@k over the variants, one panel for each method."""
    there = [row for row in block["rows"] if row["pass"] and row["variant"] is not None]
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
            _variants(axes, rows, values)
            axes.set_title(rows[0]["label"].split(";")[0])
            axes.set_xlabel(block["vary"]["name"])
        grid[0, 0].set_ylabel("tasks solved (%)")
        grid[0, 0].legend(frameon=False)
        _save(plt, figure, path)
    return True


FIGURES: dict[str, Callable[[dict[str, Any], Path], bool]] = {
    "training": training,
    "gain": gain,
    "diversity": diversity,
    "ablation": ablation,
}
"""What a plan may ask for under `figures`; each returns whether there was something to draw."""


def _variants(axes: Any, rows: Sequence[dict[str, Any]], values: Sequence[str]) -> None:
    places = [values.index(row["variant"]) for row in rows]
    for index, k in enumerate(rows[0]["pass"]):
        found = [row["pass"][k] for row in rows]
        middle = [100 * v["share"] for v in found]
        bars = [
            [100 * (v["share"] - v["interval"][0]) for v in found],
            [100 * (v["interval"][1] - v["share"]) for v in found],
        ]
        style = {"color": COLOURS[index], "marker": MARKERS[index], "capsize": 3, "elinewidth": 1.2}
        axes.errorbar(places, middle, yerr=bars, label=f"pass@{k}", **style)
    axes.set_xticks(range(len(values)), values, rotation=20 if max(map(len, values)) > 6 else 0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, linewidth=0.8)


def _series(curves: dict[str, dict[str, list[list[float]]]]) -> dict[str, dict[str, dict[int, float]]]:
    return {
        prefix: {name: {int(step): value for step, value in points} for name, points in found.items()}
        for prefix, found in curves.items()
    }


def _picture(path: Path, size: tuple[float, float], fill: Callable[[Any], None]) -> bool:
    plt = load_pyplot()
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=size)
        fill(axes)
        axes.grid(axis="x", alpha=0.25, linewidth=0.8)
        axes.set_axisbelow(True)
        _save(plt, figure, path)
    return True


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
