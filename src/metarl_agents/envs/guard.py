"""Stop an environment that takes too long.

`call_with_timeout` interrupts Python code by an alarm signal, in the main thread of Unix systems only. What it cannot
stop, C code and other threads' environments, belongs into a process that can be killed: `workers.py`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_REPEAT_S = 0.2


class EnvironmentTimeout(Exception):
    """An environment did not answer in time."""


class EnvironmentCrash(Exception):
    """An environment's process died, or raised an exception that cannot be rebuilt here."""


def can_interrupt() -> bool:
    """Return whether `call_with_timeout` works here: in the main thread, where alarm signals exist."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def call_with_timeout(fn: Callable[[], Any], timeout_s: float | None) -> Any:
    """Call a function and interrupt it when its time is up.

    A timer that was running before goes on afterwards; if it fell due meanwhile, it rings at once. Code that blocks
    inside a C library without returning to Python is interrupted only when it returns: use `ProcessEnvironment`.

    Args:
        fn: what to call.
        timeout_s: seconds; None or 0 sets no limit.

    Returns:
        What `fn` returned.

    Raises:
        EnvironmentTimeout: the time was up.
    """
    if not timeout_s:
        return fn()
    if not can_interrupt():
        raise RuntimeError(
            "A time limit for calls needs the main thread of a Unix system. Elsewhere, put the environment into a "
            "process of its own: ProcessEnvironment(make_env, timeout_s)."
        )
    with _alarm(timeout_s):
        return fn()


def call_guarded(fn: Callable[[], Any], timeout_s: float | None) -> Any:
    """Call a function within its time limit where that can be kept in this thread, and without one elsewhere."""
    return call_with_timeout(fn, timeout_s if can_interrupt() else None)


@contextmanager
def _alarm(timeout_s: float) -> Iterator[None]:
    """Raise EnvironmentTimeout inside the block when its time is up."""
    state = {"armed": True, "rang": False}

    def ring(signum: int, frame: Any) -> None:
        if state["armed"]:
            state["rang"] = True
            raise EnvironmentTimeout(late(timeout_s))

    started = time.monotonic()
    old_handler = signal.signal(signal.SIGALRM, ring)
    # It rings repeatedly, because code with a broad `except` may swallow one exception and go on.
    old_delay, old_interval = signal.setitimer(signal.ITIMER_REAL, timeout_s, _REPEAT_S)
    try:
        yield
        state["armed"] = False
    finally:
        state["armed"] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
        if old_delay:
            left = old_delay - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-6), old_interval)
    if state["rang"]:
        raise EnvironmentTimeout(late(timeout_s))


def late(timeout_s: float) -> str:
    """Return the sentence for a call that took too long."""
    return f"The environment did not answer within {timeout_s:g} s."
