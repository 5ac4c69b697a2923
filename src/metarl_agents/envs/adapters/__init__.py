"""Environments of other libraries behind our contract: `--env gymnasium:<id>`, `textarena:<id>`, `openspiel:<name>`.

What lives here: one module per library, and what the two share. The libraries themselves are optional extras; they are
imported when one of their environments is built, never when this package is.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import Wording
from metarl_agents.errors import ConfigError


def need(library: str, module: str = "", distribution: str = "") -> ModuleType:
    """Return the package of the extra that bears a library's name.

    Args:
        library: its name, in front of the colon of `--env` and as an extra.
        module: what is imported, where that has another name.
        distribution: what pip installs, where that has another name.

    Raises:
        ConfigError: it is not installed, or lacks something itself.
    """
    module = module or library
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        package = distribution if distribution and missing == module else missing
        raise ConfigError(
            f"`--env {library}:...` needs the package {package}, which is not installed: "
            f'pip install -e ".[{library}]", or pip install {package}.'
        ) from error


def chosen_wording(library: str, wording: str | Wording, wordings: dict[str, Wording]) -> Wording:
    """Return the wording of that name, or the wording itself where it is one already.

    Raises:
        ConfigError: no wording has that name.
    """
    if isinstance(wording, Wording):
        return wording
    check_choice(library, "wording", wording, wordings)
    return wordings[wording]


def first_line(error: BaseException) -> str:
    """Return what an exception says, on one line and without its final full stop, to stand inside a sentence."""
    told = " ".join(str(error).split()) or type(error).__name__
    return (told if len(told) <= 300 else f"{told[:297]}...").rstrip(".")
