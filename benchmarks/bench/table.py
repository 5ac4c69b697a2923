"""Summaries as text: one table a block, plain or Markdown, and what is missing.

What does not live here: the numbers (`summary.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compare_runs import difference_line, diversity_cell

from bench.measures import PASS, PAYOFF, Measure, measure_of, scores
from metarl_agents.evaluation.layout import lay_out, lay_out_notes, percent

_NOTHING = "-"
_SHOWN_PROBLEMS = 12
_PASS_NOTES = (
    "pass@k: percent of tasks solved within the first k episodes of one trial, pooled over seeds, with the Wilson 95 % "
    "interval",
    "gain: points that the later episodes of a trial add to its first; its interval, and that of indep. pass@k and of "
    "diversity: bootstrap over tasks and, where there are several, over seeds; of diversity lowest to highest seed "
    "where an evaluation kept no entropy of each task",
)


def report(summary: dict[str, Any], *, markdown: bool = False, only: set[str] | None = None) -> str:
    """Write all tables of a summary, or those of the blocks in `only`.

    Args:
        summary: what `summary.summarize` returned.
        markdown: pipe tables instead of plain columns.
        only: names of blocks.
    """
    parts = [_title(summary["title"], 1, markdown), lay_out_notes(summary["header"], markdown)]
    for block in summary["blocks"]:
        if only is None or block["name"] in only:
            parts += block_parts(block, markdown)
    if summary["stale"]:
        stale = f"{len(summary['stale'])} kept cells are stale: settings or code have changed since"
        parts.append(f"{stale} ({', '.join(summary['stale'][:_SHOWN_PROBLEMS])})")
    parts += [f"not in this table: {entry['block']} ({entry['reason']})" for entry in summary["skipped"]]
    told = {problem["cell"] for block in summary["blocks"] for row in block["rows"] for problem in row["problems"]}
    failed = [entry for entry in summary["failed"] if entry["cell"].partition(" ")[2] not in told]
    parts += [f"FAILED {entry['cell']}: {entry['reason']}" for entry in failed]
    return "\n\n".join([*parts, _state(summary)])


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(40), duration(600), duration(9000)
    ('40 s', '10 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def block_parts(block: dict[str, Any], markdown: bool) -> list[str]:
    """Return the paragraphs of one block: title, tables, differences, verdict, notes."""
    ks = [str(k) for k in range(1, block["num_episodes"] + 1)]
    measure = measure_of(block)
    parts = [_title(f"{block['title']} ({block['name']})", 2, markdown)]
    corner, gain = ("method", "gain") if measure is PASS else (measure.corner, measure.gain.format(k=ks[-1]))
    header = [corner, "seeds", "tasks", *(measure.column.format(k=k) for k in ks), gain]
    parts.append(lay_out(header, [_row(row, ks, measure, markdown) for row in block["rows"]], markdown))
    for header, rows in (
        _endings(block, ks[-1]),
        _sampled(block, ks),
        _training(block),
        _spread(block, ks),
        _published(block),
    ):
        if rows:
            parts.append(lay_out(header, rows, markdown))
    lines = [_difference(entry, block) for entry in block["differences"]]
    parts += [lay_out_notes(lines, markdown)] if lines else []
    parts.append(f"Verdict: {block['verdict']}.")
    problems = _problems(block)
    notes = [*(_PASS_NOTES if measure is PASS else ()), *block["notes"]]
    if source := block["published"]:
        notes.append(f"published: {source['source']}; {source['setting']}")
    return [*parts, lay_out_notes(notes, markdown), *([lay_out_notes(problems, markdown)] if problems else [])]


def _row(row: dict[str, Any], ks: Sequence[str], measure: Measure, markdown: bool) -> list[str]:
    label = row["label"] if row["meaningful"] else f"{row['label']} (not meaningful)"
    seeds = f"{len(row['done'])}/{len(row['seeds'])}" if row["seeds"] else _NOTHING
    found = scores(row, measure)
    if not found:
        state = str(row["num_tasks"]) if row["num_tasks"] else row["state"]
        return [label, seeds, state, *[_NOTHING] * len(ks), _NOTHING]
    cells = [measure.told(found[k]["share"], found[k]["interval"]) if k in found else _NOTHING for k in ks]
    if row["best"]:
        cells[-1] = f"**{cells[-1]}**" if markdown else f"*{cells[-1]}"
    return [label, seeds, str(row["num_tasks"]), *cells, _gain(row["gain"], measure)]


def _gain(gain: dict[str, Any] | None, measure: Measure) -> str:
    """Write what the last episode has over the first."""
    return _NOTHING if gain is None else measure.difference(gain["mean"], gain["low"], gain["high"])


def _endings(block: dict[str, Any], k: str) -> tuple[list[str], list[list[str]]]:
    """Lay out how games of the last episode ended, and what they paid."""
    rows = []
    for row in block["rows"]:
        found = row.get("games")
        if found and k in found["payoff"]:
            payoff = found["payoff"][k]
            shares = [percent(share) for share in found["endings"][k].values()]
            rows.append([row["label"], *shares, PAYOFF.told(payoff["share"], payoff["interval"])])
    return [f"episode {k}", "won %", "drawn %", "lost %", "unfinished %", "payoff"], rows


def _sampled(block: dict[str, Any], ks: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Lay out independent pass@k and diversity of the rows that have them."""
    rows = []
    for row in different([row for row in block["rows"] if row["independent"] and row["diversity"]], "player"):
        shown = [row["independent"].get(k) for k in ks]
        cells = [percent(entry["share"], entry["interval"]) if entry else _NOTHING for entry in shown]
        rows.append([row["label"], *cells, diversity_cell(row["diversity"])])
    return ["first episodes alone", *(f"indep. pass@{k}" for k in ks), "diversity (nats)"], rows


def _training(block: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Lay out what training took, mean over seeds."""
    header = ["training, mean over seeds", "steps", "episodes allotted", "used", "tokens", "minutes"]
    rows = []
    for row in different([row for row in block["rows"] if row["training"]], "models"):
        took = row["training"]
        counts = [f"{took[name]:,.0f}" for name in ("steps", "episodes_allotted", "episodes_used", "tokens")]
        rows.append([row["label"], *counts, f"{took['seconds'] / 60:.1f}"])
    return header, rows


def different(rows: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the first row of each of a summary's `models` (trained alike), or of each `player` (first episodes alike).

    Equal numbers say nothing: two models may well find the same.
    """
    firsts: dict[str, dict[str, Any]] = {}
    for row in rows:
        firsts.setdefault(str(row[name]), row)
    return list(firsts.values())


def _spread(block: dict[str, Any], ks: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Lay out the lowest and highest seed of the rows with several."""
    measure = measure_of(block)
    rows = []
    for row in block["rows"]:
        found = scores(row, measure)
        if len(row["done"]) > 1 and found:
            spreads = [found[k]["spread"] for k in ks if k in found]
            rows.append([row["label"], *(f"{measure.told(s['min'])} to {measure.told(s['max'])}" for s in spreads)])
    return ["lowest to highest seed", *(measure.column.format(k=k) for k in ks)], rows


def _published(block: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Lay out what the paper reports for the same methods, in its own setting."""
    if not block["published"]:
        return [], []
    rows = [
        [row["label"], *(_NOTHING if x is None else f"{x:.1f}" for x in row["published"])]
        for row in block["rows"]
        if row["published"]
    ]
    return ["published (other model, see below)", "pass@1", "pass@2", "pass@3"], rows


def _difference(entry: dict[str, Any], block: dict[str, Any]) -> str:
    labels = {row["id"]: row["label"] for row in block["rows"]}
    return difference_line(entry | {"better": labels[entry["better"]], "than": labels[entry["than"]]})


def _problems(block: dict[str, Any]) -> list[str]:
    """List what is not there, with reasons where something failed."""
    problems = [problem for row in block["rows"] for problem in row["problems"]]
    failed = [f"FAILED {p['cell']}: {p['reason']}" for p in problems if p["status"] == "failed"]
    missing = [p["cell"] for p in problems if p["status"] == "missing"]
    more = f" and {len(missing) - _SHOWN_PROBLEMS} more" if len(missing) > _SHOWN_PROBLEMS else ""
    return [*failed, *([f"missing: {', '.join(missing[:_SHOWN_PROBLEMS])}{more}"] if missing else [])]


def _state(summary: dict[str, Any]) -> str:
    """Say what is missing altogether."""
    missing, failed = len(summary["missing"]), len(summary["failed"])
    if not missing and not failed:
        return "all cells are there"
    left, whole = (duration(3600 * summary[name]) for name in ("hours_left", "hours"))
    return (
        f"{missing} cells are missing, {failed} failed: about {left} of work, out of {whole} for the whole plan"
        f"{trained_again_line(len(summary['again']))}; what else is there is not made again"
    )


def trained_again_line(count: int) -> str:
    """Say how many finished models must be trained once more; "" where none must.

    >>> trained_again_line(1)
    '; 1 model is trained again, since its weights are not on this machine'
    """
    if not count:
        return ""
    told = ("model is", "its") if count == 1 else ("models are", "their")
    return f"; {count} {told[0]} trained again, since {told[1]} weights are not on this machine"


def _title(text: str, level: int, markdown: bool) -> str:
    return f"{'#' * level} {text}" if markdown else f"{text}\n{'=' * len(text) if level == 1 else '~' * len(text)}"
