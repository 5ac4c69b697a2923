"""Rows of a user's dataset: a JSONL file, or a dataset of the Hugging Face hub read through the package datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metarl_agents.errors import ConfigError
from metarl_agents.texts import read_jsonl


def read_rows(source: str, what: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Read all rows of a JSONL file or hub dataset; a hub's row that names no `split` is given the one it stands in.

    Args:
        source: path of a JSONL file, or name or folder of a dataset.
        what: the rows' name in messages, for example "task list".
        columns: columns that must be there.

    Raises:
        ConfigError: the source cannot be read (a dataset of the hub: without the package datasets), or a row lacks a
            column.
    """
    path = Path(source).expanduser()
    if path.is_file() or path.suffix in (".jsonl", ".json"):
        rows = read_jsonl(source, what)
    else:
        rows = [(number, row) for number, row in enumerate(_published_rows(source, what), start=1)]
    for number, row in rows:
        for column in columns:
            if column not in row:
                raise ConfigError(
                    f"the {what} {source} has no column `{column}`, only {', '.join(row) or 'none'}, in line {number}."
                )
    return [row for _, row in rows]


def _published_rows(source: str, what: str) -> list[dict[str, Any]]:
    try:
        import datasets
    except ImportError:
        raise ConfigError(f"reading the {what} {source} needs the package datasets: pip install datasets.") from None
    try:
        parts = datasets.load_dataset(source)
        return [{**row, "split": row.get("split") or name} for name, part in parts.items() for row in part]
    except Exception as error:  # datasets reports a bad source in many types
        raise ConfigError(f"cannot read the {what} {source}: {' '.join(str(error).split())[:300]}") from None
