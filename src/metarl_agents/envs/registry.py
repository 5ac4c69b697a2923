"""Find an environment by short name, by address "package.module:Class", or by library as in "gymnasium:<id>".

What lives here: a dictionary of strings; a class is imported (`addresses.py`) when it is asked for. The shipped names
are in `metarl_agents/environments/__init__.py`; those of installed packages are found by `installed.py`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from metarl_agents.addresses import (
    ENVIRONMENT,
    check_address,
    did_you_mean,
    find_in_current_folder,
    is_address,
    load,
)
from metarl_agents.envs.base import Environment
from metarl_agents.envs.installed import Installed, installed_environments
from metarl_agents.errors import ConfigError, UnknownEnvironmentError
from metarl_agents.expect import expect_text

_SHIPPED = "metarl_agents.environments"
_ADAPTERS = {
    "gymnasium": "metarl_agents.envs.adapters.gymnasium:GymnasiumEnvironment",
    "textarena": "metarl_agents.envs.adapters.textarena:TextArenaEnvironment",
    "openspiel": "metarl_agents.envs.adapters.openspiel:OpenSpielEnvironment",
}
_addresses: dict[str, str] = {}


def register(name: str, address: str) -> None:
    """Give the class at "package.module:Class" a short name.

    Args:
        name: what `--env` and `make` will accept.
        address: where the class is; imported when it is first asked for.
    """
    expect_text("name", name)
    expect_text("address", address)
    check_address(address, ENVIRONMENT)
    if not name or ":" in name:
        raise ConfigError(f'`{name}` cannot name an environment: a name is not empty and holds no ":". Choose another.')
    importlib.import_module(_SHIPPED)
    if name in _addresses:
        raise ConfigError(
            f'The environment name "{name}" is taken by {_addresses[name]}. Register {address} under another name.'
        )
    _addresses[name] = address


def registered() -> list[str]:
    """Return the known short names, sorted."""
    return sorted({*_installed(), *_addresses})


def resolve(name: str) -> Callable[..., Environment]:
    """Return what builds the environment of that name.

    Args:
        name: a registered or installed name, an address "package.module:Class", or "gymnasium:<id>",
            "textarena:<id>" or "openspiel:<name>" for an environment of these libraries.
    """
    library, colon, inner = name.partition(":")
    if colon:
        return _of_library(library, inner) if library in _ADAPTERS else load(name, ENVIRONMENT)
    installed = _installed()
    if name in _addresses:
        return load(_addresses[name], ENVIRONMENT)
    if name in installed:
        return _load_installed(name, installed[name])
    raise UnknownEnvironmentError(_unknown(name, registered()))


def make(name: str, **kwargs: Any) -> Environment:
    """Build one environment object.

    Args:
        name: as `resolve` takes it.
        kwargs: for its constructor.

    Returns:
        The environment, not yet reset.
    """
    expect_text("name", name)
    factory = resolve(name)
    try:
        inspect.signature(factory).bind(**kwargs)
    except TypeError as error:
        raise ConfigError(_bad_keywords(name, factory, kwargs, error)) from None
    except ValueError:
        # Some callables written in C have no signature; calling them tells.
        pass
    return factory(**kwargs)


def _installed() -> dict[str, Installed]:
    """Return what installed packages bring; what was registered in this process overrules it."""
    importlib.import_module(_SHIPPED)
    return installed_environments(
        frozenset(name for name, address in _addresses.items() if address.startswith(f"{_SHIPPED}."))
    )


def _of_library(library: str, inner: str) -> Callable[..., Environment]:
    if not inner:
        raise UnknownEnvironmentError(_unknown(library, registered()))
    module_name, colon, _ = inner.partition(":")
    if colon and is_address(f"{module_name}:x"):
        find_in_current_folder(module_name)  # which the library imports to know the name
    return partial(load(_ADAPTERS[library], ENVIRONMENT), inner)


def _load_installed(name: str, installed: Installed) -> Callable[..., Environment]:
    try:
        return load(installed.address, ENVIRONMENT)
    except Exception as error:  # whatever a package does when it is imported
        told = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f'The environment "{name}" of the installed package {installed.package} cannot be loaded: {told}'
        ) from error


def _unknown(name: str, known: list[str]) -> str:
    if name in _ADAPTERS:
        return f'"{name}" alone is no environment: name one that this library has, as in --env "{name}:<id>".'
    return (
        f'no environment is called "{name}".{did_you_mean(name, known)}\nRegistered: {", ".join(known)}. '
        f'Your own class also works by address: --env "my_package.module:MyEnv"; a text environment of Gymnasium or '
        f'TextArena as "gymnasium:<id>" or "textarena:<id>", a game of OpenSpiel as "openspiel:<name>".'
    )


def _bad_keywords(name: str, factory: Callable[..., Environment], kwargs: dict[str, Any], error: TypeError) -> str:
    accepted = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    given = ", ".join(f"{key}={value!r}" for key, value in kwargs.items()) or "no keywords"
    takes = f"It takes: {', '.join(accepted)}." if accepted else "It takes no keywords."
    return f'The environment "{name}" cannot be built with {given}: {error}. {takes}'
