"""Environments in other processes: slow ones side by side, and none that can hurt the caller.

`WorkerPool` keeps W long-lived worker processes, each with many environment objects; `pool()` builds an environment
in one of them and returns a `ProcessEnvironment`, which has the same methods here. Requests can be posted first and
their answers awaited later, so that workers work at the same time. One worker is in `worker_process.py`; what runs
inside it is in `serving.py`.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import itertools
import os
import pickle
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from metarl_agents import errors
from metarl_agents.envs.base import Environment, MakeEnv, Player
from metarl_agents.envs.guard import EnvironmentCrash, EnvironmentTimeout, late
from metarl_agents.envs.serving import LOOK, Answer, Status, is_starting
from metarl_agents.envs.wording import Wording
from metarl_agents.envs.worker_process import Request, Worker
from metarl_agents.errors import ConfigError
from metarl_agents.types import StepResult

_QUIT_S = 5.0
"""Time for the workers to close their environments at the end."""
_CLOSED = "The environment's workers have been closed."
_LOOK_S = 1.0
"""How often silent workers are looked after: one that died may have left behind a process that holds its pipe open."""


class WorkerPool:
    """Worker processes that hold environments; `pool()` builds one. Use it as a context, from one thread at a time.

    A worker that dies or hangs costs the environments that lived in it, and is replaced. All workers end when the
    context does, when this process exits, and when it is killed.

    Args:
        make_env: builds one environment; a class, a module-level function or a `functools.partial` of one, since it
            is sent to the workers.
        workers: how many processes.
        timeout_s: seconds for one call; None sets no limit. Starting a worker has its own, generous limit.

    Raises:
        ConfigError: `make_env` cannot be sent to another process, or the workers do not start.
    """

    def __init__(self, make_env: MakeEnv, workers: int, timeout_s: float | None = None) -> None:
        if is_starting():
            raise ConfigError(
                "environment workers import the main program to know its classes, and this one starts to train when "
                'it is imported: put what it runs under `if __name__ == "__main__":`.'
            )
        self.make_env = make_env
        """What the workers call."""
        self._factory = _pickled_factory(make_env)
        self.timeout_s = timeout_s
        self._numbers = itertools.count()
        self._owner = os.getpid()
        self._workers: list[Worker] = []
        _pools.add(self)
        try:
            for _ in range(workers):
                self._workers.append(Worker(self._factory, timeout_s))
            for worker in self._workers:
                self._welcome(worker)
        except BaseException:
            self.close()
            raise

    def __call__(self) -> ProcessEnvironment:
        """Build an environment in one of the workers."""
        return ProcessEnvironment(self)

    def __enter__(self) -> WorkerPool:
        """Return the pool."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End the workers."""
        self.close()

    def __del__(self) -> None:
        if "_workers" in self.__dict__:
            self.close()

    @property
    def process_ids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid for worker in self._workers if worker.obituary is None]

    def place(self) -> tuple[Worker, int]:
        """Return a worker for a new environment, the one with the fewest, and the number of that environment."""
        if not self._workers:
            raise EnvironmentCrash(_CLOSED)
        index = min(range(len(self._workers)), key=lambda index: len(self._workers[index].living))
        if not self._workers[index].is_alive():
            self._workers[index] = Worker(self._factory, self.timeout_s)
        number = next(self._numbers)
        self._workers[index].living.add(number)
        return self._workers[index], number

    def wait(self, request: Request) -> Answer:
        """Return the answer to a request; meanwhile all workers are kept busy."""
        while request.answer is None:
            self._listen()
        return request.answer

    def close(self) -> None:
        """Let the workers close their environments, then end them. What was not answered never will be."""
        workers, self._workers = self._workers, []
        _pools.discard(self)
        if os.getpid() != self._owner:  # a forked child: the workers are its parent's
            return
        for worker in workers:
            worker.dismiss()
        until = time.monotonic() + _QUIT_S
        for worker in workers:
            worker.end(EnvironmentCrash(_CLOSED), until)

    def _listen(self) -> None:
        """Take the answers that are there, and end the workers that are overdue or gone."""
        busy = [worker for worker in self._workers if worker.current is not None]
        if not busy:
            raise EnvironmentCrash(_CLOSED)
        patience = min(worker.deadline for worker in busy) - time.monotonic()
        ready = wait([worker.pipe for worker in busy], min(max(patience, 0.0), _LOOK_S))
        for worker in busy:
            if worker.pipe in ready:
                worker.take()
            else:
                worker.look()
            if worker.obituary is not None and worker.started:
                # At once, so that it is up when it is needed; one that failed to start is tried again on demand.
                with suppress(OSError):
                    self._workers[self._workers.index(worker)] = Worker(self._factory, self.timeout_s)

    def _welcome(self, worker: Worker) -> None:
        """Wait until a worker has started."""
        status, value = self.wait(worker.hello)
        if status is Status.LOST:
            raise ConfigError(
                f"an environment worker did not start ({value}). What it wrote is above; a program that is run as a "
                'script needs `if __name__ == "__main__":` around what it runs, since workers import it.'
            )
        if status is Status.RAISED:
            raise ConfigError(
                f"an environment worker cannot load what builds environments ({value[0]}: {value[1]}): put it into a "
                "module that can be imported."
            )


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Registered after multiprocessing's own handler, which waits for processes, so this runs before it.
    for pool in list(_pools):
        pool.close()


class ProcessEnvironment(Environment):
    """An environment in a worker process, with the same methods.

    A call that takes too long raises EnvironmentTimeout, one whose worker dies EnvironmentCrash; either way the object
    is lost, and the next `reset` or `restart` builds a new one.

    Args:
        make_env: the pool in which the environment is to live; or what builds it, as for `WorkerPool`: then it has a
            worker of its own.
        timeout_s: seconds for one call, where it has a worker of its own; None sets no limit.
    """

    def __init__(self, make_env: MakeEnv | WorkerPool, timeout_s: float | None = None) -> None:
        self._owns_pool = not isinstance(make_env, WorkerPool)
        self._pool = make_env if isinstance(make_env, WorkerPool) else WorkerPool(make_env, 1, timeout_s)
        self._home: tuple[Worker, int] | None = self._pool.place()
        if self._owns_pool:
            self._call(LOOK, "step")  # an environment that cannot be built says so here

    @property
    def wording(self) -> Wording:  # type: ignore[override]
        """The wording of the environment."""
        return self._call("wording")

    @property
    def tiny_model(self) -> str | None:  # type: ignore[override]
        """The shipped tiny model that knows the environment."""
        return self._call("tiny_model")

    def describe(self) -> str:
        """Return rules and answer format."""
        return self._call("describe")

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the task that `seed` decides, in a new object if the last one is lost."""
        return self._call("reset", seed=seed)

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Return to the initial state of the same task, in a new object if the last one is lost."""
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

    def players(self) -> tuple[str, ...]:
        """Return the names of the seats."""
        return self._call("players")

    def num_tasks(self, split: str) -> int | None:
        """Return how many different tasks a split has; None for no bound."""
        return self._call("num_tasks", split)

    def close(self) -> None:
        """Have the environment closed, without waiting for it; end its worker if it has one of its own."""
        home = self._home
        self._leave()
        if self._owns_pool:
            self._pool.close()
        elif home is not None:
            home[0].send_next()

    def post(self, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Ask for a method or attribute without waiting; the function that is returned waits for the answer."""
        if name == "reset":
            self.seed = kwargs["seed"]
            if self._home is not None and not self._home[0].is_alive():
                self._leave()
        if self._home is None and name == "restart" and self.seed is not None:
            name, kwargs = "reset", {"seed": self.seed}
        if self._home is None and name == "reset":
            self._home = self._pool.place()
        if self._home is None:
            raise EnvironmentCrash("The environment is lost or closed. Call `reset` to build a new one.")
        worker, number = self._home
        return functools.partial(self._answer, worker.post(number, name, args, kwargs))

    def __getattr__(self, name: str) -> Any:
        """Forward the environment's further public methods and attributes."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute `{name}`.")
        kind, value = self._call(LOOK, name)
        return functools.partial(self._call, name) if kind == "method" else value

    def __del__(self) -> None:
        if self.__dict__.get("_home") is not None:
            self._leave()  # sends nothing: this may run at any time
            if self._owns_pool:
                self._pool.close()

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.post(name, *args, **kwargs)()

    def _answer(self, request: Request) -> Any:
        status, value = self._pool.wait(request)
        if status is Status.RETURNED:
            return value
        if status is Status.RAISED:
            raise _rebuilt(*value)
        self._leave()
        raise EnvironmentTimeout(late(self._pool.timeout_s or 0.0)) if status is Status.LATE else value

    def _leave(self) -> None:
        home, self._home = self._home, None
        if home is not None:
            home[0].forget(home[1])


def _pickled_factory(make_env: MakeEnv) -> bytes:
    try:
        return pickle.dumps(make_env)
    except Exception as error:
        raise ConfigError(
            f"`make_env` is {make_env!r}, which cannot be sent to another process ({error}). Use a class, a "
            "module-level function, or `functools.partial` of one."
        ) from error


def _rebuilt(kind: str, message: str, trace: str) -> Exception:
    """Return an exception that is called and reads as in the worker; of the same type, where that is known here."""
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    known = found if isinstance(found, type) and issubclass(found, Exception) else EnvironmentCrash
    reads = {"__str__": lambda self: message, "__module__": known.__module__}
    try:
        error = type(kind, (known,), reads)(message)
    except TypeError:
        error = type(kind, (EnvironmentCrash,), reads)(message)
    error.add_note(f"In the environment's process:\n{trace}")
    return error
