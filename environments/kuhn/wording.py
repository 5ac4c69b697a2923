"""What the model reads: hands and rules of Kuhn poker and how its pages are put, `paper` and `compact`.

No text ever holds the other player's card, not even at the end of a hand: a page shows what the player knew.
Read first: `show_hand`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from metarl_agents.environments.kuhn.game import BET
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import COMPACT, Wording

_RULES = """\
You are playing Kuhn poker against another player. The pack has three cards: J (the lowest), Q and K (the highest).

Rules:
- Each player puts one chip into the pot and gets one card, which the other player never sees. The third card stays \
in the pack.
- The first player chooses pass or bet. A bet puts one more chip into the pot.
- If the first player bets, the second player answers: bet puts one more chip in, and the higher card takes the pot; \
pass gives the pot up to the first player.
- If the first player passes, the second player chooses. If it passes too, the higher card takes the pot. If it bets, \
the first player answers that bet in the same way.
So a hand wins or loses 1 chip if no bet was answered, and 2 chips if one was.

You are told whether you act first or second, your card, and all actions.
Goal: win chips. The other player is the same in every attempt and may have habits{again}, so find out how it plays.
An answer is pass or bet."""

_SAME_DEAL = ", and the same cards are dealt again"
_NEW_DEAL = ", but new cards are dealt each time"

_PLAY = """\
Now choose your action. First reason step by step: which cards may the other player hold, how does it play them, and \
what would each of your actions win or lose? Then answer pass or bet, inside <action> </action>."""

_REFLECT = """\
Now review the hand. First analyse it: what do the other player's actions and the result tell about its card and its \
habits, and what would another choice of yours have won? Then write a concise plan for the next hand against this \
same player, naming the action to take in each situation. Put your analysis and plan inside <remark> </remark>."""


@dataclass(frozen=True)
class Texts:
    """All that depends on the wording."""

    rules: str
    wording: Wording
    hand: str
    """Fields: seat, card, actions, result."""
    seats: tuple[str, str]
    own: str
    """One's own action. Fields: action."""
    other: str
    """The other player's action. Fields: action."""
    nothing_yet: str
    between: str
    won: str
    """Fields: chips."""
    lost: str
    """Fields: chips."""
    refusal: str


def _paper(redraw_deal: bool) -> Texts:
    wording = Wording(
        play_request=_PLAY,
        reflect_request=_REFLECT,
        admissible="",
        initial="The hand at the start:\n{observation}",
        current="The hand now:\n{observation}",
        history_heading="Your actions in this hand:",
        history_entry="Action {number}: you chose {action}. The hand after it and the other player's answer:\n"
        "{observation}",
        memory_heading="What you noted after earlier hands against this same player:",
        memory_remark="Hand {number} {outcome}. Your remark after it: {remark}",
        memory_trajectory="Hand {number} {outcome}. What happened:\n{trajectory}",
        memory_both="Hand {number} {outcome}. What happened:\n{trajectory}\nYour remark after it: {remark}",
        outcome_failure="was lost",
        outcome_success="was won",
        reflect_note="The hand {outcome}.",
        reflect_heading="One past hand against this player, to be reviewed:",
    )
    return Texts(
        rules=_RULES.format(again=_NEW_DEAL if redraw_deal else _SAME_DEAL),
        wording=wording,
        hand="You act {seat}. Your card is {card}. Actions so far: {actions}.{result}",
        seats=("first", "second"),
        own="you {action}",
        other="the other player {action}",
        nothing_yet="none",
        between=", ",
        won=" The hand is over: you win {chips}.",
        lost=" The hand is over: you lose {chips}.",
        refusal="\nThat is not an action of this game. Nothing has changed.",
    )


def _compact(redraw_deal: bool) -> Texts:
    return Texts(
        rules="",
        wording=replace(COMPACT, play_request="Choose one."),
        hand="{seat} {card}:{actions}{result}",
        seats=("first", "last"),
        own=" {action}",
        other=" {action}",
        nothing_yet="",
        between="",
        won=" won {chips}",
        lost=" lost {chips}",
        refusal="\nnot valid",
    )


_TEXTS = {"paper": _paper, "compact": _compact}


def texts(name: str, *, redraw_deal: bool) -> Texts:
    """Return the texts of the named wording."""
    check_choice("Kuhn poker", "wording", name, _TEXTS)
    return _TEXTS[name](redraw_deal)


def show_hand(seat: int, card: str, actions: tuple[str, ...], payoff: float | None, words: Texts) -> str:
    """Return a hand as the player of `seat` sees it; `payoff` is that player's at the end, None before.

    Args:
        seat: 0 or 1.
        card: that player's own.
        actions: of both, in order.
        payoff: chips won by that player, or None.
        words: the texts.
    """
    parts = [
        (words.own if number % 2 == seat else words.other).format(action=_verb(action, number % 2 == seat, words))
        for number, action in enumerate(actions)
    ]
    listed = words.between.join(parts) if parts else words.nothing_yet
    result = ""
    if payoff is not None:
        chips = _chips(abs(payoff), words)
        result = (words.won if payoff > 0 else words.lost).format(chips=chips)
    return words.hand.format(seat=words.seats[seat], card=card, actions=listed, result=result)


def _verb(action: str, own: bool, words: Texts) -> str:
    if own or not words.between:
        return action
    return "bets" if action == BET else "passes"


def _chips(count: float, words: Texts) -> str:
    if not words.between:
        return f"{count:g}"
    return "1 chip" if count == 1 else f"{count:g} chips"
