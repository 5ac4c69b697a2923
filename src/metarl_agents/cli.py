"""A recipe's settings and its exit: flags over YAML over presets, and mistakes in one sentence.

`--config file.yaml` gives defaults, the command line wins, unknown keys fail with a suggestion, and nothing heavy is
imported before the flags are checked. A recipe calls `parse_config`; the library calls `Config.from_flat`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from metarl_agents.config import Config, TrialConfig
from metarl_agents.errors import ConfigError
from metarl_agents.flags import Parser, build_parser, convert, settings, settings_of
from metarl_agents.presets import preset_file
from metarl_agents.texts import read_text


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a flat mapping of settings.

    Raises:
        ConfigError: the file is missing, is not YAML, or is not a mapping.
    """
    import yaml

    try:
        values = yaml.safe_load(read_text(path, "settings file"))
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
    argv = sys.argv[1:] if argv is None else list(argv)
    if isinstance(parser, Parser) and _HELP & set(argv):
        _show_defaults(parser, [word for word in argv if word not in _HELP], defaults)
    weaker, flags, extras = _split(parser.parse_args(argv), defaults)
    _refuse_two_pools(weaker, flags)
    config = Config.from_flat(weaker | flags)
    config.check()
    return config, extras


_HELP = {"-h", "--help"}


def _split(
    chosen: argparse.Namespace, defaults: Defaults | None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return (settings of the file or the recipe, settings given as flags, further arguments)."""
    # A flag of several words is what they say together: `[a, b]` need not stand in quotes.
    given = {name: " ".join(value) if isinstance(value, list) else value for name, value in vars(chosen).items()}
    path, known = given.pop("config", None), settings()
    extras = {name: value for name, value in given.items() if name not in known}
    flags = coerce({name: value for name, value in given.items() if name in known and value is not None})
    return coerce(read_yaml(path) if path else _read_defaults(defaults, flags | extras)), flags, extras


def _show_defaults(parser: Parser, argv: Sequence[str], defaults: Defaults | None) -> None:
    """Let `--help` print what this command would use; where it has a mistake, the defaults of the library."""
    with suppress(ConfigError):
        weaker, flags, _ = _split(parser.parse_known_args(argv)[0], defaults)
        parser.show(weaker | flags)


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
TRIAL_SETTINGS = settings_of("trial")
"""What a model that was trained in a run expects of its trials."""


BRIEF = {
    "wording": "compact",
    "max_new_tokens_per_turn": 24,
    "tasks_per_step": 8,
    "gamma_traj": 0.9,
    "anchor_scope": "episode",
    "scale_advantages": "batch_std",
    "advantage_clip": 4.0,
    "learning_rate": 5e-4,
    "adam_beta2": 0.99,
    "weight_decay": 0.0,
    "entropy_coef": 0.0,
    "beta": 0.1,
    "min_p": 0.1,
    "max_tokens_per_micro_batch": 8192,
    "eval_samples": 0,
}
"""How the built-in tiny model, made on the spot, is prompted and trained where there is no preset for it.

`min_p` keeps malformed answers out of the sample, of which a few drown the signal at this size; `beta` keeps the answer
format.
"""
_ABOVE = {"checkpoint-": 0, "merged": 0, "snapshot-": 1}
"""Beginning of a model folder's name -> which of the folders above it is the run's."""


def run_settings(folder: str | Path, names: Sequence[str] | None = TRIAL_SETTINGS) -> dict[str, Any]:
    """Return the settings `names` of the run that made the model in `folder`, all with None; {} where no run did.

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
    return {name: values[name] for name in (values if names is None else names) if name in values}


def model_settings(model: str, env: str | None = None, names: Sequence[str] | None = TRIAL_SETTINGS) -> dict[str, Any]:
    """Return the settings that a model was made with: its run's, or those of the built-in tiny model; {} of others.

    Args:
        model: as in `model_name_or_path`.
        env: what is to be played; None for what the model was taught, else for the default.
        names: which settings of a run; None for all.
    """
    found = run_settings(model, names) if model not in ("", "tiny") else {}
    taught = Path(model).expanduser() / "warm_start.json"
    if found or not (model == "tiny" or bool(model) and taught.is_file()):
        return found
    facts = json.loads(taught.read_text(encoding="utf-8")) if model != "tiny" else {}
    env = env or facts.get("env") or TrialConfig().env
    return tiny_settings(env, str(facts.get("preset", "")) if env == facts.get("env") else "")


def tiny_settings(env: str, model: str = "", *, say: bool = True) -> dict[str, Any]:
    """Return the settings under which the built-in tiny model is trained in an environment.

    An environment without a preset gets `BRIEF`, and a line on standard error says so.

    Args:
        env: its name or address.
        model: name of the shipped model, `<env>_<size>`, whose size may have a preset of its own (`tiny_<size>.yaml`).
        say: False where the caller names the settings.
    """
    sized = preset_file(env, f"tiny_{model.removeprefix(f'{env}_')}") if model.startswith(f"{env}_") else None
    file = sized or preset_file(env)
    if file is not None:
        return read_yaml(file) | {"env": env}
    if say and is_first_process():
        used = ", ".join(f"{name} {value}" for name, value in BRIEF.items() if name in TRIAL_SETTINGS)
        sys.stderr.write(f"{env} has no preset for the tiny model: {used}, and the library's defaults.\n")
    return {"env": env, **BRIEF}


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


NOTHING_LEARNED = 3
"""The exit status of a run that learned nothing, or nothing from some step on."""
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
