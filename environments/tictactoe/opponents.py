"""Who plays Tic-Tac-Toe against the agent: at random, by habit, by search, perfectly.

The pool of MAGE (arXiv 2603.03680) is the default: half of the tasks meet a search, three eighths one of six fixed
orders of preference, an eighth random play.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from metarl_agents.environments.tictactoe.game import CELLS, TicTacToeGame
from metarl_agents.envs.games import (
    Decision,
    HumanOpponent,
    MixedOpponent,
    Opponent,
    SearchOpponent,
    UniformOpponent,
    named_opponent,
    uniform,
)
from metarl_agents.envs.games.exact import minimax

# Cells by number:  0 1 2 / 3 4 5 / 6 7 8
ORDERS = {
    "prefers_centre": (4, 0, 2, 6, 8, 1, 3, 5, 7),
    "prefers_corners": (0, 2, 6, 8, 4, 1, 3, 5, 7),
    "prefers_edges": (1, 3, 5, 7, 4, 0, 2, 6, 8),
    "prefers_diagonal": (0, 4, 8, 2, 6, 1, 3, 5, 7),
    "prefers_antidiagonal": (2, 4, 6, 0, 8, 1, 3, 5, 7),
    "prefers_bottom_right": (8, 7, 5, 4, 6, 2, 3, 1, 0),
}
"""Name -> cells in the order in which they are taken: the first free one."""
DEFAULT_POOL = {"mcts_100": 8.0, **dict.fromkeys(ORDERS, 1.0), "random": 2.0}
"""Name -> weight."""
_GAME = TicTacToeGame()
_VALUES: dict[str, float] = {}


class OrderOpponent(MixedOpponent):
    """Takes the first free cell of its list, whatever the board looks like.

    Args:
        name: a name in `ORDERS`.
    """

    def __init__(self, name: str):
        self.name, self._order = name, tuple(CELLS[cell] for cell in ORDERS[name])

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return the first free cell, for certain."""
        return {next(cell for cell in self._order if cell in decision.legal): 1.0}


class PerfectOpponent(MixedOpponent):
    """Never gives away a win or a draw; plays every move that keeps its value equally often."""

    name = "perfect"

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return equal probabilities over the moves of best value."""
        sign = 1 if decision.seat == 0 else -1
        values = {cell: sign * value_after(decision.information, cell) for cell in decision.legal}
        best = max(values.values())
        return uniform([cell for cell, value in values.items() if value == best])


def value_after(state: str, action: str) -> float:
    """Return the first player's payoff after this move if both play perfectly from there."""
    return minimax(_GAME, _GAME.play(state, action), _VALUES)


def find_opponent(name: str) -> Opponent:
    """Return the opponent of a name: `random`, `perfect`, `human`, one of `ORDERS`, or `mcts_<simulations>`."""
    search = re.fullmatch(r"mcts_([1-9]\d{0,6})", name)
    if search:
        return SearchOpponent(_GAME, int(search[1]))
    makers = {"random": UniformOpponent, "perfect": PerfectOpponent, "human": HumanOpponent}
    orders = {order: partial(OrderOpponent, order) for order in ORDERS}
    return named_opponent("Tic-Tac-Toe", name, {**makers, **orders}, " and mcts_<simulations>")
