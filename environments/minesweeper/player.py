"""A scripted MineSweeper player: demonstrations for warm starts, a baseline, and a moving part for tests.

It reads the observation text and nothing else, so it knows what a model could know. Read first: `deduce`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import permutations
from typing import Any

from metarl_agents.environments.minesweeper.game import neighbours
from metarl_agents.environments.minesweeper.wording import show_cell

_CELL = re.compile(r"\((\d+), *(\d+)\)")


class MinesweeperPlayer:
    """Deduces what the numbers prove, guesses otherwise, slips now and then, and may listen to its own remarks.

    Args:
        safe: probability of playing by deduction; otherwise any closed cell.
        heed: probability of listening to the remarks, drawn once an episode.
        blunder: probability of naming any cell of the board instead.
        consistent: probability, drawn once an episode, of taking the first of several equally good cells, not a
            random one.
        explore_rng: draws among equally good cells in place of the generator given to `act`.
    """

    def __init__(
        self,
        safe: float = 0.95,
        heed: float = 0.3,
        blunder: float = 0.01,
        *,
        consistent: float = 0.5,
        explore_rng: Any | None = None,
    ):
        self.safe, self.heed, self.blunder = safe, heed, blunder
        self.consistent, self.explore_rng = consistent, explore_rng
        self._avoid: set[tuple[int, int]] = set()
        self._takes_first = consistent >= 1

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin an attempt; with probability `heed`, stay away from the cells the remarks warn of."""
        heeds, self._takes_first = rng.random() < self.heed, rng.random() < self.consistent
        self._avoid = {cell for remark in remarks for cell in cells_to_avoid(remark)} if heeds else set()

    def act(self, observation: str, rng: Any) -> str:
        """Return the next cell, as `<action>(row, col)</action>`."""
        board = read_board(observation)
        size = len(board)
        blunders, deduces = rng.random() < self.blunder, rng.random() < self.safe
        avoid = {(row - 1) * size + col - 1 for row, col in self._avoid if row <= size and col <= size}
        cells = range(size * size) if blunders else self._candidates(board, avoid, deduces)
        cell = self._pick(cells, rng, takes_first=self._takes_first and not blunders)
        return f"<action>{show_cell((cell // size + 1, cell % size + 1))}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return `<remark>avoid (row, col)</remark>` for the mine that was hit, or that it took too long."""
        board = read_board(episode.final_observation)
        hits = [(r, c) for r, row in enumerate(board, start=1) for c, sign in enumerate(row, start=1) if sign == "*"]
        return f"<remark>avoid {show_cell(hits[0])}</remark>" if hits else "<remark>be faster</remark>"

    def _candidates(self, board: list[list[str]], avoid: set[int], deduces: bool) -> list[int]:
        """Return the cells to choose among: proven safe, else not proven a mine, else closed."""
        closed = {cell for cell, sign in enumerate(sign for row in board for sign in row) if sign == "?"}
        safe, mines = deduce(board) if deduces else (set(), set())
        choices = (safe - avoid, closed - mines - avoid, closed, set(range(len(board) ** 2)))
        return sorted(next(choice for choice in choices if choice))

    def _pick(self, cells: Sequence[int], rng: Any, *, takes_first: bool) -> int:
        source = self.explore_rng or rng
        return cells[0 if takes_first else int(source.random() * len(cells))]


def cells_to_avoid(remark: str) -> list[tuple[int, int]]:
    """Return the 1-based cells that a remark names after the word "avoid".

    >>> cells_to_avoid("open (1, 1), avoid (2, 3) and (4, 4)")
    [(2, 3), (4, 4)]
    """
    warned = remark.partition("avoid")[2]
    return [(int(row), int(col)) for row, col in _CELL.findall(warned)]


def read_board(observation: str) -> list[list[str]]:
    """Return the signs of a printed board, row by row.

    >>> read_board("Row 1: ? 1")
    [['?', '1']]
    """
    lines = (line.partition(":") for line in observation.splitlines() if line.startswith("Row "))
    return [signs.split() for _, _, signs in lines]


def deduce(board: list[list[str]]) -> tuple[set[int], set[int]]:
    """Return (safe cells, mines) that the numbers prove by single-cell and subset reasoning.

    Each number says: so many of these closed cells are mines. A statement of none, or of all, settles its cells;
    where one statement's cells lie inside another's, their difference is a statement too. Repeat until nothing new.

    Args:
        board: (size, size) signs.

    Returns:
        Flat indices of closed cells.
    """
    statements = _statements(board)
    safe: set[int] = set()
    mines: set[int] = set()
    while True:
        before = statements
        for cells, count in statements:
            if count == 0:
                safe |= cells
            elif count == len(cells):
                mines |= cells
        statements = {(cells - safe - mines, count - len(cells & mines)) for cells, count in statements}
        statements = {statement for statement in statements if statement[0]}
        statements |= _differences(statements)
        if statements == before:
            return safe, mines


def _statements(board: list[list[str]]) -> set[tuple[frozenset[int], int]]:
    """Return (closed cells around it, mines among them) of every number on the board."""
    signs = [sign for row in board for sign in row]
    around = neighbours(len(board))
    statements = set()
    for cell, sign in enumerate(signs):
        if sign.isdigit():
            near: Collection[int] = around[cell]
            closed = frozenset(other for other in near if signs[other] == "?")
            hit = sum(signs[other] == "*" for other in near)
            statements.add((closed, int(sign) - hit))
    return statements


def _differences(statements: set[tuple[frozenset[int], int]]) -> set[tuple[frozenset[int], int]]:
    """Return what is left of each statement once another that lies inside it is taken away."""
    return {(large - small, many - few) for (small, few), (large, many) in permutations(statements, 2) if small < large}
