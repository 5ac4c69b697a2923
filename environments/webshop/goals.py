"""Goals: what an agent is asked to buy, and which goals belong to which split.

Goals are made when they are asked for: a list of a million costs a number each. Read first: `GoalList`.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from metarl_agents.environments.webshop.catalogue import Product
from metarl_agents.environments.webshop.chance import Chance
from metarl_agents.envs.splits import SEEDS_PER_SPLIT, SPLITS, split_of_seed
from metarl_agents.errors import ConfigError

GOAL_KINDS = ("synthetic", "human")
NO_BOUND = 1_000_000.0
"""The price bound of a goal that names none."""
_STEP, _HIGHEST = 10, 990
# WebShop orders its goals with this seed, so "goal 17" of the real files is the same goal everywhere.
_ORDER_SEED = 233

_TEST_GOALS, _VALIDATION_GOALS = 500, 1000
_SMALLEST_FULL_SIZE = 2000


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing to buy."""

    index: int
    """Its place in the shop's list of goals: the task."""
    product: Product
    """The product the instruction was made for; any product that fits is as good."""
    text: str
    """The instruction, price clause included."""
    attributes: tuple[str, ...]
    options: tuple[tuple[str | None, str], ...]
    """Wanted (axis, value) pairs; the axis is None where the instruction names the value alone."""
    bound: float
    """The highest price that counts as good."""


class GoalList(Sequence[Goal]):
    """All goals of a list of products, shuffled once, each made when it is asked for.

    Args:
        products: in catalogue order.
        kind: `human` takes the instructions people wrote; `synthetic` makes one goal for each product and each
            combination of all its option values.
        seed: decides the price bounds.
    """

    def __init__(self, products: Sequence[Product], kind: str, seed: int):
        self._products, self._kind, self._seed = products, kind, seed
        self._ends = list(accumulate(_count(product, kind) for product in products))
        self._order = array("L", range(self._ends[-1] if self._ends else 0))
        random.Random(_ORDER_SEED).shuffle(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> Goal:  # type: ignore[override]
        """Make goal `index`."""
        rank = self._order[index]
        owner = bisect_right(self._ends, rank)
        product = self._products[owner]
        number = rank - (self._ends[owner - 1] if owner else 0)
        if self._kind == "human":
            request = _usable(product)[number]
            text, attributes = request.text.strip("."), request.attributes
            options = tuple((None, value) for value in request.options)
        else:
            options = _combination(product, number)
            wish = ", and ".join(f"{axis}: {value}" for axis, value in options)
            text = f"{product.instruction} with {wish}" if wish else str(product.instruction)
            attributes = product.instruction_attributes
        bound = price_bound(product.price, Chance(self._seed, "bound", product.asin, number))
        if bound < NO_BOUND:
            text += f", and price lower than {bound:.2f} dollars"
        return Goal(index, product, text, attributes, options, bound)


def _usable(product: Product) -> list:
    return [request for request in product.requests if request.attributes]


def _count(product: Product, kind: str) -> int:
    if kind == "human":
        return len(_usable(product))
    return prod(map(len, product.options.values())) if product.instruction else 0


def _combination(product: Product, number: int) -> tuple[tuple[str, str], ...]:
    """Return combination `number` of all option values: axes by name, the last one turning fastest."""
    chosen = []
    for axis in sorted(product.options, reverse=True):
        number, place = divmod(number, len(product.options[axis]))
        chosen.append((axis, product.options[axis][place]))
    return tuple(reversed(chosen))


def price_bound(price: float, chance: Chance) -> float:
    """Return the larger of two different values drawn from the four multiples of 10, up to 990, above the price.

    Where there are fewer than two such multiples there is no bound.
    """
    first = int(price // _STEP) + 1
    above = [float(_STEP * i) for i in range(first, min(first + 4, _HIGHEST // _STEP + 1))]
    return max(chance.sample(above, 2)) if len(above) >= 2 else NO_BOUND


def split_goals(total: int, split: str) -> range:
    """Return the goals of a split: 0-499 are test, 500-1499 validation, all further ones train.

    A shop with fewer than 2,000 goals gives a fifth to test and a fifth to validation, in the same order.

    >>> split_goals(9000, "validation"), split_goals(100, "train")
    (range(500, 1500), range(40, 100))
    """
    small = total < _SMALLEST_FULL_SIZE
    test = -(-total // 5) if small else _TEST_GOALS
    validation = total // 5 if small else _VALIDATION_GOALS
    starts = {"test": 0, "validation": test, "train": test + validation, "end": total}
    ends = {"test": "validation", "validation": "train", "train": "end"}
    return range(starts[split], starts[ends[split]])


def goal_of_seed(seed: int, total: int, split: str | None) -> int:
    """Return the goal that a task seed stands for.

    Args:
        seed: counts goals from the start of its split, again and again if it is large.
        total: goals in the shop.
        split: where to take the goal from; None lets the seed tell, which lies in the library's range of a split.

    >>> goal_of_seed(2, 9000, None), goal_of_seed(2 * 2**40 + 2, 9000, None)
    (1502, 2)
    """
    split = split or split_of_seed(seed)
    goals = split_goals(total, split)
    if not goals:
        raise ConfigError(
            f"The shop has {total} goals, which leaves none for the split `{split}`. "
            f"Use more products (`num_products`)."
        )
    return goals[seed % SEEDS_PER_SPLIT % len(goals)]


def seed_of_goal(index: int, total: int) -> int:
    """Return the task seed that stands for a goal, in the range of the split it belongs to.

    >>> goal_of_seed(seed_of_goal(700, 9000), 9000, None)
    700
    """
    for number, split in enumerate(SPLITS):
        goals = split_goals(total, split)
        if index in goals:
            return number * SEEDS_PER_SPLIT + goals.index(index)
    raise ConfigError(f"There is no goal {index}: the shop has {total}, counted from 0.")
