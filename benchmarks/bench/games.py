"""What the cells of a game say: the exploited share and the payoff of each episode, and how games ended.

What lives here: the rows of trials in a cell's file, all runs of a table's row brought together, their statistics.
What does not: how one trial is examined (`metarl_agents.evaluation.games`), which is where floor and ceiling come from.
Read first: `Played`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult, paired_bootstrap, seed_spread
from metarl_agents.evaluation.games import SMALLEST_GAP, counted

_LETTERS = {"won": "w", "drawn": "d", "lost": "l", "unfinished": "u"}
_WORDS = {letter: word for word, letter in _LETTERS.items()}


# ---- in a cell's file ----------------------------------------------------------------------------------------------


def pack_games(games: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an evaluation's games with its rows as columns: each role told once, endings as letters."""
    rows = games["rows"]
    roles = list(dict.fromkeys((row["opponent"], row["seat"]) for row in rows))
    place = {role: index for index, role in enumerate(roles)}
    columns = {
        "seeds": [row["seed"] for row in rows],
        "roles": [list(role) for role in roles],
        "role": [place[row["opponent"], row["seat"]] for row in rows],
        "payoffs": [list(row["payoffs"]) for row in rows],
        "endings": ["".join(_LETTERS[ending] for ending in row["endings"]) for row in rows],
    }
    return {**games, "rows": columns}


def unpack_games(games: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `pack_games`."""
    columns = games["rows"]
    rows = []
    names = ("seeds", "role", "payoffs", "endings")
    for seed, role, payoffs, endings in zip(*(columns[name] for name in names), strict=True):
        opponent, seat = columns["roles"][role]
        words = [_WORDS[letter] for letter in endings]
        rows.append({"seed": seed, "opponent": opponent, "seat": seat, "payoffs": payoffs, "endings": words})
    return {**games, "rows": rows}


# ---- the runs of a row together ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """What the runs of one row earned. A crash is a failure: the plays that never came count as unfinished ones."""

    seeds: tuple[int | None, ...]
    """(runs,) training seeds; None for the base model."""
    tasks: tuple[int, ...]
    """(tasks,) seeds of the tasks."""
    roles: tuple[tuple[str, int], ...]
    """(tasks,) opponent and seat."""
    payoff: np.ndarray
    """(runs, tasks, N) what each episode counts."""
    endings: np.ndarray
    """(runs, tasks, N) "won", "drawn", "lost" or "unfinished"."""
    floor: np.ndarray
    """(tasks,) payoff of equilibrium play; NaN where it is not known."""
    gap: np.ndarray
    """(tasks,) ceiling minus floor; NaN where it is not known."""

    @property
    def framed(self) -> np.ndarray:
        """(tasks,) whether there is something to exploit: the gap is above `SMALLEST_GAP`."""
        return self.gap > SMALLEST_GAP  # NaN is not

    def values(self, measure: str, tasks: Sequence[int] | None = None) -> np.ndarray:
        """Return (runs, tasks', N) numbers whose mean over tasks is the exploited share, or the payoff.

            exploited share = Σ (payoff - floor) / Σ gap          over the tasks that are framed

        Args:
            measure: "exploited" or "payoff".
            tasks: these tasks only.
        """
        kept = np.ones(len(self.tasks), dtype=bool) if tasks is None else np.isin(self.tasks, list(tasks))
        if measure == "payoff":
            return self.payoff[:, kept]
        kept &= self.framed
        if not kept.any():
            return np.empty((len(self.seeds), 0, 0))
        return (self.payoff[:, kept] - self.floor[kept, None]) / np.mean(self.gap[kept])


def read_played(results: Sequence[EvaluationResult], seeds: Sequence[int | None]) -> Played | None:
    """Bring the runs of a row together; None where there are none.

    Args:
        results: (runs,) what they found on the same tasks.
        seeds: (runs,) what they were trained with.

    Raises:
        ConfigError: a result holds no examined games, or runs played different tasks or met different opponents in one.
    """
    if not results:
        return None
    if any(result.task_seeds != results[0].task_seeds for result in results):
        raise ConfigError("the runs played different tasks: evaluate them again.")
    records = [_record(result) for result in results]
    by_task = [_by_task(record, result) for record, result in zip(records, results, strict=True)]
    tasks = results[0].task_seeds
    frame = {(one["opponent"], one["seat"]): one for one in records[0]["exact"]}
    roles = [_role([rows[task] for rows in by_task]) for task in tasks]
    floor, ceiling = (np.array([frame.get(role, {}).get(name, np.nan) for role in roles]) for name in _FRAME)
    played = [[rows[task] for task in tasks] for rows in by_task]
    least = [{one["seat"]: one["payoff"] for one in record["least"]} for record in records]
    payoff = [[_payoffs(row, of_run) for row in rows] for rows, of_run in zip(played, least, strict=True)]
    return Played(
        seeds=tuple(seeds),
        tasks=tuple(tasks),
        roles=tuple(roles),
        payoff=np.array(payoff),
        endings=np.array([[row["endings"] for row in rows] for rows in played]),
        floor=floor,
        gap=ceiling - floor,
    )


_FRAME = ("floor", "ceiling")


def _payoffs(row: Mapping[str, Any], least: Mapping[int, float | None]) -> list[float]:
    return [counted(row, episode, least) for episode in range(len(row["payoffs"]))]


def _record(result: EvaluationResult) -> dict[str, Any]:
    games = result.meta.get("games")
    if games is None or not {"exact", "least"} <= set(games):
        raise ConfigError(
            f"the evaluation {result.label} holds no games: its block cannot have the measure `exploited`, unless the "
            "cell was damaged."
        )
    return games


def _by_task(record: Mapping[str, Any], result: EvaluationResult) -> dict[int, Mapping[str, Any]]:
    """Return {seed of a task: its trial}."""
    rows = {row["seed"]: row for row in record["rows"]}
    if set(result.task_seeds) - set(rows):
        raise ConfigError(f"the evaluation {result.label} lacks the games of some tasks: evaluate it again.")
    return rows


def _role(rows: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    roles = {(row["opponent"], row["seat"]) for row in rows}
    if len(roles) > 1 or None in next(iter(roles)):
        raise ConfigError(f"in the task {rows[0]['seed']} the runs met {sorted(map(str, roles))}: evaluate them again.")
    return roles.pop()


# ---- statistics ----------------------------------------------------------------------------------------------------


def describe(played: Played, options: Mapping[str, int]) -> dict[str, Any]:
    """Return what a summary says of a row: `exploited` and `payoff` by episode (see `measures.scores`), `endings`.

    Args:
        played: the row's runs.
        options: `resamples` and `seed` of the bootstrap.
    """
    numbers = {name: _by_episode(played.values(name), options) for name in ("exploited", "payoff")}
    return {
        **numbers,
        "endings": {
            str(k): {word: float(np.mean(played.endings[..., k - 1] == word)) for word in _LETTERS}
            for k in range(1, played.payoff.shape[2] + 1)
        },
        "tasks": len(played.tasks),
        "framed": int(played.framed.sum()),
    }


def _by_episode(values: np.ndarray, options: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Pool runs; the interval is over tasks, the runs of a task staying together."""
    found: dict[str, dict[str, Any]] = {}
    for episode in range(values.shape[2]):
        of_episode = values[..., episode]
        pooled = paired_bootstrap(of_episode, np.zeros_like(of_episode), **options)
        per_run = [float(mean) for mean in of_episode.mean(axis=1)]
        found[str(episode + 1)] = {
            "share": pooled.mean,
            "interval": [pooled.low, pooled.high],
            "per_run": per_run,
            "spread": seed_spread(per_run)._asdict(),
        }
    return found


def gain(played: Played, measure: str, options: Mapping[str, int]) -> dict[str, Any] | None:
    """Compare last and first episode of the same trials; None where nothing can be measured or N is 1."""
    values = played.values(measure)
    if values.shape[2] < 2:
        return None
    return _paired(values[..., -1] - values[..., 0], options)


def compare(first: Played, second: Played, measure: str, options: Mapping[str, int]) -> dict[str, Any] | None:
    """Compare the last episodes of two rows, task by task and seed by seed.

    The base model, which has no seeds, is compared with each of them. None where the rows have nothing in common.

    Returns:
        `k`, the fields of a paired difference, and `seeds` that entered of each row.

    Raises:
        ConfigError: the rows met different opponents in one task.
    """
    met = dict(zip(second.tasks, second.roles, strict=True))
    for task, role in zip(first.tasks, first.roles, strict=True):
        if met.get(task, role) != role:
            raise ConfigError(f"in the task {task} they met {role} and {met[task]}")
    shared = [seed for seed in first.seeds if seed in second.seeds]
    has_base = None in (*first.seeds, *second.seeds)
    runs = [
        list(range(len(one.seeds))) if has_base else [one.seeds.index(seed) for seed in shared]
        for one in (first, second)
    ]
    tasks = sorted(set(first.tasks) & set(second.tasks))
    a, b = (one.values(measure, tasks) for one in (first, second))
    if not runs[0] or not a.size or not b.size:
        return None
    k = min(a.shape[2], b.shape[2])
    apart = a[runs[0], :, k - 1] - b[runs[1], :, k - 1]
    return {"k": k, **_paired(apart, options), "seeds": [len(chosen) for chosen in runs]}


def _paired(apart: np.ndarray, options: Mapping[str, int]) -> dict[str, Any]:
    """Test (runs, tasks) differences against 0, over tasks and runs."""
    return paired_bootstrap(apart, np.zeros_like(apart), over_runs=True, **options)._asdict()


def notes(played: Sequence[Played]) -> list[str]:
    """Say what must be known to read a table of games."""
    lines = [
        "exploited: (payoff - floor) / (ceiling - floor), sums over tasks, seeds pooled; floor: equilibrium play; "
        "ceiling: the best response to the opponent, which knows the deal where that is replayed; 0 % is equilibrium "
        f"play, 100 % the best response; only of opponents and seats where the two differ by more than {SMALLEST_GAP}",
        "payoff: points, chips, or 1 for a win, mean over all tasks; a play that did not end, or that a crash kept "
        "from beginning, counts the least that the game can pay, or what it had earned where that least is not known",
        "intervals: 95 %, bootstrap over tasks, the runs of a task together; last minus first episode: paired by task; "
        "differences: of the last episode, paired by task and by training seed; deals and opponents are the same in "
        "all rows, so that their luck widens the intervals of shares and payoffs, but not those of differences",
    ]
    shares = {(int(one.framed.sum()), len(one.tasks)) for one in played}
    if any(framed < tasks for framed, tasks in shares):
        told = sorted({f"{framed} of {tasks}" for framed, tasks in shares})
        lines.append(f"tasks with something to exploit: {', '.join(told)}")
    return lines
