"""What a purchase is worth, from 0 to 1.

    r = t (n_A + n_O + n_P) / (|A| + |O| + 1)

with t for the right kind of product, and n_A, n_O, n_P for fulfilled attributes, options and price.
Source: Yao et al., "WebShop", 2022, the reward; words are compared by RapidFuzz's token-set ratio.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from metarl_agents.environments.webshop.catalogue import Product, option_value
from metarl_agents.environments.webshop.extras import SPACY_MODEL, SPACY_WANTED, need
from metarl_agents.environments.webshop.goals import Goal
from metarl_agents.errors import ConfigError

SCORINGS = ("webshop", "exact")
NOUN_FINDERS = ("words", "spacy")
_ALIKE = 85
"""Texts whose ratio, rounded, is above this count as the same."""
_LATIN = dict.fromkeys(range(128, 256))
"""Characters that the comparison drops: WebShop's keeps none of Latin-1's upper half."""

# An option value counts as the first of these words that it contains: WebShop's own words, in its order.
_COLOUR_WORDS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy "
    "camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral "
    "cranberry cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass "
    "gray green grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon "
    "mauve merlot midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach "
    "pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver skull slate steel "
    "stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow"
)
_COLOURS = tuple(_COLOUR_WORDS.split())

# Words of a title that say nothing about the kind of product.
_SMALL_WORDS = (
    "a an and at by for from in into is it its of off on or our over per plus set sets the this to under up use with "
    "without you your new edition extra pack packs packed pair pairs piece pieces pcs count box boxes bag bags "
    "bottle case bundle kit gift single twin family size sizes small medium large mini big inch inches ft oz ounce "
    "ounces lb pound pounds ml day daily year years warranty everyday home travel best great"
)
_NO_NOUNS = frozenset(_SMALL_WORDS.split())


@dataclass(frozen=True)
class Verdict:
    """How one purchase fulfils one goal."""

    kind: float
    """The type factor t: 1, 0.5, 0.1 or 0."""
    attributes: int
    options: int
    price: bool
    reward: float


class Scorer:
    """Scores purchases.

    Args:
        scoring: `webshop` is WebShop's reward, which takes a nearly equal option for the wanted one ("8 ounce (pack
            of 1)" for "8 ounce (pack of 2)"); `exact` asks for the very value, on its own axis where the goal names
            one.
        nouns: how the words of titles are found that tell the kind of product: `words` takes all but function and
            packaging words; `spacy` takes the nouns that spaCy tags, as WebShop does, and needs the package spacy
            with its model en_core_web_sm.
    """

    def __init__(self, scoring: str = "webshop", nouns: str = "words"):
        self._exact = scoring == "exact"
        self._ratio = _ratio_function()
        self._nouns = lru_cache(maxsize=100_000)(plain_nouns if nouns == "words" else _spacy_nouns())

    def judge(self, product: Product, goal: Goal, chosen: Mapping[str, str]) -> Verdict:
        """Return how a purchase fulfils a goal.

        Args:
            product: what was bought.
            goal: what was asked for.
            chosen: axis to value, for the options that were chosen.
        """
        kind = self._kind(product, goal)
        attributes = self._attribute_hits(product, goal)
        options = (self._equal_options if self._exact else self._similar_options)(goal, chosen)
        price = product.price <= goal.bound
        share = (attributes + options + price) / (len(goal.attributes) + len(goal.options) + 1)
        return Verdict(kind, attributes, options, price, kind * share)

    def _kind(self, product: Product, goal: Goal) -> float:
        """Return t: other shelves halve the reward, titles without common nouns forfeit it whatever the shelf."""
        wanted, found = self._nouns(goal.product.title), self._nouns(product.title)
        common = len(set(wanted) & set(found)) / len(wanted) if wanted else 0.2
        if common == 0:
            return 0.0
        if common < 0.1:
            return 0.1
        same_shelf = product.query == goal.product.query or len(product.path & goal.product.path) >= 2
        return 1.0 if same_shelf or common > 0.2 else 0.5

    def _attribute_hits(self, product: Product, goal: Goal) -> int:
        pages = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
        return sum(
            any(self._alike(own, wanted) for own in product.attributes) or any(wanted in page for page in pages)
            for wanted in goal.attributes
        )

    def _similar_options(self, goal: Goal, chosen: Mapping[str, str]) -> int:
        bought = [_colour(value) for value in chosen.values()]
        return sum(any(self._alike(value, wanted) for value in bought) for wanted in map(_wanted_text, goal.options))

    def _equal_options(self, goal: Goal, chosen: Mapping[str, str]) -> int:
        return sum(
            option_value(value) in ((chosen.get(axis),) if axis is not None else chosen.values())
            for axis, value in goal.options
        )

    def _alike(self, left: str, right: str) -> bool:
        return self._ratio(left, right) > _ALIKE


def plain_nouns(title: str) -> tuple[str, ...]:
    """Return the words of a title that may tell its kind, in lower case, repeats included.

    >>> plain_nouns("Lamp X20 for the Home, Brass Lamp")
    ('lamp', 'brass', 'lamp')
    """
    return tuple(word for word in re.findall(r"[^\W\d_]{2,}", _unnumbered(title).lower()) if word not in _NO_NOUNS)


def _unnumbered(title: str) -> str:
    """Return the title without words that hold a digit (model numbers, amounts)."""
    return " ".join(word for word in title.split() if not any(sign.isdigit() for sign in word))


def _colour(value: str) -> str:
    return next((colour for colour in _COLOURS if colour in value), value)


def _wanted_text(option: tuple[str | None, str]) -> str:
    """Return what a wanted option is compared as: a pair is a colour only where axis or value is that very word."""
    axis, value = option
    if axis is None:
        return _colour(value)
    return next((colour for colour in _COLOURS if colour in (axis, value)), f"{axis} {value}")


def _ratio_function() -> Callable[[str, str], int]:
    fuzz, utils = need("rapidfuzz.fuzz"), need("rapidfuzz.utils")

    @lru_cache(maxsize=200_000)
    def ratio(left: str, right: str) -> int:
        plain = (utils.default_process(text.translate(_LATIN)) for text in (left, right))
        return round(fuzz.token_set_ratio(*plain))

    return ratio


def _spacy_nouns() -> Callable[[str], tuple[str, ...]]:
    spacy = need("spacy")
    try:
        model: Any = spacy.load(SPACY_MODEL)
    except OSError:
        raise ConfigError(SPACY_WANTED) from None
    return lambda title: tuple(token.text.lower() for token in model(title) if token.pos_ in ("NOUN", "PROPN"))
