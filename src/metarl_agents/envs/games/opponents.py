"""Opponents of any game: uniform play, a table of probabilities, a human.

Searching ones are in `search.py`; those of one game are beside its rules, in `environments/<game>/opponents.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from typing import Any

from metarl_agents.envs.games.contract import Decision, MixedOpponent, Opponent, Policy, uniform
from metarl_agents.envs.parsing import last_tag


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
    """Asks a human, again and again until the answer means a legal action.

    An answer may be put as a model may put it inside <action> </action>, or as plain words and numbers: capitals,
    brackets, commas and a full stop are of no account.

    Args:
        ask: shows a text and returns what was typed; the builtin `input` by default.
        name: its role.
        parse: what an answer of a model means in this game: `parse_action` of the environment.
    """

    def __init__(
        self,
        ask: Callable[[str], str] = input,
        name: str = "human",
        parse: Callable[[str], Any | None] | None = None,
    ):
        self.name, self._ask, self._parse = name, ask, parse

    def act(self, decision: Decision, rng: Random) -> str:
        """Show the observation, the legal actions and what may be typed, and return the action that was meant."""
        legal = decision.legal
        short = _plain(legal[0])
        example = short if self._read(short, legal) == legal[0] else legal[0]
        page = f"{decision.observation}\nYour move [{' | '.join(legal)}], for example {example}: "
        typed = self._ask(page).strip()
        while (action := self._read(typed, legal)) is None:
            typed = self._ask(f'"{typed}" cannot be played here.\n{page}').strip()
        return action

    def _read(self, typed: str, legal: Sequence[str]) -> str | None:
        """Return the legal action that was typed, or None."""
        typed = last_tag(typed, "action") or typed
        meant = self._parse(f"<action>{typed}</action>") if self._parse is not None else None
        for answer in (typed, meant):
            if answer in legal:
                return answer
        alike = [action for action in legal if _plain(action) == _plain(typed)]
        return alike[0] if len(alike) == 1 and _plain(typed) else None


def _plain(action: str) -> str:
    """Return an action without what is of no account.

    >>> _plain("(2, 2)"), _plain(" Bet. "), _plain("-1")
    ('2 2', 'bet', '-1')
    """
    return " ".join(re.findall(r"[^\s()\[\],]+", action.lower().strip().rstrip(".!")))
