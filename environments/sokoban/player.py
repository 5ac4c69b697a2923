"""A scripted Sokoban player: demonstrations for warm starts, a baseline, and a moving part for tests.

It reads the observation text and nothing else, so it knows what a model could know. Read first: `SokobanPlayer.act`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from metarl_agents.environments.sokoban.game import DIRECTIONS, Layout, Room
from metarl_agents.environments.sokoban.solver import Undecided, solver_of
from metarl_agents.environments.sokoban.text import read_room

_CELL = re.compile(r"\((\d+), *(\d+)\)")
_PUSHY = 0.5
_BACK = {"up": "down", "down": "up", "left": "right", "right": "left"}


class SokobanPlayer:
    """Plans by search in some turns, pushes what is near in others, and may listen to its own remarks.

    Args:
        plan: probability, drawn each turn, of following a shortest solution; otherwise it is hasty or strolls, pushing
            boxes without a thought, which often traps one.
        heed: probability, drawn once an episode, of listening to the remarks: a stroll then pushes no box onto a cell
            that they warn of, and who would do so in haste plans instead.
        blunder: probability of naming any moves instead.
        consistent: probability, drawn once an episode, of trying directions in the usual order, so that the same of
            several shortest solutions is followed.
        hasty: probability, drawn in turns without a plan, of making the nearest push that brings a box closer to a
            target as the crow flies. It falls for the same trap in every attempt, which makes remarks worth heeding.
        max_actions: moves a turn may hold.
        between: stands between two moves of an answer.
    """

    def __init__(
        self,
        plan: float = 0.75,
        heed: float = 0.3,
        blunder: float = 0.01,
        *,
        consistent: float = 0.5,
        hasty: float = 0.0,
        max_actions: int = 3,
        between: str = ", ",
    ):
        self.plan, self.heed, self.blunder, self.consistent, self.hasty = plan, heed, blunder, consistent, hasty
        self.max_actions, self.between = max_actions, between
        self._avoid: list[tuple[int, int]] = []
        self._order: Sequence[int] = range(len(DIRECTIONS))

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin an attempt; with probability `heed`, mind the cells that the remarks warn of."""
        heeds, usual = rng.random() < self.heed, rng.random() < self.consistent
        self._avoid = [cell for remark in remarks for cell in cells_to_avoid(remark)] if heeds else []
        self._order = range(len(DIRECTIONS)) if usual else rng.sample(range(len(DIRECTIONS)), len(DIRECTIONS))

    def act(self, observation: str, rng: Any) -> str:
        """Return the moves of one turn, as `<action>up, left</action>`."""
        blunders, plans = rng.random() < self.blunder, rng.random() < self.plan
        read = read_room(observation)
        moves: list[str] = []
        if read and not blunders:
            room, first = read
            avoid = {_cell(room, first, at) for at in self._avoid}
            if not plans and self.hasty and rng.random() < self.hasty:
                moves = self._rush(room)
                plans = not avoid.isdisjoint(_pushed_onto(room, moves))
            moves = self._solution(room) if plans else moves
            moves = moves or self._stroll(room, avoid, rng)
        moves = moves or [rng.choice(DIRECTIONS) for _ in range(self.max_actions)]
        return f"<action>{self.between.join(moves[: self.max_actions])}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return `<remark>avoid (row, col)</remark>` for the push after which nothing helped, or that it took too long.

        The cell is where that push left the box, counted as the room's text counts its rows.
        """
        texts = [turn.observation for turn in episode.turns] + [episode.final_observation]
        for before, after in pairwise(read_room(text) for text in texts):
            if before and after and solver_of(after[0].layout).is_stuck(after[0]):
                row, col = divmod(_trapped(before[0], after[0]), after[0].layout.cols)
                return f"<remark>avoid ({row + after[1] - 1}, {col + after[1] - 1})</remark>"
        return "<remark>be faster</remark>"

    def _solution(self, room: Room) -> list[str]:
        """Return a shortest solution; nothing where there is none, or none can be found in reasonable time."""
        try:
            return solver_of(room.layout).shortest(room, self._order) or []
        except Undecided:
            return []

    def _rush(self, room: Room) -> list[str]:
        """Return the nearest pushes that each bring a box closer to a target; nothing where there is none."""
        moves: list[str] = []
        while len(moves) < self.max_actions and (push := _nearest_push(room)):
            for direction in push:
                room = room.move(direction)
            moves += push
        return moves[: self.max_actions]

    def _stroll(self, room: Room, avoid: Collection[int], rng: Any) -> list[str]:
        """Return moves that each change something, every second one or so a push if there is a box to push."""
        moves: list[str] = []
        while len(moves) < self.max_actions and not room.solved:
            pushes, walks = [], []
            for direction in DIRECTIONS:
                after = room.move(direction)
                if after.boxes != room.boxes:
                    pushes += [direction] if avoid.isdisjoint(after.boxes - room.boxes) else []
                elif after != room and not (moves and direction == _BACK[moves[-1]]):
                    walks.append(direction)
            options = pushes if pushes and (not walks or rng.random() < _PUSHY) else walks
            if not options:
                break
            moves.append(rng.choice(options))
            room = room.move(moves[-1])
        return moves


def cells_to_avoid(remark: str) -> list[tuple[int, int]]:
    """Return the (row, col) cells that a remark names after the word "avoid".

    >>> cells_to_avoid("push from (1, 1), avoid (2, 3) and (4, 4)")
    [(2, 3), (4, 4)]
    """
    warned = remark.partition("avoid")[2]
    return [(int(row), int(col)) for row, col in _CELL.findall(warned)]


def _cell(room: Room, first: int, at: tuple[int, int]) -> int:
    """Return the index of a cell in a room that was read from text, or one off the room for a cell that is not there.

    Args:
        room: as read, with a ring of walls around what was printed.
        first: the number of the first printed row, and so of the first printed column.
        at: (row, col) counted that way.
    """
    row, col = at[0] - first + 1, at[1] - first + 1
    inside = 0 <= row < room.layout.rows and 0 <= col < room.layout.cols
    return row * room.layout.cols + col if inside else -1


def _nearest_push(room: Room) -> list[str]:
    """Return the walk to the nearest push that brings a box closer to a free target, and the push itself.

    Walls and traps on the box's way do not count. Equally near pushes: the first box, then the first direction.
    """
    layout, free = room.layout, room.layout.targets - room.boxes
    walks = _walks(room)
    found: list[str] = []
    for box in sorted(room.boxes - layout.targets):
        for direction in DIRECTIONS:
            offset = layout.offset(direction)
            walk, onto = walks.get(box - offset), box + offset
            is_open = onto not in layout.walls and onto not in room.boxes
            if walk is None or not is_open or _crow(layout, onto, free) >= _crow(layout, box, free):
                continue
            if not found or len(walk) + 1 < len(found):
                found = [*walk, direction]
    return found


def _walks(room: Room) -> dict[int, list[str]]:
    """Return {cell: a shortest walk to it without a push}."""
    walks: dict[int, list[str]] = {room.player: []}
    reached = [room.player]
    for cell in reached:
        for direction in DIRECTIONS:
            near = cell + room.layout.offset(direction)
            if near not in walks and near not in room.layout.walls and near not in room.boxes:
                walks[near] = [*walks[cell], direction]
                reached.append(near)
    return walks


def _crow(layout: Layout, cell: int, targets: Collection[int]) -> int:
    """Return the rows and columns between a cell and the nearest of some targets."""
    row, col = divmod(cell, layout.cols)
    return min(abs(row - target // layout.cols) + abs(col - target % layout.cols) for target in targets)


def _pushed_onto(room: Room, moves: Sequence[str]) -> set[int]:
    """Return the cells that some moves push boxes onto."""
    cells: set[int] = set()
    for direction in moves:
        after = room.move(direction)
        cells |= after.boxes - room.boxes
        room = after
    return cells


def _trapped(before: Room, after: Room) -> int:
    """Return the new cell of a box that moved, one from which it can never reach a target if there is such."""
    solver = solver_of(after.layout)
    moved = sorted(after.boxes - before.boxes or after.boxes)
    return next((box for box in moved if solver.is_lost(box)), moved[0])
