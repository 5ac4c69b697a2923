"""Trials become one self-contained HTML page: `python -m metarl_agents.tracking.viewer RUN_FOLDER_OR_JSONL`.

The page is `viewer.html` with the records embedded as JSON. Its script builds every element from text nodes, so
nothing that a model writes is ever read as markup; it loads nothing and needs no network.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from metarl_agents.tracking.records import iterate_records

_PLACEHOLDER = "@@TRIALS@@"


def render_page(records: Sequence[dict[str, Any]], *, title: str, total: int | None = None) -> str:
    """Return the page for these records.

    Args:
        records: trial records (`records.trial_record`).
        title: what the page is called, usually the run's name.
        total: how many trials there were, if the page shows only some of them.
    """
    data = {"title": title, "total": len(records) if total is None else total, "trials": list(records)}
    # Inside a <script> element only "<" can end the text, and JSON needs "<" only in strings, where \u003c is equal.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    head, _, tail = files(__package__).joinpath("viewer.html").read_text(encoding="utf-8").partition(_PLACEHOLDER)
    return head + text + tail


def newest(records: Iterable[dict[str, Any]], limit: int) -> tuple[list[dict[str, Any]], int]:
    """Keep the newest records, the splits in turn so that none crowds out another.

    Returns:
        The kept records, oldest first within their split, and how many there were.
    """
    by_split: dict[str, deque[dict[str, Any]]] = {}
    total = 0
    for record in records:
        total += 1
        by_split.setdefault(str(record.get("split")), deque(maxlen=limit)).append(record)
    quota = dict.fromkeys(by_split, 0)
    for _ in range(limit):
        open_splits = [split for split, kept in by_split.items() if quota[split] < len(kept)]
        if not open_splits:
            break
        quota[min(open_splits, key=quota.__getitem__)] += 1
    return [record for split, kept in by_split.items() for record in list(kept)[len(kept) - quota[split] :]], total


def write_page(source: str | Path, output: str | Path | None = None, *, max_trials: int = 200, split: str = "") -> Path:
    """Read a run folder or `.jsonl` file, write its page, and return where it lies.

    Args:
        source: a run folder, or one file of records.
        output: the page's path; by default `trajectories.html` in the run folder, or beside the file.
        max_trials: the newest so many trials are shown.
        split: only this split; empty for all.
    """
    source = Path(source)
    found = (r for r in iterate_records(source) if not split or r.get("split") == split)
    records, total = newest(found, max_trials)
    if not records:
        wanted = f' of split "{split}"' if split else ""
        raise FileNotFoundError(f'"{source}" holds no trials{wanted}: choose another `--split`, or let the run go on.')
    if output is None:
        output = source.with_suffix(".html") if source.is_file() else source / "trajectories.html"
    title = source.stem if source.is_file() else source.resolve().name
    page = render_page(records, title=title, total=total)
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    Path(output).write_text(page, encoding="utf-8", errors="backslashreplace")
    return Path(output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m metarl_agents.tracking.viewer",
        description="Write one HTML page that shows the trials of a run.",
    )
    parser.add_argument("source", metavar="RUN_FOLDER_OR_JSONL", help="a run folder, or one trajectories/*.jsonl file")
    parser.add_argument("--output", help="the page (default: trajectories.html in the run folder)")
    parser.add_argument("--max-trials", "--max_trials", type=int, default=200, help="show the newest N (default: 200)")
    parser.add_argument("--split", default="", help="only this split, as in train or eval (default: all)")
    options = parser.parse_args(arguments)
    if options.max_trials < 1:
        parser.error(f"`--max-trials` is {options.max_trials}, but a page needs at least 1.")
    try:
        page = write_page(options.source, options.output, max_trials=options.max_trials, split=options.split)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{page}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
