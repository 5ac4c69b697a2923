"""Rows of a user's dataset: a JSONL file, or a dataset of the Hugging Face hub, read through the package datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metarl_agents.errors import ConfigError


def read_rows(source: str, what: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Read all rows of a JSONL file or hub dataset; a hub's row that names no `split` is given the one it stands in.

    Args:
        source: path of a JSONL file, or name or folder of a dataset.
        what: the rows' name in messages, for example "task list".
        columns: columns that must be there.

    Raises:
        ConfigError: datasets is not installed, the source cannot be read, or a column is missing.
    """
    try:
        import datasets
    except ImportError:
        raise ConfigError(f"reading the {what} {source} needs the package datasets: pip install datasets.") from None
    try:
        if Path(source).is_file():
            rows = [dict(row) for row in datasets.load_dataset("json", data_files=source, split="train")]
        else:
            parts = datasets.load_dataset(source)
            rows = [{**row, "split": row.get("split") or name} for name, part in parts.items() for row in part]
    except Exception as error:  # datasets reports a bad source in many types
        raise ConfigError(f"cannot read the {what} {source}: {' '.join(str(error).split())[:300]}") from None
    for column in columns:
        if rows and column not in rows[0]:
            raise ConfigError(f"the {what} {source} has no column `{column}`, only {', '.join(rows[0])}.")
    return rows
