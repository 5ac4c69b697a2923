"""WebShop's three data files: find them in a folder and read them.

The products file may hold gigabytes, so it is read product by product and only as far as needed. A broken file costs
what cannot be read of it, and is reported in one sentence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from metarl_agents.environments.webshop.catalogue import Records
from metarl_agents.errors import ConfigError

_PRODUCTS, _ATTRIBUTES, _REQUESTS = "items_shuffle*.json", "items_ins_v2*.json", "items_human_ins*.json"
_THOUSAND = 1000
"""WebShop offers its files twice: all products, and the first thousand (`items_shuffle_1000.json`)."""
_CHUNK = 1 << 20


def read_records(folder: str | Path, *, limit: int | None, goals: str, report: Callable[[str], None]) -> Records:
    """Read the three files of a folder.

    Args:
        folder: holds `items_shuffle.json`, `items_ins_v2.json` and `items_human_ins.json`, or the `_1000` versions.
        limit: products to read; None reads all.
        goals: `synthetic` or `human`. The file that the other kind alone needs may be missing.
        report: takes one sentence for each file that is missing or broken where the shop can do without.

    Raises:
        ConfigError: there is no such folder, no readable product, or no instruction of the kind asked for.
    """
    root = Path(os.path.expanduser(folder))
    if not root.is_dir():
        raise ConfigError(f"`data_dir` is {root}, but there is no such folder. Name one that holds {_PRODUCTS}.")
    source, products = _first_products(root, limit, report)
    # The attributes score every purchase; the requests are nothing but goals.
    about, attributes = _read_table(root, _ATTRIBUTES, limit, report, needed=goals == "synthetic")
    asked, requests = _read_table(root, _REQUESTS, limit, report, needed=True) if goals == "human" else ("", {})
    return Records(products, attributes, requests, source, about, asked)


def _candidates(root: Path, pattern: str, limit: int | None) -> list[Path]:
    """Return the folder's files of a kind: the small version first where it holds enough."""
    small = limit is not None and limit <= _THOUSAND
    return sorted(root.glob(pattern), key=lambda path: (("_1000" in path.name) != small, path.name))


def _first_products(root: Path, limit: int | None, report: Callable[[str], None]) -> tuple[str, list[Any]]:
    """Return (file, products) of the first file that yields any."""
    paths = _candidates(root, _PRODUCTS, limit)
    if not paths:
        raise ConfigError(f"`data_dir` {root} holds no {_PRODUCTS}. Put WebShop's product file there, or leave it out.")
    for path in paths:
        problems: list[str] = []
        products = list(islice(stream_array(path, problems.append), limit))
        for problem in problems:
            report(problem)
        if products:
            return str(path), products
    raise ConfigError(f"No product could be read from {paths[-1]}: it must be a JSON list of products. Fetch it again.")


def stream_array(path: Path, report: Callable[[str], None]) -> Iterator[Any]:
    """Yield the elements of a JSON list one by one, up to the place where the file is broken."""
    decoder, count, buffer, place = json.JSONDecoder(), 0, "", 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            buffer = file.read(_CHUNK).lstrip()
            if not buffer.startswith("["):
                report(f"{path} is no JSON list of products; it is left out.")
                return
            place = 1
            while True:
                place = _skip(buffer, place)
                if buffer.startswith("]", place):
                    return
                try:
                    value, end = decoder.raw_decode(buffer, place)
                except json.JSONDecodeError:
                    more = file.read(max(_CHUNK, len(buffer)))
                    if not more:
                        report(f"{path} breaks off or is damaged after {count} products; those are used.")
                        return
                    buffer, place = buffer[place:] + more, 0
                    continue
                except RecursionError:
                    report(f"{path} is nested too deeply after {count} products; those are used.")
                    return
                yield value
                count, place = count + 1, end
    except (OSError, UnicodeDecodeError) as error:
        report(f"{path} cannot be read after {count} products ({error}); those are used.")


def _skip(buffer: str, place: int) -> int:
    """Return the next place that is neither blank nor a comma."""
    while place < len(buffer) and buffer[place] in " \t\r\n,":
        place += 1
    return place


def _read_table(
    root: Path, pattern: str, limit: int | None, report: Callable[[str], None], *, needed: bool
) -> tuple[str, dict[str, Any]]:
    """Return (file, table) of the first readable one of a kind; without one, nothing, unless the shop needs it."""
    problems: list[str] = []
    for path in _candidates(root, pattern, limit):
        try:
            table = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            problems.append(f"{path} cannot be read ({error})")
            continue
        if isinstance(table, dict):
            for problem in problems:
                report(f"{problem}; it is left out.")
            return str(path), table
        problems.append(f"{path} holds a {type(table).__name__}, not a table by asin")
    problem = problems[-1] if problems else f"`data_dir` {root} holds no {pattern}"
    if needed:
        raise ConfigError(
            f"{problem}, but the goals come from it. Fetch it again, or choose the other kind of `goals`."
        )
    report(f"{problem}; products are scored by their pages alone.")
    return "", {}
