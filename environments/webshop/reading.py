"""Read back what a page says, from its text alone, in any of the three modes.

What a player may know is what stands here: nothing is taken from the shop itself. Read first: `View`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from metarl_agents.environments.webshop.pages import SEPARATOR

_BUTTON = re.compile(r"\[(clicked )?button\] (.*?) \[\1?button_\]")
_AMOUNT = re.compile(r"\d+(?:\.\d+)?")
_BOUND = re.compile(r",? and price lower than ([\d.]+) dollars\s*$")
_CHOICES = re.compile(r".* with (?P<list>(?:[^,:]+: [^:]+?)(?:, and [^,:]+: [^:]+?)*)$")
_CHOICE = re.compile(r"([^,:]+): ([^:]+?)(?:, and (?=[^,:]+: )|$)")
_CONTAINER = re.compile(r"\b(?:pair|bottle|box|bag|tube) of\b")
"""Names no kind of product, and hardly a page repeats it."""
_SUB_PAGES = ("features", "description", "reviews")


@dataclass(frozen=True)
class Listing:
    """One product in a list of results."""

    link: str
    """What to click."""
    name: str
    """What it is called from page to page: its code, or on compact pages its title."""
    title: str
    price: float
    """The lower end of what it may cost."""


@dataclass
class View:
    """What one observation says."""

    page: str
    """`search`, `results`, `item`, `sub` or `over`."""
    goal: str | None = None
    listings: list[Listing] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    """Names of axes and values on an item's page."""
    text: str = ""
    """What the page tells about the product."""
    name: str = ""
    """On compact pages, and after a purchase: the product."""


@dataclass(frozen=True)
class Wish:
    """What an instruction asks for."""

    words: tuple[str, ...]
    """Content words, options and price aside, in order."""
    options: tuple[str, ...]
    """Wanted values, where the instruction lists them with their axes."""
    sentence: str
    bound: float


_NO_CONTENT = (
    "a am an and are as at be buy by can could do find for from get help i in is it like looking me my need of on or "
    "please show some that the them this to want which with would you"
)
_SMALL_WORDS = frozenset(_NO_CONTENT.split())


def read_wish(goal: str) -> Wish:
    """Return what an instruction asks for.

    >>> read_wish("find me a soft lamp with color: red, and size: big, and price lower than 30.00 dollars").options
    ('red', 'big')
    """
    bound = _BOUND.search(goal)
    sentence = goal[: bound.start()] if bound else goal
    choices = _CHOICES.match(sentence)
    options = tuple(value.strip() for _, value in _CHOICE.findall(choices["list"])) if choices else ()
    wish = sentence[: choices.start("list")] if choices else sentence
    wish = _CONTAINER.sub("", wish.lower())
    words = (word for word in re.findall(r"[a-z0-9]+", wish) if word not in _SMALL_WORDS)
    return Wish(tuple(dict.fromkeys(words)), options, sentence.lower(), float(bound[1]) if bound else float("inf"))


def read_view(observation: str) -> View:
    """Return what an observation says."""
    if SEPARATOR in observation or observation.startswith(("'", "Instruction: ")) or "button]" in observation:
        goal, page = _split_goal(observation)
        rich = "button]" in page
        return _read_pieces(_rich_pieces(page) if rich else _quoted_pieces(page), goal)
    if observation.startswith("You bought "):
        return View("over", name=observation.removeprefix("You bought ").partition(",")[0].lower())
    return _read_compact(observation)


def _split_goal(observation: str) -> tuple[str | None, str]:
    if not observation.startswith("Instruction: "):
        return None, observation
    goal, _, page = observation.partition("\n")
    return goal.removeprefix("Instruction: "), page


def _quoted_pieces(page: str) -> list[str]:
    """Return the pieces of a `text` page; the note on pieces left out is none."""
    return [piece[1:-1] for piece in page.split(SEPARATOR) if piece.startswith("'")]


def _rich_pieces(page: str) -> list[str]:
    lines = [line.strip() for line in page.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("You have clicked ", "... ("))]
    return [match[2] if (match := _BUTTON.fullmatch(line)) else line for line in lines]


def _read_pieces(pieces: list[str], goal: str | None) -> View:
    if "Search" in pieces[:2]:
        return View("search", goal)
    if len(pieces) > 1 and pieces[1].startswith("Page "):
        start = pieces.index("Next >") + 1 if "Next >" in pieces else len(pieces)
        rows = zip(pieces[start::3], pieces[start + 1 :: 3], pieces[start + 2 :: 3], strict=False)
        return View(
            "results", goal, [Listing(code.lower(), code.lower(), title, _low(tag)) for code, title, tag in rows]
        )
    prices = [place for place, piece in enumerate(pieces) if piece.startswith("Price: ")]
    if not prices:
        return View("sub", goal, options=pieces[2:], text=" ".join(pieces[2:]))
    return View("item", goal, options=pieces[2 : prices[0] - 1], text=pieces[prices[0] - 1])


def _low(tag: str) -> float:
    amount = _AMOUNT.search(tag)
    return float(amount[0]) if amount else 0.0


def _read_compact(observation: str) -> View:
    goal, _, rest = observation.partition("\n")
    head, *lines = rest.split("\n")
    if head.startswith("bought "):
        return View("over", goal, name=head.removeprefix("bought "))
    if head.startswith("page "):
        return View("results", goal, [_compact_listing(line) for line in lines if line])
    if not head.startswith("item "):
        return View("search", goal)
    title = _without_price(head.removeprefix("item "))
    about = lines[0].partition(": ") if lines else ("", "", "")
    if about[0].rstrip(":") in _SUB_PAGES:
        return View("sub", goal, text=about[2], name=title)
    values = [value.strip(" *") for line in lines for value in line.partition(": ")[2].split(", ")]
    return View("item", goal, options=values, text=title, name=title)


def _compact_listing(line: str) -> Listing:
    place, _, rest = line.partition(" ")
    title = _without_price(rest)
    return Listing(place.rstrip("*"), title, title, _low(rest.removeprefix(title)))


def _without_price(text: str) -> str:
    """Return the title in front of "20" or "20 to 30"."""
    return re.sub(r" \d+(?: to \d+)?$", "", text)
