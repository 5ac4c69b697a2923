"""Trials of a policy on fixed tasks: the same at every evaluation, and without touching training's random stream.

What lives here: playing, and sharing the work among processes. What does not: statistics (`metrics.py`) and tables
(`results.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

from metarl_agents.config import Config, TrialConfig
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import close_quietly, environment_workers, opened
from metarl_agents.envs.guard import call_guarded
from metarl_agents.envs.serving import reach
from metarl_agents.envs.workers import ProcessEnvironment, WorkerPool
from metarl_agents.evaluation.games import games_record
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.expect import expect, expect_builder, expect_count, wrong
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.progress import progress
from metarl_agents.rollout import PolicySpeaker, collect_trials, evaluation_seeds
from metarl_agents.types import MemoryMode, Outcome, Trial

EVALUATION_STREAM = 0xE7A1
"""Part of the seed of every evaluation draw: a stream of its own, the same for every run and step."""
_PATIENCE = 8
"""By how many tasks the unknown may outnumber the known before an environment counts as one that cannot tell."""
_END = object()


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

    No task is played twice: an environment with fewer tasks than asked for (`num_tasks(split)`) gives all it has, and
    `meta["fewer_tasks"]` says so; a seed that is listed twice counts once.

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
    _check_arguments(policy, make_env, config, num_tasks, samples)
    started = time.perf_counter()
    rank, world = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    sampling = Sampling.for_evaluation(config)

    def play(build: MakeEnv, own: list[int], trial: TrialConfig, group_size: int, stream: int) -> list[Trial]:
        speaker = PolicySpeaker(policy, sampling, EVALUATION_STREAM, stream, rank)
        with progress(f"evaluation of {label}", len(own) * group_size, shown=rank == 0) as at:
            return collect_trials(
                speaker,
                build,
                own,
                trial,
                group_size=group_size,
                max_prompt_tokens=config.sampling.max_prompt_tokens,
                max_new_tokens=sampling.max_new_tokens,
                play_request=play_request,
                on_wave=lambda finished, all_of_them: at(finished),
            )

    # First episodes only: memory cannot matter, so nothing is written between episodes.
    single = replace(config.trial, num_episodes=1, memory="none")
    with environment_workers(make_env, config.trial) as build:
        seeds, meta = _tasks(build, config.trial, split, num_tasks, listed, world)
        own = seeds[rank::world]
        trials = play(build, own, config.trial, 1, 0)
        if on_trials is not None:
            on_trials(trials)
        sampled = play(build, own, single, samples, 1) if samples else []
        turns = turns_needed(build, trials, config.trial.env_timeout_s)
    if on_played is not None:
        on_played()
    grouped = [sampled[index * samples : (index + 1) * samples] for index in range(len(own))] if samples else None
    trials, grouped, turns = _gather(trials, grouped, turns, seeds, world)
    winnable, unknown = winnable_share(turns, config.trial.max_turns)
    meta |= {"winnable_unknown": unknown} if unknown else {}
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
        winnable_share=winnable,
        seconds=time.perf_counter() - started,
        step=step,
        meta={
            "model": config.model.model_name_or_path,
            **meta,
            **_too_long(trials, config.sampling.max_prompt_tokens),
            **games_record(make_env, trials, config.trial, sampling.max_new_tokens),
        },
    )


def _too_long(trials: Sequence[Trial], limit: int) -> dict[str, str]:
    """Return what the result keeps about episodes that ended because a prompt did not fit."""
    episodes = [episode for trial in trials for episode in trial.episodes]
    lost = [episode.too_long_prompt for episode in episodes if episode.outcome is Outcome.OUT_OF_CONTEXT]
    if not lost:
        return {}
    share = len(lost) / len(episodes)
    note = f"{share:.1%} of episodes ended because a prompt did not fit {limit} tokens (the longest: {max(lost)})"
    return {"too_long": f"{note}; raise `max_prompt_tokens` if the model's context allows it"}


def _tasks(
    build: MakeEnv, trial: TrialConfig, split: str, asked: int, listed: Sequence[int] | None, world: int
) -> tuple[list[int], dict[str, Any]]:
    """Return the seeds of as many tasks as are asked for and as there are, and what the result keeps about that."""
    if listed is not None:  # somebody's choice, which may come from any split
        return evaluation_seeds(split, asked, list(dict.fromkeys(listed))), {}
    bounds = [_bound(build, split, trial.env_timeout_s)]
    if world > 1:  # all must play the same tasks, although one may have failed to learn how many there are
        from accelerate.utils import gather_object

        bounds = gather_object(bounds)
    there = min((bound for bound in bounds if bound is not None), default=asked)
    note = f"there are {there} different {split} tasks, so no more were played ({asked} were asked for)"
    return evaluation_seeds(split, min(asked, there)), {"fewer_tasks": note} if there < asked else {}


def _bound(build: MakeEnv, split: str, timeout_s: float | None) -> int | None:
    """Return how many different tasks a split has, or None where the environment does not say."""
    with suppress(Exception, SystemExit), opened(build, timeout_s) as env:
        count = _posted(env, timeout_s, "num_tasks", split)()
        if isinstance(count, Integral) and count > 0:
            return int(count)
    return None


def turns_needed(build: MakeEnv, trials: Sequence[Trial], timeout_s: float | None) -> list[float | None]:
    """Return for each trial the fewest turns that solve its task, as the environment's `min_turns()` tells.

    None where there is no such method, where it tells nothing, and where the environment fails. Environments in worker
    processes are asked side by side.

    Args:
        build: builds one environment; what `environment_workers` gives.
        trials: (tasks,) as they were played. Those that crashed at the start are not begun again.
        timeout_s: seconds for one call.
    """
    seeds = [trial.seed for trial in trials if not trial.crashed or any(episode.turns for episode in trial.episodes)]
    width = max(1, len(build.process_ids)) if isinstance(build, WorkerPool) else 1
    found: dict[int, float] = {}
    walks = [_walk(build, seeds[first::width], timeout_s, found) for first in range(width)]
    while walks := [walk for walk in walks if next(walk, _END) is not _END]:
        pass
    return [found.get(trial.seed) for trial in trials]


def _walk(build: MakeEnv, seeds: Sequence[int], timeout_s: float | None, found: dict[int, float]) -> Iterator[None]:
    """Ask one environment about its tasks, and note what it tells; pause wherever an answer is awaited."""
    env, behind = None, 0
    for seed in seeds:
        try:
            if env is None:
                env = call_guarded(build, timeout_s)
                if getattr(env, "min_turns", None) is None:
                    break
            begun = _posted(env, timeout_s, "reset", seed=seed)
            yield
            begun()
            told = _posted(env, timeout_s, "min_turns")
            yield
            if (turns := told()) is not None:
                found[seed] = float(turns)
        except (Exception, SystemExit):  # trials survive such an environment, so does what is asked beside them
            if env is not None:
                close_quietly(env, timeout_s)
            env = None
        behind += -1 if seed in found else 1
        if behind > _PATIENCE:
            break
    if env is not None:
        close_quietly(env, timeout_s)


def _posted(env: Any, timeout_s: float | None, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Ask an environment for something; the function that is returned gives the answer, waiting for it if need be."""
    if isinstance(env, ProcessEnvironment):
        return env.post(name, *args, **kwargs)
    return partial(call_guarded, partial(reach, env, name, *args, **kwargs), timeout_s)


def winnable_share(turns: Sequence[float | None], max_turns: int) -> tuple[float | None, int]:
    """Return the share of tasks that can be won within `max_turns` at all, and of how many that is unknown.

    Args:
        turns: (tasks,) fewest turns that solve each; None where nobody knows, which leaves the task out.
        max_turns: turns of an episode.

    Returns:
        (share, unknown tasks); (None, 0) where it is known of none, or of so few that it says nothing about the others.
    """
    known = [needed for needed in turns if needed is not None]
    unknown = len(turns) - len(known)
    if not known or unknown > len(known) + _PATIENCE:
        return None, 0
    return sum(needed <= max_turns for needed in known) / len(known), unknown


def _gather(
    trials: list[Trial],
    grouped: list[list[Trial]] | None,
    turns: list[float | None],
    seeds: list[int],
    world: int,
) -> tuple[list[Trial], list[list[Trial]] | None, list[float | None]]:
    """Bring together what all processes have of each task, in the order of `seeds`."""
    if world == 1:
        return trials, grouped, turns
    from accelerate.utils import gather_object

    place = {seed: index for index, seed in enumerate(seeds)}
    samples = grouped if grouped is not None else [None] * len(trials)
    rows = gather_object(list(zip(trials, samples, turns, strict=True)))
    rows.sort(key=lambda row: place[row[0].seed])
    shared = None if grouped is None else [row[1] for row in rows]
    return [row[0] for row in rows], shared, [row[2] for row in rows]


def _check_arguments(policy: Any, make_env: Any, config: Any, num_tasks: Any, samples: Any) -> None:
    if not callable(getattr(policy, "generate", None)):
        raise wrong("policy", policy, "a loaded `Policy`, as `load_policy` returns it")
    expect_builder("make_env", make_env)
    expect("config", config, Config, "a `Config`, as in `Config.from_flat({'num_episodes': 3})`")
    expect_count("num_tasks", num_tasks, least=1)
    expect_count("samples", samples)
