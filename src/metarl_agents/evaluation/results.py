"""What one evaluation found, as a value: built from trials, kept as JSON, printed as a table.

What lives here: `EvaluationResult`, its file, and the table of several results. What does not: playing the trials
(`evaluate.py`), the statistics (`metrics.py`, `diversity.py`), how tables are laid out (`layout.py`). Read
`EvaluationResult` first, then `format_table`.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.diversity import entropy_interval, trajectory_diversity, trajectory_entropies
from metarl_agents.evaluation.layout import NOTHING, lay_out, lay_out_notes, percent
from metarl_agents.evaluation.metrics import (
    independent_pass_at_k,
    independent_pass_interval,
    sequential_pass_at_k,
    wilson_interval,
)
from metarl_agents.texts import read_json
from metarl_agents.types import Trial

SMALL_NUMBER = 30
"""Fewer tasks than this deserve a warning."""

_FORMAT = "metarl_agents.evaluation"
_VERSION = 1
_ADDED_LATER = frozenset({"diversity_by_task"})
"""Fields that files of this version may lack, since they are younger; their defaults say that nothing is known."""
_CRASHES_SHOWN = 5
_UNCONNECTED = "solved by one of k unconnected first episodes"


@dataclass
class EvaluationResult:
    """Outcomes of one policy on fixed tasks, with all that decides what they mean."""

    label: str
    """Name of the method in tables."""
    env: str
    env_kwargs: dict[str, Any]
    num_episodes: int
    """N, episodes a trial may have."""
    max_turns: int
    """LLM calls of one episode."""
    memory: str
    sampling: str
    """The settings that were in effect, as text: "temperature 0.7, top_p 0.8, top_k 20"."""
    split: str
    task_seeds: list[int]
    """(tasks,) the seed of each task."""
    solved_at: list[int | None]
    """(tasks,) 0-based index of the first solved episode; None where no episode solved the task."""
    crashed: list[dict[str, Any]] = field(default_factory=list)
    """{"seed", "error"} of each trial or sample that an environment failure ended; unsolved means failed here too."""
    first_episode_successes: list[list[bool]] | None = None
    """(tasks, n) outcomes of n independent first episodes of each task, or None where none were sampled."""
    diversity_nats: float | None = None
    """Entropy of the sampled first episodes, mean over tasks."""
    diversity_normalised: float | None = None
    """The same as a share of its maximum."""
    diversity_by_task: list[float | None] | None = None
    """(tasks,) the entropy of each, None of those left out; None altogether where it was not kept."""
    episodes_played: int = 0
    """Episodes of the trials, samples for independent pass@k not included."""
    tokens: int = 0
    """Prompt and response tokens of the trials, samples not included."""
    winnable_share: float | None = None
    """Share of tasks that can be won within `max_turns` at all, where it is known."""
    episode_counts: list[tuple[int, int]] = field(default_factory=list)
    """(N,) pairs: trials that reached episode n, and those of them that solved it."""
    seconds: float = 0.0
    step: int | None = None
    """Training step of the evaluated weights, or None."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Anything else worth keeping: model, and in a file the date."""

    def __post_init__(self) -> None:
        """Check that outcomes fit the tasks and the number of episodes."""
        for name in ("solved_at", "first_episode_successes", "diversity_by_task"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.task_seeds):
                raise ConfigError(
                    f"`{name}` has {len(column)} entries, but there are {len(self.task_seeds)} tasks: give one a task."
                )
        outside = [n for n in self.solved_at if n is not None and not 0 <= n < self.num_episodes]
        if outside:
            raise ConfigError(
                f"`solved_at` has the episode {outside[0]}, but must lie between 0 and {self.num_episodes - 1}, "
                "or be None for a task that stayed unsolved."
            )

    @classmethod
    def from_trials(
        cls, trials: Sequence[Trial], *, samples: Sequence[Sequence[Trial]] | None = None, **facts: Any
    ) -> EvaluationResult:
        """Derive outcomes, crashes, counts, tokens and diversity from played trials.

        Args:
            trials: (tasks,) one trial for each task.
            samples: (tasks, n) further trials of the same tasks in the same order, of which only the first episode
                counts; None for no independent pass@k. Tasks with a crashed sample are left out of the diversity.
            facts: the fields that trials do not know: `label`, `env`, `env_kwargs`, `num_episodes`, `max_turns`,
                `memory`, `sampling`, `split`, and optionally `winnable_share`, `seconds`, `step`, `meta`.

        Raises:
            ConfigError: `samples` are not of the same tasks, or an episode beyond `num_episodes` was solved.
        """
        seeds = [int(trial.seed) for trial in trials]
        played = [*trials, *(trial for task in samples or () for trial in task)]
        reached = range(facts["num_episodes"])
        return cls(
            task_seeds=seeds,
            solved_at=[next((n for n, e in enumerate(trial.episodes) if e.success), None) for trial in trials],
            crashed=[{"seed": int(trial.seed), "error": trial.error} for trial in played if trial.crashed],
            episodes_played=sum(len(trial.episodes) for trial in trials),
            tokens=sum(len(t.prompt_ids) + len(t.response.ids) for trial in trials for _, _, t in trial.rows()),
            episode_counts=[_episode_count(trials, n) for n in reached],
            **_sampled(samples, seeds),
            **facts,
        )

    @property
    def num_tasks(self) -> int:
        """Number of tasks."""
        return len(self.task_seeds)

    @property
    def num_samples(self) -> int:
        """Independent first episodes of a task; 0 where none were sampled."""
        return min(map(len, self.first_episode_successes), default=0) if self.first_episode_successes else 0

    def pass_at(self, k: int) -> float:
        """Share of tasks solved within the first k episodes (sequential pass@k, 1 <= k <= N)."""
        return sequential_pass_at_k(self.solved_at, k, self.num_episodes)

    def interval(self, k: int, confidence: float = 0.95) -> tuple[float, float]:
        """Wilson interval of `pass_at(k)`."""
        return wilson_interval(round(self.pass_at(k) * self.num_tasks), self.num_tasks, confidence)

    def independent(self, k: int) -> float:
        """Probability that one of k independent first episodes solves the task (1 <= k <= samples a task)."""
        return independent_pass_at_k(self._samples(), k)

    def independent_interval(self, k: int, confidence: float = 0.95) -> tuple[float, float]:
        """Bootstrap interval, over tasks, of `independent(k)`."""
        return independent_pass_interval(self._samples(), k, confidence=confidence)

    def diversity_interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """Bootstrap interval, over tasks, of `diversity_nats`; None where no entropy of each task was kept."""
        known = [nats for nats in self.diversity_by_task or () if nats is not None]
        return entropy_interval(known, self.num_samples, confidence=confidence) if known else None

    def metrics(self) -> dict[str, float]:
        """Return what a log shows: pass@k of both kinds, success of each reached episode, diversity."""
        ks = range(1, self.num_episodes + 1)
        found = {f"pass@{k}": self.pass_at(k) for k in ks}
        found |= {f"pass@{k}_independent": self.independent(k) for k in ks if k <= self.num_samples}
        counts = enumerate(self.episode_counts)
        found |= {f"episode_{n}/success": solved / reached for n, (reached, solved) in counts if reached}
        if self.diversity_nats is not None:
            found["diversity"] = self.diversity_nats
        return found

    def dated(self) -> EvaluationResult:
        """Return the result as it goes into a file: with the time in UTC, as text, in `meta["date"]`.

        The value itself has none, so that an evaluation that is repeated finds the same.
        """
        return replace(self, meta=self.meta | {"date": datetime.now(UTC).isoformat(timespec="seconds")})

    def to_json(self, path: str | Path) -> None:
        """Write the result to a file, whole or not at all; folders are made as needed."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        lines = [f" {json.dumps(name)}: {json.dumps(value, default=_plain)}" for name, value in values.items()]
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        os.replace(unfinished, path)

    @classmethod
    def from_json(cls, path: str | Path) -> EvaluationResult:
        """Read a result that `to_json` wrote.

        Raises:
            ConfigError: the file cannot be read, is no evaluation result, or comes from another version.
        """
        values = read_json(path, "evaluation result")
        if not isinstance(values, dict) or values.pop("format", None) != _FORMAT:
            raise ConfigError(f'"{path}" is not an evaluation result: give a file that `to_json` wrote.')
        version = values.pop("version", None)
        return cls.from_values(values, str(path), version)

    @classmethod
    def from_values(cls, values: dict[str, Any], name: str = "this", version: Any = _VERSION) -> EvaluationResult:
        """Build a result from its fields as JSON knows them; a ConfigError says by `name` where they stand."""
        if version != _VERSION or set(values) | _ADDED_LATER != {item.name for item in fields(cls)}:
            raise ConfigError(
                f'"{name}" is an evaluation result of version {version} with fields this version ({_VERSION}) does '
                "not share: evaluate again, or read it with the version that wrote it."
            )
        return cls(**(values | {"episode_counts": [tuple(pair) for pair in values["episode_counts"]]}))

    def _samples(self) -> list[list[bool]]:
        if not self.first_episode_successes:
            raise ConfigError(
                f'"{self.label}" was evaluated without independent first episodes: set `--eval_samples 8` to get them.'
            )
        return self.first_episode_successes


def format_table(results: Sequence[EvaluationResult], *, markdown: bool = False, width: int = 100) -> str:
    """Lay out results as a table, one row each, with what must be known to read it below.

    Args:
        results: in the order of the rows.
        markdown: one Markdown table instead of plain columns, where sampled first episodes get a table of their own.
        width: characters of a line; plain columns that do not fit follow in another block of rows.
    """
    if not results:
        return "no results"
    ks = range(1, max(result.num_episodes for result in results) + 1)
    header = ["method", "n", *(f"pass@{k}" for k in ks)]
    rows = [[result.label, str(result.num_tasks), *(_sequential_cell(result, k) for k in ks)] for result in results]
    sampled = [k for k in ks if any(k <= result.num_samples for result in results)]
    more_header = [*(f"indep. pass@{k}" for k in sampled), *["diversity"] * bool(sampled)]
    more = [[*(_independent_cell(r, k) for k in sampled), *[_diversity_cell(r)] * bool(sampled)] for r in results]
    if markdown or not sampled:
        joined = [[*row, *cells] for row, cells in zip(rows, more, strict=True)]
        tables = [lay_out([*header, *more_header], joined, markdown, width)]
    else:
        labelled = [[row[0], *cells] for row, cells in zip(rows, more, strict=True)]
        tables = [lay_out(header, rows, False, width), lay_out(["method", *more_header], labelled, False, width)]
    notes = [*_merged(results, _pass_note), *table_notes(results)]
    return "\n\n".join([*tables, lay_out_notes(notes, markdown, width)])


def table_notes(results: Sequence[EvaluationResult]) -> list[str]:
    """Say how the results were obtained: once where it is the same for all, per label where it differs."""
    facts: list[Callable[[EvaluationResult], str | None]] = [
        _played_note,
        lambda result: f"memory: {result.memory}",
        lambda result: f"sampling: {result.sampling}",
        lambda result: result.meta.get("fewer_tasks"),
        lambda result: result.meta.get("too_long"),
        _winnable_note,
        _samples_note,
        _crash_note,
        _small_note,
    ]
    return [line for fact in facts for line in _merged(results, fact)]


def _episode_count(trials: Sequence[Trial], n: int) -> tuple[int, int]:
    """Count the trials that reached episode n, and those of them that solved it."""
    reached = [trial.episodes[n] for trial in trials if len(trial.episodes) > n]
    return len(reached), sum(episode.success for episode in reached)


def _sampled(samples: Sequence[Sequence[Trial]] | None, seeds: list[int]) -> dict[str, Any]:
    """Derive the fields that come from independent first episodes."""
    if samples is None:
        return {}
    found = [{trial.seed for trial in task} for task in samples]
    if found != [{seed} for seed in seeds]:
        raise ConfigError("`samples` must hold at least one trial of each task, in the order of `trials`.")
    fields_found: dict[str, Any] = {"first_episode_successes": [[t.pass_at(1) for t in task] for task in samples]}
    # A trial that crashed before it began has no first episode to compare.
    whole = [not any(trial.crashed for trial in task) for task in samples]
    played = [[_trajectory(trial) for trial in task] for task, kept in zip(samples, whole, strict=True) if kept]
    if played and min(map(len, played)) > 1:
        diversity, entropies = trajectory_diversity(played), iter(trajectory_entropies(played))
        fields_found |= {"diversity_nats": diversity.nats, "diversity_normalised": diversity.normalised}
        fields_found["diversity_by_task"] = [next(entropies) if kept else None for kept in whole]
    return fields_found


def _trajectory(trial: Trial) -> tuple[tuple[str, str], ...]:
    """Return the (observation, action) sequence of the first episode; unreadable responses are all one action."""
    return tuple((turn.observation, turn.shown_action) for turn in trial.episodes[0].turns)


def _plain(value: Any) -> Any:
    """Give JSON a NumPy value as the number it is, anything else it does not know as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _sequential_cell(result: EvaluationResult, k: int) -> str:
    return percent(result.pass_at(k), result.interval(k)) if k <= result.num_episodes else NOTHING


def _independent_cell(result: EvaluationResult, k: int) -> str:
    return percent(result.independent(k), result.independent_interval(k)) if k <= result.num_samples else NOTHING


def _diversity_cell(result: EvaluationResult) -> str:
    if result.diversity_nats is None:
        return NOTHING
    interval = result.diversity_interval()
    bounds = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{result.diversity_nats:.2f}{bounds} ({100 * result.diversity_normalised:.0f} %)"


def _pass_note(result: EvaluationResult) -> str:
    if _all_are_played(result):
        return (
            "pass@k: percent of tasks won at least once within the first k games of one trial, which are played in any "
            "case, Wilson 95 % interval"
        )
    return "pass@k: percent of tasks solved within the first k episodes of one trial, Wilson 95 % interval"


def _all_are_played(result: EvaluationResult) -> bool:
    """Whether trials are games, none of which ended with a success."""
    rows = result.meta.get("games", {}).get("rows", ())
    return bool(rows) and all(len(row["endings"]) == result.num_episodes for row in rows)


def _played_note(result: EvaluationResult) -> str:
    keywords = dict(result.env_kwargs)
    if listed := result.meta.get("opponents"):  # the environment's own keywords know nothing of models
        keywords = {name: value for name, value in keywords.items() if name not in ("opponent", "opponents", "weights")}
        keywords["opponents"] = list(listed)
    settings = ", ".join(f"{name} {value}" for name, value in keywords.items())
    env = f"{result.env} ({settings})" if settings else result.env
    return f"{env}, {result.split} tasks, episodes of a trial: {result.num_episodes}, max_turns: {result.max_turns}"


def _winnable_note(result: EvaluationResult) -> str | None:
    if result.winnable_share is None:
        return None
    told = f"tasks that can be won within {result.max_turns} turns at all: {percent(result.winnable_share)} %"
    unknown = result.meta.get("winnable_unknown")
    return f"{told} (unknown of {unknown}, left out)" if unknown else told


def _samples_note(result: EvaluationResult) -> str | None:
    if not result.num_samples:
        return None
    played = "won in one of k unconnected first games" if "games" in result.meta else _UNCONNECTED
    note = f"indep. pass@k: percent {played}, from {result.num_samples} a task"
    return note if result.diversity_nats is None else f"{note}; diversity: their entropy in nats (share of the largest)"


def _crash_note(result: EvaluationResult) -> str | None:
    if not result.crashed:
        return None
    first = [(crash["seed"], str(crash["error"])) for crash in result.crashed[:_CRASHES_SHOWN]]
    shown = "; ".join(f"seed {seed}: {textwrap.shorten(error, 100)}" for seed, error in first)
    more = len(result.crashed) - _CRASHES_SHOWN
    shown += f"; {more} more" if more > 0 else ""
    return f"crashed episodes, counted as failed: {len(result.crashed)} ({shown})"


def _small_note(result: EvaluationResult) -> str | None:
    if result.num_tasks >= SMALL_NUMBER:
        return None
    return (
        f"n too small: {result.num_tasks} tasks cannot tell methods apart, set `--eval_tasks` to {SMALL_NUMBER} or more"
    )


def _merged(results: Sequence[EvaluationResult], fact: Callable[[EvaluationResult], str | None]) -> list[str]:
    """Say a fact once if it holds for all results, otherwise once for the labels that share it."""
    labels: dict[str, list[str]] = {}
    for result in results:
        if (text := fact(result)) is not None:
            labels.setdefault(text, []).append(result.label)
    if len(labels) == 1 and len(next(iter(labels.values()))) == len(results):
        return list(labels)
    return [f"{', '.join(names)}: {text}" for text, names in labels.items()]
