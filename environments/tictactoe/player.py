"""A scripted Tic-Tac-Toe player of moderate skill: demonstrations for warm starts, and a baseline.

It reads the observation text and nothing else, so it knows what a model could know. Read first: `act`.
"""

from __future__ import annotations

import re
from typing import Any

from metarl_agents.environments.tictactoe.game import CELLS, LINES

_CELL = re.compile(r"\([1-3], [1-3]\)")


class TicTacToePlayer:
    """Often sees a line to complete or to block, plays at random otherwise, and may listen to its own remarks.

    Args:
        skill: probability, drawn for each move, of seeing a line that one of the two can complete.
        heed: probability, drawn once a game, of listening to the remarks.
        consistent: probability, drawn once a game, of taking the first of several equally good cells, not a random one.
    """

    def __init__(self, skill: float = 0.7, heed: float = 0.3, *, consistent: float = 0.3):
        self.skill, self.heed, self.consistent = skill, heed, consistent
        self._wanted: list[int] = []
        self._takes_first = False

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin a game; with probability `heed`, want the cells that the remarks name, newest remark first."""
        heeds, self._takes_first = rng.random() < self.heed, rng.random() < self.consistent
        named = [CELLS.index(cell) for remark in reversed(remarks) for cell in _CELL.findall(remark)]
        self._wanted = named if heeds else []

    def act(self, observation: str, rng: Any) -> str:
        """Return the next cell, as `<action>(row, col)</action>`."""
        board = read_board(observation)
        free = [cell for cell, sign in enumerate(board) if sign == "."]
        sees = rng.random() < self.skill
        choices = (
            completing(board, "X") if sees else [],
            completing(board, "O") if sees else [],
            [cell for cell in self._wanted if cell in free][:1],
            free,
        )
        cells = next(choice for choice in choices if choice)
        place = 0 if self._takes_first else int(rng.random() * len(cells))
        return f"<action>{CELLS[cells[place]]}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """After a loss, want the cell that completed the other's line; after a draw, begin elsewhere; else repeat."""
        own = [turn.action for turn in episode.turns if turn.action in CELLS]
        lost_at = decisive_cell(episode)
        if lost_at is not None:
            return f"<remark>take {CELLS[lost_at]}</remark>"
        if completed(read_board(episode.final_observation), "X"):
            return f"<remark>take {' '.join(own)} again</remark>"
        others = [cell for cell in CELLS if cell not in own[:1]]
        return f"<remark>take {others[int(rng.random() * len(others))]}</remark>"


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


def decisive_cell(episode: Any) -> int | None:
    """Return the cell that completed the other player's line in a lost game, or None."""
    line = completed(read_board(episode.final_observation), "O")
    if not line:
        return None
    before = read_board(episode.turns[-1].observation) if episode.turns else ""
    return next((cell for cell in line if before[cell : cell + 1] == "."), line[-1])
