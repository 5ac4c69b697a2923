"""A scripted Tic-Tac-Toe player of moderate skill: demonstrations for warm starts, and a baseline.

It reads the observation text and nothing else, so it knows what a model could know. Read first: `act`.
"""

from __future__ import annotations

import re
from typing import Any

from metarl_agents.environments.tictactoe.game import CELLS, LINES

_CELL = re.compile(r"\([1-3], [1-3]\)")

Line = tuple[int, ...]
"""The cells that one player took in one game, in their order."""


class TicTacToePlayer:
    """Often sees a line of three to complete or to block, else plays at random, and may listen to its own remarks.

    Remarks tell what the own cells of a game came to. Who listens plays the cells of a game that was won once more, for
    the other player may answer them as before; and it leaves games that were not won at their first or second move.

    Args:
        skill: probability, drawn for each move, of seeing a line that one of the two can complete.
        heed: probability, drawn once a game, of listening to the remarks.
        consistent: probability, drawn once a game, of taking the first of several equally good cells, not a random one.
    """

    def __init__(self, skill: float = 0.7, heed: float = 0.3, *, consistent: float = 0.3):
        self.skill, self.heed, self.consistent = skill, heed, consistent
        self._won: list[Line] = []
        self._not_won: list[Line] = []
        self._own: Line = ()
        self._leaves_at = 0
        self._takes_first = False

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin a game; with probability `heed`, keep the games in mind of which the remarks tell."""
        heeds, self._takes_first = rng.random() < self.heed, rng.random() < self.consistent
        self._leaves_at, self._own = int(rng.random() * 2), ()
        told = [(tuple(map(CELLS.index, _CELL.findall(remark))), "won" in remark) for remark in remarks if heeds]
        self._won = [line for line, won in reversed(told) if won]
        self._not_won = [line for line, won in told if not won]

    def act(self, observation: str, rng: Any) -> str:
        """Return the next cell, as `<action>(row, col)</action>`."""
        board = read_board(observation)
        free = [cell for cell, sign in enumerate(board) if sign == "."]
        sees = rng.random() < self.skill
        turn = len(self._own)
        stale = self._after(self._not_won) if turn == self._leaves_at else []
        choices = (
            [cell for cell in self._after(self._won) if cell in free][:1],
            completing(board, "X") if sees else [],
            completing(board, "O") if sees else [],
            [cell for cell in free if cell not in stale],
            free,
        )
        cells = next(choice for choice in choices if choice)
        cell = cells[0 if self._takes_first else int(rng.random() * len(cells))]
        self._own += (cell,)
        return f"<action>{CELLS[cell]}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return `<remark>(2, 2) (1, 3) (3, 1) won</remark>`: the own cells in their order, and what they came to."""
        own = [turn.action for turn in episode.turns if turn.action in CELLS]
        board = read_board(episode.final_observation)
        result = "won" if completed(board, "X") else "lost" if completed(board, "O") else "drawn"
        result = "unfinished" if result == "drawn" and "." in board else result
        return f"<remark>{' '.join([*own, result])}</remark>"

    def _after(self, lines: list[Line]) -> list[int]:
        """Return the next cell of each line that has begun as this game."""
        turn = len(self._own)
        return [line[turn] for line in lines if line[:turn] == self._own and len(line) > turn]


def read_board(observation: str) -> str:
    r"""Return the nine signs of a printed board.

    >>> read_board("Row 1: X O .\nRow 2: . . .\nRow 3: . . .\nlost")
    'XO.......'
    """
    rows = re.findall(r"^(?:Row \d: )?([.XO]) ([.XO]) ([.XO])$", observation, flags=re.MULTILINE)
    return "".join(sign for row in rows for sign in row)


def completing(board: str, sign: str) -> list[int]:
    """Return the free cells that give `sign` three in a row.

    >>> completing("XX.OO....", "X"), completing("XX.OO....", "O")
    ([2], [5])
    """
    return [
        cell
        for cell, old in enumerate(board)
        if old == "." and completed(board[:cell] + sign + board[cell + 1 :], sign) and not completed(board, sign)
    ]


def completed(board: str, sign: str) -> list[int]:
    """Return the cells of a line of three of `sign`, or nothing."""
    return next((list(line) for line in LINES if all(board[cell] == sign for cell in line)), []) if board else []
