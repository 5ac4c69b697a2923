"""How much memory training takes on each GPU: formulas, a table, and a check of the formulas against real tensors.

    python benchmarks/memory.py                                     # the table for 0.6B, 4B and 8B on 1 and 8 GPUs
    python benchmarks/memory.py --prompt_tokens 900 --trials 64     # for another workload
    python benchmarks/memory.py --check [--lora]                    # a small model, one process: measured / formula
    accelerate launch --config_file recipes/accelerate_configs/cpu_zero3.yaml benchmarks/memory.py --check

Bytes are counted for Qwen3-like blocks (grouped-query attention with normed queries and keys, SwiGLU), AdamW, and the
library's own layout of weights (`metarl_agents.policy.sharding`). Left out: CUDA's context and libraries (about a GiB),
the allocator's fragmentation, a critic, the reference of `--beta`. `memory_check.py` is what `--check` runs.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

GIB = 2**30
LOGITS_CHUNK = 2**24
"""Logits that exist at once while scoring (`metarl_agents.policy.scoring`)."""
ZERO_BUCKET = 5 * 10**8
"""Elements of DeepSpeed's reduction bucket, its default; the same for every model."""
ZERO3_LIVE = 10**9
"""Weights that ZeRO-3 keeps gathered at most, its default."""


@dataclass(frozen=True)
class Shape:
    """A Qwen3-like network."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    head_dim: int = 128
    vocabulary: int = 151_936
    tied: bool = True

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of the linear layers of one block: those that adapters sit on."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = [(self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden)]
        return [*attention, (self.hidden, self.intermediate), (self.hidden, self.intermediate)] + [
            (self.intermediate, self.hidden)
        ]

    @property
    def block(self) -> int:
        """Parameters of one block."""
        return sum(one * other for one, other in self.linears) + 2 * self.hidden + 2 * self.head_dim

    @property
    def outside(self) -> int:
        """Parameters of embedding, head and final norm."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.layers * self.block + self.outside

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters on all linear layers."""
        return self.layers * rank * sum(one + other for one, other in self.linears)

    @property
    def kv_elements(self) -> int:
        """Numbers that the cache keeps for one token."""
        return 2 * self.layers * self.kv_heads * self.head_dim


MODELS = {
    "0.6B": Shape(hidden=1024, layers=28, heads=16, kv_heads=8, intermediate=3072),
    "4B": Shape(hidden=2560, layers=36, heads=32, kv_heads=8, intermediate=9728),
    "8B": Shape(hidden=4096, layers=36, heads=32, kv_heads=8, intermediate=12_288, tied=False),
}
SMALL = Shape(hidden=512, layers=8, heads=8, kv_heads=4, intermediate=1536, head_dim=64, vocabulary=16_000)
"""The model of `--check`: 33M parameters."""


@dataclass(frozen=True)
class Setup:
    """How a network is trained."""

    shape: Shape
    sharding: str = "whole"
    """`whole`, `zero2`, `zero3` or `fsdp2`, as `Sharding.kind` says."""
    processes: int = 1
    lora_rank: int = 0
    """0: all weights are trained."""
    bf16: bool = True
    """The launcher's `mixed_precision`; False: everything in fp32."""
    checkpointing: bool = False
    micro_batch_tokens: int = 16_384
    rows: int = 128
    """Trials that this process plays at once."""
    prompt_tokens: int = 2048
    response_tokens: int = 1024
    generate_tokens: int = 262_144

    @property
    def trained(self) -> int:
        """Parameters that the optimizer moves."""
        return self.shape.adapters(self.lora_rank) if self.lora_rank else self.shape.parameters

    @property
    def narrow(self) -> int:
        """Bytes of a number in matrix products."""
        return 2 if self.bf16 else 4

    @property
    def is_zero(self) -> bool:
        """Whether DeepSpeed holds the weights."""
        return self.sharding.startswith("zero")


def held(setup: Setup) -> dict[str, float]:
    """Return the bytes that one process holds from step to step, and the gradients of an update.

    DeepSpeed keeps the computing weights in bf16 and fp32 masters beside them; elsewhere the trained weights are the
    masters. `buckets`: what plain data parallelism averages gradients in, as large as all of them.
    """
    shape, trained, parts = setup.shape, setup.trained, setup.processes
    frozen = shape.parameters if setup.lora_rank else 0
    shared = 1 if setup.sharding == "whole" else parts
    weights = (frozen + trained) * setup.narrow if setup.is_zero else frozen * setup.narrow + trained * 4
    return {
        "weights": weights / (parts if setup.sharding in ("zero3", "fsdp2") else 1),
        "masters": 4 * trained / shared if setup.is_zero else 0.0,
        "moments": 8 * trained / shared,
        "gradients": 4 * trained / shared,
        "buckets": 4.0 * trained if setup.sharding == "whole" and parts > 1 else 0.0,
    }


def state(setup: Setup) -> float:
    """Return the bytes of `held` together."""
    return sum(held(setup).values())


def rest(setup: Setup) -> float:
    """Return the bytes between updates, when gradients are gone (ZeRO-3 keeps them, and its bucket)."""
    if setup.sharding == "zero3":
        return state(setup) + ZERO_BUCKET * setup.narrow
    return state(setup) - held(setup)["gradients"]


def sampling_copy(setup: Setup) -> float:
    """Return the bytes of the whole weights that a rollout samples with, where it does not use the trained ones."""
    narrows = setup.sharding == "whole" and setup.bf16 and not setup.lora_rank
    if not (narrows or setup.sharding in ("zero3", "fsdp2")):
        return 0.0
    adapters = setup.trained if setup.lora_rank else 0
    return float(setup.narrow * (setup.shape.parameters + adapters))


def generation(setup: Setup) -> float:
    """Return the most that the cache and the work of one `generate` call take.

    Either the whole cache with one token's logits in four fp32 forms, or, while prompts are read, their part of the
    cache with one block's widest tensors.
    """
    length = setup.prompt_tokens + setup.response_tokens
    rows = max(1, min(setup.rows, setup.generate_tokens // length))
    cache = rows * setup.shape.kv_elements * setup.narrow
    reading = rows * setup.prompt_tokens * setup.narrow * (3 * setup.shape.intermediate + 4 * setup.shape.hidden)
    return max(
        cache * length + rows * 16 * setup.shape.vocabulary,
        cache * setup.prompt_tokens + reading,
    )


def block_activations(setup: Setup) -> float:
    """Return the bytes that one block keeps for the backward pass, for each token.

    Counted tensor by tensor: the two norms (fp32 input, normed value), the inputs of the linear layers, queries and
    keys before and after their norm, what attention keeps (keys and values repeated for each query head), SwiGLU's
    four. Under autocast over fp32 weights the residual stream is fp32, and each linear layer casts its own input.
    Frozen layers keep no input of their own; each adapter keeps one in bf16 and its `rank` numbers.
    """
    shape, narrow, rank = setup.shape, setup.narrow, setup.lora_rank
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    mlp = 4 * narrow * shape.intermediate
    if rank:
        own = 4 * (queries + keys) + 5 * narrow * queries + (2 * 4 + 5 * narrow) * shape.hidden
        return own + mlp + 7 * narrow * rank
    stream = 2 * 8 + 5 * narrow if _stream_is_fp32(setup) else 2 * (4 + 2 * narrow)
    return (4 + narrow) * (queries + keys) + 4 * narrow * queries + stream * shape.hidden + mlp


def activations(setup: Setup) -> float:
    """Return the bytes that a forward pass over one micro-batch keeps: of all blocks, or each block's input alone."""
    if setup.checkpointing:
        stream = 4 if _stream_is_fp32(setup) else setup.narrow
        return float(setup.shape.layers * stream * setup.shape.hidden * setup.micro_batch_tokens)
    return setup.shape.layers * block_activations(setup) * setup.micro_batch_tokens


def logits(setup: Setup) -> float:
    """Return the bytes of the logits at once: log-probabilities, probabilities and two gradients, in fp32."""
    return 16.0 * min(LOGITS_CHUNK, setup.shape.vocabulary * setup.micro_batch_tokens)


def working(setup: Setup) -> dict[str, float]:
    """Return what the passes of an update need beside `state` and `activations`.

    `top`: one chunk of logits in four fp32 forms or, later, one block's gradients (and the block, if it is recomputed).
    `hidden`: the last norm and the states that the head reads. `cast`: bf16 copies of matrices, which autocast keeps
    through a pass. `gathered`: whole weights of a few layers under ZeRO-3 and FSDP2. `bucket`: DeepSpeed's.
    """
    shape, narrow = setup.shape, setup.narrow
    matrices = shape.parameters - (0 if shape.tied else shape.vocabulary * shape.hidden)
    backward = narrow * (3.0 * shape.intermediate + 4 * shape.hidden) + setup.checkpointing * block_activations(setup)
    gathered = {
        "zero3": narrow * min(shape.parameters, ZERO3_LIVE),
        "fsdp2": narrow * (2 * shape.block + shape.outside) + (0 if setup.lora_rank else 4 * shape.outside),
    }
    return {
        "top": max(logits(setup), backward * setup.micro_batch_tokens),
        "hidden": 12.0 * shape.hidden * setup.micro_batch_tokens,
        "cast": 2.0 * matrices if _stream_is_fp32(setup) else 0.0,
        "gathered": float(gathered.get(setup.sharding, 0)),
        "bucket": float(ZERO_BUCKET * narrow if setup.is_zero else 0),
    }


def rollout_peak(setup: Setup) -> float:
    """Return the most bytes while trials are played."""
    return rest(setup) + sampling_copy(setup) + generation(setup)


def update_peak(setup: Setup) -> float:
    """Return the most bytes in an update: in its passes, or in AdamW's step (a root of the second moments, in fp32)."""
    step = 4 * setup.trained / (1 if setup.sharding == "whole" else setup.processes)
    return state(setup) + max(activations(setup) + sum(working(setup).values()), step)


def _stream_is_fp32(setup: Setup) -> bool:
    """Whether activations between blocks are fp32 beside bf16 matrix products: autocast over fp32 weights."""
    return setup.bf16 and setup.sharding == "whole" and not setup.lora_rank


# ---- the table ---------------------------------------------------------------------------------------------------

HEAD = "| model | trained | weights | GPUs | at rest | rollout | update | update, checkpointing |"


def table(workload: dict[str, int], *, trials: int, gpu_gib: float) -> str:
    """Return the table in Markdown, in GiB a GPU; what exceeds `gpu_gib` is marked."""
    lines = [HEAD, "|---|---|---|---|---|---|---|---|"]
    for name, shape in MODELS.items():
        for sharding, gpus, rank in [
            *(("whole", 1, rank) for rank in (0, 16)),
            *((sharding, 8, 0) for sharding in ("whole", "zero2", "zero3", "fsdp2")),
            *((sharding, 8, 16) for sharding in ("whole", "zero2", "zero3")),
        ]:
            setup = Setup(shape, sharding, gpus, rank, rows=max(1, trials // gpus), **workload)
            sizes = [
                rest(setup),
                rollout_peak(setup),
                update_peak(setup),
                update_peak(replace(setup, checkpointing=True)),
            ]
            cells = [f"{size / GIB:.1f}" + (" (!)" if size / GIB > gpu_gib else "") for size in sizes]
            kind = f"LoRA, rank {rank}" if rank else "all"
            lines.append(f"| {name} | {kind} | {sharding} | {gpus} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="measure a small model instead")
    parser.add_argument("--lora", action="store_true", help="with --check: adapters of rank 16")
    parser.add_argument("--gradient_checkpointing", action="store_true", help="with --check: recompute activations")
    parser.add_argument("--trials", type=int, default=128, help="trials of a step, over all GPUs")
    parser.add_argument("--gpu_gib", type=float, default=78.0, help="what is marked as too much")
    for name in ("prompt_tokens", "response_tokens", "generate_tokens", "micro_batch_tokens"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Setup, name))
    chosen = vars(parser.parse_args())
    names = ("check", "lora", "gradient_checkpointing", "trials", "gpu_gib")
    wants_check, lora, checkpointing, trials, gpu_gib = (chosen.pop(name) for name in names)
    if wants_check:
        from memory_check import check

        if "RANK" not in os.environ:  # alone, as `accelerate launch --mixed_precision bf16` would start it
            os.environ.setdefault("ACCELERATE_MIXED_PRECISION", "bf16")
        for name, (measured, formula) in check(SMALL, lora_rank=16 * lora, checkpointing=checkpointing).items():
            if os.environ.get("RANK", "0") == "0":
                sizes = f"measured {measured / 1e6:8.1f} MB, formula {formula / 1e6:8.1f} MB"
                print(f"{name:34} {sizes}: {measured / formula:.3f}")
        return
    print(table(chosen, trials=trials, gpu_gib=gpu_gib))


if __name__ == "__main__":
    main()
