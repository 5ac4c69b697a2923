"""Whether a model's sampler and its scorer agree: the same tokens, the same log-probabilities.

The sampler reads prompts padded on the left and keeps a cache, the scorer reads whole rows padded on the right. A
correct causal model gives both the same numbers up to rounding, and on-policy learning rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import TokenScorer

BRIEF = Sampling(max_new_tokens=8)
"""The unfiltered distribution, a few tokens of it."""


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
        sampling: what is drawn; its temperature is the scorer's too.
        seed: decides the draws.
    """
    answers = policy.generate(prompts, sampling, seed=seed)
    rows = right_pad(prompts, [answer.ids for answer in answers], policy.pad_id)
    ids, attention, response = (tensor.to(policy.model.device) for tensor in rows)
    # `generate` records greedy choices at temperature 1.
    scores = TokenScorer(policy.model)(ids, attention, response, sampling.temperature or 1.0)
    scored = scores.logprobs[response].cpu()
    recorded = torch.tensor([logprob for answer in answers for logprob in answer.logprobs])
    return float((scored - recorded).abs().max())
