"""Grouping: statistics over rows that share an integer key, as tensor operations.

What lives here: mean, spread and leave-one-out per group; the step from rows to one score per trial and back; the
last touch on a batch of advantages (`scale_and_clip`). What does not: which rows belong together (`table.py`) and
which statistic an estimator wants (`gigpo.py`, `rloo.py`, `grpo.py`). Read `group_mean` first.

Keys are (B,) integers, equal where rows belong together; they need be neither sorted nor consecutive. Every result
is (B,) float64, one number per row. Sums of float32 numbers are exact in float64 for any realistic group, so equal
scores give an advantage of exactly 0 and not of 1e-17.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from metarl_agents.errors import ConfigError

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it."""

Comparison = Callable[[Tensor, Tensor], Tensor]
"""(scores (U,), key (U,)) -> (U,) float64: each score seen against the scores that share its key."""


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise `ConfigError` unless `value` is one of the words an option knows."""
    known = tuple(choices)
    if value not in known:
        raise ConfigError(f"`{name}` is {value!r}, but it must be one of: {', '.join(known)}.")


def combine_keys(*columns: Tensor) -> Tensor:
    """Make one key of several: equal exactly where all columns are equal.

    Args:
        *columns: (B,) integer or bool columns, at least one.

    Returns:
        (B,) int64 keys, consecutive from 0.

    >>> combine_keys(torch.tensor([7, 7, 3]), torch.tensor([0, 1, 0]))
    tensor([1, 2, 0])
    """
    key = torch.zeros_like(columns[0], dtype=torch.int64)
    for column in columns:
        values, inverse = torch.unique(column, return_inverse=True)
        # Compacting after every column keeps the product far from overflow.
        key = torch.unique(key * len(values) + inverse, return_inverse=True)[1]
    return key


def _sum_and_count(values: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum and size of each row's group, both (B,) float64."""
    assert values.shape == key.shape, f"{tuple(values.shape)} values for {tuple(key.shape)} keys"
    groups, inverse = torch.unique(key, return_inverse=True)
    columns = torch.stack([values.double(), torch.ones_like(values, dtype=torch.float64)], dim=1)  # (B, 2)
    totals = columns.new_zeros(len(groups), 2).index_add(0, inverse, columns)  # (K, 2)
    total, count = totals[inverse].unbind(dim=1)
    return total, count


def group_count(key: Tensor) -> Tensor:
    """Count the rows of each row's group.

    >>> group_count(torch.tensor([4, 4, 9]))
    tensor([2, 2, 1])
    """
    return _sum_and_count(torch.zeros_like(key), key)[1].long()


def group_sum(values: Tensor, key: Tensor) -> Tensor:
    """Sum of each row's group.

    >>> group_sum(torch.tensor([1.0, 3.0, 8.0]), torch.tensor([0, 0, 1]))
    tensor([4., 4., 8.], dtype=torch.float64)
    """
    return _sum_and_count(values, key)[0]


def group_mean(values: Tensor, key: Tensor) -> Tensor:
    """Mean of each row's group.

    >>> group_mean(torch.tensor([1.0, 3.0, 8.0]), torch.tensor([0, 0, 1]))
    tensor([2., 2., 8.], dtype=torch.float64)
    """
    total, count = _sum_and_count(values, key)
    return total / count


def group_std(values: Tensor, key: Tensor) -> Tensor:
    """Unbiased standard deviation of each row's group; 0 for a group of one.

    >>> group_std(torch.tensor([1.0, 3.0, 8.0]), torch.tensor([0, 0, 1]))
    tensor([1.4142, 1.4142, 0.0000], dtype=torch.float64)
    """
    deviation = values.double() - group_mean(values, key)
    total, count = _sum_and_count(deviation.square(), key)
    return (total / (count - 1).clamp(min=1)).sqrt()


def group_mean_of_others(values: Tensor, key: Tensor) -> Tensor:
    """Leave-one-out mean: the mean of the *other* rows of each row's group; a row alone gets its own value.

    >>> group_mean_of_others(torch.tensor([1.0, 3.0, 8.0]), torch.tensor([0, 0, 1]))
    tensor([3., 1., 8.], dtype=torch.float64)
    """
    total, count = _sum_and_count(values, key)
    values = values.double()
    return torch.where(count > 1, (total - values) / (count - 1).clamp(min=1), values)


def minus_mean(scores: Tensor, key: Tensor) -> Tensor:
    """Score minus its group's mean: x − x̄."""
    return scores.double() - group_mean(scores, key)


def standardised(scores: Tensor, key: Tensor) -> Tensor:
    """Score in standard deviations from its group's mean: (x − x̄) / (std + 1e-6)."""
    return minus_mean(scores, key) / (group_std(scores, key) + EPSILON)


def minus_mean_of_others(scores: Tensor, key: Tensor) -> Tensor:
    """Score minus the mean of the others; n/(n−1) times `minus_mean` in a group of n."""
    return scores.double() - group_mean_of_others(scores, key)


def one_per_trial(scores: Tensor, cell: Tensor, trial: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reduce rows to one score per trial and cell, so that a trial with more turns does not weigh more.

    Args:
        scores: (B,) equal on all rows of one trial within one cell.
        cell: (B,) key of the rows that are compared with each other.
        trial: (B,) which trial a row belongs to.

    Returns:
        The scores (U,), their cells (U,), and for each row (B,) the position of its score among them.

    >>> one_per_trial(torch.tensor([5.0, 5.0, 1.0]), torch.tensor([0, 0, 0]), torch.tensor([3, 3, 4]))
    (tensor([5., 1.], dtype=torch.float64), tensor([0, 0]), tensor([0, 0, 1]))
    """
    unit = combine_keys(cell, trial)  # (B,)
    num_units = int(unit.max()) + 1 if len(unit) else 0
    unit_scores = scores.new_zeros(num_units, dtype=torch.float64)
    unit_cells = cell.new_zeros(num_units)
    unit_scores[unit] = group_mean(scores, unit)  # all writers of one entry write the same number
    unit_cells[unit] = cell
    return unit_scores, unit_cells, unit


def compare_within_cells(
    compare: Comparison, scores: Tensor, *, cell: Tensor, trial: Tensor, credit_unit: str
) -> Tensor:
    """Compare scores within their cells, counting each trial once or each row once.

    Args:
        compare: `minus_mean`, `standardised` or `minus_mean_of_others`.
        scores: (B,) equal on all rows of one trial within one cell where `credit_unit` is `trial`.
        cell: (B,) key of the rows that are compared with each other.
        trial: (B,) which trial a row belongs to.
        credit_unit: `trial` or `row`.

    Returns:
        (B,) float64.
    """
    if credit_unit == "row":
        return compare(scores, cell)
    unit_scores, unit_cells, unit = one_per_trial(scores, cell, trial)
    return compare(unit_scores, unit_cells)[unit]


def moment_sums(values: Tensor) -> Tensor:
    """Return count, sum and sum of squares, (3,) float64: what processes add up to agree on one spread."""
    values = values.double()
    return torch.stack([values.new_tensor(float(values.numel())), values.sum(), values.square().sum()])


def std_from_sums(sums: Tensor) -> float:
    """Unbiased standard deviation from `moment_sums`; 0 for fewer than two values.

    >>> std_from_sums(moment_sums(torch.tensor([1.0, 3.0])) + moment_sums(torch.tensor([5.0])))
    2.0
    """
    count, total, squares = sums.tolist()
    if count < 2:
        return 0.0
    spread = squares - total * total / count
    # Of equal values only rounding is left here, on either side of 0, in proportion to their size.
    return math.sqrt(spread / (count - 1)) if spread > 1e-12 * squares else 0.0


def scale_and_clip(
    advantages: Tensor, *, scale: str = "none", clip: float | None = None, std: float | None = None
) -> Tensor:
    """Bring a batch of advantages to a common size: divide by their spread, then bound them.

        A ← clip(A / std(A), −c, +c)

    Nothing is subtracted, so signs stay. A spread below 1e-6 (all rows equal, one row, no rows) divides nothing, so
    the result is never NaN.

    Args:
        advantages: (B,) one per row.
        scale: `none`, or `batch_std` to divide by the standard deviation over the batch's rows.
        clip: c, or None for no bound.
        std: the spread over all processes' rows (`std_from_sums`), or None to take it from these rows.

    Returns:
        (B,) float32.

    >>> scale_and_clip(torch.tensor([-1.0, 0.0, 1.0, 8.0]), clip=4.0)
    tensor([-1.,  0.,  1.,  4.])
    """
    check_choice("scale_advantages", scale, ("none", "batch_std"))
    if clip is not None and not clip > 0:
        raise ConfigError(f"`advantage_clip` is {clip}, but a bound must be positive. Leave it out for no bound.")
    scaled = advantages.double()
    if scale == "batch_std":
        spread = std_from_sums(moment_sums(scaled)) if std is None else float(std)
        if math.isfinite(spread) and spread > EPSILON:
            scaled = scaled / spread
    if clip is not None:
        scaled = scaled.clamp(-clip, clip)
    return scaled.float()
