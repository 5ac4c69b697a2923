"""Make the cells that are missing: several at a time, each model before what plays it, with an estimate of the end.

What does not live here: the work on a cell (`work.py`).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from bench.cells import RESULTS, ROOT, Cell, read_cells
from bench.plan import Job, Plan
from bench.table import duration
from bench.work import RUNS, Interrupted, Workshop, has_model, perform
from metarl_agents.errors import ConfigError

Perform = Callable[[Job, Workshop, Cell | None], Cell]


class Runner:
    """Brings a plan's cells into being.

    Args:
        plan: what is wanted.
        jobs: processes at a time; None: what the plan says.
        results: where cells are kept, a folder for each preset.
        runs: where models are kept, a folder for each preset.
        work: makes one cell; tests put something quick here.
        say: prints a line of progress.
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
        self.width = jobs or plan.jobs
        self.folder = results / plan.preset
        self.shop = Workshop(runs / plan.preset, plan.launch)
        self.cells = read_cells(plan.preset, results)
        self._expected_s = self._taken_s = 0.0
        """Of the work done in this sitting: as the plan expected, and as it was."""

    def due(self, wanted: Sequence[Job]) -> list[Job]:
        """Return the jobs that must be done: unfinished ones, and models that are played but not on this machine."""
        due = [job for job in wanted if not self._finished(job)]
        needed = {job.train.key for job in due if job.train is not None}
        models = [job for job in wanted if job.key in needed and self._finished(job) and self._model(job) is None]
        order = {job.key: place for place, job in enumerate(wanted)}
        return sorted([*due, *models], key=lambda job: order[job.key])

    def run(self, wanted: Sequence[Job]) -> list[Cell]:
        """Make what is due of `wanted`, and return the new cells, failed ones included.

        A failed model leaves out what would have played it; everything else goes on.

        Raises:
            ConfigError: another process makes cells of this preset at the moment.
            KeyboardInterrupt: it was stopped; trainings have saved and go on from there next time.
        """
        with _alone(self.shop):
            due = self.due(wanted)
            if due:
                self.say(f"{len(due)} cells to make, {self.width} at a time: {self._left(due)}")
            return self._make(due)

    def _make(self, due: list[Job]) -> list[Cell]:
        waiting, made, total = list(due), [], len(due)
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
                        del running[future]
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
        """Write what a job found; raises what the job raised."""
        cell, seconds = future.result(), time.monotonic() - began
        cell.write(self.folder)
        self.cells[cell.key] = cell
        if cell.finished:
            self._expected_s += job.cost_s
            self._taken_s += seconds
        return cell

    def _without_hopeless(self, waiting: list[Job], cell: Cell) -> list[Job]:
        """Leave out what would play a model that could not be trained."""
        if cell.finished:
            return waiting
        return [job for job in waiting if job.train is None or job.train.key != cell.key]

    def _report(self, cell: Cell, done: int, total: int, left: list[Job]) -> None:
        what = f"{cell.kind} {cell.name}" if cell.finished else f"FAILED {cell.kind} {cell.name}: {cell.reason}"
        self.say(f"[{done}/{total}] {what}" + (f"; {self._left(left)}" if left else ""))

    def _left(self, left: Sequence[Job]) -> str:
        """Say how long the rest takes, corrected by how the work so far compared with its estimate."""
        ratio = self._taken_s / self._expected_s if self._expected_s else 1.0
        return f"about {duration(ratio * sum(job.cost_s for job in left) / self.width)} left"

    def _finished(self, job: Job) -> bool:
        return job.key in self.cells and self.cells[job.key].finished

    def _trained(self, job: Job) -> Cell | None:
        return None if job.train is None else self.cells[job.train.key]

    def _model(self, job: Job) -> Path | None:
        """Return the folder of a finished training, where it is on this machine."""
        folder = ROOT / (self.cells[job.key].run or "")
        return folder if has_model(folder) else None


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
