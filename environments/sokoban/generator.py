"""Draw Sokoban rooms whose shortest solution has a wanted length, exactly.

Floor is carved by a random walk that stamps small shapes (as in gym_sokoban). Then all play is run backwards, from
every solved position at once and move by move; the layer in which a position is first met is the exact number of
moves that it takes. The start is drawn from the layers that are wanted, so no room ever misses the bounds.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection
from functools import lru_cache

from metarl_agents.environments.sokoban.game import DIRECTIONS, Layout, Room
from metarl_agents.envs.splits import split_of_seed
from metarl_agents.errors import ConfigError

_MAX_DRAWS = 500
_MAX_CARVED = 50 * _MAX_DRAWS
"""Rooms carved for one, those of other splits included."""
_MAX_EFFORT = 4_000_000
"""Positions met in all draws of one room together, about ten seconds of search."""
_MAX_POSITIONS = 100_000
_FIFTHS = {"test": (0,), "validation": (1,), "train": (2, 3, 4)}
"""Which fifths of all walls and targets, by their checksum, belong to a split."""
_TURN = 0.35
"""Probability that the carving walk draws a new direction."""
_STAMPS = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
"""(row, col) of the cells that one stamp carves, around the walker."""
_STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))


@lru_cache(maxsize=4096)
def draw_room(seed: int, *, size: int, boxes: int, min_moves: int, max_moves: int) -> Room:
    """Draw the room that a seed decides.

    The range that the seed lies in (`envs/splits.py`) has walls and targets of its own: however few rooms the settings
    allow, none is trained on and tested on.

    Args:
        seed: decides the room alone; any integer.
        size: rows, and columns, the outer walls included.
        boxes: boxes, and targets.
        min_moves: least length of the shortest solution, in moves.
        max_moves: greatest length of the shortest solution, in moves.

    Returns:
        The start; no box stands on a target.

    Raises:
        ConfigError: no room drawn with these settings fits.
    """
    # Seeding with a text and `random()` alone give the same numbers in every process and on every Python version.
    rng = random.Random(f"sokoban/{seed}")
    own = _FIFTHS[split_of_seed(seed)]
    carved = draws = effort = 0
    while carved < _MAX_CARVED and draws < _MAX_DRAWS and effort < _MAX_EFFORT:
        carved += 1
        floor = carve(rng, size)
        if len(floor) < 2 * boxes + 1:
            continue
        targets = _sample(rng, floor, boxes)
        if fifth(floor, targets) not in own:
            continue
        draws += 1
        layout = Layout(size, size, frozenset(range(size * size)) - frozenset(floor), frozenset(targets))
        layers = play_backwards(layout, max_moves)
        effort += sum(map(len, layers))
        room = _draw_start(rng, layout, layers[min_moves:])
        if room is not None:
            return room
    raise ConfigError(
        f"None of {draws or carved} rooms drawn with `size` {size} and `boxes` {boxes} takes {min_moves} to "
        f"{max_moves} moves. Widen `min_moves` and `max_moves`, or change `size` or `boxes`."
    )


def fifth(floor: Collection[int], targets: Collection[int]) -> int:
    """Return which fifth of all rooms one belongs to, 0 to 4: the same in every process, whoever stands where."""
    return zlib.crc32(repr((sorted(floor), sorted(targets))).encode()) % 5


def carve(rng: random.Random, size: int) -> list[int]:
    """Return the floor of a room: connected cells inside the outer walls, in order.

    Source: gym_sokoban, `room_utils.py`, the topology of a room (1.7 steps for each row and column).
    """
    floor: set[int] = set()
    row, col = 1 + _below(rng, size - 2), 1 + _below(rng, size - 2)
    step = _STEPS[_below(rng, 4)]
    for _ in range(int(1.7 * (size + size))):
        if rng.random() < _TURN:
            step = _STEPS[_below(rng, 4)]
        row, col = min(max(row + step[0], 1), size - 2), min(max(col + step[1], 1), size - 2)
        for down, right in _STAMPS[_below(rng, len(_STAMPS))]:
            if 0 < row + down < size - 1 and 0 < col + right < size - 1:
                floor.add((row + down) * size + col + right)
    return sorted(floor)


def _draw_start(rng: random.Random, layout: Layout, layers: list[list[int]]) -> Room | None:
    """Return one position of the layers, each alike, that has no box on a target; None where there is none."""
    cells = layout.floor()
    goal = sum(1 << cells.index(target) for target in layout.targets)
    starts = [state for layer in layers for state in layer if not (state // len(cells)) & goal]
    if not starts:
        return None
    mask, player = divmod(starts[_below(rng, len(starts))], len(cells))
    return Room(layout, cells[player], frozenset(cell for bit, cell in enumerate(cells) if mask >> bit & 1))


def play_backwards(layout: Layout, max_moves: int, max_positions: int = _MAX_POSITIONS) -> list[list[int]]:
    """Return all positions by the exact number of moves that solves them: the solved ones first, then one more each.

    A layer is kept only when it is complete, so the numbers stay exact where `max_positions` cuts the search short.

    Args:
        layout: walls and targets.
        max_moves: the last layer wanted.
        max_positions: search no further once so many positions have been met.

    Returns:
        Layers of states; state = boxes * n + player, where n counts the floor cells, `player` is a cell's place among
        them, and `boxes` has one bit for each of them.
    """
    cells = layout.floor()
    count = len(cells)
    ways = _ways(layout, cells)
    goal = sum(1 << cells.index(target) for target in layout.targets)
    layers = [[goal * count + player for player in range(count) if not goal >> player & 1]]
    seen = set(layers[0])
    while len(layers) <= max_moves and layers[-1]:
        before: list[int] = []
        for state in layers[-1]:
            boxes, player = divmod(state, count)
            for back, back_bit, own_bit, ahead_bit in ways[player]:
                if boxes & back_bit:
                    continue
                # The last move was a walk from `back`; or also a push, of the box that is now ahead.
                found = [boxes * count + back]
                if boxes & ahead_bit:
                    found.append((boxes ^ ahead_bit | own_bit) * count + back)
                fresh = [state for state in found if state not in seen]
                seen.update(fresh)
                before += fresh
        if len(seen) > max_positions:
            break
        layers.append(before)
    return layers


def _ways(layout: Layout, cells: list[int]) -> list[list[tuple[int, int, int, int]]]:
    """Return, for each floor cell, how it can have been entered: (place and bit behind it, own bit, bit ahead)."""
    places = {cell: place for place, cell in enumerate(cells)}
    ways = []
    for place, cell in enumerate(cells):
        entered = []
        for direction in DIRECTIONS:
            offset = layout.offset(direction)
            back, ahead = places.get(cell - offset), places.get(cell + offset)
            if back is not None:
                entered.append((back, 1 << back, 1 << place, 0 if ahead is None else 1 << ahead))
        ways.append(entered)
    return ways


def _below(rng: random.Random, bound: int) -> int:
    return int(rng.random() * bound)


def _sample(rng: random.Random, items: list[int], count: int) -> list[int]:
    """Return `count` different items in random order."""
    pool = list(items)
    for i in range(count):
        j = i + _below(rng, len(pool) - i)
        pool[i], pool[j] = pool[j], pool[i]
    return pool[:count]
