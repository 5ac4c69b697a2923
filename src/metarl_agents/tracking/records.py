"""Trials as JSON lines: `trajectories/<split>.jsonl`, one object per trial, nothing left out.

What lives here: the shape of a record, and appending, cutting and reading such files. What does not: which trials
are worth keeping (the caller decides), the page that shows them (`viewer.py`), the flat table (`export.py`).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from metarl_agents.types import Episode, Trial, Turn

TRAJECTORY_FOLDER = "trajectories"


def trial_record(
    trial: Trial,
    decode: Callable[[Sequence[int]], str],
    *,
    step: int,
    split: str,
    returns: Sequence[float] | None = None,
    advantages: Sequence[float] | None = None,
    extra: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Turn a trial into one JSON-serialisable object.

    Args:
        trial: the trial, finished or crashed.
        decode: prompt ids to text, special tokens kept.
        step: training steps done when the trial was played.
        split: "train", "eval" or any other name; also the name of the file.
        returns: (T,) return of each turn, in the order of `trial.rows()`; None where there is none.
        advantages: (T,) advantage of each turn, in the same order; None where there is none.
        extra: further facts about the trial, kept under "extra".

    Returns:
        The record. `solved_at` is the 0-based index of the first solved episode, or None. Numbers that are not
        finite become None, since JSON has no word for them.
    """
    rows = [turn for _, _, turn in trial.rows()]
    credit = zip(_column("returns", returns, len(rows)), _column("advantages", advantages, len(rows)), strict=True)
    turns = iter([_turn_record(turn, decode, *pair) for turn, pair in zip(rows, credit, strict=True)])
    record: dict[str, Any] = {
        "step": step,
        "split": split,
        "group": trial.group,
        "seed": trial.seed,
        "opponent": trial.opponent,
        "seat": trial.seat,
        "error": trial.error,
        "solved_at": next((n for n, episode in enumerate(trial.episodes) if episode.success), None),
        "episodes": [_episode_record(episode, turns) for episode in trial.episodes],
    }
    if extra:
        record["extra"] = json.loads(json.dumps(extra, default=_plain))
    return record


def write_records(path: str | Path, records: Iterable[dict[str, Any]]) -> None:
    """Append records to a JSON-lines file, one write and flush per line; folders are made as needed.

    A torn last line, left by a run that was killed while writing, is cut off first.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _mend_tail(path)
    # A lone surrogate cannot be written as UTF-8; its backslash form is what JSON itself would write.
    with path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False, default=_plain) + "\n")
            file.flush()


def read_records(source: str | Path) -> list[dict[str, Any]]:
    """Read all records of a `.jsonl` file or of a run folder (`trajectories/*.jsonl`, files in name order).

    A torn last line is skipped: the run may still be writing. A damaged line anywhere else raises `ValueError`,
    a place without trajectories `FileNotFoundError`.
    """
    return list(iterate_records(source))


def iterate_records(source: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the records of `read_records` one at a time, for files larger than memory."""
    for path in record_files(source):
        yield from _read_file(path)


def record_files(source: str | Path) -> list[Path]:
    """List the record files behind a path: itself, or those of a run folder."""
    source = Path(source)
    if source.is_file():
        return [source]
    folder = source if source.name == TRAJECTORY_FOLDER else source / TRAJECTORY_FOLDER
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(
            f'No trajectories in "{source}" (looked for {folder}/*.jsonl): '
            "give the folder of a run that has recorded trials, or a .jsonl file of records."
        )
    return files


def drop_after(path: str | Path, step: int) -> None:
    """Drop the lines of a JSON-lines file whose `step` lies beyond `step`; a torn last line goes too."""
    path = Path(path)
    if not path.exists():
        return
    kept = path.with_name(path.name + ".tmp")
    with path.open("rb") as source, kept.open("wb") as target:
        for line in source:
            record = _parse(line)
            if record is not None and not _is_later(record, step):
                target.write(line.rstrip(b"\n") + b"\n")
    os.replace(kept, path)


def cut(path: str | Path, size: int, step: int) -> None:
    """Cut a log to the `size` in bytes that it had at training step `step`, and delete it where that is 0.

    A JSON-lines file that was changed by somebody else, so that no line ends there, is cut by the steps of its lines.
    """
    path = Path(path)
    if size == 0:
        path.unlink()
        return
    with path.open("r+b") as file:
        file.seek(size - 1)
        last = file.read(1)
        if last == b"\n" or (last and path.suffix != ".jsonl"):
            file.truncate(size)
            return
    if path.suffix == ".jsonl":
        drop_after(path, step)


def number(value: Any) -> float | None:
    """Return a plain finite float, or None for what is no number, NaN or infinite."""
    try:
        value = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _episode_record(episode: Episode, turns: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Describe one episode, drawing its turns from `turns`, which runs in time order."""
    return {
        "outcome": None if episode.outcome is None else episode.outcome.value,
        "reward": number(episode.reward),
        "initial_observation": episode.initial_observation,
        "final_observation": episode.final_observation,
        "turns": [next(turns) for _ in episode.turns],
        "reflection": None if episode.reflection is None else next(turns),
    }


def _turn_record(
    turn: Turn, decode: Callable[[Sequence[int]], str], turn_return: float | None, advantage: float | None
) -> dict[str, Any]:
    """Describe one turn, play or reflection."""
    return {
        "phase": turn.phase.value,
        "observation": turn.observation,
        "prompt": decode(turn.prompt_ids),
        "response": turn.response.written,
        "action": turn.shown_action,
        "reward": number(turn.reward),
        "row_penalty": number(turn.row_penalty),
        "invalid": turn.invalid,
        "truncated": turn.response.truncated,
        "prompt_shortened": turn.prompt_shortened,
        "prompt_tokens": len(turn.prompt_ids),
        "response_tokens": len(turn.response.ids),
        "return": number(turn_return),
        "advantage": number(advantage),
    }


def _column(name: str, values: Any, length: int) -> list[Any]:
    """Return `values` as a list of `length` entries; a missing column is all None."""
    if values is None:
        return [None] * length
    column = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(column) != length:
        raise ValueError(f"`{name}` has {len(column)} entries, but the trial has {length} turns (see `Trial.rows`).")
    return column


def _plain(value: Any) -> float | str | None:
    """Give JSON a number where the value is one (a tensor, a NumPy scalar), its text otherwise."""
    return number(value) if hasattr(value, "__float__") else str(value)


def _is_later(record: dict[str, Any], step: int) -> bool:
    """Whether a line was written after the checkpoint of `step`, as the last evaluation is."""
    own = record.get("step") or 0
    return own > step or (own == step > 0 and record.get("prefix") == "test")


def _parse(line: bytes) -> dict[str, Any] | None:
    """Read one line, or None where it holds no JSON object."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of one file; only its last line may be torn."""
    torn: int | None = None
    with path.open("rb") as file:
        for index, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if torn is not None:
                raise ValueError(f"{path}, line {torn}, is not a JSON object: remove that line to read the others.")
            record = _parse(line)
            if record is None:
                torn = index
            else:
                yield record


def _mend_tail(path: Path) -> None:
    """End the last line where its newline is missing, or cut it off where it is torn."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        last = b""
        for last in file:  # noqa: B007 - only the last line matters, and files may be larger than memory
            pass
        if _parse(last) is None:
            file.truncate(size - len(last))
        else:
            file.write(b"\n")
