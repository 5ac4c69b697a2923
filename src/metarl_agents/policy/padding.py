"""Left-pad for sampling, right-pad for learning. The only place where rows become rectangles."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def left_pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Return (ids, mask), both (b, P), with padding before each row."""
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, width - len(row) :] = torch.tensor(row, dtype=torch.long)
        mask[index, width - len(row) :] = 1
    return ids, mask


def right_pad(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad_id: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (input_ids, attention_mask, response_mask), each (B, L): prompt, response, then padding.

        ids            p p p r r . .
        attention_mask 1 1 1 1 1 0 0
        response_mask  0 0 0 1 1 0 0

    No row at all gives one masked column, so that an empty micro-batch can still be run forward.
    """
    lengths = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    shape = (max(len(lengths), 1), max(lengths, default=1) or 1)
    ids = torch.full(shape, pad_id, dtype=torch.long)
    attention = torch.zeros(shape, dtype=torch.bool)
    response_mask = torch.zeros(shape, dtype=torch.bool)
    for index, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        ids[index, : lengths[index]] = torch.tensor([*prompt, *response], dtype=torch.long)
        attention[index, : lengths[index]] = True
        response_mask[index, len(prompt) : lengths[index]] = True
    return ids, attention, response_mask
