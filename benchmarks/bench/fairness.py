"""What the rows of a table must share, so that they may stand in one.

Read first: `check_fair`. What does not live here: who is compared with whom (`comparing.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.cells import EVALUATED
from bench.measures import EXPLOITED, PASS
from metarl_agents.errors import ConfigError

if TYPE_CHECKING:
    from bench.plan import Block, Row

_ALIKE = tuple(name for name in EVALUATED if name not in ("memory", "eval_samples"))
"""What the rows of a table share in evaluation: tasks, sampling, limits. Memory is what rows compare; samples are taken
of one row of each model."""
_TRAINED_ALIKE = (
    *("env", "env_kwargs", "tasks", "max_turns", "tasks_per_step", "max_steps", "updates_per_batch"),
    *("model_name_or_path", "gguf_file"),
)
"""What the trained rows of a table share in training, beside the episodes of a task."""


def conditions_of(row: Row) -> dict[str, Any]:
    """Return which tasks a row's evaluations play, and how: only rows with the same may be compared."""
    job = row.jobs[0]
    flat = job.config.flat() | {"split": job.split, "task_file": job.decides.get("task_file")}
    return {name: flat[name] for name in (*_ALIKE, "split", "task_file")}


def differing(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Return the names under which two sets of settings hold different values."""
    return [name for name in first if first[name] != second[name]]


def check_fair(block: Block, episodes: int) -> None:
    """Refuse a table whose rows had other chances: tasks, episodes and updates in training, tasks in evaluation."""
    evaluated: dict[str | None, tuple[str, Any]] = {}
    trained: dict[str | None, tuple[str, Any]] = {}
    for row in block.rows:
        _check_alike(block, row, evaluated, conditions_of(row), "evaluated")
        job = row.jobs[0].train
        if job is None:
            continue
        trial, flat = job.config.trial, job.config.flat()
        allotted = trial.num_episodes * trial.group_size
        if allotted != episodes:
            raise ConfigError(
                f"`{row.id}` of the block {block.name} may play {allotted} episodes of a task in training, but "
                f"the table compares methods at {episodes}: change `group_size`."
            )
        _check_alike(block, row, trained, {name: flat[name] for name in _TRAINED_ALIKE}, "trained")
    ids = [row.id for row in block.rows]
    if len(set(ids)) < len(ids) or block.reference not in {*ids, *(row.method for row in block.rows)}:
        raise ConfigError(f"the block {block.name} names a row twice, or its reference `{block.reference}` is no row.")


def _check_alike(
    block: Block, row: Row, seen: dict[str | None, tuple[str, Any]], found: dict[str, Any], how: str
) -> None:
    """Refuse a row whose settings are not those of the first row of its variant; what a variant changes, all have."""
    first, expected = seen.setdefault(row.variant, (row.id, found))
    if names := ", ".join(f"`{name}`" for name in differing(expected, found)):
        raise ConfigError(f"`{row.id}` and `{first}` of the block {block.name} are not {how} alike: {names} differ.")


def check_measure(block: Block) -> None:
    """Refuse a measure that is unknown, or one of games where an evaluation would not play all of them."""
    if block.measure not in (PASS.name, EXPLOITED.name):
        raise ConfigError(
            f"the block {block.name} has the measure `{block.measure}`, but may have {PASS.name} or {EXPLOITED.name}."
        )
    ending = [row.id for row in block.rows if row.jobs[0].config.trial.stop_on_success]
    if block.measure == EXPLOITED.name and ending:
        raise ConfigError(
            f"`{ending[0]}` of the block {block.name} ends a trial at its first success, but of games all episodes are "
            "played: set `stop_on_success: false`."
        )
