"""Which tasks are played: three disjoint ranges of seeds, owned by the library.

A custom environment gets train, validation and test tasks without doing anything. Training seeds are a function of
(run seed, step, group), so a resumed run sees the very same tasks; evaluation seeds never depend on the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from metarl_agents.envs.splits import SEEDS_PER_SPLIT, SPLITS
from metarl_agents.errors import ConfigError
from metarl_agents.sources import read_rows


def mix(*parts: int) -> int:
    """Return a well-spread 63-bit integer of the parts (splitmix64), the same on every machine and Python."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) & 0xFFFFFFFFFFFFFFFF
        state = (state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


def evaluation_seeds(split: str, count: int, listed: Sequence[int] | None = None) -> list[int]:
    """Return the first `count` task seeds of a split: the same at every evaluation of every run.

    Args:
        split: "validation" or "test".
        count: number of tasks; a listed split that is smaller gives all it has.
        listed: the split's own task list, where `--tasks` brings one.

    Raises:
        ConfigError: there is no such split.
    """
    if split not in SPLITS[1:]:
        raise ConfigError(f'there is no evaluation split "{split}": choose {" or ".join(SPLITS[1:])}.')
    if listed is not None:
        return list(listed)[:count]
    first = SPLITS.index(split) * SEEDS_PER_SPLIT
    return [first + number for number in range(count)]


class TaskStream:
    """Training tasks by step: a pure function of (run seed, step), so there is nothing to save."""

    def __init__(self, run_seed: int, tasks_per_step: int, listed: Sequence[int] | None = None) -> None:
        """Deal from the library's training range, or from `listed` seeds in a fresh order each pass."""
        self._run_seed = run_seed
        self._count = tasks_per_step
        self._listed = list(listed) if listed is not None else None

    def take(self, step: int) -> list[int]:
        """Return the task seeds of a step, one per group."""
        numbers = range(step * self._count, (step + 1) * self._count)
        if self._listed is None:
            return [mix(self._run_seed, number) % SEEDS_PER_SPLIT for number in numbers]
        size = len(self._listed)
        return [self._listed[self._order(number // size)[number % size]] for number in numbers]

    def _order(self, epoch: int) -> list[int]:
        return sorted(range(len(self._listed)), key=lambda index: mix(self._run_seed, epoch, index))


def load_task_list(source: str | None) -> dict[str, list[int] | None]:
    """Read `--tasks`: a JSONL file or hub dataset with a column `seed` and, optionally, `split`.

    Rows without a split are training tasks.

    Raises:
        ConfigError: the source cannot be read, or has no usable rows.
    """
    if source is None:
        return dict.fromkeys(SPLITS)
    rows = read_rows(source, "task list", ["seed"])
    lists: dict[str, list[int] | None] = {}
    for split in SPLITS:
        # A file in which only some rows name a split holds None in the others.
        seeds = [row["seed"] for row in rows if (row.get("split") or "train") == split]
        lists[split] = seeds or None
    unknown = sorted({str(row["split"]) for row in rows if row.get("split")} - set(SPLITS))
    if unknown:
        raise ConfigError(f'`tasks` source {source} has a split "{unknown[0]}": name it one of {", ".join(SPLITS)}.')
    if not rows or lists["train"] is None:
        raise ConfigError(f"`tasks` source {source} has no training rows: give it a column `seed` of whole numbers.")
    if not all(type(row["seed"]) is int and row["seed"] >= 0 for row in rows):
        raise ConfigError(f"`tasks` source {source} must hold whole numbers >= 0 in its column `seed`.")
    shared = set(lists["train"]) & (set(lists["validation"] or ()) | set(lists["test"] or ()))
    if shared:
        raise ConfigError(f"`tasks` source {source} trains and evaluates on the same seed {min(shared)}: split them.")
    return lists
