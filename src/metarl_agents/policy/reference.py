"""The frozen policy that KL is measured against."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from metarl_agents.errors import CheckpointError
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.sharding import Sharding


class Reference:
    """A frozen copy of a policy, or, where the policy has adapters, other values of these on the shared base."""

    def __init__(self, policy: Policy, adapters: dict[str, Tensor] | None = None) -> None:
        """Remember the policy as it is now.

        Args:
            policy: without adapters it is copied; with adapters it is the policy that is trained, and shared.
            adapters: {parameter's name: value} of the reference's adapters; None: the base without adapters.

        Raises:
            CheckpointError: `adapters` are others than those of the policy.
        """
        self._adapted = policy.model if hasattr(policy.model, "peft_config") else None
        self._adapters = adapters
        self._sharding: Sharding | None = None
        self._scorer: nn.Module | None = None
        if self._adapted is None:
            self._scorer = TokenScorer(copy.deepcopy(policy.model).requires_grad_(False))
        elif adapters is not None:
            own = adapter_values(policy)
            if {name: value.shape for name, value in adapters.items()} != {name: v.shape for name, v in own.items()}:
                raise CheckpointError("the adapters that the run started from do not fit those of its checkpoint.")

    @contextmanager
    def scorer(self, current: nn.Module) -> Iterator[nn.Module]:
        """Yield a module that scores rows with the reference's weights; `current` is the policy's scorer.

        Every process must enter it at the same time.
        """
        if self._adapted is None:
            yield self._scorer
        elif self._adapters is None:
            with self._adapted.disable_adapter():
                yield current
        else:
            with self._sharding.holding(self._adapted, self._adapters):
                yield current

    def lay_out(self, sharding: Sharding) -> None:
        """Put the copy, where there is one, on the processes as the policy is."""
        self._sharding = sharding
        if self._scorer is not None:
            self._scorer = sharding.prepare_reference(self._scorer)


def adapter_values(policy: Policy) -> dict[str, Tensor]:
    """Return {parameter's name: copy of its value} of what is trained beside a frozen base."""
    named = policy.model.named_parameters()
    return {
        name: parameter.detach().to("cpu", torch.float32, copy=True)
        for name, parameter in named
        if parameter.requires_grad
    }
