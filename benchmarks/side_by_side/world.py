"""The task that all contenders play: texts of given length, trials that end when a seeded table says so.

What a prompt holds never depends on what was sampled, so that contenders that draw differently still read the same
tokens: every answer counts as the same action, and remarks are cut to nothing (a past episode adds fixed words).
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from metarl_agents import Environment, StepResult
from metarl_agents.config import Config
from metarl_agents.envs.wording import COMPACT, Wording
from side_by_side.presets import Workload

WORDS = (" left", " right", " up", " down", " go", " take", " look", " use", " north", " south", " east", " west")
"""One token each in the built-in vocabulary."""
SEED = 1


class World:
    """Builds the environments of one iteration after the other; the n-th of an iteration plays the n-th trial."""

    def __init__(self, workload: Workload) -> None:
        """Prepare the texts that never change."""
        self.workload = workload
        self.rules = _text(workload.rules_tokens, "rules")
        self.wording = _wording(workload)
        self._made = 0

    def begin(self) -> None:
        """Start counting trials anew: a new iteration."""
        self._made = 0

    def make_env(self) -> Scripted:
        """Return the environment of the next trial."""
        self._made += 1
        return Scripted(self, self._made - 1)


class Scripted(Environment):
    """Takes any answer for the same action; its length, outcome and pay come from its seed and its trial's number."""

    def __init__(self, world: World, trial: int) -> None:
        """Belong to a trial of `world`."""
        self.wording = world.wording
        self._world, self._trial = world, trial
        self._episode = -1

    def describe(self) -> str:
        """Return rules of the given length."""
        return self._world.rules

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the next episode; the first observation belongs to the task and is the group's own."""
        self.seed, self._turn = seed, 0
        self._episode += 1
        work = self._world.workload
        table = random.Random(f"{SEED}/{seed}/{self._trial}/{self._episode}")
        self._turns = table.randint(work.min_turns, work.max_turns)
        self._solved = table.random() < work.success
        return _text(work.task_tokens, seed), {}

    def parse_action(self, text: str) -> str:
        """Understand anything: random weights say nothing readable."""
        return "go"

    def step(self, action: str) -> StepResult:
        """Go on to the end of the episode; trials of a group are paid differently, so that each row is trained."""
        self._turn += 1
        ended = self._turn >= self._turns
        solved = ended and self._solved
        told = _text(self._world.workload.turn_tokens, f"{self.seed}/{self._trial}/{self._episode}/{self._turn}")
        pay = float(self._trial % 5) + 10.0 * solved
        return StepResult(told, pay, ended, False, {"success": solved})


def build_config(workload: Workload, steps: int, *, micro_batch_tokens: int = 8192) -> Config:
    """Return the library's settings for a workload."""
    return Config.from_flat(
        {
            "num_episodes": workload.num_episodes,
            "max_turns": workload.max_turns,
            "tasks_per_step": workload.tasks,
            "group_size": workload.group_size,
            "max_remark_chars": 0,
            "max_new_tokens_per_turn": workload.max_response_tokens,
            "max_tokens_per_micro_batch": micro_batch_tokens,
            "advantages": workload.advantages,
            "entropy_coef": workload.entropy_coef,
            "max_steps": steps,
            "report_to": ["none"],
            "seed": SEED,
        }
    )


def _wording(workload: Workload) -> Wording:
    """Return a wording that lists the whole episode, its newest two observations in full."""
    return replace(
        COMPACT,
        play_request="Choose one.",
        initial="Task{observation}",
        history_entry="{action}{observation}",
        memory_remark="Attempt {number} {outcome}" + _text(workload.memory_tokens, "memory"),
        history_turns=Wording.history_turns,
        full_observations=Wording.full_observations,
        reflect_history_turns=Wording.reflect_history_turns,
        reflect_full_observations=Wording.reflect_full_observations,
    )


def _text(tokens: int, key: object) -> str:
    """Return words of one token each, chosen by `key`."""
    return "".join(random.Random(f"{SEED}/{key}").choices(WORDS, k=tokens))
