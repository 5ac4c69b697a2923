"""LoRA through peft, and the frozen reference. peft is imported only when used."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from metarl_agents.config import ModelConfig
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.scoring import TokenScorer, disable_dropout


def add_adapters(policy: Policy, config: ModelConfig, seed: int = 0) -> None:
    """Put LoRA adapters on the policy's model; from then on only they are trained. `seed` decides how they start.

    Raises:
        ConfigError: peft is not installed, or it finds no module to adapt.
    """
    if hasattr(policy.model, "peft_config"):
        return
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise ConfigError("`--use_peft` needs the package peft: pip install peft.") from None
    lora = LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=config.lora_target_modules or "all-linear",
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            policy.model = get_peft_model(policy.model, lora)
    except ValueError as error:
        raise ConfigError(f"`lora_target_modules`: {' '.join(str(error).split())[:300]}") from None
    disable_dropout(policy.model)


def load_saved_weights(policy: Policy, folder: str | Path) -> None:
    """Give the policy the weights (or, where it has adapters, the adapters) that `Policy.save` wrote to `folder`.

    Raises:
        CheckpointError: the folder's weights do not fit this policy.
    """
    try:
        if hasattr(policy.model, "peft_config"):
            from peft import load_peft_weights, set_peft_model_state_dict

            set_peft_model_state_dict(policy.model, load_peft_weights(str(folder), device="cpu"))
        else:
            saved = type(policy.model).from_pretrained(folder, dtype=policy.model.dtype)
            policy.model.load_state_dict(saved.state_dict())
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"the weights in {folder} do not fit this policy: {reason}") from None


def has_nameless_base(folder: str | Path) -> bool:
    """Whether `folder` holds adapters of a model that was never saved under a name, so that it must be made again."""
    file = Path(folder) / "adapter_config.json"
    return file.is_file() and not json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")


class Reference:
    """The frozen policy that KL is measured against: a copy, or the base with its adapters switched off."""

    def __init__(self, policy: Policy) -> None:
        """Remember the policy as it is now."""
        self._adapted = policy.model if hasattr(policy.model, "peft_config") else None
        self._copy = None if self._adapted is not None else copy.deepcopy(policy.model).requires_grad_(False).eval()

    @contextmanager
    def scorer(self, current: nn.Module) -> Iterator[nn.Module]:
        """Yield a module that scores rows with the reference's weights; `current` is the policy's scorer."""
        if self._adapted is None:
            yield TokenScorer(self._copy)
        else:
            with self._adapted.disable_adapter():
                yield current

    def to(self, device: Any) -> None:
        """Move the copy, where there is one, to where the policy computes."""
        if self._copy is not None:
            self._copy.to(device)
