"""How the weights lie on the processes: whole on each, or sharded by DeepSpeed ZeRO or FSDP2.

The training loop sees one interface, `Sharding`; which kind it gets is the launcher's choice. What lives here: making
weights whole, backward and step, optimizer shards. Everything that depends on DeepSpeed's insides is in `zero.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from metarl_agents.policy.policy import Policy
from metarl_agents.policy.processes import is_on
from metarl_agents.policy.sampling_copy import SamplingCopy, in_chunks
from metarl_agents.policy.scoring import TokenScorer, base_model

BuildOptimizer = Callable[[nn.Module], torch.optim.Optimizer]
"""Makes the optimizer of a scorer's trainable parameters."""


class Sharding:
    """Weights whole on every process: one process, or several that average gradients (DDP)."""

    kind = "whole"
    weights_are_whole = True
    """Whether each process keeps all of every weight."""
    shards_optimizer = False
    """Whether each process keeps its own part of the optimizer's state."""

    scorer: Any
    """The scorer as training calls it."""
    plain_scorer: TokenScorer
    """The same without wrappers."""
    optimizer: torch.optim.Optimizer
    """What the learning-rate schedule drives."""

    def __init__(self, accelerator: Any, max_grad_norm: float) -> None:
        """Remember who computes; nothing is prepared yet."""
        self.accelerator = accelerator
        self.max_grad_norm = max_grad_norm
        self._copy: SamplingCopy | None = None

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """The launcher's mixed precision, or None."""
        return torch.bfloat16 if self.accelerator.mixed_precision == "bf16" else None

    def prepare(self, scorer: TokenScorer, build_optimizer: BuildOptimizer) -> None:
        """Lay the weights out and build their optimizer."""
        if self._samples_from_copy(scorer.model):
            self._copy = SamplingCopy(scorer.model, self.compute_dtype)
        self.plain_scorer = scorer
        self._lay_out(scorer, build_optimizer)

    def prepare_reference(self, scorer: nn.Module) -> nn.Module:
        """Lay a frozen scorer out like the trained one and return it."""
        return scorer.to(self.accelerator.device)

    @contextmanager
    def sampling(self, policy: Policy) -> Iterator[None]:
        """Let `policy` sample with whole weights; they are gathered once, and nothing inside needs other processes."""
        if self._copy is None:
            with self.accelerator.autocast():
                yield
            return
        self._rest()
        self._copy.fill(policy.model, self.whole, self.accelerator.device)
        policy.sampler = self._copy.model
        try:
            yield
        finally:
            policy.sampler = None
            self._copy.clear()

    def micro_batch(self, *, last: bool) -> AbstractContextManager[Any]:
        """Open the forward and backward pass of one micro-batch; gradients are exchanged with the last one."""
        return nullcontext() if last else self.accelerator.no_sync(self.scorer)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss`."""
        loss.backward()

    def step(self) -> float:
        """Clip and step; return the gradient's norm. A norm that is not finite means that no step was taken."""
        norms = [self._clip(group["params"]) for group in self.optimizer.param_groups]
        norm = next((value for value in norms if not math.isfinite(value)), norms[0])
        if math.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def forget_gradients(self) -> None:
        """Drop what has been accumulated since the last step."""
        self.optimizer.zero_grad()

    @contextmanager
    def whole(self, parameters: list[nn.Parameter], *, write: bool = False) -> Iterator[list[Tensor]]:
        """Yield the whole tensors of `parameters`; with `write`, the main process's changes go back to all."""
        yield [parameter.data for parameter in parameters]

    def whole_weights(self, module: nn.Module) -> dict[str, Tensor] | None:
        """Return {name: whole CPU tensor} on the main process and {} elsewhere; every process must call it.

        Frozen weights are left out where others are trained (adapters). None: the module itself holds whole weights.
        """
        if self.kind == "whole":
            return None
        self._rest()
        named = list(module.named_parameters())
        has_frozen = any(not parameter.requires_grad for _, parameter in named)
        chosen = [(name, p) for name, p in named if p.requires_grad or not has_frozen]
        found: dict[str, Tensor] = {}
        for chunk in in_chunks(chosen, lambda item: item[1]):
            with self.whole([parameter for _, parameter in chunk]) as tensors:
                if self.accelerator.is_main_process:
                    for (name, _), tensor in zip(chunk, tensors, strict=True):
                        found[name] = tensor.detach().cpu().clone()
        return found

    def load_weights(self, module: nn.Module, read: Callable[[], dict[str, Tensor]]) -> None:
        """Overwrite parameters of `module` with those that `read` returns; every process must call it.

        Only those read that keep whole weights, and the main process for all that share them.
        """
        self._rest()
        values = read() if self.accelerator.is_main_process or self.weights_are_whole else {}
        named = list(module.named_parameters())
        for chunk in in_chunks(named, lambda item: item[1]):
            with torch.no_grad(), self.whole([parameter for _, parameter in chunk], write=True) as tensors:
                for (name, _), tensor in zip(chunk, tensors, strict=True):
                    if name in values:
                        tensor.copy_(values[name])

    def is_finite(self) -> bool:
        """Whether all trained weights that this process keeps are finite numbers."""
        return all(bool(weight.isfinite().all()) for weight in self._kept())

    @contextmanager
    def holding(self, module: nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
        """Let the parameters that `values` names have these values inside the block, for passes without gradients.

        Every process must call it, with the same values. The optimizer's own copies are not touched.
        """
        self._rest()
        named = [(name, parameter) for name, parameter in module.named_parameters() if name in values]
        parameters = [parameter for _, parameter in named]
        with torch.no_grad(), self.whole(parameters, write=True) as tensors:
            own = [tensor.clone() for tensor in tensors]
            for (name, _), tensor in zip(named, tensors, strict=True):
                tensor.copy_(values[name])
        try:
            yield
        finally:
            self._rest()
            with torch.no_grad(), self.whole(parameters, write=True) as tensors:
                for tensor, value in zip(tensors, own, strict=True):
                    tensor.copy_(value)

    def optimizer_state(self) -> dict[str, Any]:
        """Return what this process must keep to resume: tensors and plain values.

        That is what the steps taken have left in the optimizer (its moments). Learning rates, betas and weight decay
        are the settings of the run that steps; what a file holds of them is not read.
        """
        return self.optimizer.state_dict()

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Put the state back; the settings of the parameter groups stay those of this run.

        Raises:
            KeyError, ValueError, TypeError: it belongs to another kind of run.
        """
        groups = self.optimizer.param_groups
        settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        self.optimizer.load_state_dict(state)
        for group, own in zip(self.optimizer.param_groups, settings, strict=True):
            group.update(own)

    def _kept(self) -> Iterator[Tensor]:
        """Yield the trained weights, or parts of them, that lie on this process."""
        for parameter in self.plain_scorer.parameters():
            if parameter.requires_grad:
                yield parameter.to_local() if hasattr(parameter, "to_local") else parameter

    def _rest(self) -> None:
        """Bring the weights to where they lie between passes, before their parameters are listed."""

    def _lay_out(self, scorer: TokenScorer, build_optimizer: BuildOptimizer) -> None:
        self.scorer = self.accelerator.prepare(scorer)
        self.optimizer = build_optimizer(scorer)

    def _samples_from_copy(self, model: nn.Module) -> bool:
        """Whether fp32 weights would be cast for every sampled token; frozen ones are loaded narrow already."""
        is_trained_whole = all(parameter.requires_grad for parameter in model.parameters())
        return self.compute_dtype is not None and is_trained_whole

    def _clip(self, parameters: list[nn.Parameter]) -> float:
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


class FullyShardedSharding(Sharding):
    """FSDP2: every weight, gradient and optimizer state is split over the processes.

    torch's `fully_shard` is called directly, because accelerate's own preparation works on GPUs only and could not
    be tested on two CPU processes.
    """

    kind = "fsdp2"
    weights_are_whole = False
    shards_optimizer = True

    def prepare_reference(self, scorer: nn.Module) -> nn.Module:
        """Shard the frozen scorer as well."""
        return self._shard(scorer)

    def micro_batch(self, *, last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients with every micro-batch: whole ones would not fit."""
        return nullcontext()

    @contextmanager
    def whole(self, parameters: list[nn.Parameter], *, write: bool = False) -> Iterator[list[Tensor]]:
        """Gather; with `write`, the main process's tensors are scattered again."""
        from torch.distributed.tensor import distribute_tensor

        tensors = [parameter.full_tensor() for parameter in parameters]
        yield tensors
        if write:
            for parameter, tensor in zip(parameters, tensors, strict=True):
                spread = distribute_tensor(tensor, parameter.device_mesh, parameter.placements)
                parameter.to_local().copy_(spread.to_local())

    def optimizer_state(self) -> dict[str, Any]:
        """Return this process's shards, in the order of the parameters."""
        from torch.distributed.tensor import DTensor

        def local(value: Any) -> Any:
            return value.to_local().cpu() if isinstance(value, DTensor) else value

        states = [self.optimizer.state.get(parameter, {}) for parameter in self._parameters()]
        return {"kind": self.kind, "state": [{key: local(value) for key, value in state.items()} for state in states]}

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Put this process's shards back."""
        from torch.distributed.tensor import DTensor

        for parameter, saved in zip(self._parameters(), of_kind(state, self.kind)["state"], strict=True):
            for key, value in saved.items():
                # AdamW counts its steps in a plain tensor beside the two moments, which lie as the weight does.
                if value.shape == parameter.to_local().shape and value.dim():
                    value = DTensor.from_local(
                        value.to(parameter.to_local().device),
                        parameter.device_mesh,
                        parameter.placements,
                        shape=parameter.shape,
                        stride=parameter.stride(),
                    )
                self.optimizer.state[parameter][key] = value

    def _lay_out(self, scorer: TokenScorer, build_optimizer: BuildOptimizer) -> None:
        self.scorer = self._shard(scorer)
        # Sharding replaces the parameters, so the optimizer comes after it.
        self.optimizer = build_optimizer(scorer)

    def _shard(self, scorer: nn.Module) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        # Each process contributes its own part, so all must start from the main process's weights.
        scorer.to(self.accelerator.device)
        for parameter in scorer.parameters():
            torch.distributed.broadcast(parameter.data, src=0)
        mesh = init_device_mesh(self.accelerator.device.type, (self.accelerator.num_processes,))
        precision = MixedPrecisionPolicy()
        if self.compute_dtype is not None:
            precision = MixedPrecisionPolicy(param_dtype=self.compute_dtype, reduce_dtype=torch.float32)
        layers = set(base_model(scorer.model)._no_split_modules or ())  # noqa: SLF001 - HF's name for its layers
        for module in list(scorer.modules()):
            if type(module).__name__ in layers:
                fully_shard(module, mesh=mesh, mp_policy=precision)
        return fully_shard(scorer, mesh=mesh, mp_policy=precision)

    def _rest(self) -> None:
        from torch.distributed.fsdp import FSDPModule

        # A forward pass that no backward pass follows leaves the outermost weights gathered.
        for module in self.scorer.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def _samples_from_copy(self, model: nn.Module) -> bool:
        return True

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def of_kind(state: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return `state` if it was saved by this kind of sharding."""
    if state.get("kind") != kind:
        raise ValueError(f"its optimizer was saved under {state.get('kind', 'whole weights')}, this run uses {kind}")
    return state


def build_sharding(accelerator: Any, max_grad_norm: float) -> Sharding:
    """Return the launcher's choice.

    Raises:
        ConfigError: the launcher's DeepSpeed configuration cannot be used.
    """
    if accelerator.state.deepspeed_plugin is not None:
        from metarl_agents.policy.zero import ZeroSharding

        return ZeroSharding(accelerator, max_grad_norm)
    if is_on("ACCELERATE_USE_FSDP"):
        return FullyShardedSharding(accelerator, max_grad_norm)
    return Sharding(accelerator, max_grad_norm)
