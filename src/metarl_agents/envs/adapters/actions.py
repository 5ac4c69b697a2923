"""From what a model writes to what an action space of Gymnasium holds.

Two kinds: texts, passed on as they are, and the numbers of a Discrete space, which may have names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, Protocol

from metarl_agents.errors import ConfigError

_MAX_LISTED = 50
"""Actions that are listed one by one; more are described by their range."""
_LIST_KEYS = ("admissible_actions", "admissible_commands", "available_actions", "valid_actions", "legal_actions")


class Actions(Protocol):
    """What an adapter asks about the actions of one environment."""

    def describe(self) -> str:
        """Return the part of the rules that names the actions; may be empty."""

    def read(self, answer: str) -> str | None:
        """Return the action as it is shown, or None where there is no such action."""

    def value(self, action: str) -> Any:
        """Return what the environment's `step` takes."""

    def listed(self, info: Mapping[str, Any]) -> list[str]:
        """Return the actions that are admissible now, as they are shown; empty where that is not known."""


def actions_of(library: Any, space: Any, names: Sequence[str] | None, env_id: str) -> Actions:
    """Return the actions of `space`.

    Raises:
        ConfigError: the space is neither of texts nor of numbers, or the names do not fit it.
    """
    if isinstance(space, library.spaces.Discrete):
        return NumberedActions(int(space.n), int(space.start), names, env_id)
    if names is not None:
        raise ConfigError(
            f'`action_names` names the actions of a Discrete space, but "{env_id}" takes {space}. Leave it out.'
        )
    if isinstance(space, library.spaces.Text):
        return TextActions(space, library.spaces.text.alphanumeric)
    if isinstance(space, library.Space) and type(space).__module__.split(".")[0] == "gymnasium":
        raise ConfigError(
            f'Gymnasium\'s "{env_id}" takes actions of {type(space).__name__}, but a language model writes texts. Use '
            f"an environment with Text or Discrete actions, or wrap this one in an environment of your own."
        )
    return TextActions(None, frozenset())


class TextActions:
    """Actions that are texts already."""

    def __init__(self, space: Any | None, unsaid: frozenset[str]) -> None:
        """Take the Text space (None: any text) and the characters that such a space has when none are given."""
        self._space, self._unsaid = space, unsaid

    def describe(self) -> str:
        """Return nothing: the environment's own texts say what can be done."""
        return ""

    def read(self, answer: str) -> str | None:
        """Return the answer, if the space holds it."""
        if self._space is None:
            return answer
        # Gymnasium's default characters exclude even the blank, and its `step` never looks at them: whoever left them
        # as they were did not mean to forbid "go north". Characters that were given, and lengths, are meant.
        if self._space.character_set == self._unsaid:
            return answer if self._space.min_length <= len(answer) <= self._space.max_length else None
        return answer if self._space.contains(answer) else None

    def value(self, action: str) -> str:
        """Return the text."""
        return action

    def listed(self, info: Mapping[str, Any]) -> list[str]:
        """Return the texts that `info` lists."""
        return [item for item in _listed(info) if isinstance(item, str)]


class NumberedActions:
    """The actions of a Discrete space, by number or by name."""

    def __init__(self, count: int, start: int, names: Sequence[str] | None, env_id: str) -> None:
        """Take the numbers `start` to `start + count - 1`, and one name for each, if they have names."""
        if names is not None:
            _check_names(names, count, env_id)
        self._start, self._named = start, names is not None
        self._shown = list(names) if names is not None else [str(start + index) for index in range(count)]
        self._indices = {_key(name): index for index, name in enumerate(self._shown)}

    def describe(self) -> str:
        """Return the list of actions, or their range where they are many."""
        if len(self._shown) > _MAX_LISTED and not self._named:
            return f"The actions are the numbers {self._shown[0]} to {self._shown[-1]}."
        return f"The actions are: {', '.join(self._shown)}."

    def read(self, answer: str) -> str | None:
        """Return the action's name or number as it was given; capitals and blanks do not matter."""
        index = self._indices.get(_key(answer))
        return None if index is None else self._shown[index]

    def value(self, action: str) -> int:
        """Return the number."""
        return self._start + self._indices[_key(action)]

    def listed(self, info: Mapping[str, Any]) -> list[str]:
        """Return what `info` lists or its `action_mask` lets through, else all actions if they are few."""
        mask = info.get("action_mask")
        if mask is not None and len(mask) == len(self._shown):
            return [name for name, allowed in zip(self._shown, mask, strict=True) if allowed]
        listed = [name for item in _listed(info) if (name := self._name_of(item)) is not None]
        return listed or (list(self._shown) if len(self._shown) <= _MAX_LISTED else [])

    def _name_of(self, item: Any) -> str | None:
        if isinstance(item, Integral) and 0 <= item - self._start < len(self._shown):
            return self._shown[int(item) - self._start]
        return self.read(item) if isinstance(item, str) else None


def _listed(info: Mapping[str, Any]) -> list[Any]:
    """Return the list under the first of the customary keys."""
    for key in _LIST_KEYS:
        found = info.get(key)
        if isinstance(found, Iterable) and not isinstance(found, str):
            return list(found)
    return []


def _key(text: str) -> str:
    return " ".join(text.split()).casefold()


def _check_names(names: Sequence[str], count: int, env_id: str) -> None:
    if isinstance(names, str) or not all(isinstance(name, str) and _key(name) and "<" not in name for name in names):
        raise ConfigError(f'`action_names` is {names!r}, but a list of texts without "<" is expected: [left, right].')
    if len(names) != count:
        raise ConfigError(
            f'`action_names` holds {len(names)} names, but "{env_id}" has {count} actions. Name each, in their order.'
        )
    if len({_key(name) for name in names}) < count:
        raise ConfigError(f"`action_names` names two actions alike ({', '.join(names)}). Give each a name of its own.")
