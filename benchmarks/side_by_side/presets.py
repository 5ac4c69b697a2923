"""How much work a comparison is: the model, and the trials, turns and tokens of each workload."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from memory import MODELS, Shape


@dataclass(frozen=True)
class Workload:
    """One iteration's work. Lengths are drawn from seeded tables, so that every contender has the same."""

    tasks: int
    group_size: int
    num_episodes: int
    max_turns: int
    min_turns: int
    """Turns of an episode are uniform between the two."""
    success: float
    """Probability that an episode solves the task, which ends its trial."""
    rules_tokens: int
    """Words of one token each: in every prompt, ..."""
    task_tokens: int
    """... in every prompt of a task, ..."""
    turn_tokens: int
    """... and what each turn of a trial adds."""
    memory_tokens: int
    """What a past episode adds."""
    response_tokens: float
    """Median of the log-normal response lengths; none is longer than `max_response_tokens`."""
    max_response_tokens: int
    response_sigma: float = 0.55
    advantages: str = "gigpo"
    entropy_coef: float = 0.001


@dataclass(frozen=True)
class Preset:
    """A machine's comparison."""

    shape: Shape | None
    """Of the random model; None: the library's built-in tiny one."""
    bf16: bool
    """fp32 weights under bf16 autocast; False: fp32 throughout."""
    tokens: tuple[int, ...]
    """Micro-batches, in padded tokens, that are tried for the library; the fastest is compared."""
    rows: tuple[int, ...]
    """The same for the contenders, which count rows."""
    repeats: int
    """Timed iterations of each of a contender's two processes."""
    workloads: dict[str, Workload] = field(default_factory=dict)
    env_tasks: int = 50
    """Tasks that scripted players play of each environment, each of five times."""

    def described(self) -> dict[str, Any]:
        """Return the preset as plain values."""
        return asdict(self)

    def candidates(self, maker: str) -> tuple[int, ...]:
        """Return the micro-batches that are tried for a maker."""
        return self.tokens if maker == "ours" else self.rows

    def resized(self, tasks_factor: float = 1.0, repeats: int | None = None) -> Preset:
        """Return the preset with fewer or more tasks in every workload, or another number of repeats."""
        resized = {
            name: replace(work, tasks=max(1, round(work.tasks * tasks_factor))) for name, work in self.workloads.items()
        }
        return replace(self, workloads=resized, repeats=self.repeats if repeats is None else repeats)


def variants(meta: Workload, *, plain_group: int, single_tasks: int) -> dict[str, Workload]:
    """Return meta-RL, plain RL with as many episodes a task, and one turn a trial, as single-turn trainers have it."""
    once = replace(meta, num_episodes=1)
    single = replace(once, tasks=single_tasks, max_turns=1, min_turns=1, success=0.0)
    return {
        "meta": meta,
        "rl": replace(once, group_size=plain_group),
        "single": replace(single, advantages="grpo", entropy_coef=0.0),
    }


PRESETS = {
    "cpu": Preset(
        shape=None,
        bf16=False,
        tokens=(1024, 2048, 4096, 8192),
        rows=(4, 8, 16, 32),
        repeats=3,
        workloads=variants(
            Workload(
                tasks=3,
                group_size=8,
                num_episodes=3,
                max_turns=5,
                min_turns=3,
                success=0.2,
                rules_tokens=24,
                task_tokens=16,
                turn_tokens=8,
                memory_tokens=8,
                response_tokens=6,
                max_response_tokens=16,
            ),
            plain_group=24,
            single_tasks=32,
        ),
    ),
    "gpu": Preset(
        shape=MODELS["0.6B"],
        bf16=True,
        tokens=(8192, 16_384),
        rows=(4, 8, 16, 32),
        repeats=3,
        workloads=variants(
            Workload(
                tasks=4,
                group_size=8,
                num_episodes=2,
                max_turns=2,
                min_turns=2,
                success=0.2,
                rules_tokens=400,
                task_tokens=200,
                turn_tokens=80,
                memory_tokens=60,
                response_tokens=24,
                max_response_tokens=48,
            ),
            plain_group=16,
            single_tasks=16,
        ),
    ),
}
