"""Habits: strategies for matrix games that remember a little of what has been chosen.

A habit is an automaton: a memory at the start, how a round changes it, and a mix of actions for each memory. So it can
be played, and answered exactly (`equilibrium.best_response`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any

from metarl_agents.environments.matrix_game.game import MatrixRules
from metarl_agents.envs.games import Decision, MixedOpponent, uniform


class Habit(MixedOpponent):
    """A strategy with a small memory.

    Args:
        name: its role.
        rules: the game it plays.
    """

    def __init__(self, name: str, rules: MatrixRules):
        self.name, self.rules = name, rules

    def start(self, seat: int) -> Hashable:
        """Return the memory before the first round. Default: none."""
        return None

    def advance(self, memory: Any, own: str, other: str, seat: int) -> Hashable:
        """Return the memory after a round in which it chose `own` and the other player `other`. Default: the same."""
        return memory

    @abstractmethod
    def mix(self, memory: Any, seat: int) -> Mapping[str, float]:
        """Return the probability of each action; those left out have none."""

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return the mix after all rounds so far."""
        memory = self.start(decision.seat)
        for own, other in decision.information:
            memory = self.advance(memory, own, other, decision.seat)
        return self.mix(memory, decision.seat)


class Fixed(Habit):
    """Draws every choice from the same mix: `always_*`, `mostly_*`, `random`.

    Args:
        name: its role.
        rules: the game it plays.
        mix: action -> probability.
    """

    def __init__(self, name: str, rules: MatrixRules, mix: Mapping[str, float]):
        super().__init__(name, rules)
        self._mix = dict(mix)

    def mix(self, memory: None, seat: int) -> Mapping[str, float]:
        """Return the mix."""
        return self._mix


class BySeat(Habit):
    """Draws every choice from the mix of its seat: `equilibrium`."""

    def __init__(self, name: str, rules: MatrixRules, mixes: tuple[Mapping[str, float], ...]):
        super().__init__(name, rules)
        self._mixes = mixes

    def mix(self, memory: None, seat: int) -> Mapping[str, float]:
        """Return the seat's mix."""
        return self._mixes[seat]


class Cycle(Habit):
    """Takes the actions in turn. Memory: how many rounds are over, modulo their number."""

    def start(self, seat: int) -> int:
        """Return 0."""
        return 0

    def advance(self, memory: int, own: str, other: str, seat: int) -> int:
        """Count."""
        return (memory + 1) % len(self.rules.actions)

    def mix(self, memory: int, seat: int) -> Mapping[str, float]:
        """Return the action whose turn it is."""
        return {self.rules.actions[memory]: 1.0}


class TitForTat(Habit):
    """Begins with the first action, then does what the other player did last. Memory: that.

    Args:
        name: its role.
        rules: the game it plays.
        forgives: probability of the first action where it would answer with another one.
    """

    def __init__(self, name: str, rules: MatrixRules, forgives: float = 0.0):
        super().__init__(name, rules)
        self._forgives = forgives

    def start(self, seat: int) -> str:
        """Return the first action."""
        return self.rules.actions[0]

    def advance(self, memory: str, own: str, other: str, seat: int) -> str:
        """Remember the other player's choice."""
        return other

    def mix(self, memory: str, seat: int) -> Mapping[str, float]:
        """Return the remembered choice, unless it forgives."""
        first = self.rules.actions[0]
        return {memory: 1.0} if memory == first else {memory: 1 - self._forgives, first: self._forgives}


class Grim(Habit):
    """Takes the first action until the other player does not, then the last one for good. Memory: whether it trusts."""

    def start(self, seat: int) -> bool:
        """Trust."""
        return True

    def advance(self, memory: bool, own: str, other: str, seat: int) -> bool:
        """Trust no more once the other player takes another action."""
        return memory and other == self.rules.actions[0]

    def mix(self, memory: bool, seat: int) -> Mapping[str, float]:
        """Return the first action, or the last."""
        return {self.rules.actions[0 if memory else -1]: 1.0}


class WinStayLoseShift(Habit):
    """Keeps its action after a good round, else takes the next one. Memory: the action.

    A round is good if it pays at least the middle between the seat's smallest and largest payoff.
    """

    def start(self, seat: int) -> str:
        """Return the first action."""
        return self.rules.actions[0]

    def advance(self, memory: str, own: str, other: str, seat: int) -> str:
        """Keep the action, or take the next."""
        actions = self.rules.actions
        payoffs = [self.rules.earns(seat, one, two) for one in actions for two in actions]
        good = 2 * self.rules.earns(seat, own, other) >= min(payoffs) + max(payoffs)
        return own if good else actions[(actions.index(own) + 1) % len(actions)]

    def mix(self, memory: str, seat: int) -> Mapping[str, float]:
        """Return the action."""
        return {memory: 1.0}


class BeatLast(Habit):
    """Begins with the first action, then takes the best reply to the other player's last one. Memory: that."""

    def advance(self, memory: str | None, own: str, other: str, seat: int) -> str:
        """Remember the other player's choice."""
        return other

    def mix(self, memory: str | None, seat: int) -> Mapping[str, float]:
        """Return the best reply."""
        rules = self.rules
        return {rules.actions[0] if memory is None else rules.best_reply(seat, {memory: 1.0}): 1.0}


class BeatFrequent(Habit):
    """Takes the best reply to all choices of the other player so far ("fictitious play"). Memory: their counts."""

    def start(self, seat: int) -> tuple[int, ...]:
        """Return zeros."""
        return (0,) * len(self.rules.actions)

    def advance(self, memory: tuple[int, ...], own: str, other: str, seat: int) -> tuple[int, ...]:
        """Count the other player's choice."""
        return tuple(count + (action == other) for count, action in zip(memory, self.rules.actions, strict=True))

    def mix(self, memory: tuple[int, ...], seat: int) -> Mapping[str, float]:
        """Return the best reply; the first action before the first round."""
        rules = self.rules
        seen = dict(zip(rules.actions, memory, strict=True))
        return {rules.best_reply(seat, seen) if any(memory) else rules.actions[0]: 1.0}


def mostly(rules: MatrixRules, action: str, share: float = 0.7) -> dict[str, float]:
    """Return a mix with that share of one action, the others equally often."""
    others = uniform([other for other in rules.actions if other != action])
    return {action: share, **{other: (1 - share) * part for other, part in others.items()}}
