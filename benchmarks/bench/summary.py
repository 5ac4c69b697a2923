"""What the cells of a preset say: every number of every table, as plain JSON values.

What does not live here: layout (`table.py`), pictures (`figures.py`), which cells may be used (`kept.py`), who is
compared with whom (`comparing.py`). The statistics are the library's (`metarl_agents.evaluation`) and
`compare_runs.py`'s. A fault of a cell costs its row the cell, and never the other rows and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compare_runs import Group, describe_group, diversity, independent

from bench import games
from bench.cells import RESULTS, Cell, key_of
from bench.comparing import STRICTER, Comparer
from bench.fairness import conditions_of
from bench.heading import header
from bench.kept import TOOK, is_damaged, is_outdated, is_there, opened, read_kept, trained_again
from bench.measures import EXPLOITED, MEASURES, PASS, PAYOFF, Measure
from bench.plan import PLANS, Block, Job, Plan, Row, load_plan
from metarl_agents.cli import read_yaml
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.evaluation.results import table_notes

_OPTIONS = {"resamples": 10_000, "seed": 0}
_Run = tuple[Job, Cell, EvaluationResult]


def summarize(
    preset: str, *, results: Path = RESULTS, plan: Plan | None = None, seeds: Collection[int] | None = None
) -> dict[str, Any]:
    """Return everything the tables of a preset show; the same cells give the same answer.

    Only `again` and `hours_left` depend on which models lie on this machine.

    Args:
        preset: smoke, cpu or gpu.
        results: where cells are kept.
        plan: instead of the preset's own.
        seeds: these training seeds only; rows that have none of them are left out.

    Raises:
        ConfigError: the plan cannot be read.
    """
    plan = plan or load_plan(preset)
    return summary(plan, read_kept(plan, results), seeds=seeds)


def summary(plan: Plan, cells: dict[str, Cell], *, seeds: Collection[int] | None = None) -> dict[str, Any]:
    """Sum up a plan, or what it has of some seeds, with the cells that are there."""
    wanted = plan.jobs_wanted(seeds=seeds)
    known = {job.key for job in (wanted if seeds is None else plan.jobs_wanted())}
    cells, found = opened(wanted, cells)
    blocks = plan.blocks if seeds is None else _of_seeds(plan.blocks, set(seeds))
    memo: dict[Any, Any] = {}
    tables = [_Table(block, cells, found, memo) for block in blocks]
    described = [table.describe() for table in tables]
    here = [cells[job.key] for job in wanted if job.key in cells]
    open_jobs = [job for job in wanted if not is_there(job, cells) and not job.on_demand]
    again = trained_again([job for job in open_jobs if not is_damaged(cells.get(job.key))], cells)
    return {
        "preset": plan.preset,
        "title": plan.title,
        "header": header(plan, [cell for cell in here if cell.finished]),
        "blocks": described,
        "missing": [f"{job.kind} {job.name}" for job in open_jobs if job.key not in cells or is_outdated(job, cells)],
        "failed": _failed(here, cells, tables),
        "again": [job.name for job in again],
        "skipped": [dict(entry) for entry in plan.skipped],
        "stale": sorted(c.name for key, c in cells.items() if key not in known and not is_damaged(c)),
        "hours": round(plan.hours_needed(), 3),
        "hours_left": round(plan.hours_needed([*open_jobs, *again]), 3),
    }


def _of_seeds(blocks: Iterable[Block], seeds: set[int]) -> list[Block]:
    """Leave out of blocks what other seeds trained; the base model's rows have no seed and stay."""
    left = []
    for block in blocks:
        rows = [replace(row, jobs=tuple(job for job in row.jobs if job.seed in seeds | {None})) for row in block.rows]
        if rows := tuple(row for row in rows if row.jobs):
            left.append(replace(block, rows=rows))
    return left


def _failed(here: Sequence[Cell], cells: dict[str, Cell], tables: Sequence[_Table]) -> list[dict[str, str | None]]:
    """List what failed: cells that are wanted, files of no known cell, and cells that a table could not use."""
    known = {cell.key for cell in here}
    failed = [cell for cell in here if not cell.finished]
    failed += [cell for key, cell in cells.items() if is_damaged(cell) and key not in known]
    told = {f"{cell.kind} {cell.name}": cell.reason for cell in failed}
    for table in tables:
        told |= {f"evaluate {cells[key].name}": reason for key, reason in table.faults.items()}
    return [{"cell": name, "reason": reason} for name, reason in told.items()]


class _Table:
    """One block, with the cells that are there.

    Args:
        block: what is planned.
        cells: {key: cell} of all that is there.
        found: {key: result} of the evaluations among them.
        memo: statistics that other tables found of the same cells; filled.
    """

    def __init__(
        self, block: Block, cells: dict[str, Cell], found: dict[str, EvaluationResult], memo: dict[Any, Any]
    ) -> None:
        self.block, self.cells, self.memo = block, cells, memo
        self.faults: dict[str, str] = {}
        """Key of a cell -> why this table cannot use what it holds."""
        self.played: dict[str, games.Played] = {}
        self.results: dict[str, list[_Run]] = {}
        for row in block.rows:
            there = [(job, cells[job.key], found[job.key]) for job in row.jobs if job.key in found]
            self.results[row.id] = self._usable(row, [run for run in there if is_there(run[0], cells)])
        self.published = read_yaml(PLANS / "published.yaml").get(block.published) if block.published else None
        self.measure = self._measure()
        groups = {row.id: group for row in block.rows if (group := self._group(row)) is not None}
        self.comparer = Comparer(block, groups, self.played, self.measure, _OPTIONS)

    def _usable(self, row: Row, runs: list[_Run]) -> list[_Run]:
        """Return the runs of a row that can be brought together, and note what is wrong with the others."""
        try:
            self._bring_together(row, runs)
        except ConfigError as error:
            # Either some are no good even alone, or nothing says which of them is wrong.
            reasons = {run[0].key: reason for run in runs if (reason := self._fault(row, run))}
            files = ", ".join(cell.file_name for _, cell, _ in runs)
            reasons = reasons or {job.key: _and_so(error, files) for job, _, _ in runs}
            self.faults |= reasons
            return self._usable(row, [run for run in runs if run[0].key not in reasons])
        return runs

    def _bring_together(self, row: Row, runs: Sequence[_Run]) -> None:
        """Read the games of a row; of other tasks, see that all runs played the same.

        Raises:
            ConfigError: the runs do not fit together, or one of them is not whole.
        """
        results = [result for _, _, result in runs]
        if any(result.task_seeds != results[0].task_seeds for result in results):
            raise ConfigError("the runs of a row played different tasks")
        if self.block.measure == EXPLOITED.name:
            self.played.pop(row.id, None)
            if (played := games.read_played(results, [job.seed for job, _, _ in runs])) is not None:
                self.played[row.id] = played

    def _fault(self, row: Row, run: _Run) -> str | None:
        """Say what is wrong with a run by itself; None where nothing is."""
        try:
            self._bring_together(row, [run])
        except ConfigError as error:
            return _and_so(error, run[1].file_name)
        return None

    def _measure(self) -> Measure:
        """Return what the table leads with: payoffs where no opponent that was met leaves anything to exploit."""
        nothing = self.played and not any(played.framed.any() for played in self.played.values())
        return PAYOFF if nothing else MEASURES[self.block.measure]

    def describe(self) -> dict[str, Any]:
        block = self.block
        rows = [self._row(row) for row in block.rows]
        pairs = self.comparer.differences()
        best, verdict = self.comparer.verdict(rows)
        for row in rows:
            row["best"] = row["id"] == best
        episodes = [job.config.trial.num_episodes for row in block.rows for job in row.jobs]
        return {
            "name": block.name,
            "title": block.title,
            "env": block.env,
            "kind": block.kind,
            "reference": block.reference,
            "vary": block.vary,
            "num_episodes": max(episodes),
            "figures": list(block.figures),
            "measure": self.measure.name,
            "notes": self._notes(has_pairs=bool(pairs)),
            "published": self.published and {k: self.published[k] for k in ("source", "setting")},
            "rows": rows,
            "differences": pairs,
            "verdict": verdict,
        }

    def _group(self, row: Row) -> Group | None:
        found = self.results[row.id]
        return Group(row.label, [cell.file_name for _, cell, _ in found], [r for _, _, r in found]) if found else None

    def _row(self, row: Row) -> dict[str, Any]:
        group, found = self._group(row), self.results[row.id]
        problems = [problem for job in row.jobs if (problem := self._problem(job))]
        described = self._once(row, "passes", lambda: describe_group(group, _OPTIONS, whole=False)) if group else {}
        models = [self.cells[job.train.key] for job, _, _ in found if job.train and job.train.key in self.cells]
        trained = [cell for cell in models if cell.finished]
        state = "finished" if not problems else "partial" if found else "missing"
        if not found and any(problem["status"] == "failed" for problem in problems):
            state = "failed"
        return {
            "id": row.id,
            "label": row.label,
            "method": row.method,
            "variant": row.variant,
            "meaningful": row.meaningful,
            "seeds": [job.seed for job in row.jobs if job.seed is not None],
            "done": [job.seed for job, _, _ in found if job.seed is not None],
            "state": state,
            "problems": problems,
            "num_tasks": found[0][2].num_tasks if found else 0,
            **self._by_episode(row, described),
            **self._sampled(row),
            "training": _mean_training(trained),
            "curves": [{"seed": cell.seed, "curves": cell.training["curves"]} for cell in trained],
            "published": (self.published or {}).get("rows", {}).get(row.method) if row.variant is None else None,
            "runs": [cell.run for cell in trained],
            "models": [job.train.key for job in row.jobs if job.train],
            "player": key_of({"player": _player(row)}),
        }

    def _by_episode(self, row: Row, described: dict[str, Any]) -> dict[str, Any]:
        """Return pass@k, what the games of the row say, and what later episodes gain over the first."""
        passes = {name[5:]: value for name, value in described.items() if name.startswith("pass@") and "_" not in name}
        gains = list(described.get("gain_over_pass@1", {}).values())
        found = {
            "n": passes["1"]["n"] if passes else 0,
            "pass": {k: {x: v[x] for x in ("share", "interval", "per_run", "spread")} for k, v in passes.items()},
            "gain": gains[-1] if gains else None,
        }
        if self.block.measure != PASS.name:
            played = self.played.get(row.id)
            found["games"] = self._once(row, "games", lambda: games.describe(played, _OPTIONS)) if played else None
            found["gain"] = games.gain(played, self.measure.name, _OPTIONS) if played else None
        return found

    def _problem(self, job: Job) -> dict[str, Any] | None:
        """Say what keeps an evaluation from being there: itself, or the model it would play."""
        if job.key in self.faults:
            return {"cell": job.name, "status": "failed", "reason": self.faults[job.key]}
        if is_there(job, self.cells):
            return None
        cell = self.cells.get(job.key)
        if cell is None and job.train is not None:
            cell = self.cells.get(job.train.key)
        if cell is None or cell.finished:
            return {"cell": job.name, "status": "missing", "reason": None}
        return {"cell": job.name, "status": "failed", "reason": cell.reason}

    def _sampled(self, row: Row) -> dict[str, Any]:
        """Average independent pass@k and diversity over seeds."""
        source = self._source(row)
        if source is None:
            return {"independent": {}, "diversity": None}
        return self._once(
            source, "alone", lambda: _first_episodes([result for _, _, result in self.results[source.id]])
        )

    def _once(self, row: Row, what: str, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a statistic of a row's cells, found now or by another table."""
        name = (what, *(job.key for job, _, _ in self.results[row.id]))
        if name not in self.memo:
            self.memo[name] = find()
        return self.memo[name]

    def _source(self, row: Row) -> Row | None:
        """Return the row whose sampled first episodes a row shows: they do not depend on memory.

        That is another one with the same models and request where this one sampled none.
        """
        if not self.results[row.id]:
            return None
        same = (
            other
            for other in (row, *self.block.rows)
            if (runs := self.results[other.id]) and all(run[2].num_samples for run in runs)
            if _player(other) == _player(row)
        )
        return next(same, None)

    def _notes(self, *, has_pairs: bool) -> list[str]:
        """Say what must be known to read the table."""
        found = [(row, result) for row in self.block.rows for _, _, result in self.results[row.id]]
        notes = [self.block.note] if self.block.note else []
        labelled = [_labelled(row.label, [r for other, r in found if other is row]) for row in self.block.rows]
        notes += table_notes([result for result in labelled if result is not None])
        if self.played and self.block.measure != PASS.name:
            notes += games.notes(list(self.played.values()))
        if found:
            notes.append("tasks: of one seed, all seeds play the same; a row's shares are of tasks x seeds trials")
        if has_pairs:
            notes.append(
                "differences: paired bootstrap over tasks and, where there are several, over seeds; 95 % interval; "
                f"Holm: p corrected for the comparisons that stand here{'' if self.comparer.apart else STRICTER}"
            )
        if {len(row.jobs) for row in self.block.rows if row.trained} == {1}:
            notes.append("one seed: nothing here says how far training once more would differ")
        if any(not row.meaningful for row in self.block.rows):
            notes.append(
                "prompting baselines are not meaningful for the tiny model, which follows no request it was not taught"
            )
        return notes + self._borrowed() + self.comparer.refused + self._outdated()

    def _borrowed(self) -> list[str]:
        """Tell of rows that show another row's sampled first episodes."""
        pairs = [(row, self._source(row)) for row in self.block.rows]
        told = [f"{row.label} (those of {other.label})" for row, other in pairs if other not in (None, row)]
        return [f"independent pass@k and diversity of another row's first episodes: {', '.join(told)}"] if told else []

    def _outdated(self) -> list[str]:
        """Tell of evaluations that are left out, since their model was trained again and has other weights now."""
        jobs = [job for row in self.block.rows for job in row.jobs]
        names = [job.name for job in jobs if is_outdated(job, self.cells)]
        return [f"left out, since their model was trained again: {', '.join(names)}"] if names else []


def _first_episodes(results: Sequence[EvaluationResult]) -> dict[str, Any]:
    """Return independent pass@k and diversity."""
    most = min(min(result.num_samples, result.num_episodes) for result in results)
    return {
        "independent": {str(k): independent(results, k, _OPTIONS) for k in range(1, most + 1)},
        "diversity": diversity(results, _OPTIONS),
    }


def _and_so(error: ConfigError, files: str) -> str:
    """Say what is wrong with files, and what to do."""
    return f"{str(error).rstrip('.')}; delete {files} to have it made again"


def _labelled(label: str, results: Sequence[EvaluationResult]) -> EvaluationResult | None:
    """Return one result that speaks for all seeds of a row, with the crashes of all."""
    if not results:
        return None
    return replace(results[0], label=label, crashed=[crash for result in results for crash in result.crashed])


def _player(row: Row) -> tuple[Any, ...]:
    """Return what decides first episodes: models, request, tasks, limits and sampling."""
    job = row.jobs[0]
    models = tuple(job.train.key if job.train else job.config.model.model_name_or_path for job in row.jobs)
    return models, job.agent, repr(sorted(conditions_of(row).items()))


def _mean_training(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """Average what training took over seeds."""
    if not cells:
        return None
    return {name: _mean([cell.training[name] for cell in cells]) for name in TOOK}


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)
