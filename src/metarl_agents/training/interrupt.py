"""Ctrl-C and SIGTERM: finish the step, save, say how to resume. A second signal stops at once.

`accelerate launch` with one process does not pass SIGTERM on: it dies, and leaves the training behind. A launcher that
is gone therefore counts as a stop signal.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

_LAUNCHED = "ACCELERATE_MIXED_PRECISION"
"""A variable that every `accelerate launch` gives to the processes it starts, and nothing else sets."""
_RESUMING = ("--output_dir", "--resume_from_checkpoint")


class StopRequest:
    """Notes a stop signal while its `with` block runs; restores the old handlers afterwards."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._signalled = False
        self._launcher = os.getppid() if _LAUNCHED in os.environ else None
        # Read now: a launcher that has gone can no longer be asked.
        self._start = _launcher_words(sys.argv[0]) if self._launcher is not None else ["python"]
        self._old: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether a signal has come, or the launcher has gone."""
        return self._signalled or (self._launcher is not None and os.getppid() != self._launcher)

    def resume_command(self, output_dir: Path) -> str:
        """Return the command that started this process, its launcher's flags included, and how it resumes."""
        kept: list[str] = []
        words = iter(sys.argv[1:])
        for word in words:
            name, equals, _ = word.partition("=")
            if name not in _RESUMING:
                kept.append(word)
            elif not equals:
                next(words, None)
        flags = ["--output_dir", str(output_dir), "--resume_from_checkpoint", "latest"]
        return shlex.join([*self._start, sys.argv[0], *kept, *flags])

    def __enter__(self) -> StopRequest:
        """Listen, where this is the main thread (signals reach no other)."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give the signals back."""
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self._signalled:
            raise KeyboardInterrupt
        self._signalled = True


def _launcher_words(script: str) -> list[str]:
    """Return what stands before the script in the launcher's own command, as far as the system tells."""
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\0")
        before = words[: words.index(script)]
    except (OSError, ValueError):
        return ["accelerate", "launch"]
    # An interpreter in front of the launcher is how the system runs it, and nothing that was typed.
    named = next((place for place, word in enumerate(before) if Path(word).name.startswith("accelerate")), None)
    return before if named is None else ["accelerate", *before[named + 1 :]]
