"""The work on one cell: a recipe in a process of its own, and what it leaves behind as a cell.

What lives here: commands, logs, reading a run folder. What does not: which cell is due (`runner.py`).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.cells import ROOT, Cell, base_model, digest, pack
from bench.plan import Job
from metarl_agents.config import Config
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.evaluation.games import exam_settings, examine_games
from metarl_agents.tracking.writers import METRICS_FILE

RUNS = ROOT / "runs" / "bench"
VERSIONS_FILE = "versions.json"
"""Where a run notes its device, its launch and the versions that computed."""
LAUNCHED = ("num_processes", "mixed_precision")
"""What a run notes of its launch, and older ones do not."""
_CURVES = ("pass@1", "pass@2", "pass@3")
_REASON_LETTERS = 300
_INTERRUPTED = (130, -signal.SIGTERM, -signal.SIGINT)
_GRACE_S = 600.0
"""How long what a launcher started may go on to save after the launcher has left."""


class Interrupted(Exception):
    """The work was stopped from outside; what it saved is there to resume from."""


class CellFailed(Exception):
    """A recipe ended with an error; the message is the reason."""


@dataclass
class Workshop:
    """Where the cells of a preset are made: folders, and the processes at work.

    `lock` is a file descriptor that every process keeps open, so that the lock on it lasts as long as any of them.
    """

    runs: Path
    launch: tuple[str, ...] = ()
    lock: int | None = None
    stopping: bool = False
    _processes: set[subprocess.Popen] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def folder(self, job: Job) -> Path:
        """Return the run folder of a training job."""
        return self.runs / job.stem

    def stop(self) -> None:
        """Ask every process, and those that it started, to save and leave; no other is started."""
        with self._guard:
            self.stopping = True
            for process in self._processes:
                _signal_group(process.pid, signal.SIGTERM)

    def words(self, command: Sequence[Any], *, launched: bool = False) -> list[str]:
        """Return a recipe's command line.

        Args:
            command: the recipe and its flags.
            launched: put the plan's launcher before it. For trainings alone: `recipes/evaluate.py` refuses launches
                that shard weights. The launcher is the one beside this Python, whatever PATH says.
        """
        first, *rest = (self.launch if launched else ()) or (sys.executable,)
        beside = Path(sys.executable).parent / first
        return [str(beside) if beside.is_file() else first, *rest, *map(str, command)]

    def call(self, command: Sequence[Any], log: Path, *, launched: bool = False) -> None:
        """Run a command on one thread, its output appended to `log`; see `words`.

        Raises:
            Interrupted: it was stopped from outside.
            CellFailed: it ended with an error.
        """
        words = self.words(command, launched=launched)
        environment = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"} | os.environ
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as output:
            output.write(f"$ {' '.join(words)}\n")
            output.flush()
            with self._guard:
                if self.stopping:
                    raise Interrupted
                process = subprocess.Popen(
                    words,
                    cwd=ROOT,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,  # Ctrl-C reaches this program alone, which passes it on once
                    pass_fds=() if self.lock is None else (self.lock,),
                )
                self._processes.add(process)
            code = process.wait()
            if code:
                # Whoever was asked to stop already is not asked again: a second signal forbids saving.
                _end_group(process.pid, _GRACE_S, ask=not self.stopping)
            with self._guard:
                self._processes.discard(process)
        if code in _INTERRUPTED or (code and self.stopping):
            raise Interrupted
        if code:
            raise CellFailed(f"{_last_words(log)} (exit status {code}; {shown(log)})")


def perform(job: Job, shop: Workshop, trained: Cell | None) -> Cell:
    """Make one cell.

    Args:
        job: what is wanted.
        shop: where to work.
        trained: of an evaluation, the cell of the model that plays; None for the base model.

    Returns:
        The cell, finished or failed.

    Raises:
        Interrupted: the work was stopped from outside.
    """
    work = _train if job.kind == "train" else _evaluate
    try:
        return work(job, shop, trained)
    except (CellFailed, ConfigError, OSError, ValueError, LookupError) as error:
        return failed(
            job, " ".join(f"{'' if isinstance(error, CellFailed) else type(error).__name__ + ': '}{error}".split())
        )


def failed(job: Job, reason: str) -> Cell:
    """Return the cell of a job that did not work."""
    return Cell(job.kind, job.key, job.name, "failed", _decides(job), job.seed, reason[:_REASON_LETTERS], now())


def training_cell(job: Job, folder: Path, **facts: Any) -> Cell:
    """Read a finished run's folder as the cell of `job`; `facts` are further fields, or replace what is found.

    Raises:
        ConfigError: the run is not finished, or its log cannot be read.
    """
    training = read_training(folder, job.config)
    found = {
        "date": date_of(folder / METRICS_FILE),
        "seconds": training["seconds"],
        "run": shown(folder),
        "training": training,
    }
    return Cell("train", job.key, job.name, "finished", job.decides, job.seed, **(found | facts))


def evaluation_cell(job: Job, result: EvaluationResult, trained: Cell | None, **facts: Any) -> Cell:
    """Return what an evaluation found as the cell of `job`; of games, what each trial earned and its frame too."""
    base = base_model(job.config)
    model = {
        "name": "trained" if trained else str(job.config.model.model_name_or_path),
        "train_key": job.train.key if job.train else None,
        "weights": trained.training["weights"] if trained else base.get("weights"),
    }
    # The path of the model is told by `run`; in the result it would name a folder of one machine.
    values = pack(replace(result, label=job.name, meta=_games_of(job, result)))
    run = trained.run if trained else None
    facts = {"date": now(), "seconds": result.seconds} | facts
    return Cell(
        "evaluate", job.key, job.name, "finished", _decides(job), job.seed, run=run, model=model, result=values, **facts
    )


def _decides(job: Job) -> dict[str, Any]:
    """Return what decides a job; of an evaluation its training's settings too, since the rules for keys may change."""
    return job.decides | ({"train": job.train.decides} if job.train else {})


def _games_of(job: Job, result: EvaluationResult) -> dict[str, Any]:
    """Return {"games": ...}, examined, where the result holds games."""
    games = result.meta.get("games")
    if games is not None and "least" not in games:
        games = examine_games(result, exam_settings(job.config.trial, job.config.population.opponents))
    return {} if games is None else {"games": games}


def read_training(folder: Path, config: Config) -> dict[str, Any]:
    """Sum up a finished run: steps, episodes, tokens, seconds of sampling and updates, curves, digest of its weights.

    Raises:
        ConfigError: it has no final model, or its log ends before the last step.
    """
    if not has_model(folder):
        raise ConfigError(f"{shown(folder)} holds no final model: let the run end.")
    curves: dict[str, dict[str, dict[int, float]]] = {"train": defaultdict(dict), "eval": defaultdict(dict)}
    steps: dict[int, dict[str, Any]] = {}
    for line in (folder / METRICS_FILE).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["prefix"] == "train":
            steps[record["step"]] = record["metrics"]
        for name in _CURVES if record["prefix"] in curves else ():
            if (value := record["metrics"].get(name)) is not None:
                curves[record["prefix"]][name][record["step"]] = round(value, 6)
    last = max(steps, default=0)
    if last != config.run.max_steps:
        raise ConfigError(f"the log of {shown(folder)} ends at step {last} of {config.run.max_steps}: resume the run.")
    trial = config.trial
    return {
        "steps": last,
        "episodes_allotted": last * trial.tasks_per_step * trial.group_size * trial.num_episodes,
        "episodes_used": int(steps[last]["total_episodes"]),
        "tokens": int(steps[last]["total_tokens"]),
        "seconds": round(sum(metrics.get("step_time") or 0.0 for metrics in steps.values()), 1),
        "weights": digest(folder),
        "curves": {
            prefix: {name: sorted(map(list, points.items())) for name, points in found.items()}
            for prefix, found in curves.items()
        },
    }


def has_model(folder: Path) -> bool:
    """Whether a run's final model, or its adapters, lie in the folder, all of it."""
    return not (folder / ".final").exists() and any(
        (folder / name).is_file() for name in ("config.json", "adapter_config.json")
    )


def machine() -> dict[str, Any]:
    """Return what this machine is and which versions compute on it, in a process that no launcher started."""
    import torch

    from metarl_agents.training.saving import versions

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return describe_machine({"device": device, "versions": versions(), "num_processes": 1, "mixed_precision": "no"})


def describe_machine(noted: dict[str, Any]) -> dict[str, Any]:
    """Return a cell's record of where it was made: this machine, and what a run's `versions.json` notes."""
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    own = {"processor": _processor(), "threads": threads}
    return {"device": str(noted.get("device")), **own, "versions": noted.get("versions", {}), **launch_of(noted)}


def launch_of(noted: dict[str, Any]) -> dict[str, Any]:
    """Return by how many processes and in what precision a run was computed; nothing of a run that did not note it."""
    return {name: noted[name] for name in LAUNCHED if name in noted}


def now() -> str:
    """Return the time in UTC, as text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def shown(path: Path) -> str:
    """Return a path relative to the repository where it lies in there, be it by way of a link to another disk."""
    for place in (Path(os.path.abspath(path)), path.resolve()):
        if place.is_relative_to(ROOT):
            return str(place.relative_to(ROOT))
    return str(path.resolve())


def _train(job: Job, shop: Workshop, trained: Cell | None) -> Cell:
    folder = shop.folder(job)
    resume = []
    if not has_model(folder):
        if any(folder.glob("checkpoint-*")):
            resume = ["--resume_from_checkpoint", "latest"]
        elif folder.exists():
            shutil.rmtree(folder)  # it was stopped before its first checkpoint
        settings = _settings_file(job, shop.runs)
        command = [job.recipe, "--config", settings, "--output_dir", folder, *resume]
        try:
            shop.call(command, shop.runs / f"{job.stem}.log", launched=True)
        except CellFailed:
            # A method that learned nothing is a result, too; launchers make any status of its run 1.
            if not (has_model(folder) and (folder / "eval" / "after.json").is_file()):
                raise
    noted = json.loads((folder / VERSIONS_FILE).read_text(encoding="utf-8"))
    return training_cell(job, folder, machine=describe_machine(noted))


def _evaluate(job: Job, shop: Workshop, trained: Cell | None) -> Cell:
    started = time.perf_counter()
    output = shop.runs / f"{job.stem}.eval.json"
    command = ["recipes/evaluate.py", "--config", _settings_file(job, shop.runs), "--agent", job.agent]
    command += ["--split", job.split, "--label", job.name, "--output", output]
    if trained is not None:
        folder = ROOT / trained.run
        if digest(folder) != trained.training["weights"]:
            raise CellFailed(
                f"the folder {shown(folder)} holds other weights than the cell "
                f"{shown(trained.path) if trained.path else trained.file_name} was made from: delete both, and the "
                "model is trained again"
            )
        command += ["--model_name_or_path", folder]
    shop.call(command, shop.runs / f"{job.stem}.eval.log")
    result = EvaluationResult.from_json(output)
    seconds = round(time.perf_counter() - started, 1)
    return evaluation_cell(job, result, trained, seconds=seconds, machine=machine())


def _signal_group(leader: int, number: int) -> None:
    """Send a signal to a process that leads a group, and to all in it; nothing where they are gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _end_group(leader: int, grace_s: float, *, ask: bool) -> None:
    """Wait until nothing of a group is left whose leader has gone: a launcher leaves before what it launched.

    Args:
        leader: process that the group is named after.
        grace_s: seconds after which it is killed.
        ask: whether to ask it to leave.
    """
    if ask:
        _signal_group(leader, signal.SIGTERM)
    end = time.monotonic() + grace_s
    while _group_lives(leader) and time.monotonic() < end:
        time.sleep(0.1)
    if _group_lives(leader):
        _signal_group(leader, signal.SIGKILL)


def _group_lives(leader: int) -> bool:
    """Whether a process of the group is left; those that only wait to be reaped do not count."""
    for process in psutil.process_iter(["status"]):
        with suppress(OSError):
            if os.getpgid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE:
                return True
    return False


def _settings_file(job: Job, folder: Path) -> Path:
    """Write all settings of a job, so that no default of a recipe can enter."""
    path = folder / f"{job.stem}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(job.config.flat(), sort_keys=False), encoding="utf-8")
    return path


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines and not lines[-1].startswith("$ ") else "it ended without a word"


def _processor() -> str:
    """Return the processor's name as the system gives it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def date_of(path: Path) -> str:
    """Return when a file was last written, in UTC, as text."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
