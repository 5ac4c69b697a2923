"""Pages as text: `text`, `text_rich` and `compact`.

`page_text` and `page_text_rich` give WebShop's own two texts, instruction included. `shown_*` give what an agent reads
turn by turn, where the prompt holds the instruction already.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from metarl_agents.environments.webshop.catalogue import Product
from metarl_agents.environments.webshop.shop import Kind, Part, Visit

MODES = ("text", "text_rich", "compact")
SEPARATOR = " [SEP] "


def page_text(parts: Sequence[Part]) -> str:
    """Return WebShop's plain text of a page: its pieces, one after the other."""
    return SEPARATOR.join(part.text.strip() for part in parts)


def page_text_rich(parts: Sequence[Part], *, seen: Collection[str] = (), chosen: Collection[str] = ()) -> str:
    """Return WebShop's marked-up text of a page: one piece a line, buttons and choices marked as such.

    Args:
        parts: of the page.
        seen: asins of products that were opened.
        chosen: option values that were chosen; each is announced on top.
    """
    lines: list[str] = []
    for part in parts:
        if part.kind is Kind.BUTTON:
            lines.append(_button(part.text, clicked=False))
        elif part.kind is Kind.LINK:
            lines.append("\n" + _button(part.text, clicked=part.text in seen))
        elif part.kind is Kind.OPTION:
            lines.append("  " + _button(part.text, clicked=part.text in chosen))
            if part.text in chosen:
                lines.insert(0, f"You have clicked {part.text}.")
        else:
            lines.append(part.text)
    return "".join(f"{line}\n" for line in lines)


def _button(text: str, *, clicked: bool) -> str:
    return f"[clicked button] {text} [clicked button_]" if clicked else f"[button] {text} [button_]"


def shown_text(visit: Visit, most: int | None = None) -> str:
    """Return the page without its instruction: quoted pieces, the first `most` of them."""
    pieces = [f"'{part.text.strip()}'" for part in visit.parts() if part.kind is not Kind.TASK]
    return SEPARATOR.join(_cut(pieces, most))


def shown_rich(visit: Visit, most: int | None = None) -> str:
    """Return the marked-up page without its instruction: the first `most` pieces."""
    parts = [part for part in visit.parts() if part.kind is not Kind.TASK]
    kept = parts if most is None else parts[:most]
    text = page_text_rich(kept, seen=visit.seen, chosen=visit.chosen.values()).rstrip("\n")
    return "\n".join([text, *_note(len(parts) - len(kept))])


def _cut(pieces: list[str], most: int | None) -> list[str]:
    if most is None or len(pieces) <= most:
        return pieces
    return pieces[:most] + _note(len(pieces) - most)


def _note(left_out: int) -> list[str]:
    return [f"... ({left_out} more)"] if left_out > 0 else []


def shorten(observation: str, most: int) -> str:
    """Return an old observation cut to its first pieces."""
    separator = SEPARATOR if SEPARATOR in observation else "\n"
    return separator.join(_cut(observation.split(separator), most))


def shown_compact(visit: Visit) -> str:
    """Return the page in as few words as say it: the instruction, then the page, products numbered from 1.

    A product that was opened and an option that is chosen carry a star; prices are in whole dollars.
    """
    return "\n".join([visit.goal.text, *_compact_lines(visit)])


def _compact_lines(visit: Visit) -> list[str]:
    if visit.page == "search":
        return ["search"]
    if visit.page == "results":
        rows = enumerate(visit.listed, start=1)
        return [f"page {visit.number}"] + [
            f"{place}{'*' * (product.asin in visit.seen)} {product.title} {_dollars(product)}"
            for place, product in rows
        ]
    product = visit.product
    assert product is not None
    title = f"item {product.title} {_dollars(product)}"
    if visit.page == "item":
        return [title, *(f"{axis}: {_values(visit, axis, values)}" for axis, values in product.options.items())]
    lines = {"description": [product.description], "features": product.bullets}.get(visit.page, ())
    return [title, f"{visit.page}: {'; '.join(lines)}"]


def _values(visit: Visit, axis: str, values: Sequence[str]) -> str:
    return ", ".join(value + "*" * (visit.chosen.get(axis) == value) for value in values)


def _dollars(product: Product) -> str:
    amounts = product.price_tag.replace("$", "").split(" to ")
    return " to ".join(f"{float(amount):.0f}" for amount in amounts)


def bought_text(visit: Visit, mode: str) -> str:
    """Return what the agent sees after a purchase: what it bought, not what it is worth."""
    product = visit.product
    assert product is not None
    if mode == "compact":
        return f"{visit.goal.text}\nbought {product.title}"
    chosen = ", ".join(f"{axis}: {value}" for axis, value in visit.chosen.items())
    options = f" with {chosen}" if chosen else ""
    return f"You bought {product.asin}, '{product.title}', for {product.price_tag}{options}."


def compact_clickables(visit: Visit) -> dict[str, str]:
    """Return {compact name: name in the shop} of what can be clicked: products by their number on the page."""
    numbers = {product.asin.lower(): str(place) for place, product in enumerate(visit.listed, start=1)}
    on_results = visit.page == "results"
    return {numbers.get(name, name) if on_results else name: name for name in visit.clickables()}
