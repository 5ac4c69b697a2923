"""What the model reads: rounds and rules of matrix games and how their pages are put, `paper` and `compact`.

An observation lists all rounds, so a page needs no history beside it. Read first: `show_rounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from metarl_agents.environments.matrix_game.game import MatrixRules
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import COMPACT, Wording

_RULES = """\
You are playing a game of {rounds} against another player. In each round both of you choose at the same time, \
without seeing the other's choice: {actions}. Then both choices are shown, and each of you gets points.

{tables}

{goal} The other player is the same in every attempt and may have habits, so find out how it chooses and what \
exploits that.
An answer is one of: {actions}."""

_ZERO_SUM = "Goal: end with more than 0 points in all."
_GENERAL = (
    "Goal: get many points in all; how many the other player gets does not matter. The attempt is won if your points "
    "reach the middle between what a player gets who ignores the other's habits and what one gets who exploits them."
)

_PLAY = """\
Now choose for this round. First reason step by step: how has the other player chosen so far, how does it react to \
you, and what will it choose next? Then answer with one of {actions}, inside <action> </action>."""

_REFLECT = """\
Now review the game. First analyse it: which habit explains the other player's choices, and which of your choices \
cost points? Then write a concise plan for the next game against this same player, naming what to choose in which \
round or after what. Put your analysis and plan inside <remark> </remark>."""


@dataclass(frozen=True)
class Texts:
    """All that depends on the wording."""

    rules: str
    wording: Wording
    seats: tuple[str, str]
    """Begin an observation where the seats differ."""
    now: str
    """While it goes on. Fields: number (1-based), rounds, listed, total."""
    end: str
    """At the end. Fields: rounds, listed, total."""
    pair: str
    """One round. Fields: own, other, points."""
    none: str
    refusal: str


def _paper(rules: MatrixRules) -> Texts:
    actions = ", ".join(rules.actions)
    count = "1 round" if rules.rounds == 1 else f"{rules.rounds} rounds"
    wording = Wording(
        play_request=_PLAY.format(actions=actions),
        reflect_request=_REFLECT,
        admissible="",
        initial="",
        current="The game now:\n{observation}",
        history_turns=0,
        reflect_history_turns=0,
        memory_heading="What you noted after earlier games against this same player:",
        memory_remark="Game {number} {outcome}. Your remark after it: {remark}",
        memory_trajectory="Game {number} {outcome}. What happened:\n{trajectory}",
        memory_both="Game {number} {outcome}. What happened:\n{trajectory}\nYour remark after it: {remark}",
        trajectory_entry="You chose {action}. {observation}",
        outcome_failure="was lost" if rules.zero_sum else "was not won",
        outcome_success="was won",
        outcome_draw="was a draw",
        reflect_note="The game {outcome}.",
    )
    goal = _ZERO_SUM if rules.zero_sum else _GENERAL
    return Texts(
        rules=_RULES.format(rounds=count, actions=actions, tables=_tables(rules), goal=goal),
        wording=wording,
        seats=("You are the first player. ", "You are the second player. "),
        now="Round {number} of {rounds}. Your choices against the other player's so far: {listed}. Your points: "
        "{total}.",
        end="All {rounds} rounds are over. Your choices against the other player's: {listed}. Your points: {total}.",
        pair="{own} against {other} ({points:+g})",
        none="none",
        refusal="\nThat cannot be chosen. Nothing has changed.",
    )


def _compact(rules: MatrixRules) -> Texts:
    return Texts(
        rules="",
        wording=replace(COMPACT, play_request="Choose one.", reflect_history_turns=0),
        seats=("first ", "last "),
        now="{listed}",
        end="{listed} over {total}",
        pair="{own} against {other}",
        none="start",
        refusal="\nnot valid",
    )


_TEXTS = {"paper": _paper, "compact": _compact}


def texts(name: str, rules: MatrixRules) -> Texts:
    """Return the texts of the named wording."""
    check_choice("the matrix game", "wording", name, _TEXTS)
    return _TEXTS[name](rules)


def show_rounds(rules: MatrixRules, known: Sequence[tuple[str, str]], seat: int, words: Texts) -> str:
    """Return the rounds as a seat sees them.

    Args:
        rules: the game.
        known: (rounds over,) of (own choice, the other's).
        seat: 0 or 1; told only where the seats differ.
        words: the texts.
    """
    points = [rules.earns(seat, own, other) for own, other in known]
    pairs = [
        words.pair.format(own=own, other=other, points=point) for (own, other), point in zip(known, points, strict=True)
    ]
    template = words.end if len(known) == rules.rounds else words.now
    text = template.format(
        number=len(known) + 1, rounds=rules.rounds, listed=", ".join(pairs) or words.none, total=f"{sum(points):g}"
    )
    return text if rules.symmetric else words.seats[seat] + text


def _tables(rules: MatrixRules) -> str:
    """Return what each pair of choices pays, once where the seats are alike, else for each of them."""
    if rules.symmetric:
        return _table(rules, 0)
    return f"If you are the first player:\n{_table(rules, 0)}\nIf you are the second player:\n{_table(rules, 1)}"


def _table(rules: MatrixRules, seat: int) -> str:
    return "\n".join(
        f"- You choose {own} and the other player {other}: you get {rules.earns(seat, own, other):g}, "
        f"the other player {rules.earns(1 - seat, other, own):g}."
        for own in rules.actions
        for other in rules.actions
    )
