"""From trial settings to a function that builds one environment: name or address, keywords, wording."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import Environment, MakeEnv
from metarl_agents.envs.guard import call_guarded, can_interrupt
from metarl_agents.envs.registry import make, resolve
from metarl_agents.envs.workers import ProcessEnvironment, WorkerPool


def environment_factory(config: TrialConfig) -> MakeEnv:
    """Return a function that builds the environment `config` names.

    Raises:
        UnknownEnvironmentError: no such name or address.
        ConfigError: a keyword does not fit.
    """
    keywords: dict[str, Any] = dict(config.env_kwargs)
    if _accepts_wording(resolve(config.env)):
        keywords.setdefault("wording", config.wording)
    build: MakeEnv = partial(make, config.env, **keywords)
    with opened(build):  # a wrong keyword fails here, in one sentence, not in the middle of a rollout
        return build


@contextmanager
def opened(make_env: MakeEnv, timeout_s: float | None = None) -> Iterator[Environment]:
    """Build an environment to look at it, and close it whatever happens.

    Args:
        make_env: builds one environment; one of `environment_workers` builds it in a worker.
        timeout_s: seconds for building it and for closing it; None sets no limit.

    Yields:
        The environment.

    Raises:
        EnvironmentTimeout: it is not built in time.
    """
    env = call_guarded(make_env, timeout_s)
    try:
        yield env
    finally:
        close_quietly(env, timeout_s)


def close_quietly(env: Environment, timeout_s: float | None) -> None:
    """Close an environment, whatever its `close` does: what it was needed for is done."""
    with suppress(Exception, SystemExit):
        if isinstance(env, ProcessEnvironment):  # it waits for nobody
            env.close()
        else:
            call_guarded(env.close, timeout_s)


@contextmanager
def environment_workers(make_env: MakeEnv, config: TrialConfig) -> Iterator[MakeEnv]:
    """Open the worker processes that `config` asks for, and close them at the end.

    Outside the main thread, where nothing else can stop an environment that hangs, a time limit asks for one worker.

    Args:
        make_env: builds one environment. What comes out of an outer `environment_workers` passes through unchanged.
        config: `env_workers` and `env_timeout_s`.

    Yields:
        What builds one environment: in a worker process, or `make_env` itself where none is asked for.

    Raises:
        ConfigError: `make_env` cannot be sent to another process, or the workers do not start.
    """
    workers = config.env_workers or int(bool(config.env_timeout_s) and not can_interrupt())
    if isinstance(make_env, WorkerPool) or not workers:
        yield make_env
        return
    with WorkerPool(_without_names(make_env), workers, config.env_timeout_s) as pool:
        yield pool


def in_process(make_env: MakeEnv) -> MakeEnv:
    """Return what builds the same environments in this process, whether or not `make_env` uses workers."""
    return make_env.make_env if isinstance(make_env, WorkerPool) else make_env


def tiny_model_name(env: Environment) -> str | None:
    """Return the shipped tiny model that fits `env`, or None."""
    return getattr(env, "tiny_model", None)


def address_of(make_env: Any) -> str:
    """Return the address `module:Class` of what builds environments, looking through `functools.partial`.

    It names the environment in a run's files, so that the run can be played and evaluated again. The keywords of a
    partial are not part of it.
    """
    make_env = in_process(make_env)
    while isinstance(make_env, partial):
        make_env = make_env.args[0] if make_env.func is make else make_env.func
    if isinstance(make_env, str):
        return make_env
    named = make_env if hasattr(make_env, "__qualname__") else type(make_env)
    return f"{named.__module__}:{named.__qualname__}"


def _without_names(make_env: MakeEnv) -> MakeEnv:
    """Replace a short name by its class: what was registered while the program ran is unknown to other processes."""
    if isinstance(make_env, partial) and make_env.func is make and make_env.args and ":" not in make_env.args[0]:
        return partial(resolve(make_env.args[0]), *make_env.args[1:], **make_env.keywords)
    return make_env


def _accepts_wording(factory: Any) -> bool:
    try:
        return "wording" in inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
