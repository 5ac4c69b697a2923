"""Trials become a flat table, one row per turn: `python -m metarl_agents.tracking.export RUN_FOLDER`.

For pandas, DuckDB, or the dataset viewer of the Hugging Face Hub. The page for reading is `viewer.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from metarl_agents.tracking.records import iterate_records

COLUMNS = {
    "step": "int64",
    "split": "string",
    "group": "int64",
    "seed": "int64",
    "opponent": "string",
    "seat": "int64",
    "trial": "int64",
    "solved_at": "int64",
    "error": "string",
    "episode": "int64",
    "outcome": "string",
    "episode_reward": "float64",
    "turn": "int64",
    "phase": "string",
    "observation": "string",
    "prompt": "string",
    "response": "string",
    "action": "string",
    "reward": "float64",
    "row_penalty": "float64",
    "return": "float64",
    "advantage": "float64",
    "invalid": "bool",
    "truncated": "bool",
    "prompt_shortened": "bool",
    "prompt_tokens": "int64",
    "response_tokens": "int64",
}
"""The columns and their types, the same for every run. `trial` counts the records from 0."""

_NO_DATASETS = "Writing parquet needs the package `datasets`: install it with `pip install datasets`."


def flatten(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row per turn, in time order within a trial; a reflection follows the play turns of its episode."""
    for index, record in enumerate(records):
        of_trial = {**record, "trial": index}
        for n, episode in enumerate(record["episodes"]):
            of_episode = {"episode": n, "outcome": episode["outcome"], "episode_reward": episode["reward"]}
            reflection = episode["reflection"]
            for t, turn in enumerate(episode["turns"] + ([] if reflection is None else [reflection])):
                row = {**of_trial, **of_episode, "turn": t, **turn}
                yield {name: _clean(row.get(name)) for name in COLUMNS}


def export_trajectories(source: str | Path, output: str | Path | None = None) -> Path:
    """Write the turns of a run folder or `.jsonl` file as parquet, and return where it lies.

    Args:
        source: a run folder, or one file of records.
        output: by default `trajectories.parquet` in the run folder, or beside the file.
    """
    source = Path(source)
    if output is None:
        output = source.with_suffix(".parquet") if source.is_file() else source / "trajectories.parquet"
    try:
        from datasets import Dataset, Features, Value
    except ImportError as error:
        raise ImportError(_NO_DATASETS) from error
    rows = list(flatten(iterate_records(source)))
    if not rows:
        raise FileNotFoundError(f'"{source}" holds no turns yet: let the run go on, or choose another.')
    features = Features({name: Value(kind) for name, kind in COLUMNS.items()})
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(rows, features=features).to_parquet(str(output))
    return Path(output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m metarl_agents.tracking.export", description="Write the turns of a run as one parquet table."
    )
    parser.add_argument("source", metavar="RUN_FOLDER_OR_JSONL", help="a run folder, or one trajectories/*.jsonl file")
    parser.add_argument("--output", help="the table (default: trajectories.parquet in the run folder)")
    options = parser.parse_args(arguments)
    try:
        table = export_trajectories(options.source, options.output)
    except (ImportError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{table}\n")
    return 0


def _clean(value: Any) -> Any:
    """Replace what UTF-8 cannot hold (lone surrogates), which parquet would refuse."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


if __name__ == "__main__":
    raise SystemExit(main())
