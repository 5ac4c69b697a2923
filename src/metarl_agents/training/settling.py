"""The settings of a run, settled once: what the user gave, then what the built-in model brings, then the library's."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from metarl_agents.cli import RUN_FILE, coerce, is_first_process, read_yaml, tiny_settings
from metarl_agents.config import Config, PopulationConfig, RunConfig
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import address_of, opened, tiny_model_name
from metarl_agents.policy.loading import TINY, shipped_env
from metarl_agents.policy.policy import Policy
from metarl_agents.training.run_folder import newest_run

_KEPT = {item.name for item in fields(RunConfig)} - {"eval_samples"} | {"model_name_or_path", "env"}
"""What a preset says about its own runs: how long they are and what they measure."""
_OF_THE_ENVIRONMENT = {item.name for item in fields(PopulationConfig)} | {"env_kwargs"}


def settle(
    config: Config | None, settings: dict[str, Any], make_env: MakeEnv | None, policy: Policy | None = None
) -> Config:
    """Return the settings of a run; those that the model `tiny` brings are named in one line on standard error.

    The built-in model is much smaller than the models that the library's defaults are for, so it is trained as its
    presets train it. A resumed run keeps what it was started with.

    Args:
        config: settings that were given, or None.
        settings: further ones by name, which win.
        make_env: builds the environment, where `env` does not.
        policy: the model, where `model_name_or_path` does not name it.

    Raises:
        ConfigError: a setting is wrong.
    """
    given = (_said(config) if config else {}) | coerce(settings)
    chosen = Config.from_flat(given)
    if make_env is not None and "env" not in settings:
        chosen.trial.env = address_of(make_env)
    if policy is not None or chosen.model.model_name_or_path != TINY:
        return chosen
    brought = {
        name: value
        for name, value in coerce(tiny_settings(_played(chosen.trial.env, make_env), say=False)).items()
        if name not in given and name not in _KEPT and (make_env is None or name not in _OF_THE_ENVIRONMENT)
    }
    before = _started_with(chosen)
    brought = {name: before.get(name, value) for name, value in brought.items()}
    usual = Config().flat()
    changed = [f"{name} {value}" for name, value in brought.items() if usual[name] != value]
    if changed and is_first_process():
        sys.stderr.write(f"The built-in model `tiny` brings {', '.join(changed)}; what you give wins.\n")
    return Config.from_flat(given | {"env": chosen.trial.env} | brought)


def _said(config: Config) -> dict[str, Any]:
    """Return the settings that were given, or that differ from the library's defaults."""
    usual = Config().flat()
    return {name: value for name, value in config.flat().items() if name in config.given or value != usual[name]}


def _played(env: str, make_env: MakeEnv | None) -> str:
    """Return the name whose preset fits an environment: that of its shipped model where there is one."""
    if make_env is None:
        return env
    with opened(make_env) as built:
        return shipped_env(tiny_model_name(built)) or env


def _started_with(config: Config) -> dict[str, Any]:
    """Return the settings that the run to be resumed was started with; {} where none is, or it cannot be found."""
    checkpoint, folder = config.run.resume_from_checkpoint, config.run.output_dir
    if checkpoint is None:
        return {}
    place = Path(folder) if folder else newest_run(config) if checkpoint == "latest" else Path(checkpoint).parent
    if place is None:
        return {}
    return read_yaml(place / RUN_FILE) if (place / RUN_FILE).is_file() else {}
