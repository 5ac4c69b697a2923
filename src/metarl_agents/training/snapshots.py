"""Snapshots of the policy on disk, and the models of a population brought to life from them.

A snapshot is a model folder `population/snapshot-<step>` in the run's folder. It is deleted when neither the pool nor
any checkpoint that could be resumed from knows it. What does not live here: who is in the pool (`population.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from metarl_agents.config import Config
from metarl_agents.envs.factory import opened, tiny_model_name
from metarl_agents.envs.games import GameEnvironment
from metarl_agents.envs.guard import can_interrupt
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.evaluation.ratings import Rating
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.rollout.opponent_lists import load_opponent
from metarl_agents.rollout.opponents import ModelOpponent
from metarl_agents.training.checkpoint import list_checkpoints, read_progress, write_atomically
from metarl_agents.training.population import Member, Population, snapshot_name

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

FOLDER = "population"
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
    if config.trial.env_timeout_s and not can_interrupt():
        raise ConfigError(
            "a population's games play in the training process, where a time limit works in the main thread only: set "
            "`--env_timeout_s none`, or train in the main thread."
        )
    with opened(run.make_env) as env:
        if not isinstance(env, GameEnvironment):
            raise ConfigError(
                f"`opponents` and `snapshot_every` are for games, but {config.trial.env} is none (metarl_agents.envs."
                "games.GameEnvironment): leave them out."
            )
        population = Population(
            config.population,
            env,
            seed=config.run.seed,
            group_size=config.trial.group_size,
            seat_model=_model_seater(run, tiny_model_name(env)),
        )
    state = run.progress.population
    if state:
        population.load_state(state)
        _bring_snapshots(run, population, resume)
    for member in population.members:
        if member.source is not None:
            population.opponent(member.name).policy  # noqa: B018 - a wrong name fails here and not in a rollout
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
    if step % population.period == 0 or step == run.config.run.max_steps:
        _rate(run, population)
    every = run.config.population.snapshot_every
    if every and step % every == 0:
        take_snapshot(run)
    run.progress.population = population.state()


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


def _model_seater(run: Run, tiny_name: str | None) -> Callable[[Member], ModelOpponent]:
    """Return what builds the opponent of a member that is a model; its weights are loaded when it is first asked."""
    config, device = run.config, run.device
    sampling, limit = Sampling.for_evaluation(config), config.sampling.max_prompt_tokens
    narrow = run.sharding.compute_dtype is torch.bfloat16
    dtype = "bfloat16" if narrow else config.model.dtype

    def seat(member: Member) -> ModelOpponent:
        source = member.source or str(run.output_dir / FOLDER / member.name)
        return ModelOpponent(
            member.name, lambda: _load(config, source, dtype, tiny_name, device), sampling, max_prompt_tokens=limit
        )

    return seat


def _load(config: Config, source: str, dtype: Any, tiny_name: str | None, device: torch.device) -> Policy:
    """Load a model that nobody trains; no random stream moves."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return load_opponent(replace(config.model, dtype=dtype), source, tiny_name, device)


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
