"""Thoughts in an answer: how they are marked, and what is finally said beside them.

The only parser of such markings. `policy/template.py` applies it to what was sampled; `envs/parsing.py` applies it to
the text that a caller brings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple


class Marking(NamedTuple):
    """What stands before and after a thought."""

    opening: str
    closing: str


_TAGS = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
MARKINGS = (
    *(Marking(f"<{tag}>", f"</{tag}>") for tag in _TAGS),
    Marking("[think]", "[/think]"),
    Marking("◁think▷", "◁/think▷"),
    Marking("<|channel>", "<channel|>"),
    Marking("<|start_thinking|>", "<|end_thinking|>"),
    Marking("<|begin_of_thought|>", "<|end_of_thought|>"),
)
"""Pairs that enclose a thought; letters may be small or capital."""

CHANNEL, MESSAGE = "<|channel|>", "<|message|>"
CHANNEL_TOKENS = (CHANNEL, MESSAGE, "<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
"""Control tokens of the harmony format, in which an answer is a row of messages, each in a named channel."""
_SAID_IN = "final"
FINAL_MESSAGE = f"<|end|><|start|>assistant{CHANNEL}{_SAID_IN}{MESSAGE}"
"""Ends a message in another channel and begins that which is said."""
_MESSAGE = re.compile(
    r"<\|channel\|>\s*(?P<channel>\w*)(?:(?!<\|(?:message|channel|start)\|>).)*<\|message\|>"
    r"(?P<text>(?:(?!<\|(?:channel|start|end|return|call)\|>).)*)",
    re.DOTALL,
)


def final_text(text: str, begun: str = "", learned: Iterable[Marking] = ()) -> str:
    """Return what an answer says after its last thought; "" while a thought is open.

    Text without a marking is returned as it is. In the harmony format it is the first message in the channel `final`.

    Args:
        text: the answer, special tokens included.
        begun: what the prompt's template already wrote of the answer.
        learned: further markings, beside the usual ones.

    >>> final_text("<think>Perhaps A.</think> B")
    'B'
    >>> final_text("perhaps A", begun="<think>")
    ''
    """
    if CHANNEL in begun or CHANNEL in text:
        messages = _MESSAGE.finditer(begun + text)
        return next((found["text"] for found in messages if found["channel"].lower() == _SAID_IN), "")
    pattern, closing_of = _compiled(tuple(learned))
    inside, _ = _scan(begun, None, pattern, closing_of)
    inside, start = _scan(text, inside, pattern, closing_of)
    if inside is not None:
        return ""
    return text[start:].lstrip() if start else text


def open_thought(text: str, learned: Iterable[Marking] = ()) -> str | None:
    """Return the closing mark that is due at the end of `text`, or None where no thought is open."""
    return _scan(text, None, *_compiled(tuple(learned)))[0]


def has_thought(text: str, learned: Iterable[Marking] = ()) -> bool:
    """Whether a marking of thoughts stands in `text`."""
    return CHANNEL in text or _compiled(tuple(learned))[0].search(text) is not None


def _scan(
    text: str, inside: str | None, pattern: re.Pattern[str], closing_of: dict[str, str]
) -> tuple[str | None, int]:
    """Return (closing mark that is due at the end, where the text after the last thought begins).

    An open thought is closed by its own mark only. A closing mark without an opening one ends a thought that somebody
    else opened.
    """
    start = 0
    for match in pattern.finditer(text):
        mark = match[0].lower()
        if inside is None and mark in closing_of:
            inside = closing_of[mark]
        elif inside is None or mark == inside:
            inside, start = None, match.end()
    return inside, start


@lru_cache(maxsize=64)
def _compiled(learned: tuple[Marking, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    """Return (pattern of every mark, {opening mark: closing mark})."""
    closing_of = {opening.lower(): closing.lower() for opening, closing in (*MARKINGS, *learned)}
    marks = sorted({*closing_of, *closing_of.values()}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, marks)), re.IGNORECASE), closing_of
