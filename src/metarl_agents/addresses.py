"""Find by its address "package.module:name" what may be a user's own: environment, advantage estimator, return mode.

What lives here: the short names of estimators and return modes, reading an address, importing what is there, reading
the marks on it, and saying in one sentence why that fails. What does not: the names of environments, which packages may
add to (`envs/registry.py`), and whether what was found is of use. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import PathFinder
from typing import Any

from metarl_agents.errors import ConfigError


@dataclass(frozen=True)
class Kind:
    """What an address leads to."""

    what: str
    """In the words of the error messages."""
    form: str
    """Of an address."""
    expected: str
    """What must be there, in the words of the error messages."""
    names: dict[str, str] = field(default_factory=dict)
    """Short name -> address."""

    def short_name(self, name: str) -> str:
        """Return the short name of what is shipped under an address; any other name as it is.

        The package that holds the address's module has the function, too.

        >>> ESTIMATOR.short_name("metarl_agents.advantages.rloo:rloo_advantages")
        'rloo'
        """
        module, _, attribute = str(name).partition(":")
        for short, address in self.names.items():
            home, _, shipped = address.partition(":")
            if attribute == shipped and module in (home, home.rpartition(".")[0]):
                return short
        return name


ENVIRONMENT = Kind("an environment", "package.module:Class", "a class (or a callable)")

ESTIMATOR = Kind(
    "an advantage estimator",
    "package.module:function",
    "a function",
    names={
        "gigpo": "metarl_agents.advantages.gigpo:gigpo_advantages",
        "rloo": "metarl_agents.advantages.rloo:rloo_advantages",
        "grpo": "metarl_agents.advantages.grpo:grpo_advantages",
        "reinforce": "metarl_agents.advantages.reinforce:reinforce_advantages",
        "ppo": "metarl_agents.advantages.gae:ppo_advantages",
    },
)
"""What `--advantages` takes. One line names one more."""

RETURN_MODE = Kind(
    "a return mode",
    "package.module:function",
    "a function",
    names={
        "paper": "metarl_agents.advantages.returns:paper_returns",
        "recursive": "metarl_agents.advantages.returns:recursive_returns",
        "differential": "metarl_agents.advantages.returns:differential_returns",
        "final": "metarl_agents.advantages.returns:final_returns",
        "single": "metarl_agents.advantages.returns:single_returns",
    },
)
"""What `--return_mode` takes. One line names one more."""


def is_address(text: str) -> bool:
    """Return whether a text has the form "package.module:name"; the name may have dots, too."""
    module, _, attribute = text.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def check_address(text: str, kind: Kind) -> None:
    """Refuse what is no address.

    Raises:
        ConfigError: the text has another form.
    """
    if not is_address(text):
        raise ConfigError(f'`{text}` is no address of {kind.what}. Write it as "{kind.form}".')


def load(name: str, kind: Kind) -> Any:
    """Import what has a short name or an address.

    Args:
        name: a short name of this kind, or "package.module:name", whose module is found on Python's path or in the
            current folder.
        kind: what is looked for.

    Returns:
        The class or function there.

    Raises:
        ConfigError: it is neither, nothing is there, or something that cannot be called.
    """
    address = kind.names.get(name, name)
    check_address(address, kind)
    module_name, _, attribute = address.partition(":")
    found: Any = _import(module_name, address)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [name for name in vars(found) if not name.startswith("_")])
            file = getattr(sys.modules[module_name], "__file__", None)
            read = f", read from {file}," if file else ""
            raise ConfigError(
                f'The module "{module_name}" of `{address}`{read} has no "{attribute}".{near} Check the spelling.'
            )
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"`{address}` is a {type(found).__name__}, but {kind.expected} is expected.")
    return found


def _import(module_name: str, address: str) -> Any:
    try:
        find_in_current_folder(module_name)
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


def find_in_current_folder(module_name: str) -> None:
    """Put the current folder last on the path if it holds the module, and no other place does.

    A program that is run as a script, `python recipes/train.py`, finds modules in its own folder only. Processes that
    this one starts take its path over, and so find the module too.
    """
    if not _is_missing(module_name):
        return
    with suppress(FileNotFoundError):  # the current folder may have been removed
        here = os.getcwd()
        if here not in sys.path and PathFinder.find_spec(module_name.partition(".")[0], [here]) is not None:
            sys.path.append(here)


def _is_missing(module_name: str) -> bool:
    """Return whether no module has the name's first part, seen from the path as it is."""
    first = module_name.partition(".")[0]
    if first in sys.modules:
        return False
    importlib.invalidate_caches()  # the module may just have been written
    return importlib.util.find_spec(first) is None


def has_mark(function: Callable[..., Any], mark: str) -> bool:
    """Return whether a function bears a mark (`advantages/marks.py`); a `functools.partial` bears its function's."""
    while isinstance(function, partial) and not hasattr(function, mark):
        function = function.func
    return bool(getattr(function, mark, False))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to `word`, or None if none is close."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str], quote: str = '"') -> str:
    """Return a sentence, led by a blank, that names the known word closest to `word`; empty if none is close."""
    near = nearest(word, known)
    return "" if near is None else f" Did you mean {quote}{near}{quote}?"
