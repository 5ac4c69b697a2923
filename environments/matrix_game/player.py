"""A scripted player of matrix games, of moderate skill: demonstrations for warm starts, and a baseline.

It reads the observation text and knows the rules, nothing else. Read first: `act`.
"""

from __future__ import annotations

import re
from typing import Any

from metarl_agents.environments.matrix_game.game import MatrixRules


class MatrixPlayer:
    """Often answers the other player's last choice, else chooses at random, and may listen to its own remarks.

    Args:
        rules: the game.
        skill: probability, drawn for each round, of the best reply to the other player's last choice.
        heed: probability, drawn once a game, of choosing all along what the newest remark names.
    """

    def __init__(self, rules: MatrixRules, skill: float = 0.4, heed: float = 0.3):
        self.rules, self.skill, self.heed = rules, skill, heed
        self._pair = re.compile("({0}) against ({0})".format("|".join(rules.actions)))
        self._planned: str | None = None

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin a game; with probability `heed`, choose what the newest remark names."""
        named = [word for word in re.findall(r"\w+", remarks[-1]) if word in self.rules.actions] if remarks else []
        heeds = rng.random() < self.heed
        self._planned = named[-1] if named and heeds else None

    def act(self, observation: str, rng: Any) -> str:
        """Return the next choice, as `<action>rock</action>`."""
        actions, seen = self.rules.actions, self._pair.findall(observation)
        replies, any_action = rng.random() < self.skill, actions[int(rng.random() * len(actions))]
        if self._planned is not None:
            choice = self._planned
        elif seen and replies:
            choice = self.rules.best_reply(_seat(observation), {seen[-1][1]: 1.0})
        else:
            choice = any_action
        return f"<action>{choice}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Name the best reply to the other player's choices of this game."""
        seen = [other for _, other in self._pair.findall(episode.final_observation)]
        counts = {action: float(seen.count(action)) for action in self.rules.actions}
        return f"<remark>choose {self.rules.best_reply(_seat(episode.final_observation), counts)}</remark>"


def _seat(observation: str) -> int:
    """Return the seat that an observation tells, 0 where it tells none."""
    return int(observation.startswith(("You are the second", "last ")))
