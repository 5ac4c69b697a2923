"""The policy that a run starts from, and how it comes back when the run is resumed.

A run may start from a name (a hub model, a folder, adapters in a folder), which leads back to it, or from weights that
only exist in memory: the built-in model taught on the spot, or a policy that `train` was given. What a resumed run
needs of the latter is kept in the run's folder: the base of its adapters, and the reference of its KL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from metarl_agents.config import Config
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import opened, tiny_model_name
from metarl_agents.policy.adapters import (
    add_adapters,
    has_nameless_base,
    holds_adapters,
    is_nameless,
    load_saved_weights,
    name_base,
    read_saved_weights,
    save_nameless_base,
)
from metarl_agents.policy.loading import load_policy, needs_warm_start
from metarl_agents.policy.model_check import check_model
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.reference import Reference, adapter_values
from metarl_agents.training.checkpoint import write_atomically
from metarl_agents.training.warm_start import tiny_policy_on_the_fly

BASE_FOLDER = "base"
"""In the run's folder: a whole model that was made in memory, under adapters or as the reference."""
BASE_ADAPTERS = "base_adapters"
"""In the run's folder: the adapters of the policy that `train` was given, as the reference."""


LOW_LORA_RATE = 5e-6
"""Below it, adapters are trained at a rate that is made for all weights.

Reinforcement learning of all weights of a language model uses 1e-6 (LaMer, arXiv 2512.16848) to about 3e-6; LoRA's best
rate is about ten times as high, in reinforcement learning too (Schulman and Thinking Machines Lab, "LoRA Without
Regret", 2025).
"""


@dataclass
class Start:
    """What a run, new or resumed, begins with."""

    policy: Policy
    reference: Reference | None
    notes: list[str]
    """Sentences for the log."""


def start_run(
    config: Config, make_env: MakeEnv, policy: Policy | None, output_dir: Path, resume: Path | None, accelerator: Any
) -> Start:
    """Return the policy as it is now and, where KL is on, the frozen one that the run *started* from.

    Raises:
        ConfigError: the model cannot be found, read or taught.
        CheckpointError: the checkpoint, or what the run keeps beside it, does not fit.
    """
    if policy is not None:
        check_model(policy)
    start = _new if resume is None else _resumed
    policy, reference, notes, keep = start(config, make_env, policy, output_dir, resume)
    rate = config.update.learning_rate
    if hasattr(policy.model, "peft_config") and rate < LOW_LORA_RATE:
        notes.append(_LOW_RATE.format(rate, 10 * rate))
    if is_nameless(policy):
        keep.setdefault(BASE_FOLDER, partial(save_nameless_base, policy))
        name_base(policy, output_dir / BASE_FOLDER)
    for name, write in keep.items():
        folder = output_dir / name
        if accelerator.is_main_process and (resume is None or not folder.exists()):
            write_atomically(folder, write)
    return Start(policy, reference, notes)


def build_policy(config: Config, make_env: MakeEnv) -> Policy:
    """Load what `model_name_or_path` names.

    The built-in tiny model is taught an environment that no shipped one knows; `use_peft` adds adapters.

    Raises:
        ConfigError: the model cannot be found or read, or cannot be taught the environment.
    """
    model = config.model
    if _is_made(config, make_env):
        policy = tiny_policy_on_the_fly(make_env, config)
    else:
        with opened(make_env) as env:
            tiny_name = tiny_model_name(env)
        policy = load_policy(model, tiny_name=tiny_name)
    if model.use_peft:
        add_adapters(policy, model, config.run.seed)
    return policy


def _is_made(config: Config, make_env: MakeEnv) -> bool:
    """Whether the model that `model_name_or_path` names has to be taught the environment first."""
    with opened(make_env) as env:
        return needs_warm_start(config.model, tiny_model_name(env))


_Parts = tuple[Policy, Reference | None, list[str], dict[str, Callable[[Path], None]]]
"""Policy, reference, sentences for the log, and {folder in the run's: what writes it}."""


def _new(config: Config, make_env: MakeEnv, policy: Policy | None, output_dir: Path, resume: Path | None) -> _Parts:
    is_given = policy is not None
    started_with = hasattr(policy.model, "peft_config") if is_given else holds_adapters(config.model.model_name_or_path)
    if policy is None:
        policy = build_policy(config, make_env)
    elif config.model.use_peft:
        add_adapters(policy, config.model, config.run.seed)
    if config.update.beta == 0:
        return policy, None, [], {}
    keep: dict[str, Callable[[Path], None]] = {}
    if not hasattr(policy.model, "peft_config"):
        if is_given or _is_made(config, make_env):
            keep[BASE_FOLDER] = policy.save
        return policy, Reference(policy), [_SAYS.format("the policy that starts the run")], keep
    if not started_with or config.update.reference == "base":
        return policy, Reference(policy), [_SAYS.format("the model under the adapters")], keep
    if is_given:
        keep[BASE_ADAPTERS] = policy.save
    adapters = adapter_values(policy)
    return policy, Reference(policy, adapters), [_SAYS.format("the adapters that the run starts from")], keep


def _resumed(config: Config, make_env: MakeEnv, policy: Policy | None, output_dir: Path, resume: Path | None) -> _Parts:
    if policy is not None and config.model.use_peft:
        add_adapters(policy, config.model, config.run.seed)
    kept = {name: _find(name, output_dir, resume) for name in (BASE_FOLDER, BASE_ADAPTERS)}
    notes: list[str] = []
    keep: dict[str, Callable[[Path], None]] = {}
    # A checkpoint is a whole model folder, or an adapter folder that names its base; else its weights are put
    # into the policy that the run started from.
    is_loadable = policy is None and not has_nameless_base(resume)
    start = policy
    if is_loadable:
        policy = load_policy(replace(config.model, model_name_or_path=str(resume), gguf_file=None))
    elif policy is None:
        notes.append(_AGAIN)
        policy = start = build_policy(config, make_env)
    reference = None
    if config.update.beta > 0 and hasattr(policy.model, "peft_config"):
        adapters, name = _start_adapters(config, policy, kept[BASE_ADAPTERS])
        reference = Reference(policy, adapters)
        notes.append(_SAYS.format(name))
    elif config.update.beta > 0:
        place = f", read from {kept[BASE_FOLDER]}" if kept[BASE_FOLDER] else ""
        if start is None and not place and _is_made(config, make_env):
            notes.append(_AGAIN)
            start = build_policy(config, make_env)
            keep[BASE_FOLDER] = start.save
        reference = Reference(_start_model(config, make_env, start, kept[BASE_FOLDER]))
        notes.append(_SAYS.format(f"the policy that started the run{place}"))
    if not is_loadable:
        load_saved_weights(policy, resume)
    return policy, reference, notes, keep


def _start_model(config: Config, make_env: MakeEnv, start: Policy | None, kept: Path | None) -> Policy:
    """Return the policy that a resumed run of all weights started from; `start` gets the weights that were kept."""
    if start is None:
        if kept is None:
            return build_policy(config, make_env)
        return load_policy(replace(config.model, model_name_or_path=str(kept), gguf_file=None))
    if kept is not None:
        load_saved_weights(start, kept)
    return start


def _start_adapters(config: Config, policy: Policy, kept: Path | None) -> tuple[dict[str, Tensor] | None, str]:
    """Return the values of the adapters that a resumed run started with, None for fresh ones, and what to call them."""
    name = config.model.model_name_or_path
    folder = kept or (Path(name).expanduser() if holds_adapters(name) else None)
    if folder is None or config.update.reference == "base":
        return None, "the model under the adapters"
    return read_saved_weights(policy.model, folder), f"the adapters that the run started from, read from {folder}"


def _find(name: str, output_dir: Path, resume: Path) -> Path | None:
    """Return the folder `name` of the run, which may have been started in another place than it is resumed in."""
    return next((folder / name for folder in (output_dir, resume.parent) if (folder / name).is_dir()), None)


_LOW_RATE = (
    "Warning: `learning_rate` {:g} is a rate for training all weights; adapters need about ten times that and would "
    "hardly move: try `--learning_rate {:g}`."
)
_SAYS = "The KL's reference is {}."
_AGAIN = (
    "The run's folder does not hold the built-in model that the run started from (an earlier version did not keep it): "
    "it is made again, which takes minutes."
)
