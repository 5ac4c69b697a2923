"""TokenScorer: log-probabilities and entropies of exactly the tokens that were sampled.

This is the module that Accelerate prepares and the optimizer moves. Full logits of a batch never exist: hidden
states are computed once, the head runs on response positions only, in chunks, recomputed in the backward pass.
Alignment law: entry [b, j] of any (B, L) tensor speaks about token j.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from metarl_agents.policy.mode import be_deterministic
from metarl_agents.policy.sampling import Filters

_CHUNK_ELEMENTS = 2**24
"""Logits that exist at once: 64 MB in fp32."""
_NO_FILTERS = Filters()


class Scores(NamedTuple):
    """What one forward pass says of a batch of rows.

    A tuple, because what shards weights looks for the tensors of a module's output in tuples and not in other classes.
    """

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
        # Noted now: a sharded weight does not show its size.
        self._vocabulary = int(base_model(model).config.get_text_config().vocab_size)

    @property
    def config(self) -> Any:
        """The model's configuration, which launchers read sizes from."""
        return base_model(self.model).config

    def num_chunks(self, num_tokens: int) -> int:
        """Return in how many pieces the logits of `num_tokens` response tokens are made."""
        return max(1, -(-num_tokens // max(1, _CHUNK_ELEMENTS // self._vocabulary)))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        response_mask: Tensor,
        temperature: float = 1.0,
        num_chunks: int | None = None,
        filters: Filters = _NO_FILTERS,
    ) -> Scores:
        """Score the response tokens.

        Args:
            input_ids: (B, L) prompt, response, padding on the right.
            attention_mask: (B, L) bool, real tokens.
            response_mask: (B, L) bool, tokens the policy chose; column 0 is never one.
            temperature: logits are divided by it, as when the tokens were sampled.
            num_chunks: pieces in which logits are made; default: as few as fit. Processes that share weights must
                use the head equally often, however many tokens each has, so they agree on it.
            filters: tokens left out of each draw when the tokens were sampled; log-probs and entropy are those of the
                distribution that remains.
        """
        be_deterministic(self)
        states, hidden = self._states(input_ids, attention_mask)
        # Token j is predicted at position j - 1. Flat indices, because their backward pass is a plain index_add.
        tokens = response_mask.flatten().nonzero().squeeze(-1)  # (n,)
        chosen = states.flatten(0, 1).index_select(0, tokens - 1)  # (n, H)
        targets = input_ids.flatten()[tokens]  # (n,)
        score = partial(_token_scores, temperature=temperature, filters=filters)
        logprobs, entropy = self._score(chosen, targets, score, num_chunks or self.num_chunks(len(tokens)))
        # Not a view of a flat tensor: FSDP2 hangs its hooks on the outputs.
        places = (tokens // input_ids.shape[1], tokens % input_ids.shape[1])
        blank = torch.zeros(input_ids.shape, device=states.device)
        return Scores(
            logprobs=blank.index_put(places, logprobs),
            entropy=blank.index_put(places, entropy),
            values=self._values(hidden, input_ids, attention_mask, response_mask),
        )

    def _states(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what `_score` reads, (B, L, H) or logits where the head is not plain, and what the critic reads."""
        base = base_model(self.model)
        # Right padding follows the real tokens, so causal attention and positions 0, 1, 2, ... need no help.
        # A row without any real token (an empty micro-batch) attends to its first column.
        attention_mask = attention_mask.clone()
        attention_mask[:, 0] = True
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask.long(), "use_cache": False}
        if self._plain_head:
            hidden = getattr(base, base.base_model_prefix)(**inputs).last_hidden_state
            return hidden, hidden
        output = base(**inputs, output_hidden_states=self.critic is not None)
        return output.logits, output.hidden_states[-1] if self.critic is not None else None

    def _score(
        self, chosen: Tensor, targets: Tensor, score: Callable[..., tuple[Tensor, Tensor]], num_chunks: int
    ) -> tuple[Tensor, Tensor]:
        head = base_model(self.model).get_output_embeddings() if self._plain_head else nn.Identity()
        if num_chunks == 1:
            return score(head, chosen, targets)
        recompute = _recomputed if torch.is_grad_enabled() else _at_once
        pieces = [
            recompute(score, head, part, wanted)
            for part, wanted in zip(chosen.tensor_split(num_chunks), targets.tensor_split(num_chunks), strict=True)
        ]
        logprobs, entropies = zip(*pieces, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _values(
        self, hidden: Tensor | None, input_ids: Tensor, attention_mask: Tensor, response_mask: Tensor
    ) -> Tensor | None:
        if self.critic is None or hidden is None:
            return None
        last_prompt = (response_mask.int().argmax(dim=1) - 1).clamp(min=0)  # (B,)
        return self.critic(hidden, input_ids, attention_mask, last_prompt)


# The kind that does not re-enter passes gradients to whatever is trained: hidden states, the head, or adapters on it.
# Nothing is drawn inside. Shapes are not compared, because ZeRO-3 takes frozen weights back before the comparison.
_recomputed = partial(checkpoint, use_reentrant=False, preserve_rng_state=False, determinism_check="none")


def _at_once(function: Callable[..., Any], *inputs: Any) -> Any:
    return function(*inputs)


def _token_scores(
    head: nn.Module, chosen: Tensor, targets: Tensor, temperature: float, filters: Filters
) -> tuple[Tensor, Tensor]:
    logits = filters.apply(head(chosen).float() / temperature, targets)  # (n, V)
    logprobs = logits.log_softmax(dim=-1)
    entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    return logprobs.gather(-1, targets[:, None]).squeeze(-1), entropy


def base_model(model: Any) -> Any:
    """Return the model itself, or the one that adapters sit on."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _head_is_plain(model: Any) -> bool:
    """Whether logits are the output embedding of the last hidden state and nothing more.

    Some families scale or cap their logits after the head, or scale what goes into it; for those the whole forward
    pass is used. Asked of the model itself, so that no list of families has to be kept: a few tokens are run with
    the head's output replaced by a wide ramp, which shows any later change whatever the weights are.
    """
    base = base_model(model)
    head = base.get_output_embeddings()
    backbone = getattr(base, base.base_model_prefix, None)
    if head is None or backbone is None or backbone is base:
        return False
    read: list[Tensor] = []
    written: list[Tensor] = []

    def replace(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        ramp = torch.linspace(-100, 100, output.shape[-1], dtype=output.dtype, device=output.device)
        read.append(inputs[0])
        written.append(ramp.expand_as(output))
        return written[0]

    be_deterministic(base)
    hook = head.register_forward_hook(replace)
    try:
        with torch.no_grad():
            ids = torch.arange(min(4, head.weight.shape[0]), device=head.weight.device).view(1, -1)
            # A mask, because GPT-2 and others in transformers 5.10 to 5.24 warn when a pad token comes without one.
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
            logits = base(**inputs).logits
            hidden = backbone(**inputs).last_hidden_state
    finally:
        hook.remove()
    return bool(read) and _same(read[0], hidden) and _same(written[0], logits)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), rtol=1e-3, atol=1e-3)
