"""LoRA through peft, which is imported only when used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metarl_agents.config import ModelConfig
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.policy.lora_targets import lora_config
from metarl_agents.policy.mode import be_deterministic
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.quiet import quiet_peft, quiet_progress


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
        with torch.random.fork_rng(), quiet_peft():
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
            names = _saved_names(model)
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


def _saved_names(model: Any) -> dict[str, str]:
    """Return {name in a file of adapters: name of the parameter} of what is trained."""
    from peft import get_peft_model_state_dict

    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    # peft names whatever it is given, so numbers stand in for weights.
    marks = {name: torch.tensor([number]) for number, name in enumerate(trained)}
    written = get_peft_model_state_dict(model, state_dict=marks, save_embedding_layers=False)
    return {name: trained[int(mark)] for name, mark in written.items()}


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


def holds_adapters(name: str | Path) -> bool:
    """Whether `name` is a folder of saved adapters."""
    return (Path(name).expanduser() / "adapter_config.json").is_file()


def has_nameless_base(folder: str | Path) -> bool:
    """Whether `folder` holds adapters of a model that was never saved under a name, so that it must be made again."""
    file = Path(folder) / "adapter_config.json"
    return file.is_file() and not json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
