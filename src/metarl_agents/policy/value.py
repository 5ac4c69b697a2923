"""The critic of PPO: predicts a row's return at the last token of its prompt.

`head`: a linear layer on the policy's hidden state, detached, so that the critic never moves the policy.
`separate`: a second model of its own. Either is saved beside the policy's folder, never inside it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from metarl_agents.policy.scoring import base_model


class ValueHead(nn.Module):
    """A linear critic on the policy's last hidden state."""

    def __init__(self, hidden_size: int) -> None:
        """Start at 0: before it has learned, every return is predicted as 0."""
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor, last_prompt: Tensor) -> Tensor:
        """Return (b,) values.

        Args:
            hidden: (b, L, H) the policy's last hidden states.
            input_ids: (b, L), unused here.
            attention_mask: (b, L), unused here.
            last_prompt: (b,) index of the last prompt token.
        """
        rows = torch.arange(len(hidden), device=hidden.device)
        return self.linear(hidden[rows, last_prompt].detach().to(self.linear.weight.dtype)).squeeze(-1).float()


class SeparateCritic(nn.Module):
    """A second network with a linear critic on top."""

    def __init__(self, backbone: nn.Module, hidden_size: int) -> None:
        """Take over `backbone`, which maps ids to hidden states."""
        super().__init__()
        self.backbone = backbone
        self.head = ValueHead(hidden_size)

    def forward(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor, last_prompt: Tensor) -> Tensor:
        """Return (b,) values; the policy's `hidden` is not looked at."""
        mask = attention_mask.clone()
        mask[:, 0] = True
        own = self.backbone(input_ids=input_ids, attention_mask=mask.long(), use_cache=False).last_hidden_state
        rows = torch.arange(len(own), device=own.device)
        return self.head.linear(own[rows, last_prompt]).squeeze(-1).float()


def build_critic(kind: str, model: Any) -> nn.Module:
    """Return a critic for `model`: `head` or `separate` (which starts from the policy's own weights)."""
    base = base_model(model)
    hidden_size = base.config.get_text_config().hidden_size
    if kind == "head":
        return ValueHead(hidden_size)
    return SeparateCritic(copy.deepcopy(getattr(base, base.base_model_prefix)).requires_grad_(True), hidden_size)
