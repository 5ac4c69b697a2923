"""SamplingCopy: whole weights to sample with, where the trained ones are sharded or wider than need be.

Under ZeRO-3 and FSDP2 no process holds a whole weight, and `generate` on the sharded model would gather every layer
for every token and let trials of different length deadlock. Training in fp32 under bf16 autocast would cast every
weight for every token. Both are cured alike: once per rollout the weights are put into a second copy of the network,
which no wrapper or hook has ever touched; after the rollout its memory is freed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

_GATHER_BYTES = 2**29
"""Weights that are gathered at once while copying."""

Gather = Callable[[list[nn.Parameter]], AbstractContextManager[list[Tensor]]]
"""Makes these parameters whole inside the block."""


class SamplingCopy:
    """A network of the same shape as `model`, without weights except inside a rollout."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        """Copy the structure and the buffers of `model`, before it is sharded.

        Args:
            model: the network, whole.
            dtype: of the copied weights; None: as they are when they are copied.
        """
        self._dtype = dtype
        # Every parameter becomes an empty one; one that is used twice (tied embeddings) stays one.
        empty = {id(p): nn.Parameter(torch.empty(0), requires_grad=False) for p in model.parameters()}
        self.model = copy.deepcopy(model, empty)

    def fill(self, source: nn.Module, gather: Gather, device: torch.device) -> None:
        """Copy the weights of `source` as they are now; every process must call it at the same time."""
        pairs = list(zip(source.parameters(), self.model.parameters(), strict=True))
        self.model.to(device)
        for chunk in in_chunks(pairs, lambda pair: pair[0]):
            with torch.no_grad(), gather([own for own, _ in chunk]) as whole:
                for tensor, (_, target) in zip(whole, chunk, strict=True):
                    dtype = self._dtype if self._dtype and tensor.is_floating_point() else tensor.dtype
                    target.data = tensor.detach().to(device=device, dtype=dtype, copy=True)

    def clear(self) -> None:
        """Give the memory of the weights back."""
        for parameter in self.model.parameters():
            parameter.data = torch.empty(0, device=parameter.device)


def in_chunks(items: list, parameter: Callable) -> Iterator[list]:
    """Split `items` so that the whole parameters of a chunk take about half a gigabyte."""
    chunk, size = [], 0
    for item in items:
        own = parameter(item)
        # ZeRO-3 leaves an empty placeholder and notes the true size beside it.
        chunk.append(item)
        size += getattr(own, "ds_numel", own.numel()) * own.element_size()
        if size >= _GATHER_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
