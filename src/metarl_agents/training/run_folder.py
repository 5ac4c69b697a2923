"""The folder of a run: which one it is, what the run goes on from there, and whether anything is left to do.

What does not live here: writing checkpoints and models (`saving.py`), the files of a checkpoint (`checkpoint.py`), and
settings that differ (`description.py`).
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from metarl_agents.config import Config
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.tracking.writers import LOGS, METRICS_FILE
from metarl_agents.training.checkpoint import (
    check_whole,
    checkpoint_folder,
    list_checkpoints,
    newest_whole,
    read_progress,
    step_of,
    write_atomically,
)
from metarl_agents.training.description import (
    CONFIG_FILE,
    FITTED,
    VERSIONS_FILE,
    changed_settings,
    check_fits,
    read_settings,
)

RUNS = Path("runs")


def open_output_dir(config: Config) -> tuple[Path, Path | None]:
    """Decide the run folder and the checkpoint to resume from, before any model is loaded.

    `latest` goes on from the newest whole checkpoint, and starts the run where there is none yet.

    Raises:
        ConfigError: the folder already holds a run and nothing is resumed, or another run than the checkpoint's.
        CheckpointError: a checkpoint cannot be read, or does not fit the settings.
    """
    run = config.run
    if run.resume_from_checkpoint is None:
        return _new_folder(config), None
    if run.resume_from_checkpoint == "latest":
        folder = Path(run.output_dir) if run.output_dir else newest_run(config)
        if folder is None or not list_checkpoints(folder):
            return _start(config, folder), None
        return folder, newest_whole(folder, _say)
    checkpoint = Path(run.resume_from_checkpoint)
    if not checkpoint.is_dir():
        raise CheckpointError(f"there is no checkpoint {checkpoint}: give a `checkpoint-<step>` folder, or `latest`.")
    check_whole(checkpoint)
    folder = Path(run.output_dir) if run.output_dir else checkpoint.parent
    if folder.resolve() != checkpoint.resolve().parent and (list_checkpoints(folder) or _has_logs(folder)):
        raise ConfigError(
            f"`output_dir` {folder} already holds another run than that of {checkpoint}: choose a new folder, or "
            f"add `--resume_from_checkpoint latest` to go on with the run in {folder}."
        )
    _make(folder)
    return folder, checkpoint


def agree_on_output_dir(config: Config, accelerator: Any) -> tuple[Path, Path | None, bool]:
    """`open_output_dir`, done by the main process alone: the others get its answer, or its error.

    Returns:
        The run folder, the checkpoint to resume from or None, and whether nothing is left to do.
    """
    from accelerate.utils import broadcast_object_list

    answer: list[Any] = [None]
    if accelerator.is_main_process:
        try:
            folder, resume = open_output_dir(config)
            is_over = resume is not None and _is_over(config, folder, resume)
            if resume is not None and not is_over:
                check_fits(config, resume)
                set_newer_aside(folder, resume)
                _bring_run(folder, resume)
            answer = [(folder, resume, is_over)]
        except (ConfigError, CheckpointError) as error:
            answer = [error]
    if accelerator.num_processes > 1:
        broadcast_object_list(answer)
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]


def set_newer_aside(folder: Path, resume: Path) -> None:
    """Rename the checkpoints of `folder` that are newer than `resume` to `abandoned-checkpoint-<step>`.

    They are broken, or belong to a course that the run now leaves: it must write its own, and never resume from them.
    """
    for newer in list_checkpoints(folder):
        if step_of(newer) > step_of(resume):
            newer.rename(unused(newer.with_name(f"abandoned-{newer.name}")))


def unused(folder: Path) -> Path:
    """Return `folder`, or a sibling with a number where something of that name is there already."""
    candidate, number = folder, 2
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate


def saved_result(folder: Path, name: str) -> EvaluationResult | None:
    """Return what `eval/<name>.json` of a run folder holds; None where it is missing or damaged."""
    file = folder / "eval" / f"{name}.json"
    try:
        return EvaluationResult.from_json(file) if file.is_file() else None
    except ConfigError:
        return None


def _is_over(config: Config, folder: Path, resume: Path) -> bool:
    """Whether no step and no evaluation is left; says so."""
    step, limit = read_progress(resume).step, config.run.max_steps
    after = saved_result(folder, "after")
    # The result of the last evaluation is the last file of a run.
    is_finished = after is not None and after.step == step and _has_weights(folder)
    if step < limit or (step == limit and not is_finished):
        return False
    if is_finished:
        _say(f"{folder} is already finished after {step} steps; raise `--max_steps` (now {limit}) to go on.")
    else:
        _say(f"{folder} has already taken {step} steps, and `max_steps` is {limit}; raise `--max_steps` to go on.")
    return True


def _new_folder(config: Config) -> Path:
    if config.run.output_dir is None:
        folder = unused(RUNS / f"{_run_name(config)}-{time.strftime('%Y%m%d-%H%M%S')}")
        _make(folder)
        return folder
    folder = Path(config.run.output_dir)
    if list_checkpoints(folder):
        raise ConfigError(
            f"`output_dir` {folder} already holds a run: add `--resume_from_checkpoint latest` to go on with it, or "
            "choose another folder."
        )
    if _has_logs(folder):
        raise ConfigError(
            f"`output_dir` {folder} already holds a run, one without a checkpoint: add `--resume_from_checkpoint "
            "latest` to start it anew there, or choose another folder."
        )
    _make(folder)
    return folder


def _start(config: Config, folder: Path | None) -> Path:
    """Return the folder of a run that was to go on and has no checkpoint yet, without what was left there."""
    if folder is None:
        folder = _new_folder(config)
    if _has_weights(folder):
        raise CheckpointError(
            f"{folder} holds a model and no checkpoint to resume from: start a new run from it with "
            f"`--model_name_or_path {folder}` and another `--output_dir`."
        )
    _make(folder)
    leftovers = _leftovers(folder)
    for path in leftovers:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    removed = "; what an earlier start logged there is removed" if leftovers else ""
    _say(f"{folder} holds no checkpoint yet: the run starts at step 0{removed}.")
    return folder


def _leftovers(folder: Path) -> list[Path]:
    """Return what a run that never saved has written to its folder."""
    logs = [path for pattern in LOGS for path in folder.glob(pattern)]
    parts = [folder / name for name in ("eval", "population", "base", "base_adapters", ".final")]
    return [*logs, *(path for path in parts if path.exists()), *folder.glob(".tmp-*")]


def _make(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"`output_dir` {folder} is a file: choose a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"`output_dir` {folder} cannot be made ({error.strerror}): choose another.") from None


def _has_logs(folder: Path) -> bool:
    return (folder / METRICS_FILE).exists()


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def newest_run(config: Config) -> Path | None:
    """Return the newest run of this name that has a checkpoint or was started with these settings."""
    # The date and time of `_new_folder`, and the number of `unused`: another name may begin with this one.
    own = re.compile(re.escape(_run_name(config)) + r"-\d{8}-\d{6}(-\d+)?")
    runs = [folder for folder in RUNS.glob("*") if own.fullmatch(folder.name) and folder.is_dir()]
    runs = [folder for folder in runs if list_checkpoints(folder) or _is_ours(config, folder)]
    return max(runs, key=lambda folder: folder.stat().st_mtime, default=None)


def _is_ours(config: Config, folder: Path) -> bool:
    """Whether a folder without a checkpoint holds a start of this very run."""
    before = read_settings(folder)
    return not _has_weights(folder) and bool(before) and not changed_settings(before, config.flat()).keys() - FITTED


def _run_name(config: Config) -> str:
    return config.run.run_name or config.trial.env.replace(":", "-").replace("/", "-")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _bring_run(folder: Path, resume: Path) -> None:
    """Copy logs, results and settings of the checkpoint's run to the new folder in which it goes on."""
    source = resume.parent
    if folder.resolve() == source.resolve():
        return
    best = checkpoint_folder(source, read_progress(resume).best_step or 0)
    files = [path for pattern in LOGS for path in source.glob(pattern)]
    files += [path for path in (source / CONFIG_FILE, source / VERSIONS_FILE, source / "eval" / "before.json")]
    for file in filter(Path.is_file, files):
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    if best.is_dir() and best.name != resume.name:
        write_atomically(folder / best.name, partial(shutil.copytree, best, dirs_exist_ok=True))
