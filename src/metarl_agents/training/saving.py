"""Where a run lives on disk: its folder, its checkpoints, its final model."""

from __future__ import annotations

import json
import platform
import re
import shutil
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metarl_agents._version import __version__
from metarl_agents.config import Config
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.policy.adapters import read_saved_weights
from metarl_agents.policy.merging import merge_adapters
from metarl_agents.tracking.model_card import CARD_FILE, keep_cards
from metarl_agents.training.card import write_model_card
from metarl_agents.training.checkpoint import (
    CRITIC_FOLDER,
    check_whole,
    checkpoint_folder,
    list_checkpoints,
    newest_whole,
    prune,
    step_of,
    write_atomically,
    write_optimizer,
    write_progress,
)
from metarl_agents.training.ending import NON_FINITE

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

RUNS = Path("runs")
MERGED = "merged"


def open_output_dir(config: Config) -> tuple[Path, Path | None]:
    """Decide the run folder and the checkpoint to resume from, before any model is loaded.

    Raises:
        ConfigError: the folder already holds a run and nothing is resumed.
        CheckpointError: there is nothing to resume from.
    """
    run = config.run
    if run.resume_from_checkpoint is None:
        return _new_folder(config), None
    if run.resume_from_checkpoint == "latest":
        folder = Path(run.output_dir) if run.output_dir else newest_run(config)
        return folder, newest_whole(folder, _say)
    checkpoint = Path(run.resume_from_checkpoint)
    if not checkpoint.is_dir():
        raise CheckpointError(f"there is no checkpoint {checkpoint}: give a `checkpoint-<step>` folder, or `latest`.")
    check_whole(checkpoint)
    folder = Path(run.output_dir) if run.output_dir else checkpoint.parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder, checkpoint


def agree_on_output_dir(config: Config, accelerator: Any) -> tuple[Path, Path | None]:
    """`open_output_dir`, done by the main process alone: the others get its answer, or its error."""
    from accelerate.utils import broadcast_object_list

    answer: list[Any] = [None]
    if accelerator.is_main_process:
        try:
            folder, resume = open_output_dir(config)
            if resume is not None:
                set_newer_aside(folder, resume)
            answer = [(folder, resume)]
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


def describe_run_folder(run: Run) -> None:
    """Write `config.yaml` and `versions.json`.

    Raises:
        CheckpointError: the disk refuses.
    """
    import yaml

    if not run.accelerator.is_main_process:
        return
    values = run.config.flat()
    facts = {
        "seed": run.config.run.seed,
        "versions": versions(),
        "device": str(run.device),
        # Set by the launcher and so in no setting, although they decide draws and sums.
        "num_processes": run.accelerator.num_processes,
        "mixed_precision": run.accelerator.mixed_precision,
    }
    try:
        (run.output_dir / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
        (run.output_dir / "versions.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(
            f"cannot write into {run.output_dir} ({error.strerror}): free some space or choose another `--output_dir`."
        ) from None


def versions() -> dict[str, str]:
    """Return the versions that decide a run's numbers."""
    own = {"metarl_agents": __version__, "python": platform.python_version()}
    return own | {name: metadata.version(name) for name in ("accelerate", "numpy", "torch", "transformers")}


def save_checkpoint(run: Run) -> None:
    """Write `checkpoint-<step>` whole or not at all, then delete what exceeds `save_total_limit`."""
    run.watchdog.enter(f"saving after step {run.progress.step}")
    run.progress.baseline = run.baseline.state_dict()
    write_model = _model_writer(run)

    def write(folder: Path) -> None:
        write_model(folder)
        write_optimizer(folder, run.sharding, run.schedule)
        if run.accelerator.is_main_process:
            write_progress(folder, run.progress)
            if run.config.run.load_best_model_at_end and run.progress.best_step == run.progress.step:
                (folder / CARD_FILE).unlink(missing_ok=True)
                write_model_card(run, folder, versions())

    write_atomically(checkpoint_folder(run.output_dir, run.progress.step), write, run.accelerator)
    # While gradients are not finite, the last update may have ruined the weights, and older checkpoints are needed.
    if run.accelerator.is_main_process and NON_FINITE not in run.progress.idle_since_update:
        prune(run.output_dir, run.config.run.save_total_limit, run.progress.best_step)
    run.accelerator.wait_for_everyone()


def finish_run(run: Run) -> None:
    """Write the last checkpoint and the final model, which is the best one where that was asked for."""
    has_checkpoint = checkpoint_folder(run.output_dir, run.progress.step).exists()
    run.accelerator.wait_for_everyone()
    if not has_checkpoint:
        save_checkpoint(run)
    if run.config.run.load_best_model_at_end and run.progress.best_step is not None:
        _load_best(run)
    run.watchdog.enter("saving the final model")
    staged = run.output_dir / ".final"
    write_atomically(staged, _model_writer(run), run.accelerator)
    if run.accelerator.is_main_process:
        # peft writes a card of its own, which must not replace one that a person has edited.
        (staged / CARD_FILE).unlink(missing_ok=True)
        for item in staged.iterdir():
            target = run.output_dir / item.name
            if target.is_dir():
                shutil.rmtree(target)
            item.replace(target)
        staged.rmdir()
        if run.config.model.merge_and_save:
            _merge(run)
    save_model_card(run)
    run.accelerator.wait_for_everyone()


def save_model_card(run: Run) -> None:
    """Write `README.md` beside the final model, and beside the merged one where there is one.

    `finish_run` writes it with the results before training; once more after the last evaluation, it has both.
    """
    if not run.accelerator.is_main_process:
        return
    write_model_card(run, run.output_dir, versions())
    if (run.output_dir / MERGED).is_dir() and run.config.model.merge_and_save:
        write_model_card(run, run.output_dir / MERGED, versions(), is_adapter=False)


def _merge(run: Run) -> None:
    """Write `merged/`, or note in `run.unmerged` why there is none: the run still has its evaluation to do."""
    folder, notes = run.output_dir / MERGED, []

    def write(place: Path) -> None:
        notes.extend(merge_adapters(run.output_dir, run.config.model, place))
        keep_cards(folder, place)

    try:
        write_atomically(folder, write)
    except ConfigError as error:
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier step, where the run was resumed
        run.unmerged = str(error)
    for note in notes:
        run.logger.message(note)


def _model_writer(run: Run) -> Callable[[Path], None]:
    """Bring whole weights to the main process and return what writes model, tokenizer and critic there.

    Every process must call it; the writer does nothing elsewhere.
    """
    weights = run.sharding.whole_weights(run.plain_scorer)

    def write(folder: Path) -> None:
        if not run.accelerator.is_main_process:
            return
        run.policy.save(folder, None if weights is None else _part(weights, "model."))
        critic = run.plain_scorer.critic
        if critic is None:
            return
        from safetensors.torch import save_file, save_model

        (folder / CRITIC_FOLDER).mkdir()
        file = str(folder / CRITIC_FOLDER / "model.safetensors")
        if weights is None:
            save_model(critic, file)
        else:
            save_file(_part(weights, "critic."), file)

    return write


def _part(weights: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def _load_best(run: Run) -> None:
    best = checkpoint_folder(run.output_dir, run.progress.best_step)
    model = run.policy.model
    run.sharding.load_weights(model, lambda: read_saved_weights(model, best))
    run.logger.message(
        f"The final model is the one after step {run.progress.best_step}, best by validation "
        f"{run.config.run.metric_for_best_model} ({run.progress.best_metric:.3f})."
    )


def _new_folder(config: Config) -> Path:
    if config.run.output_dir is None:
        folder = unused(RUNS / f"{_run_name(config)}-{time.strftime('%Y%m%d-%H%M%S')}")
        _make(folder)
        return folder
    folder = Path(config.run.output_dir)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"`output_dir` {folder} is a file: choose a folder.")
    if list_checkpoints(folder):
        raise ConfigError(
            f"`output_dir` {folder} already holds a run: add `--resume_from_checkpoint latest` to go on with it, or "
            "choose another folder."
        )
    if (folder / "metrics.jsonl").exists():
        raise ConfigError(
            f"`output_dir` {folder} already holds a run, one without a checkpoint: delete it or choose another folder."
        )
    _make(folder)
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"`output_dir` {folder} cannot be made ({error.strerror}): choose another.") from None


def unused(folder: Path) -> Path:
    """Return `folder`, or a sibling with a number where something of that name is there already."""
    candidate, number = folder, 2
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate


def newest_run(config: Config) -> Path:
    """Return the newest run folder of this name that has a checkpoint.

    Raises:
        CheckpointError: there is none.
    """
    name = _run_name(config)
    # The date and time of `_new_folder`, and the number of `unused`: another name may begin with this one.
    own = re.compile(re.escape(name) + r"-\d{8}-\d{6}(-\d+)?")
    runs = [folder for folder in RUNS.glob("*") if own.fullmatch(folder.name) and list_checkpoints(folder)]
    if not runs:
        raise CheckpointError(
            f"there is no run of {name} with a checkpoint in {RUNS}/: start one, or name its `--output_dir`."
        )
    return max(runs, key=lambda folder: folder.stat().st_mtime)


def _run_name(config: Config) -> str:
    return config.run.run_name or config.trial.env.replace(":", "-").replace("/", "-")


def _say(text: str) -> None:
    import sys

    sys.stderr.write(text + "\n")


def resume_differences(run: Run) -> list[str]:
    """Return the settings that differ from those the run was started with."""
    import yaml

    file = run.output_dir / "config.yaml"
    if not file.is_file():
        return []
    before: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    now = run.config.flat()
    free = {"resume_from_checkpoint", "output_dir", "max_steps", "dry_run"}
    return sorted(name for name in now if name not in free and name in before and before[name] != now[name])
