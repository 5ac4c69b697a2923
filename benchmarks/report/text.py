"""A report as Markdown: the content of the page, for a file of its own.

What does not live here: the pictures (`charts.py`), which lie beside as SVG files, and the few lines that a README
shows (`readme.py`).
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Sequence

from metarl_agents.evaluation.layout import lay_out
from metarl_agents.tracking.markdown import escape, one_line
from report.model import Block, Report, Row
from report.page import EFFORT, LONG_LIST, NOTHING, counts, effort_cells, more_cells, more_heads, percents, table_heads


def render_text(report: Report, *, pictures: str) -> str:
    """Return the Markdown; the same report always gives the same text.

    Args:
        report: what to show.
        pictures: relative address of the folder with `picture_name(...)` files.
    """
    parts = [f"# {escape(report.title)}", _bullets(report.header)]
    for block in report.main:
        parts += [f"## {escape(block.title)}", *_block(block, pictures)]
    if report.ablations:
        parts.append("## Ablations")
        for block in report.ablations:
            heading = html.escape(one_line(block.title))
            parts += [f"<details><summary>{heading}</summary>", *_block(block, pictures), "</details>"]
    if report.open_parts:
        parts.append("## What is not there")
    for title, lines in report.open_parts:
        parts += [f"{title}: {len(lines)}", _foldable("All of them", lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


def picture_name(block: Block, number: int) -> str:
    """Return the name of the file of a block's picture; blocks of different names never share one."""
    stem = re.sub(r"[^a-z0-9_]+", "-", block.name.lower()).strip("-")
    if stem != block.name:
        stem = f"{stem}-{hashlib.sha256(block.name.encode('utf-8', 'backslashreplace')).hexdigest()[:6]}".strip("-")
    return f"{stem}-{number + 1}.svg"


def _block(block: Block, pictures: str) -> list[str]:
    if not any(row.pass_at for row in block.rows):
        reasons = _bullets(f"{row.label}: {row.remark}" for row in block.rows if row.absence == "failed")
        return [f"No row has numbers yet (planned: {len(block.rows)}).", reasons]
    parts = [escape(block.about), _main_table(block)]
    if any(row.published for row in block.rows):
        parts.append(f"Paper: {escape(block.source or 'published numbers')}.")
    parts.append(_bullets(f"{row.label}: {row.remark}" for row in block.rows if row.remark))
    parts += [_foldable("Differences", block.differences), _pictures(block, pictures), _more_table(block)]
    return [*parts, _effort_table(block), _bullets(block.conditions)]


def _foldable(title: str, lines: Sequence[str]) -> str:
    if len(lines) <= LONG_LIST:
        return _bullets(lines)
    return f"<details><summary>{title} ({len(lines)})</summary>\n\n{_bullets(lines)}\n\n</details>"


def _main_table(block: Block) -> str:
    heads = table_heads(block)
    rows = [[_label(row), *_main_cells(row, block)] for row in block.rows]
    return lay_out([block.measure.corner, *heads], rows, markdown=True)


def _main_cells(row: Row, block: Block) -> list[str]:
    told = block.measure.told
    shown = [told(n.value, None if n.low is None else (n.low, n.high)) for n in row.pass_at]
    shown = [f"**{cell}**" for cell in shown] if row.is_best else shown
    gap = NOTHING if shown else escape(row.absence, bars=False)
    cells = shown + [gap] * (block.num_episodes - len(shown))
    published = [percents(row.published)] if any(other.published for other in block.rows) else []
    return [*cells, *published, *counts(row)]


def _label(row: Row) -> str:
    label = escape(row.label, bars=False)
    return f"**{label}**" if row.is_best else label


def _more_table(block: Block) -> str:
    heads = more_heads(block)
    rows = [
        [_label(row), *(escape(cell, bars=False) for cell in more_cells(row, block))]
        for row in block.rows
        if row.pass_at or row.endings
    ]
    if not heads or not rows:
        return ""
    table = lay_out(["method", *(escape(head, bars=False) for head in heads)], rows, markdown=True)
    return f"{escape(block.more)}\n\n{table}" if block.more else table


def _effort_table(block: Block) -> str:
    rows = [
        [escape(row.label, bars=False), *(escape(cell, bars=False) for cell in effort_cells(row, block))]
        for row in block.rows
        if row.effort
    ]
    heads = ["method", *(escape(head, bars=False) for head in block.effort_names)]
    return f"{EFFORT}\n\n{lay_out(heads, rows, markdown=True)}" if rows else ""


def _pictures(block: Block, folder: str) -> str:
    """Show the pictures by address; what they say stands in their alternative text."""
    lines = []
    for number, chart in enumerate(block.charts):
        address = f"{folder.rstrip('/')}/{picture_name(block, number)}"
        lines.append(f"![{escape(chart.summary())}]({address})")
    return "\n\n".join(lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"* {escape(line)}" for line in lines)
