"""From what was computed of a benchmark's cells (`bench.summary.summarize`) to a report.

What lives here: labels, remarks, effort, charts and links. What does not: any statistics; shares, intervals and
differences come as they are. Curves are smoothed as `plot_training.py` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.measures import PASS, PAYOFF, Measure, diversity_brackets, diversity_explained, measure_of, scores
from bench.table import different
from compare_runs import difference_line
from plot_training import evaluation_points, training_curves

from metarl_agents.errors import ConfigError
from metarl_agents.tracking.records import record_files
from report.model import Block, Chart, Link, Number, Report, Row, Series

VIEWER_PAGE = "trajectories.html"
_WINDOW = 10
_FEW = 4
"""Up to so many methods, a chart also shows bands and evaluations; beyond, they would hide each other."""


def read_report(summary: dict[str, Any], *, root: Path, page_folder: Path) -> Report:
    """Return the report of a summary.

    Args:
        summary: as `bench.summary.summarize` returns it.
        root: the repository, to which the summary's run folders are relative.
        page_folder: where the page will lie; links are relative to it.

    Raises:
        ConfigError: this is no summary.
    """
    if not isinstance(summary, dict) or not {"blocks", "header"} <= set(summary):
        raise ConfigError("this is no summary of a benchmark: write one with `benchmarks/run.py --table --json FILE`.")
    try:
        return Report(
            title=str(summary.get("title") or f"Benchmark {summary.get('preset', '')}".strip()),
            header=tuple(map(str, summary["header"])),
            blocks=tuple(_block(entry, root, page_folder) for entry in summary["blocks"]),
            missing=tuple(map(str, summary.get("missing", ()))),
            failed=tuple(_because(entry, "cell") for entry in summary.get("failed", ())),
            skipped=tuple(_because(entry, "block") for entry in summary.get("skipped", ())),
            stale=tuple(map(str, summary.get("stale", ()))),
        )
    except KeyError as error:
        raise ConfigError(f"the summary has an entry without {error}: compute it again from the cells.") from None


def run_folders(summary: dict[str, Any]) -> list[str]:
    """Return the run folders that a summary names, once each."""
    rows = [row for block in summary.get("blocks", ()) for row in block.get("rows", ())]
    return list(dict.fromkeys(str(run) for row in rows for run in row.get("runs") or ()))


def has_trajectories(run: Path) -> bool:
    """Whether a run folder holds trials."""
    try:
        return bool(record_files(run))
    except OSError:
        return False


def _because(entry: dict[str, Any], name: str) -> str:
    return f"{entry[name]}: {entry['reason']}" if entry.get("reason") else str(entry[name])


def _block(entry: dict[str, Any], root: Path, page_folder: Path) -> Block:
    measure = measure_of(entry)
    episodes = max([int(entry.get("num_episodes") or 1), *(len(scores(row, measure)) for row in entry["rows"])])
    trained = [{"models": row["id"], **row} for row in entry["rows"] if row.get("training")]
    told = {row["id"] for row in different(trained, "models")}
    rows = tuple(_row(row, measure, episodes, root, page_folder) for row in entry["rows"])
    rows = tuple(
        row if of["id"] in told else replace(row, effort=()) for row, of in zip(rows, entry["rows"], strict=True)
    )
    labels = {row["id"]: row["label"] for row in entry["rows"]}
    published = entry.get("published") or {}
    is_ablation = entry.get("kind") == "ablation"
    return Block(
        name=str(entry["name"]),
        title=str(entry["title"]),
        rows=rows,
        num_episodes=episodes,
        measure=measure,
        more=" ".join(part for part in (measure.more, diversity_explained(entry["rows"])) if part),
        is_ablation=is_ablation,
        about=str(entry.get("verdict") or ""),
        source=", ".join(str(published[name]) for name in ("source", "setting") if published.get(name)),
        conditions=tuple(map(str, entry.get("notes", ()))),
        differences=tuple(_difference(difference, labels) for difference in entry.get("differences", ())),
        charts=tuple(_charts(entry, rows)),
    )


def _difference(entry: dict[str, Any], labels: dict[str, str]) -> str:
    named = {side: labels.get(entry[side], entry[side]) for side in ("better", "than")}
    return difference_line({**entry, **named})


def _row(entry: dict[str, Any], measure: Measure, episodes: int, root: Path, page_folder: Path) -> Row:
    """Return one row; of the independent pass@k, those with as many attempts as a trial has at most."""
    found = scores(entry, measure)
    independent = entry.get("independent") or {}
    gain, diversity = entry.get("gain"), entry.get("diversity")
    training = entry.get("training")
    seeds = [seed for seed in entry.get("done", ()) if seed is not None]
    return Row(
        label=str(entry["label"]),
        pass_at=tuple(_number(found[k]) for k in sorted(found, key=int)),
        seeds=len(seeds) if training or seeds else None,
        tasks=int(entry.get("num_tasks") or 0),
        independent=tuple(_number(independent[k]) for k in sorted(independent, key=int) if int(k) <= episodes),
        diversity=None if diversity is None else _number(diversity | {"share": diversity["nats"]}),
        gain=None if gain is None else Number(gain["mean"], gain["low"], gain["high"]),
        published=tuple(None if value is None else value / 100 for value in entry.get("published") or ()),
        endings=_endings(entry.get("games")),
        effort=_effort(training),
        remark=_remark(entry),
        absence=_absence(entry),
        is_best=bool(entry.get("best")),
        links=tuple(_link(str(run), root, page_folder) for run in entry.get("runs") or ()),
    )


def _absence(entry: dict[str, Any]) -> str:
    """Say why a row has no numbers."""
    if entry.get("games"):
        return "nothing to exploit"
    return "failed" if entry.get("state") == "failed" else "not run"


def _endings(games: dict[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """Say how games of the last episode ended and what they paid."""
    if not games or not games["payoff"]:
        return ()
    last = max(games["payoff"], key=int)
    payoff, shares = games["payoff"][last], games["endings"][last]
    told = " / ".join(f"{100 * share:.1f}" for share in shares.values())
    return ((" / ".join(map(str, shares)), told), ("payoff", PAYOFF.told(payoff["share"], payoff["interval"])))


def _number(entry: dict[str, Any]) -> Number:
    low, high = entry.get("interval") or (None, None)
    per_run = entry.get("per_run") or ()
    spread = (min(per_run), max(per_run)) if len(per_run) > 1 else None
    return Number(entry["share"], low, high, spread)


def _effort(training: dict[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """Say what training cost, the mean of a row's runs."""
    if training is None:
        return ()
    told = {
        "episodes_allotted": ("episodes allotted", _count),
        "episodes_used": ("episodes used", _count),
        "tokens": ("tokens", _short),
        "seconds": ("time", _minutes),
    }
    known = ((name, show, training.get(key)) for key, (name, show) in told.items())
    return tuple((name, show(value)) for name, show, value in known if value is not None)


def _remark(entry: dict[str, Any]) -> str:
    """Say why a row has no numbers, or fewer than planned."""
    parts = [] if entry.get("meaningful", True) else ["not meaningful for this model"]
    if entry.get("state") == "partial":
        parts.append(f"{len(entry.get('done', ()))} of {len(entry.get('seeds', ()))} seeds")
    reasons = [problem for problem in entry.get("problems", ()) if problem.get("status") == "failed"]
    parts += [f"failed: {_because(problem, 'cell')}" for problem in reasons]
    return "; ".join(parts)


def _link(run: str, root: Path, page_folder: Path) -> Link:
    """Lead to a run's trajectories, or say why there is no way."""
    folder = root / run
    if (folder / VIEWER_PAGE).is_file():
        return Link(run, quote(os.path.relpath(folder / VIEWER_PAGE, page_folder).replace(os.sep, "/")))
    if has_trajectories(folder):
        return Link(run, None, f"its page: python -m metarl_agents.tracking.viewer {run}")
    return Link(run, None, "has no trajectories" if folder.is_dir() else "not on this machine")


def _charts(entry: dict[str, Any], rows: tuple[Row, ...]) -> Iterable[Chart]:
    """Choose the pictures of a block: later attempts, diversity, and pass@k over training."""
    measured = [row for row in rows if row.pass_at]
    measure = measure_of(entry)
    if measure is not PASS:
        if measured:
            yield _by_episode(measured, measure)
        return
    if measured:
        last = max(len(row.pass_at) for row in measured)
        names = tuple(f"pass@{k}" for k in range(1, last + 1))
        yield Chart(
            "dots",
            f"From the first attempt to attempt {last}" if last > 1 else "Success",
            f"Percent of tasks solved within 1 to {last} attempts, with 95 % intervals.",
            "percent solved",
            rows=tuple((row.label, row.pass_at) for row in measured),
            names=names,
        )
    diverse = [(row.label, (row.diversity,)) for row in measured if row.diversity is not None]
    if len(diverse) > 1:
        brackets = diversity_brackets(entry["rows"])
        yield Chart(
            "dots",
            "Diversity of first attempts",
            "Entropy of independent first attempts at one task, mean over tasks; 0 = always alike"
            f"{f'; bars: {brackets}' if brackets else ''}.",
            "nats",
            rows=tuple(diverse),
            is_share=False,
        )
    for k in sorted({1, int(entry.get("num_episodes") or 1)}):
        series = _curves(entry, f"pass@{k}")
        if series:
            yield Chart(
                "lines",
                f"pass@{k} over training",
                f"Lines: training episodes, mean of {_WINDOW} steps and of seeds"
                + (
                    "; bands: lowest to highest seed; markers: validation tasks."
                    if any(s.band or s.dots for s in series)
                    else "."
                ),
                "training step",
                series=tuple(series),
            )


def _by_episode(rows: Sequence[Row], measure: Measure) -> Chart:
    """Draw what the games of each episode brought."""
    last = max(len(row.pass_at) for row in rows)
    return Chart(
        "dots",
        "From the first episode to the last",
        measure.caption,
        measure.axis,
        rows=tuple((row.label, row.pass_at) for row in rows),
        names=tuple(measure.column.format(k=k) for k in range(1, last + 1)),
        is_share=measure.is_share,
    )


def _curves(entry: dict[str, Any], metric: str) -> list[Series]:
    """Return a line for each training that logged `metric`, and its validations where there are few."""
    # Rows may share their trained model; it goes by the name of the reference, or of the first of them.
    rows = sorted(entry["rows"], key=lambda row: row["id"] != entry.get("reference"))
    rows = different([{"models": row["id"], **row} for row in rows if row.get("curves")], "models")
    trainings = [(str(row["label"]), [item["curves"] for item in row["curves"]]) for row in rows]
    lines = [(label, _points(runs, "train", metric), _points(runs, "eval", metric)) for label, runs in trainings]
    drawn = [line for line in lines if line[1] or line[2]]
    few, found = len(drawn) <= _FEW, []
    for hue, (label, trained, evaluated) in enumerate(drawn):
        if trained:
            steps, values = training_curves(trained, _WINDOW)
            found.append(_series(label, steps, 100 * values, hue, has_band=few))
        if evaluated and (few or not trained):
            steps, values = evaluation_points(evaluated)
            found.append(_series(label, steps, 100 * values, hue, has_band=few, dots=True))
    return [series for series in found if series.points]


def _points(runs: list[dict[str, Any]], part: str, metric: str) -> list[dict[int, float]]:
    """Return {step: value} of each run; nothing where one of them has none."""
    found = [dict(map(tuple, (run.get(part) or {}).get(metric) or ())) for run in runs]
    return found if all(found) else []


def _series(name: str, steps: Any, values: Any, hue: int, *, has_band: bool, dots: bool = False) -> Series:
    if not len(steps):
        return Series(name, ())
    band = (
        zip(values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True)
        if len(values) > 1 and has_band
        else ()
    )
    return Series(name, tuple(zip(steps.tolist(), values.mean(axis=0).tolist(), strict=True)), tuple(band), dots, hue)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _short(value: float) -> str:
    return f"{value / 1e6:.1f}M" if value >= 1e6 else _count(value)


def _minutes(value: float) -> str:
    return f"{value / 3600:.1f} h" if value >= 5400 else f"{value / 60:.1f} min"
