"""Tables and the notes below them as text, plain or Markdown, and how a share is written.

What does not live here: what the tables say (`results.py`, `games.py`), and escaping (`tracking/markdown.py`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

NOTHING = "-"
"""Stands where there is no number."""
WIDEST = 2.0
"""A share whose interval is wider than this says nothing, and is not printed by `narrow_percent`."""
_GAP = "  "


def lay_out(header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool, width: int = 100) -> str:
    """Align a table: the first column to the left, the others to the right.

    Args:
        header: (columns,) titles.
        rows: (rows, columns) cells.
        markdown: a pipe table, never broken into blocks.
        width: characters of a line; further columns follow below, with the first column repeated.
    """
    table = [list(header), *map(list, rows)]
    if markdown:
        table = [[cell.replace("|", "\\|") for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if markdown:
        head, *body = [f"| {_line(row, widths, range(len(widths)), ' | ')} |" for row in table]
        rule = "|".join(["-" * (widths[0] + 2), *("-" * (size + 1) + ":" for size in widths[1:])])
        return "\n".join([head, f"|{rule}|", *body])
    blocks = []
    for columns in _blocks(widths, width):
        head, *body = [_line(row, widths, columns, _GAP).rstrip() for row in table]
        blocks.append("\n".join([head, "-" * max(map(len, [head, *body])), *body]))
    return "\n\n".join(blocks)


def lay_out_notes(notes: Sequence[str], markdown: bool, width: int = 100) -> str:
    """Write the lines below a table: a list in Markdown, wrapped at `width` otherwise."""
    if markdown:
        return "\n".join(f"* {note}" for note in notes)
    return "\n".join(textwrap.fill(note, width, subsequent_indent=_GAP) for note in notes)


def percent(share: float, interval: tuple[float, float] | None = None, digits: int = 1) -> str:
    """Write a share in percent, with its interval.

    >>> percent(0.332, (0.293, 0.374)), percent(-0.004, (-0.1, 0.09), digits=0)
    ('33.2 [29.3, 37.4]', '0 [-10, 9]')
    """
    bounds = "" if interval is None else f" [{', '.join(_rounded(bound, digits) for bound in interval)}]"
    return f"{_rounded(share, digits)}{bounds}"


def narrow_percent(estimate: Sequence[float] | None, digits: int = 1) -> str:
    """Write an estimated share in percent with its interval, or `-` where there is none or it is not known at all.

    Args:
        estimate: (mean, low, high), or None.
        digits: after the point.

    >>> narrow_percent((0.5, 0.4, 0.62)), narrow_percent((16.0, 3.0, 25.0)), narrow_percent(None)
    ('50.0 [40.0, 62.0]', '-', '-')
    """
    if estimate is None or estimate[2] - estimate[1] > WIDEST:
        return NOTHING
    return percent(estimate[0], (estimate[1], estimate[2]), digits)


def _rounded(share: float, digits: int) -> str:
    return f"{round(100 * share, digits) + 0.0:.{digits}f}"  # adding 0 takes the sign from a zero


def _blocks(widths: Sequence[int], width: int) -> list[list[int]]:
    """Deal columns into blocks that fit `width`; the first column opens every block."""
    blocks: list[list[int]] = [[0]]
    used = widths[0]
    for column, size in enumerate(widths[1:], start=1):
        if used + len(_GAP) + size > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(column)
        used += len(_GAP) + size
    return blocks


def _line(row: Sequence[str], widths: Sequence[int], columns: Sequence[int], gap: str) -> str:
    cells = (row[c].ljust(widths[c]) if c == 0 else row[c].rjust(widths[c]) for c in columns)
    return gap.join(cells)
