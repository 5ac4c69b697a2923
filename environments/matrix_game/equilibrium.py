"""Exact play of matrix games: an equilibrium of one round, and what answers to a habit earn over all rounds.

Read first: `best_response`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import combinations, product
from typing import NamedTuple

from metarl_agents.environments.matrix_game.game import MatrixRules
from metarl_agents.environments.matrix_game.habits import Habit
from metarl_agents.envs.games.exact import TooLarge
from metarl_agents.errors import ConfigError

_MOST_MEMORIES = 100_000
"""How many (round, memory of a habit) are looked at; some seconds' work."""

Mix = dict[str, float]
"""Action -> probability; actions left out have none."""


class Answer(NamedTuple):
    """The best answer to a habit."""

    value: float
    """What it earns on average over all rounds."""
    choices: dict[tuple[int, Hashable], str]
    """(round from 0, the habit's memory) -> action."""


def best_response(rules: MatrixRules, habit: Habit, seat: int) -> Answer:
    """Return the best answer of a seat to a habit, by backward induction over (round, the habit's memory).

    The habit's memory is a function of what both have chosen, so whoever knows the habit knows its memory.

    Args:
        rules: the game.
        habit: sits in the other seat.
        seat: the answering one.

    Raises:
        TooLarge: the habit's memory takes too many values.
    """
    choices: dict[tuple[int, Hashable], str] = {}

    def choose(number: int, memory: Hashable, worth: Callable[[str], float]) -> float:
        values = {action: worth(action) for action in rules.actions}
        choices[number, memory] = max(values, key=lambda action: values[action])
        return max(values.values())

    return Answer(_value(rules, habit, seat, choose), choices)


def mix_value(rules: MatrixRules, mix: Mapping[str, float], habit: Habit, seat: int) -> float:
    """Return what a seat earns on average over all rounds if it draws every choice from one mix.

    Raises:
        TooLarge: the habit's memory takes too many values.
    """
    return _value(rules, habit, seat, lambda _, __, worth: sum(share * worth(a) for a, share in mix.items() if share))


def _value(
    rules: MatrixRules,
    habit: Habit,
    seat: int,
    decide: Callable[[int, Hashable, Callable[[str], float]], float],
) -> float:
    """Return the value of a play, `decide` turning the worth of each action into that of a (round, memory)."""

    def worth(ahead: Mapping[Hashable, float], memory: Hashable, mix: Mapping[str, float], own: str) -> float:
        """Return the average of this round and of those ahead, of which there are none after the last."""
        total = 0.0
        for other, share in mix.items():
            later = ahead[habit.advance(memory, other, own, 1 - seat)] if ahead else 0.0
            total += share * (rules.earns(seat, own, other) + later)
        return total

    ahead: dict[Hashable, float] = {}
    for number, mixes in reversed(list(enumerate(_mixes(rules, habit, 1 - seat)))):
        ahead = {memory: decide(number, memory, partial(worth, ahead, memory, mix)) for memory, mix in mixes.items()}
    return ahead[habit.start(1 - seat)]


def _mixes(rules: MatrixRules, habit: Habit, seat: int) -> Iterator[dict[Hashable, Mapping[str, float]]]:
    """Yield {memory: the habit's mix} of each round, for all memories that can come up; `seat` is the habit's."""
    memories, count = {habit.start(seat)}, 0
    for _ in range(rules.rounds):
        mixes = {memory: _possible(habit.mix(memory, seat)) for memory in memories}
        count += len(mixes)
        if count > _MOST_MEMORIES:
            raise TooLarge(f"{habit.name} remembers too much")
        yield mixes
        memories = {
            habit.advance(memory, own, other, seat)
            for memory, mix in mixes.items()
            for own in mix
            for other in rules.actions
        }


def _possible(mix: Mapping[str, float]) -> Mix:
    return {action: share for action, share in mix.items() if share}


@cache
def equilibrium(rules: MatrixRules) -> tuple[Mix, Mix]:
    """Return an equilibrium of one round, a mix for each seat: the one with the smallest supports, in action order.

    Where the seats are alike, one in which both play the same mix comes first. Playing it in every round is an
    equilibrium of the whole game. All pairs of supports of one size are tried, which finds one in every game in which
    no mix has more best replies than it has actions of its own.

    Raises:
        ConfigError: such supports hold no equilibrium.
    """
    sizes = range(1, len(rules.actions) + 1)
    supports = [pair for size in sizes for pair in product(combinations(rules.actions, size), repeat=2)]
    if rules.symmetric:
        supports.sort(key=lambda pair: pair[0] != pair[1])
    for first, second in supports:
        mixes = _indifferent(rules, 1, second, first), _indifferent(rules, 0, first, second)
        if mixes[0] is not None and mixes[1] is not None:
            return mixes
    raise ConfigError(
        "No equilibrium with supports of equal size was found for this matrix game. Change its payoffs a little, or "
        "do without the opponent `equilibrium`."
    )


def equilibrium_value(rules: MatrixRules, seat: int) -> float:
    """Return what a seat earns on average over all rounds where both play `equilibrium`."""
    first, second = equilibrium(rules)
    rows = ((a, b, p * q) for a, p in first.items() for b, q in second.items())
    return rules.rounds * sum(share * rules.paid(a, b)[seat] for a, b, share in rows)


def _indifferent(rules: MatrixRules, seat: int, own: Sequence[str], other: Sequence[str]) -> Mix | None:
    """Return the mix over `other` that makes all of `own` the best replies of `seat`, or None where there is none."""
    # Unknowns: the shares of `other`, and the value v.  Each own action earns v; the shares add up to 1.
    rows = [[Fraction(rules.earns(seat, a, b)) for b in other] + [Fraction(-1), Fraction(0)] for a in own]
    rows.append([Fraction(1)] * len(other) + [Fraction(0), Fraction(1)])
    solved = _solve(rows)
    if solved is None or min(solved[:-1]) < 0:
        return None
    *shares, value = solved
    for action in rules.actions:
        if sum(s * Fraction(rules.earns(seat, action, b)) for s, b in zip(shares, other, strict=True)) > value:
            return None
    return {action: float(share) for action, share in zip(other, shares, strict=True)}


def _solve(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """Solve n linear equations in n unknowns, (n, n + 1) with the right side last; None where they are singular."""
    rows = [list(row) for row in rows]
    for place in range(len(rows)):
        pivot = next((number for number in range(place, len(rows)) if rows[number][place]), None)
        if pivot is None:
            return None
        rows[place], rows[pivot] = rows[pivot], rows[place]
        rows[place] = [value / rows[place][place] for value in rows[place]]
        for number, row in enumerate(rows):
            if number != place and row[place]:
                rows[number] = [v - row[place] * w for v, w in zip(row, rows[place], strict=True)]
    return [row[-1] for row in rows]
