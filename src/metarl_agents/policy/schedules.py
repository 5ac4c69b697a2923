"""Learning-rate schedules, from transformers."""

from __future__ import annotations

from typing import Any


def learning_rate_schedule(name: str, optimizer: Any, *, warmup_steps: int, total_steps: int) -> Any:
    """Return a scheduler by its Hugging Face name; `constant` with warm-up steps warms up too."""
    from transformers import get_scheduler

    if name == "constant" and warmup_steps:
        name = "constant_with_warmup"
    return get_scheduler(name, optimizer, num_warmup_steps=warmup_steps, num_training_steps=total_steps)
