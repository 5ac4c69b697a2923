"""A shop of invented products in WebShop's file schema, as hard as a preset says.

Products come in families: one brand, one kind of product, and members that each miss exactly what another one has: an
attribute, an option value, or the price. Read first: `Preset`, then `_family`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from metarl_agents.environments.webshop import vocabulary
from metarl_agents.environments.webshop.catalogue import Records
from metarl_agents.environments.webshop.chance import Chance
from metarl_agents.environments.webshop.vocabulary import ProductKind

_ALPHABET = "0123456789ABCDEFGHJKLMNPQRTUVWXY"
# A bound lies at most 40 above a price, and a shown range raises that by at most 3 %: a sibling that is dearer by both
# misses every bound of the first.
_WIDEST, _DEARER = 1.03, 41
_REQUESTS_EACH = 2


@dataclass(frozen=True)
class Preset:
    """How hard a generated shop is."""

    products: int
    """How many, unless the user says so."""
    family: int
    """Members of a family; with 1, no product has a near miss."""
    wanted: int
    """Attributes that an instruction asks for."""
    in_title: int
    """Attributes that a title names; all others stand on sub-pages only."""
    clauses: float
    """Share of wanted attributes that the instruction puts in other words than the product's pages."""
    ranges: float
    """Share of products that show a price range."""
    tails: int = 0
    """Empty phrases at the end of a title."""
    accessory: bool = False
    """Whether one member of each family is an accessory with the product's name in its title."""
    little: bool = False
    """Whether products are of the few words that a very small model knows."""


PRESETS = {
    "tiny": Preset(products=192, family=4, wanted=1, in_title=0, clauses=0.0, ranges=0.0, little=True),
    "easy": Preset(products=1000, family=1, wanted=2, in_title=4, clauses=0.0, ranges=0.2),
    "medium": Preset(products=1000, family=4, wanted=2, in_title=1, clauses=0.5, ranges=0.2, tails=1),
    "hard": Preset(products=1000, family=8, wanted=3, in_title=0, clauses=1.0, ranges=0.3, tails=2, accessory=True),
}


@dataclass(frozen=True)
class _Member:
    """What one product of a family is, before it is put into words."""

    attributes: tuple[str, ...]
    options: dict[str, list[str]]
    price: float


@dataclass(frozen=True)
class _Line:
    """What the members of a family share."""

    chance: Chance
    brand: str
    kind: ProductKind
    preset: Preset
    requests: bool
    """Whether written instructions are made."""


def generate(preset: Preset, count: int, seed: int, *, requests: bool = True) -> Records:
    """Return a catalogue of `count` products; seed and preset alone decide it.

    Member m of family f is product f * family + m, so that a larger shop begins with the smaller one. Products are made
    as they are read, and what the two other files say of a product is there once it has been read.

    Args:
        preset: how hard it is.
        count: products.
        seed: of the catalogue.
        requests: whether written instructions are made too.
    """
    attributes: dict[str, Any] = {}
    asked: dict[str, Any] = {}

    def products() -> Iterator[dict[str, Any]]:
        families = range(-(-count // preset.family))
        entries = chain.from_iterable(_family(preset, seed, number, requests) for number in families)
        for product, known, requested in islice(entries, count):
            attributes[product["asin"]] = known
            if requested:
                asked[product["asin"]] = requested
            yield product

    return Records(products(), attributes, asked)


def write_catalogue(
    folder: str | Path, *, preset: str = "hard", num_products: int | None = None, seed: int = 0
) -> None:
    """Write a generated catalogue as WebShop's three files; `WebShop(data_dir=folder)` reads them.

    Args:
        folder: is made if need be.
        preset: how hard it is.
        num_products: default: what the preset says.
        seed: of the catalogue.
    """
    chosen = PRESETS[preset]
    records = generate(chosen, num_products or chosen.products, seed)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    contents = {
        "items_shuffle.json": list(records.products),
        "items_ins_v2.json": records.attributes,
        "items_human_ins.json": records.requests,
    }
    for name, content in contents.items():
        (target / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


Entry = tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]
"""A product and its records in the two other files."""


def _family(preset: Preset, seed: int, number: int, requests: bool) -> Iterator[Entry]:
    """Yield the members of family `number` in random order."""
    chance = Chance("family", seed, number)
    kind = _little_kind(number) if preset.little else chance.pick(vocabulary.KINDS)
    brand = "".join(chance.pick(vocabulary.SYLLABLES) for _ in range(2 + chance.below(2))).title()
    line = _Line(chance, brand, kind, preset, requests)
    members = _members(line)
    for place, member in enumerate(chance.shuffled(members)):
        index = number * preset.family + place
        if preset.accessory and member is members[-1]:
            yield _accessory(line, member, _asin(seed, index))
        else:
            yield _entry(line, member, _asin(seed, index), index)


def _members(line: _Line) -> list[_Member]:
    """Return the first member and its near misses, which in turn lack an attribute, an option value, the price."""
    chance, kind, preset = line.chance, line.kind, line.preset
    attributes = chance.shuffled(kind.attributes)
    own = min(preset.wanted + 1, len(attributes) - 1)
    pools = {axis: _values(axis, preset) for axis in kind.axes}
    options = {axis: chance.sample(pool, min(len(pool) // 2, 2 + chance.below(3))) for axis, pool in pools.items()}
    low, high = kind.prices
    first = _Member(tuple(attributes[:own]), options, _cents(chance.between(low, high), preset))
    members = [first]
    spare = attributes[own:]
    while len(members) < preset.family:
        turn = (len(members) - 1) // 3
        near = replace(first, price=_cents(first.price * chance.between(0.95, 1.0), preset))
        if len(members) % 3 == 1:
            members.append(replace(near, attributes=_swapped(first.attributes, turn % preset.wanted, spare, turn)))
        elif len(members) % 3 == 2:
            axis = kind.axes[turn % len(kind.axes)]
            others = [value for value in pools[axis] if value not in options[axis]]
            fresh = chance.sample(others, min(len(options[axis]), len(others)))
            members.append(replace(near, options=options | {axis: fresh}))
        else:
            members.append(replace(first, price=_cents(first.price * _WIDEST + _DEARER + chance.below(20), preset)))
    return members


def _swapped(attributes: tuple[str, ...], place: int, spare: list[str], turn: int) -> tuple[str, ...]:
    """Return the attributes with the one at `place` exchanged for one that the family's first member has not."""
    return (*attributes[:place], spare[turn % len(spare)], *attributes[place + 1 :])


def _values(axis: str, preset: Preset) -> list[str]:
    if preset.little:
        return list(vocabulary.LITTLE_AXES[axis])
    return [value.strip() for value in vocabulary.VALUES[axis].split(",")]


def _little_kind(number: int) -> ProductKind:
    noun = vocabulary.LITTLE_NOUNS[number % len(vocabulary.LITTLE_NOUNS)]
    axes = tuple(vocabulary.LITTLE_AXES)
    return ProductKind("garden", noun, f"home › {noun}", noun, noun, vocabulary.LITTLE_ATTRIBUTES, axes, (12, 40))


def _entry(line: _Line, member: _Member, asin: str, index: int) -> Entry:
    """Put a member into words, in the schema of the three files."""
    kind, preset = line.kind, line.preset
    wanted = list(member.attributes[: preset.wanted])
    if preset.little:
        # The first line is searched, so it tells nothing.
        title, description = _little_title(line, index), ""
        bullets = [vocabulary.LITTLE_FILLER, *line.chance.shuffled(member.attributes)]
    else:
        title, description, bullets = _long_texts(line, member)
    product = _record(asin, title, description, bullets, member, line)
    product |= {"category": kind.category, "query": kind.query, "product_category": kind.path}
    instruction = _wish(line, wanted, line.chance)
    if not preset.little:
        instruction = f"find me {instruction}"
    known = {"attributes": list(member.attributes), "instruction": instruction, "instruction_attributes": wanted}
    return product, known, _requests(line, member, asin, wanted) if line.requests else []


def _little_title(line: _Line, index: int) -> str:
    """Return "brand noun", unique within the kind: a second round of brands is numbered."""
    kinds = len(vocabulary.LITTLE_NOUNS)
    family, place = divmod(index, line.preset.family)
    rank = family // kinds * line.preset.family + place
    again, brand = divmod(rank, len(vocabulary.LITTLE_BRANDS))
    return f"{vocabulary.LITTLE_BRANDS[brand]} {f'{again + 1} ' if again else ''}{line.kind.name}"


def _long_texts(line: _Line, member: _Member) -> tuple[str, str, list[str]]:
    """Return (title, description, bullets); each attribute that the title leaves out is told on one sub-page."""
    chance, kind, preset = line.chance, line.kind, line.preset
    model = f"{chance.pick('ABCDEFGHKMPRSTX')}{10 + chance.below(990)}"
    attributes = chance.shuffled(member.attributes)
    named = attributes[: preset.in_title]
    tails = chance.sample(vocabulary.TAILS, preset.tails)
    title = ", ".join([f"{line.brand} {model} {kind.name}", *(name.title() for name in named), *tails])
    told = [f"{line.brand} presents the {model}."]
    bullets = chance.sample(vocabulary.FILLERS, 2)
    for name in attributes:
        if preset.in_title or chance.below(2):
            bullets.append(f"{name.upper()}: this is one of the points that the {model} was planned around.")
        else:
            told.append(f"It offers {name}.")
    told.append(chance.pick(vocabulary.FILLERS))
    return title, " ".join(told), chance.shuffled(bullets)


def _record(
    asin: str, title: str, description: str, bullets: list[str], member: _Member, line: _Line
) -> dict[str, Any]:
    chance, price = line.chance, member.price
    pricing = f"${price:.2f}"
    if chance.unit() < line.preset.ranges:
        pricing = f"${price:.2f} - ${price * _WIDEST:.2f}"
    choices = {axis.partition("/")[0].title(): [{"value": v} for v in member.options[axis]] for axis in member.options}
    return {
        "asin": asin,
        "name": title,
        "full_description": description,
        "small_description": bullets,
        "pricing": pricing,
        "images": [f"generated://{asin}.png"],
        "customization_options": choices,
    }


def _accessory(line: _Line, member: _Member, asin: str) -> Entry:
    """Return a thing that goes with the family's product and carries its name, but is of no use to who wants it."""
    thing = line.chance.pick(vocabulary.ACCESSORIES)
    title = f"{thing} for {line.brand} {line.kind.name}"
    cheap = replace(member, price=_cents(line.chance.between(5, 15), line.preset))
    product = _record(asin, title, f"{thing} by {line.brand}.", [vocabulary.FILLERS[0]], cheap, line)
    path = f"{line.kind.path.partition(' › ')[0]} › Accessories › {thing}"
    product |= {"category": line.kind.category, "query": thing.lower(), "product_category": path}
    return product, {"attributes": ["accessory"]}, []


def _wish(line: _Line, wanted: list[str], chance: Chance) -> str:
    """Return the noun with its wanted attributes, some of them in other words."""
    if line.preset.little:
        return f"{' '.join(wanted)} {line.kind.noun}"
    others = [name for name in wanted if chance.unit() < line.preset.clauses]
    named = [name for name in wanted if name not in others]
    text = line.kind.noun
    if named:
        text += f" with {_listed(named)}"
    if others:
        text += f" that {_listed([vocabulary.CLAUSES[name] for name in others])}"
    return text


def _requests(line: _Line, member: _Member, asin: str, wanted: list[str]) -> list[dict[str, Any]]:
    """Return different instructions as people might write them."""
    # Of their own chance, so that the products are the same with and without them.
    chance = Chance("requests", asin)
    made = [_request(line, member, asin, wanted, chance) for _ in range(_REQUESTS_EACH)]
    return list({request["instruction"]: request for request in made}.values())


def _request(line: _Line, member: _Member, asin: str, wanted: list[str], chance: Chance) -> dict[str, Any]:
    """Return an instruction with some of the options, named by their values alone."""
    chosen = {axis: chance.pick(values) for axis, values in member.options.items() if chance.below(4)}
    wish = _wish(line, chance.shuffled(wanted), chance)
    text = chance.pick(vocabulary.REQUESTS).format(wish=wish)
    if chosen:
        text += f", and i want it in {_listed(list(chosen.values()))}"
    return {
        "asin": asin,
        "instruction": text + ".",
        "attributes": list(member.attributes),
        "options": [f"{axis.partition('/')[0]}: {value}" for axis, value in chosen.items()],
        "instruction_attributes": wanted,
        "instruction_options": list(chosen.values()),
        "assignment_id": "",
        "worker_id": "",
    }


def _listed(words: list[str]) -> str:
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]


def _cents(price: float, preset: Preset) -> float:
    return float(round(price)) if preset.little else round(price, 2)


def _asin(seed: int, index: int) -> str:
    """Return an identifier of ten signs; different products of one catalogue have different ones."""
    # An odd factor permutes the numbers below 2**40.
    number = (index * 0x9E3779B1 + Chance("asin", seed).below(1 << 40)) % (1 << 40)
    return "B0" + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(0, 40, 5))
