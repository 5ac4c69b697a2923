"""Contender `ours`: the library's rollout, credit, update and logging, called as `train` calls them."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from side_by_side.job import Job
from side_by_side.meter import ForcedLengths, Meter, watch
from side_by_side.protocol import LOGP_LIMIT
from side_by_side.world import World, build_config


def measure(job: Job) -> dict[str, Any]:
    """Play all iterations and return what each took."""
    from metarl_agents.config import ModelConfig
    from metarl_agents.policy.loading import load_policy
    from metarl_agents.policy.processes import start_processes
    from metarl_agents.training.setup import build_run

    # What `accelerate launch` with recipes/accelerate_configs/single_gpu.yaml, or with no configuration, sets.
    os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16" if job.sizes.bf16 else "no"
    work, limit = job.work, None if job.sizes.bf16 else LOGP_LIMIT
    accelerator = start_processes(timeout_s=600)
    policy = load_policy(ModelConfig(model_name_or_path=job.folder))
    meter = Meter(ForcedLengths(work.response_tokens, work.response_sigma, work.max_response_tokens))
    watch(policy.model, meter, policy.end_ids[0])
    world = World(work)
    config = build_config(work, job.steps, micro_batch_tokens=job.micro_batch)
    with tempfile.TemporaryDirectory() as folder:
        run = build_run(config, world.make_env, policy, Path(folder), None, accelerator)
        with run.logger, run.watchdog:
            loaded = meter.finish()["peak_gib"]
            warm_up = iterate(run, world, meter)
            first_update = time.monotonic() - job.started
            iterations = [iterate(run, world, meter) for _ in range(job.repeats)]
    return {
        "settings": config.flat() | {"mixed_precision": accelerator.mixed_precision},
        "loaded_gib": loaded.get("process"),
        "first_update_s": first_update,
        "warm_up": warm_up,
        "iterations": [iteration | {"logp_limit": limit} for iteration in iterations],
    }


def iterate(run: Any, world: World, meter: Meter) -> dict[str, Any]:
    """Play and learn one step, as `training.trainer.train` does."""
    from metarl_agents.training.logbook import log_step
    from metarl_agents.training.trainer import make_batch, sample_trials
    from metarl_agents.training.update import update_policy

    world.begin()
    meter.begin()
    step = run.progress.step
    with meter.phase("rollout"):
        trials, generating = sample_trials(run, step)
    batch, credit = make_batch(run, trials)
    assert len(batch) and batch.has_signal.all(), "a row without signal is skipped here and trained elsewhere"
    with meter.phase("update"):
        stats = credit.stats | update_policy(run, batch, step)
    run.progress.step += 1
    seconds = {"generate": generating, "env": meter.seconds["rollout"] - generating, "train": meter.seconds["update"]}
    log_step(run, trials, credit, stats, seconds)
    assert stats["update/steps"][0] == 1, stats
    meter.seconds["generate"] = generating
    gap, count = stats["sampling/logp_difference/mean"]
    largest, _ = stats["sampling/logp_difference/max"]
    return meter.finish() | {"logp_difference": gap / count, "largest_logp_difference": largest}
