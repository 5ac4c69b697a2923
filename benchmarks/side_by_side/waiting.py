"""What a slow environment costs: the library's rollout where a step takes 100 ms, beside that where it takes none."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from metarl_agents.types import StepResult
from side_by_side.job import Job
from side_by_side.presets import Workload
from side_by_side.protocol import order, speed_ratio
from side_by_side.world import Scripted, World, build_config

STEP_S = 0.1
"""Seconds of a step, as of a web page or a simulator."""
WORKERS = 16
"""Processes for environments, `--env_workers`, on both sides: those of one process wait one after the other."""
ROUNDS = 3
"""Times A B B A, each of which gives both two repeats."""


class Waiting(Scripted):
    """The task of all contenders, in a process of its own: a step takes some time in which nothing is computed."""

    def __init__(self, workload: Workload, seconds: float) -> None:
        """Belong to a world of its own, as its first trial."""
        super().__init__(World(workload), 0)
        self._seconds = seconds

    def step(self, action: str) -> StepResult:
        """Wait, then play."""
        time.sleep(self._seconds)
        return super().step(action)


def measure(job: Job) -> dict[str, Any]:
    """Return the throughput with the slow environment as a share of that without, after a round that warms up."""
    from metarl_agents.envs.factory import environment_workers
    from metarl_agents.policy.sampling import Sampling
    from metarl_agents.rollout.collect import collect_trials
    from metarl_agents.rollout.speaker import PolicySpeaker
    from metarl_agents.rollout.tasks import TaskStream
    from side_by_side.lockstep import load
    from side_by_side.meter import ForcedLengths, Meter, watch

    work, policy = job.sizes.workloads["rl"], load(job.folder)
    config = build_config(work, 1)
    trial = replace(config.trial, env_workers=WORKERS)
    meter = Meter(ForcedLengths(work.response_tokens, work.response_sigma, work.max_response_tokens))
    watch(policy.model, meter, policy.end_ids[0])
    speaker = PolicySpeaker(policy, Sampling.for_training(config), 0)
    options = {"group_size": work.group_size, "max_prompt_tokens": config.sampling.max_prompt_tokens}
    taken: dict[str, list[dict[str, Any]]] = {"slow": [], "instant": []}
    with ExitStack() as open_pools:
        makers = {name: partial(Waiting, work, STEP_S * (name == "slow")) for name in taken}
        pools = {name: open_pools.enter_context(environment_workers(make, trial)) for name, make in makers.items()}
        for name in order(tuple(taken)) * (1 + ROUNDS):
            meter.begin()
            with meter.phase("rollout"):
                trials = collect_trials(speaker, pools[name], TaskStream(0, work.tasks).take(0), trial, **options)
            assert not any(played.crashed for played in trials), "a worker ended"
            taken[name].append(meter.finish())
    timed = {name: found[2:] for name, found in taken.items()}
    return timed | {"trials": len(trials), "ratio": speed_ratio(timed["slow"], timed["instant"], "rollout")}
