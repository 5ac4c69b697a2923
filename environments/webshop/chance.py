"""A small generator of chance whose every draw follows from the parts it was built of.

Prices, bounds and generated products each get a generator of their own, so that none depends on how many were drawn
before it, and any one can be made alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """Draws that are the same in every process; only `Random.random` is used, which Python keeps as it is.

    >>> Chance("price", 7).below(100) == Chance("price", 7).below(100)
    True
    """

    def __init__(self, *parts: object):
        text = "\x1f".join(map(str, parts))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        self.unit = random.Random(int.from_bytes(digest, "big")).random
        """Returns a number in [0, 1)."""

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound), for bounds far below 2**53."""
        return int(self.unit() * bound)

    def between(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
        return low + (high - low) * self.unit()

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` of the items, each place at most once, in random order."""
        pool = list(items)
        for i in range(count):
            j = i + self.below(len(pool) - i)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return all items in random order."""
        return self.sample(items, len(items))
