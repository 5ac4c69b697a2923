"""Settings as flags: one flag per field of `config.py`, its text converted to the field's type, and `--help`."""

from __future__ import annotations

import argparse
import math
import shutil
import types
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from metarl_agents.addresses import did_you_mean
from metarl_agents.config import Config, unknown_choice
from metarl_agents.errors import ConfigError
from metarl_agents.hints import foreign_hint

GROUPS = {
    "model": "model",
    "sampling": "sampling in training",
    "eval_sampling": "sampling in evaluation",
    "trial": "trials",
    "credit": "credit",
    "population": "opponents",
    "update": "update",
    "run": "run",
}
"""Part of `Config` -> heading of its flags in `--help`."""

_METAVARS = {int: "N", float: "X", bool: "BOOL", dict: "YAML", list: "A"}
_WIDEST = 110


class Parser(argparse.ArgumentParser):
    """Raises one sentence instead of printing usage and leaving."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise ConfigError, with what to use in place of an unknown flag."""
        word = message.removeprefix("unrecognized arguments: ").split()[0].partition("=")[0]
        if message.startswith("unrecognized") and word.startswith("-"):
            flags = self._option_string_actions
            hint = foreign_hint(word, [flag.lstrip("-") for flag in flags], flags=True)
            raise ConfigError(f"there is no flag `{word}`.{hint or did_you_mean(word, flags, quote='`')}")
        if message.startswith("unrecognized"):
            raise ConfigError(
                f"`{word}` belongs to no flag: put a value that holds blanks in quotes (`--help` lists all settings)."
            )
        raise ConfigError(f"{message} (`--help` lists all settings).")

    def show(self, values: Mapping[str, Any]) -> None:
        """Let `--help` print these values as the defaults of their settings."""
        for action in self._actions:
            if action.dest in values and hasattr(action, "shown"):
                action.shown = written(values[action.dest])


def settings() -> dict[str, tuple[type, Any]]:
    """Return {setting name: (type, dataclass field)} of every setting of `Config`."""
    found = {}
    for part in fields(Config):
        part_class = part.default_factory
        hints = get_type_hints(part_class)
        found |= {item.name: (hints[item.name], item) for item in fields(part_class)}
    return found


def settings_of(part: str) -> tuple[str, ...]:
    """Return the names of all settings that are declared `part_of` this list, in the order of their declaration."""
    return tuple(name for name, (_, item) in settings().items() if part in item.metadata["part_of"])


def build_parser(
    description: str, only: Collection[str] | None = None, hidden: Collection[str] = ()
) -> argparse.ArgumentParser:
    """Return a parser with `--config` and one flag per setting, grouped by concern.

    Args:
        description: shown by `--help`.
        only: the settings that have a flag; default: all, and `--config`.
        hidden: parts of `Config` whose flags are accepted and not listed by `--help`.
    """
    width = min(_WIDEST, shutil.get_terminal_size().columns - 2)
    layout = partial(argparse.RawDescriptionHelpFormatter, max_help_position=36, width=width)
    usage = "%(prog)s [--config FILE.yaml] [--SETTING VALUE ...]" if only is None else None
    parser = Parser(
        description=description,
        usage=usage,
        epilog="In brackets: what this command would use.",
        allow_abbrev=False,
        formatter_class=layout,
    )
    if only is None:
        parser.add_argument("--config", metavar="FILE.yaml", help="settings in YAML; flags win over it")
    known = settings()
    for part in fields(Config):
        names = [item.name for item in fields(part.default_factory) if only is None or item.name in only]
        group = parser.add_argument_group(GROUPS[part.name]) if names else parser
        for name in names:
            _add_flag(group, name, *known[name], is_hidden=part.name in hidden)
    return parser


def _add_flag(group: Any, name: str, kind: Any, item: Any, *, is_hidden: bool) -> None:
    flags = [f"--{name}", *(f"--{alias}" for alias in item.metadata["aliases"])]
    inner = _without_none(kind)
    outer = get_origin(inner) or inner
    words = get_args(inner) if outer is Literal else item.metadata["names"]
    choices = f" {{{', '.join(map(str, words))}}}" if words else ""
    nargs = {bool: {"nargs": "?", "const": "true"}, list: {"nargs": "+"}}.get(outer, {})
    help_text = argparse.SUPPRESS if is_hidden else f"{item.metadata['help']}{choices} [%(shown)s]"
    action = group.add_argument(
        *flags, dest=name, default=None, help=help_text, metavar=_METAVARS.get(outer, "TEXT"), **nargs
    )
    action.shown = written(item.default if item.default is not MISSING else item.default_factory())


def written(value: Any) -> str:
    """Return a setting's value as it would be given.

    >>> written({"size": 4, "opponents": ["a", "b"]}), written(None), written(True), written(["a", "b"])
    ('{size: 4, opponents: [a, b]}', 'empty', 'true', 'a b')
    """
    if value is None or value == []:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inside(item)}" for key, item in value.items()) + "}"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _inside(value: Any) -> str:
    return f"[{', '.join(map(_inside, value))}]" if isinstance(value, (list, tuple)) else written(value)


def convert(name: str, value: Any, kind: Any) -> Any:
    """Turn a flag's text or a YAML value into the type of setting `name`.

    Raises:
        ConfigError: the value does not fit.
    """
    inner = _without_none(kind)
    if inner is not kind:
        return None if value in (None, "", "none", "None", "null") else convert(name, value, inner)
    if get_origin(kind) is Literal:
        return _convert_choice(name, value, get_args(kind))
    if get_origin(kind) is list:
        return _convert_list(name, value)
    if get_origin(kind) is dict:
        return _convert_mapping(name, value)
    if kind is bool:
        return _convert_bool(name, value)
    if kind in (int, float):
        return _convert_number(name, value, kind)
    return str(value)


def _without_none(kind: Any) -> Any:
    """Return `X` of `X | None`, any other type as it is."""
    if get_origin(kind) in (Union, types.UnionType):
        return [option for option in get_args(kind) if option is not type(None)][0]
    return kind


def _convert_choice(name: str, value: Any, choices: tuple) -> Any:
    value = "none" if value is None and "none" in choices else value
    if value in choices:
        return value
    raise unknown_choice(name, value, choices)


def _convert_list(name: str, value: Any) -> list[str]:
    """Read `[a, b]` as YAML, and `a, b`, `a,b` and `a b` as words; what is a list already keeps its items whole."""
    import yaml

    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            return text.replace(",", " ").split()
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value or [], "__iter__"):
        raise ConfigError(f"`{name}` is {value!r}, but must be a list, for example `[a, b]`, `a,b` or `a b`.")
    return [str(item) for item in value or []]


def _convert_mapping(name: str, value: Any) -> dict[str, Any]:
    import yaml

    if isinstance(value, str):
        try:
            value = yaml.safe_load(value if value.strip().startswith("{") else "{" + value + "}")
        except yaml.YAMLError:
            raise ConfigError(f"`{name}` must be a mapping, for example `--{name} '{{size: 6, mines: 4}}'`.") from None
    if not isinstance(value or {}, dict):
        raise ConfigError(f"`{name}` must be a mapping, but is {value!r}.")
    return dict(value or {})


def _convert_bool(name: str, value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ConfigError(f"`{name}` is {value!r}, but must be true or false.")
    return words[str(value).lower()]


def _convert_number(name: str, value: Any, kind: type) -> int | float:
    try:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
        return int(value) if kind is int and isinstance(value, str) and value.isdigit() else kind(number)
    except (TypeError, ValueError, OverflowError):
        noun = "a whole number" if kind is int else "a number"
        raise ConfigError(f"`{name}` is {value!r}, but must be {noun}.") from None
