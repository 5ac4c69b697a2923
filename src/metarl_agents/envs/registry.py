"""Find an environment by short name or by address "package.module:Class".

What lives here: a dictionary of strings; a class is imported when it is asked for. The shipped names are in
`metarl_agents/environments/__init__.py`. Installed packages add theirs as entry points of the group
"metarl_agents.environments".
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

from metarl_agents.envs.base import Environment
from metarl_agents.errors import ConfigError, UnknownEnvironmentError

_SHIPPED = "metarl_agents.environments"
_GROUP = "metarl_agents.environments"
_addresses: dict[str, str] = {}


def register(name: str, address: str) -> None:
    """Give the class at "package.module:Class" a short name.

    Args:
        name: what `--env` and `make` will accept.
        address: where the class is; imported when it is first asked for.
    """
    if not _is_address(address):
        raise ConfigError(f'`{address}` is no address of an environment. Write it as "package.module:Class".')
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
    return sorted(_known())


def resolve(name: str) -> Callable[..., Environment]:
    """Return the class behind a registered name, or behind an address "package.module:Class"."""
    if ":" in name:
        return _load(name)
    known = _known()
    if name not in known:
        raise UnknownEnvironmentError(_unknown(name, sorted(known)))
    return _load(known[name])


def make(name: str, **kwargs: Any) -> Environment:
    """Build one environment object.

    Args:
        name: a registered name, or an address.
        kwargs: for its constructor.

    Returns:
        The environment, not yet reset.
    """
    factory = resolve(name)
    try:
        inspect.signature(factory).bind(**kwargs)
    except TypeError as error:
        raise ConfigError(_bad_keywords(name, factory, kwargs, error)) from None
    except ValueError:
        # Some callables written in C have no signature; calling them tells.
        pass
    return factory(**kwargs)


def _known() -> dict[str, str]:
    """Return name -> address: entry points, overruled by what was registered in this process."""
    importlib.import_module(_SHIPPED)
    return {**_entry_points(), **_addresses}


@cache
def _entry_points() -> dict[str, str]:
    return {point.name: point.value for point in metadata.entry_points(group=_GROUP)}


def _is_address(text: str) -> bool:
    module, _, attribute = text.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def _load(address: str) -> Callable[..., Environment]:
    """Import the class at an address."""
    if not _is_address(address):
        raise ConfigError(f'`{address}` is no address of an environment. Write it as "package.module:Class".')
    module_name, _, attribute = address.partition(":")
    found: Any = _import(module_name, address)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = _did_you_mean(part, [name for name in vars(found) if not name.startswith("_")])
            raise ConfigError(
                f'The module "{module_name}" of `{address}` has no "{attribute}".{near} Check the spelling.'
            )
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"`{address}` is a {type(found).__name__}, but a class (or a callable) is expected.")
    return found


def _import(module_name: str, address: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(missing + "."):
            raise ConfigError(
                f'There is no module "{missing}", which the address `{address}` needs. Check the spelling, install its '
                f"package, or run from the folder that holds it (or add that folder to PYTHONPATH)."
            ) from error
        raise ConfigError(
            f'The module "{module_name}" of `{address}` needs "{missing}", which is not installed. Install it.'
        ) from error


def _unknown(name: str, known: list[str]) -> str:
    return (
        f'no environment is called "{name}".{_did_you_mean(name, known)}\nRegistered: {", ".join(known)}. '
        f'Your own class also works by address: --env "my_package.module:MyEnv".'
    )


def _did_you_mean(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f' Did you mean "{near[0]}"?' if near else ""


def _bad_keywords(name: str, factory: Callable[..., Environment], kwargs: dict[str, Any], error: TypeError) -> str:
    accepted = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    given = ", ".join(f"{key}={value!r}" for key, value in kwargs.items()) or "no keywords"
    takes = f"It takes: {', '.join(accepted)}." if accepted else "It takes no keywords."
    return f'The environment "{name}" cannot be built with {given}: {error}. {takes}'
