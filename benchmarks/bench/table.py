"""Summaries as text: one table a block, plain or Markdown, and what is missing.

What does not live here: the numbers (`summary.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compare_runs import difference_line

from metarl_agents.evaluation.results import lay_out, lay_out_notes, percent

_NOTHING = "-"
_SHOWN_PROBLEMS = 12


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
    parts = [_title(f"{block['title']} ({block['name']})", 2, markdown)]
    parts.append(
        lay_out(["method", "seeds", "n", *(f"pass@{k}" for k in ks), "gain"], _rows(block, ks, markdown), markdown)
    )
    for header, rows in (_sampled(block, ks), _training(block), _spread(block, ks), _published(block)):
        if rows:
            parts.append(lay_out(header, rows, markdown))
    lines = [_difference(entry, block) for entry in block["differences"]]
    parts += [lay_out_notes(lines, markdown)] if lines else []
    parts.append(f"Verdict: {block['verdict']}.")
    problems = _problems(block)
    notes = [
        "pass@k: percent of tasks solved within the first k episodes of one trial, pooled over seeds, with the Wilson "
        "95 % interval",
        "gain: points that the later episodes of a trial add to its first",
        *block["notes"],
    ]
    if source := block["published"]:
        notes.append(f"published: {source['source']}; {source['setting']}")
    return [*parts, lay_out_notes(notes, markdown), *([lay_out_notes(problems, markdown)] if problems else [])]


def _rows(block: dict[str, Any], ks: Sequence[str], markdown: bool) -> list[list[str]]:
    return [_row(row, ks, markdown) for row in block["rows"]]


def _row(row: dict[str, Any], ks: Sequence[str], markdown: bool) -> list[str]:
    label = row["label"] if row["meaningful"] else f"{row['label']} (not meaningful)"
    seeds = f"{len(row['done'])}/{len(row['seeds'])}" if row["seeds"] else _NOTHING
    if not row["pass"]:
        return [label, seeds, row["state"], *[_NOTHING] * len(ks), _NOTHING]
    cells = [percent(row["pass"][k]["share"], row["pass"][k]["interval"]) if k in row["pass"] else _NOTHING for k in ks]
    if row["best"]:
        cells[-1] = f"**{cells[-1]}**" if markdown else f"*{cells[-1]}"
    gain = row["gain"]
    return [label, seeds, str(row["n"]), *cells, f"{100 * gain['mean']:+.1f}" if gain else _NOTHING]


def _sampled(block: dict[str, Any], ks: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Lay out independent pass@k and diversity of the rows that have them."""
    rows = []
    for row in _different(block["rows"], ("independent", "diversity")):
        if row["independent"] and row["diversity"]:
            shown = [row["independent"].get(k) for k in ks]
            cells = [percent(entry["share"], entry["interval"]) if entry else _NOTHING for entry in shown]
            diversity = row["diversity"]
            rows.append([row["label"], *cells, f"{diversity['nats']:.2f} ({100 * diversity['share']:.0f} %)"])
    return ["first episodes alone", *(f"indep. pass@{k}" for k in ks), "diversity (nats)"], rows


def _training(block: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Lay out what training took, mean over seeds."""
    header = ["training, mean over seeds", "steps", "episodes allotted", "used", "tokens", "minutes"]
    rows = []
    for row in _different(block["rows"], ("runs",)):
        if took := row["training"]:
            counts = [f"{took[name]:,.0f}" for name in ("steps", "episodes_allotted", "episodes_used", "tokens")]
            rows.append([row["label"], *counts, f"{took['seconds'] / 60:.1f}"])
    return header, rows


def _different(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows without those that repeat the values of an earlier one: the same model, played otherwise."""
    seen: list[list[Any]] = []
    kept = []
    for row in rows:
        values = [row[name] for name in names]
        if values not in seen:
            seen.append(values)
            kept.append(row)
    return kept


def _spread(block: dict[str, Any], ks: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Lay out the lowest and highest seed of the rows with several."""
    rows = []
    for row in block["rows"]:
        if len(row["done"]) > 1:
            spreads = [row["pass"][k]["spread"] for k in ks if k in row["pass"]]
            rows.append([row["label"], *(f"{percent(s['min'])} to {percent(s['max'])}" for s in spreads)])
    return ["lowest to highest seed", *(f"pass@{k}" for k in ks)], rows


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
    line = difference_line(entry | {"better": labels[entry["better"]], "than": labels[entry["than"]]})
    return f"{line}; seeds: {entry['seeds'][0]} and {entry['seeds'][1]}"


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
        f"{missing} cells are missing, {failed} failed: about {left} of work, out of {whole} for the whole plan; what "
        "is there is not made again"
    )


def _title(text: str, level: int, markdown: bool) -> str:
    return f"{'#' * level} {text}" if markdown else f"{text}\n{'=' * len(text) if level == 1 else '~' * len(text)}"
