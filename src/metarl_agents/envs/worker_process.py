"""A worker process as its pool sees it."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.resource_tracker
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from metarl_agents.envs.guard import EnvironmentCrash, EnvironmentTimeout, late
from metarl_agents.envs.serving import NAME, STOP_SIGNALS, Answer, Status, serve
from metarl_agents.errors import EnvironmentContractError

_START_TIMEOUT_S = 600.0
_GRACE_S = 2.0
"""A worker interrupts slow Python code itself; one that is still silent so much later is killed."""


@dataclass(eq=False)
class Request:
    """A pickled request, and its answer once that is there."""

    data: bytes
    answer: Answer | None = None


class Worker:
    """A worker process as its pool sees it: at most one request is with it, the others queue here.

    One at a time, because two processes that both write more than a pipe holds would wait for each other for ever.
    """

    def __init__(self, factory: bytes, timeout_s: float | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # No daemon: an environment may have processes of its own.
        self.process: Any = context.Process(target=serve, args=(theirs, factory, timeout_s), name=NAME, daemon=False)
        with _deaf():
            self.process.start()
        theirs.close()
        self.hello = Request(b"")
        self.current: Request | None = self.hello
        self.deadline = time.monotonic() + _START_TIMEOUT_S
        self.obituary: str | None = None
        """Why it ended."""
        self.living: set[int] = set()
        """Numbers of the environments in it."""
        self.queue: deque[Request] = deque()
        self._timeout_s = timeout_s

    @property
    def started(self) -> bool:
        """Whether it has ever answered."""
        return self.hello.answer is not None and self.hello.answer[0] is Status.RETURNED

    def is_alive(self) -> bool:
        """Return whether the process runs, or has left an answer; note it if it has died."""
        if self.obituary is None and not self.process.is_alive() and not (self.current and self.pipe.poll()):
            self.end()
        return self.obituary is None

    def look(self) -> None:
        """End the process if its answer is overdue or will never come."""
        if time.monotonic() > self.deadline:
            limit = self._timeout_s if self.started else _START_TIMEOUT_S
            self.end(EnvironmentTimeout(late(limit or 0.0)))
        else:
            self.is_alive()

    def post(self, number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        """Queue a request to an environment, and send it if the worker is idle."""
        try:
            request = Request(pickle.dumps((number, name, args, kwargs)))
        except Exception as error:
            raise EnvironmentContractError(
                f"`{name}` was called with something that cannot be sent to the environment's process ({error}). "
                "Use plain data for actions."
            ) from error
        if self.obituary is not None:
            request.answer = Status.LOST, EnvironmentCrash(self.obituary)
        else:
            self.queue.append(request)
            self.send_next()
        return request

    def forget(self, number: int) -> None:
        """Have an environment closed with the next request; safe at any time."""
        self.living.discard(number)
        if self.obituary is None:
            self.queue.append(Request(pickle.dumps((number, "close", (), {}))))

    def take(self) -> None:
        """Take the answer that has arrived, and send the next request."""
        try:
            data = self.pipe.recv_bytes()
        except (EOFError, OSError):
            self.end()
            return
        request, self.current = self.current, None
        if request is not None:
            request.answer = _unpickled(data)
        self.send_next()

    def dismiss(self) -> None:
        """Say that nothing more will come: the worker closes its environments and exits."""
        if self.obituary is None:
            self.pipe.close()

    def end(self, problem: Exception | None = None, until: float = 0.0) -> None:
        """End the process, with what its environments started; what waits for it is lost.

        Args:
            problem: what the request in work is answered with; default: that the process died.
            until: it may exit by itself up to this time (`time.monotonic()`).
        """
        if self.obituary is not None:
            return
        # Not reaped yet, so that its number still names its own process group below.
        wait([self.process.sentinel], max(0.0, until - time.monotonic()) if problem else 1.0)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        if problem is None:
            problem = EnvironmentCrash(
                f"The environment's process died (exit code {self.process.exitcode}) before it answered."
            )
        self.pipe.close()
        self.obituary = f"The process that this environment lived in has ended: {problem}"
        if self.current is not None:
            self.current.answer = Status.LOST, problem
        for request in self.queue:
            request.answer = Status.LOST, EnvironmentCrash(self.obituary)
        self.current = None
        self.queue.clear()

    def send_next(self) -> None:
        """Send the next request that waits, if the worker is idle."""
        if self.current is None and self.queue:
            self.current = self.queue.popleft()
            self.deadline = time.monotonic() + (self._timeout_s + _GRACE_S if self._timeout_s else math.inf)
            try:
                self.pipe.send_bytes(self.current.data)
            except OSError:
                self.end()


def _unpickled(data: bytes) -> Answer:
    try:
        return pickle.loads(data)
    except Exception as error:
        text = f"The environment's process answered with something that cannot be read here ({error})."
        return Status.RAISED, (EnvironmentContractError.__name__, text, "")


@contextmanager
def _deaf() -> Iterator[None]:
    """Block stop signals while a process is made: it inherits that, and is not stopped before it has left."""
    multiprocessing.resource_tracker.ensure_running()  # else it starts inside, and unblocks them
    old = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
