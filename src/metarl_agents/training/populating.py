"""A run's population from its settings: who is listed comes into the game, and who cannot be met is refused at once.

What lives here: `opponents` as keywords of the environment, the checks, and how a member that is a model is loaded.
What does not: dealing and results (`population.py`), snapshots (`snapshots.py`). Read first: `meet_listed`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from metarl_agents.config import Config
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import opened, tiny_model_name
from metarl_agents.envs.games import GameEnvironment, Opponent
from metarl_agents.envs.guard import can_interrupt
from metarl_agents.envs.registry import make, resolve
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.game_values import facing
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.rollout.opponent_lists import SELF, Listed, load_opponent, read_listed
from metarl_agents.rollout.opponents import ModelOpponent
from metarl_agents.training.population import Member, Population

FOLDER = "population"
"""In a run's folder: its snapshots and ratings."""


def meet_listed(config: Config, make_env: MakeEnv) -> MakeEnv:
    """Return what builds the game with the opponents that the setting `opponents` names, for rollouts and evaluations.

    Names that the game's own pool lacks are looked up by the game. `config.trial.env_kwargs` is changed alike, so that
    the run's folder tells it to whoever plays or evaluates the model later. Models, snapshots and the policy itself are
    no part of an environment; where nobody else is listed, the environment keeps its own. A game whose class takes no
    `opponents` keeps them too, and only they can be listed.

    Args:
        config: all settings.
        make_env: builds one environment.

    Raises:
        ConfigError: the game does not know a name, or `env_workers` is given besides.
    """
    if not config.population.is_on:
        return make_env
    if config.trial.env_workers:
        raise ConfigError(
            f"`env_workers` is {config.trial.env_workers}, but a population seats its opponents in the training "
            "process: set `--env_workers 0`, or leave out `--opponents` and `--snapshot_every`."
        )
    listed = [read_listed(entry) for entry in config.population.opponents or ()]
    scripted = [entry for entry in listed if entry.source is None and entry.name != SELF]
    own = _own_shares(make_env)
    if not scripted or own is None or _is_met(scripted, own) or not _takes_opponents(make_env):
        return make_env
    names, weights = [entry.name for entry in scripted], [entry.weight for entry in scripted]
    told = (names, weights if len(set(weights)) > 1 else None)
    plain = make_env if isinstance(make_env, partial) else partial(make_env)
    faced = partial(plain.func, *plain.args, **facing(plain.keywords, *told))
    try:
        with opened(faced):
            pass
    except ConfigError:
        if own.keys() >= set(names):  # objects of the program's, which no game finds by their names
            return make_env
        raise
    config.trial.env_kwargs = facing(config.trial.env_kwargs, *told)
    return faced


def build_population(
    config: Config, make_env: MakeEnv, seater: Callable[[str | None], Callable[[Member], Opponent]]
) -> Population:
    """Return the population that the settings ask for, before any snapshot.

    Args:
        config: all settings.
        make_env: builds one environment, as `meet_listed` returned it.
        seater: from the shipped tiny model that knows the game, if there is one, to what builds the opponent of a
            member that is a model.

    Raises:
        ConfigError: the environment is no game, or an opponent is unknown.
    """
    if config.trial.env_timeout_s and not can_interrupt():
        raise ConfigError(
            "a population's games play in the training process, where a time limit works in the main thread only: set "
            "`--env_timeout_s none`, or train in the main thread."
        )
    with opened(make_env) as env:
        if not isinstance(env, GameEnvironment):
            raise ConfigError(
                f"`opponents` and `snapshot_every` are for games, but {config.trial.env} is none (metarl_agents.envs."
                "games.GameEnvironment): leave them out."
            )
        return Population(
            config.population,
            env,
            seed=config.run.seed,
            group_size=config.trial.group_size,
            seat_model=seater(tiny_model_name(env)),
        )


def load_listed(population: Population) -> None:
    """Load the models that the settings name, so that a wrong name fails here and not in a rollout.

    Raises:
        ConfigError: one cannot be loaded.
    """
    for member in population.members:
        if member.source is not None:
            population.opponent(member.name).policy  # noqa: B018 - loads it


def check_population(config: Config, make_env: MakeEnv) -> None:
    """Refuse what a run would refuse of its population; nothing is kept.

    Raises:
        ConfigError: as `build_population` and `load_listed`.
    """
    if config.population.is_on:
        seater = partial(model_seater, config, Path(), config.model.dtype, torch.device("cpu"))
        load_listed(build_population(config, make_env, seater))


def model_seater(
    config: Config, output_dir: Path, dtype: str, device: torch.device, tiny_name: str | None
) -> Callable[[Member], ModelOpponent]:
    """Return what builds the opponent of a member that is a model; its weights are loaded when it is first asked.

    Args:
        config: all settings.
        output_dir: the run's folder, which holds its snapshots.
        dtype: of the weights.
        device: where it answers.
        tiny_name: the shipped tiny model that knows the game, if there is one.
    """
    sampling, limit = Sampling.for_evaluation(config), config.sampling.max_prompt_tokens

    def seat(member: Member) -> ModelOpponent:
        source = member.source or str(output_dir / FOLDER / member.name)
        return ModelOpponent(
            member.name, lambda: _load(config, source, dtype, tiny_name, device), sampling, max_prompt_tokens=limit
        )

    return seat


def _load(config: Config, source: str, dtype: Any, tiny_name: str | None, device: torch.device) -> Policy:
    """Load a model that nobody trains; no random stream moves."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return load_opponent(replace(config.model, dtype=dtype), source, tiny_name, device)


def _own_shares(make_env: MakeEnv) -> dict[str, float] | None:
    """Return {name: share} of the environment's own opponents; None where it is no game."""
    with opened(make_env) as env:
        if not isinstance(env, GameEnvironment):
            return None
        names = (opponent.name for opponent in env.seating.opponents)
        return dict(zip(names, env.seating.shares, strict=True))


def _is_met(listed: Sequence[Listed], own: dict[str, float]) -> bool:
    """Whether the environment's opponents are those listed, met as often."""
    total = sum(entry.weight for entry in listed)
    wanted = {entry.name: entry.weight / total for entry in listed}
    return wanted.keys() == own.keys() and all(math.isclose(share, own[name]) for name, share in wanted.items())


def _takes_opponents(make_env: MakeEnv) -> bool:
    """Whether the game's class lets itself be told whom to seat."""
    build: Any = make_env
    if isinstance(build, partial):
        build = resolve(build.args[0]) if build.func is make and build.args else build.func
    try:
        parameters = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.name == "opponents" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
