"""Ctrl-C and SIGTERM: finish the step, save, say how to resume. A second signal stops at once."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any


class StopRequest:
    """Notes a stop signal while its `with` block runs; restores the old handlers afterwards."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.asked = False
        self._old: dict[int, Any] = {}

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
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
