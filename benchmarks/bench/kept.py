"""Which of a plan's cells are there to be used: damaged files, models that are gone, evaluations of other weights.

What lives here: telling a fault of one cell from the others. What does not: a cell's file (`cells.py`) and making cells
(`runner.py`). The rule for models that are trained again: all evaluations of a training show the same weights. So a
training cell is only replaced together with the evaluations that played it, which are due again; the earlier cells are
kept in a folder beside the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bench.cells import RESULTS, ROOT, Cell, digest, read_cell, read_cells
from bench.plan import Job, Plan
from bench.work import has_model
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult

Cells = dict[str, Cell]

TOOK = ("steps", "episodes_allotted", "episodes_used", "tokens", "seconds")
"""What a training cell tells of its costs."""
_FAULTS = (ConfigError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a damaged file may raise."""
_AGAIN = "delete it, and it is made again"


# ---- damaged cells -------------------------------------------------------------------------------------------------


def read_kept(plan: Plan, results: Path = RESULTS) -> Cells:
    """Return {key: cell} of a plan's preset; a failed cell stands in for each file that cannot be read.

    A stand-in has the key of the job that the file's name belongs to, or a key of no job.
    """
    folder = results / plan.preset
    damaged = [path for kind in ("evaluate", "train") for path in sorted(folder.glob(f"{kind}-*.json")) if _fault(path)]
    if not damaged:
        return read_cells(plan.preset, results)
    jobs = {(job.kind, job.key[:10]): job for job in plan.jobs_wanted()}
    cells = read_cells(plan.preset, results, damaged="skip")
    for path in damaged:
        kind, hashed = path.stem.partition("-")[0], path.stem.rpartition("-")[2]
        stand_in = _stand_in(kind, path.name, jobs.get((kind, hashed)))
        cells.setdefault(stand_in.key, stand_in)
    return cells


def _check_training(cell: Cell) -> None:
    """Raise one of `_FAULTS` where a training cell lacks something."""
    for name in (*TOOK, "weights", "curves"):
        cell.training[name]


def _fault(path: Path) -> bool:
    """Whether a file holds no cell."""
    try:
        read_cell(path)
    except _FAULTS:
        return True
    return False


def _stand_in(kind: str, file: str, job: Job | None) -> Cell:
    reason = f"the file {file} is damaged: {_AGAIN}"
    if job is None:
        return Cell(kind, f"damaged {file}", file, "failed", {}, reason=reason)
    return Cell(kind, job.key, job.name, "failed", {}, job.seed, reason=reason)


def is_damaged(cell: Cell | None) -> bool:
    """Whether a cell stands in for a file that is damaged; it is not made again while the file is there."""
    return cell is not None and not cell.decides


def opened(wanted: Iterable[Job], cells: Cells) -> tuple[Cells, dict[str, EvaluationResult]]:
    """Return the cells, and {key: what it found} of each finished evaluation that is wanted.

    A cell that lacks what it should hold is failed in what is returned, with the name of its file.
    """
    cells, found = dict(cells), {}
    for job in wanted:
        cell = cells.get(job.key)
        if cell is None or not cell.finished:
            continue
        try:
            if job.kind == "evaluate":
                found[job.key] = cell.evaluation()
                cell.model["weights"]
            else:
                _check_training(cell)
        except _FAULTS as error:
            found.pop(job.key, None)
            reason = f"the file {cell.file_name} is damaged ({_words(error)}): {_AGAIN}"
            cells[job.key] = replace(cell, status="failed", reason=reason)
    return cells, found


def _words(error: Exception) -> str:
    """Say what is wrong, for people; a ConfigError does, others need their kind."""
    text = " ".join(str(error).split()).rstrip(".")
    return text if isinstance(error, ConfigError) else f"{type(error).__name__}: {text}"


# ---- what is there and what is due ---------------------------------------------------------------------------------


def is_there(job: Job, cells: Cells) -> bool:
    """Whether a job's cell is finished and, of a trained model, of the weights that its training cell tells of."""
    cell = cells.get(job.key)
    return cell is not None and cell.finished and not is_outdated(job, cells)


def is_outdated(job: Job, cells: Cells) -> bool:
    """Whether an evaluation is finished, but its model was trained again since, and has other weights now."""
    cell, trained = cells.get(job.key), cells.get(job.train.key) if job.train else None
    if cell is None or trained is None or not (cell.finished and trained.finished):
        return False
    return _weights(cell) != _weights(trained)


def due(wanted: Sequence[Job], cells: Cells) -> list[Job]:
    """Return the jobs that must be done, in their order: what is not there, and models that must be trained again."""
    open_jobs = [job for job in wanted if not is_there(job, cells) and not _is_blocked(job, cells)]
    kept = {job.key for job in (*open_jobs, *trained_again(open_jobs, cells))}
    return [job for job in wanted if job.key in kept]


def _is_blocked(job: Job, cells: Cells) -> bool:
    """Whether the file of a job, or of the model that it plays, is damaged and must be deleted first."""
    return is_damaged(cells.get(job.key)) or (job.train is not None and is_damaged(cells.get(job.train.key)))


def trained_again(open_jobs: Iterable[Job], cells: Cells) -> list[Job]:
    """Return the finished trainings that evaluations among `open_jobs` play and whose weights are not here."""
    models = {job.train.key: job.train for job in open_jobs if job.train is not None}
    finished = {key: cells[key] for key in models if key in cells and cells[key].finished}
    return [models[key] for key, cell in finished.items() if not has_weights(cell)]


def has_weights(cell: Cell) -> bool:
    """Whether the model of a finished training lies on this machine, with the weights that the cell tells of."""
    folder = ROOT / cell.run if cell.run else None
    return folder is not None and has_model(folder) and digest(folder) == _weights(cell)


# ---- what is made once more ----------------------------------------------------------------------------------------


def stays(before: Cell | None, cell: Cell) -> Cell | None:
    """Return the earlier cell where a new one with its key does not replace it: it failed, or has the same weights.

    Of the latter, the earlier cell learns where its model lies now.
    """
    if before is None or not before.finished:
        return None
    if not cell.finished:
        return before
    same = cell.kind == "train" and _weights(before) == _weights(cell)
    return replace(before, run=cell.run) if same else None


def put_aside(before: Cell, cells: Cells, runs: Path) -> Path:
    """Copy a finished cell that will be replaced, and all others of the same weights; return the folder."""
    weights = _weights(before)
    folder = runs / "earlier" / str(weights)[:10]
    alike = [cell for cell in cells.values() if cell.finished and weights is not None and _weights(cell) == weights]
    for cell in (before, *alike):
        replace(cell).write(folder)  # a copy, so that the cell still knows its own file
    return folder


def _weights(cell: Cell) -> str | None:
    """Return the digest of the weights that a cell tells of, or played."""
    return ((cell.training if cell.kind == "train" else cell.model) or {}).get("weights")
