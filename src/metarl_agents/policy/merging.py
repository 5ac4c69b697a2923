"""Adapters worked into the weights of their base, and the proof that nothing else has changed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError

_TOKENS = 32
_TOLERANCE = 1e-4
"""Largest difference of logits, as a share of the largest one (at least 1)."""


def merge_adapters(folder: Path, config: ModelConfig, target: Path) -> list[str]:
    """Write the base model with the adapters of `folder` worked into its weights to `target`, tokenizer included.

    The sum is made in fp32, where it must score a few tokens as base and adapters do; then it is rounded to the dtypes
    of the base and written, and what is read again must score as what was written.

    Returns:
        Sentences on what is different about the merged model.

    Raises:
        ConfigError: the merged model would be another one than base and adapters; `target` is to be deleted.
    """
    from metarl_agents.policy.loading import load_policy

    policy = load_policy(replace(config, model_name_or_path=str(folder), gguf_file=None))
    base = policy.model.get_base_model()
    dtypes = {name.replace(".base_layer", ""): p.dtype for name, p in base.named_parameters() if "lora_" not in name}
    policy.model.float()
    expected = _logits(policy.model)
    notes = []
    if untied := _untie(policy.model):
        notes.append(
            f"The merged model has {' and '.join(untied)} of its own (`tie_word_embeddings: false`), because the "
            "adapters change one of two uses of a weight that the base shares between its embedding and its head."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft's on tied weights, which are untied by now
        policy.model = policy.model.merge_and_unload()
    if untied:
        _say_untied(policy.model.config)
    _compare(_logits(policy.model), expected, folder)
    usual = next(iter(dtypes.values()))
    for name, parameter in policy.model.named_parameters():
        parameter.data = parameter.data.to(dtypes.get(name, usual))
    written = _logits(policy.model)
    policy.save(target)
    del policy, base
    _compare(
        _logits(load_policy(replace(config, model_name_or_path=str(target), gguf_file=None)).model), written, folder
    )
    return notes


def _compare(found: Tensor, expected: Tensor, folder: Path) -> None:
    gap = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    limit = _TOLERANCE * max(1.0, float(expected.abs().max()))
    if not gap <= limit:
        raise ConfigError(
            f"`merge_and_save`: this model with the adapters merged is another one (logits differ by {gap:.3g}, "
            f"allowed are {limit:.1g}), so no merged model is kept: load {folder}, base and adapters, instead."
        )


def _untie(model: Any) -> list[str]:
    """Give each adapted layer that shares its weight with another module a weight of its own; return their names."""
    base = model.get_base_model()
    users: dict[int, int] = {}
    for part in base.modules():
        for parameter in part.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    untied = []
    for name, layer in base.named_modules():
        if not (hasattr(layer, "merge") and hasattr(layer, "get_base_layer")):
            continue
        inner = layer.get_base_layer()
        for own, parameter in list(inner.named_parameters(recurse=False)):
            if users.get(id(parameter), 0) > 1:
                users[id(parameter)] -= 1
                setattr(inner, own, nn.Parameter(parameter.detach().clone(), requires_grad=False))
                untied.append(name.rpartition(".")[2])
    return untied


def _say_untied(config: Any) -> None:
    config.tie_word_embeddings = False
    text = config.get_text_config()
    if text is not config:
        text.tie_word_embeddings = False


@torch.no_grad()
def _logits(model: Any) -> Tensor:
    """Return the logits of tokens from all over the vocabulary, (1, n, V) in fp32."""
    model.eval()
    weight = model.get_input_embeddings().weight
    ids = torch.linspace(0, weight.shape[0] - 1, _TOKENS, device=weight.device).long().view(1, -1)
    return model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits.float()
