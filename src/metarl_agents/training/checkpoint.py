"""Save and resume.

A checkpoint is a folder `checkpoint-<step>`: the model (or adapter) with its tokenizer, the critic beside it, the
optimizer, and `trainer_state.json`. It is written under a temporary name and renamed, so that a folder of the final
name is always whole. Tasks, sampling and row order are functions of (run seed, step), so no random state is saved.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from metarl_agents.errors import CheckpointError

STATE_FILE = "trainer_state.json"
OPTIMIZER_FILE = "optimizer.pt"
CRITIC_FOLDER = "critic"


@dataclass
class Progress:
    """Where a run is."""

    step: int = 0
    """Training steps finished."""
    optimizer_steps: int = 0
    num_tokens: int = 0
    """Prompt and response tokens of training so far."""
    num_episodes: int = 0
    best_metric: float | None = None
    best_step: int | None = None
    baseline: dict[str, Any] = field(default_factory=dict)
    """REINFORCE's running mean."""


def checkpoint_folder(output_dir: Path, step: int) -> Path:
    """Return where the checkpoint of a step lives."""
    return output_dir / f"checkpoint-{step}"


def list_checkpoints(output_dir: Path) -> list[Path]:
    """Return the finished checkpoints of a run, oldest first."""
    found = [p for p in output_dir.glob("checkpoint-*") if p.is_dir() and p.name.removeprefix("checkpoint-").isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("checkpoint-")))


def write_atomically(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder under a temporary name, then rename it to `target`.

    Raises:
        CheckpointError: the disk refuses; what was there before is untouched and the half-written folder is removed.
    """
    from safetensors import SafetensorError

    temporary = target.with_name(f".tmp-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        write(temporary)
        _put_in_place(temporary, target)
    except (
        OSError,
        RuntimeError,
        SafetensorError,
    ) as error:  # torch and safetensors have their own words for a full disk
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"cannot write {target}: {' '.join(str(error).split())[:200]} Free some space or choose another "
            "`--output_dir`; everything saved before is still there."
        ) from None
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _put_in_place(temporary: Path, target: Path) -> None:
    """Rename `temporary` to `target`; what stood there is deleted only afterwards, or put back."""
    old = target.with_name(f".old-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if not target.exists():
        os.replace(temporary, target)
        return
    os.replace(target, old)
    try:
        os.replace(temporary, target)
    except BaseException:
        os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_trainer_state(folder: Path, progress: Progress, optimizer: Any, schedule: Any) -> None:
    """Write what training needs beside the model."""
    state = {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save(state, folder / OPTIMIZER_FILE)
    (folder / STATE_FILE).write_text(json.dumps(asdict(progress), indent=1) + "\n", encoding="utf-8")


def read_progress(folder: Path) -> Progress:
    """Read `trainer_state.json`.

    Raises:
        CheckpointError: it is missing or broken.
    """
    try:
        values = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return Progress(**values)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{folder} is not a whole checkpoint ({type(error).__name__}: {error}).") from None


def read_critic(critic: Any, folder: Path) -> None:
    """Load the critic's weights that were saved beside the policy's.

    Raises:
        CheckpointError: there are none, or they belong to another kind of critic.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    file = folder / CRITIC_FOLDER / "model.safetensors"
    try:
        load_model(critic, str(file))
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"the critic {file} cannot be read ({reason}): resume with the `--advantages` and `--critic` of its run."
        ) from None


def read_optimizer(folder: Path) -> dict[str, Any]:
    """Read the optimizer's and the schedule's state; tensors only, no code is run.

    Raises:
        CheckpointError: it is missing or broken.
    """
    try:
        return torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
    except Exception as error:  # torch reports damage in many types
        raise CheckpointError(f"{folder / OPTIMIZER_FILE} cannot be read ({type(error).__name__}).") from None


def load_optimizer(folder: Path, optimizer: Any, schedule: Any) -> None:
    """Put the optimizer and the schedule back to where the checkpoint left them.

    Raises:
        CheckpointError: the file is broken, or belongs to a run with other trainable parts.
    """
    state = read_optimizer(folder)
    try:
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{folder / OPTIMIZER_FILE} does not fit this run ({error}): resume with the settings of its run."
        ) from None


def check_whole(folder: Path) -> None:
    """Make sure that a checkpoint can be read to its end.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    read_progress(folder)
    read_optimizer(folder)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise CheckpointError(f"{folder} holds no *.safetensors weights.")
    for file in (*weights, *folder.glob("*/*.safetensors")):
        _check_safetensors(file)
    for file in folder.glob("*.json"):
        _check_json(file)


def newest_whole(output_dir: Path, report: Callable[[str], None]) -> Path:
    """Return the newest checkpoint that can be read; broken ones are reported and passed over.

    Raises:
        CheckpointError: there is none.
    """
    for folder in reversed(list_checkpoints(output_dir)):
        try:
            check_whole(folder)
            return folder
        except CheckpointError as error:
            report(f"{error} Trying the checkpoint before it.")
    raise CheckpointError(f"{output_dir} holds no checkpoint that can be read: start the run anew without resuming.")


def prune(output_dir: Path, limit: int | None, keep: int | None) -> None:
    """Delete the oldest checkpoints beyond `limit`; the one of step `keep` (the best) stays."""
    if limit is None:
        return
    folders = list_checkpoints(output_dir)
    spare = [folder for folder in folders if folder.name != f"checkpoint-{keep}"]
    # The newest always stays, to resume from: with the best one elsewhere, a limit of 1 keeps two.
    newest = spare[-1:] == folders[-1:]
    allowed = max(limit - (len(folders) - len(spare)), int(newest))
    for folder in spare[: max(0, len(spare) - allowed)]:
        shutil.rmtree(folder, ignore_errors=True)


def _check_safetensors(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                tensors.get_slice(name)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is damaged ({error}).") from None


def _check_json(file: Path) -> None:
    try:
        json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged ({error}).") from None
