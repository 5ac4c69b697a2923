"""The rules of a fair comparison: the order of runs, medians with ranges, and when no ratio may be given.

Contenders run one after the other in processes of their own, forwards and then backwards (A B C C B A), so that any
two of them meet as A B B A and a machine that slowly warms up or fills favours neither. Each pass gives several timed
iterations after one that warms up. Speeds are compared only where the same work was done, by at least `LEAST` timed
repeats of each, and where what was sampled is what was learned from (`LOGP_LIMIT`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from statistics import median
from typing import Any

TOLERANCE = 0.01
"""Largest difference of two token counts, as a share of the larger one, at which a ratio is given."""

LEAST = 5
"""Fewest timed repeats of each side from which a ratio of times is given."""

LOGP_LIMIT = 1e-3
"""Largest difference, in fp32, of a token's log-probability as sampled and as scored in the update before it learns;
above it the two are not the same policy, and no speed counts. Under bf16 the difference is printed only: its limit is
twice what two batch sizes of plain `generate` differ by, which is not measured here."""

SPARE = 0.5
"""What the load may exceed the threads in use by: the process before leaves a little more than its threads behind."""

COUNTS = {"rollout": ("sampled",), "update": ("trained",), "iteration": ("sampled", "trained")}
"""Which tokens must agree before a part's speeds are compared. `sampled`: prompts and responses of the rollout;
`trained`: the same tokens, as the update's backward passes saw them."""

Iteration = dict[str, Any]
"""What a contender measured of one iteration: `seconds`, `tokens`, `padding` and `peak_gib`, each by name; the library
also `logp_difference`, `largest_logp_difference` and their `logp_limit`."""


def order(contenders: Sequence[str]) -> list[str]:
    """Return the order of processes: forwards, then backwards.

    >>> order(["A", "B"])
    ['A', 'B', 'B', 'A']
    """
    return [*contenders, *reversed(contenders)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median and range of some measurements.

    >>> spread([3.0, 1.0, 2.0, 10.0])
    {'median': 2.5, 'min': 1.0, 'max': 10.0, 'count': 4}
    """
    return {"median": median(values), "min": min(values), "max": max(values), "count": len(values)}


def speeds(iterations: Sequence[Iteration], part: str) -> list[float]:
    """Return the tokens per second of each iteration in `part`: prompts and responses, padding not counted."""
    return [iteration["tokens"][COUNTS[part][0]] / iteration["seconds"][part] for iteration in iterations]


def token_gap(first: Sequence[Iteration], second: Sequence[Iteration], part: str) -> float:
    """Return by how much the tokens of two contenders differ in `part`, as a share of the larger count."""
    gaps = [0.0]
    for name in COUNTS[part]:
        counts = [sum(iteration["tokens"][name] for iteration in side) for side in (first, second)]
        gaps.append(abs(counts[0] - counts[1]) / max(*counts, 1))
    return max(gaps)


def objection(first: Sequence[Iteration], second: Sequence[Iteration]) -> str | None:
    """Return why the figures of two contenders may not be compared at all, or None."""
    if not first or not second:
        return "one of them gave no figures"
    for iteration in (*first, *second):
        limit = iteration.get("logp_limit")
        gaps = [iteration[name] for name in ("logp_difference", "largest_logp_difference") if name in iteration]
        if limit is not None and not all(gap <= limit for gap in gaps):  # which no NaN is
            return (
                f"log-probabilities as sampled and as scored differ by {max(gaps, key=_nan_last):.1e}, more than "
                f"{limit:g}: the sampler and the update are not the same policy"
            )
    return None


def too_few(count: int, word: str = "timed repeats", remedy: str = "--repeats 3") -> str | None:
    """Return why no ratio comes from so few measurements of a side, or None."""
    if count >= LEAST:
        return None
    return f"it would come from {count} {word}, fewer than {LEAST}: measure with {remedy} or more"


def differing(first: Sequence[Iteration], second: Sequence[Iteration], part: str) -> str | None:
    """Return by how much the tokens of two contenders differ, where it is too much, or None."""
    gap = token_gap(first, second, part)
    return (
        f"their token counts differ by {100 * gap:.1f} %, more than {100 * TOLERANCE:g} %" if gap > TOLERANCE else None
    )


def speed_ratio(first: Sequence[Iteration], second: Sequence[Iteration], part: str) -> dict[str, Any]:
    """Return how many times as fast `first` is as `second` in `part`.

    Returns:
        `ratio` of the median speeds, `low` and `high` (the slowest iteration of the first against the fastest of the
        second, and the reverse), and `repeats` of the side that has fewer. Where the two did not do the same work, or
        another rule is broken, only `refused`, a reason.
    """
    reason = objection(first, second) or differing(first, second, part) or too_few(_fewer(first, second))
    return {"refused": reason} if reason else _ratio(speeds(first, part), speeds(second, part))


def penalty(meta: Sequence[Iteration], plain: Sequence[Iteration], part: str) -> dict[str, Any]:
    """Return what a token costs under meta-RL, as a multiple of what it costs under plain RL.

        (T_meta / tokens_meta) / (T_RL / tokens_RL)

    Normalised, so the two may have different numbers of tokens: trials end at their first success.
    """
    reason = objection(meta, plain) or too_few(_fewer(meta, plain))
    return {"refused": reason} if reason else _ratio(speeds(plain, part), speeds(meta, part))


def share_of(
    first: Sequence[float], second: Sequence[float], works: tuple[Sequence[Iteration], Sequence[Iteration]]
) -> dict[str, Any]:
    """Return the first one's cost (seconds, bytes) as a multiple of the second one's, for the same work.

    Args:
        first: costs of the first contender, one a process.
        second: costs of the second.
        works: the iterations of both, whose tokens must agree.
    """
    reason = objection(*works) or differing(*works, "iteration")
    return {"refused": reason} if reason else _ratio(first, second)


def start_share(
    first: Sequence[float], second: Sequence[float], works: tuple[Sequence[Iteration], Sequence[Iteration]]
) -> dict[str, Any]:
    """Return `share_of` of the seconds of process starts, of which there must be `LEAST` of each."""
    reason = too_few(_fewer(first, second), "starts", f"--starts {LEAST}")
    found = share_of(first, second, works)
    return {"refused": reason} if reason and "ratio" in found else found


def load() -> float | None:
    """Return the jobs that ran or waited for a CPU over the last minute, or None where the machine does not say."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has none
        return None


def is_busy(found: float | None, threads: int) -> bool:
    """Tell whether a load taken before a process was more than the bench's own.

    >>> is_busy(1.1, threads=1), is_busy(2.0, threads=1), is_busy(None, threads=1)
    (False, True, False)
    """
    return found is not None and found > threads + SPARE


def _ratio(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    one, other = spread(first), spread(second)
    return {
        "ratio": one["median"] / other["median"],
        "low": one["min"] / other["max"],
        "high": one["max"] / other["min"],
        "repeats": _fewer(first, second),
    }


def _fewer(first: Sequence[Any], second: Sequence[Any]) -> int:
    return min(len(first), len(second))


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value
