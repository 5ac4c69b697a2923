"""Stop an environment that takes too long, and outlive one that dies.

Two ways: `call_with_timeout` interrupts Python code by an alarm signal, in the main thread of Unix systems only;
`ProcessEnvironment` keeps the environment in a worker process, which can be killed whatever it does, from any thread.
"""

from __future__ import annotations

import builtins
import functools
import multiprocessing
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from metarl_agents import errors
from metarl_agents.envs.base import Environment, Player
from metarl_agents.envs.wording import Wording
from metarl_agents.errors import ConfigError, EnvironmentContractError
from metarl_agents.types import StepResult

_START_TIMEOUT_S = 120.0
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


@contextmanager
def _alarm(timeout_s: float) -> Iterator[None]:
    """Raise EnvironmentTimeout inside the block when its time is up."""
    state = {"armed": True, "rang": False}

    def ring(signum: int, frame: Any) -> None:
        if state["armed"]:
            state["rang"] = True
            raise EnvironmentTimeout(_late(timeout_s))

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
        raise EnvironmentTimeout(_late(timeout_s))


def _late(timeout_s: float) -> str:
    return f"The environment did not answer within {timeout_s:g} s."


class ProcessEnvironment(Environment):
    """An environment in a worker process of its own, with the same methods.

    A call that takes too long kills the worker and raises EnvironmentTimeout; a worker that dies raises
    EnvironmentCrash. The next `reset` or `restart` starts a new one.

    Args:
        make_env: builds the environment; a class, a module-level function or a `functools.partial` of one, since it
            is sent to the worker.
        timeout_s: seconds for one call; None sets no limit. Starting the worker has its own, generous limit.
    """

    def __init__(self, make_env: Callable[[], Environment], timeout_s: float | None = None):
        try:
            pickle.dumps(make_env)
        except Exception as error:
            raise ConfigError(
                f"`make_env` is {make_env!r}, which cannot be sent to another process ({error}). Use a class, a "
                f"module-level function, or `functools.partial` of one."
            ) from error
        self._make_env, self._timeout_s = make_env, timeout_s
        self._process: Any = None
        self._pipe: Any = None
        self._methods: frozenset[str] = frozenset()
        self._wording: Wording | None = None
        self._start()

    @property
    def wording(self) -> Wording:  # type: ignore[override]
        """The wording of the environment."""
        if self._wording is None:
            self._wording = self._call("__getattribute__", "wording")
        return self._wording

    def describe(self) -> str:
        """Return rules and answer format."""
        return self._call("describe")

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the task that `seed` decides, in a new worker if the last one is gone."""
        self.seed = seed
        self._start()
        return self._call("reset", seed=seed)

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Return to the initial state of the same task, in a new worker if the last one is gone."""
        if self._process is None and self.seed is not None:
            return self.reset(seed=self.seed)
        return self._call("restart")

    def parse_action(self, text: str) -> Any | None:
        """Return the action that a response means, or None."""
        return self._call("parse_action", text)

    def step(self, action: Any) -> StepResult:
        """Play one action."""
        return self._call("step", action)

    def player(self) -> Player | None:
        """Return the environment's scripted player, which lives in this process."""
        return self._call("player")

    def close(self) -> None:
        """End the worker."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
            self._pipe.close()

    def __getattr__(self, name: str) -> Any:
        """Forward the environment's further public methods."""
        if not name.startswith("_") and name in self._methods:
            return functools.partial(self._call, name)
        raise AttributeError(f"{type(self).__name__} has no attribute `{name}`, nor has its environment such a method.")

    def __del__(self) -> None:
        if self.__dict__.get("_process") is not None:
            self.close()

    def _start(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        self.close()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._make_env), daemon=True)
        self._process.start()
        theirs.close()
        self._methods = self._answer(_START_TIMEOUT_S)

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self._process is None:
            raise EnvironmentCrash("The environment's process has ended. Call `reset` to start a new one.")
        try:
            self._pipe.send((method, args, kwargs))
        except (BrokenPipeError, ConnectionResetError):
            self._fail(EnvironmentCrash(self._obituary()))
        return self._answer(self._timeout_s)

    def _answer(self, timeout_s: float | None) -> Any:
        """Return what the worker answers, or raise what it raised."""
        try:
            if not self._pipe.poll(timeout_s or None):
                self._fail(EnvironmentTimeout(_late(timeout_s or 0.0)))
            worked, value = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._fail(EnvironmentCrash(self._obituary()))
        if not worked:
            raise _rebuilt(*value)
        return value

    def _fail(self, error: Exception) -> NoReturn:
        self.close()
        raise error from None

    def _obituary(self) -> str:
        self._process.join(1.0)
        return f"The environment's process died (exit code {self._process.exitcode}) before it answered."


def _rebuilt(kind: str, message: str, trace: str) -> Exception:
    """Return an exception of the same type, where that is a builtin one or one of the library's."""
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    error: Exception = EnvironmentCrash(f"{kind}: {message}")
    if isinstance(found, type) and issubclass(found, Exception):
        with suppress(TypeError):
            error = found(message)
    error.add_note(f"In the environment's process:\n{trace}")
    return error


def _serve(pipe: Connection, make_env: Callable[[], Environment]) -> None:
    """Build an environment and answer calls until the other end is closed. Runs in the worker."""
    try:
        env = make_env()
        methods = (name for name in dir(env) if not name.startswith("_"))
        answer: tuple[bool, Any] = True, frozenset(name for name in methods if callable(getattr(type(env), name, None)))
    except Exception as error:
        pipe.send(_failure(error))
        return
    while True:
        _send(pipe, answer)
        try:
            method, args, kwargs = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = True, getattr(env, method)(*args, **kwargs)
        except Exception as error:
            answer = _failure(error)


def _send(pipe: Connection, answer: tuple[bool, Any]) -> None:
    try:
        pipe.send(answer)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        problem = EnvironmentContractError(
            f"The environment answered with a {type(answer[1]).__name__} that cannot be sent to another process "
            f"({error}). Use module-level functions and plain data in wordings, actions and infos."
        )
        pipe.send(_failure(problem))


def _failure(error: Exception) -> tuple[bool, Any]:
    return False, (type(error).__name__, str(error), "".join(traceback.format_exception(error)))
