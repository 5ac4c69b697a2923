"""Rooms as text: what the agent sees, and how to read it back.

What lives here: three sets of signs and the printing of rooms. What does not: level files (`levels.py`), the texts
around a room (`wording.py`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from metarl_agents.environments.sokoban.game import Layout, Room

_LINE = re.compile(r"(?:Row )?(\d+):((?: \S)+)")


@dataclass(frozen=True)
class Signs:
    """One character for each kind of cell."""

    wall: str = "#"
    floor: str = "_"
    target: str = "O"
    box: str = "X"
    box_on_target: str = "*"
    player: str = "P"
    player_on_target: str = "S"

    def of(self, room: Room, cell: int) -> str:
        """Return the sign of one cell."""
        on_target = cell in room.layout.targets
        if cell in room.layout.walls:
            return self.wall
        if cell == room.player:
            return self.player_on_target if on_target else self.player
        if cell in room.boxes:
            return self.box_on_target if on_target else self.box
        return self.target if on_target else self.floor


PAPER = Signs(box_on_target="√")
COMPACT = Signs()
XSB = Signs(floor=" ", target=".", box="$", player="@", player_on_target="+")
"""The signs of level files."""


def paper_text(room: Room) -> str:
    """Return all cells, rows numbered from 0: `0: # # # #`."""
    return "\n".join(f"{row}: {' '.join(signs)}" for row, signs in enumerate(_grid(room, PAPER)))


def compact_text(room: Room) -> str:
    """Return the cells inside the outer walls, rows numbered from 1: `Row 1: _ X O P`."""
    inside = [signs[1:-1] for signs in _grid(room, COMPACT)[1:-1]]
    return "\n".join(f"Row {row}: {' '.join(signs)}" for row, signs in enumerate(inside, start=1))


def xsb_text(room: Room) -> str:
    """Return the room as a level file holds it."""
    return "\n".join("".join(signs) for signs in _grid(room, XSB))


def read_room(text: str) -> tuple[Room, int] | None:
    """Read a room as `paper_text` or `compact_text` prints it.

    A ring of walls is laid around what is printed, so that the room is enclosed in either form.

    Returns:
        The room, and the number that its first printed row carries; None for any other text.

    >>> room, first = read_room("Row 1: P X O")
    >>> (room.layout.rows, room.layout.cols, room.player, sorted(room.boxes), sorted(room.layout.targets), first)
    (3, 5, 6, [7], [8], 1)
    """
    lines = [match for line in text.splitlines() if (match := _LINE.fullmatch(line))]
    grid = [match[2].split() for match in lines]
    if not grid or len({len(signs) for signs in grid}) > 1:
        return None
    room = room_of(grid, PAPER) or room_of(grid, COMPACT)
    return (room, int(lines[0][1])) if room else None


def room_of(grid: Sequence[Sequence[str]], signs: Signs) -> Room | None:
    """Return the room of a rectangle of signs inside one more ring of walls; None unless all signs are known.

    Args:
        grid: rows of single characters, all of one length.
        signs: what they mean.

    Returns:
        The room, if there is exactly one player.
    """
    kinds = {signs.wall, signs.floor, signs.target, signs.box, signs.box_on_target}
    players = {signs.player, signs.player_on_target}
    cols = len(grid[0]) + 2
    at = {(row + 1) * cols + col + 1: sign for row, line in enumerate(grid) for col, sign in enumerate(line)}
    standing = [cell for cell, sign in at.items() if sign in players]
    if len(standing) != 1 or not set(at.values()) <= kinds | players:
        return None
    walls = frozenset(cell for cell in range((len(grid) + 2) * cols) if at.get(cell, signs.wall) == signs.wall)
    boxes = frozenset(cell for cell, sign in at.items() if sign in (signs.box, signs.box_on_target))
    on_target = (signs.target, signs.box_on_target, signs.player_on_target)
    targets = frozenset(cell for cell, sign in at.items() if sign in on_target)
    return Room(Layout(len(grid) + 2, cols, walls, targets), standing[0], boxes)


def _grid(room: Room, signs: Signs) -> list[list[str]]:
    rows, cols = room.layout.rows, room.layout.cols
    return [[signs.of(room, row * cols + col) for col in range(cols)] for row in range(rows)]
