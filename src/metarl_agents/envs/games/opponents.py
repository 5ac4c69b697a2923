"""Opponents of any game: uniform play, a table of probabilities, a human.

Searching ones are in `search.py`; those of one game are beside its rules, in `environments/<game>/opponents.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from random import Random

from metarl_agents.envs.games.contract import Decision, MixedOpponent, Opponent, Policy, uniform


class UniformOpponent(MixedOpponent):
    """Plays every legal action equally often."""

    def __init__(self, name: str = "random"):
        self.name = name

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return equal probabilities."""
        return uniform(decision.legal)


class PolicyOpponent(MixedOpponent):
    """Plays as a function tells it to.

    Args:
        name: its role.
        policy: the probability of each legal action.
    """

    def __init__(self, name: str, policy: Policy):
        self.name, self._policy = name, policy

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return what the function says."""
        return self._policy(decision)


class TableOpponent(MixedOpponent):
    """Plays from a table; where that says nothing, uniformly.

    Args:
        name: its role.
        table: information -> probability of each action.
    """

    def __init__(self, name: str, table: Mapping[Hashable, Mapping[str, float]]):
        self.name, self.table = name, table

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return the table's row."""
        row = self.table.get(decision.information)
        return uniform(decision.legal) if row is None else row


class HumanOpponent(Opponent):
    """Asks a human, again and again until the answer is a legal action.

    Args:
        ask: shows a text and returns what was typed; the builtin `input` by default.
        name: its role.
    """

    def __init__(self, ask: Callable[[str], str] = input, name: str = "human"):
        self.name, self._ask = name, ask

    def act(self, decision: Decision, rng: Random) -> str:
        """Show the observation and the legal actions, and return the one that was typed."""
        page = f"{decision.observation}\nYour move ({' '.join(decision.legal)}): "
        typed = self._ask(page).strip()
        while typed not in decision.legal:
            typed = self._ask(f'"{typed}" cannot be played here. {page}').strip()
        return typed
