"""Make the cells that are missing: several at a time, each model before what plays it, with an estimate of the end.

What does not live here: the work on a cell (`work.py`), and which cells may be used as they are (`kept.py`).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from bench.cells import RESULTS, Cell
from bench.kept import due, is_damaged, is_outdated, put_aside, read_kept, stays, trained_again
from bench.plan import Job, Plan
from bench.table import duration, trained_again_line
from bench.work import RUNS, Interrupted, Workshop, perform, shown
from metarl_agents.errors import ConfigError

Perform = Callable[[Job, Workshop, Cell | None], Cell]
TRUSTED_S = 1800.0
"""Seconds of work as which the plan's own costs count, where time left is told from costs and from what cells took."""


class Runner:
    """Brings a plan's cells into being.

    Args:
        plan: what is wanted.
        jobs: processes at a time; None: what the plan says.
        results: where cells are kept, a folder for each preset.
        runs: where models are kept, a folder for each preset.
        work: makes one cell; tests put something quick here.
        say: prints a line of progress.

    Raises:
        ConfigError: `jobs` is below 1.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        jobs: int | None = None,
        results: Path = RESULTS,
        runs: Path = RUNS,
        work: Perform = perform,
        say: Callable[[str], None] = print,
    ) -> None:
        self.plan, self.work, self.say = plan, work, say
        self.width = plan.jobs if jobs is None else jobs
        if self.width < 1:
            raise ConfigError(f"`--jobs` is {self.width}, but at least one process must work: give 1 or more.")
        self.folder = results / plan.preset
        self.shop = Workshop(runs / plan.preset, plan.launch)
        self.cells = read_kept(plan, results)
        self._expected_s = self._taken_s = 0.0
        """Of the work done in this sitting: as the plan expected, and as it was."""

    def due(self, wanted: Sequence[Job]) -> list[Job]:
        """Return the jobs that must be done: what is not there, and models that are played but not on this machine."""
        return due(wanted, self.cells)

    def run(self, wanted: Sequence[Job]) -> list[Cell]:
        """Make what is due of `wanted`, and return the new cells, failed ones included.

        A failed model leaves out what would have played it; everything else goes on. Where a model is trained again and
        comes out with other weights, the evaluations of the earlier ones are made again too, wanted or not.

        Raises:
            ConfigError: another process makes cells of this preset at the moment.
            KeyboardInterrupt: it was stopped; trainings have saved and go on from there next time.
        """
        with _alone(self.shop):
            for cell in (self.cells[job.key] for job in wanted if is_damaged(self.cells.get(job.key))):
                self.say(f"  FAILED {cell.kind} {cell.name}: {cell.reason}")
            jobs = self.due(wanted)
            if jobs:
                again = trained_again_line(len(trained_again(jobs, self.cells)))
                self.say(f"{len(jobs)} cells to make, {self.width} at a time: {self._left(jobs)}{again}")
            return self._make(jobs)

    def _make(self, jobs: list[Job]) -> list[Cell]:
        waiting, made, total = list(jobs), [], len(jobs)
        running: dict[Future, tuple[Job, float]] = {}
        with ThreadPoolExecutor(self.width) as pool:
            try:
                while waiting or running:
                    for job in self._ready(waiting, [job for job, _ in running.values()])[: self.width - len(running)]:
                        waiting.remove(job)
                        self.say(f"  begins: {job.kind} {job.name}")
                        running[pool.submit(self.work, job, self.shop, self._trained(job))] = (job, time.monotonic())
                    done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                    for future in done:
                        made.append(self._keep(future, *running[future]))
                        job, _ = running.pop(future)
                        outdated = self._outdated(job, waiting)
                        waiting, total = [*waiting, *outdated], total + len(outdated)
                        waiting = self._without_hopeless(waiting, made[-1])
                        left = [*waiting, *(job for job, _ in running.values())]
                        self._report(made[-1], total - len(left), total, left)
            except BaseException as error:
                self.say("stopping: trainings finish their step and save ...")
                self._wind_up(running)
                if isinstance(error, Interrupted):
                    raise KeyboardInterrupt from None
                raise
        return made

    def _wind_up(self, running: dict[Future, tuple[Job, float]]) -> None:
        """Stop what runs, and keep what was finished all the same."""
        self.shop.stop()
        for future in running:
            future.cancel()
        wait(running)
        for future, (job, began) in running.items():
            if not future.cancelled() and future.exception() is None:
                self._keep(future, job, began)

    def _ready(self, waiting: Sequence[Job], running: Sequence[Job]) -> list[Job]:
        """Return the jobs whose model is there, in order."""
        coming = {job.key for job in (*waiting, *running)}
        return [job for job in waiting if job.train is None or job.train.key not in coming]

    def _keep(self, future: Future, job: Job, began: float) -> Cell:
        """Write what a job found, and return it; raises what the job raised.

        What is finished is never replaced by a failure, and by what other weights found only after it was put aside.
        """
        cell, seconds = future.result(), time.monotonic() - began
        before = self.cells.get(job.key)
        kept = stays(before, cell)
        if kept is None:
            if before is not None and before.finished:
                aside = put_aside(before, self.cells, self.shop.runs)
                self.say(f"  {job.kind} {job.name} is replaced: what it was is kept in {shown(aside)}")
            cell.write(self.folder)
        self.cells[job.key] = kept or cell
        if cell.finished:
            self._expected_s += job.cost_s
            self._taken_s += seconds
        return cell

    def _outdated(self, job: Job, waiting: Sequence[Job]) -> list[Job]:
        """Return the evaluations that must follow a training: those that played other weights of it before."""
        if job.kind != "train":
            return []
        known = {other.key for other in waiting}
        played = [other for other in self.plan.jobs_wanted() if other.train and other.train.key == job.key]
        return [other for other in played if is_outdated(other, self.cells) and other.key not in known]

    def _without_hopeless(self, waiting: list[Job], cell: Cell) -> list[Job]:
        """Leave out what would play a model that could not be trained."""
        if cell.finished:
            return waiting
        return [job for job in waiting if job.train is None or job.train.key != cell.key]

    def _report(self, cell: Cell, done: int, total: int, left: list[Job]) -> None:
        what = f"{cell.kind} {cell.name}" if cell.finished else f"FAILED {cell.kind} {cell.name}: {cell.reason}"
        self.say(f"[{done}/{total}] {what}" + (f"; {self._left(left)}" if left else ""))

    def _left(self, left: Sequence[Job]) -> str:
        """Say how long the rest takes, corrected by how the work so far compared with its estimate.

        The first cells may be short ones of which most is start-up, so the plan counts as `TRUSTED_S` of work.
        """
        ratio = (self._taken_s + TRUSTED_S) / (self._expected_s + TRUSTED_S)
        return f"about {duration(ratio * sum(job.cost_s for job in left) / self.width)} left"

    def _trained(self, job: Job) -> Cell | None:
        return None if job.train is None else self.cells[job.train.key]


@contextmanager
def _alone(shop: Workshop) -> Iterator[None]:
    """Hold the preset's lock; processes inherit it, so that work which outlives this program still holds it.

    Raises:
        ConfigError: somebody else holds it.
    """
    shop.runs.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(shop.runs / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        _lock(descriptor, shop.runs)
        shop.lock = descriptor
        yield
    finally:
        shop.lock = None
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another process makes cells in {folder} at the moment: wait for it, or stop it.") from None
