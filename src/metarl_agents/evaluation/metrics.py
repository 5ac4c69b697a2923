"""The statistics of the exam: two kinds of pass@k, intervals, paired comparison.

What lives here: pure functions of outcomes, on NumPy and the standard library alone. What does not: which tasks are
played and how outcomes are stored (`results.py`), how differently they were played (`diversity.py`), the running
metrics of training (`tracking/metrics.py`).
Sequential pass@k (within the first k episodes of one trial, memory between them) and independent pass@k (any of k
unconnected first episodes) answer different questions; no function here mixes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metarl_agents.errors import ConfigError

_BLOCK = 1_000


class PairedDifference(NamedTuple):
    """How much better the first method is than the second, on the same tasks."""

    mean: float
    """Mean over tasks of (first - second), as a share: 0.1 is ten points."""
    low: float
    high: float
    p_value: float
    """Two-sided; below 0.05 exactly where the 95 % interval leaves out 0 (up to the resolution of the resampling)."""


class SeedSpread(NamedTuple):
    """One number per run, summed up over runs that differ in their seed alone."""

    mean: float
    min: float
    max: float
    std: float | None
    """Sample standard deviation (n - 1); None for a single run."""


def sequential_pass_at_k(solved_at: Sequence[int | None], k: int, num_episodes: int) -> float:
    """Share of tasks solved within the first k episodes of one trial.

    Args:
        solved_at: (tasks,) 0-based index of the first solved episode; None where no episode solved the task.
        k: number of episodes looked at, 1..N.
        num_episodes: N, episodes a trial may have.

    Raises:
        ConfigError: k lies outside 1..N, or there are no tasks.

    Source: LaMer, arXiv 2512.16848, p@1, p@2 and p@3.

    >>> sequential_pass_at_k([0, 2, None, 1], k=2, num_episodes=3)
    0.5
    """
    _check_k(k, num_episodes, "episodes a trial")
    _check_tasks(len(solved_at))
    return sum(first is not None and first < k for first in solved_at) / len(solved_at)


def independent_pass_at_k(successes: Sequence[Sequence[bool]], k: int) -> float:
    """Probability that at least one of k independent attempts solves a task, averaged over tasks; unbiased.

        pass@k = mean over tasks of 1 - C(n - c, k) / C(n, k)

    With k = 1 this is the mean success c / n.

    Args:
        successes: (tasks, n) whether each of the n independent samples of a task succeeded; c is their number.
        k: number of attempts, 1..n.

    Raises:
        ConfigError: k lies outside 1..n, or there are no tasks.

    Source: Chen et al., arXiv 2107.03374, equation 1.

    >>> independent_pass_at_k([[True, False], [False, False]], k=1)
    0.25
    """
    return float(np.mean(independent_per_task(successes, k)))


def independent_per_task(successes: Sequence[Sequence[bool]], k: int) -> NDArray[np.float64]:
    """Return the (tasks,) terms of `independent_pass_at_k`: the estimate of each task.

    Args:
        successes: (tasks, n) as for `independent_pass_at_k`.
        k: number of attempts, 1..n.

    Raises:
        ConfigError: k lies outside 1..n, or there are no tasks.
    """
    _check_tasks(len(successes))
    _check_k(k, min(len(task) for task in successes), "samples a task")
    return np.array([_any_of_k(len(task), sum(map(bool, task)), k) for task in successes])


def independent_pass_interval(
    successes: Sequence[Sequence[bool]], k: int, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of `independent_pass_at_k`, by resampling tasks with all their samples.

    Where no task differs from "never" or from "always", resampling would claim certainty; then the Wilson interval of
    that many tasks is returned.

    Args:
        successes: (tasks, n) as for `independent_pass_at_k`.
        k: number of attempts, 1..n.
        confidence: coverage of the interval.
        resamples: bootstrap samples.
        seed: of the resampling; the same seed gives the same interval.

    Returns:
        (low, high), shares.
    """
    values = independent_per_task(successes, k)
    if np.all(values == 0) or np.all(values == 1):
        return wilson_interval(round(float(values.sum())), len(values), confidence)
    return _percentiles(_bootstrap_means(values, resamples, seed), confidence)


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a share: it stays inside [0, 1] and is honest at 0 and at n successes.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)          with p = successes / n

    Args:
        successes: number of successes, 0..n.
        n: number of trials; 0 gives (0, 1), since nothing is known.
        confidence: coverage; z is the matching two-sided quantile of the normal distribution.

    Returns:
        (low, high), shares.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).

    >>> tuple(round(bound, 4) for bound in wilson_interval(5, 10))
    (0.2366, 0.7634)
    """
    _check_confidence(confidence)
    if not 0 <= successes <= n:
        raise ConfigError(f"`successes` is {successes} of {n} trials, but must lie between 0 and their number.")
    if n == 0:
        return 0.0, 1.0
    z2 = NormalDist().inv_cdf(0.5 + confidence / 2) ** 2
    share = successes / n
    centre = share + z2 / (2 * n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n)))
    scale = 1 + z2 / n
    # The bounds at 0 and n are exact in algebra; rounding must not move them.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return low, high


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    resamples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
    over_runs: bool = False,
) -> PairedDifference:
    """Compare two methods on the same tasks: interval and p-value of the mean difference a - b.

    Tasks are resampled and the runs of a task stay together, so the interval speaks of other tasks from the same
    source, played by these very runs. With `over_runs`, the runs of each method are resampled too, and the interval
    speaks of training once more; with few runs it is too narrow rather than too wide, and with one it cannot know.

    Args:
        a: (tasks,) or (runs, tasks) outcomes of the first method, booleans or numbers.
        b: the same for the second; the number of runs may differ, the tasks may not.
        resamples: bootstrap samples; the smallest p-value is 2 / (resamples + 1).
        seed: of the resampling; the same seed gives the same answer.
        confidence: coverage of the percentile interval.
        over_runs: resample runs as well as tasks.

    Returns:
        The difference. Methods with equal outcomes on every task give 0, [0, 0] and p = 1.

    Raises:
        ConfigError: the numbers of tasks differ, or there are none.
    """
    first, second = _per_task(a), _per_task(b)
    if len(first) != len(second):
        raise ConfigError(
            f"a paired comparison needs the same tasks, but got {len(first)} of the first method and {len(second)} "
            "of the second: evaluate both on the same task seeds."
        )
    _check_tasks(len(first))
    difference = first - second
    if over_runs:
        means = _bootstrap_run_means(np.atleast_2d(a), np.atleast_2d(b), resamples, seed)
    else:
        means = _bootstrap_means(difference, resamples, seed)
    # Sums of equal terms in another order differ in their last bits: what is that close to 0 is 0.
    at_most, at_least = np.sum(means <= 1e-12), np.sum(means >= -1e-12)
    p_value = min(1.0, 2 * (1 + min(at_most, at_least)) / (resamples + 1))
    return PairedDifference(float(difference.mean()), *_percentiles(means, confidence), float(p_value))


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for the number of comparisons, so that any false alarm among them stays at the chosen level.

    The i-th smallest of m is multiplied by m - i (from i = 0), never falls below a smaller one's, and stops at 1.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6 (1979).

    >>> [round(p, 3) for p in holm_adjusted([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def seed_spread(values: Sequence[float]) -> SeedSpread:
    """Sum up one number per run, over runs that differ in their seed alone.

    >>> seed_spread([0.25, 0.5, 0.75])
    SeedSpread(mean=0.5, min=0.25, max=0.75, std=0.25)
    """
    if not len(values):
        raise ConfigError("the spread over runs needs at least one run, but got none.")
    numbers = np.asarray(values, dtype=float)
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return SeedSpread(float(numbers.mean()), float(numbers.min()), float(numbers.max()), std)


def pooled(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Add (successes, n) over runs, for one interval over all of them.

    >>> pooled([(10, 20), (5, 20)])
    (15, 40)
    """
    counts = list(counts)
    return sum(successes for successes, _ in counts), sum(n for _, n in counts)


def _any_of_k(n: int, c: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k) as a product of factors below 1, without large binomials."""
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def _per_task(outcomes: ArrayLike) -> NDArray[np.float64]:
    """Return (tasks,) outcomes, averaged over runs where there are several."""
    values = np.asarray(outcomes, dtype=float)
    if values.ndim not in (1, 2) or values.shape[0] == 0:
        raise ConfigError(f"outcomes must have the shape (tasks,) or (runs, tasks), but have the shape {values.shape}.")
    return values if values.ndim == 1 else values.mean(axis=0)


def _bootstrap_means(values: NDArray[np.float64], resamples: int, seed: int) -> NDArray[np.float64]:
    """Return (resamples,) means of `values` (tasks,) drawn with replacement."""
    return np.concatenate(
        [means[:, 0] for means in _resampled(values[:, None], resamples, np.random.default_rng(seed))]
    )


def _bootstrap_run_means(a: ArrayLike, b: ArrayLike, resamples: int, seed: int) -> NDArray[np.float64]:
    """Return (resamples,) differences of means, with tasks drawn for both methods together and runs for each alone."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    generator = np.random.default_rng(seed)
    blocks = []
    for means in _resampled(np.concatenate([first, second]).T, resamples, generator):
        of_method = []
        for of_run in (means[:, : len(first)], means[:, len(first) :]):
            drawn = generator.integers(0, of_run.shape[1], of_run.shape)
            of_method.append(np.take_along_axis(of_run, drawn, axis=1).mean(axis=1))
        blocks.append(of_method[0] - of_method[1])
    return np.concatenate(blocks)


def _resampled(
    outcomes: NDArray[np.float64], resamples: int, generator: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    """Yield (block, columns) means of `outcomes` (tasks, columns) over tasks drawn with replacement, block by block.

    Tasks with equal outcomes are the same to a mean, so how often each kind was drawn is all that is drawn.
    """
    if resamples < 1:
        raise ConfigError(f"`resamples` is {resamples}, but must be at least 1.")
    kinds, counts = np.unique(outcomes, axis=0, return_counts=True)
    tasks = len(outcomes)
    for start in range(0, resamples, _BLOCK):
        yield generator.multinomial(tasks, counts / tasks, min(_BLOCK, resamples - start)) @ kinds / tasks


def _percentiles(means: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Return the central interval that holds `confidence` of the resampled means."""
    _check_confidence(confidence)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _check_k(k: int, largest: int, what: str) -> None:
    if not 1 <= k <= largest:
        raise ConfigError(f"pass@{k} cannot be measured with {largest} {what}: choose k between 1 and {largest}.")


def _check_tasks(count: int) -> None:
    if count == 0:
        raise ConfigError("there are no tasks to take a share of: evaluate on at least one.")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ConfigError(f"`confidence` is {confidence}, but must lie between 0 and 1, like 0.95.")
