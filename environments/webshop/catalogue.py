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


def read_products(records: Records, *, limit: int | None, seed: int, report: Callable[[str], None]) -> list[Product]:
    """Return the products of the first `limit` records.

    A record that repeats an asin, or has none of usable length, is passed over, as in WebShop. A malformed record is
    left out.

    Args:
        records: the three files' contents.
        limit: records to read; None reads all.
        seed: decides the price of a product that shows a range.
        report: takes one sentence if records had to be left out.
    """
    products: dict[str, Product] = {}
    refused: list[str] = []
    for number, record in enumerate(records.products):
        if number == limit:
            break
        try:
            asin = record["asin"]
            if asin == "nan" or len(asin) > _LONGEST_ASIN or asin in products:
                continue
            products[asin] = _product(record, records, seed)
        except KeyError as error:
            refused.append(f"record {number} has no key {error}")
        except (TypeError, ValueError, AttributeError) as error:
            refused.append(f"record {number} is malformed ({error})")
    if refused:
        report(f"{len(refused)} products of {records.source} are left out: {refused[0]}{', ...' * (len(refused) > 1)}.")
    return list(products.values())


def _product(record: Mapping[str, Any], records: Records, seed: int) -> Product:
    asin = record["asin"]
    price, tag = read_price(record.get("pricing") or "", Chance(seed, "price", asin))
    known = records.attributes.get(asin) or {}
    bullets = record.get("small_description") or []
    return Product(
        asin=asin,
        title=_text(record["name"]),
        description=_text(record.get("full_description") or ""),
        bullets=tuple(map(_text, bullets if isinstance(bullets, list) else [bullets])),
        price=price,
        price_tag=tag,
        options=_options(record.get("customization_options") or {}),
        attributes=_texts(known.get("attributes")) or _NO_ATTRIBUTES,
        query=_text(record["query"]).lower().strip(),
        path=frozenset(level.strip() for level in _text(record["product_category"]).split("›")),
        instruction=known.get("instruction") or None,
        instruction_attributes=_texts(known.get("instruction_attributes")),
        requests=tuple(map(_request, records.requests.get(asin) or ())),
    )


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
    return tuple(map(_text, values or ()))
