"""Arguments of public functions, checked where they come in: one sentence for what was expected and what came."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

from metarl_agents.errors import ConfigError


def wrong(name: str, value: Any, expected: str) -> ConfigError:
    """Return the error for an argument that is something else.

    >>> str(wrong("seed", None, "a whole number, as in `seed=0`"))
    '`seed` is None, but must be a whole number, as in `seed=0`.'
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    else:
        shown = f"the class {value.__name__}" if inspect.isclass(value) else f"of type {type(value).__name__}"
    return ConfigError(f"`{name}` is {shown}, but must be {expected}.")


def expect(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Refuse a value of another type.

    Raises:
        ConfigError: it is of another type.
    """
    if not isinstance(value, kind):
        raise wrong(name, value, expected)


def expect_text(name: str, value: Any) -> None:
    """Refuse what is no text.

    Raises:
        ConfigError: it is of another type.
    """
    expect(name, value, str, "a text")


def expect_count(name: str, value: Any, least: int = 0) -> None:
    """Refuse what is no whole number from `least` on.

    Raises:
        ConfigError: it is of another type, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise wrong(name, value, f"a whole number of at least {least}")


def expect_list(name: str, value: Any, kind: type, items: str) -> None:
    """Refuse what is no list of `kind`, a text above all, which Python reads letter by letter.

    Raises:
        ConfigError: it is no list, or one of its items is of another type.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise wrong(name, value, f"a list of {items}")
    for number, item in enumerate(value):
        if not isinstance(item, kind):
            raise wrong(f"{name}[{number}]", item, f"one of {items}, as all items of that list")


def expect_builder(name: str, value: Any) -> None:
    """Refuse what does not build environments: an environment object, which a class is expected for, or a name.

    Raises:
        ConfigError: it cannot be called, or is an environment object.
    """
    if isinstance(value, str):
        raise wrong(name, value, f'what builds an environment: give its class, or `partial(make, "{value}")`')
    if not callable(value) or is_environment(value):
        built = type(value).__name__
        raise wrong(name, value, f"what builds an environment: give the class or a function, as in `{built}`")


def is_environment(value: Any) -> bool:
    """Return whether a value is an environment object: no class, with `reset` and `step`."""
    return not inspect.isclass(value) and all(callable(getattr(value, method, None)) for method in ("reset", "step"))


def expect_environment(name: str, value: Any) -> None:
    """Refuse what is no environment object.

    Raises:
        ConfigError: it is a class, a function or something else.
    """
    if inspect.isclass(value) and callable(getattr(value, "reset", None)):
        raise wrong(name, value, f"an environment object: call the class, as in `{value.__name__}()`")
    if not is_environment(value):
        raise wrong(name, value, "an environment object with `reset` and `step`")


def expect_function(name: str, value: Callable[..., Any] | None) -> None:
    """Refuse what is given and cannot be called.

    Raises:
        ConfigError: it cannot be called.
    """
    if value is not None and not callable(value):
        raise wrong(name, value, "a function")
