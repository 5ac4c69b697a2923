"""What the project asks of its own speed, and whether a result meets it.

Every goal is a ratio of two contenders of one result, so that a goal says the same on every machine. Those that this
bench does not measure are named with the reason, so that nobody takes their absence for a success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A bound on one of the ratios of `report.compare`."""

    words: str
    kind: str
    """With `pair` and `parts`, where the ratio is in what `report.compare` returns."""
    pair: str
    parts: tuple[str, ...]
    """The first of them that is there counts."""
    bounds: dict[str, float | None]
    """By preset; None: it is measured to be known, and no bound is set."""
    at_least: bool = False
    """The ratio should be as large as the bound, or larger; False: as small, or smaller."""


GOALS = {
    "G1": Goal(
        "tokens a second of meta-RL's rollout, as a multiple of the lock-step loop's",
        "speed",
        "ours/meta : lockstep/meta",
        ("rollout",),
        {"cpu": 2.0, "gpu": 4.0},
        at_least=True,
    ),
    "G2": Goal(
        "tokens a second of meta-RL's update, as a multiple of the lock-step loop's padded one",
        "speed",
        "ours/meta : lockstep/meta",
        ("update",),
        {"cpu": 1.8, "gpu": 1.8},
        at_least=True,
    ),
    "G3": Goal(
        "speed of a whole single-turn iteration, as a multiple of TRL GRPOTrainer's",
        "speed",
        "ours/single : trl/single",
        ("iteration",),
        {"cpu": 1.5, "gpu": 2.5},
        at_least=True,
    ),
    "G5": Goal(
        "time a token of meta-RL, as a multiple of plain RL's, whole iterations of one process (on a GPU it is meant "
        "for 128 trials at once)",
        "penalty",
        "ours",
        ("iteration",),
        {"cpu": 1.15, "gpu": 1.15},
    ),
    "G7": Goal(
        "the same of the lock-step loop, which shows what was removed",
        "penalty",
        "lockstep",
        ("iteration",),
        {"cpu": None, "gpu": None},
    ),
    "G10": Goal(
        "seconds from the start of the process to the end of its first update, as a share of TRL GRPOTrainer's",
        "cost",
        "ours/single : trl/single",
        ("first update",),
        {"cpu": 0.7, "gpu": 1.0},
    ),
    "G11": Goal(
        "peak memory of the update (on a CPU, of the whole process), as a share of TRL GRPOTrainer's",
        "cost",
        "ours/single : trl/single",
        ("peak memory of the update", "peak memory"),
        {"cpu": 0.7, "gpu": 0.6},
    ),
    "G12": Goal(
        "speed of answering one request at a time, as a multiple of plain `generate`'s",
        "extra",
        "request",
        ("rollout",),
        {"cpu": 0.95, "gpu": 2.0},
        at_least=True,
    ),
    "G13": Goal(
        "throughput of plain RL's rollout where a step of the environment takes 100 ms, as a share of that where it "
        "takes none (16 environment workers on both sides)",
        "extra",
        "waiting",
        ("rollout",),
        {"cpu": 0.9, "gpu": 0.9},
        at_least=True,
    ),
}

NOT_MEASURED = {
    "G4": (
        "speed of a whole meta-RL iteration, as a multiple of TRL's multi-turn `rollout_func`",
        "because TRL takes part in single turns only; its experimental multi-turn hook has no contender here yet",
    ),
    "G6": (
        "meta-RL's token cost with 16 trials at once, as on a rank of eight GPUs, and its asynchronous variant",
        "because no preset has that size, and the library has no asynchronous rollout",
    ),
    "G8": (
        "a decode step, as a multiple of what the card's memory bandwidth allows",
        "because neither the card's own bandwidth nor single decode steps are measured",
    ),
    "G9": (
        "a decode step, as a multiple of a step of plain `generate`",
        "because the library decodes by `generate` itself, so that the two are one",
    ),
}
"""{goal: (its words, why it is left out)}"""


def judge(compared: dict[str, Any], preset: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Hold a result against the goals.

    Args:
        compared: what `report.compare` returned.
        preset: whose bounds count.

    Returns:
        For each goal that has a ratio here, or one that was refused: `number`, `goal`, `part`, `asked`,
        `measured` and `verdict`; and {goal: reason} for the others.
    """
    judged = []
    left_out = {f"goal {number} ({words})": reason for number, (words, reason) in NOT_MEASURED.items()}
    for number, goal in GOALS.items():
        parts = compared.get(goal.kind, {}).get(goal.pair, {})
        part = next((part for part in goal.parts if part in parts), None)
        if part is None:
            left_out[f"goal {number} ({goal.words})"] = "because what it compares did not run"
            continue
        measured, bound = parts[part], goal.bounds[preset]
        asked = "no bound" if bound is None else f"at {'least' if goal.at_least else 'most'} {bound:g}"
        verdict = _verdict(measured, bound, goal.at_least)
        told = {"number": number, "goal": goal.words, "part": part, "asked": asked}
        judged.append(told | {"measured": measured, "verdict": verdict})
    return judged, left_out


def _verdict(measured: dict[str, Any], bound: float | None, at_least: bool) -> str:
    """Return whether the median ratio keeps to the bound, and whether all repeats say the same."""
    if "refused" in measured:
        return "not judged"
    if bound is None:
        return "measured"
    met, *repeats = (
        value >= bound if at_least else value <= bound for value in (measured[key] for key in ("ratio", "low", "high"))
    )
    return ("met" if met else "missed") + ("" if all(repeat == met for repeat in repeats) else ", not beyond doubt")
