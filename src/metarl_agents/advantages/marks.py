"""Marks: what an estimator needs that its parameters do not say.

An estimator without a mark is called with the table alone, plus the settings and the baseline that its parameters name
(`training/credit.py`). `addresses.has_mark` reads them, through a `functools.partial` too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

Estimator = TypeVar("Estimator", bound=Callable[..., Tensor])


def compares_trials(estimator: Estimator) -> Estimator:
    """Mark an estimator that compares the trials of a group, so that `group_size` must be at least 2.

    >>> @compares_trials
    ... def above_the_worst(table): ...
    >>> above_the_worst.compares_trials
    True
    """
    estimator.compares_trials = True  # type: ignore[attr-defined]
    return estimator


def reads_values(estimator: Estimator) -> Estimator:
    """Mark an estimator that reads `table.values`, so that a critic is trained and runs first."""
    estimator.reads_values = True  # type: ignore[attr-defined]
    return estimator
