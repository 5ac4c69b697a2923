"""Products: raw records in WebShop's file schema to what the shop shows and scores.

What lives here: the normalisation of names, prices and options. What does not: where the records come from
(`files.py`, `generate.py`) and which goals they give (`goals.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from metarl_agents.environments.webshop.chance import Chance

PRICELESS = 100.0
"""What a product costs that states no price."""
_NO_ATTRIBUTES = ("DUMMY_ATTR",)
_LONGEST_ASIN = 10
_PLURALS = {"product": "products", "entry": "entries"}
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class Request:
    """One instruction that a person wrote for a product."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """Wanted values, without the names of their axes."""


@dataclass(frozen=True, slots=True)
class Product:
    """One product as the shop knows it."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    """The lines of the features page."""
    price: float
    """What the reward compares with a goal's bound; drawn once where the shop shows a range."""
    price_tag: str
    """What pages show: "$12.5" or "$10.0 to $20.0"."""
    options: dict[str, tuple[str, ...]]
    """Axis name to values, all lower case, in the order of the page."""
    attributes: tuple[str, ...]
    """What the product is, in words that no page has to show."""
    query: str
    """The search that similar products share."""
    path: frozenset[str]
    """Levels of the category."""
    instruction: str | None = None
    """What synthetic goals ask in words."""
    instruction_attributes: tuple[str, ...] = ()
    requests: tuple[Request, ...] = ()


@dataclass
class Records:
    """Raw records in the three files' schema; `products` may be an iterator."""

    products: Iterable[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """asin -> {"attributes", "instruction", "instruction_attributes"}."""
    requests: Mapping[str, Any] = field(default_factory=dict)
    """asin -> list of {"instruction", "instruction_attributes", "instruction_options"}."""
    source: str = "the generated catalogue"
    """The products file, for messages."""
    attributes_source: str = "the generated catalogue"
    requests_source: str = "the generated catalogue"


class _Faults:
    """What is wrong with records, by file, to be told in one sentence each."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], list[str]] = {}

    def add(self, what: str, source: str, cost: str, reason: str) -> None:
        self._found.setdefault((what, source, cost), []).append(reason)

    def tell(self, report: Callable[[str], None]) -> None:
        for (what, source, cost), reasons in self._found.items():
            one = len(reasons) == 1
            count = f"1 {what}" if one else f"{len(reasons)} {_PLURALS[what]}"
            first = f": {reasons[0]}{', ...' * (len(reasons) > 1)}" if reasons[0] else ""
            report(f"{count} of {source} {'is' if one else 'are'} {cost}{first}.")


def read_products(records: Records, *, limit: int | None, seed: int, report: Callable[[str], None]) -> list[Product]:
    """Return the products of the first `limit` records.

    A record that repeats an asin, or has none of usable length, is passed over, as in WebShop. A malformed record is
    left out; a malformed entry about a product, in one of the other two files, costs that entry alone. A product whose
    record has no key for its price costs `PRICELESS`.

    Args:
        records: the three files' contents.
        limit: records to read; None reads all.
        seed: decides the price of a product that shows a range.
        report: takes one sentence for each file and each kind of fault in it.
    """
    products: dict[str, Product] = {}
    faults = _Faults()
    for number, record in enumerate(records.products):
        if number == limit:
            break
        try:
            asin = record["asin"]
            if asin == "nan" or len(asin) > _LONGEST_ASIN or asin in products:
                continue
            products[asin] = _product(record, records, seed, faults)
        except _MALFORMED as error:
            faults.add("product", records.source, "left out", f"record {number} {_told(error)}")
            continue
        if "pricing" not in record:
            faults.add("product", records.source, f"without a price and sold for ${PRICELESS:.0f}, as in WebShop", "")
    faults.tell(report)
    return list(products.values())


def _told(error: Exception) -> str:
    return f"has no key {error}" if isinstance(error, KeyError) else f"is malformed ({error})"


def _product(record: Mapping[str, Any], records: Records, seed: int, faults: _Faults) -> Product:
    asin = record["asin"]
    price, tag = read_price(record.get("pricing") or "", Chance(seed, "price", asin))
    bullets = record.get("small_description") or []
    return Product(
        asin=asin,
        title=_text(record["name"]),
        description=_text(record.get("full_description") or ""),
        bullets=tuple(map(_text, bullets if isinstance(bullets, list) else [bullets])),
        price=price,
        price_tag=tag,
        options=_options(record.get("customization_options") or {}),
        query=_text(record["query"]).lower().strip(),
        path=frozenset(level.strip() for level in _text(record["product_category"]).split("›")),
        **_known(asin, records, faults),
        requests=_requests(asin, records, faults),
    )


def _known(asin: str, records: Records, faults: _Faults) -> dict[str, Any]:
    """Return what the attributes file says of a product: nothing, where its entry is malformed."""
    known = records.attributes.get(asin) or {}
    try:
        return {
            "attributes": _texts(known.get("attributes")) or _NO_ATTRIBUTES,
            "instruction": _text(known.get("instruction") or "") or None,
            "instruction_attributes": _texts(known.get("instruction_attributes")),
        }
    except _MALFORMED as error:
        faults.add("entry", records.attributes_source, "left out", f"the one of {asin} {_told(error)}")
        return {"attributes": _NO_ATTRIBUTES}


def _requests(asin: str, records: Records, faults: _Faults) -> tuple[Request, ...]:
    """Return the instructions that people wrote for a product, without malformed ones."""
    listed, read = records.requests.get(asin) or (), []
    for raw in listed if isinstance(listed, (list, tuple)) else (listed,):
        try:
            read.append(_request(raw))
        except _MALFORMED as error:
            faults.add("entry", records.requests_source, "left out", f"one of {asin} {_told(error)}")
    return tuple(read)


def read_price(text: str, chance: Chance) -> tuple[float, str]:
    """Return (price, tag): one amount as it stands, two as a range with a price drawn between them.

    >>> read_price("$1,012.50", Chance(0))
    (1012.5, '$1012.5')
    >>> read_price("", Chance(0))
    (100.0, '$100.0')
    """
    if not text:
        return PRICELESS, f"${PRICELESS}"
    amounts = [float(re.sub(r"[^\d.]", "", amount)) for amount in text.split("$")[1:]]
    if not amounts:
        raise ValueError(f'its price "{text}" holds no amount of dollars')
    if len(amounts) == 1:
        return amounts[0], f"${amounts[0]}"
    return chance.between(*amounts[:2]), f"${amounts[0]} to ${amounts[1]}"


def option_value(text: str) -> str:
    """Return an option value as pages show it.

    >>> option_value(" Red/White ")
    'red | white'
    """
    return text.strip().replace("/", " | ").lower()


def _options(raw: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        axis.lower(): tuple(option_value(choice["value"]) for choice in choices)
        for axis, choices in raw.items()
        if choices is not None
    }


def _request(raw: Mapping[str, Any]) -> Request:
    return Request(
        _text(raw["instruction"]), _texts(raw["instruction_attributes"]), _texts(raw.get("instruction_options"))
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} stands where a text is expected")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"{values!r:.40} stands where a list of texts is expected")
    return tuple(map(_text, values or ()))
