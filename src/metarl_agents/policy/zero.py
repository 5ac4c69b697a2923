"""DeepSpeed ZeRO: everything that depends on its insides, each with the reason beside it.

Stage 2 splits gradients and the optimizer over the processes, stage 3 the weights too. DeepSpeed keeps fp32 master
weights beside bf16 ones, so a step of 1e-6 is never rounded away. Read with DeepSpeed 0.19.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from metarl_agents.errors import ConfigError
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.sharding import BuildOptimizer, Sharding, of_kind
from metarl_agents.presets import launcher_file


class ZeroSharding(Sharding):
    """ZeRO stage 2 or 3."""

    shards_optimizer = True

    def __init__(self, accelerator: Any, max_grad_norm: float) -> None:
        """Settle the launcher's DeepSpeed configuration.

        Raises:
            ConfigError: it cannot be used.
        """
        super().__init__(accelerator, max_grad_norm)
        plugin = accelerator.state.deepspeed_plugin
        settle_config(plugin.deepspeed_config, max_grad_norm)
        self.stage = int(plugin.deepspeed_config["zero_optimization"]["stage"])
        self.kind = f"zero{self.stage}"
        self.weights_are_whole = self.stage < 3
        # accelerate has told transformers to shard while loading. A model is read whole and probed (`scoring.py`)
        # before it is sharded here, whatever the launcher's `zero3_init_flag` says.
        from transformers.integrations.deepspeed import unset_hf_deepspeed_config

        unset_hf_deepspeed_config()

    def prepare_reference(self, scorer: nn.Module) -> nn.Module:
        """Under stage 3 shard the frozen scorer as well, in an engine of its own without an optimizer."""
        if self.stage < 3:
            return super().prepare_reference(scorer.to(self.compute_dtype or torch.float32))
        import deepspeed

        own = self.accelerator.state.deepspeed_plugin.deepspeed_config
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
        engine, *_ = deepspeed.initialize(model=scorer, config=config | {"bf16": own.get("bf16", {"enabled": False})})
        engine.eval()
        return engine

    def micro_batch(self, *, last: bool) -> AbstractContextManager[Any]:
        """Tell the engine where the optimizer step is: its own counter knows a fixed number of micro-batches only."""
        self.scorer.set_gradient_accumulation_boundary(last)
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Add the gradient; `Accelerator.backward` would step at once and leave no room between the two."""
        self.scorer.backward(loss)

    def step(self) -> float:
        """Clip and step inside the engine, which leaves out a step whose gradient is not finite.

        Differs: policy and critic are clipped by their common norm, elsewhere each by its own.
        """
        self.scorer.step()
        return float(self.scorer.get_global_grad_norm())

    @contextmanager
    def whole(self, parameters: list[nn.Parameter], *, write: bool = False) -> Iterator[list[Tensor]]:
        """Gather under stage 3; below it weights are whole already."""
        if self.stage < 3:
            yield [parameter.data for parameter in parameters]
            return
        import deepspeed

        with deepspeed.zero.GatheredParameters(parameters, modifier_rank=0 if write else None):
            yield [parameter.data for parameter in parameters]

    def _kept(self) -> Iterator[Tensor]:
        yield from self._masters()

    def optimizer_state(self) -> dict[str, Any]:
        """Return this process's master weights and moments.

        The engine's own checkpoint holds Python objects; these are tensors, so that they are read without running
        code, and the weights are not written a second time.
        """
        state = self.optimizer.state
        masters = self._masters()
        return {
            "kind": self.kind,
            "masters": [master.detach().cpu() for master in masters],
            "state": [dict(state.get(master, {})) for master in masters],
        }

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Put them back."""
        saved = of_kind(state, self.kind)
        for master, value, moments in zip(self._masters(), saved["masters"], saved["state"], strict=True):
            if master.shape != value.shape:
                raise ValueError("its optimizer was split over another number of processes")
            master.data.copy_(value)
            self.optimizer.state[master] = {
                key: item.to(master.device) if isinstance(item, Tensor) and item.dim() else item
                for key, item in moments.items()
            }

    def _lay_out(self, scorer: TokenScorer, build_optimizer: BuildOptimizer) -> None:
        self.scorer, _ = self.accelerator.prepare(scorer, build_optimizer(scorer))
        # The optimizer that steps on the master weights; with offloading it is another than the one that went in.
        self.optimizer = self.scorer.optimizer.optimizer

    def _samples_from_copy(self, model: nn.Module) -> bool:
        return self.stage == 3

    def _masters(self) -> list[nn.Parameter]:
        """Return the flat fp32 weights that this process steps, by DeepSpeed's private names for them."""
        zero = self.scorer.optimizer
        return list(zero.fp32_partitioned_groups_flat if self.stage == 3 else zero.single_partition_of_fp32_groups)


def compile_nothing() -> None:
    """Let DeepSpeed on a CPU do without its compiled shared-memory all-reduce.

    Compiling needs g++, ninja and Python's headers and takes minutes on a laptop; a run that is killed meanwhile
    leaves a lock that every later one waits for. gloo does the same work. Call it before processes meet.
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def settle_config(config: dict[str, Any], max_grad_norm: float) -> None:
    """Fill what the launcher left to "auto", in place, and refuse what training cannot do.

    Batch sizes mean nothing here: rows are dealt to micro-batches by tokens, and the loop says where a step ends.

    Raises:
        ConfigError: a value cannot be used.
    """
    zero = config.get("zero_optimization", {})
    stage = zero.get("stage")
    if stage not in (2, 3):
        raise ConfigError(
            f"the launcher's ZeRO stage is {stage!r}, but stages 2 and 3 are supported: set `zero_stage: 2` or 3, or "
            f"use {launcher_file('multi_gpu')} for whole weights on every process."
        )
    steps = config.get("gradient_accumulation_steps", "auto")
    if steps not in ("auto", 1):
        raise ConfigError(
            f"the launcher's `gradient_accumulation_steps` is {steps}, but micro-batches are set by "
            "`--max_tokens_per_micro_batch`: set it to 1."
        )
    micro = config.get("train_micro_batch_size_per_gpu", "auto")
    if micro != "auto" and not (isinstance(micro, int) and micro > 0):
        raise ConfigError(
            f"the launcher's `train_micro_batch_size_per_gpu` is {micro!r}, but DeepSpeed wants an integer: set it to "
            '1 (or "auto"); rows are dealt by `--max_tokens_per_micro_batch`.'
        )
    config["gradient_accumulation_steps"] = 1
    config["train_micro_batch_size_per_gpu"] = 1
    config["train_batch_size"] = "auto"
    config["gradient_clipping"] = max_grad_norm
    config.setdefault("steps_per_print", 10**9)
    # bf16 gradients of many micro-batches would drown in rounding.
    config.setdefault("data_types", {}).setdefault("grad_accum_dtype", "fp32")
