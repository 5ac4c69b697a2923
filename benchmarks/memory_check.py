"""Real tensors against the formulas of `memory.py`: state, activations and peaks of a small model.

On a CPU live tensor storages are summed: those that Python can reach (weights, gradients, moments, shards), and those
that operations make and free (activations, peaks; one process only). On a GPU torch's allocator says the peak.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import torch
from memory import (
    LOGITS_CHUNK,
    ZERO_BUCKET,
    Setup,
    Shape,
    activations,
    logits,
    rest,
    sampling_copy,
    state,
    update_peak,
    working,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Adds up the storages that operations make, until they are freed, and remembers the most.

    What operations only read, or write in place, was there before and is not counted.
    """

    def __init__(self) -> None:
        """Start at nothing."""
        super().__init__()
        self.now = self.peak = 0
        self._seen: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run an operation and note the storages of what it returns."""
        self._note((args, kwargs), weight=0)
        result = func(*args, **(kwargs or {}))
        self._note(result, weight=1)
        return result

    def _note(self, tree: Any, weight: int) -> None:
        for tensor in tree_leaves(tree):
            if isinstance(tensor, Tensor) and tensor.device.type != "meta":
                self._follow(tensor.untyped_storage(), weight)

    def _follow(self, storage: Any, weight: int) -> None:
        key, size = storage._cdata, weight * storage.nbytes()  # noqa: SLF001 - torch's one name for the storage itself
        if key in self._seen:
            return

        def gone(_: Any) -> None:
            self.now -= size
            del self._seen[key]

        self._seen[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def live_bytes() -> int:
    """Return the bytes of all tensors that Python can reach, each storage once, this process's part of shared ones."""
    from torch.distributed.tensor import DTensor

    gc.collect()
    found: dict[int, int] = {}
    tensors = [item for item in gc.get_objects() if issubclass(type(item), Tensor)]
    tensors += [item.grad for item in tensors if item.is_leaf and item.grad is not None]
    for tensor in tensors:
        tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if tensor.device.type == "meta" or tensor.layout is not torch.strided:
            continue
        storage = tensor.untyped_storage()
        # DeepSpeed's bucket is as large for every model and has a term of its own.
        if storage.nbytes() < ZERO_BUCKET:
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def check(
    shape: Shape, *, lora_rank: int = 0, checkpointing: bool = False, rows: int = 2, length: int = 48
) -> dict[str, tuple[float, float]]:
    """Train a random model for two updates as the launcher says; return {what: (measured, formula)} in bytes."""
    from metarl_agents.policy.processes import start_processes
    from metarl_agents.policy.sharding import build_sharding

    accelerator = start_processes(timeout_s=600)
    before, sharding = live_bytes(), build_sharding(accelerator, max_grad_norm=1.0)
    setup = Setup(shape, sharding.kind, accelerator.num_processes, lora_rank, accelerator.mixed_precision == "bf16")
    setup = replace(setup, micro_batch_tokens=rows * length, checkpointing=checkpointing)
    policy = _lay_out(setup, sharding, accelerator.device)
    ids = torch.randint(5, shape.vocabulary, (rows, length), device=accelerator.device)
    found: dict[str, tuple[float, float]] = {}
    for _ in range(2):  # the first update makes the moments
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        with LiveBytes() as live:
            kept = _passes(sharding, ids, live)
        found["after the backward pass"] = (live_bytes() - before, state(setup))
        with live:
            sharding.step()
        bucket = working(setup)["bucket"] if setup.sharding == "zero3" else 0.0
        found["at rest"] = (live_bytes() - before, rest(setup) - bucket)
    if setup.sharding == "whole" and setup.processes == 1:
        parts = working(setup)
        # Logits of a single chunk wait for the backward pass in two of their four forms; several are made again.
        waiting = logits(setup) / 2 if shape.vocabulary * ids.numel() <= LOGITS_CHUNK else 0.0
        # Casts of recomputed blocks go with the forward pass; the head's stays.
        cast = min(parts["cast"], 2 * shape.outside) if checkpointing else parts["cast"]
        found["kept by a forward pass"] = (kept, activations(setup) + cast + parts["hidden"] + waiting)
        peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else found["at rest"][0] + live.peak
        found["an update, at most"] = (peak, update_peak(setup))
    with sharding.sampling(policy):
        held = live_bytes() - before
        found["while sampling, without its cache"] = (held, found["at rest"][1] + sampling_copy(setup))
    return found


def _passes(sharding: Any, ids: Tensor, live: LiveBytes) -> int:
    """Run forward and backward on rows that are nearly all response; return what the forward pass left alive."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    response = mask.clone()
    response[:, 0] = False
    with sharding.micro_batch(last=True):
        scores = sharding.scorer(ids, mask, response)
        kept = live.now
        sharding.backward(-scores.logprobs.sum())
    return kept


def _lay_out(setup: Setup, sharding: Any, device: torch.device) -> Any:
    """Return a random policy whose scorer lies on the processes."""
    from metarl_agents.config import ModelConfig
    from metarl_agents.policy.adapters import add_adapters
    from metarl_agents.policy.mode import recompute_activations
    from metarl_agents.policy.policy import Policy
    from metarl_agents.policy.scoring import TokenScorer
    from metarl_agents.policy.tiny import build_tokenizer

    narrow = setup.lora_rank and setup.bf16
    model = random_model(setup.shape, torch.bfloat16 if narrow else torch.float32, device)
    policy = Policy(model, build_tokenizer())
    if setup.lora_rank:
        add_adapters(policy, ModelConfig(use_peft=True, lora_r=setup.lora_rank))
    if setup.checkpointing:
        recompute_activations(policy.model)
    sharding.prepare(
        TokenScorer(policy.model),
        lambda scorer: torch.optim.AdamW([p for p in scorer.parameters() if p.requires_grad], lr=1e-6),
    )
    return policy


def random_model(shape: Shape, dtype: torch.dtype, device: torch.device | str, **settings: Any) -> Any:
    """Return a Qwen3 of this shape with random weights, made on `device`; nothing is downloaded."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
        **settings,
    )
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return Qwen3ForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
