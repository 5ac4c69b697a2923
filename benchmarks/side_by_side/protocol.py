"""The rules of a fair comparison: the order of runs, medians with ranges, and when no ratio may be given.

Contenders run one after the other in processes of their own, forwards and then backwards (A B C C B A), so that any
two of them meet as A B B A and a machine that slowly warms up or fills favours neither. Each pass gives several timed
iterations after one that warms up. Speeds are compared only where the same work was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

TOLERANCE = 0.01
"""Largest difference of two token counts, as a share of the larger one, at which a ratio is given."""

COUNTS = {"rollout": ("sampled",), "update": ("trained",), "iteration": ("sampled", "trained")}
"""Which tokens must agree before a part's speeds are compared. `sampled`: prompts and responses of the rollout;
`trained`: the same tokens, as the update's backward passes saw them."""

Iteration = dict[str, Any]
"""What a contender measured of one iteration: `seconds`, `tokens`, `padding` and `peak_gib`, each by name."""


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


def speed_ratio(first: Sequence[Iteration], second: Sequence[Iteration], part: str) -> dict[str, Any]:
    """Return how many times as fast `first` is as `second` in `part`.

    Returns:
        `ratio` of the median speeds, and `low` and `high`: the slowest iteration of the first against the fastest of
        the second, and the reverse. Where the two did not do the same work, only `refused`, a reason.
    """
    if not first or not second:
        return {"refused": "one of them gave no figures"}
    gap = token_gap(first, second, part)
    if gap > TOLERANCE:
        return {"refused": f"their token counts differ by {100 * gap:.1f} %, more than {100 * TOLERANCE:g} %"}
    one, other = spread(speeds(first, part)), spread(speeds(second, part))
    return {
        "ratio": one["median"] / other["median"],
        "low": one["min"] / other["max"],
        "high": one["max"] / other["min"],
    }


def penalty(meta: Sequence[Iteration], plain: Sequence[Iteration], part: str) -> dict[str, Any]:
    """Return what a token costs under meta-RL, as a multiple of what it costs under plain RL.

        (T_meta / tokens_meta) / (T_RL / tokens_RL)

    Normalised, so the two may have different numbers of tokens: trials end at their first success.
    """
    if not meta or not plain:
        return {"refused": "one of them gave no figures"}
    slow, fast = spread(speeds(meta, part)), spread(speeds(plain, part))
    return {
        "ratio": fast["median"] / slow["median"],
        "low": fast["min"] / slow["max"],
        "high": fast["max"] / slow["min"],
    }


def share_of(
    first: Sequence[float], second: Sequence[float], works: tuple[Sequence[Iteration], Sequence[Iteration]]
) -> dict[str, Any]:
    """Return the first one's cost (seconds, bytes) as a multiple of the second one's, for the same work.

    Args:
        first: costs of the first contender, one a process.
        second: costs of the second.
        works: the iterations of both, whose tokens must agree.
    """
    if not first or not second:
        return {"refused": "one of them gave no figures"}
    gap = token_gap(*works, "iteration")
    if gap > TOLERANCE:
        return {"refused": f"their token counts differ by {100 * gap:.1f} %, more than {100 * TOLERANCE:g} %"}
    one, other = spread(first), spread(second)
    return {
        "ratio": one["median"] / other["median"],
        "low": one["min"] / other["max"],
        "high": one["max"] / other["min"],
    }
