"""Sampling in which every row draws from a generator of its own.

`Policy.generate` has one stream of draws for a whole batch, so that a row's answer depends on its neighbours. Players
that must answer a position alike, whoever else is asked at the same time, are sampled here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from metarl_agents.policy.mode import be_deterministic
from metarl_agents.policy.padding import left_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling


@torch.no_grad()
def generate_seeded(
    policy: Policy, prompts: Sequence[tuple[int, ...]], sampling: Sampling, seeds: Sequence[int]
) -> list[str]:
    """Answer each prompt, in the order asked; a text is a function of its prompt and its seed, up to rounding.

    The model's own generation config is replaced for good, so this is for models that do nothing else.

    Args:
        policy: a policy nobody trains.
        prompts: token ids of each prompt.
        sampling: the whole sampling distribution; prompts are sampled in chunks of `max_batch_tokens`.
        seeds: one per prompt.

    Returns:
        What each answer finally says, thoughts and control tokens removed.
    """
    model = policy.model
    be_deterministic(model)
    # Greedy decoding of distributions in which a draw has left one token each: the library's own loop, our dice.
    config = replace(sampling, temperature=0.0).generation_config(policy.pad_id, policy.end_ids)
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    base.generation_config = config
    texts: dict[int, str] = {}
    for chunk in _chunks([len(prompt) for prompt in prompts], sampling):
        ids, mask = left_pad([prompts[index] for index in chunk], policy.pad_id)
        draws = [RowDraws(sampling, [seeds[index] for index in chunk])] if sampling.temperature else []
        output = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=config,
            logits_processor=draws,
            synced_gpus=False,
        )  # (b, P + R)
        for index, row in zip(chunk, output[:, ids.shape[1] :].tolist(), strict=True):
            end = next((place for place, token in enumerate(row) if token in policy.end_ids), len(row))
            texts[index] = policy.template.read(row[:end])[0]
    return [texts[index] for index in range(len(prompts))]


class RowDraws:
    """A logits processor that draws one token per row, and leaves no other one possible.

    One number of the row's generator is used per token, whatever is drawn. Temperature and filters are those that
    `generate` itself applies when it samples, in its order; the repetition penalty comes before, from its config.
    """

    def __init__(self, sampling: Sampling, seeds: Sequence[int]) -> None:
        """Prepare for one `generate` call on as many rows as there are seeds."""
        from transformers import LogitsProcessorList, TemperatureLogitsWarper

        self._generators = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]
        temperature = TemperatureLogitsWarper(float(sampling.temperature))
        self._filters = LogitsProcessorList([temperature, *sampling.filters.warpers()])

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return (b, V) scores with 0 at the token drawn and minus infinity elsewhere."""
        shares = self._filters(input_ids, scores.float()).softmax(dim=-1).cpu().double()  # (b, V)
        points = torch.stack([torch.rand((), generator=one, dtype=torch.float64) for one in self._generators])
        reached = shares.cumsum(dim=-1)
        chosen = torch.searchsorted(reached, points[:, None] * reached[:, -1:], right=True)  # (b, 1)
        # Rounding can leave a point a hair's breadth beyond the last possible token.
        last = shares.shape[1] - 1 - (shares > 0).flip(-1).int().argmax(dim=-1, keepdim=True)
        left = torch.full_like(scores, -torch.inf)
        return left.scatter(-1, chosen.minimum(last).to(scores.device), 0.0)


def _chunks(lengths: Sequence[int], sampling: Sampling) -> Iterator[list[int]]:
    """Split rows, shortest first, so that each chunk's padded tokens stay within the budget (one row at least)."""
    chunk: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if chunk and (len(chunk) + 1) * (lengths[index] + sampling.max_new_tokens) > sampling.max_batch_tokens:
            yield chunk
            chunk = []
        chunk.append(index)
    if chunk:
        yield chunk
