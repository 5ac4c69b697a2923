"""Level files in XSB signs, the usual exchange format: `#` wall, `@` player, `+` player on a target, `$` box, `*` box
on a target, `.` target; blank, `-` or `_` is floor.

One file holds any number of levels. A line is part of a level if it starts with a wall (after floor signs), or holds
nothing but signs, one of them no floor. Any other line ends a level: blank lines, `;` comments, titles. Lines above
its first row of nothing but signs with a wall among them ("# Level 1", "...") are titles too, and lines below its last
row with a wall are remarks.

Not read: run lengths (`3#@$`), rows divided by `|`, and the letters `p`, `b` and `o` for player, box and target.
"""

from __future__ import annotations

import codecs
import os
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from metarl_agents.environments.sokoban.game import Layout, Room
from metarl_agents.environments.sokoban.solver import Solver
from metarl_agents.environments.sokoban.text import XSB, room_of
from metarl_agents.errors import ConfigError

_FLOOR = " -_"
_SOLID = "#@+$*."
_MAX_SIZE = 50
_MAX_NAMED = 5
_MAX_BYTES = 20_000_000


@dataclass(frozen=True)
class _Block:
    """The lines of one level."""

    number: int
    """From 1, in the order of the file."""
    line: int
    """Of its first row, from 1."""
    rows: list[str]


def read_levels(path: str | Path) -> tuple[Room, ...]:
    """Return the rooms of a level file, in order.

    A level that cannot be played is left out with one warning for the file, given once.

    Raises:
        ConfigError: the file cannot be read, or no level is left.
    """
    file = Path(os.path.expanduser(path))
    try:
        stamp = file.stat()
        # The same contents are read, and warned of, once, however many environments ask.
        return _read(file, stamp.st_mtime_ns, stamp.st_size)
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else (error.strerror or str(error))
        raise ConfigError(
            f"`levels` is {path}, but that file cannot be read: {reason}. Give a text file of levels in XSB signs."
        ) from None


@lru_cache(maxsize=32)
def _read(file: Path, modified: int, size: int) -> tuple[Room, ...]:
    if size > _MAX_BYTES:
        raise ConfigError(f"`levels` is {file}, but it has {size} bytes and a level file at most {_MAX_BYTES}.")
    rooms, faults = parse_levels(_decoded(file.read_bytes()))
    told = "; ".join(faults[:_MAX_NAMED]) + (f"; and {len(faults) - _MAX_NAMED} more" * (len(faults) > _MAX_NAMED))
    if not rooms:
        raise ConfigError(
            f"`levels` is {file}, but it holds no level that can be played{': ' + told if faults else ''}. "
            f"Give a text file of levels in XSB signs."
        )
    if faults:
        warnings.warn(f"{file}: {told}. The other levels are played ({len(rooms)}).", RuntimeWarning, stacklevel=4)
    return rooms


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Old collections name their authors in Latin-1; any bytes pass for it, so what is surely none is refused.
        if b"\0" in content or content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise
        return content.decode("latin-1")


def parse_levels(text: str) -> tuple[tuple[Room, ...], list[str]]:
    """Read all levels of a text.

    Returns:
        The rooms that can be played, and what is wrong with each of the others, as half a sentence that names it.
    """
    rooms, faults = [], []
    for block in _blocks(text):
        try:
            rooms.append(_room(block.rows))
        except ValueError as error:
            faults.append(f"level {block.number} (line {block.line}) {error}")
    return tuple(rooms), faults


def _blocks(text: str) -> list[_Block]:
    levels = []
    for line, rows in _touching_rows(text):
        walls = [place for place, row in enumerate(rows) if "#" in row]
        first = next((place for place in walls if set(rows[place]) <= set(_FLOOR + _SOLID)), None)
        if first is not None:
            levels.append(_Block(len(levels) + 1, line + first, rows[first : walls[-1] + 1]))
    return levels


def _touching_rows(text: str) -> list[tuple[int, list[str]]]:
    """Return (line of the first, rows) of each run of lines that look like rows."""
    runs: list[tuple[int, list[str]]] = []
    inside = False
    # Not `splitlines`, which also splits at signs that editors do not count as ends of lines.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = line.expandtabs(4).rstrip()
        if _is_row(line):
            if not inside:
                runs.append((number, []))
            runs[-1][1].append(line)
        inside = _is_row(line)
    return runs


def _is_row(line: str) -> bool:
    if line.lstrip(_FLOOR).startswith("#"):
        return True
    return set(line) <= set(_FLOOR + _SOLID) and not set(line) <= set(_FLOOR)


def _room(rows: list[str]) -> Room:
    """Return the room of one level; raise ValueError with what is wrong with it, without a subject."""
    width = max(map(len, rows))
    if len(rows) > _MAX_SIZE or width > _MAX_SIZE:
        raise ValueError(f"has {len(rows)} rows and {width} columns, but {_MAX_SIZE} of each are the most")
    strange = sorted(set("".join(rows)) - set(_FLOOR + _SOLID))
    if strange:
        raise ValueError(f"has the sign {strange[0]!r}, which means nothing in a level")
    text = "".join(rows)
    players = text.count("@") + text.count("+")
    if players != 1:
        raise ValueError(f"has {players or 'no'} player{'s' * (players > 1)} (`@` or `+`), but needs exactly one")
    boxes = text.count("$") + text.count("*")
    targets = text.count(".") + text.count("*") + text.count("+")
    if not boxes and not targets:
        raise ValueError("has no box (`$` or `*`), but needs at least one")
    if boxes != targets:
        raise ValueError(f"has unequal numbers of boxes ({boxes}) and targets ({targets})")
    grid = [row.replace("-", " ").replace("_", " ").ljust(width) for row in rows]
    room = room_of(grid, XSB)
    assert room is not None, rows
    return _playable(_trimmed(room))


def _trimmed(room: Room) -> Room:
    """Return the room with walls wherever the player can never get, cut to the outer walls around the rest."""
    layout = room.layout
    reached, offsets = [room.player], (1, -1, layout.cols, -layout.cols)
    seen = {room.player}
    for cell in reached:
        row, col = divmod(cell, layout.cols)
        if not (1 < row < layout.rows - 2 and 1 < col < layout.cols - 2):
            raise ValueError("is not closed: the player can walk out of it")
        near = (cell + offset for offset in offsets)
        fresh = [cell for cell in near if cell not in layout.walls and cell not in seen]
        seen.update(fresh)
        reached += fresh
    # Boxes on targets behind walls are ornaments; anything else out of reach can never be put right.
    if (room.boxes ^ layout.targets) - seen:
        raise ValueError("has a box or a target that the player can never reach")
    rows, cols = ([divmod(cell, layout.cols)[axis] for cell in reached] for axis in (0, 1))
    top, left, wide = min(rows) - 1, min(cols) - 1, max(cols) - min(cols) + 3
    moved = {cell: (cell // layout.cols - top) * wide + cell % layout.cols - left for cell in reached}
    high = max(rows) - min(rows) + 3
    walls = frozenset(range(high * wide)) - frozenset(moved.values())
    boxes, targets = (frozenset(moved[cell] for cell in cells & seen) for cells in (room.boxes, layout.targets))
    return Room(Layout(high, wide, walls, targets), moved[room.player], boxes)


def _playable(room: Room) -> Room:
    if room.solved:
        raise ValueError("is solved from the start")
    if any(map(Solver(room.layout).is_lost, room.boxes)):
        raise ValueError("cannot be solved: a box stands where it can never be pushed to a target")
    return room
