"""TokenScorer: log-probabilities and entropies of exactly the tokens that were sampled.

This is the module that Accelerate prepares and the optimizer moves. Full logits of a batch never exist: hidden
states are computed once, the head runs on response positions only, in chunks, recomputed in the backward pass.
Alignment law: entry [b, j] of any (B, L) tensor speaks about token j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

_CHUNK_ELEMENTS = 2**24
"""Logits that exist at once: 64 MB in fp32."""


@dataclass(frozen=True)
class Scores:
    """What one forward pass says of a batch of rows."""

    logprobs: Tensor
    """(B, L) fp32 log-probability of each response token, 0 elsewhere."""
    entropy: Tensor
    """(B, L) fp32 entropy in nats of the distribution each response token was drawn from, 0 elsewhere."""
    values: Tensor | None
    """(B,) fp32 predicted return at the last prompt token, or None without a critic."""


class TokenScorer(nn.Module):
    """A causal language model that scores given tokens."""

    def __init__(self, model: Any, critic: nn.Module | None = None) -> None:
        """Wrap `model`; `critic` maps (hidden (b, H), ids, mask, positions) to (b,) values."""
        super().__init__()
        self.model = model
        self.critic = critic
        self._plain_head = _head_is_plain(model)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, response_mask: Tensor, temperature: float = 1.0
    ) -> Scores:
        """Score the response tokens.

        Args:
            input_ids: (B, L) prompt, response, padding on the right.
            attention_mask: (B, L) bool, real tokens.
            response_mask: (B, L) bool, tokens the policy chose; column 0 is never one.
            temperature: logits are divided by it, as when the tokens were sampled.
        """
        hidden = self._hidden(input_ids, attention_mask)  # (B, L, H)
        # Token j is predicted at position j - 1. Flat indices, because their backward pass is a plain index_add.
        tokens = response_mask.flatten().nonzero().squeeze(-1)  # (n,)
        chosen = hidden.flatten(0, 1).index_select(0, tokens - 1)  # (n, H)
        targets = input_ids.flatten()[tokens]  # (n,)
        logprobs, entropy = self._score(chosen, targets, temperature)
        blank = torch.zeros(input_ids.numel(), device=hidden.device)
        return Scores(
            logprobs=blank.index_copy(0, tokens, logprobs).view_as(input_ids),
            entropy=blank.index_copy(0, tokens, entropy).view_as(input_ids),
            values=self._values(hidden, input_ids, attention_mask, response_mask),
        )

    def _hidden(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        base = _base_model(self.model)
        backbone = getattr(base, base.base_model_prefix) if self._plain_head else base
        # Right padding follows the real tokens, so causal attention and positions 0, 1, 2, ... need no help.
        # A row without any real token (an empty micro-batch) attends to its first column.
        attention_mask = attention_mask.clone()
        attention_mask[:, 0] = True
        mask = attention_mask.long()
        if self._plain_head:
            return backbone(input_ids=input_ids, attention_mask=mask, use_cache=False).last_hidden_state
        return backbone(input_ids=input_ids, attention_mask=mask, use_cache=False).logits

    def _score(self, chosen: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        head = _base_model(self.model).get_output_embeddings() if self._plain_head else nn.Identity()
        vocabulary = head.weight.shape[0] if self._plain_head else chosen.shape[-1]
        size = max(1, _CHUNK_ELEMENTS // vocabulary)
        if len(chosen) <= size:
            return _token_scores(head, chosen, targets, temperature)
        pieces = [
            checkpoint(_token_scores, head, part, wanted, temperature, use_reentrant=False)
            for part, wanted in zip(chosen.split(size), targets.split(size), strict=True)
        ]
        logprobs, entropies = zip(*pieces, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _values(
        self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor, response_mask: Tensor
    ) -> Tensor | None:
        if self.critic is None:
            return None
        last_prompt = (response_mask.int().argmax(dim=1) - 1).clamp(min=0)  # (B,)
        return self.critic(hidden, input_ids, attention_mask, last_prompt)


def _token_scores(head: nn.Module, chosen: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits = head(chosen).float() / temperature  # (n, V)
    logprobs = logits.log_softmax(dim=-1)
    entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    return logprobs.gather(-1, targets[:, None]).squeeze(-1), entropy


def _base_model(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _head_is_plain(model: Any) -> bool:
    """Whether logits are the output embedding of the last hidden state and nothing more.

    Some families scale or cap their logits after the head; for those the whole forward pass is used. Asked of the
    model itself on one token, so that no list of families has to be kept.
    """
    base = _base_model(model)
    head = base.get_output_embeddings()
    backbone = getattr(base, base.base_model_prefix, None)
    if head is None or backbone is None or backbone is base:
        return False
    was_training = base.training
    base.eval()
    with torch.no_grad():
        ids = torch.zeros((1, 1), dtype=torch.long, device=head.weight.device)
        whole = base(input_ids=ids, use_cache=False).logits
        parts = head(backbone(input_ids=ids, use_cache=False).last_hidden_state)
    base.train(was_training)
    return whole.shape == parts.shape and torch.allclose(whole.float(), parts.float(), rtol=1e-3, atol=1e-3)


def disable_dropout(module: nn.Module) -> None:
    """Set every dropout probability to 0: rollout and update must see the same network (method, section 6)."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    for part in module.modules():
        for name in ("attention_dropout", "attn_dropout", "dropout"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
