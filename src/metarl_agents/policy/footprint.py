"""How much memory training a given model takes in one process: weights and optimizer counted, activations measured.

The activations are what autograd keeps for the backward pass of the library's own scorer, for two short rows; their
difference is what one more token costs. `benchmarks/memory.py` has formulas for several GPUs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.scoring import TokenScorer, base_model

_SHORT, _LONG = 32, 96
"""Tokens of the rows that are measured."""


def training_state(model: Any) -> int:
    """Return the bytes of weights, and of gradients and AdamW's two moments of those that are trained."""
    return sum(
        parameter.nbytes * (4 if parameter.requires_grad else 1)
        for parameter in model.parameters()  # tied weights come once
    )


def activations_per_token(policy: Policy) -> float:
    """Return the bytes that one more token of a micro-batch keeps for the backward pass.

    Logits are left out, since they are made and freed in chunks of a fixed size. A kernel that keeps a matrix of all
    pairs of tokens (`eager` attention) takes more in long rows.
    """
    return (_kept(policy, _LONG) - _kept(policy, _SHORT)) / (_LONG - _SHORT)


def checkpointed_per_token(policy: Policy, per_token: float) -> float:
    """Return the same with `--gradient_checkpointing`: each layer's input, and one layer's activations at a time.

    Args:
        policy: the policy that was measured.
        per_token: what `activations_per_token` returned.
    """
    shape = policy.model.config.get_text_config()
    layers = getattr(shape, "num_hidden_layers", None) or 1
    return layers * shape.hidden_size * base_model(policy.model).dtype.itemsize + per_token / layers


def _kept(policy: Policy, length: int) -> int:
    prompt = policy.encode([{"role": "user", "content": "Which of the two doors?"}])
    row = (prompt * length)[:length]
    rows = right_pad([row[:-1]], [row[-1:]], policy.pad_id)
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    scorer = TokenScorer(policy.model)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = scorer(*(part.to(policy.model.device) for part in rows))
    del scores  # until here the graph kept what was noted, so that no address came twice
    return sum(kept.values())
