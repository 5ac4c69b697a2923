"""LoRA through peft, and the frozen reference. peft is imported only when used."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metarl_agents.config import ModelConfig
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.policy.lora_targets import lora_config
from metarl_agents.policy.mode import be_deterministic
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.quiet import quiet_progress
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.sharding import Sharding


def add_adapters(policy: Policy, config: ModelConfig, seed: int = 0) -> None:
    """Put LoRA adapters on the policy's model; from then on only they are trained. `seed` decides how they start.

    Raises:
        ConfigError: peft is not installed, or a target is no module of the model or cannot be adapted.
    """
    if hasattr(policy.model, "peft_config"):
        return
    try:
        from peft import get_peft_model
    except ImportError:
        raise ConfigError("`--use_peft` needs the package peft: pip install peft.") from None
    lora = lora_config(policy.model, config)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            policy.model = get_peft_model(policy.model, lora)
    except ValueError as error:
        raise ConfigError(f"`lora_target_modules`: {' '.join(str(error).split())[:300]}") from None
    be_deterministic(policy.model)  # peft wraps in training mode and hands it down


def read_saved_weights(model: Any, folder: str | Path) -> dict[str, Tensor]:
    """Return what `Policy.save` wrote to `folder`, under the names of `model.named_parameters()`.

    Adapters come without the base they sit on.

    Raises:
        CheckpointError: the folder's weights do not fit this model.
    """
    try:
        if hasattr(model, "peft_config"):
            from peft import load_peft_weights

            saved = load_peft_weights(str(folder), device="cpu")
            # Files leave out the adapter's name, of which there is one: `default`.
            names = {name.replace(".default", ""): name for name, p in model.named_parameters() if p.requires_grad}
        else:
            saved = dict(type(model).from_pretrained(folder, dtype=model.dtype).named_parameters())
            names = {name: name for name, _ in model.named_parameters()}
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"the weights in {folder} do not fit this policy: {reason}") from None
    if set(saved) != set(names):
        odd = sorted(set(saved) ^ set(names))[0]
        raise CheckpointError(f"the weights in {folder} do not fit this policy: {odd} is in one of them only.")
    return {names[name]: tensor for name, tensor in saved.items()}


def load_saved_weights(policy: Policy, folder: str | Path) -> None:
    """Give the policy the weights (or, where it has adapters, the adapters) that `Policy.save` wrote to `folder`.

    Raises:
        CheckpointError: the folder's weights do not fit this policy.
    """
    saved = read_saved_weights(policy.model, folder)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if name in saved:
                parameter.copy_(saved[name])


def merge_adapters(folder: Path, config: ModelConfig, target: Path) -> None:
    """Write the base model with the adapters of `folder` worked into its weights to `target`, tokenizer included."""
    from metarl_agents.policy.loading import load_policy

    policy = load_policy(replace(config, model_name_or_path=str(folder)))
    policy.model = policy.model.merge_and_unload()
    policy.save(target)


def save_nameless_base(policy: Policy, folder: Path) -> None:
    """Write the base of adapters to `folder`, tokenizer included.

    For a base that was made in memory: without this its adapters could be loaded by nobody.
    """
    base = policy.model.get_base_model()
    # peft puts an adapted layer's own weights one level down and its adapters beside them.
    weights = {
        name.replace(".base_layer", ""): value for name, value in base.state_dict().items() if "lora_" not in name
    }
    with quiet_progress():
        base.save_pretrained(folder, state_dict=weights)
        policy.tokenizer.save_pretrained(folder)


def name_base(policy: Policy, folder: Path) -> None:
    """Note `folder` as the base that the policy's adapters belong to."""
    for config in policy.model.peft_config.values():
        config.base_model_name_or_path = str(folder.absolute())


def is_nameless(policy: Policy) -> bool:
    """Whether the policy has adapters on a base that was made in memory."""
    configs = getattr(policy.model, "peft_config", {})
    return any(not config.base_model_name_or_path for config in configs.values())


def has_nameless_base(folder: str | Path) -> bool:
    """Whether `folder` holds adapters of a model that was never saved under a name, so that it must be made again."""
    file = Path(folder) / "adapter_config.json"
    return file.is_file() and not json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")


class Reference:
    """The frozen policy that KL is measured against: a copy, or the base with its adapters switched off."""

    def __init__(self, policy: Policy) -> None:
        """Remember the policy as it is now."""
        self._adapted = policy.model if hasattr(policy.model, "peft_config") else None
        self._scorer: nn.Module | None = None
        if self._adapted is None:
            self._scorer = TokenScorer(copy.deepcopy(policy.model).requires_grad_(False))

    @contextmanager
    def scorer(self, current: nn.Module) -> Iterator[nn.Module]:
        """Yield a module that scores rows with the reference's weights; `current` is the policy's scorer."""
        if self._adapted is None:
            yield self._scorer
        else:
            with self._adapted.disable_adapter():
                yield current

    def lay_out(self, sharding: Sharding) -> None:
        """Put the copy, where there is one, on the processes as the policy is."""
        if self._scorer is not None:
            self._scorer = sharding.prepare_reference(self._scorer)
