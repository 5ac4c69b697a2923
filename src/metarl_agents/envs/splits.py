"""The ranges of task seeds that the library deals: training, validation and test tasks never meet.

Who deals them is `rollout/tasks.py`; an environment whose own data is split reads here which split a seed belongs to.
"""

from __future__ import annotations

SPLITS = ("train", "validation", "test")
SEEDS_PER_SPLIT = 2**40
"""Split number i owns the seeds from i times this on."""


def split_of_seed(seed: int) -> str:
    """Return the split that owns a task seed; "train" for seeds that no split owns.

    >>> split_of_seed(7), split_of_seed(2 * 2**40 + 7), split_of_seed(-1)
    ('train', 'test', 'train')
    """
    number = seed // SEEDS_PER_SPLIT
    return SPLITS[number] if 0 <= number < len(SPLITS) else SPLITS[0]
