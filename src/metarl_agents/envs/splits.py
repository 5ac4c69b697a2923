"""The ranges of task seeds that the library deals: training, validation and test tasks never meet.

Who deals them is `rollout/tasks.py`; an environment whose own data is split reads here which split a seed belongs to.
"""

from __future__ import annotations

SPLITS = ("train", "validation", "test")
SEEDS_PER_SPLIT = 2**40
"""Split number i owns the seeds from i times this on."""
