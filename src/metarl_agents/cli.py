"""Dataclasses to flags and YAML.

`--config file.yaml` gives defaults, the command line wins, unknown keys fail with a suggestion, and nothing heavy is
imported before the flags are checked. A recipe calls `parse_config`; the library calls `Config.from_flat`.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import types
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from metarl_agents.config import Config
from metarl_agents.errors import ConfigError


class _Parser(argparse.ArgumentParser):
    """Raises one sentence instead of printing usage and leaving."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError(f"{message} (`--help` lists all settings).")


def settings() -> dict[str, tuple[type, Any]]:
    """Return {setting name: (type, dataclass field)} of every setting of `Config`."""
    found = {}
    for part in fields(Config):
        part_class = part.default_factory
        hints = get_type_hints(part_class)
        found |= {item.name: (hints[item.name], item) for item in fields(part_class)}
    return found


def convert(name: str, value: Any, kind: Any) -> Any:
    """Turn a flag's text or a YAML value into the type of setting `name`.

    Raises:
        ConfigError: the value does not fit.
    """
    if get_origin(kind) in (Union, types.UnionType):
        inner = [option for option in get_args(kind) if option is not type(None)][0]
        return None if value in (None, "", "none", "None", "null") else convert(name, value, inner)
    if get_origin(kind) is Literal:
        return _convert_choice(name, value, get_args(kind))
    if get_origin(kind) is list:
        return value.replace(",", " ").split() if isinstance(value, str) else [str(item) for item in value or []]
    if get_origin(kind) is dict:
        return _convert_mapping(name, value)
    if kind is bool:
        return _convert_bool(name, value)
    if kind in (int, float):
        return _convert_number(name, value, kind)
    return str(value)


def _convert_choice(name: str, value: Any, choices: tuple) -> Any:
    value = "none" if value is None and "none" in choices else value
    if value in choices:
        return value
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigError(f"`{name}` is {value!r}, but must be one of {', '.join(map(str, choices))}{hint}")


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
        if isinstance(value, bool) or number != number or (kind is int and number != int(number)):
            raise ValueError
        return int(value) if kind is int and isinstance(value, str) and value.isdigit() else kind(number)
    except (TypeError, ValueError, OverflowError):
        noun = "a whole number" if kind is int else "a number"
        raise ConfigError(f"`{name}` is {value!r}, but must be {noun}.") from None


def build_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with `--config` and one flag per setting."""
    parser = _Parser(description=description, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", metavar="FILE.yaml", help="settings in YAML; flags win over it")
    for name, (kind, item) in settings().items():
        default = item.default if item.default is not MISSING else item.default_factory()
        flags = [f"--{name}", *(f"--{alias}" for alias in item.metadata["aliases"])]
        choices = f" {{{', '.join(map(str, get_args(kind)))}}}" if get_origin(kind) is Literal else ""
        nargs = {"nargs": "?", "const": "true"} if kind is bool else {}
        help_text = f"{item.metadata['help']}{choices} [{default}]".replace("%", "%%")
        parser.add_argument(*flags, dest=name, default=None, help=help_text, metavar="X", **nargs)
    return parser


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a flat mapping of settings.

    Raises:
        ConfigError: the file is missing, is not YAML, or is not a mapping.
    """
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(values or {}, dict):
        raise ConfigError(f"{path} must hold `name: value` lines, but holds a {type(values).__name__}.")
    return dict(values or {})


def parse_config(
    argv: Sequence[str] | None = None, *, description: str = "", defaults: str | Path | dict[str, Any] | None = None
) -> Config:
    """Read a recipe's settings: its defaults, then `--config`, then flags.

    Args:
        argv: the flags; default: `sys.argv[1:]`.
        description: shown by `--help`.
        defaults: what the recipe does without flags, as a YAML file or a mapping.

    Raises:
        ConfigError: an unknown flag or key, or a value that does not fit.
    """
    chosen = vars(build_parser(description).parse_args(sys.argv[1:] if argv is None else list(argv)))
    layers = [read_yaml(defaults) if isinstance(defaults, (str, Path)) else dict(defaults or {})]
    if path := chosen.pop("config"):
        layers = [read_yaml(path)]
    layers.append({name: value for name, value in chosen.items() if value is not None})
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= coerce(layer)
    config = Config.from_flat(merged)
    config.check()
    return config


def coerce(values: dict[str, Any]) -> dict[str, Any]:
    """Convert each known setting to its type and rename aliases; unknown names pass, for `from_flat` to refuse."""
    known = settings()
    renamed = {alias: name for name, (_, item) in known.items() for alias in item.metadata["aliases"]}
    values = {renamed.get(name, name): value for name, value in values.items()}
    return {name: convert(name, value, known[name][0]) if name in known else value for name, value in values.items()}


def run_cli(main: Any) -> None:
    """Run a recipe's `main()`; a user's mistake prints one sentence and exits with status 2."""
    from metarl_agents.errors import CheckpointError, EnvironmentContractError, UnknownEnvironmentError

    try:
        sys.exit(main())
    except (ConfigError, CheckpointError, EnvironmentContractError, UnknownEnvironmentError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(2)
