"""The results in a README: a few lines between two marks, made from the cells, and nothing else of the file touched.

What lives here: which tables are complete and fit, the lines, and putting them between the marks. What does not: the
full report (`text.py`), to which the lines lead, and any statistics (`bench.summary`). Errors, notes and all else that
a model or an environment may have written stay out: only names of the plan and numbers enter.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.comparing import finished_rows, trained_otherwise
from bench.measures import Measure, diversity_explained, measure_of, scores
from bench.plan import Plan
from bench.table import different

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.layout import lay_out
from metarl_agents.tracking.markdown import escape
from report.page import NOTHING, nats, percents

BEGIN, END = "<!-- bench:begin: `make report README=1` rewrites what follows -->", "<!-- bench:end -->"
PRESET = "cpu"
"""Whose cells a README shows: those that come with the repository."""
LINES = 90
"""More than this, marks not counted, would drown the README; what is complete beyond it is named."""
_OPENING = re.compile(r"<!-- bench:begin\b[^\n]*?-->")
_WIDTH = 120
_DIFFERENCES = (
    "Differences: points, paired bootstrap over tasks and seeds; intervals are not adjusted for the number of pairs."
)


def shown_by(plan: Plan) -> Plan:
    """Return a plan with the tables alone that a README may show: the main ones."""
    return replace(plan, blocks=tuple(block for block in plan.blocks if block.kind == "main"))


def render_lines(summary: dict[str, Any], *, details: str) -> str:
    """Return what stands between the marks; the same cells always give the same text.

    Args:
        summary: as `bench.summary.summarize` returns it; tables that are not main ones make no difference.
        details: address of the full report, relative to the README.
    """
    complete = [block for block in summary["blocks"] if block["kind"] == "main" and _is_complete(block)]
    shown = complete[:1]
    for block in complete[1:]:
        if len(_text([*shown, block], complete, details).splitlines()) <= LINES:
            shown.append(block)
    return _text(shown, complete, details)


def put_between_marks(readme: str, text: str, name: str) -> str:
    """Return a README with what stands between its two marks replaced.

    Raises:
        ConfigError: the marks are not there, once each and in order.
    """
    openings = list(_OPENING.finditer(readme))
    if len(openings) != 1 or readme.count(END) != 1 or openings[0].end() > readme.index(END):
        raise ConfigError(
            f"{name} must hold the lines {BEGIN} and {END}, once each and in this order: put them where the results "
            "belong."
        )
    line = "\r\n" if "\r\n" in readme else "\n"
    inside = text.strip().replace("\n", line)
    head, tail = readme[: openings[0].start()], readme[readme.index(END) :]
    return f"{head}{BEGIN}{line}{line}{inside}{line}{line}{tail}"


def between_marks(readme: str) -> str | None:
    """Return what stands between the marks of a README, or None where it has none."""
    opening = _OPENING.search(readme)
    inside, mark, _ = readme[opening.end() :].partition(END) if opening else ("", "", "")
    return inside.strip().replace("\r\n", "\n") if mark else None


def rewrite_readme(path: Path, text: str) -> None:
    """Replace what stands between the marks of a README, whole or not at all.

    Raises:
        ConfigError: the file is not there, or the marks are not.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            old = file.read()
    except OSError as error:
        raise ConfigError(f"cannot read {path} ({error.strerror}): give the README with `--readme`.") from None
    new = put_between_marks(old, text, str(path))
    if new == old:
        return
    target = path.resolve()  # a link stays a link
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    unfinished.write_text(new, encoding="utf-8", newline="")
    unfinished.chmod(target.stat().st_mode & 0o7777)
    os.replace(unfinished, target)


def _is_complete(block: dict[str, Any]) -> bool:
    """Whether the row that others are compared with is there, and one of models that were trained otherwise."""
    rows = _finished(block)
    reference = next((row for row in rows if row["id"] == block["reference"]), None)
    return reference is not None and any(row["training"] for row in trained_otherwise(rows, reference))


def _finished(block: dict[str, Any]) -> list[dict[str, Any]]:
    return finished_rows(block["rows"], measure_of(block))


def _begun(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that the verdict speaks of: those with some of their seeds, too."""
    return [row for row in block["rows"] if row["meaningful"] and scores(row, measure_of(block))]


def _text(shown: Sequence[dict[str, Any]], complete: Sequence[dict[str, Any]], details: str) -> str:
    parts = [part for block in shown for part in _block(block)]
    return "\n\n".join([*parts, _closing(shown, complete, details)])


def _block(block: dict[str, Any]) -> list[str]:
    """Return the paragraphs of a table: what it is, its rows, and what follows from them."""
    rows, measure = _begun(block), measure_of(block)
    verdict = escape(block["verdict"])
    told = [f"{verdict[:1].upper()}{verdict[1:]}.", _lead(block, rows, measure), _seeds(rows, measure), _effort(rows)]
    return [
        f"**{escape(block['title'])}**; the same {rows[0]['num_tasks']} test tasks for every row:",
        _table(block, rows, measure),
        _filled(" ".join(part for part in told if part)),
    ]


def _table(block: dict[str, Any], rows: Sequence[dict[str, Any]], measure: Measure) -> str:
    ks = [str(k) for k in range(1, block["num_episodes"] + 1)]
    header = [measure.corner, "seeds", *(measure.column.format(k=k) for k in ks)]
    columns = [("diversity", _diversity), ("paper", _published)]
    kept = [(head, cell) for head, cell in columns if any(cell(row) != NOTHING for row in rows)]
    cells = []
    for row in rows:
        found, bold = scores(row, measure), "**" if row["best"] else ""
        numbers = [measure.told(found[k]["share"], found[k]["interval"]) if k in found else NOTHING for k in ks]
        label = f"{bold}{escape(row['label'], bars=False)}{bold}"
        some, all_of_them = len(row["done"]), len(row["seeds"])
        seeds = NOTHING if not some else str(some) if some == all_of_them else f"{some} of {all_of_them}"
        cells.append([label, seeds, *numbers[:-1], f"{bold}{numbers[-1]}{bold}", *(cell(row) for _, cell in kept)])
    return lay_out([*header, *(head for head, _ in kept)], cells, markdown=True)


def _diversity(row: dict[str, Any]) -> str:
    found = row["diversity"]
    return NOTHING if found is None else nats(found["nats"], found.get("interval"))


def _published(row: dict[str, Any]) -> str:
    return percents([None if value is None else value / 100 for value in row["published"] or ()])


def _lead(block: dict[str, Any], rows: Sequence[dict[str, Any]], measure: Measure) -> str:
    """Say how far the reference's last episode lies above its own first and above the other rows."""
    labels = {row["id"]: _named(row) for row in rows}
    reference = next(row for row in rows if row["id"] == block["reference"])
    apart = [entry for entry in block["differences"] if {entry["better"], entry["than"]} <= set(labels)]
    told = [f"{_bounded(entry, measure)} over {labels[entry['than']]}" for entry in apart]
    if (gain := reference["gain"]) is not None:
        told.insert(0, f"{_bounded(gain, measure)} over its own {measure.column.format(k=1)}")
    column = measure.column.format(k=block["num_episodes"])
    return f"{labels[reference['id']]} at {column}: {', '.join(told)}." if told else ""


def _named(row: dict[str, Any]) -> str:
    """Write a row's name in a sentence; names hold commas and colons, so they are set apart."""
    return f"*{escape(row['label'])}*"


def _bounded(found: dict[str, Any], measure: Measure) -> str:
    return measure.difference(found["mean"], found["low"], found["high"])


def _seeds(rows: Sequence[dict[str, Any]], measure: Measure) -> str:
    """Say from where to where the seeds of a row reach."""
    several = [row for row in rows if len(row["done"]) > 1]
    told = []
    for row in different(several, "player"):
        found = scores(row, measure)
        spread = found[max(found, key=int)]["spread"]
        told.append(f"{_named(row)} {measure.told(spread['min'])} to {measure.told(spread['max'])}")
    return f"By seed: {', '.join(told)}." if told else ""


def _effort(rows: Sequence[dict[str, Any]]) -> str:
    """Say what training took."""
    told = [
        f"{_named(row)} {row['training']['steps']:,.0f} updates, {row['training']['episodes_used']:,.0f} "
        f"episodes, {row['training']['tokens'] / 1e6:.1f}M tokens"
        for row in different([row for row in rows if row["training"]], "models")
    ]
    return f"A training run: {'; '.join(told)}." if told else ""


def _closing(shown: Sequence[dict[str, Any]], complete: Sequence[dict[str, Any]], details: str) -> str:
    """Explain the columns, once for all tables, and lead to everything else."""
    parts = list(dict.fromkeys(measure_of(block).caption for block in shown))
    sources = dict.fromkeys(
        f"{escape(block['published']['source'])} ({escape(block['published']['setting'])})"
        for block in shown
        if block["published"] and any(row["published"] for row in _finished(block))
    )
    parts += [_DIFFERENCES] if shown else ["No table is complete yet."]
    explained = diversity_explained([row for block in shown for row in _finished(block)])
    parts += [explained] if explained else []
    parts += [f"Paper: {'; '.join(sources)}."] if sources else []
    more = [escape(block["title"]) for block in complete if block not in shown]
    parts += [f"Complete too: {'; '.join(more)}."] if more else []
    return _filled(f"{' '.join(parts)} Every table, and what is missing: [full report]({details}).")


def _filled(text: str) -> str:
    """Wrap a paragraph; a link, an interval and a sign stay on one line with what belongs to them."""
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
