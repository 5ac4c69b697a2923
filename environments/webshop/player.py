"""A scripted shopper: demonstrations for warm starts, the presets' baseline, and a moving part for tests.

It reads observations and its own remarks, nothing else. It takes words literally: what an instruction puts in other
words than the pages, it cannot recognise. Read first: `WebShopPlayer`.
"""

from __future__ import annotations

import re
from typing import Any

from metarl_agents.environments.webshop.reading import Listing, View, Wish, read_view, read_wish

_PAGES_READ = ("features",)
_LAST_RESULTS_PAGE = 3
_RETURN = 2
"""Actions that take a player from one product to another one of the same page."""


class WebShopPlayer:
    """Searches with the instruction's words, opens products, reads about them, and buys the first that seems to fit.

    Args:
        patience: products it opens in one attempt before it settles for the best; with 1 it buys the first result.
        heed: probability of listening to the remarks, drawn once an episode.
        wander: probability of opening any of a page's products instead of the first that is new.
        turns: actions it has in an attempt; it buys before they run out.
    """

    def __init__(self, patience: int = 4, heed: float = 0.3, wander: float = 0.05, *, turns: int = 12):
        self.patience, self.heed, self.wander, self.turns = patience, heed, wander, turns
        self._begin()

    def _begin(self) -> None:
        self._left = self.turns
        self._wish: Wish | None = None
        self._avoid: set[str] = set()
        self._searches = 0
        self._page = 1
        self._opened: dict[str, int] = {}  # name -> words of the instruction that its pages hold
        self._name = ""
        self._seen_text, self._read, self._clicked = "", set[str](), set[str]()
        self._settled = False

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin an attempt; with probability `heed`, stay away from the products that the remarks name."""
        self._begin()
        if rng.random() < self.heed:
            self._avoid = {name for remark in remarks for name in names_to_avoid(remark)}

    def act(self, observation: str, rng: Any) -> str:
        """Return the next action, as `<action>...</action>`."""
        view = read_view(observation)
        if self._wish is None or view.page == "search":
            self._wish = read_wish(view.goal) if view.goal else self._wish or read_wish("")
        wanders = rng.random() < self.wander
        if view.page == "search":
            action = self._search()
        elif view.page == "results":
            action = self._choose(view, wanders, rng)
        else:
            action = self._look(view)
        self._left -= 1
        return f"<action>{action}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return `<remark>not x, y</remark>` for the products that did not fit, and what else went wrong."""
        last = read_view(episode.final_observation)
        wrong = [name for name in self._opened if name not in self._avoid and not self._fits(name)]
        bought = [last.name] if last.page == "over" else []
        wrong = [name for name in wrong if name not in bought] + bought
        notes = [f"not {', '.join(wrong)}"] if wrong else []
        notes += [] if bought else ["buy sooner"]
        return f"<remark>{'. '.join(notes)}</remark>"

    @property
    def _known(self) -> Wish:
        assert self._wish is not None
        return self._wish

    def _fits(self, name: str) -> bool:
        return self._opened[name] >= len(self._known.words) if self._wish else False

    def _search(self) -> str:
        """Return a search with all words, or on a second try with the last ones, which name the kind of product."""
        self._searches, self._page = self._searches + 1, 1
        words = [*self._known.words, *self._known.options] if self._searches == 1 else self._known.words[-2:]
        return f"search[{' '.join(words) or 'gift'}]"

    def _choose(self, view: View, wanders: bool, rng: Any) -> str:
        """Return the click that opens a product, turns the page or goes back to the search."""
        new = [item for item in view.listings if item.name not in self._opened and self._is_promising(item)]
        spare = self._left - self._closing_turns()
        tired = len(self._opened) >= self.patience or (bool(self._opened) and spare <= _RETURN)
        if new and not tired:
            return self._open(new[int(rng.random() * len(new))] if wanders else new[0])
        if not tired and view.listings and self._page < _LAST_RESULTS_PAGE:
            self._page += 1
            return "click[next >]"
        rest = [item for item in view.listings if item.name not in self._avoid] or view.listings
        if not rest:
            return "click[back to search]"
        self._settled = True
        return self._open(max(rest, key=lambda item: (self._is_promising(item), self._opened.get(item.name, -1))))

    def _is_promising(self, item: Listing) -> bool:
        return item.name not in self._avoid and item.price <= self._known.bound

    def _open(self, item: Listing) -> str:
        self._name = item.name
        self._seen_text, self._read, self._clicked = item.title, set(), set()
        self._opened.setdefault(item.name, 0)
        return f"click[{item.link}]"

    def _look(self, view: View) -> str:
        """Return what to do on a product's page: read on, choose an option, buy, or leave."""
        self._seen_text += " ".join(["", view.text, *view.options])
        self._opened[self._name] = max(self._opened.get(self._name, 0), self._count_words())
        if view.page == "sub":
            return "click[< prev]"
        if self._missing_options(view):
            self._opened[self._name] = -1
        if not self._settled and self.patience > 1 and (step := self._go_on()):
            return step
        for value in self._wanted(view):
            if value not in self._clicked:
                self._clicked.add(value)
                return f"click[{value}]"
        return "click[buy now]"

    def _go_on(self) -> str | None:
        """Return the click that reads the next sub-page or leaves the product; None to buy it."""
        score, spare = self._opened[self._name], self._left - self._closing_turns()
        if score >= len(self._known.words) or spare < _RETURN:
            return None
        for page in _PAGES_READ:
            if score >= 0 and page not in self._read and spare >= _RETURN + 2:
                self._read.add(page)
                return f"click[{page}]"
        is_best = score >= max(self._opened.values())
        another = len(self._opened) < self.patience and spare > _RETURN + 1
        return None if is_best and score >= 0 and not another else "click[< prev]"

    def _count_words(self) -> int:
        words = set(re.findall(r"[a-z0-9]+", self._seen_text.lower()))
        return sum(word in words for word in self._known.words)

    def _closing_turns(self) -> int:
        """Return how many actions choosing the options and buying takes."""
        return len(self._known.options) + 1 if self._known.options else 3

    def _wanted(self, view: View) -> list[str]:
        """Return the values on the page that the instruction asks for."""
        if self._known.options:
            return [value for value in self._known.options if value in view.options]
        return [value for value in view.options if _names(self._known.sentence, value)]

    def _missing_options(self, view: View) -> bool:
        return any(value not in view.options for value in self._known.options)


def _names(sentence: str, value: str) -> bool:
    """Return whether a sentence holds a value as words of their own."""
    return bool(value) and re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", sentence) is not None


def names_to_avoid(remark: str) -> list[str]:
    """Return the products that a remark names after the word "not".

    >>> names_to_avoid("not b01, b02. buy sooner")
    ['b01', 'b02']
    """
    listed = re.search(r"\bnot ([^.]*)", remark)
    return [name.strip().lower() for name in listed[1].split(",") if name.strip()] if listed else []
