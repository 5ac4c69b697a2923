"""A report as one HTML page that loads nothing: tables, charts and notes, every foreign text escaped.

What lives here: the elements. What does not: the style (`page.html`) and the pictures (`charts.py`). The page has
no script, and its content policy allows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from bench.measures import Measure

from metarl_agents.evaluation.layout import percent
from report.charts import STYLE, draw
from report.model import Block, Link, Number, Report, Row

TEMPLATE = Path(__file__).with_name("page.html")
NOTHING = "–"
EFFORT = "Training: mean of the seeds."
LONG_LIST = 6
"""More lines than this are folded away."""


def render_page(report: Report) -> str:
    """Return the page; the same report always gives the same text."""
    filled = {"TITLE": escape(report.title), "CHART_STYLE": STYLE, "BODY": _body(report)}
    # The template is cut once, so that nothing inside a value is taken for a place to fill.
    pieces = re.split("@@([A-Z_]+)@@", TEMPLATE.read_text(encoding="utf-8"))
    return "".join(filled[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def table_heads(block: Block) -> list[str]:
    """Return the headings of a block's first table, after the name of the rows."""
    ks = range(1, block.num_episodes + 1)
    published = ["paper"] if any(row.published for row in block.rows) else []
    return [*(block.measure.column.format(k=k) for k in ks), *published, "seeds", "tasks"]


def more_heads(block: Block) -> list[str]:
    """Return the headings of a block's second table; empty where there is nothing more to tell."""
    heads = [block.measure.gain.format(k=block.num_episodes)] if any(row.gain for row in block.rows) else []
    most = max((len(row.independent) for row in block.rows), default=0)
    if most:
        heads.append("indep. pass@" + "/".join(str(k) for k in range(1, most + 1)))
    heads += ["diversity"] if any(row.diversity is not None for row in block.rows) else []
    return heads + list(block.ending_names)


def gain_of(row: Row, block: Block) -> str:
    """Write what a row's last episode has over its first, with the sign."""
    gain = row.gain
    return NOTHING if gain is None else block.measure.difference(gain.value, gain.low, gain.high)


def percents(values: Sequence[float | None]) -> str:
    """Write shares beside each other: "44.1 / 66.4 / 74.4"."""
    return " / ".join(NOTHING if value is None else f"{100 * value:.1f}" for value in values) or NOTHING


def _beside(numbers: Sequence[Number]) -> str:
    """Write shares with their intervals beside each other: "44.1 [40.0, 48.2] / 66.4 [62.1, 70.3]"."""
    told = [percent(n.value, None if n.low is None or n.high is None else (n.low, n.high)) for n in numbers]
    return " / ".join(told) or NOTHING


def nats(value: float, interval: Sequence[float] | None = None) -> str:
    """Write an entropy with its interval: "0.44 [0.41, 0.47]"."""
    return f"{value:.2f}" + ("" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]")


def _nats(number: Number | None) -> str:
    if number is None:
        return NOTHING
    return nats(number.value, None if number.low is None else (number.low, number.high))


def counts(row: Row) -> list[str]:
    """Write how many trained models and how many tasks stand behind a row."""
    if not row.pass_at:
        return [NOTHING, NOTHING]
    return [NOTHING if row.seeds is None else str(row.seeds), str(row.tasks)]


def more_cells(row: Row, block: Block) -> list[str]:
    """Return the plain texts of a row of the second table."""
    cells = [gain_of(row, block)] if any(other.gain for other in block.rows) else []
    cells += [_beside(row.independent)] if any(other.independent for other in block.rows) else []
    if any(other.diversity is not None for other in block.rows):
        cells.append(_nats(row.diversity))
    endings = dict(row.endings)
    return cells + [endings.get(name, NOTHING) for name in block.ending_names]


def effort_cells(row: Row, block: Block) -> list[str]:
    """Return the plain texts of a row of the third table, under `Block.effort_names`."""
    effort = dict(row.effort)
    return [effort.get(name, NOTHING) for name in block.effort_names]


def _body(report: Report) -> str:
    parts = [f'<header class="top"><h1>{escape(report.title)}</h1>']
    parts += [_bullets(report.header), _navigation(report), "</header>", "<main>"]
    parts += [_section(block, index) for index, block in enumerate(report.main)]
    if report.ablations:
        inner = "".join(_section(b, len(report.main) + i, level=3) for i, b in enumerate(report.ablations))
        parts.append(f'<section id="ablations"><h2>Ablations</h2>{inner}</section>')
    parts += [_trajectories(report), _open_parts(report), "</main>"]
    return "\n".join(part for part in parts if part)


def _navigation(report: Report) -> str:
    entries = [(f"block-{index}", block.title) for index, block in enumerate(report.main)]
    entries += [("ablations", "Ablations")] * bool(report.ablations)
    entries += [("trajectories", "Trajectories")] * any(row.links for block in report.blocks for row in block.rows)
    told = ", ".join(f"{len(lines)} {title.lower()}" for title, lines in report.open_parts)
    entries += [("open", f"What is not there ({told})")] * bool(told)
    items = "".join(f'<li><a href="#{anchor}">{escape(text)}</a></li>' for anchor, text in entries)
    return f'<nav aria-label="Parts of the report"><ul>{items}</ul></nav>'


def _section(block: Block, index: int, level: int = 2) -> str:
    """Write one block: what is compared, the tables, the differences, the pictures, the conditions."""
    heading = f"h{level}"
    parts = [f'<section id="block-{index}"><{heading}>{escape(block.title)}</{heading}>']
    parts += [f"<p>{escape(block.about)}</p>"] if block.about else []
    parts.append(_main_table(block, index))
    parts.append(_foldable("Differences", block.differences))
    parts.append(_figures(block, index))
    parts += [_more_table(block, index), _effort_table(block, index)]
    parts.append(_bullets(block.conditions))
    return "".join([*parts, "</section>"])


def _main_table(block: Block, index: int) -> str:
    caption = block.measure.caption
    if "paper" in table_heads(block):
        caption += f" Paper: {block.source or 'published numbers'}."
    rows = [(row, _main_cells(row, block)) for row in block.rows]
    return _table(caption, f"table-{index}", table_heads(block), rows, with_remarks=True)


def _main_cells(row: Row, block: Block) -> list[str]:
    ks = range(block.num_episodes)
    if row.pass_at:
        measured = row.pass_at
        cells = [_pass_cell(measured[k], block.measure) if k < len(measured) else f"<td>{NOTHING}</td>" for k in ks]
    else:
        cells = [f'<td class="plan" colspan="{len(ks)}">{escape(row.absence)}</td>'] if ks else []
    if any(other.published for other in block.rows):
        cells.append(f"<td>{percents(row.published)}</td>")
    return cells + [f"<td>{cell}</td>" for cell in counts(row)]


def _more_table(block: Block, index: int) -> str:
    heads = more_heads(block)
    measured = [row for row in block.rows if row.pass_at or row.endings]
    if not heads or not measured:
        return ""
    rows = [(row, [f"<td>{escape(cell)}</td>" for cell in more_cells(row, block)]) for row in measured]
    return _table(block.more, f"more-{index}", heads, rows)


def _effort_table(block: Block, index: int) -> str:
    """Write what training took in a table of its own, so that none is wider than the page; it has no best row."""
    rows = [
        (replace(row, is_best=False), [f"<td>{escape(cell)}</td>" for cell in effort_cells(row, block)])
        for row in block.rows
        if row.effort
    ]
    return _table(EFFORT, f"effort-{index}", block.effort_names, rows) if rows else ""


def _table(
    caption: str,
    identity: str,
    heads: Sequence[str],
    rows: Sequence[tuple[Row, list[str]]],
    *,
    with_remarks: bool = False,
) -> str:
    """Write a table; its caption stands above the box that scrolls, so that it can be read whole."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ["method", *heads])
    body = []
    for row, cells in rows:
        remark = f'<span class="remark">{escape(row.remark)}</span>' if with_remarks and row.remark else ""
        kind = ' class="best"' if row.is_best else ""
        body.append(f'<tr{kind}><th scope="row">{escape(row.label)}{remark}</th>{"".join(cells)}</tr>')
    table = f'<table aria-labelledby="{identity}"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    return f'<p class="caption" id="{identity}">{escape(caption)}</p>{_scrolling(table, identity)}'


def _scrolling(inner: str, named_by: str) -> str:
    """Put what may be wider than the screen into a box of its own, which the keyboard can scroll."""
    return f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{named_by}">{inner}</div>'


def _pass_cell(number: Number, measure: Measure) -> str:
    interval = None if number.low is None or number.high is None else (number.low, number.high)
    told, _, bounds = measure.told(number.value, interval).partition(" ")
    told += f'<span class="ci">{bounds}</span>' if bounds else ""
    if number.spread is not None:
        low, high = map(measure.told, number.spread)
        told += f'<span class="ci">runs {low} to {high}</span>'
    return f"<td>{told}</td>"


def _figures(block: Block, index: int) -> str:
    drawn = []
    for number, chart in enumerate(block.charts):
        identity = f"chart-{index}-{number}"
        picture = _scrolling(draw(chart, identity), f"{identity}-head")
        heading = f'<h4 id="{identity}-head">{escape(chart.title)}</h4>'
        drawn.append(f"<figure>{heading}{picture}<figcaption>{escape(chart.caption)}</figcaption></figure>")
    return f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""


def _foldable(title: str, lines: Sequence[str]) -> str:
    """List lines, folded away where there are many."""
    if len(lines) <= LONG_LIST:
        return _bullets(lines)
    return f"<details><summary>{title} ({len(lines)})</summary>{_bullets(lines)}</details>"


def _bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="plain">{items}</ul>' if items else ""


def _trajectories(report: Report) -> str:
    """List the runs whose trials can be read, once each, under the rows that use them."""
    items, told = [], set()
    for block in report.blocks:
        for row in block.rows:
            fresh = [link for link in row.links if link not in told]
            told |= set(fresh)
            if fresh:
                items.append(f"<li>{escape(block.title)}, {escape(row.label)}: {', '.join(map(_link, fresh))}</li>")
    if not items:
        return ""
    return f'<section id="trajectories"><h2>Trajectories</h2><ul class="plain">{"".join(items)}</ul></section>'


def _link(link: Link) -> str:
    text = escape(link.text) if link.target is None else f'<a href="{escape(link.target)}">{escape(link.text)}</a>'
    return f'{text} <span class="soft">({escape(link.note)})</span>' if link.note else text


def _open_parts(report: Report) -> str:
    parts = []
    for title, lines in report.open_parts:
        kind = "state bad" if lines is report.failed else "state"
        parts.append(f'<div class="{kind}"><h3>{title}: {len(lines)}</h3>{_foldable("All of them", lines)}</div>')
    return f'<section id="open"><h2>What is not there</h2>{"".join(parts)}</section>' if parts else ""
