"""Worlds that evaluations ask for more than a trial does. Nothing heavy is imported here: worker processes import it."""

import time
from collections import Counter
from pathlib import Path

from metarl_agents.envs import Environment, Wording
from metarl_agents.envs.splits import SEEDS_PER_SPLIT
from metarl_agents.types import StepResult

COUNTS = Counter()
"""What was asked of the worlds of this process: "built", "closed", "reset", "min_turns"."""


class Rows(Environment):
    """Seven rows of data in every split; any answer at all solves a task.

    Args:
        fails: what happens at a task whose seed is a multiple of five: "reset" or "min_turns" raises, "exit" raises
            SystemExit, "hang" sleeps, "unknown" tells nothing; "always" raises for each task.
        tasks: how many tasks it says there are; an exception is raised.
        log: a file in which `min_turns` leaves a line.
    """

    wording = Wording(play_request="Choose.", reflect_request="What to remember?")

    def __init__(self, fails="", tasks=None, log=None):
        self.fails, self.tasks, self.log = fails, tasks, log
        COUNTS["built"] += 1

    def reset(self, *, seed):
        COUNTS["reset"] += 1
        self.seed = seed
        if self.fails == "reset" and self._is_odd:
            raise OSError("the file is gone")
        return f"row {seed % 7}", {}

    def step(self, action):
        return StepResult("so", 10.0, True, False, {"success": True})

    def parse_action(self, text):
        return text or None

    def min_turns(self):
        COUNTS["min_turns"] += 1
        if self.log:
            with Path(self.log).open("a") as file:
                file.write("asked\n")
        if self.fails == "always" or (self._is_odd and self.fails in ("min_turns", "exit", "hang")):
            if self.fails == "hang":
                time.sleep(30)
            raise SystemExit(3) if self.fails == "exit" else ValueError("no idea")
        if self.fails == "unknown" and self._is_odd:
            return None
        return 1 + self.seed % SEEDS_PER_SPLIT % 2

    def num_tasks(self, split):
        if isinstance(self.tasks, BaseException):
            raise self.tasks
        return self.tasks

    def close(self):
        COUNTS["closed"] += 1
        raise SystemExit(4)

    @property
    def _is_odd(self):
        return self.seed % SEEDS_PER_SPLIT % 5 == 0


class Plain:
    """An environment of somebody's, with the methods that the rollout calls and no others."""

    wording = Rows.wording

    def describe(self):
        return ""

    def reset(self, *, seed):
        return f"task {seed}", {}

    def step(self, action):
        return "so", 10.0, True, False, {"success": True}

    def parse_action(self, text):
        return text or None
