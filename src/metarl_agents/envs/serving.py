"""What runs inside a worker process: many environment objects behind one pipe.

A request names an object by a number, and a method or attribute of it. An object comes to life with the first
request that names it; `close` ends it. Requests are answered one after the other, each within its time limit.
The other end of the pipe is `worker_process.py`.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from multiprocessing.connection import Connection, wait
from typing import Any

from metarl_agents.envs.base import Environment
from metarl_agents.envs.guard import EnvironmentTimeout, call_with_timeout
from metarl_agents.errors import EnvironmentContractError

NAME = "environment-worker"
"""What worker processes are called."""
LOOK = "<look>"
"""A request to say what an attribute is: ("method", None), or ("value", the value)."""
STOP_SIGNALS = frozenset((signal.SIGINT, signal.SIGTERM))
"""Blocked in a worker until it has left its parent's session: they are the parent's to answer."""

_state = {"serving": False}


class Status(Enum):
    """What became of a request."""

    RETURNED = "returned"
    """With the value."""
    RAISED = "raised"
    """With (name of the exception's type, its text, its trace); the object goes on."""
    LATE = "late"
    """It was interrupted, so that nobody knows what state the object is in."""
    LOST = "lost"
    """The worker ended; with the exception to raise."""


Answer = tuple[Status, Any]


def is_starting() -> bool:
    """Return whether this is a worker that has not started yet, and reads the main program for its classes."""
    return multiprocessing.current_process().name == NAME and not _state["serving"]


def reach(env: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Call a method of an environment, or read an attribute."""
    value = getattr(env, name)
    return value(*args, **kwargs) if callable(value) else value


def serve(pipe: Connection, factory: bytes, timeout_s: float | None) -> None:
    """Answer requests until the other end is closed. This is the worker's whole life.

    Args:
        pipe: requests come in, answers go out, both pickled.
        factory: the pickled function that builds one environment.
        timeout_s: seconds for one request; None sets no limit.
    """
    _state["serving"] = True
    _live_apart()
    desk = _Desk(timeout_s)
    answer = desk.open(factory)
    while True:
        try:
            pipe.send_bytes(answer)
            request = pipe.recv_bytes()
        except (EOFError, OSError):
            break
        answer = _packed(desk.handle(request))
    desk.close()


class _Desk:
    """The environment objects of one worker."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._envs: dict[int, Environment] = {}
        self._spare: Environment | None = None

    def open(self, factory: bytes) -> bytes:
        """Learn how to build environments, and build one, so that the first request need not wait for imports."""
        try:
            self._make_env: Callable[[], Environment] = pickle.loads(factory)
        except Exception as error:
            return _packed(_raised(error))
        with suppress(Exception, SystemExit):  # whoever asks for the object will hear of it
            self._spare = self._make_env()
        return _packed((Status.RETURNED, None))

    def handle(self, request: bytes) -> Answer:
        """Do what a request asks."""
        try:
            return Status.RETURNED, call_with_timeout(lambda: self._obey(*pickle.loads(request)), self._timeout_s)
        except EnvironmentTimeout:
            return Status.LATE, None
        except (Exception, SystemExit) as error:  # any failure of a user's environment is ordinary weather
            return _raised(error)

    def close(self) -> None:
        """Close every object, as far as it can be closed in time."""
        for env in (*self._envs.values(), *([self._spare] if self._spare is not None else [])):
            with suppress(Exception, SystemExit):
                call_with_timeout(env.close, self._timeout_s)

    def _obey(self, number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "close":
            env = self._envs.pop(number, None)
            return None if env is None else env.close()
        if number not in self._envs:
            self._envs[number] = self._make_env() if self._spare is None else self._spare
            self._spare = None
        env = self._envs[number]
        if name == LOOK:
            value = getattr(env, args[0])
            return ("method", None) if callable(value) else ("value", value)
        return reach(env, name, *args, **kwargs)


def _packed(answer: Answer) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:
        problem = EnvironmentContractError(
            f"The environment answered with a {type(answer[1]).__name__} that cannot be sent to another process "
            f"({error}). Use module-level functions and plain data in wordings, actions and infos."
        )
        return pickle.dumps(_raised(problem))


def _raised(error: BaseException) -> Answer:
    return Status.RAISED, (type(error).__name__, str(error), "".join(traceback.format_exception(error)))


def _live_apart() -> None:
    """Leave the parent's session, so that its signals are its own, and end with the parent, whatever runs here.

    On Linux the kernel ends the whole session, with the processes that environments started, when the pipe by which
    a child knows its parent breaks: even inside C code that never returns to Python. Elsewhere a thread does it.
    """
    os.setsid()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # forgets what came while it was blocked
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    parent: Any = multiprocessing.parent_process()
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, fcntl.fcntl(parent.sentinel, fcntl.F_GETFL) | os.O_ASYNC)
        if wait([parent.sentinel], 0):  # it was gone before
            os._exit(1)
    else:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os.killpg(os.getpid(), signal.SIGKILL)
