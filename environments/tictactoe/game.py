"""The rules of Tic-Tac-Toe, as a `Game`.

What lives here: positions and actions. What does not: how a board is printed (`wording.py`). A position is a text of
nine signs, row by row: "x" is the first player's, "o" the second's, "." is free. Actions are 1-based, "(row, col)".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from metarl_agents.envs.games import Game

EMPTY = "." * 9
CELLS = tuple(f"({row}, {col})" for row in (1, 2, 3) for col in (1, 2, 3))
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


@dataclass(frozen=True)
class TicTacToeGame(Game):
    """Three in a row on a 3x3 board earns 1 and costs the other player 1; a full board without it earns nothing."""

    perfect_information = True

    def deals(self) -> Sequence[tuple[float, str]]:
        """Return the empty board, for certain."""
        return ((1.0, EMPTY),)

    def current_player(self, state: str) -> int | None:
        """Return 0 or 1, or None where the game is over."""
        free = state.count(".")
        return None if not free or winner(state) is not None else (9 - free) % 2

    def legal_actions(self, state: str) -> tuple[str, ...]:
        """Return the free cells."""
        return free_cells(state) if winner(state) is None else ()

    def play(self, state: str, action: str) -> str:
        """Return the board with one more sign."""
        cell = CELLS.index(action)
        return state[:cell] + "xo"[(9 - state.count(".")) % 2] + state[cell + 1 :]

    def payoffs(self, state: str) -> tuple[float, ...]:
        """Return (1, -1), (-1, 1), or (0, 0)."""
        won = winner(state)
        return (0.0, 0.0) if won is None else (1.0, -1.0) if won == 0 else (-1.0, 1.0)

    def information(self, state: str, seat: int) -> str:
        """Return the board: both players see all of it."""
        return state


@cache
def winner(state: str) -> int | None:
    """Return the seat that has three in a row, or None.

    >>> winner("xxx.oo..."), winner(EMPTY)
    (0, None)
    """
    for a, b, c in LINES:
        if state[a] != "." and state[a] == state[b] == state[c]:
            return "xo".index(state[a])
    return None


@cache
def free_cells(state: str) -> tuple[str, ...]:
    """Return the free cells, row by row."""
    return tuple(cell for cell, sign in zip(CELLS, state, strict=True) if sign == ".")


def positions() -> set[str]:
    """Return every position that legal play can reach, ends included: 5,478 of them."""
    game, found, pending = TicTacToeGame(), {EMPTY}, [EMPTY]
    while pending:
        state = pending.pop()
        for action in game.legal_actions(state):
            after = game.play(state, action)
            if after not in found:
                found.add(after)
                pending.append(after)
    return found
