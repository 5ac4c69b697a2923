"""The rules of Kuhn poker, as a `Game`: three cards, one chip each to begin with, one bet of one chip.

Source: H. W. Kuhn, "A simplified two-person poker" (1950).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from metarl_agents.envs.games import Game

CARDS = ("J", "Q", "K")
"""Lowest first."""
PASS, BET = "pass", "bet"
ACTIONS = (PASS, BET)
_ENDS = {(PASS, PASS), (BET, PASS), (BET, BET), (PASS, BET, PASS), (PASS, BET, BET)}
DECISIONS = ((), (PASS,), (BET,), (PASS, BET))
"""Every sequence of actions after which a player chooses; with three cards each, 12 information sets."""


class Hand(NamedTuple):
    """One deal and what has been done since."""

    cards: tuple[str, str]
    """The card of each seat."""
    actions: tuple[str, ...] = ()


class Known(NamedTuple):
    """What one player knows of a hand."""

    card: str
    actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class KuhnGame(Game):
    """Pass or bet; a bet must be answered by a bet or the pot is lost. The higher card takes what was not given up.

    Payoffs are chips won or lost: 1 where nobody bet or a bet was not answered, 2 where it was.
    """

    def deals(self) -> Sequence[tuple[float, Hand]]:
        """Return the six deals, equally likely."""
        return tuple((1 / 6, Hand(cards)) for cards in permutations(CARDS, 2))

    def current_player(self, state: Hand) -> int | None:
        """Return 0 or 1, or None where the hand is over."""
        return None if state.actions in _ENDS else len(state.actions) % 2

    def legal_actions(self, state: Hand) -> tuple[str, ...]:
        """Return both actions until the end."""
        return () if state.actions in _ENDS else ACTIONS

    def play(self, state: Hand, action: str) -> Hand:
        """Return the hand with one more action."""
        return Hand(state.cards, (*state.actions, action))

    def payoffs(self, state: Hand) -> tuple[float, ...]:
        """Return the chips each seat has won, which the other has lost; nothing before the end."""
        if state.actions not in _ENDS:
            return (0.0, 0.0)
        if state.actions[-2:] == (BET, PASS):
            # Whoever passed on a bet was the last to act, and loses the chip of the start.
            first = 1.0 if len(state.actions) % 2 == 0 else -1.0
        else:
            stake = 2.0 if BET in state.actions else 1.0
            first = stake if CARDS.index(state.cards[0]) > CARDS.index(state.cards[1]) else -stake
        return (first, -first)

    def information(self, state: Hand, seat: int) -> Known:
        """Return the own card and all actions."""
        return Known(state.cards[seat], state.actions)


def information_sets(seat: int) -> tuple[Known, ...]:
    """Return the six situations in which a seat has to choose."""
    return tuple(Known(card, actions) for actions in DECISIONS if len(actions) % 2 == seat for card in CARDS)
