"""Foreign text inside Markdown: names, settings, paths and error messages that must stay text.

What lives here: escaping for running text, table cells, code spans and fenced code. What does not: the model card
(`model_card.py`) and the tables themselves (`evaluation/layout.py`). HTML is escaped by `html.escape`.
"""

from __future__ import annotations

import re

# Line breaks, control characters, and the marks that turn the direction of writing around.
_SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
# What can open markup inside a line: emphasis, code, links, tables, mathematics; `<` and `&` open HTML.
_MARKS = re.compile(r"([\\`*_\[\]~$#])")


def one_line(value: object) -> str:
    """Return a value as text without line breaks or control characters; runs of blanks become one."""
    return _SPACES.sub(" ", str(value)).strip()


def escape(value: object, *, bars: bool = True) -> str:
    r"""Return a value as running text or table cell that shows exactly its characters.

    Args:
        value: what to show.
        bars: also escape vertical bars; False for a cell that `lay_out` puts into a table, which does so itself.

    >>> print(escape("a|b <script> *x*"))
    a\|b &lt;script&gt; \*x\*
    """
    text = one_line(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKS.sub(r"\\\1", text)
    return text.replace("|", "\\|") if bars else text


def code(value: object, *, in_table: bool = False) -> str:
    """Return a value as a code span, whatever backticks it holds.

    Args:
        value: what to show.
        in_table: also keep its vertical bars from ending a table's cell.
    """
    text = one_line(value)
    if not text:
        return "-"
    ticks = _fence(text, shortest=1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    span = f"{ticks}{blank}{text}{blank}{ticks}"
    return span.replace("|", "\\|") if in_table else span


def fenced(text: str, language: str = "") -> str:
    """Return text as a fenced block that no line of it can close."""
    fence = _fence(text, shortest=3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _fence(text: str, *, shortest: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(shortest, longest + 1)
