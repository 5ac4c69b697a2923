"""Find the last complete <tag>...</tag> in a response. One parser for every environment; it never raises."""

from __future__ import annotations

import re

from metarl_agents.thoughts import final_text


def last_tag(text: str, tag: str) -> str | None:
    """Return the stripped text inside the last complete pair of `tag`, after any thought (see `thoughts.py`).

    An opening tag inside the pair restarts it, so that "<action> <action>up</action>" means "up". A pair that
    holds nothing is no answer. While a thought is still open (`<think>` without `</think>`), nothing has been answered.

    Args:
        text: the response as the model wrote it.
        tag: the tag's bare name, as in "action".

    Returns:
        The inner text, or None where there is no complete, non-empty pair.

    >>> last_tag("<action>up</action> no: <action> down </action>", "action")
    'down'
    >>> last_tag("<think> <action>up</action>", "action") is None
    True
    """
    text = final_text(text)
    opening, closing = re.escape(f"<{tag}>"), re.escape(f"</{tag}>")
    innermost = re.findall(f"{opening}((?:(?!{opening}|{closing}).)*){closing}", text, flags=re.DOTALL)
    return (innermost[-1].strip() or None) if innermost else None


_CELL = re.compile(r"\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)|(\d{1,3})\s*,\s*(\d{1,3})", flags=re.ASCII)


def parse_cell(text: str | None) -> tuple[int, int] | None:
    """Read exactly one "(row, col)" pair of numbers (brackets optional); None for anything else.

    >>> parse_cell("(2, 3)"), parse_cell("2,3"), parse_cell("(2, 3) or (1, 1)")
    ((2, 3), (2, 3), None)
    """
    match = _CELL.fullmatch(text.strip()) if text else None
    if match is None:
        return None
    row, col = (match[1], match[2]) if match[1] else (match[3], match[4])
    return int(row), int(col)
