"""Learning-rate schedules: functions of the optimizer steps taken, so that nothing of them is saved."""

from __future__ import annotations

import math
from typing import Any


class Schedule:
    """Sets the learning rate of every parameter group of an optimizer.

    The rate of a group is the one it was built with, times a factor that depends on the schedule and on the number of
    optimizer steps taken. A resumed run therefore needs that number only, however its weights are sharded.

    Args:
        name: as in Hugging Face's schedules; `constant` with warm-up steps warms up too.
        optimizer: what takes the steps.
        warmup_steps: of the linear warm-up, in optimizer steps.
        total_steps: optimizer steps of the whole run.
    """

    def __init__(self, name: str, optimizer: Any, *, warmup_steps: int, total_steps: int) -> None:
        self._name, self._warmup_steps, self._total_steps = name, warmup_steps, total_steps
        self._optimizer = optimizer
        self._full = [group["lr"] for group in optimizer.param_groups]
        self.go_to(0)

    @property
    def rates(self) -> list[float]:
        """The rate of the next optimizer step, for each parameter group."""
        return [group["lr"] for group in self._optimizer.param_groups]

    def go_to(self, steps: int) -> None:
        """Set the rates that follow after `steps` optimizer steps."""
        factor = rate_factor(self._name, steps, warmup_steps=self._warmup_steps, total_steps=self._total_steps)
        for group, full in zip(self._optimizer.param_groups, self._full, strict=True):
            group["lr"] = full * factor


def rate_factor(name: str, steps: int, *, warmup_steps: int, total_steps: int) -> float:
    """Return what a learning rate is multiplied by after `steps` optimizer steps, between 0 and 1."""
    if steps < warmup_steps:
        return steps / warmup_steps
    if name.startswith("constant"):
        return 1.0
    length = max(1, total_steps - warmup_steps)
    if name == "linear":
        return max(0.0, (total_steps - steps) / length)
    done = min(1.0, (steps - warmup_steps) / length)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * done)))
