"""Snapshots of the policy on disk, and a run's population with them.

A snapshot is a model folder `population/snapshot-<step>` in the run's folder. It is deleted when neither the pool nor
any checkpoint that could be resumed from knows it. What does not live here: who is in the pool (`population.py`),
and what the settings say of it (`populating.py`).
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from metarl_agents.errors import CheckpointError
from metarl_agents.evaluation.ratings import Rating
from metarl_agents.training.checkpoint import list_checkpoints, read_progress, write_atomically
from metarl_agents.training.populating import FOLDER, build_population, load_listed, model_seater
from metarl_agents.training.population import Population, snapshot_name

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

RATINGS_FILE = "ratings.json"


def open_population(run: Run, resume: Path | None) -> Population | None:
    """Return the run's population, from a checkpoint where `resume` names one; None where the settings ask for none.

    Raises:
        ConfigError: the environment is no game, an opponent is unknown or a model cannot be loaded.
        CheckpointError: a snapshot that the checkpoint knows is gone.
    """
    config = run.config
    if not config.population.is_on:
        return None
    narrow = run.sharding.compute_dtype is torch.bfloat16
    dtype = "bfloat16" if narrow else config.model.dtype
    population = build_population(
        config, run.make_env, partial(model_seater, config, run.output_dir, dtype, run.device)
    )
    state = run.progress.population
    if state:
        population.load_state(state)
        _bring_snapshots(run, population, resume)
    load_listed(population)
    run.population = population
    if not state and population.starts_with_self:
        take_snapshot(run)
    return population


def tend_population(run: Run) -> None:
    """After a step: rate from time to time, let a snapshot join where one is due, and note the pool's state."""
    population, step = run.population, run.progress.step
    if population is None:
        return
    # Rated first: whoever has been met is still there, and who joins now has no games yet.
    if step % population.period == 0:
        _rate(run, population)
    every = run.config.population.snapshot_every
    if every and step % every == 0:
        take_snapshot(run)
    run.progress.population = population.state()


def rate_population(run: Run) -> None:
    """Rate at the end of a run, unless its last step has done so."""
    if run.population is not None and run.progress.step % run.population.period:
        _rate(run, run.population)


def take_snapshot(run: Run) -> None:
    """Write the weights as they are now and let them join; every process must call it."""
    step = run.progress.step
    run.watchdog.enter(f"snapshot after step {step}")
    weights = run.sharding.whole_weights(run.policy.model)

    def write(folder: Path) -> None:
        if run.accelerator.is_main_process:
            run.policy.save(folder, weights)

    write_atomically(run.output_dir / FOLDER / snapshot_name(step), write, run.accelerator)
    run.population.join(step)
    run.progress.population = run.population.state()
    if run.accelerator.is_main_process:
        _prune(run)
    run.accelerator.wait_for_everyone()


def read_ratings(output_dir: Path) -> list[Rating]:
    """Return the last ratings of a run's population, strongest first; none where it has no population."""
    file = output_dir / FOLDER / RATINGS_FILE
    if not file.is_file():
        return []
    return [Rating(**row) for row in json.loads(file.read_text(encoding="utf-8"))["ratings"]]


def _rate(run: Run, population: Population) -> None:
    if not run.accelerator.is_main_process:
        return
    ratings = population.ratings()
    folder = run.output_dir / FOLDER
    folder.mkdir(exist_ok=True)
    rows = {"step": run.progress.step, "ratings": [rating._asdict() for rating in ratings]}
    (folder / RATINGS_FILE).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    metrics: dict[str, Any] = {}
    for rating in ratings:
        metrics |= {f"rating/{rating.name}": rating.rating}
        metrics |= {f"rating_low/{rating.name}": rating.low, f"rating_high/{rating.name}": rating.high}
    run.logger.log(run.progress.step, metrics, prefix="population")


def _bring_snapshots(run: Run, population: Population, resume: Path | None) -> None:
    """Make sure that the snapshots a checkpoint knows are in the run's folder, which may be a new one."""
    here = run.output_dir / FOLDER
    there = resume.parent / FOLDER if resume is not None else here
    for member in population.members:
        if member.joined is None or (here / member.name).is_dir():
            continue
        source = there / member.name
        if not source.is_dir():
            raise CheckpointError(f"the population's {member.name} is not in {there}: restore it, or start a new run.")
        if run.accelerator.is_main_process:
            write_atomically(here / member.name, lambda folder, source=source: _copy(source, folder))
    run.accelerator.wait_for_everyone()


def _copy(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, dirs_exist_ok=True)


def _prune(run: Run) -> None:
    """Delete the snapshots that neither the pool nor a checkpoint knows."""
    states = [run.progress.population]
    for checkpoint in list_checkpoints(run.output_dir):
        try:
            states.append(read_progress(checkpoint).population)
        except CheckpointError:
            continue  # a broken one is passed over by whoever resumes, too
    known = {member["name"] for state in states for member in state.get("members", ())}
    for folder in (run.output_dir / FOLDER).glob("snapshot-*"):
        if folder.name not in known:
            shutil.rmtree(folder, ignore_errors=True)
