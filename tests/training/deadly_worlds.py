"""A world that kills the process it lives in. Nothing heavy is imported here: worker processes import it."""

import os

from metarl_agents.envs import Environment, Wording
from metarl_agents.types import StepResult


class Trapdoor(Environment):
    """Every third task ends the process at its first step; the others are won or lost by any answer.

    Args:
        owner: the process that must never run a step of it, since that would end it.
    """

    wording = Wording(
        play_request="Choose.", reflect_request="What to remember?", memory_heading="", reflect_heading=""
    )

    def __init__(self, owner):
        self.owner = owner

    def reset(self, *, seed):
        self.seed = seed
        return "Choose one.", {"admissible_actions": ["a", "b"]}

    def parse_action(self, text):
        return text or None

    def step(self, action):
        if os.getpid() == self.owner:
            raise RuntimeError("played in the training process")
        if self.seed % 3 == 0:
            os._exit(5)
        won = len(action) % 2 == 0
        return StepResult("so", 10.0 * won, True, False, {"success": won})
