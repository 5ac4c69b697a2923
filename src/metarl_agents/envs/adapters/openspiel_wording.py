"""What the model reads of a game of OpenSpiel: rules that fit any game, turns, results; and how its moves are read.

OpenSpiel's own texts are passed on as they are. Read first: `Texts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from metarl_agents.envs.wording import COMPACT, Wording

_LONGEST_ANSWER = 200

_RULES = """\
You are playing {title} against another player. It is the game "{spec}" of the game library OpenSpiel, whose rules, \
texts and names of moves it uses.

Rules:
- You are the first or the second player, and are told which. The game's own texts count players from 0: the first \
player is 0, the second player is 1.
- {turns}
{details}- A move that is not among the admissible actions changes nothing and is penalised.

Goal: earn more than {par:g}. At the end a player has earned {least:g} at the least and {most:g} at the most. The \
other player is the same in every attempt and may have habits, so find out how it plays.
An answer names exactly one of the admissible actions, written as it is listed."""

TAKE_TURNS = "The players move one after the other, when they are told that it is their turn."
AT_ONCE = "Where both players have to choose, they choose at the same time: neither knows the other's choice before."
HIDDEN = "- You see what your player may know; the rest is hidden from you.\n"
SAME_CHANCE = "- What chance decides is decided alike in every attempt.\n"
NEW_CHANCE = "- What chance decides is drawn anew in every attempt.\n"
ROUNDS = (
    "- Rounds that are over are listed, the newest first, and in each the first player's choice before the second's.\n"
)
NUMBERS = "- Texts that name moves by number mean: {numbers}.\n"

_PLAY = """\
Now choose your move. First reason step by step: what does the position look like, what can the other player do next, \
and how has it played so far? Then name exactly one of the admissible actions, inside <action> </action>."""

_REFLECT = """\
Now review the game. First analyse it: which of your moves helped, which one went wrong, and how does the other player \
choose its moves? Then write a concise plan for the next game against this same player, naming the moves to make in \
each situation. Put your analysis and plan inside <remark> </remark>."""

WORDINGS = {
    "paper": Wording(
        play_request=_PLAY,
        reflect_request=_REFLECT,
        initial="The game at the start:\n{observation}",
        current="The game now:\n{observation}",
        history_heading="Your moves in this game:",
        history_entry="Move {number}: you chose {action}. The game after it and what followed:\n{observation}",
        memory_heading="What you noted after earlier games against this same player:",
        memory_remark="Game {number} {outcome}. Your remark after it: {remark}",
        memory_trajectory="Game {number} {outcome}. What happened:\n{trajectory}",
        memory_both="Game {number} {outcome}. What happened:\n{trajectory}\nYour remark after it: {remark}",
        outcome_failure="was not won",
        outcome_success="was won",
        outcome_draw="was a draw",
        reflect_note="The game {outcome}.",
        reflect_heading="One past game against this player, to be reviewed:",
    ),
    "compact": replace(COMPACT, admissible="Choose:\n{actions}", play_request="Answer inside <action> </action>."),
}


@dataclass(frozen=True)
class Texts:
    """All that stands around OpenSpiel's texts."""

    rules: str
    """Fields: title, spec, turns, details, par, least, most."""
    seats: tuple[str, str]
    own_turn: str
    other_turn: str
    so_far: str
    """In games that pay on the way. Fields: payoff."""
    over: str
    """Fields: result, payoff."""
    results: tuple[str, str, str]
    """More than par, par, less."""
    refusal: str


TEXTS = {
    "paper": Texts(
        rules=_RULES,
        seats=("You are the first player.", "You are the second player."),
        own_turn=" It is your turn.",
        other_turn=" It is the other player's turn.",
        so_far=" You have earned {payoff:g} so far.",
        over="The game is over: you have {result}. You have earned {payoff:g}.",
        results=("won", "drawn", "lost"),
        refusal="\nThat move is not admissible. Nothing has changed.",
    ),
    "compact": Texts(
        rules="",
        seats=("first", "second"),
        own_turn="",
        other_turn=" waits",
        so_far=" {payoff:g}",
        over="{result} {payoff:g}",
        results=("won", "drawn", "lost"),
        refusal="\nnot valid",
    ),
}


def read_move(answer: str | None, legal: Sequence[str]) -> str | None:
    """Return the legal action that an answer means, or else the answer itself, tidied, or None.

    Capitals, blanks and brackets around it do not matter, nor does a mark of the player or of the kind of move in
    front: "(0, 0)" means x(0,0), "3" means x3, "call" means player=1 move=Call. What could mean several is None.

    Args:
        answer: the text inside the action tags, if there is one.
        legal: the actions to choose among; empty where that is not known.

    >>> read_move("(0, 1)", ("x(0,0)", "x(0,1)")), read_move("LIAR.", ("1-3", "Liar")), read_move("13", ("1-3", "Liar"))
    ('x(0,1)', 'Liar', '13')
    """
    if answer is None or answer in legal:
        return answer
    key = _key(answer)
    for fits in (lambda name: _key(name) == key, lambda name: key in _tails(name)):
        meant = [name for name in legal if key and fits(name)]
        if meant:
            return meant[0] if len(meant) == 1 else None
    tidied = " ".join(answer.split())
    return tidied if 0 < len(tidied) <= _LONGEST_ANSWER else None


def _key(text: str) -> str:
    """Return a text without blanks, capitals, and what may surround it."""
    return "".join(text.split()).casefold().strip("()[]{}.,:;!=\"'`*")


def _tails(name: str) -> Iterator[str]:
    """Yield what is left of an action's name behind each mark: behind letters, ":", "=" and "]"."""
    for match in re.finditer(r"[^\W\d_](?![^\W\d_])|[:=\]]", name):
        tail = _key(name[match.end() :])
        if tail:
            yield tail
