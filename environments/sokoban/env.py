"""Sokoban as an environment: rooms as text, up to so many moves a turn, rewards.

What does not live here: the rules (`game.py`), where rooms come from (`generator.py`, `levels.py`), the model's texts
(`text.py`, `wording.py`), the scripted player (`player.py`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from metarl_agents.environments.sokoban.game import DIRECTIONS, Room
from metarl_agents.environments.sokoban.generator import draw_room
from metarl_agents.environments.sokoban.levels import read_levels
from metarl_agents.environments.sokoban.player import SokobanPlayer
from metarl_agents.environments.sokoban.solver import Undecided, solver_of
from metarl_agents.environments.sokoban.wording import texts
from metarl_agents.envs.base import Environment
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.parsing import last_tag
from metarl_agents.envs.splits import SEEDS_PER_SPLIT, split_of_seed
from metarl_agents.errors import ConfigError
from metarl_agents.types import StepResult

# Preset -> (solved, box comes onto a target, box leaves a target, each move); gym_sokoban's values for `shaped`.
_REWARDS = {
    "sparse": (10.0, 0.0, 0.0, 0.0),
    "shaped": (10.0, 1.0, -1.0, -0.1),
}
_SIZES = range(5, 21)
_BOXES = range(1, 5)
_MAX_ACTIONS = range(1, 101)
_SHIPPED_BOXES = 2
"""Boxes that the shipped tiny model has seen in a room, at most."""
_SMALLEST_SET = 5
"""Levels of a file that is split."""
_SEPARATOR = re.compile(r"\s*,\s*|\s+")


class Sokoban(Environment):
    """A walled room with boxes and targets; the seed decides the room, and all of it is seen.

    Args:
        size: rows, and columns, 5 to 20, the outer walls included.
        boxes: boxes, and targets, 1 to 4.
        min_moves: least length of the shortest solution, in moves; at least 1.
        max_moves: greatest length of the shortest solution. Every room ever made keeps both bounds.
        max_actions: moves that one turn may hold, 1 to 100.
        end_when_stuck: whether the attempt is lost as soon as no moves can solve the room any more. False costs
            nothing; True searches once for each new position, and plays on where the search gives up undecided.
        reward_preset: `sparse` pays 10 for solving; `shaped` also charges 0.1 a move, pays 1 for a box that comes
            onto a target and takes 1 for one that leaves it, summed over the moves of the turn.
        levels: a level file in XSB signs (see `levels.py`) to play in place of drawn rooms; `size`, `boxes` and the
            bounds then say nothing. Of five levels or more every fifth is kept for tests and every fifth for
            validation (`level_numbers`); seed s of a split plays its level s modulo their number.
        wording: `paper` for language models, `compact` for very small ones.
    """

    def __init__(
        self,
        *,
        size: int = 6,
        boxes: int = 2,
        min_moves: int = 5,
        max_moves: int = 21,
        max_actions: int = 3,
        end_when_stuck: bool = True,
        reward_preset: str = "sparse",
        levels: str | Path | None = None,
        wording: str = "paper",
    ):
        _check_settings(size, boxes, min_moves, max_moves, max_actions, reward_preset)
        self.size, self.boxes, self.min_moves, self.max_moves = size, boxes, min_moves, max_moves
        self.max_actions, self.end_when_stuck = max_actions, end_when_stuck
        self.rewards = _REWARDS[reward_preset]
        chosen = texts(wording, max_actions=max_actions, end_when_stuck=end_when_stuck)
        self._rules, self.wording = chosen.rules, chosen.wording
        self.room_text, self._between = chosen.room_text, chosen.between_moves
        self._levels = read_levels(levels) if levels is not None else ()
        if wording == "compact" and levels is None and (size, max_actions) == (6, 3) and boxes <= _SHIPPED_BOXES:
            self.tiny_model = "sokoban_6x6"
        self._start: Room | None = None
        self._room: Room | None = None
        self._over = False

    def describe(self) -> str:
        """Return the rules in the chosen wording."""
        return self._rules

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Draw the room of `seed`, or pick its level."""
        self.seed = seed
        if self._levels:
            numbers = level_numbers(len(self._levels), split_of_seed(seed))
            self._start = self._levels[numbers[seed % SEEDS_PER_SPLIT % len(numbers)]]
        else:
            bounds = {"min_moves": self.min_moves, "max_moves": self.max_moves}
            self._start = draw_room(seed, size=self.size, boxes=self.boxes, **bounds)
        return self.restart()

    def num_tasks(self, split: str) -> int | None:
        """Return the levels of a split; None for drawn rooms, which do not end."""
        return len(level_numbers(len(self._levels), split)) if self._levels else None

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Put player and boxes back to the start of the room."""
        self._room, self._over = self._started(), False
        return self.room_text(self._room), {}

    def parse_action(self, text: str) -> tuple[str, ...] | None:
        """Return the moves inside the last <action> pair, or None.

        The pair must hold nothing but 1 to `max_actions` of the words up, down, left, right, in any letter case, with
        a comma or white space between them. Any other word, a sign too many or a word too many makes the answer
        malformed as a whole: half a plan may do the opposite of what was meant.

        >>> Sokoban().parse_action("<action>up, Left</action>"), Sokoban().parse_action("<action>update</action>")
        (('up', 'left'), None)
        """
        moves = tuple(_SEPARATOR.split((last_tag(text, "action") or "").lower()))
        return moves if len(moves) <= self.max_actions and set(moves) <= set(DIRECTIONS) else None

    def step(self, action: tuple[str, ...]) -> StepResult:
        """Make the moves in order, up to the one that solves the room; a blocked move costs and does nothing."""
        if self._over:
            raise RuntimeError("This Sokoban attempt is over. Call `reset` or `restart` before the next `step`.")
        if isinstance(action, str) or not set(action) <= set(DIRECTIONS):
            raise ValueError(f"The action is {action!r}, but a tuple of {', '.join(DIRECTIONS)} is expected.")
        room = self._current()
        solves, comes, leaves, cost = self.rewards
        reward = 0.0
        for direction in action:
            after = room.move(direction)
            gained = after.placed - room.placed
            reward += cost + comes * max(gained, 0) + leaves * max(-gained, 0)
            room = after
            if room.solved:
                reward += solves
                break
        self._room = room
        self._over = room.solved or (self.end_when_stuck and solver_of(room.layout).is_stuck(room))
        # Sums of tenths would carry rounding noise into rewards that are equal.
        return StepResult(self.room_text(room), round(reward, 6), self._over, False, {"success": room.solved})

    def min_turns(self) -> int | None:
        """Return the fewest turns that solve the current task from its start; None where the search gives up."""
        start = self._started()
        try:
            moves = solver_of(start.layout).shortest(start)
        except Undecided:
            return None
        return None if moves is None else -(-len(moves) // self.max_actions)

    def player(self) -> SokobanPlayer:
        """Return the scripted player."""
        return SokobanPlayer(max_actions=self.max_actions, between=self._between)

    def _started(self) -> Room:
        if self._start is None:
            raise RuntimeError("No Sokoban task has been started. Call `reset(seed=...)` first.")
        return self._start

    def _current(self) -> Room:
        return self._room or self._started()


def level_numbers(total: int, split: str) -> range | list[int]:
    """Return which levels of a file, from 0, belong to a split; all of them to each split where there are fewer than 5.

    Level sets grow harder from front to back, so the splits take turns.

    >>> level_numbers(10, "test"), level_numbers(10, "validation"), level_numbers(10, "train")
    ([4, 9], [3, 8], [0, 1, 2, 5, 6, 7])
    """
    if total < _SMALLEST_SET:
        return range(total)
    places = {"test": (4,), "validation": (3,), "train": (0, 1, 2)}[split]
    return [number for number in range(total) if number % 5 in places]


def _check_settings(
    size: int, boxes: int, min_moves: int, max_moves: int, max_actions: int, reward_preset: str
) -> None:
    ranges = (("size", size, _SIZES), ("boxes", boxes, _BOXES), ("max_actions", max_actions, _MAX_ACTIONS))
    for name, value, allowed in ranges:
        if value not in allowed:
            raise ConfigError(
                f"`{name}` is {value}, but Sokoban takes {allowed[0]} to {allowed[-1]}. Choose such a number."
            )
    if not 1 <= min_moves <= max_moves:
        raise ConfigError(
            f"`min_moves` is {min_moves} and `max_moves` {max_moves}, but the shortest solution is drawn between them "
            f"and takes at least 1 move. Choose 1 <= `min_moves` <= `max_moves`."
        )
    check_choice("Sokoban", "reward_preset", reward_preset, _REWARDS)
