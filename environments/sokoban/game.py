"""The rules of Sokoban: walk, push one box, never pull.

What lives here: positions as flat cell indices, no text. What does not: where rooms come from (`generator.py`,
`levels.py`), how they are printed (`text.py`) and solved (`solver.py`). Cells are numbered row by row from 0:
cell = row * cols + col. Every room is enclosed by walls, so no step leaves the grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

DIRECTIONS = ("up", "down", "left", "right")


@dataclass(frozen=True)
class Layout:
    """What never changes in a room."""

    rows: int
    cols: int
    walls: frozenset[int]
    """All cells that are not floor, the outermost ring among them."""
    targets: frozenset[int]
    """As many as there are boxes."""

    def offset(self, direction: str) -> int:
        """Return the difference between a cell's index and that of the cell next to it.

        >>> Layout(3, 5, frozenset(), frozenset()).offset("down")
        5
        """
        return {"up": -self.cols, "down": self.cols, "left": -1, "right": 1}[direction]

    def floor(self) -> list[int]:
        """Return all cells that are no wall, in order."""
        return [cell for cell in range(self.rows * self.cols) if cell not in self.walls]


@dataclass(frozen=True)
class Room:
    """One position: a layout, the player's cell and the boxes' cells."""

    layout: Layout
    player: int
    boxes: frozenset[int]

    @property
    def placed(self) -> int:
        """How many boxes stand on targets."""
        return len(self.boxes & self.layout.targets)

    @property
    def solved(self) -> bool:
        """Whether every box stands on a target."""
        return self.boxes == self.layout.targets

    def move(self, direction: str) -> Room:
        """Return the position after one move; the same position where a wall or a box that cannot give way blocks it.

        Args:
            direction: one of `DIRECTIONS`.
        """
        offset = self.layout.offset(direction)
        ahead = self.player + offset
        if ahead in self.layout.walls:
            return self
        if ahead not in self.boxes:
            return replace(self, player=ahead)
        beyond = ahead + offset
        if beyond in self.layout.walls or beyond in self.boxes:
            return self
        return Room(self.layout, ahead, self.boxes - {ahead} | {beyond})
