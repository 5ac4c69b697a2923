"""A prize is behind door A or door B; one choice an attempt. An example to copy from.

Without memory nobody wins more than half of the attempts. Whoever remembers the empty door wins the second one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from metarl_agents.envs import Environment, Wording
from metarl_agents.types import StepResult

_RULES = "A prize is behind door A or door B. Choose one door; the prize stays where it is in every attempt."
_START = "Both doors are closed."


class TwoDoors(Environment):
    """One choice between two doors; 10 for the prize."""

    wording = Wording(
        play_request="Choose a door: <action>A</action> or <action>B</action>.",
        reflect_request="What to remember? Answer inside <remark> </remark>.",
        initial="",
        history_heading="",
        history_entry="You chose {action}. {observation}",
        memory_heading="",
        memory_remark="Attempt {number} {outcome}: {remark}",
        outcome_failure="failed",
        reflect_heading="",
        separator="\n",
    )

    def describe(self) -> str:
        """Return the rules; they say nothing about one task."""
        return _RULES

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Hide the prize: `seed` alone decides where."""
        self.seed, self.over = seed, False
        # A hash, so that nothing about a seed hints at the door; and the seeds 2k and 2k + 1 never share one.
        self._prize = "AB"[(hashlib.sha256(str(seed // 2).encode()).digest()[0] + seed) % 2]
        return _START, {}

    def parse_action(self, text: str) -> str | None:
        """Return "A" or "B"; None for anything else."""
        answer = (super().parse_action(text) or "").upper().removeprefix("DOOR ")
        return answer if answer in ("A", "B") else None

    def step(self, action: str) -> StepResult:
        """Open a door, which ends the attempt."""
        if self.over:
            raise RuntimeError("A door has been opened already. Call `reset` or `restart` before the next `step`.")
        self.over = True
        won = action == self._prize
        found = f"Door {action} is open: {'the prize!' if won else 'empty.'}"
        return StepResult(found, 10.0 if won else 0.0, True, False, {"success": won})

    def player(self) -> DoorsPlayer:
        """Return a player that chooses blindly and notes what it saw."""
        return DoorsPlayer()


class DoorsPlayer:
    """Opens a random door, whatever the remarks say; its own remarks name the empty door."""

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Ignore the remarks."""

    def act(self, observation: str, rng: Any) -> str:
        """Choose a door at random."""
        return f"<action>{'A' if rng.random() < 0.5 else 'B'}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Name the empty door, as the last observation shows it."""
        empty = re.search(r"Door ([AB]) is open: empty", episode.final_observation)
        return f"<remark>door {empty[1]} was empty</remark>" if empty else "<remark>nothing learned</remark>"
