"""The network's mode: deterministic in sampling and in learning alike, whether or not activations are recomputed.

Rollout, old log-probabilities, reference, critic and update must see one network (method, section 6). Whatever is
random in a network of transformers or peft (dropout under any name, layer drop, router noise) asks its module's
`training` flag, so every module is in eval mode whenever the sampler or a scorer runs. transformers recomputes
activations in training mode only; therefore recomputation is arranged here, without that flag.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from metarl_agents.errors import ConfigError

_SHARE = 0.1
"""A list of modules with a smaller part of the weights in such lists is not one of the network's stacks of layers."""


def be_deterministic(module: nn.Module) -> None:
    """Put every part of `module` in eval mode, in place; gradients are not touched.

    The sampler and the scorers call it before they run, because wrappers (peft, DeepSpeed) and callers switch modes.
    """
    if any(part.training for part in module.modules()):
        module.eval()


@torch.no_grad()
def refuse_noise(model: Any, name: str) -> None:
    """Refuse a model that is random in eval mode.

    Args:
        model: a causal language model with whole weights.
        name: what the user calls it.

    Raises:
        ConfigError: two passes over the same tokens differ.
    """
    be_deterministic(model)
    device = model.get_input_embeddings().weight.device
    ids = torch.arange(4, device=device).view(1, -1)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        passes = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            passes.append(model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits.float())
    if not torch.allclose(*passes, rtol=1e-3, atol=1e-3, equal_nan=True):
        gap = float((passes[0] - passes[1]).abs().max())
        raise ConfigError(
            f"the model {name} is random although it is in eval mode (two passes over the same tokens differ by "
            f"{gap:.2g} in their logits), so what is sampled could not be scored: switch its noise off in its "
            "config.json."
        )


def recompute_activations(module: nn.Module) -> None:
    """Let the backward pass recompute what happens inside each layer of `module`; only a layer's inputs are kept.

    Nothing changes without gradients, so generation keeps its cache.

    Raises:
        ConfigError: the network has no list of layers.
    """
    layers = repeated_layers(module)
    if not layers:
        raise ConfigError(
            f"`gradient_checkpointing` recomputes a network layer by layer, but {type(module).__name__} keeps no list "
            "of layers: leave the flag out and lower `--max_tokens_per_micro_batch`."
        )
    for layer in layers:
        # A bound method, because a copy of the network then calls the copied layer. `forward` and not `__call__`, so
        # that hooks of ZeRO-3 and FSDP2 on the layer run once.
        layer.forward = types.MethodType(_recomputed, layer)


def repeated_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that a network stacks: members of its outermost module lists, small lists left out."""
    lists = list(_outermost_lists(module))
    sizes = [sum(parameter.numel() for parameter in one.parameters()) for one in lists]
    return [
        layer for one, size in zip(lists, sizes, strict=True) if size and size >= _SHARE * sum(sizes) for layer in one
    ]


def _outermost_lists(module: nn.Module) -> list[nn.ModuleList]:
    if isinstance(module, nn.ModuleList):
        return [module]
    return [found for child in module.children() for found in _outermost_lists(child)]


def _recomputed(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    forward = types.MethodType(type(layer).forward, layer)
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # Nothing is drawn inside, so no random state has to be kept. Shapes are not compared either: ZeRO-3 takes frozen
    # weights back before the comparison, which then sees empty ones.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, determinism_check="none", **kwargs)
