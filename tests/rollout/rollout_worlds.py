"""Small worlds for the rollout's tests. Nothing heavy is imported here, because worker processes import it too."""

import math
import os
import time
from dataclasses import replace

from terse import TERSE

from metarl_agents.envs import Environment


def tilde(observation):
    """Stand for an old observation; a function with a name, so that it can be sent to another process."""
    return "~"


WORDING = replace(TERSE, reflect_history_turns=5, shorten=tilde)


class Stairs(Environment):
    """Climb by "up"; other words make the world do what they say. It counts what is asked of it."""

    wording = WORDING

    def __init__(self, top=99, *, breaks=(), seeds=None):
        self.top, self.breaks = top, breaks
        self.log = [] if seeds is None else seeds
        if "make" in breaks:
            raise RuntimeError("no stairs were delivered")

    def describe(self):
        return "RULES"

    def reset(self, *, seed):
        if "reset" in self.breaks and seed % 2:
            raise RuntimeError("the stairs are closed")
        self.log.append(("reset", seed))
        self.seed, self.floor, self.over = seed, 0, False
        return f"floor 0 of house {seed}", {}

    def restart(self):
        if "restart" in self.breaks:
            raise RuntimeError("nobody takes the stairs twice")
        return super().restart()

    def parse_action(self, text):
        if "PARSE" in text:
            raise KeyError("unreadable")
        return super().parse_action(text)

    def step(self, action):
        assert not self.over, "stepped after the end"
        self.log.append(("step", action))
        if action == "raise":
            raise ZeroDivisionError("a step is missing")
        if action == "sleep":
            time.sleep(30)
        if action == "junk":
            return "only a text"
        if action == "number":
            return 5, 0.0, False, False, {}
        if action == "exit":
            raise SystemExit(3)
        self.floor += action == "up"
        won = self.floor >= self.top or action == "win"
        lost = action in ("lose", "draw")
        self.over = won or lost or action == "cut"
        reward = {"nan": math.nan, "inf": math.inf, "none": None, "coin": 1.0}.get(action, 10.0 if won else 0.0)
        info = {"success": won, "draw": action == "draw", "invalid": action == "refused"}
        if action == "menu":
            info["admissible_actions"] = ["up", "win"]
        if action == "bad menu":
            info["admissible_actions"] = [1, 2]
        return f"floor {self.floor} after {action}", reward, won or lost, action == "cut", info

    def close(self):
        self.log.append(("close", None))


class House(Stairs):
    """Stairs that take time to climb, and that may fall in on whoever lives in the same process."""

    def __init__(self, pause_s=0.0, fatal=(), floors=99):
        super().__init__(floors)
        self.pause_s, self.fatal = pause_s, fatal

    def reset(self, *, seed):
        time.sleep(self.pause_s)
        return super().reset(seed=seed)

    def step(self, action):
        time.sleep(self.pause_s)
        if self.seed in self.fatal:
            os._exit(5)
        return super().step(action)
