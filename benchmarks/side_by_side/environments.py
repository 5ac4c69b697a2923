"""Steps per second of the shipped environments, played by their own scripted players in one process.

Only the environment is timed: `reset`, `parse_action` and `step`, not what the player thinks in between. Every repeat
plays the same tasks, so that all repeats take the same steps.
"""

from __future__ import annotations

import time
from typing import Any

from scripted_players import play_trial

from metarl_agents import make
from metarl_agents.envs.registry import registered, resolve
from metarl_agents.errors import ConfigError
from metarl_agents.rollout.tasks import evaluation_seeds
from side_by_side.job import Job
from side_by_side.protocol import spread

REPEATS = 5
TURNS = {"minesweeper": 7, "sokoban": 7, "webshop": 12, "alfworld": 10}
"""LLM calls of an episode in the papers; others are played for ten."""


class Timed:
    """An environment that notes how long its own calls take."""

    def __init__(self, env: Any) -> None:
        """Wrap `env`; everything that is not timed is its own."""
        self._env = env
        self.begin()

    def begin(self) -> None:
        """Start counting anew."""
        self.steps = self.resets = 0
        self.stepping = self.resetting = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, *, seed: int) -> Any:
        """Start a task."""
        started = time.perf_counter()
        result = self._env.reset(seed=seed)
        self.resetting += time.perf_counter() - started
        self.resets += 1
        return result

    def parse_action(self, text: str) -> Any:
        """Read an answer; part of the step it leads to."""
        started = time.perf_counter()
        action = self._env.parse_action(text)
        self.stepping += time.perf_counter() - started
        return action

    def step(self, action: Any) -> Any:
        """Play an action."""
        started = time.perf_counter()
        result = self._env.step(action)
        self.stepping += time.perf_counter() - started
        self.steps += 1
        return result


def measure(job: Job) -> dict[str, Any]:
    """Return the figures of every shipped environment."""
    return {name: measure_one(name, job.sizes.env_tasks) for name in shipped()}


def shipped() -> list[str]:
    """Return the names of the environments that come with the library."""
    return [name for name in registered() if resolve(name).__module__.startswith("metarl_agents.environments")]


def measure_one(name: str, num_tasks: int) -> dict[str, Any]:
    """Play `num_tasks` tasks `REPEATS` times, after a time that warms up."""
    started = time.perf_counter()
    try:
        env = make(name)
    except ConfigError as error:
        return {"left_out": str(error)}
    building = time.perf_counter() - started
    if env.player() is None:
        return {"left_out": "it has no scripted player"}
    timed, speeds, resets = Timed(env), [], []
    for _ in range(1 + REPEATS):
        timed.begin()
        for seed in evaluation_seeds("test", num_tasks):
            play_trial(timed, {}, seed, TURNS.get(name, 10), num_episodes=1)
        speeds.append(timed.steps / timed.stepping)
        resets.append(1000 * timed.resetting / timed.resets)
    return {
        "steps_per_second": spread(speeds[1:]),
        "reset_ms": spread(resets[1:]),
        # Tasks that were never met before: some environments keep what they have made.
        "first_reset_ms": resets[0],
        "build_s": building,
        "steps": timed.steps,
        "tasks": num_tasks,
    }
