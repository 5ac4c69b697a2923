"""The shop's search: BM25 over what a product says of itself, through the package bm25s.

Words are cut, stemmed and weighted as WebShop's index does it (Lucene: English stop words, Porter stems, k1 0.9,
b 0.4); the 50 best products are found, none without a word in common.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from metarl_agents.environments.webshop.catalogue import Product
from metarl_agents.environments.webshop.extras import need

MOST_FOUND = 50
_K1, _B = 0.9, 0.4
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class Search:
    """Finds products by words; built once for a catalogue.

    Calling it with a query returns the places of up to 50 products, best first; equally good ones stay in catalogue
    order.
    """

    def __init__(self, products: Sequence[Product]):
        self._numpy, bm25s = need("numpy"), need("bm25s")
        self._cut = _word_cutter()
        # Words become numbers at once: a hundred thousand pages as lists of texts would fill the memory.
        self._numbers: dict[str, int] = {}
        pages = [self._numbered(page_text(product)) for product in products]
        self._index: Any = bm25s.BM25(method="lucene", k1=_K1, b=_B)
        if self._numbers:
            # A copy: bm25s adds an empty word of its own.
            words = bm25s.tokenization.Tokenized(ids=pages, vocab=dict(self._numbers))
            self._index.index(words, show_progress=False)
        # Trials of one group ask the same things.
        self.find = lru_cache(maxsize=4096)(self._find)

    def _numbered(self, text: str) -> list[int]:
        return [self._numbers.setdefault(word, len(self._numbers)) for word in self._cut(text)]

    def _find(self, query: str) -> tuple[int, ...]:
        words = [word for word in self._cut(query) if word in self._numbers]
        if not words:
            return ()
        numpy = self._numpy
        scores = self._index.get_scores(words)
        enough = 0.0
        if len(scores) > MOST_FOUND:
            enough = numpy.partition(scores, -MOST_FOUND)[-MOST_FOUND]
        places = numpy.flatnonzero((scores >= enough) & (scores > 0))
        ranked = places[numpy.argsort(-scores[places], kind="stable")]
        return tuple(int(place) for place in ranked[:MOST_FOUND])


def page_text(product: Product) -> str:
    """Return the text that is searched: title, description, first line of the features, options."""
    options = ", and ".join(f"{axis}: {', '.join(values)}" for axis, values in product.options.items())
    return " ".join((product.title, product.description, *product.bullets[:1], options))


def _word_cutter() -> Callable[[str], list[str]]:
    """Return a function that cuts a text into the stems that are searched."""
    stop_words = frozenset(need("bm25s.stopwords").STOPWORDS_EN)
    stem = lru_cache(maxsize=200_000)(need("Stemmer").Stemmer("porter").stemWord)

    def cut(text: str) -> list[str]:
        found = (match.removesuffix("'s").removesuffix("’s") for match in _WORD.findall(text.lower()))
        stems = (stem(word) for word in found if word not in stop_words)
        return [word for word in stems if word]

    return cut
