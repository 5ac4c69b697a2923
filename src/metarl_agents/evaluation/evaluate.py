"""Trials of a policy on fixed tasks: the same at every evaluation, and without touching training's random stream.

What lives here: playing, and sharing the work among processes. What does not: statistics (`metrics.py`) and tables
(`results.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from metarl_agents.config import Config, TrialConfig
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import environment_workers, in_process
from metarl_agents.evaluation.games import games_record
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.rollout import PolicySpeaker, collect_trials, evaluation_seeds
from metarl_agents.types import MemoryMode, Trial

EVALUATION_STREAM = 0xE7A1
"""Part of the seed of every evaluation draw: a stream of its own, the same for every run and step."""


def evaluate(
    policy: Policy,
    make_env: MakeEnv,
    config: Config,
    *,
    split: str = "test",
    num_tasks: int = 512,
    samples: int = 0,
    label: str = "policy",
    listed: Sequence[int] | None = None,
    accelerator: Any | None = None,
    step: int | None = None,
    play_request: str | None = None,
    on_trials: Callable[[list[Trial]], None] | None = None,
    on_played: Callable[[], None] | None = None,
) -> EvaluationResult:
    """Play one trial of each fixed task, and `samples` independent first episodes of each.

    Args:
        policy: who plays.
        make_env: builds one environment.
        config: trial settings (episodes, turns, memory) and evaluation sampling.
        split: "test" or "validation".
        num_tasks: how many of the split's tasks.
        samples: independent first episodes a task, for independent pass@k and diversity; 0 plays none.
        label: name in tables.
        listed: the split's own task seeds (`--tasks`), instead of the library's.
        accelerator: shares the tasks among processes where there are several.
        step: training step of the weights.
        play_request: replaces the wording's request (prompting baselines).
        on_trials: called with this process's trials.
        on_played: called when this process has played its share and begins to wait for the others.

    Returns:
        The same result on every process.
    """
    started = time.perf_counter()
    seeds = evaluation_seeds(split, num_tasks, listed)
    rank, world = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    own = seeds[rank::world]
    sampling = Sampling.for_evaluation(config)

    def play(build: MakeEnv, trial: TrialConfig, group_size: int, stream: int) -> list[Trial]:
        speaker = PolicySpeaker(policy, sampling, EVALUATION_STREAM, stream, rank)
        return collect_trials(
            speaker,
            build,
            own,
            trial,
            group_size=group_size,
            max_prompt_tokens=config.sampling.max_prompt_tokens,
            max_new_tokens=sampling.max_new_tokens,
            play_request=play_request,
        )

    # First episodes only: memory cannot matter, so nothing is written between episodes.
    single = replace(config.trial, num_episodes=1, memory="none")
    with environment_workers(make_env, config.trial) as build:
        trials = play(build, config.trial, 1, 0)
        if on_trials is not None:
            on_trials(trials)
        sampled = play(build, single, samples, 1) if samples else []
    if on_played is not None:
        on_played()
    grouped = [sampled[index * samples : (index + 1) * samples] for index in range(len(own))] if samples else None
    trials, grouped = _gather(trials, grouped, seeds, accelerator, world)
    return EvaluationResult.from_trials(
        trials,
        samples=grouped,
        label=label,
        env=config.trial.env,
        env_kwargs=dict(config.trial.env_kwargs),
        num_episodes=config.trial.num_episodes,
        max_turns=config.trial.max_turns,
        memory=MemoryMode(config.trial.memory).value,
        sampling=sampling.describe(),
        split=split,
        winnable_share=winnable_share(in_process(make_env), seeds, config.trial.max_turns),
        seconds=time.perf_counter() - started,
        step=step,
        meta={
            "model": config.model.model_name_or_path,
            **games_record(make_env, trials, config.trial, sampling.max_new_tokens),
        },
    )


def winnable_share(make_env: MakeEnv, seeds: Sequence[int], max_turns: int) -> float | None:
    """Return the share of tasks that can be won within `max_turns` at all, where the environment can tell."""
    env = make_env()
    oracle = getattr(env, "min_turns", None)
    if oracle is None or not seeds:
        return None
    possible = 0
    for seed in seeds:
        env.reset(seed=seed)
        turns = oracle()
        if turns is None:
            return None
        possible += turns <= max_turns
    return possible / len(seeds)


def _gather(
    trials: list[Trial], grouped: list[list[Trial]] | None, seeds: list[int], accelerator: Any | None, world: int
) -> tuple[list[Trial], list[list[Trial]] | None]:
    """Bring all processes' trials together, in the order of `seeds`."""
    if world == 1:
        return trials, grouped
    from accelerate.utils import gather_object

    place = {seed: index for index, seed in enumerate(seeds)}
    pairs = gather_object([(t, grouped[i] if grouped is not None else None) for i, t in enumerate(trials)])
    pairs.sort(key=lambda pair: place[pair[0].seed])
    return [trial for trial, _ in pairs], [samples for _, samples in pairs] if grouped is not None else None
