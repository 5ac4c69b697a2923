"""Environments that installed packages bring, as entry points of the group "metarl_agents.environments".

What lives here: reading their names without importing anything. A package that declares something unusable costs one
warning; the others are found all the same. What does not: who wins where names meet (`registry.py`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from metarl_agents.addresses import is_address

GROUP = "metarl_agents.environments"


@dataclass(frozen=True)
class Installed:
    """An environment that an installed package offers."""

    address: str
    """Where its class is, as "package.module:Class"."""
    package: str
    """The distribution that brings it, as pip calls it."""


@cache
def installed_environments(shipped: frozenset[str]) -> dict[str, Installed]:
    """Return name -> environment for every usable entry point; warn of each one that is not.

    Args:
        shipped: the library's own names, which no package can take.
    """
    found: dict[str, Installed] = {}
    for package, point in _entry_points():
        complaint = _complaint(point, shipped)
        if complaint is None and point.name in found:
            if found[point.name].package == package and found[point.name].address == point.value.strip():
                continue
            complaint = f"the package {found[point.name].package} has that name already"
        if complaint is None:
            found[point.name] = Installed(point.value.strip(), package)
        else:
            _warn(f'The environment "{point.name}" of the installed package {package} is left out: {complaint}.')
    return found


def _entry_points() -> Iterator[tuple[str, metadata.EntryPoint]]:
    """Yield (package, entry point) of the group, each package once: the copy that Python would import."""
    seen: set[str] = set()
    for distribution in metadata.distributions():
        package = "?"
        try:
            # Reading the text first: most packages have nothing for us, and parsing them all takes long.
            if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            package = distribution.metadata["Name"] or "?"
            points = list(distribution.entry_points.select(group=GROUP))
        except Exception as error:  # a damaged installation of anybody's must not stop ours
            told = " ".join(str(error).split()) or type(error).__name__
            _warn(f"The entry points of the installed package {package} cannot be read and are left out: {told}.")
            continue
        key = re.sub(r"[-_.]+", "-", package).lower()
        if key not in seen:
            seen.add(key)
            yield from ((package, point) for point in points)


def _complaint(point: metadata.EntryPoint, shipped: frozenset[str]) -> str | None:
    if not point.name or ":" in point.name:
        return 'a name is not empty and holds no ":"'
    if not is_address(point.value.strip()):
        return f'its address "{point.value}" is not of the form "package.module:Class"'
    if point.name in shipped:
        return f"that name is the library's own; it can still be reached by its address, {point.value.strip()}"
    return None


def _warn(sentence: str) -> None:
    warnings.warn(sentence, UserWarning, stacklevel=5)
