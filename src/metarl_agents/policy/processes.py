"""The processes of a run: what the launcher started, checked, brought together and watched.

What lives here: everything before the first tensor, and the watchdog. What does not: how weights lie on the
processes (`sharding.py`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from datetime import timedelta
from typing import Any

from metarl_agents.errors import ConfigError
from metarl_agents.presets import launcher_file


def launched_processes() -> int:
    """Return how many processes the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_launch(tasks_per_step: int, *, halve_on_oom: bool = False) -> None:
    """Refuse a launch that cannot work, before processes are brought together or weights are loaded.

    Raises:
        ConfigError: tasks cannot be dealt evenly, the launcher's precision or device is not to be had, or a setting
            is for one process.
    """
    import torch

    world = launched_processes()
    if halve_on_oom and world > 1:
        raise ConfigError(
            f"`halve_on_oom` is for one process, but {world} were launched, which would wait for one that starts over: "
            "lower `--max_tokens_per_micro_batch` instead."
        )
    if halve_on_oom and is_on("ACCELERATE_USE_DEEPSPEED"):
        raise ConfigError(
            "`halve_on_oom` does not work under DeepSpeed, which keeps what a pass that failed has added to the "
            "gradient: lower `--max_tokens_per_micro_batch` instead."
        )
    if tasks_per_step < world:
        raise ConfigError(
            f"`tasks_per_step` is {tasks_per_step}, but {world} processes were launched and each plays whole groups: "
            f"set `--tasks_per_step {world}` or more, or launch fewer processes (`--num_processes`)."
        )
    if tasks_per_step % world:
        raise ConfigError(
            f"`tasks_per_step` is {tasks_per_step}, but must be a multiple of the {world} processes, "
            "because a group never crosses processes."
        )
    if is_on("ACCELERATE_USE_DEEPSPEED") and _wants_cpu() and torch.accelerator.is_available():
        raise ConfigError(
            "DeepSpeed takes the accelerator of this machine although `ACCELERATE_USE_CPU` is set: hide it with an "
            "empty `CUDA_VISIBLE_DEVICES` instead."
        )
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if precision not in ("no", "bf16"):
        raise ConfigError(
            f"the launcher's `mixed_precision` is {precision}, but only no and bf16 are supported: set one of them."
        )
    if precision == "bf16" and not _wants_cpu() and not torch.accelerator.is_available():
        raise ConfigError(
            "the launcher's configuration computes in bf16 on GPUs, but this machine has none: launch with "
            f"--config_file {launcher_file('cpu')}, cpu_zero2.yaml or cpu_zero3.yaml, or without a configuration."
        )


def check_whole_weights() -> None:
    """Refuse a launch that shards weights, for what keeps a whole model in each process (evaluation).

    Raises:
        ConfigError: the launcher chose DeepSpeed or FSDP.
    """
    if is_on("ACCELERATE_USE_DEEPSPEED") or is_on("ACCELERATE_USE_FSDP"):
        raise ConfigError(
            "evaluation keeps the whole model in each process, but the launcher's configuration shards it: launch "
            f"with {launcher_file('cpu')} or multi_gpu.yaml, or without a configuration."
        )


def start_processes(timeout_s: float) -> Any:
    """Bring the launched processes together and return their `Accelerator`.

    On a machine without an accelerator they talk through gloo; accelerate would pick a backend that is not there and
    then let every process train alone.

    Args:
        timeout_s: seconds that a process waits for the others before it gives up.

    Raises:
        ConfigError: the processes did not find each other.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs

    settle_deepspeed_accelerator()
    # DeepSpeed 0.19 and FSDP2 call collectives by names that torch 2.13 calls old, several times a step.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    options: dict[str, Any] = {"timeout": timedelta(seconds=timeout_s)}
    uses_deepspeed = is_on("ACCELERATE_USE_DEEPSPEED")
    if _wants_cpu() or not torch.accelerator.is_available():
        # accelerate 1.15 leaves DeepSpeed out, without a word, where it is told to use the CPU.
        os.environ["ACCELERATE_USE_CPU"] = str(not uses_deepspeed).lower()
        if uses_deepspeed:
            from metarl_agents.policy.zero import compile_nothing

            compile_nothing()
        # A lone process that no distributed launcher started has nobody to talk to.
        if "RANK" in os.environ:
            options["backend"] = "gloo"
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(**options)])
    assert uses_deepspeed == (accelerator.state.deepspeed_plugin is not None), "accelerate left DeepSpeed out"
    if accelerator.num_processes != launched_processes():
        raise ConfigError(
            f"{launched_processes()} processes were launched, but {accelerator.num_processes} found each other: start "
            f"them with `accelerate launch --config_file ...`, {launcher_file('cpu')} for example."
        )
    return accelerator


def settle_deepspeed_accelerator() -> None:
    """Tell DeepSpeed that a machine without an accelerator computes on the CPU.

    accelerate imports DeepSpeed wherever it is installed, whether it is used or not, and left to itself DeepSpeed
    then searches for an accelerator and warns that it found none.
    """
    import torch

    if not torch.accelerator.is_available() or _wants_cpu():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def _wants_cpu() -> bool:
    return is_on("ACCELERATE_USE_CPU")


def is_on(name: str) -> bool:
    """Whether the launcher switched an environment variable on."""
    return os.environ.get(name, "false").lower() in ("true", "1", "yes")


class Watchdog:
    """Says which process the others wait for, and in which phase it is.

    All processes enter the same phases in the same order and note it on a board that all can read. One that waits in
    a phase which another has not reached for half of `timeout_s` seconds says so, once a phase. Ending the wait is
    left to the process group, whose own limit is `start_processes`' `timeout_s`.
    """

    def __init__(self, accelerator: Any, timeout_s: float, *, board: Any | None = None) -> None:
        """Watch from now on; `board` (get, set) is the process group's own store unless given."""
        self._rank, self._world = accelerator.process_index, accelerator.num_processes
        self._patience_s = timeout_s / 2
        self._phase, self._count, self._since = "start", 0, time.monotonic()
        self._said = -1
        self._stop = threading.Event()
        self._board = board
        if self._world == 1:
            return
        if board is None:
            import torch.distributed as dist

            # torch offers its store to everyone but has no public way to ask for it (torch 2.13).
            store = dist.distributed_c10d._get_default_store()  # noqa: SLF001
            self._board = dist.PrefixStore("metarl_agents/phase", store)
        self._note()
        accelerator.wait_for_everyone()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        if self._world == 1:
            return
        self._phase, self._count, self._since = phase, self._count + 1, time.monotonic()
        self._note()

    def __enter__(self) -> Watchdog:
        """Nothing to do: it watches already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop watching."""
        self._stop.set()

    def late(self) -> str | None:
        """Return who is waited for, or None while nobody is."""
        waited = time.monotonic() - self._since
        if waited < self._patience_s or self._said == self._count:
            return None
        behind = []
        for rank in range(self._world):
            count, _, phase = self._board.get(str(rank)).decode().partition(" ")
            if int(count) < self._count:
                behind.append(f"process {rank}, which is still in `{phase}`")
        if not behind:
            return None
        self._said = self._count
        return (
            f"Process {self._rank} has waited {waited:.0f} s in `{self._phase}` for {' and '.join(behind)}. "
            "The run ends by itself after `--collective_timeout_s` of waiting; the last checkpoint stays."
        )

    def _note(self) -> None:
        self._board.set(str(self._rank), f"{self._count} {self._phase}")

    def _watch(self) -> None:
        while not self._stop.wait(min(5.0, self._patience_s / 2)):
            try:
                message = self.late()
            except RuntimeError:  # the store went with the process that held it
                return
            if message:
                sys.stderr.write(f"\n{message}\n")  # a progress bar may stand on this line
