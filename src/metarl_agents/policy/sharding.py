"""Everything that is special about DeepSpeed, in one file."""

from __future__ import annotations

import os


def settle_deepspeed_accelerator() -> None:
    """Tell DeepSpeed that a machine without an accelerator computes on the CPU.

    accelerate imports DeepSpeed wherever it is installed, whether it is used or not, and left to itself DeepSpeed
    then searches for an accelerator and warns that it found none.
    """
    import torch

    if not torch.accelerator.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
