"""Dataclasses to flags and YAML.

`--config file.yaml` gives defaults, the command line wins, unknown keys fail with a suggestion, and nothing heavy is
imported before the flags are checked. A recipe calls `parse_config`; the library calls `Config.from_flat`.
"""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from metarl_agents.addresses import did_you_mean
from metarl_agents.config import Config, TrialConfig, unknown_choice
from metarl_agents.errors import ConfigError


class _Parser(argparse.ArgumentParser):
    """Raises one sentence instead of printing usage and leaving."""

    def error(self, message: str) -> None:  # type: ignore[override]
        flag = message.removeprefix("unrecognized arguments: ").split()[0].partition("=")[0]
        if message.startswith("unrecognized") and flag.startswith("-"):
            raise ConfigError(f"there is no flag `{flag}`.{did_you_mean(flag, self._option_string_actions, quote='`')}")
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
    raise unknown_choice(name, value, choices)


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


def build_parser(description: str, only: Collection[str] | None = None) -> argparse.ArgumentParser:
    """Return a parser with `--config` and one flag per setting, or with the flags of the settings in `only`."""
    parser = _Parser(description=description, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter)
    if only is None:
        parser.add_argument("--config", metavar="FILE.yaml", help="settings in YAML; flags win over it")
    for name, (kind, item) in settings().items():
        if only is not None and name not in only:
            continue
        default = item.default if item.default is not MISSING else item.default_factory()
        flags = [f"--{name}", *(f"--{alias}" for alias in item.metadata["aliases"])]
        words = get_args(kind) if get_origin(kind) is Literal else item.metadata["names"]
        choices = f" {{{', '.join(map(str, words))}}}" if words else ""
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


Defaults = str | Path | dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]
"""A YAML file, a mapping, or a function of all flags that were given (extra ones too) that returns a mapping."""


def parse_config(
    argv: Sequence[str] | None = None, *, description: str = "", defaults: Defaults | None = None
) -> Config:
    """Read a recipe's settings: its defaults, then `--config`, then flags.

    Args:
        argv: the flags; default: `sys.argv[1:]`.
        description: shown by `--help`.
        defaults: what the recipe does without flags.

    Raises:
        ConfigError: an unknown flag or key, or a value that does not fit.
    """
    return parse_with_extras(argv, build_parser(description), defaults)[0]


def parse_with_extras(
    argv: Sequence[str] | None, parser: argparse.ArgumentParser, defaults: Defaults | None = None
) -> tuple[Config, dict[str, Any]]:
    """Read settings, and the flags that a recipe has added to `build_parser`'s.

    Args:
        argv: the flags; None: `sys.argv[1:]`.
        parser: what `build_parser` returned, with further arguments of names that are no settings.
        defaults: what the recipe does without flags.

    Returns:
        (settings, {name: value} of the further arguments).

    Raises:
        ConfigError: an unknown flag or key, or a value that does not fit.
    """
    given = vars(parser.parse_args(sys.argv[1:] if argv is None else list(argv)))
    path = given.pop("config", None)
    known = settings()
    extras = {name: value for name, value in given.items() if name not in known}
    flags = coerce({name: value for name, value in given.items() if name in known and value is not None})
    weaker = read_yaml(path) if path else _read_defaults(defaults, flags | extras)
    weaker = coerce(weaker)
    _refuse_two_pools(weaker, flags)
    config = Config.from_flat(weaker | flags)
    config.check()
    return config, extras


def _refuse_two_pools(weaker: dict[str, Any], flags: dict[str, Any]) -> None:
    """Refuse opponents that `--env_kwargs` names where the preset's `opponents`, which win, name others."""
    keywords, listed = flags.get("env_kwargs") or {}, weaker.get("opponents")
    named = keywords.get("opponents") or keywords.get("opponent")
    if "opponents" in flags or not listed or not named:
        return
    names = [named] if isinstance(named, str) else [str(name) for name in named]
    if set(names) != {entry.partition("=")[0] for entry in listed}:
        raise ConfigError(
            f"`--env_kwargs` names opponents, but the preset's `opponents` ({' '.join(listed)}) would be met: name "
            f'yours by `--opponents "{" ".join(names)}"`, in place of these.'
        )


def _read_defaults(defaults: Defaults | None, flags: dict[str, Any]) -> dict[str, Any]:
    if callable(defaults):
        return defaults(flags)
    return read_yaml(defaults) if isinstance(defaults, (str, Path)) else dict(defaults or {})


RUN_FILE = "config.yaml"
TRIAL_SETTINGS = (
    "env",
    "env_kwargs",
    "wording",
    "max_turns",
    "num_episodes",
    "stop_on_success",
    "memory",
    "invalid_action_penalty",
    "max_prompt_tokens",
    "max_new_tokens_per_turn",
)
"""What a model that was trained in a run expects of its trials."""


PRESETS = Path(__file__).parents[2] / "recipes" / "configs"
BRIEF = {"wording": "compact", "max_new_tokens_per_turn": 24}
"""How the built-in tiny model, taught on the spot, speaks where there is no preset for it."""
_ABOVE = {"checkpoint-": 0, "merged": 0, "snapshot-": 1}
"""Beginning of a model folder's name -> which of the folders above it is the run's."""


def run_settings(folder: str | Path) -> dict[str, Any]:
    """Return the `TRIAL_SETTINGS` of the run that made the model in `folder`, or {} where no run did.

    The settings of a `checkpoint-<step>` and of `merged` stand one folder up, of `population/snapshot-<step>` two.
    """
    folder = Path(folder).expanduser().absolute()
    above = next((folder.parents[up : up + 1] for name, up in _ABOVE.items() if folder.name.startswith(name)), ())
    places = [folder, *above]
    file = next((place / RUN_FILE for place in places if (place / RUN_FILE).is_file()), None)
    values = read_yaml(file) if file else {}
    # A model folder may hold a `config.yaml` that is nobody's run.
    if not {"env", "model_name_or_path"} <= set(values):
        return {}
    return {name: values[name] for name in TRIAL_SETTINGS if name in values}


def model_settings(model: str, env: str | None = None) -> dict[str, Any]:
    """Return the settings that a model was made with: its run's, or those of the built-in tiny model; {} of others.

    Args:
        model: as in `model_name_or_path`.
        env: what is to be played; None for the default.
    """
    found = run_settings(model) if model not in ("", "tiny") else {}
    is_built_in = model == "tiny" or bool(model) and (Path(model).expanduser() / "warm_start.json").is_file()
    return found or (tiny_settings(env or TrialConfig().env) if is_built_in else {})


def tiny_settings(env: str) -> dict[str, Any]:
    """Return the settings under which the built-in tiny model is trained in an environment, where it has a preset."""
    file = PRESETS / env / "tiny.yaml"
    return read_yaml(file) if file.is_file() else {"env": env, **BRIEF}


def trial_defaults(preset: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of a trial: `preset`'s `TRIAL_SETTINGS`, less `env_kwargs` where `flags` change the `env`."""
    chosen = {name: preset[name] for name in TRIAL_SETTINGS if name in preset}
    if flags.get("env", chosen.get("env")) != chosen.get("env"):
        chosen.pop("env_kwargs", None)
    return chosen


def coerce(values: dict[str, Any]) -> dict[str, Any]:
    """Convert each known setting to its type and rename aliases; unknown names pass, for `from_flat` to refuse."""
    known = settings()
    renamed = {alias: name for name, (_, item) in known.items() for alias in item.metadata["aliases"]}
    values = {renamed.get(name, name): value for name, value in values.items()}
    return {name: convert(name, value, known[name][0]) if name in known else value for name, value in values.items()}


def is_first_process() -> bool:
    """Whether this process speaks for all that were launched; known before any of them has met the others."""
    return os.environ.get("RANK", "0") == "0"


def leave(status: int | None) -> NoReturn:
    """End this process, the last thing a program does.

    Of several processes that were launched together each waits for the others, and then ends without taking the
    interpreter apart: threads of their communication are alive until the very end, and have brought processes that had
    finished down with SIGABRT, which the launcher reports as a failed run.
    """
    distributed = sys.modules.get("torch.distributed")  # not imported: nothing was launched
    is_launched = distributed is not None and distributed.is_available() and distributed.is_initialized()
    has_others = is_launched and distributed.get_world_size() > 1
    if has_others:
        distributed.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    if has_others:
        os._exit(status or 0)
    sys.exit(status)


TELLING_S = 60.0
"""Seconds that a process which is not the first waits for the first to tell a mistake of all."""


def run_cli(main: Any) -> None:
    """Run a recipe's `main()`; a user's mistake prints one sentence, once, and exits with status 2.

    Where nobody reads its output any more, it ends without a word, as other programs do.
    """
    from metarl_agents.errors import CheckpointError, EnvironmentContractError, UnknownEnvironmentError

    try:
        leave(main())
    except (ConfigError, CheckpointError, EnvironmentContractError, UnknownEnvironmentError) as error:
        # Where several processes were launched, all make the same mistake, unless it depends on what one has sampled.
        if not (is_first_process() or (isinstance(error, ConfigError) and error.of_one_process)):
            _wait_to_be_ended()
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        if not _is_unread(sys.stdout.fileno()):
            raise  # a pipe of the program's own
        discard_output()
        sys.exit(128 + signal.SIGPIPE)


def discard_output() -> None:
    """Send what is still to be written nowhere: whoever read it has gone (`| head`), and Python must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_unread(descriptor: int) -> bool:
    """Whether whoever read what is written to a pipe has gone, as `head` does when it has seen enough."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _wait_to_be_ended() -> None:
    """Give the first process the time to tell a mistake; returns where nobody has told it.

    A launcher ends all processes as soon as one has failed. The first one may still be importing by then, and the
    sentence would be lost; once it has told it and failed, the launcher ends those that wait here.
    """
    for number in (signal.SIGTERM, signal.SIGINT):  # a run's handlers ask for a stop after the update; there is none
        signal.signal(number, signal.SIG_DFL)
    time.sleep(TELLING_S)
