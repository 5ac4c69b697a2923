"""What the cells of a preset say: every number of every table, as plain JSON values.

What does not live here: layout (`table.py`), pictures (`figures.py`). The statistics are the library's
(`metarl_agents.evaluation`) and `compare_runs.py`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compare_runs import Group, describe_group, difference, diversity, independent

from bench import games
from bench.cells import RESULTS, Cell, key_of, read_cells
from bench.measures import EXPLOITED, MEASURES, PASS, PAYOFF, Measure, scores
from bench.plan import PLANS, Block, Job, Plan, Row, load_plan
from metarl_agents.cli import read_yaml
from metarl_agents.evaluation import EvaluationResult, holm_adjusted
from metarl_agents.evaluation.results import SMALL_NUMBER, table_notes

_OPTIONS = {"resamples": 10_000, "seed": 0}
_LEVEL = 0.05


def summarize(preset: str, *, results: Path = RESULTS, plan: Plan | None = None) -> dict[str, Any]:
    """Return everything the tables of a preset show; the same cells give the same answer.

    Args:
        preset: smoke, cpu or gpu.
        results: where cells are kept.
        plan: instead of the preset's own.

    Raises:
        ConfigError: plan or cells cannot be read.
    """
    plan = plan or load_plan(preset)
    cells = read_cells(preset, results)
    return summary(plan, cells)


def summary(plan: Plan, cells: dict[str, Cell]) -> dict[str, Any]:
    """Sum up a plan with the cells that are there."""
    blocks = [_Table(block, cells).describe() for block in plan.blocks]
    wanted = plan.jobs_wanted()
    here = [cells[job.key] for job in wanted if job.key in cells]
    return {
        "preset": plan.preset,
        "title": plan.title,
        "header": header(plan, [cell for cell in here if cell.finished]),
        "blocks": blocks,
        "missing": [f"{job.kind} {job.name}" for job in wanted if job.key not in cells],
        "failed": [{"cell": f"{c.kind} {c.name}", "reason": c.reason} for c in here if not c.finished],
        "skipped": [dict(entry) for entry in plan.skipped],
        "stale": sorted(cell.name for key, cell in cells.items() if key not in {job.key for job in wanted}),
        "hours": round(plan.hours_needed(), 3),
        "hours_left": round(plan.hours_needed(job for job in wanted if not _is_there(job, cells)), 3),
    }


def _is_there(job: Job, cells: dict[str, Cell]) -> bool:
    return job.key in cells and cells[job.key].finished


def header(plan: Plan, cells: Sequence[Cell]) -> list[str]:
    """Say under which conditions all rows were made."""
    lines = [
        f"every trained row may play {plan.episodes_per_task} episodes of each training task per update "
        "(N episodes x G trials)",
        "rows of a table: the same evaluation tasks and the same sampling, whatever they were trained with",
    ]
    for what, kind in (("trained", "train"), ("evaluated", "evaluate")):
        made = Counter(_machine_line(cell) for cell in cells if cell.kind == kind)
        lines += [f"{what} on {machine}: {count} cells" for machine, count in made.items()]
    dates = sorted(cell.date for cell in cells if cell.date)
    undated = f"date not recorded: {len(cells) - len(dates)} cells" if len(dates) < len(cells) else ""
    made = f"made {dates[0][:10]} to {dates[-1][:10]}" if dates else ""
    lines += ["; ".join(part for part in (made, undated) if part)] if cells else []
    adopted = [cell for cell in cells if cell.adopted]
    if adopted:
        unstated = sorted({name for cell in adopted for name in cell.adopted["not_recorded"]})
        lines.append(
            f"{len(adopted)} of {len(cells)} cells were taken from earlier runs with the same settings; what their "
            f"files do not state and is assumed: {', '.join(unstated)}"
        )
    return lines


class _Table:
    """One block, with the cells that are there."""

    def __init__(self, block: Block, cells: dict[str, Cell]) -> None:
        self.block, self.cells = block, cells
        self._compared: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._alone: dict[str, dict[str, Any]] = {}
        self.results: dict[str, list[tuple[Job, Cell, EvaluationResult]]] = {}
        for row in block.rows:
            done = [(job, cells[job.key]) for job in row.jobs if job.key in cells and cells[job.key].finished]
            self.results[row.id] = [(job, cell, cell.evaluation()) for job, cell in done]
        source = read_yaml(PLANS / "published.yaml").get(block.published or "") if block.published else None
        self.published = source
        self.played = {row.id: self._played(row) for row in block.rows} if block.measure == EXPLOITED.name else {}
        self.measure = self._measure()

    def _played(self, row: Row) -> games.Played | None:
        found = self.results[row.id]
        seeds = [job.seed for job, _, _ in found]
        return games.read_played([result for _, _, result in found], seeds)

    def _measure(self) -> Measure:
        """Return what the table leads with: payoffs where no opponent that was met leaves anything to exploit."""
        there = [played for played in self.played.values() if played is not None]
        nothing = there and not any(played.framed.any() for played in there)
        return PAYOFF if nothing else MEASURES[self.block.measure]

    def describe(self) -> dict[str, Any]:
        block = self.block
        rows = [self._row(row) for row in block.rows]
        pairs = self._comparisons()
        best, verdict = self._verdict(rows)
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
            "notes": self._notes(),
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
        described = describe_group(group, _OPTIONS, sampled=False) if group else {}
        trained = [self.cells[job.train.key] for job, _, _ in found if job.train and job.train.key in self.cells]
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
            played = self.played[row.id]
            found["games"] = games.describe(played, _OPTIONS) if played else None
            found["gain"] = games.gain(played, self.measure.name, _OPTIONS) if played else None
        return found

    def _problem(self, job: Job) -> dict[str, Any] | None:
        """Say what keeps an evaluation from being there: itself, or the model it would play."""
        cell = self.cells.get(job.key)
        if cell is not None and cell.finished:
            return None
        if cell is None and job.train is not None:
            cell = self.cells.get(job.train.key)
            cell = None if cell is not None and cell.finished else cell
        status = "missing" if cell is None else "failed"
        return {"cell": job.name, "status": status, "reason": cell.reason if cell else None}

    def _sampled(self, row: Row) -> dict[str, Any]:
        """Average independent pass@k and diversity over seeds.

        First episodes do not depend on memory, so a row takes them from another one with the same models and request.
        """
        same = (
            other.id
            for other in self.block.rows
            if self.results[other.id] and _player(other) == _player(row) and self.results[other.id][0][2].num_samples
        )
        source = next(same, None) if self.results[row.id] else None
        if source is None:
            return {"independent": {}, "diversity": None}
        if source not in self._alone:
            results = [result for _, _, result in self.results[source]]
            most = min(min(result.num_samples, result.num_episodes) for result in results)
            self._alone[source] = {
                "independent": {str(k): independent(results, k, _OPTIONS) for k in range(1, most + 1)},
                "diversity": diversity(results, _OPTIONS),
            }
        return self._alone[source]

    def _comparisons(self) -> list[dict[str, Any]]:
        """Compare every row with the reference of its variant, on the same tasks."""
        pairs = []
        for row in self.block.rows:
            other = self._reference_of(row)
            if other is not None and row.meaningful and self.results[row.id] and self.results[other.id]:
                pairs.append((other, row))
        found = [entry for better, than in pairs if (entry := self._difference(better, than)) is not None]
        for entry, p_holm in zip(found, holm_adjusted([entry["p_value"] for entry in found]), strict=True):
            entry["p_holm"] = p_holm
        return found

    def _reference_of(self, row: Row) -> Row | None:
        names = (self.block.reference, f"{self.block.reference}:{row.variant}")
        found = next((other for other in self.block.rows if other.id in names), None)
        return None if found is row else found

    def _difference(self, better: Row, than: Row) -> dict[str, Any] | None:
        """Compare two rows at the last episode that both have; asked again, the answer is at hand.

        None where games have nothing in common that could be compared.
        """
        pair = (better.id, than.id)
        if pair not in self._compared:
            found = self._compare_games(*pair) if self.measure is not PASS else self._compare_passes(better, than)
            named = {"better": better.id, "than": than.id, "measure": self.measure.name}
            self._compared[pair] = None if found is None else {"k": found.pop("k"), **named, **found}
        return self._compared[pair] and dict(self._compared[pair])

    def _compare_passes(self, better: Row, than: Row) -> dict[str, Any]:
        first, second = self._group(better), self._group(than)
        k = min(first.num_episodes, second.num_episodes)
        return {
            "k": k,
            **difference(first, second, k, _OPTIONS)._asdict(),
            "seeds": [len(first.results), len(second.results)],
        }

    def _compare_games(self, better: str, than: str) -> dict[str, Any] | None:
        first, second = self.played[better], self.played[than]
        return games.compare(first, second, self.measure.name, _OPTIONS) if first and second else None

    def _verdict(self, rows: Sequence[dict[str, Any]]) -> tuple[str | None, str]:
        """Return the row that may be printed bold, and a sentence about who leads or why nobody may be said to."""
        if len({row.variant for row in self.block.rows}) > 1 and self.block.reference in {
            r.method for r in self.block.rows
        }:
            return None, "each variant is a table of its own: no row is best over all"
        shown = {row["id"]: scores(row, self.measure) for row in rows}
        there = [row for row in rows if shown[row["id"]] and row["meaningful"]]
        if len(there) < 2:
            return None, "fewer than two rows are there: nothing to compare"
        last = str(max(map(int, shown[there[0]["id"]])))
        leader = max(there, key=lambda row: shown[row["id"]][last]["share"])
        lead = f"{leader['label']} leads {self.measure.lead.format(k=last)}"
        if min(row["num_tasks"] for row in there) < SMALL_NUMBER:
            return None, f"n too small: {min(row['num_tasks'] for row in there)} tasks cannot tell rows apart"
        by_id = {row.id: row for row in self.block.rows}
        comparisons = len(there) * (len(there) - 1) // 2
        p_values = {
            row["label"]: min(1.0, comparisons * self._p_value(by_id[leader["id"]], by_id[row["id"]]))
            for row in there
            if row is not leader
        }
        close = [label for label, p in p_values.items() if p >= _LEVEL]
        adjusted = f"p times the {comparisons} pairs of rows" if comparisons > 1 else "p"
        if close:
            above = f"not significantly above {', '.join(close)} ({adjusted} is not below {_LEVEL})"
            return None, f"no winner: {lead}, but {above}"
        single = any(row["seeds"] and len(row["done"]) < 2 for row in there)
        if single:
            return None, f"n too small: {lead}, on these tasks significantly, but with one seed"
        count = f"{len(there)} rows that are there" if len(there) < len(rows) else f"{len(there)} rows"
        return leader["id"], f"{lead}, significantly above every other of the {count} ({adjusted} is below {_LEVEL})"

    def _p_value(self, better: Row, than: Row) -> float:
        found = self._difference(better, than)
        return 1.0 if found is None else found["p_value"]

    def _notes(self) -> list[str]:
        """Say what must be known to read the table."""
        found = [(row, result) for row in self.block.rows for _, _, result in self.results[row.id]]
        notes = [self.block.note] if self.block.note else []
        labelled = [_labelled(row.label, [r for other, r in found if other is row]) for row in self.block.rows]
        notes += table_notes([result for result in labelled if result is not None])
        if self.measure is not PASS:
            notes += games.notes([played for played in self.played.values() if played is not None])
        if any(row.trained for row in self.block.rows):
            seeds = {len(row.jobs) for row in self.block.rows if row.trained}
            notes.append(
                "differences: paired bootstrap over tasks and, where there are several, over seeds; 95 % interval; "
                "Holm: p corrected for the comparisons of this table"
            )
            if seeds == {1}:
                notes.append("one seed: nothing here says how far training once more would differ")
        if any(not row.meaningful for row in self.block.rows):
            notes.append(
                "prompting baselines are not meaningful for the tiny model, which follows no request it was not taught"
            )
        notes += self._other_weights()
        return notes

    def _other_weights(self) -> list[str]:
        """Tell of evaluations that played other weights than the training cell holds now (trained again elsewhere)."""
        changed = []
        for found in self.results.values():
            for job, cell, _ in found:
                trained = self.cells.get(job.train.key) if job.train else None
                if trained and trained.training and cell.model["weights"] != trained.training["weights"]:
                    changed.append(cell.name)
        return (
            [f"played weights of an earlier training with the same settings: {', '.join(changed)}"] if changed else []
        )


def _labelled(label: str, results: Sequence[EvaluationResult]) -> EvaluationResult | None:
    """Return one result that speaks for all seeds of a row, with the crashes of all."""
    from dataclasses import replace

    if not results:
        return None
    return replace(results[0], label=label, crashed=[crash for result in results for crash in result.crashed])


def _player(row: Row) -> tuple[Any, ...]:
    """Return what decides first episodes: models, request, task and limits."""
    job = row.jobs[0]
    trial = job.config.trial
    models = tuple(job.train.key if job.train else "" for job in row.jobs)
    return models, job.agent, repr(sorted(trial.env_kwargs.items())), trial.env, trial.max_turns


def _mean_training(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """Average what training took over seeds."""
    if not cells:
        return None
    names = ("steps", "episodes_allotted", "episodes_used", "tokens", "seconds")
    return {name: _mean([cell.training[name] for cell in cells]) for name in names}


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def _machine_line(cell: Cell) -> str:
    place = cell.machine
    if place is None:
        return "a machine that was not recorded"
    versions = place["versions"]
    shown = ", ".join(
        f"{name} {versions[name]}" for name in ("metarl_agents", "torch", "transformers") if name in versions
    )
    processor = place["processor"] or "processor not recorded"
    threads = "threads not recorded" if place["threads"] is None else f"{place['threads']} thread(s) each"
    return f"{place['device']} ({processor}, {threads}; {shown or 'versions not recorded'})"
