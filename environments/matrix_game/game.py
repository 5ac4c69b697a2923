"""Matrix games played for several rounds, as a `Game`: both players choose at the same time, a table pays them.

What lives here: tables and rounds. What does not: who plays them by which habit (`opponents.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

from metarl_agents.envs.games import Game
from metarl_agents.errors import ConfigError

Payoffs = tuple[tuple[tuple[float, float], ...], ...]
"""[first seat's choice][second seat's choice] -> what the two seats get."""


class Play(NamedTuple):
    """The rounds that are over, and a choice that the other player has not seen yet."""

    rounds: tuple[tuple[str, str], ...] = ()
    """(rounds over,) of (first seat's choice, second seat's choice)."""
    pending: str | None = None
    """The first seat's choice in the current round, or None."""


@dataclass(frozen=True)
class MatrixRules(Game):
    """One table, played for so many rounds that both players know."""

    actions: tuple[str, ...]
    """(A,) what either player can choose."""
    table: Payoffs
    """(A, A, 2)."""
    rounds: int

    def deals(self) -> Sequence[tuple[float, Play]]:
        """Return the start, for certain: nothing is dealt."""
        return ((1.0, Play()),)

    def current_player(self, state: Play) -> int | None:
        """Return 0, then 1 in each round; the second seat does not see what the first one has chosen."""
        return None if len(state.rounds) >= self.rounds else int(state.pending is not None)

    def legal_actions(self, state: Play) -> tuple[str, ...]:
        """Return all actions until the end."""
        return () if len(state.rounds) >= self.rounds else self.actions

    def play(self, state: Play, action: str) -> Play:
        """Return the play with one more choice."""
        if state.pending is None:
            return Play(state.rounds, action)
        return Play((*state.rounds, (state.pending, action)))

    def payoffs(self, state: Play) -> tuple[float, ...]:
        """Return the sums over the rounds that are over."""
        paid = [self.paid(*choices) for choices in state.rounds]
        return (sum((first for first, _ in paid), 0.0), sum((second for _, second in paid), 0.0))

    def information(self, state: Play, seat: int) -> tuple[tuple[str, str], ...]:
        """Return the rounds that are over, as (own choice, the other's); never a choice that is pending."""
        return tuple((choices[seat], choices[1 - seat]) for choices in state.rounds)

    def least_payoff(self, seat: int) -> float:
        """Return the smallest payoff of a round, in every round."""
        return self.rounds * min(pair[seat] for row in self.table for pair in row)

    def paid(self, first: str, second: str) -> tuple[float, float]:
        """Return what one round pays the two seats."""
        return self.table[self.actions.index(first)][self.actions.index(second)]

    def earns(self, seat: int, own: str, other: str) -> float:
        """Return what one round pays a seat for its own choice against the other's."""
        return self.paid(own, other)[0] if seat == 0 else self.paid(other, own)[1]

    @property
    def zero_sum(self) -> bool:
        """Whether one player always gets what the other loses."""
        return all(first + second == 0 for row in self.table for first, second in row)

    @property
    def symmetric(self) -> bool:
        """Whether both seats have the same table."""
        pairs = [(own, other) for own in self.actions for other in self.actions]
        return all(self.earns(0, own, other) == self.earns(1, own, other) for own, other in pairs)

    @property
    def largest(self) -> float:
        """The largest payoff of a round, its sign ignored; 1 where a table pays nothing."""
        return max((abs(payoff) for row in self.table for pair in row for payoff in pair), default=0.0) or 1.0

    def best_reply(self, seat: int, mix: Mapping[str, float]) -> str:
        """Return the choice that earns a seat most in one round against a mix of the other; the first of equals."""
        return max(
            self.actions, key=lambda own: sum(share * self.earns(seat, own, other) for other, share in mix.items())
        )


def _symmetric(*rows: tuple[float, ...]) -> Payoffs:
    """Return the table in which either seat gets rows[own choice][the other's choice]."""
    size = range(len(rows))
    return tuple(tuple((float(rows[one][two]), float(rows[two][one])) for two in size) for one in size)


PRESETS: dict[str, tuple[tuple[str, ...], Payoffs]] = {
    "rock_paper_scissors": (("rock", "paper", "scissors"), _symmetric((0, -1, 1), (1, 0, -1), (-1, 1, 0))),
    "prisoners_dilemma": (("cooperate", "defect"), _symmetric((3, 0), (5, 1))),
    "stag_hunt": (("stag", "hare"), _symmetric((4, 0), (3, 2))),
    "chicken": (("swerve", "straight"), _symmetric((3, 1), (4, 0))),
    "matching_pennies": (("heads", "tails"), (((1.0, -1.0), (-1.0, 1.0)), ((-1.0, 1.0), (1.0, -1.0)))),
}
"""Name -> (actions, table). In matching pennies the first seat wants the choices to be equal."""
_MOST_ACTIONS = 8
_KEYS = ("actions", "payoffs", "other_payoffs")


def rules_of(game: str | Mapping[str, Any], rounds: int) -> MatrixRules:
    """Return the rules of a preset, or of a table of one's own.

    Args:
        game: a name in `PRESETS`, or a mapping with `actions` (words), `payoffs` (a row for each choice of the first
            seat, a number for each choice of the second: what the first seat gets) and, unless the game is symmetric,
            `other_payoffs` (what the second seat gets, laid out in the same way).
        rounds: at least 1.

    Raises:
        ConfigError: there is no such preset, or the table does not fit its actions.
    """
    if type(rounds) is not int or not 1 <= rounds <= 100:
        raise ConfigError(f"`rounds` is {rounds}, but a matrix game is played for 1 to 100. Choose such a number.")
    if isinstance(game, str):
        if game not in PRESETS:
            raise ConfigError(
                f'`game` is "{game}", but the matrix game knows {", ".join(PRESETS)}. Name one of them, or give a '
                f"mapping with `actions` and `payoffs`."
            )
        return MatrixRules(*PRESETS[game], rounds)
    return _own_rules(game, rounds)


def _own_rules(game: Mapping[str, Any], rounds: int) -> MatrixRules:
    if not isinstance(game, Mapping) or not {"actions", "payoffs"} <= set(game) <= set(_KEYS):
        raise ConfigError(f"`game` is {game!r}, but a name or a mapping with {', '.join(_KEYS)} is expected.")
    actions = tuple(game["actions"]) if isinstance(game["actions"], (list, tuple)) else ()
    # An action is a word of a page and of an opponent's name: "always_rock".
    words = all(isinstance(action, str) and action.isidentifier() and action == action.lower() for action in actions)
    if not 2 <= len(actions) <= _MOST_ACTIONS or len(set(actions)) < len(actions) or not words:
        raise ConfigError(
            f"`actions` is {game['actions']!r}, but 2 to {_MOST_ACTIONS} different words in lower case are expected."
        )
    first = _square(game["payoffs"], "payoffs", len(actions))
    if "other_payoffs" not in game:
        return MatrixRules(actions, _symmetric(*first), rounds)
    second = _square(game["other_payoffs"], "other_payoffs", len(actions))
    table = tuple(tuple(zip(mine, theirs, strict=True)) for mine, theirs in zip(first, second, strict=True))
    return MatrixRules(actions, table, rounds)


def _square(rows: Any, name: str, size: int) -> tuple[tuple[float, ...], ...]:
    lists = (list, tuple)
    fits = isinstance(rows, lists) and len(rows) == size and all(isinstance(r, lists) and len(r) == size for r in rows)
    if not fits or not all(isinstance(value, Real) and abs(value) < float("inf") for row in rows for value in row):
        raise ConfigError(f"`{name}` is {rows!r}, but {size} rows of {size} numbers are expected, one per action.")
    return tuple(tuple(float(value) for value in row) for row in rows)
