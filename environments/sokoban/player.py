"""A scripted Sokoban player: demonstrations for warm starts, a baseline, and a moving part for tests.

It reads the observation text and nothing else, so it knows what a model could know. Read first: `SokobanPlayer.act`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from metarl_agents.environments.sokoban.game import DIRECTIONS, Layout, Room
from metarl_agents.environments.sokoban.solver import Undecided, solver_of
from metarl_agents.environments.sokoban.text import read_room

_MOVE = re.compile(rf"\b({'|'.join(DIRECTIONS)})\b")
_PUSHY = 0.5
_TRIES = 20
_BACK = {"up": "down", "down": "up", "left": "right", "right": "left"}


class SokobanPlayer:
    """Plans by search in some turns, pushes what is near in others, and may listen to its own remarks.

    Args:
        plan: probability, drawn each turn, of following a shortest solution; otherwise it is hasty or strolls, pushing
            boxes without a thought, which often traps one.
        heed: probability, drawn once an episode, of listening to the remarks: the moves of a turn that they warn of are
            not made again in haste or on a stroll.
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
        self._avoid: set[tuple[str, ...]] = set()
        self._order: Sequence[int] = range(len(DIRECTIONS))

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin an attempt; with probability `heed`, mind the turns that the remarks warn of."""
        heeds, usual = rng.random() < self.heed, rng.random() < self.consistent
        self._avoid = {moves for remark in remarks if (moves := moves_to_avoid(remark))} if heeds else set()
        self._order = range(len(DIRECTIONS)) if usual else rng.sample(range(len(DIRECTIONS)), len(DIRECTIONS))

    def act(self, observation: str, rng: Any) -> str:
        """Return the moves of one turn, as `<action>up, left</action>`."""
        blunders, plans = rng.random() < self.blunder, rng.random() < self.plan
        read = read_room(observation)
        moves: list[str] = []
        if read and not blunders:
            room = read[0]
            if not plans and self.hasty and rng.random() < self.hasty:
                moves = self._rush(room)
                plans = tuple(moves) in self._avoid
            moves = self._solution(room) if plans else moves
            moves = moves or self._stroll_anew(room, rng)
        moves = moves or [rng.choice(DIRECTIONS) for _ in range(self.max_actions)]
        return f"<action>{self.between.join(moves[: self.max_actions])}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return `<remark>avoid up, left</remark>`: the turn after which nothing helped; or that it took too long."""
        texts = [*(turn.observation for turn in episode.turns), episode.final_observation]
        for turn, text in zip(episode.turns, texts[1:], strict=True):
            after = read_room(text)
            if turn.action and after and solver_of(after[0].layout).is_stuck(after[0]):
                return f"<remark>avoid {self.between.join(turn.action)}</remark>"
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

    def _stroll_anew(self, room: Room, rng: Any) -> list[str]:
        """Return a stroll that no remark warns of, if one is soon found."""
        moves: list[str] = []
        for _ in range(_TRIES):
            moves = self._stroll(room, rng)
            if tuple(moves) not in self._avoid:
                break
        return moves

    def _stroll(self, room: Room, rng: Any) -> list[str]:
        """Return moves that each change something, every second one or so a push if there is a box to push."""
        moves: list[str] = []
        while len(moves) < self.max_actions and not room.solved:
            pushes, walks = [], []
            for direction in DIRECTIONS:
                after = room.move(direction)
                if after.boxes != room.boxes:
                    pushes.append(direction)
                elif after != room and not (moves and direction == _BACK[moves[-1]]):
                    walks.append(direction)
            options = pushes if pushes and (not walks or rng.random() < _PUSHY) else walks
            if not options:
                break
            moves.append(rng.choice(options))
            room = room.move(moves[-1])
        return moves


def moves_to_avoid(remark: str) -> tuple[str, ...]:
    """Return the moves that a remark names after the word "avoid"; none where it names none.

    >>> moves_to_avoid("go down first, avoid up, left"), moves_to_avoid("be faster")
    (('up', 'left'), ())
    """
    return tuple(_MOVE.findall(remark.partition("avoid")[2]))


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
