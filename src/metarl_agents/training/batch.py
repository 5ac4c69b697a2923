"""TrialBatch: the turns of a batch as rows for the update, and how they are split.

Row law: rows stand in the order of the turn table (group, trial, time) until `split` sorts them by length, which is
after credit. Rows stay ragged here; they become rectangles one micro-batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metarl_agents.policy.padding import right_pad
from metarl_agents.types import Trial


@dataclass(frozen=True)
class MicroBatch:
    """What one forward and backward pass sees; b rows, possibly none (one masked column then)."""

    rows: Tensor
    """(b,) int64: which rows of the batch these are."""
    input_ids: Tensor
    """(b, L) int64 prompt, response, padding on the right."""
    attention_mask: Tensor
    """(b, L) bool, real tokens."""
    response_mask: Tensor
    """(b, L) bool, tokens the policy chose: the only ones that carry loss."""
    advantages: Tensor
    """(b,) float32, still one number per turn."""
    returns: Tensor
    """(b,) float32, targets of the value loss."""
    entropy_weight: Tensor
    """(b,) float32: 0 for rows of groups with equal returns."""
    sampled_logprobs: Tensor
    """(b, L) float32 as noted while sampling, 0 outside the response."""
    old_logprobs: Tensor | None = None
    """(b, L) float32 of the policy that starts the batch; None where that is the policy itself."""
    reference_logprobs: Tensor | None = None
    """(b, L) float32 of the frozen reference; None without KL."""
    old_values: Tensor | None = None
    """(b,) float32 of the critic that starts the batch; None without one."""


@dataclass(frozen=True)
class TrialBatch:
    """All rows of a rank's trials; B rows."""

    prompts: list[tuple[int, ...]]
    responses: list[tuple[int, ...]]
    sampled_logprobs: list[tuple[float, ...]]
    advantages: Tensor
    """(B,) float32."""
    returns: Tensor
    """(B,) float32."""
    has_signal: Tensor
    """(B,) bool: the row's group has a non-zero advantage, so its rows are worth a forward pass."""
    pad_id: int
    old_logprobs: list[Tensor] | None = None
    """Per row (R,)."""
    reference_logprobs: list[Tensor] | None = None
    """Per row (R,)."""
    old_values: Tensor | None = None
    """(B,) float32."""

    def __len__(self) -> int:
        """Return B."""
        return len(self.prompts)

    def num_response_tokens(self, rows: Iterable[int]) -> int:
        """Return the response tokens of these rows."""
        return sum(len(self.responses[row]) for row in rows)

    def parts(self, count: int, seed: int) -> list[list[int]]:
        """Deal the rows into `count` optimizer steps, in an order that `seed` decides."""
        if count == 1:
            return [list(range(len(self)))]
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed)).tolist()
        return [order[index::count] for index in range(count)]

    def split(self, rows: Sequence[int], max_tokens: int) -> list[list[int]]:
        """Group rows of similar length so that each rectangle holds at most `max_tokens` (one row at least)."""
        length = {row: len(self.prompts[row]) + len(self.responses[row]) for row in rows}
        groups: list[list[int]] = []
        for row in sorted(rows, key=lambda row: length[row]):
            if groups and (len(groups[-1]) + 1) * length[row] <= max_tokens:
                groups[-1].append(row)
            else:
                groups.append([row])
        return groups

    def micro_batch(self, rows: Sequence[int], device: torch.device | str = "cpu") -> MicroBatch:
        """Build the rectangle of these rows; no rows give an empty micro-batch, which weighs nothing."""
        ids, attention, response = right_pad(
            [self.prompts[row] for row in rows], [self.responses[row] for row in rows], self.pad_id
        )
        index = torch.tensor(list(rows), dtype=torch.long)
        column = index if len(rows) else torch.zeros(1, dtype=torch.long)
        real = float(len(rows) > 0)

        def per_row(values: Tensor) -> Tensor:
            return (values[column] * real if len(values) else torch.zeros(1)).to(device)

        def per_token(values: Sequence[Sequence[float] | Tensor]) -> Tensor:
            flat = [torch.as_tensor(values[row], dtype=torch.float32) for row in rows]
            filled = torch.zeros(ids.shape)
            if flat:
                filled[response] = torch.cat(flat)
            return filled.to(device)

        return MicroBatch(
            rows=index,
            input_ids=ids.to(device),
            attention_mask=attention.to(device),
            response_mask=response.to(device),
            advantages=per_row(self.advantages),
            returns=per_row(self.returns),
            entropy_weight=per_row(self.has_signal.float()),
            sampled_logprobs=per_token(self.sampled_logprobs),
            old_logprobs=None if self.old_logprobs is None else per_token(self.old_logprobs),
            reference_logprobs=None if self.reference_logprobs is None else per_token(self.reference_logprobs),
            old_values=None if self.old_values is None else per_row(self.old_values),
        )


def collate(
    trials: Sequence[Trial], advantages: Tensor, returns: Tensor, has_signal: Tensor, pad_id: int
) -> TrialBatch:
    """Lay out the turns of `trials` in row order.

    Args:
        trials: the same, in the same order, as the turn table was made of.
        advantages: (B,) one per row.
        returns: (B,) one per row.
        has_signal: (B,) bool.
        pad_id: fills rectangles.
    """
    turns = [turn for trial in trials for _, _, turn in trial.rows()]
    assert len(turns) == len(advantages) == len(returns), f"{len(turns)} rows but {len(advantages)} advantages"
    return TrialBatch(
        prompts=[turn.prompt_ids for turn in turns],
        responses=[turn.response.ids for turn in turns],
        # A response that was not recorded (scripted play) has nothing to compare with.
        sampled_logprobs=[turn.response.logprobs or (0.0,) * len(turn.response.ids) for turn in turns],
        advantages=advantages,
        returns=returns,
        has_signal=has_signal,
        pad_id=pad_id,
    )
