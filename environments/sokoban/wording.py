"""What the model reads: the rules of Sokoban and how its pages are put, `paper` and `compact`.

`paper` follows the structure of the papers' prompts (role, legend, goal, rules; reason first, then answer).
`compact` says next to nothing: it is for models of less than a million weights, taught by demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from metarl_agents.environments.sokoban.game import Room
from metarl_agents.environments.sokoban.text import compact_text, paper_text
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import COMPACT, Wording

_RULES = """\
You are solving a Sokoban room: you walk through it and push its boxes onto the targets.

Signs in the room, whose rows and columns are both counted from 0 (each row starts with its number):
- # is a wall.
- _ is free floor.
- O is a target with nothing on it.
- X is a box that is not on a target.
- √ is a box on a target.
- P is you.
- S is you, standing on a target.

Goal: bring every box onto a target.

What a move does:
- The moves are up, down, left and right. Each takes you one cell that way if the cell is free floor or a target.
- If a box is there, you push it one cell further, provided that the cell behind it is free floor or a target.
- You cannot pull a box, nor push two at once, so a box in a corner off the targets can never be moved again.
- A move that a wall or a box blocks changes nothing and is still used up.
{ends}
An answer names {moves}."""

_ENDS = "The attempt is won as soon as the last box is on a target."
_ENDS_STUCK = _ENDS + " It is lost as soon as no moves at all could solve the room any more."

_PLAY = """\
Now choose what to do next. First reason step by step: which box goes to which target, from which side must it be \
pushed, how do you get there, and which push would trap a box? Then give {moves}, inside <action> </action>."""

_REFLECT = """\
Now review the attempt. First analyse it: which pushes brought a box closer to a target, and which one trapped a box \
or wasted moves? Then write a concise plan for the next attempt on this same room: in which order to push the boxes, \
from which sides, and which pushes to avoid. Put your analysis and plan inside <remark> </remark>."""


class Texts(NamedTuple):
    """All that depends on the wording."""

    rules: str
    wording: Wording
    room_text: Callable[[Room], str]
    between_moves: str
    """Stands between two moves of an answer."""


def show_moves(between: str) -> Callable[[object], str]:
    """Return how pages print a turn's moves.

    >>> show_moves(", ")(("up", "left"))
    'up, left'
    """
    return lambda action: between.join(action) if isinstance(action, tuple) else str(action)


def paper(max_actions: int, end_when_stuck: bool) -> Texts:
    """Return the texts for language models."""
    moves = (
        f'1 to {max_actions} moves, carried out in that order and separated by commas, as in "up, left"'
        if max_actions > 1
        else 'exactly one move, as in "up"'
    )
    wording = Wording(
        play_request=_PLAY.format(moves=moves),
        reflect_request=_REFLECT,
        initial="The room at the start:\n{observation}",
        current="The room now:\n{observation}",
        history_heading="Your turns in this attempt:",
        history_entry="Turn {number}: you chose {action}. The room after it:\n{observation}",
        memory_heading="What you noted after earlier attempts on this same room:",
        reflect_heading="One past attempt on this room, to be reviewed:",
        show_action=show_moves(", "),
    )
    rules = _RULES.format(moves=moves, ends=_ENDS_STUCK if end_when_stuck else _ENDS)
    return Texts(rules, wording, paper_text, ", ")


def compact(max_actions: int, end_when_stuck: bool) -> Texts:
    """Return the texts for small models: no rules, the room alone, moves alone in reflections."""
    wording = replace(
        COMPACT,
        play_request="next move",
        history_entry="{action}.",
        memory_both="Attempt {number} {outcome}: {trajectory} {remark}",
        trajectory_entry="{action}.",
        show_action=show_moves(" "),
    )
    return Texts("", wording, compact_text, " ")


_WORDINGS = {"paper": paper, "compact": compact}


def texts(name: str, *, max_actions: int, end_when_stuck: bool) -> Texts:
    """Return the texts of the named wording."""
    check_choice("Sokoban", "wording", name, _WORDINGS)
    return _WORDINGS[name](max_actions, end_when_stuck)
