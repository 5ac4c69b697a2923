"""What a run saves: its checkpoints, its final model and the card beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metarl_agents.errors import ConfigError
from metarl_agents.policy.adapters import read_saved_weights
from metarl_agents.policy.merging import merge_adapters
from metarl_agents.tracking.model_card import CARD_FILE, keep_cards
from metarl_agents.training.card import write_model_card
from metarl_agents.training.checkpoint import (
    CRITIC_FOLDER,
    checkpoint_folder,
    prune,
    write_atomically,
    write_optimizer,
    write_progress,
)
from metarl_agents.training.description import versions
from metarl_agents.training.ending import NON_FINITE
from metarl_agents.training.snapshots import rate_population

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

MERGED = "merged"


def save_checkpoint(run: Run) -> None:
    """Write `checkpoint-<step>` whole or not at all, then delete what exceeds `save_total_limit`."""
    run.watchdog.enter(f"saving after step {run.progress.step}")
    run.progress.baseline = run.baseline.state_dict()
    run.progress.log_sizes = run.logger.sizes()
    write_model = _model_writer(run)

    def write(folder: Path) -> None:
        write_model(folder)
        write_optimizer(folder, run.sharding)
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
    # After the checkpoint, since a longer run would not rate here.
    rate_population(run)
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
