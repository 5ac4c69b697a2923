"""Exact play of small games of OpenSpiel: perfect play where nothing is hidden, an equilibrium where something is.

What lives here: `PerfectOpponent` (minimax over positions), `equilibrium` (OpenSpiel's CFR+), and `frame`, which walks
positions in place of histories. Values are payoffs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from metarl_agents.envs.adapters import need
from metarl_agents.envs.adapters.openspiel_game import OpenSpielGame, Play
from metarl_agents.envs.games.contract import Decision, Game, MixedOpponent, Opponent, uniform
from metarl_agents.envs.games.exact import TooLarge, best_response, minimax, policy_values
from metarl_agents.envs.games.opponents import UniformOpponent
from metarl_agents.errors import ConfigError

_MOST_POSITIONS = 10_000
_ITERATIONS = (100, 1000)
_VISITS = 1_000_000
"""CFR+ runs so many iterations as make this many visits of histories together, between the bounds above."""


class Position(NamedTuple):
    """A state of which only the position counts, not the way there."""

    moves: int
    """How many led there: keeps games that repeat themselves from going round in circles."""
    text: str
    """OpenSpiel's text of the whole state."""


class Facts(NamedTuple):
    """What is to be known of a position."""

    player: int | None
    after: dict[str, Position]
    """Action -> where it leads."""
    payoffs: tuple[float, ...]


@lru_cache(maxsize=16)
def positions_of(game: OpenSpielGame) -> dict[Position, Facts] | None:
    """Return every position of a game without secrets or chance; None where there are too many, or texts mislead.

    Two ways to one text have to lead to the same player, the same actions and the same payoffs; where they do not, the
    text leaves something out, and positions cannot be told apart by it.
    """
    start = Play()
    found = {position_of(game, start): _facts(game, start)}
    pending = [start]
    while pending:
        state = pending.pop()
        here = found[position_of(game, state)]
        for action in here.after:
            after = game.play(state, action)
            position, facts = position_of(game, after), _facts(game, after)
            here.after[action] = position
            if position not in found:
                found[position] = facts
                pending.append(after)
            known = found[position]
            alike = known.player == facts.player and known.payoffs == facts.payoffs
            if not alike or list(known.after) != list(facts.after) or len(found) > _MOST_POSITIONS:
                return None
    return found


def position_of(game: OpenSpielGame, state: Play) -> Position:
    """Return the position of a state."""
    return Position(len(state.history), str(game.rules.at(state.history).state))


def _facts(game: OpenSpielGame, state: Play) -> Facts:
    """Return the facts of a state, with actions that do not lead anywhere yet."""
    nowhere = Position(0, "")
    return Facts(game.current_player(state), dict.fromkeys(game.legal_actions(state), nowhere), game.payoffs(state))


@dataclass(frozen=True)
class Positions(Game):
    """A game without secrets or chance, in which equal positions are equal states, however they came about."""

    game: OpenSpielGame
    perfect_information = True

    def deals(self) -> Sequence[tuple[float, Position]]:
        """Return the initial position, for certain."""
        return [(1.0, position_of(self.game, Play()))]

    def current_player(self, state: Position) -> int | None:
        """Return the seat whose turn it is."""
        return self._at(state).player

    def legal_actions(self, state: Position) -> tuple[str, ...]:
        """Return the actions."""
        return tuple(self._at(state).after)

    def play(self, state: Position, action: str) -> Position:
        """Return the position after an action."""
        return self._at(state).after[action]

    def payoffs(self, state: Position) -> tuple[float, ...]:
        """Return what each seat has earned."""
        return self._at(state).payoffs

    def information(self, state: Position, seat: int) -> Position:
        """Return the position."""
        return state

    def _at(self, state: Position) -> Facts:
        found = positions_of(self.game)
        if found is None:
            raise TooLarge
        return found[state]


class PerfectOpponent(MixedOpponent):
    """Plays every move that keeps the value of the position equally often.

    Args:
        game: zero-sum, without secrets or chance, and with few positions.

    Raises:
        ConfigError: it has too many.
    """

    name = "perfect"

    def __init__(self, game: OpenSpielGame):
        if positions_of(game) is None:
            raise ConfigError(
                f'Perfect play of "{game.spec}" takes too long to work out, for it is no game of at most '
                f"{_MOST_POSITIONS} positions. Choose another opponent, for example mcts_100."
            )
        self._game, self._positions = game, Positions(game)
        self._known: dict[Position, float] = {}

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return equal probabilities over the moves of best value."""
        told = decision.information
        state = told if isinstance(told, Position) else position_of(self._game, told)
        sign = 1 if decision.seat == 0 else -1
        values = {
            action: sign * minimax(self._positions, self._positions.play(state, action), self._known)
            for action in decision.legal
        }
        best = max(values.values())
        return uniform([action for action, value in values.items() if value == best])


class EquilibriumOpponent(MixedOpponent):
    """Plays what OpenSpiel's CFR+ has found: all but an equilibrium.

    Args:
        game: zero-sum, small, one player at a time, with texts that tell all that a seat knows.

    Raises:
        ConfigError: it is too large.
    """

    name = "equilibrium"

    def __init__(self, game: OpenSpielGame):
        if game.rules.size is None:
            raise ConfigError(
                f'An equilibrium of "{game.spec}" takes too long to work out. Choose another opponent, for example '
                f"random."
            )
        self._game = game

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return the average strategy where the seat has to choose."""
        known, _ = decision.information
        return equilibrium(self._game)[known]


@lru_cache(maxsize=16)
def equilibrium(game: OpenSpielGame) -> dict[str, dict[str, float]]:
    """Return what a seat knows -> probability of each action: the average of some iterations of CFR+.

    Source: Tammelin 2014, as OpenSpiel has it. On average over both seats the best response gains 0.0001 after 1000
    iterations of Kuhn poker, and 0.013 after 100 of Leduc poker.
    """
    rules = game.rules
    fewest, most = _ITERATIONS
    solver = need("openspiel", "pyspiel", "open-spiel").CFRPlusSolver(rules.game)
    for _ in range(min(most, max(fewest, _VISITS // (rules.size or 1)))):
        solver.evaluate_and_update_policy()
    table = solver.tabular_average_policy().policy_table()
    named: dict[str, dict[str, float]] = {}
    pending: list[tuple[int, ...]] = [()]
    while pending:
        history = pending.pop()
        position = rules.at(history)
        if position.player is not None:
            known = position.state.information_state_string(position.player)
            named.setdefault(known, {name: dict(table[known])[number] for name, number in position.actions.items()})
        following = [number for _, number in position.outcomes] or list(position.actions.values())
        pending += [(*history, number) for number in following]
    return named


def frame(game: OpenSpielGame, opponent: Opponent, seat: int) -> tuple[float, float] | None:
    """Return (floor, ceiling) of a seat against an opponent where the game's positions tell them, else None.

    None asks for a walk of all histories, which is for small games only.

    Raises:
        TooLarge: such a walk would take too long.
    """
    if game.rules.size is not None or not game.perfect_information:
        return None
    by_position = isinstance(opponent, (UniformOpponent, PerfectOpponent))
    if not (by_position and game.rules.is_zero_sum and positions_of(game)):
        raise TooLarge
    positions, safe = Positions(game), PerfectOpponent(game)
    policies = [opponent.probabilities, opponent.probabilities]
    policies[seat] = safe.probabilities
    return policy_values(positions, policies)[seat], best_response(positions, opponent.probabilities, seat).value
