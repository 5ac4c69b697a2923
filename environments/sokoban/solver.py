"""Exact play of Sokoban: shortest solutions in moves, and which positions cannot be solved any more.

A state of both searches is where the player stands and where the boxes are after a push; the walk to the next push is
found by breadth-first search. Read first: `Solver.shortest`, then `Solver.is_stuck`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import lru_cache

from metarl_agents.environments.sokoban.game import DIRECTIONS, Layout, Room

_MAX_WORK = 500_000
_MAX_KEPT = 20_000
_FAR = 1 << 20

State = tuple[int, tuple[int, ...]]
"""(player's cell, boxes' cells in order)."""


class Undecided(Exception):
    """A search took as many steps as it may and has no answer."""


class Solver:
    """Answers questions about all positions of one layout, and keeps the answers.

    Args:
        layout: walls and targets.
        max_work: how many cells one search may look at, all together; about a second, and far more than any 6x6 room
            needs.
    """

    def __init__(self, layout: Layout, max_work: int = _MAX_WORK):
        self.layout, self.max_work = layout, max_work
        offsets = [layout.offset(direction) for direction in DIRECTIONS]
        self._next = {cell: [cell + offset for offset in offsets] for cell in layout.floor()}
        self._goal = tuple(sorted(layout.targets))
        self._pushes = self._push_distances()
        self._stuck: dict[State, bool] = {}
        self._work = 0

    # ---- shortest solutions ------------------------------------------------------------------------------------

    def shortest(self, room: Room, order: Sequence[int] = (0, 1, 2, 3)) -> list[str] | None:
        """Return a shortest list of moves that solves `room`, or None where there is none at all.

        A* over pushes: the cost of a push is the walk to it plus one, and the least number of pushes that bring each
        box to its nearest target never overestimates what is left.

        Args:
            room: a position of this layout.
            order: directions, as indices of `DIRECTIONS`, in the order in which they are tried; it decides which of
                several shortest solutions is returned.

        Raises:
            Undecided: the search would have to look at more than `max_work` cells.
        """
        self._work = 0
        start = (room.player, tuple(sorted(room.boxes)))
        if self._lower_bound(start[1]) >= _FAR:
            return None
        cost = {start: 0}
        parent: dict[State, tuple[State, int]] = {}
        # (cost at least, minus the cost so far, a number that settles ties, state): deeper first among equals.
        queue = [(self._lower_bound(start[1]), 0, 0, start)]
        done: set[State] = set()
        number = 0
        while queue:
            state = heapq.heappop(queue)[-1]
            if state[1] == self._goal:
                return self._moves(state, parent, order)
            if state in done:
                continue
            done.add(state)
            if self._work > self.max_work:
                raise Undecided
            for after, direction, steps in self._after_pushes(state, order):
                total = cost[state] + steps + 1
                if total < cost.get(after, _FAR):
                    cost[after], parent[after] = total, (state, direction)
                    number += 1
                    heapq.heappush(queue, (total + self._lower_bound(after[1]), -total, number, after))
        return None

    def _moves(self, state: State, parent: dict[State, tuple[State, int]], order: Sequence[int]) -> list[str]:
        moves: list[str] = []
        while state in parent:
            pushed_to, (state, direction) = state[0], parent[state]
            # The player now stands where the box was; before the push it stood one cell further back.
            stand = self._next[pushed_to][direction ^ 1]
            moves[:0] = [*self._walk_to(state, stand, order), DIRECTIONS[direction]]
        return moves

    def _walk_to(self, state: State, goal: int, order: Sequence[int]) -> list[str]:
        """Return a shortest walk from the player's cell to `goal` around the boxes."""
        distance = self._walks(goal, state[1])
        cell, moves = state[0], []
        while cell != goal:
            near = self._next[cell]
            direction = next(d for d in order if distance.get(near[d], _FAR) < distance[cell])
            cell = near[direction]
            moves.append(DIRECTIONS[direction])
        return moves

    # ---- positions that cannot be solved -----------------------------------------------------------------------

    def is_stuck(self, room: Room) -> bool:
        """Return whether it is certain that no moves solve `room`; the answer is kept for the next time.

        Best-first search over pushes. Once it has run dry, every position that it met is stuck. Where it would have
        to look at more than `max_work` cells the answer is False: not proven.
        """
        boxes = tuple(sorted(room.boxes))
        start = (min(self._walks(room.player, boxes)), boxes)
        if start not in self._stuck:
            if len(self._stuck) > _MAX_KEPT:  # what is kept stays bounded in long runs on large rooms
                self._stuck.clear()
            self._decide(start)
        return self._stuck[start]

    def is_lost(self, box: int) -> bool:
        """Return whether a box on that cell could never be pushed to a target, even alone in the room."""
        return box not in self._pushes

    def _decide(self, start: State) -> None:
        """Fill the memory with the answer for `start` and what else the search finds out.

        States here name the player's region by its first cell, since walking inside it changes nothing. What earlier
        searches proved stuck is searched again, so that an answer never hangs on which questions came before: it is
        the same in every process also where `max_work` decides.
        """
        self._work = 0
        parent: dict[State, State | None] = {start: None}
        queue = [(self._lower_bound(start[1]), 0, start)]
        if queue[0][0] >= _FAR:
            self._stuck[start] = True
            return
        while queue:
            state = heapq.heappop(queue)[2]
            if state[1] == self._goal or self._stuck.get(state) is False:
                self._mark_line(state, parent)
                return
            if self._work > self.max_work:
                self._stuck[start] = False
                return
            for (player, boxes), _, _ in self._after_pushes(state):
                after = (min(self._walks(player, boxes)), boxes)
                if after not in parent:
                    parent[after] = state
                    heapq.heappush(queue, (self._lower_bound(boxes), len(parent), after))
        self._stuck.update(dict.fromkeys(parent, True))

    def _mark_line(self, state: State, parent: dict[State, State | None]) -> None:
        """Note that the positions from the start of a search to `state` can be solved."""
        line: State | None = state
        while line is not None:
            self._stuck[line] = False
            line = parent[line]

    # ---- pieces of both ----------------------------------------------------------------------------------------

    def _after_pushes(self, state: State, order: Sequence[int] = (0, 1, 2, 3)) -> Iterator[tuple[State, int, int]]:
        """Yield (state after it, direction, walk before it) of every push that does not clearly lose."""
        player, boxes = state
        distance = self._walks(player, boxes)
        for number, box in enumerate(boxes):
            near = self._next[box]
            for direction in order:
                steps, beyond = distance.get(near[direction ^ 1]), near[direction]
                if steps is None or beyond in boxes or self._pushes.get(beyond, _FAR) >= _FAR:
                    continue
                after = tuple(sorted((*boxes[:number], beyond, *boxes[number + 1 :])))
                self._work += len(boxes)
                if not self._makes_block(beyond, after):
                    yield (box, after), direction, steps

    def _walks(self, player: int, boxes: tuple[int, ...]) -> dict[int, int]:
        """Return {cell: steps} for all that the player can reach without a push."""
        blocked = set(boxes)
        distance = {player: 0}
        reached = [player]
        for cell in reached:
            steps = distance[cell] + 1
            for near in self._next[cell]:
                if near not in distance and near not in blocked and near in self._next:
                    distance[near] = steps
                    reached.append(near)
        self._work += len(reached)
        return distance

    def _makes_block(self, box: int, boxes: tuple[int, ...]) -> bool:
        """Return whether `box` is part of a 2 x 2 block of walls and boxes that holds a box off its target.

        No box of such a block can ever move again.
        """
        # 0 stands for "free": cell 0 is a corner of the outer wall and next to no floor.
        up, down, left, right = (near if near not in self._next or near in boxes else 0 for near in self._next[box])
        for vertical in (up, down):
            for sideways in (left, right):
                if vertical and sideways:
                    corner = vertical + sideways - box
                    block = (box, vertical, sideways, corner)
                    if (corner not in self._next or corner in boxes) and not self._is_harmless(block):
                        return True
        return False

    def _is_harmless(self, block: tuple[int, ...]) -> bool:
        return all(cell not in self._next or cell in self.layout.targets for cell in block)

    def _lower_bound(self, boxes: tuple[int, ...]) -> int:
        return sum(self._pushes.get(box, _FAR) for box in boxes)

    def _push_distances(self) -> dict[int, int]:
        """Return {cell: fewest pushes to a target} for a box alone in the room; cells it can never leave are absent.

        Found by pulling boxes off the targets: a box came to `cell` from `back` if the player could stand behind it.
        """
        distance = dict.fromkeys(self._goal, 0)
        reached = list(self._goal)
        for cell in reached:
            for direction in range(len(DIRECTIONS)):
                back = self._next[cell][direction]
                free = back in self._next and self._next[back][direction] in self._next
                if free and back not in distance:
                    distance[back] = distance[cell] + 1
                    reached.append(back)
        return distance


@lru_cache(maxsize=128)
def solver_of(layout: Layout) -> Solver:
    """Return the solver of a layout, shared by all who ask, so that answers are found once."""
    return Solver(layout)
