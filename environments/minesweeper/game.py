"""The rules of MineSweeper: draw a board, open cells, count what is left.

What lives here: flat cell indices and sets, no text. What does not: how a board is printed and rewarded (`env.py`).
Cells are numbered row by row from 0: cell = row * size + col.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from metarl_agents.errors import ConfigError

_MASK = (1 << 64) - 1
_MAX_DRAWS = 20_000


class SplitMix64:
    """A tiny integer generator: the same sequence on every Python version and in every process.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

    >>> SplitMix64(0).next() == 0xE220A8397B1DCDAF
    True
    """

    def __init__(self, seed: int):
        self._state = seed & _MASK

    def next(self) -> int:
        """Return 64 fresh bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        bits = self._state
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
        return bits ^ (bits >> 31)

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound); the bias is below bound / 2**64."""
        return (self.next() * bound) >> 64

    def sample(self, population: int, count: int) -> list[int]:
        """Return `count` different integers in [0, population), in random order."""
        items = list(range(population))
        for i in range(count):
            j = i + self.below(population - i)
            items[i], items[j] = items[j], items[i]
        return items[:count]


@cache
def neighbours(size: int) -> tuple[tuple[int, ...], ...]:
    """Return, for every cell of a size x size board, the up to 8 cells around it.

    >>> neighbours(3)[0]
    (1, 3, 4)
    """
    around = []
    for row in range(size):
        for col in range(size):
            rows = range(max(row - 1, 0), min(row + 2, size))
            cols = range(max(col - 1, 0), min(col + 2, size))
            around.append(tuple(r * size + c for r in rows for c in cols if (r, c) != (row, col)))
    return tuple(around)


class Game:
    """One board, with its first cell already opened.

    Attributes:
        size: rows, and columns.
        mines: the cells that hold a mine.
        first: the cell opened at the start.
        counts: (size * size,) how many mines are around each cell.
        opened: the safe cells that are open.
        hit: the mine that was opened, or None.
    """

    def __init__(self, size: int, mines: Collection[int], first: int):
        self.size = size
        self.mines = frozenset(mines)
        self.first = first
        self.around = neighbours(size)
        self.counts = [0] * (size * size)
        for mine in self.mines:
            for cell in self.around[mine]:
                self.counts[cell] += 1
        self.opened: set[int] = set()
        self.hit: int | None = None
        self.open(first)

    @property
    def won(self) -> bool:
        """Whether every safe cell is open."""
        return len(self.opened) == len(self.counts) - len(self.mines)

    @property
    def over(self) -> bool:
        """Whether no further move is possible."""
        return self.hit is not None or self.won

    def open(self, cell: int) -> int:
        """Open a cell and return how many cells that opened: 0 where it was open already, or holds a mine."""
        if cell in self.mines:
            self.hit = cell
            return 0
        before = len(self.opened)
        self._flood(cell, self.opened)
        return len(self.opened) - before

    def _flood(self, cell: int, opened: set[int]) -> None:
        """Add to `opened` what opening a safe cell reveals: itself, or its blank region and that region's border."""
        if cell in opened:
            return
        opened.add(cell)
        pending = [cell] if not self.counts[cell] else []
        while pending:
            for near in self.around[pending.pop()]:
                if near not in opened:
                    opened.add(near)
                    if not self.counts[near]:
                        pending.append(near)

    def min_clicks(self) -> int:
        """Return the fewest cells to open from here to win, for someone who knows the mines.

        Each unopened blank region costs one click and reveals its border; every other safe cell costs one click
        of its own. (The "3BV" measure of a board, less what is open already.)
        """
        opened = set(self.opened)
        clicks = 0
        for cell, count in enumerate(self.counts):
            if not count and cell not in opened and cell not in self.mines:
                self._flood(cell, opened)
                clicks += 1
        return clicks + len(self.counts) - len(self.mines) - len(opened)

    def winnable_within(self, turns: int) -> bool:
        """Return whether `turns` more clicks can win."""
        return self.hit is None and self.min_clicks() <= turns

    def fresh(self) -> Game:
        """Return the same board at its start."""
        return Game(self.size, self.mines, self.first)


def draw_game(seed: int, *, size: int, mines: int, max_clicks: int | None = None) -> Game:
    """Draw the board that a seed decides: mines and first cell uniform, given that the opening is safe and no win.

    Args:
        seed: decides the board alone; any integer.
        size: rows, and columns.
        mines: how many mines.
        max_clicks: draw again, from the same generator, until so few clicks win.

    Returns:
        The game, its first cell opened.
    """
    generator = SplitMix64(seed)
    for _ in range(_MAX_DRAWS):
        # A first cell drawn among the others is a uniform first cell that is drawn again when it hits a mine.
        *hidden, first = generator.sample(size * size, mines + 1)
        game = Game(size, hidden, first)
        if not game.won and (max_clicks is None or game.min_clicks() <= max_clicks):
            return game
    raise ConfigError(
        f"`max_clicks` is {max_clicks}, but none of {_MAX_DRAWS} boards drawn with `size` {size} and `mines` {mines} "
        f"can be won so fast. Raise `max_clicks`, or change `mines`."
    )
