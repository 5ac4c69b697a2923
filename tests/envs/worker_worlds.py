"""Environments that misbehave as they are told. Nothing heavy is imported here, because worker processes import it."""

import collections
import ctypes
import itertools
import os
import subprocess
import time
from pathlib import Path

from metarl_agents.envs import Environment


class OddError(Exception):
    """Known in the worker alone, for all the caller knows."""


class Unreadable:
    """Can be sent, and not be read."""

    def __reduce__(self):
        return int, ("five",)


class Weather(Environment):
    """Does what its action says."""

    tiny_model = "weather"

    def __init__(self, broken=False, farewell=None):
        if broken:
            raise ValueError("no rooms")
        self.farewell = farewell
        self.altitude = 70

    def reset(self, *, seed):
        self.seed, self.turns = seed, 0
        return f"task {seed}", {}

    def step(self, action):
        self.turns += 1
        deed = getattr(self, f"_{action.split()[0]}", None)
        if deed is not None:
            deed(*action.split()[1:])
        told = {"unsendable": lambda: None, "unreadable": Unreadable()}
        info = {"success": False} | ({"why": told[action]} if action in told else {})
        return f"turn {self.turns}" + "." * (2**20 * (action[:4] == "long")), 1.0, False, False, info

    def rooms(self, count):
        return ["room"] * count

    def process(self):
        return os.getpid()

    def start_engine(self):
        return subprocess.Popen(["sleep", "600"]).pid

    def close(self):
        if self.farewell:
            with Path(self.farewell).open("a") as file:
                file.write(f"{self.seed}\n")

    def _nap(self):
        time.sleep(0.1)

    def _sleep(self):
        time.sleep(60)

    def _spin(self):
        collections.deque(itertools.repeat(0), maxlen=0)  # one call of C code, for ever

    def _die(self):
        os._exit(3)

    def _fault(self):
        ctypes.string_at(0)

    def _raise(self):
        raise RuntimeError("the game is over")

    def _key(self):
        raise KeyError("cellar")

    def _stop(self):
        next(iter(()))

    def _odd(self):
        raise OddError("strange")

    def _leave(self):
        raise SystemExit(3)

    def _say(self):
        os.write(1, b"hello from the game\n")


def not_here():
    """Refuse to be unpickled in another process."""
