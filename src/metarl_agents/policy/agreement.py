"""Whether a model's sampler and its scorer agree: the same tokens, the same log-probabilities, whatever follows.

The sampler reads prompts padded on the left and keeps a cache, the scorer reads whole rows padded on the right. A
correct causal model gives both the same numbers up to rounding, and on-policy learning rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from metarl_agents.policy.padding import left_pad, right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import TokenScorer

BRIEF = Sampling(max_new_tokens=8)
"""The unfiltered distribution, a few tokens of it."""
_WIDE_BOUND, _NARROW_BOUND = 0.01, 0.1


def agreement_bound(dtype: torch.dtype | None) -> float:
    """Return the largest mean difference of log-probabilities, in nats a token, that rounding explains.

    Args:
        dtype: what matrix products are computed in; None: fp32.
    """
    return _NARROW_BOUND if dtype in (torch.bfloat16, torch.float16) else _WIDE_BOUND


@torch.no_grad()
def sampling_gap(
    policy: Policy, prompts: Sequence[tuple[int, ...]], sampling: Sampling = BRIEF, *, seed: int = 0
) -> float:
    """Return the largest difference between a sampled token's recorded and its scored log-probability, in nats.

    All prompts are sampled together and all rows are scored together, so prompts of different lengths show whether
    padding changes a model's answers. Weights, generation config and torch's random state are left as they were.

    Args:
        policy: a policy whose weights are whole on this process.
        prompts: token ids of each prompt; at least one.
        sampling: what is drawn; its temperature and filters are the scorer's too.
        seed: decides the draws.
    """
    answers = policy.generate(prompts, sampling, seed=seed)
    rows = right_pad(prompts, [answer.ids for answer in answers], policy.pad_id)
    ids, attention, response = (tensor.to(policy.model.device) for tensor in rows)
    # `generate` records greedy choices at temperature 1.
    scores = TokenScorer(policy.model)(ids, attention, response, sampling.temperature or 1.0, filters=sampling.filters)
    scored = scores.logprobs[response].cpu()
    recorded = torch.tensor([logprob for answer in answers for logprob in answer.logprobs])
    return float((scored - recorded).abs().max().nan_to_num(torch.inf))


@torch.no_grad()
def later_token_gap(policy: Policy, prompt: Sequence[int]) -> float:
    """Return how far another last token moves the log-probabilities of the tokens before it, in nats; 0 if causal.

    Args:
        policy: a policy whose weights are whole on this process.
        prompt: token ids, at least two different ones.
    """
    other = next(token for token in prompt if token != prompt[-1])
    ids, mask = left_pad([prompt, (*prompt[:-1], other)], policy.pad_id)
    device = policy.model.device
    # One row at a time, because kernels may round the rows of a batch differently.
    one, two = (
        policy.model(input_ids=row.to(device), attention_mask=mask[:1].to(device)).logits[0, :-1].float()
        for row in ids.split(1)
    )
    gap = (one.log_softmax(dim=-1) - two.log_softmax(dim=-1)).abs().max()
    return gap.nan_to_num(torch.inf).item()
