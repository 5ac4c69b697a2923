"""Take runs and evaluations that this runner did not make into cells, if they are what a plan asks for.

A training run is adopted if the hash of its settings is a cell of the plan, and if its own evaluation before training,
repeated with the start model as it is now, agrees task by task: so it started from these very weights. On another kind
of device than the run's, where the same weights draw other answers, that cannot be told, and the cell says so. An
evaluation is adopted if all that its file states agrees; what the file does not state is listed in the cell. The
machine is that of the run's own records; what these do not tell (processor, threads) is null, never this machine's. The
date of an evaluation is the one in its file. Of a run, and of an older evaluation, whose file has none, it is when the
file (the run's `metrics.jsonl`) was last written: later than the work, where somebody has copied or rewritten it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.cells import ADDED_LATER, ROOT, Cell, decides_training, key_of
from bench.deciding import launched, what_matters
from bench.plan import Job, Plan
from bench.work import (
    LAUNCHED,
    VERSIONS_FILE,
    Workshop,
    date_of,
    evaluation_cell,
    launch_of,
    shown,
    training_cell,
)
from metarl_agents.cli import coerce, read_yaml
from metarl_agents.config import Config
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.evaluation.games import exam_settings
from metarl_agents.policy.loading import TINY
from metarl_agents.policy.sampling import Sampling

_STATED = ("env", "env_kwargs", "num_episodes", "max_turns", "memory")
NOT_STATED = ("agent", "device", "dtype", "max_prompt_tokens", "max_remark_chars", "stop_on_success", "wording")
"""Settings of an evaluation that its file does not hold."""
UNTOLD = ("processor", "threads")
"""What a run does not note of its machine."""


@dataclass
class Adopter:
    """Adopts folders and files into a plan's cells.

    Args:
        plan: what is wanted.
        cells: what is there; adopted cells are added.
        shop: where evaluations are repeated.
    """

    plan: Plan
    cells: dict[str, Cell]
    shop: Workshop
    _starts: dict[str, EvaluationResult] = field(default_factory=dict)
    """Settings -> what the start model does under them."""

    def run(self, folder: Path) -> Cell:
        """Adopt a training run.

        Raises:
            ConfigError: it is not what the plan asks for (with the settings that differ), or started elsewhere, or was
                launched in another way.
        """
        config = _settings_of(folder)
        key = key_of(decides_training(config, self.plan.launch))
        jobs = {job.key: job for job in self.plan.jobs_wanted() if job.kind == "train"}
        if key not in jobs:
            raise ConfigError(f"{shown(folder)} is no cell of this plan: {_nearest(config, list(jobs.values()))}.")
        place = recorded_machine(folder)
        self._check_launch(folder, place or {})
        cell = training_cell(jobs[key], folder, machine=place)
        unstated = list(UNTOLD if place else ("machine",))
        if place and place["device"] == _device():
            self._check_start(folder, jobs[key])
        else:
            unstated.append("start weights")
        cell.adopted = {"from": shown(folder), "not_recorded": unstated}
        self.cells[key] = cell
        return cell

    def evaluation(self, file: Path) -> Cell:
        """Adopt an evaluation of the base model, or of a run that was adopted before.

        Raises:
            ConfigError: it is not what the plan asks for.
        """
        result = EvaluationResult.from_json(file)
        trained = self._player(file, result)
        jobs = [job for job in self.plan.jobs_wanted() if job.kind == "evaluate" and job.agent == "policy"]
        key = trained.key if trained else None
        fitting = [j for j in jobs if (j.train.key if j.train else None) == key and not _differences(result, j)]
        if not fitting:
            near = [job for job in jobs if (job.train.key if job.train else None) == key]
            differ = min((_differences(result, job) for job in near), key=len, default=["the model"])
            raise ConfigError(
                f"{shown(file)} is no cell of this plan: {', '.join(differ)} differ from the nearest one."
            )
        # A run's own evaluations were played where it was trained; of others, nothing says where.
        place = None if result.step is None else recorded_machine(file.resolve().parents[1])
        unstated = [*(name for name in NOT_STATED if not (place and name == "device")), *(UNTOLD if place else ())]
        adopted = {"from": shown(file), "not_recorded": sorted(unstated)}
        date = result.meta.get("date") or date_of(file)
        cell = evaluation_cell(fitting[0], result, trained, adopted=adopted, date=date, machine=place)
        self.cells[cell.key] = cell
        return cell

    def _player(self, file: Path, result: EvaluationResult) -> Cell | None:
        """Return the cell of the model that an evaluation file is about; None for the base model.

        A run's own evaluations name the model that the run started from, and the step they are of.
        """
        model = str(result.meta.get("model"))
        if result.step is not None:
            places = [file.resolve().parents[1]]
            steps = result.step
        else:
            places, steps = [(ROOT / model).resolve(), file.resolve().parent / Path(model).name], None
        if model == TINY and not steps:
            return None
        for cell in self.cells.values():
            if cell.training and cell.run and (ROOT / cell.run).resolve() in places:
                if steps in (None, cell.training["steps"]):
                    return cell
                raise ConfigError(f"{shown(file)} is of step {steps} of a run with {cell.training['steps']} steps.")
        raise ConfigError(f"{shown(file)} is of the model {model}, which is no cell of this plan: adopt its run first.")

    def _check_launch(self, folder: Path, place: dict[str, Any]) -> None:
        """Refuse a run of other precision or number of processes than the plan's; older runs do not tell."""
        wanted = launched(self.plan.launch) if self.plan.launch else {"num_processes": 1, "mixed_precision": "no"}
        for name in LAUNCHED:
            if name in place and wanted[name] not in (None, place[name]):
                raise ConfigError(
                    f"{shown(folder)} was launched with {name} {place[name]!r}, but the plan's runs have "
                    f"{wanted[name]!r}: train it as the plan says."
                )

    def _check_start(self, folder: Path, job: Job) -> None:
        """Refuse a run whose evaluation before training is not what its start model does today."""
        file = folder / "eval" / "before.json"
        if not file.is_file():
            raise ConfigError(f"{shown(folder)} has no eval/before.json: nothing shows which weights it started from.")
        before = EvaluationResult.from_json(file)
        if before.step != 0:
            raise ConfigError(f"{shown(file)} is of step {before.step}, not of the start.")
        run = replace(job.config.run, eval_tasks=before.num_tasks, eval_samples=0)
        again = self._start(replace(job, config=replace(job.config, run=run)))
        differ = sum(a != b for a, b in zip(before.solved_at, again.solved_at, strict=True))
        if differ or before.task_seeds != again.task_seeds:
            raise ConfigError(
                f"{shown(folder)} did not start from the model that is there now: its evaluation before training "
                f"differs on {differ} of {before.num_tasks} tasks. Train it again."
            )

    def _start(self, job: Job) -> EvaluationResult:
        import yaml

        settings = {name: value for name, value in job.config.flat().items() if name != "seed"}
        text = yaml.safe_dump(settings)
        if text not in self._starts:
            self.shop.runs.mkdir(parents=True, exist_ok=True)
            endings = ("yaml", "eval.json", "log")
            file, output, log = (self.shop.runs / f"start-of-{job.stem}.{ending}" for ending in endings)
            file.write_text(text, encoding="utf-8")
            self.shop.call(["recipes/evaluate.py", "--config", file, "--output", output], log)
            self._starts[text] = EvaluationResult.from_json(output)
        return self._starts[text]


def recorded_machine(folder: Path) -> dict[str, Any] | None:
    """Return the machine that a run noted, as a cell keeps it; None where it noted none.

    Raises:
        ConfigError: the note cannot be read.
    """
    file = folder / VERSIONS_FILE
    if not file.is_file():
        return None
    try:
        noted = json.loads(file.read_text(encoding="utf-8"))
        return {
            "device": str(noted["device"]),
            **dict.fromkeys(UNTOLD),
            "versions": dict(noted["versions"]),
            **launch_of(noted),
        }
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"cannot read {shown(file)} ({error!r}): take it away, and the machine is unknown.") from None


def _device() -> str:
    """Return the kind of device that repeated evaluations run on."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _settings_of(folder: Path) -> Config:
    return Config.from_flat(coerce(read_yaml(folder / "config.yaml")))


def _nearest(config: Config, jobs: Sequence[Job]) -> str:
    """Say how the settings that matter differ from those of the nearest training cell."""
    ours, counts = config.flat(), _mattering(decides_training(config))

    def differing(job: Job) -> list[str]:
        theirs, either = job.config.flat(), counts | _mattering(job.decides)
        return [name for name in ours if name in either and ours[name] != theirs[name]]

    if not jobs:
        return "the plan trains nothing"
    nearest = min(jobs, key=lambda job: len(differing(job)))
    other = nearest.config.flat()
    shown_differences = [f"`{name}` is {ours[name]!r}, not {other[name]!r}" for name in differing(nearest)]
    return f"next to {nearest.name}, {'; '.join(shown_differences) or 'its start model differs'}"


def _mattering(decides: dict[str, Any]) -> set[str]:
    """Return the settings that count, the neutral values of young ones included."""
    everything = decides | {"settings": ADDED_LATER | decides["settings"]}
    return {"model_name_or_path", *what_matters(everything, ADDED_LATER)["settings"]}


def _differences(result: EvaluationResult, job: Job) -> list[str]:
    """Return what a result states otherwise than the job asks for."""
    from metarl_agents.rollout.tasks import evaluation_seeds

    trial, run = job.config.trial, job.config.run
    if job.config.population.opponents:
        trial = exam_settings(trial, job.config.population.opponents)
    wanted: dict[str, Any] = {name: getattr(trial, name) for name in _STATED}
    wanted |= {
        "split": job.split,
        "sampling": Sampling.for_evaluation(job.config).describe(),
        "task_seeds": evaluation_seeds(job.split, run.eval_tasks),
        "num_samples": run.eval_samples,
    }
    return [name for name, value in wanted.items() if getattr(result, name) != value]
