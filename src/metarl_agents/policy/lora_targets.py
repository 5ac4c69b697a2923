"""Which modules of a model LoRA adapters fit.

Three things can go wrong. A module may be of a kind that peft does not adapt. peft may refuse it in this family
(Mamba's `out_proj`). And the network may read a layer's weight without calling the layer (Jamba's `dt_proj`), or
expect more than one tensor from it (Llama 4's router), so that an adapter there is passed over or fails later.
"""

from __future__ import annotations

import copy
import difflib
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.policy.gguf import names_gguf

if TYPE_CHECKING:
    from peft import LoraConfig

ALL_LINEAR = "all-linear"
"""peft's word for every linear layer but the output head."""


def check_lora_targets(config: ModelConfig) -> None:
    """Refuse targets that are not in the model or cannot be adapted, without loading a weight.

    peft itself passes over an unknown name where another one of the list fits.

    Raises:
        ConfigError: with the nearest module's name, or with the names that fit.
    """
    if config.use_peft and _given(config) and (model := _weightless(config)) is not None:
        _check_given(config, model)


def lora_config(model: Any, config: ModelConfig) -> LoraConfig:
    """Return peft's configuration of adapters that fit `model`.

    Args:
        model: the model, weights included; it is not changed.
        config: rank, scale and targets; without targets, every linear layer that adapters fit except the output head.

    Raises:
        ConfigError: a target is no module of the model, or cannot be adapted.
    """
    skeleton = _skeleton(model)
    passed_over = _passed_over(model)
    if given := _given(config):
        _check_given(config, skeleton)
        for target in given:
            matched = [name for name, _ in model.named_modules() if _matches(name, target)]
            if any(name.rpartition(".")[2] in passed_over for name in matched):
                raise _misfit(target, model, passed_over)
        return _peft_config(config, given)
    refused = sorted(passed_over)
    if _refusal(skeleton, _peft_config(config, ALL_LINEAR, refused)):
        ends = {name.rpartition(".")[2] for name in linear_layers(model)} - passed_over
        refused = sorted(passed_over | {end for end in ends if _refusal(skeleton, _peft_config(config, [end]))})
    chosen = _peft_config(config, ALL_LINEAR, refused)
    if reason := _refusal(skeleton, chosen):
        raise ConfigError(f"`--use_peft` finds no layers of this model that take the adapters: {reason}")
    return chosen


def linear_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return {name: module} of the linear layers, the output head left out."""
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    kinds = (nn.Linear, Conv1D)
    return {name: part for name, part in model.named_modules() if isinstance(part, kinds) and part is not head}


def _given(config: ModelConfig) -> list[str]:
    """Return the targets that the user names, [] for the default."""
    named = config.lora_target_modules or []
    return [] if named == [ALL_LINEAR] else named


def _peft_config(config: ModelConfig, targets: list[str] | str, refused: list[str] | None = None) -> LoraConfig:
    from peft import LoraConfig

    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=targets,
        exclude_modules=refused or None,
        task_type="CAUSAL_LM",
    )


def _check_given(config: ModelConfig, skeleton: nn.Module) -> None:
    """Refuse a target that no module is called, or that peft cannot adapt."""
    given = _given(config)
    names = [name for name, _ in skeleton.named_modules()]
    for target in given:
        if not any(_matches(name, target) for name in names):
            ends = sorted({name.rpartition(".")[2] for name in names})
            near = difflib.get_close_matches(target, ends, n=1)
            hint = f"Did you mean {near[0]}?" if near else "Leave the setting out to adapt all linear layers."
            raise ConfigError(f"`lora_target_modules` names {target}, but the model has no such module. {hint}")
    if reason := _refusal(skeleton, _peft_config(config, given)):
        for target in given:
            if _refusal(skeleton, _peft_config(config, [target])):
                raise _misfit(target, skeleton, set())
        raise ConfigError(f"`lora_target_modules` {', '.join(given)} cannot be adapted together: {reason}")


def _misfit(target: str, model: nn.Module, passed_over: set[str]) -> ConfigError:
    skeleton, plain = _skeleton(model), ModelConfig()
    ends = sorted({name.rpartition(".")[2] for name in linear_layers(model)} - passed_over)
    fitting = [end for end in ends if not _refusal(skeleton, _peft_config(plain, [end]))]
    return ConfigError(
        f"`lora_target_modules` names {target}, but an adapter cannot work there in this model: name any of "
        f"{', '.join(fitting)}, or leave the setting out to adapt them all."
    )


def _matches(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _refusal(skeleton: nn.Module, lora: LoraConfig) -> str | None:
    """Return why peft does not put these adapters on a copy of `skeleton`, or None where it does."""
    from peft import get_peft_model

    try:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            get_peft_model(copy.deepcopy(skeleton), copy.deepcopy(lora))
    except (ValueError, TypeError, RuntimeError) as error:
        return " ".join(str(error).split())[:300]
    return None


def _skeleton(model: nn.Module) -> nn.Module:
    """Copy the structure of a model without its weights."""
    empty = {id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(model, empty)


def _passed_over(model: Any) -> set[str]:
    """Return the last names of linear layers that a forward pass does not call, or that return no single tensor.

    Asked of the model, so that no list of families has to be kept. A layer of a name is enough: an expert that a
    few tokens are not routed to has siblings that they are.
    """
    layers = linear_layers(model)
    answering: set[str] = set()

    def note(end: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                answering.add(end)

        return hook

    hooks = [layer.register_forward_hook(note(name.rpartition(".")[2])) for name, layer in layers.items()]
    weight = model.get_input_embeddings().weight
    ids = torch.arange(min(4, weight.shape[0]), device=weight.device).view(1, -1)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
    return {name.rpartition(".")[2] for name in layers} - answering


def _weightless(config: ModelConfig) -> Any | None:
    """Return the model without weights, or None where its shape cannot be told before loading."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from metarl_agents.policy.loading import TINY
    from metarl_agents.policy.tiny import build_model, build_tokenizer

    if config.model_name_or_path == TINY:
        return build_model(build_tokenizer())
    if config.gguf_file or names_gguf(config.model_name_or_path):
        return None
    try:
        shape = AutoConfig.from_pretrained(config.model_name_or_path, trust_remote_code=config.trust_remote_code)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(shape, trust_remote_code=config.trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError):
        return None  # loading says it better
