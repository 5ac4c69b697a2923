"""A scripted Kuhn poker player of moderate skill: demonstrations for warm starts, and a baseline.

It reads the observation text and nothing else, so it knows what a model could know. Read first: `act`.
"""

from __future__ import annotations

import re
from typing import Any

from metarl_agents.environments.kuhn.game import BET, PASS

# (no bet yet, facing a bet): how likely each card bets. All of them do either now and then, so that a model that
# imitates this player goes on trying what it has not seen.
_HABIT = {"J": (0.35, 0.15), "Q": (0.35, 0.5), "K": (0.75, 0.9)}

Line = tuple[str, ...]
"""The actions of one player in one hand."""


class KuhnPlayer:
    """Bets the more the higher its card is, and may listen to its own remarks, which tell what a line of play earned.

    Args:
        heed: probability, drawn once a hand, of repeating the best line that remarks about this card tell of; a single
            one that has lost is not repeated.
    """

    def __init__(self, heed: float = 0.3):
        self.heed = heed
        self._remarks: list[str] = []

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin a hand; with probability `heed`, keep the remarks in mind."""
        self._remarks = list(remarks) if rng.random() < self.heed else []

    def act(self, observation: str, rng: Any) -> str:
        """Return `<action>pass</action>` or `<action>bet</action>`."""
        card, faces_bet = read_hand(observation)
        action = BET if rng.random() < _HABIT[card][faces_bet] else PASS
        earned = {line: chips for remark in self._remarks for line, chips in _lines(remark, card)}
        if earned:
            action = _planned(earned, _own_actions(observation)) or action
        return f"<action>{action}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return `<remark>Q pass bet lost 2</remark>`: the card, the own actions, and what they earned."""
        final = episode.final_observation
        card, _ = read_hand(final)
        own = [turn.action for turn in episode.turns if turn.action in (PASS, BET)]
        result = _RESULT.search(final)
        if not own or not result:
            return f"<remark>{card}</remark>"
        return f"<remark>{card} {' '.join(own)} {'won' if result[1].startswith('w') else 'lost'} {result[2]}</remark>"


_RESULT = re.compile(r"\b(wins?|won|lose|loses|lost) (\d)")


def _lines(remark: str, card: str) -> list[tuple[Line, int]]:
    """Return the lines of play with this card that a remark tells of, each with the chips it earned."""
    found = re.findall(rf"\b{card}((?: (?:pass|bet))+) (won|lost) (\d)", remark)
    return [
        (tuple(actions.split()), int(chips) if ending == "won" else -int(chips)) for actions, ending, chips in found
    ]


def _planned(earned: dict[Line, int], own: Line) -> str | None:
    """Return the next action of the best line known, or of one that is not known where the only one known has lost.

    None where the other player has turned off, so that no line known leads on from here.
    """
    ahead = {line: chips for line, chips in earned.items() if line[: len(own)] == own and len(line) > len(own)}
    if not ahead:
        return None
    best = max(ahead, key=ahead.__getitem__)
    if len(earned) == 1 and earned[best] < 0:
        return PASS if best[len(own)] == BET else BET
    return best[len(own)]


def _own_actions(observation: str) -> Line:
    """Return the actions that the reader of an observation has taken in this hand."""
    first = re.search(r"\bfirst\b", observation.partition(":")[0]) is not None
    return tuple(_actions(observation)[0 if first else 1 :: 2])


def _actions(observation: str) -> list[str]:
    return [
        BET if word.startswith(BET) else PASS
        for word in re.findall(r"\b(bets?|pass(?:es)?)\b", observation.partition(":")[2])
    ]


def read_hand(observation: str) -> tuple[str, bool]:
    """Return (own card, whether the newest action is a bet of the other player).

    >>> read_hand("You act second. Your card is Q. Actions so far: the other player bets.")
    ('Q', True)
    >>> read_hand("first K: pass bet"), read_hand("last J: pass")
    (('K', True), ('J', False))
    """
    card = re.search(r"\b([JQK])\b", observation)
    return (card[1] if card else "Q"), _actions(observation)[-1:] == [BET]
