"""Trajectory diversity: how differently a policy plays one task from sample to sample, and how sure that is.

Pure functions of trajectories, on NumPy and the standard library alone. What does not live here: which trajectories
those are (`results.py`), and the bootstrap (`metrics.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.metrics import paired_bootstrap, wilson_interval

_NO_TASKS = "there are no tasks to take the diversity of: evaluate on at least one."


class Diversity(NamedTuple):
    """How differently a policy plays one task from sample to sample."""

    nats: float
    """Mean over tasks of the entropy of its m trajectories."""
    normalised: float
    """The same over ln m, its largest possible value: 0 = always alike, 1 = never twice the same."""


def trajectory_diversity(samples: Sequence[Sequence[Hashable]]) -> Diversity:
    """Entropy of the trajectories sampled for one task, averaged over tasks.

        H = - Σ p log p          over the distinct trajectories of a task, p their share among its m samples

    Args:
        samples: (tasks, m) trajectories; equal ones compare equal, e.g. tuples of (observation, action).

    Raises:
        ConfigError: fewer than two samples a task, or not the same number for each, or no tasks.

    Source: LaMer, arXiv 2512.16848, figure 3.

    >>> tuple(round(value, 4) for value in trajectory_diversity([["ab", "ab", "cd", "cd"]]))
    (0.6931, 0.5)
    """
    entropies = trajectory_entropies(samples)
    nats = sum(entropies) / len(entropies)
    return Diversity(nats, nats / math.log(len(samples[0])))


def trajectory_entropies(samples: Sequence[Sequence[Hashable]]) -> list[float]:
    """Entropy, in nats, of the trajectories sampled for each task: the (tasks,) terms of `trajectory_diversity`.

    Args:
        samples: (tasks, m) trajectories; equal ones compare equal.

    Raises:
        ConfigError: fewer than two samples a task, or not the same number for each, or no tasks.
    """
    if not samples:
        raise ConfigError(_NO_TASKS)
    sizes = {len(task) for task in samples}
    m = min(sizes)
    if len(sizes) > 1 or m < 2:
        found = " and ".join(str(size) for size in sorted(sizes))
        raise ConfigError(f"diversity needs the same number of samples for each task, at least 2, but got {found}.")
    return [_entropy(Counter(task).values(), m) for task in samples]


def entropy_interval(
    entropies: Sequence[float], m: int, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the mean of `entropies`, by resampling tasks.

    Where all tasks are at 0, or all at ln m, resampling would claim certainty. There the share of tasks that are
    elsewhere has the Wilson interval of so many tasks, and each of them can be away by ln m at most.

    Args:
        entropies: (tasks,) as `trajectory_entropies` returns them.
        m: samples of a task.
        confidence: coverage of the interval.
        resamples: bootstrap samples.
        seed: of the resampling; the same seed gives the same interval.

    Returns:
        (low, high), nats.

    Raises:
        ConfigError: there are no tasks.
    """
    if not len(entropies):
        raise ConfigError(_NO_TASKS)
    values, largest = np.asarray(entropies, dtype=float), math.log(m)
    if np.all(values == 0) or np.allclose(values, largest, rtol=0, atol=1e-12):
        low, high = wilson_interval(len(values) if values[0] else 0, len(values), confidence)
        return low * largest, high * largest
    options = {"resamples": resamples, "seed": seed, "confidence": confidence}
    found = paired_bootstrap(values, np.zeros_like(values), **options)
    return found.low, found.high


def _entropy(counts: Iterable[int], total: int) -> float:
    """Entropy in nats; written so that a single outcome gives 0.0, not -0.0."""
    return sum(count / total * math.log(total / count) for count in counts)
