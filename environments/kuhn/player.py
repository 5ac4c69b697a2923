"""A scripted Kuhn poker player of moderate skill: demonstrations for warm starts, and a baseline.

It reads the observation text and nothing else, so it knows what a model could know. Read first: `act`.
"""

from __future__ import annotations

import re
from typing import Any

from metarl_agents.environments.kuhn.game import BET, PASS

# (no bet yet, facing a bet): how likely each card bets.
_HABIT = {"J": (0.25, 0.05), "Q": (0.25, 0.45), "K": (0.8, 0.98)}


class KuhnPlayer:
    """Bets the more the higher its card is, and may listen to its own remarks.

    Args:
        heed: probability, drawn once a hand, of doing what the newest remark that fits its card says.
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
        bets = rng.random() < _HABIT[card][faces_bet]
        for remark in self._remarks:  # the newest comes last and decides
            said = re.search(rf"\b{card} (pass|bet)\b", remark)
            bets = said[1] == BET if said else bets
        return f"<action>{BET if bets else PASS}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """After a loss, plan the other action with this card; after a win, the same. The last own action counts."""
        card, _ = read_hand(episode.final_observation)
        own = [turn.action for turn in episode.turns if turn.action in (PASS, BET)]
        last = own[-1] if own else BET
        lost = re.search(r"\blos[et]\b", episode.final_observation)
        planned = (PASS if last == BET else BET) if lost else last
        return f"<remark>{card} {planned}</remark>"


def read_hand(observation: str) -> tuple[str, bool]:
    """Return (own card, whether the newest action is a bet of the other player).

    >>> read_hand("You act second. Your card is Q. Actions so far: the other player bets.")
    ('Q', True)
    >>> read_hand("first K: pass bet"), read_hand("last J: pass")
    (('K', True), ('J', False))
    """
    card = re.search(r"\b([JQK])\b", observation)
    actions = re.findall(r"\b(bets?|pass|passes)\b", observation.partition(":")[2])
    return (card[1] if card else "Q"), bool(actions) and actions[-1].startswith(BET)
