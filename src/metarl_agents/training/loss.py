"""The losses: clipped policy gradient, KL to a frozen reference, clipped value regression.

Everything is a sum; the caller divides once by the global number of response tokens of the optimizer step, so that
the result depends neither on the micro-batch split nor on the number of processes. Here, and nowhere else, an
advantage is spread over the tokens of its turn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metarl_agents.config import UpdateConfig
from metarl_agents.policy.scoring import Scores
from metarl_agents.training.batch import MicroBatch

Stats = dict[str, tuple[float, float]]
"""Metric name to (sum, count)."""


def token_weights(response_mask: Tensor, aggregation: str) -> Tensor:
    """Return (b, L) weights of the response tokens.

    `token_mean`: 1 each, to be divided by the number of tokens. `sequence_mean`: 1 / R each, to be divided by the
    number of rows. Tokens outside the response weigh exactly 0.
    """
    mask = response_mask.float()
    if aggregation == "token_mean":
        return mask
    return mask / mask.sum(dim=1, keepdim=True).clamp(min=1)


def policy_gradient_loss(scores: Scores, micro: MicroBatch, config: UpdateConfig) -> tuple[Tensor, Stats]:
    """Return the summed loss of a micro-batch and its statistics.

        ρ = exp(log π − log π_old);  ℓ = max(−Aρ, −A·clip(ρ, 1−ε_low, 1+ε_high));  for A < 0: min(ℓ, −cA)
        loss = Σ w·(ℓ − entropy_coef·H + β·k3),   k3 = exp(d) − d − 1,  d = log π_ref − log π

    With one update per batch π_old is π itself: ρ = 1 with the gradient of log π.

    Args:
        scores: log-probs and entropies of the sampled tokens, (b, L).
        micro: the rows.
        config: clip ranges and coefficients.

    Source: PPO, arXiv 1707.06347, eq. 7; dual clip, arXiv 1912.09729, eq. 5; k3 estimator as in GRPO, arXiv
    2402.03300, eq. 4.
    """
    mask = micro.response_mask
    weights = token_weights(mask, config.loss_aggregation)  # (b, L)
    logprobs, entropy = _blanked(scores.logprobs, mask), _blanked(scores.entropy, mask)
    old = logprobs.detach() if micro.old_logprobs is None else _blanked(micro.old_logprobs, mask)
    ratio = (logprobs - old).clamp(-20, 20).exp()
    advantages = micro.advantages[:, None]  # (b, 1)
    clipped_ratio = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    token_loss = torch.maximum(-advantages * ratio, -advantages * clipped_ratio)
    if config.dual_clip is not None:
        bounded = torch.minimum(token_loss, -advantages * config.dual_clip)
        token_loss = torch.where(advantages < 0, bounded, token_loss)
    loss = (weights * token_loss).sum()
    if config.entropy_coef:
        loss = loss - config.entropy_coef * (weights * entropy * micro.entropy_weight[:, None]).sum()
    stats = _ratio_stats(ratio.detach(), advantages, mask, config)
    stats |= _score_stats(old, entropy.detach(), micro)
    if micro.reference_logprobs is not None:
        kl = kl_to_reference(logprobs, _blanked(micro.reference_logprobs, mask))
        loss = loss + config.beta * (weights * kl).sum()
        stats["kl"] = (kl.detach().sum().item(), stats["entropy"][1])
    return loss, stats


def kl_to_reference(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return the k3 estimate of KL(π ‖ π_ref) per token, (b, L): never negative, 0 where both agree."""
    difference = (reference - logprobs).clamp(-20, 20)
    return difference.exp() - difference - 1


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, weights: Tensor, clip: float | None) -> Tensor:
    """Return the summed squared error of the critic, (b,) inputs; a change beyond `clip` earns nothing.

    Source: PPO's clipped value objective, as used with arXiv 1707.06347.
    """
    error = (values - returns).square()
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns).square())
    return 0.5 * (weights * error).sum()


def _ratio_stats(ratio: Tensor, advantages: Tensor, mask: Tensor, config: UpdateConfig) -> Stats:
    tokens = float(mask.sum())
    low = (ratio < 1 - config.clip_low) & (advantages < 0) & mask
    high = (ratio > 1 + config.clip_high) & (advantages > 0) & mask
    return {"clip_ratio/low_mean": (float(low.sum()), tokens), "clip_ratio/high_mean": (float(high.sum()), tokens)}


def _blanked(values: Tensor, mask: Tensor) -> Tensor:
    """Return `values` with 0 outside the response, so that no filler (not even NaN) reaches loss or gradient."""
    return torch.where(mask, values, 0.0)


def _score_stats(old: Tensor, entropy: Tensor, micro: MicroBatch) -> Stats:
    """Return entropy, and how far the scorer is from the sampler for one policy: the one that played, `old`."""
    tokens = float(micro.response_mask.sum())
    gap = (old - _blanked(micro.sampled_logprobs, micro.response_mask)).abs().double()
    return {
        "entropy": (entropy.sum().item(), tokens),
        "sampling/logp_difference/mean": (gap.sum().item(), tokens),
        "sampling/logp_difference/max": (gap.max().item() if tokens else 0.0, 1.0),
    }
