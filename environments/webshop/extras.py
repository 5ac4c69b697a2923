"""Import what the `webshop` extra brings, or say in one sentence how to get it."""

from __future__ import annotations

import importlib
from types import ModuleType

from metarl_agents.errors import ConfigError

# spaCy and its model are no part of the extra: the model is on no package index.
SPACY_MODEL = "en_core_web_sm"
SPACY_WANTED = (
    '`nouns="spacy"` needs the package spacy and its model: pip install spacy, then python -m spacy download '
    f"{SPACY_MODEL}."
)
_BY_HAND = {"spacy": SPACY_WANTED}
_IN_THE_EXTRA = ("numpy", "bm25s", "Stemmer", "rapidfuzz.fuzz", "rapidfuzz.utils")


def need(name: str) -> ModuleType:
    """Return the module `name`.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        missing = f'WebShop needs the package {package}: pip install -e ".[webshop]".'
        raise ConfigError(_BY_HAND.get(name, missing)) from None


def need_all() -> None:
    """Check that the whole extra is there, before a catalogue is built for nothing."""
    for name in _IN_THE_EXTRA:
        need(name)
