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
    idle: dict[str, int] = field(default_factory=dict)
    """Steps without an update, by cause (`ending.py`)."""
    idle_since_update: dict[str, int] = field(default_factory=dict)
    """Those of them that followed the last update."""
    longest_prompt: int = 0
    """Tokens of the longest prompt, those that did not fit included."""
    best_metric: float | None = None
    best_step: int | None = None
    baseline: dict[str, Any] = field(default_factory=dict)
    """REINFORCE's running mean."""
    population: dict[str, Any] = field(default_factory=dict)
    """The opponents and what is known of them; empty where the run has no population."""
    log_sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each log when the checkpoint was written; empty in checkpoints of older versions."""


def checkpoint_folder(output_dir: Path, step: int) -> Path:
    """Return where the checkpoint of a step lives."""
    return output_dir / f"checkpoint-{step}"


def list_checkpoints(output_dir: Path) -> list[Path]:
    """Return the finished checkpoints of a run, oldest first."""
    found = [p for p in output_dir.glob("checkpoint-*") if p.is_dir() and p.name.removeprefix("checkpoint-").isdigit()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return the training steps that a checkpoint's name tells; 0 where it tells none."""
    number = checkpoint.name.removeprefix("checkpoint-")
    return int(number) if number.isdigit() else 0


def write_atomically(target: Path, write: Callable[[Path], None], accelerator: Any | None = None) -> None:
    """Let `write` fill a folder under a temporary name, then rename it to `target`.

    Args:
        target: the finished folder.
        write: fills the folder it is given; every process's own is called.
        accelerator: the processes, if there are several; all must call this together, and see the same disk.

    Raises:
        CheckpointError: a disk refuses; what was there before is untouched and the half-written folder is removed.
    """
    temporary = target.with_name(f".tmp-{target.name}")
    is_main = accelerator is None or accelerator.is_main_process

    def begin() -> None:
        if is_main:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)

    def end() -> None:
        if is_main:
            _put_in_place(temporary, target)

    try:
        for action in (begin, lambda: write(temporary), end):
            # A process that fails must not leave the others waiting, so all learn of it.
            reason = _agreed_reason(_try(action), accelerator)
            if reason:
                raise CheckpointError(
                    f"cannot write {target}: {reason} Free some space or choose another `--output_dir`; everything "
                    "saved before is still there."
                )
    except BaseException:
        if is_main:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def _try(action: Callable[[], None]) -> str | None:
    from safetensors import SafetensorError

    try:
        action()
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have own words for a full disk
        return " ".join(str(error).split())[:200] or type(error).__name__
    return None


def _agreed_reason(reason: str | None, accelerator: Any | None) -> str | None:
    if accelerator is None or accelerator.num_processes == 1:
        return reason
    from accelerate.utils import gather_object

    return next((found for found in gather_object([reason]) if found), None)


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


def write_optimizer(folder: Path, sharding: Any) -> None:
    """Write this process's part of the optimizer, or all of it where the processes do not share it."""
    if sharding.shards_optimizer or sharding.accelerator.is_main_process:
        torch.save({"optimizer": sharding.optimizer_state()}, folder / _optimizer_file(sharding))


def _optimizer_file(sharding: Any) -> str:
    if not sharding.shards_optimizer:
        return OPTIMIZER_FILE
    return f"optimizer-{sharding.accelerator.process_index}-of-{sharding.accelerator.num_processes}.pt"


def write_progress(folder: Path, progress: Progress) -> None:
    """Write `trainer_state.json`."""
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


def read_optimizer(file: Path) -> dict[str, Any]:
    """Read the optimizer's state; tensors only, no code is run.

    Raises:
        CheckpointError: it is missing or broken.
    """
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch reports damage in many types
        raise CheckpointError(f"{file} cannot be read ({type(error).__name__}).") from None


def load_optimizer(folder: Path, sharding: Any) -> None:
    """Put the optimizer's state back to where the checkpoint left it; its settings stay those of this run.

    Raises:
        CheckpointError: the file is broken, or belongs to a run with other trainable parts or other processes.
    """
    file = folder / _optimizer_file(sharding)
    if not file.is_file():
        found = ", ".join(sorted(other.name for other in folder.glob("optimizer*.pt"))) or "none"
        raise CheckpointError(
            f"{folder} was written by other processes or another launcher configuration (wanted {file.name}, found "
            f"{found}): resume with the configuration and the number of processes of its run, or start a new run from "
            "its weights with `--model_name_or_path`."
        )
    state = read_optimizer(file)
    try:
        sharding.load_optimizer_state(state["optimizer"])
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{file} does not fit this run ({error}): resume with the settings of its run.") from None


def check_whole(folder: Path) -> None:
    """Make sure that a checkpoint can be read to its end.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    read_progress(folder)
    for file in sorted(folder.glob("optimizer*.pt")) or [folder / OPTIMIZER_FILE]:
        read_optimizer(file)
    _check_parts(folder)
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise CheckpointError(f"{folder} holds no *.safetensors weights.")
    for file in (*weights, *folder.glob("*/*.safetensors")):
        _check_safetensors(file)
    for file in folder.glob("*.json"):
        _check_json(file)


def _check_parts(folder: Path) -> None:
    """Make sure that each process's part of the optimizer is there."""
    parts = [file.stem.split("-") for file in folder.glob("optimizer-*-of-*.pt")]
    if parts and len(parts) < int(parts[0][-1]):
        raise CheckpointError(f"{folder} holds {len(parts)} of {parts[0][-1]} parts of the optimizer.")


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
