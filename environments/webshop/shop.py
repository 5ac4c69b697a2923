"""The shop as a machine: pages, what can be clicked on them, and what a click does.

What lives here: pages as lists of parts. What does not: how a page becomes text (`pages.py`), and how an answer becomes
a search or a click (`env.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from metarl_agents.environments.webshop.catalogue import Product
from metarl_agents.environments.webshop.goals import Goal, GoalList
from metarl_agents.environments.webshop.scoring import Scorer, Verdict
from metarl_agents.environments.webshop.search import Search

PER_PAGE = 10
SEARCH, BACK, PREVIOUS, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")


class Kind(Enum):
    """What a part of a page is."""

    TASK = "task"
    """The instruction and its heading."""
    TEXT = "text"
    AXIS = "axis"
    """The name of an option axis."""
    TITLE = "title"
    PRICE = "price"
    BUTTON = "button"
    LINK = "link"
    """Leads to a product; the text is its asin."""
    OPTION = "option"


class Part(NamedTuple):
    """One visible piece of a page."""

    kind: Kind
    text: str


class Action(NamedTuple):
    """A search, or a click."""

    verb: str
    """`search` or `click`."""
    argument: str
    """Lower case."""


@dataclass(frozen=True)
class Shop:
    """What all visits to one shop share; nothing here changes."""

    products: Sequence[Product]
    goals: GoalList
    search: Search
    scorer: Scorer


@dataclass
class Visit:
    """One attempt at one goal: where the agent is, and what it has chosen."""

    shop: Shop
    goal: Goal
    page: str = "search"
    """`search`, `results`, `item`, or one of the sub-pages in lower case."""
    query: str = ""
    number: int = 1
    """Page of the results, from 1."""
    found: tuple[int, ...] = ()
    """Places of the products that the last search found."""
    product: Product | None = None
    chosen: dict[str, str] = field(default_factory=dict)
    """Axis to value, in the order of the choices."""
    seen: set[str] = field(default_factory=set)
    """Asins of the products that were opened since the search page."""
    verdict: Verdict | None = None
    """What the purchase was worth, once there is one."""
    _parts: list[Part] | None = field(default=None, init=False, repr=False)
    """The current page, once it has been asked for."""

    @property
    def over(self) -> bool:
        """Whether something was bought."""
        return self.verdict is not None

    @property
    def listed(self) -> list[Product]:
        """The products on the current page of results."""
        first = (self.number - 1) * PER_PAGE
        return [self.shop.products[place] for place in self.found[first : first + PER_PAGE]]

    def parts(self) -> list[Part]:
        """Return the visible pieces of the current page, in reading order; pieces without text are left out."""
        if self._parts is None:
            self._parts = [part for part in self._all_parts() if part.text]
        return self._parts

    def _all_parts(self) -> list[Part]:
        if self.page == "search":
            # This page's heading ends in a blank, the others' does not: WebShop's marked-up text shows it.
            parts = [Part(Kind.TEXT, "WebShop"), Part(Kind.TASK, "Instruction: "), self._task()[1]]
            parts += [Part(Kind.BUTTON, SEARCH)]
        elif self.page == "results":
            parts = [*self._task(), Part(Kind.BUTTON, BACK), *self._results()]
        else:
            parts = [*self._task(), Part(Kind.BUTTON, BACK), Part(Kind.BUTTON, PREVIOUS), *self._about_product()]
        return parts

    def _task(self) -> list[Part]:
        return [Part(Kind.TASK, "Instruction:"), Part(Kind.TASK, self.goal.text)]

    def _results(self) -> list[Part]:
        parts = [Part(Kind.TEXT, f"Page {self.number} (Total results: {len(self.found)})")]
        parts += [Part(Kind.BUTTON, PREVIOUS)] * (self.number > 1)
        parts += [Part(Kind.BUTTON, NEXT)]
        for product in self.listed:
            parts += [Part(Kind.LINK, product.asin), Part(Kind.TITLE, product.title)]
            parts += [Part(Kind.PRICE, product.price_tag)]
        return parts

    def _about_product(self) -> list[Part]:
        product = self._opened()
        if self.page == "description":
            return [Part(Kind.TEXT, product.description)]
        if self.page == "features":
            return [Part(Kind.TEXT, f" {bullet}") for bullet in product.bullets]
        if self.page == "reviews":
            return []
        parts = []
        for axis, values in product.options.items():
            parts += [Part(Kind.AXIS, axis), *(Part(Kind.OPTION, value) for value in values)]
        parts += [Part(Kind.TITLE, product.title), Part(Kind.PRICE, f"Price: {product.price_tag}")]
        parts += [Part(Kind.TEXT, "Rating: N.A."), *(Part(Kind.BUTTON, name) for name in (*SUB_PAGES, BUY))]
        return parts

    def clickables(self) -> list[str]:
        """Return what can be clicked, lower case: buttons, then products, then option values."""
        if self.over:
            return []
        parts = self.parts()
        names = [part.text.lower() for kind in (Kind.BUTTON, Kind.LINK) for part in parts if part.kind is kind]
        names += [part.text for part in parts if part.kind is Kind.OPTION]
        return list(dict.fromkeys(names))

    def do(self, action: Action) -> None:
        """Search, or click; anything else, and what cannot be clicked here, changes nothing.

        A search is possible on every page.
        """
        if action.verb == "search":
            self._search(action.argument)
        elif action.verb == "click" and action.argument != SEARCH.lower() and action.argument in self.clickables():
            self._click(action.argument)
        self._parts = None

    def _search(self, words: str) -> None:
        self.page, self.query, self.number = "results", words, 1
        self.found = self.shop.search.find(words)
        self._put_back()

    def _put_back(self) -> None:
        self.product, self.chosen = None, {}

    def _click(self, name: str) -> None:
        if name == BUY.lower():
            self.verdict = self.shop.scorer.judge(self._opened(), self.goal, self.chosen)
        elif name == BACK.lower():
            self.page, self.query, self.number, self.found, self.seen = "search", "", 1, (), set()
            self._put_back()
        elif name in (PREVIOUS.lower(), NEXT.lower()):
            self._turn_page(forward=name == NEXT.lower())
        elif self.page == "results":
            self._open(name)
        elif name in map(str.lower, SUB_PAGES):
            self.page = name
        else:
            # Where two axes share a value, the page's last one takes it.
            axis = [axis for axis, values in self._opened().options.items() if name in values][-1]
            self.chosen[axis] = name

    def _turn_page(self, *, forward: bool) -> None:
        if self.page == "results":
            self.number += 1 if forward else -1
        elif self.page == "item":
            self.page = "results"
            self._put_back()
        else:
            self.page = "item"

    def _open(self, name: str) -> None:
        self.product = next(product for product in self.listed if product.asin.lower() == name)
        self.page = "item"
        self.seen.add(self.product.asin)

    def _opened(self) -> Product:
        assert self.product is not None, f"page {self.page} without a product"
        return self.product
