"""From trial settings to a function that builds one environment: name or address, keywords, wording."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import Environment, MakeEnv
from metarl_agents.envs.registry import make


def environment_factory(config: TrialConfig) -> MakeEnv:
    """Return a function that builds the environment `config` names.

    Raises:
        UnknownEnvironmentError: no such name or address.
        ConfigError: a keyword does not fit.
    """
    from metarl_agents.envs.registry import resolve

    keywords: dict[str, Any] = dict(config.env_kwargs)
    if _accepts_wording(resolve(config.env)):
        keywords.setdefault("wording", config.wording)
    build: MakeEnv = partial(make, config.env, **keywords)
    build()  # a wrong keyword fails here, in one sentence, not in the middle of a rollout
    return build


def tiny_model_name(env: Environment) -> str | None:
    """Return the shipped tiny model that fits `env`, or None."""
    return getattr(env, "tiny_model", None)


def address_of(make_env: Any) -> str:
    """Return the address `module:Class` of what builds environments, looking through `functools.partial`.

    It names the environment in a run's files, so that the run can be played and evaluated again. The keywords of a
    partial are not part of it.
    """
    while isinstance(make_env, partial):
        make_env = make_env.args[0] if make_env.func is make else make_env.func
    if isinstance(make_env, str):
        return make_env
    named = make_env if hasattr(make_env, "__qualname__") else type(make_env)
    return f"{named.__module__}:{named.__qualname__}"


def _accepts_wording(factory: Any) -> bool:
    try:
        return "wording" in inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
