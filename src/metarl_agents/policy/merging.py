"""Adapters worked into the weights of their base, and the proof that nothing else has changed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metarl_agents.config import ModelConfig
from metarl_agents.errors import CheckpointError

_TOKENS = 32
_EXACT = 1e-4
"""Largest difference of logits, as a share of the largest logit (at least 1), in fp32."""
_NARROW = 0.05
"""The same where weights are kept in 16 bits: the sum of two weights is rounded there."""


def merge_adapters(folder: Path, config: ModelConfig, target: Path) -> list[str]:
    """Write the base model with the adapters of `folder` worked into its weights to `target`, tokenizer included.

    What was written is loaded and scores a few tokens, which must be the scores of base and adapters.

    Returns:
        Sentences on what is different about the merged model.

    Raises:
        CheckpointError: the merged model would be another one than base and adapters; `target` is left half-written.
    """
    from metarl_agents.policy.loading import load_policy

    policy = load_policy(replace(config, model_name_or_path=str(folder), gguf_file=None))
    expected, narrow = _logits(policy.model), _is_narrow(policy.model)
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
    policy.save(target)
    del policy
    found = _logits(load_policy(replace(config, model_name_or_path=str(target), gguf_file=None)).model)
    gap = float((found - expected).abs().max()) if found.shape == expected.shape else float("inf")
    limit = (_NARROW if narrow else _EXACT) * max(1.0, float(expected.abs().max()))
    if not gap <= limit:
        raise CheckpointError(
            f"merging the adapters into this model gives another one (logits differ by {gap:.3g}, allowed are "
            f"{limit:.1g}), so no merged model is kept: load the adapters in {folder} on their base instead."
        )
    return notes


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


def _is_narrow(model: nn.Module) -> bool:
    return any(parameter.dtype in (torch.bfloat16, torch.float16) for parameter in model.parameters())


@torch.no_grad()
def _logits(model: Any) -> Tensor:
    """Return the logits of tokens from all over the vocabulary, (1, n, V) in fp32."""
    model.eval()
    weight = model.get_input_embeddings().weight
    ids = torch.linspace(0, weight.shape[0] - 1, _TOKENS, device=weight.device).long().view(1, -1)
    return model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits.float()
