"""What the speed comparison's tests are made of: its modules, and figures as its processes would find them."""

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PARTS = ("protocol", "presets", "job", "meter", "world", "ours", "lockstep", "environments", "prepare", "report")
PARTS += ("goals", "request", "waiting")
OTHERS = ("speed", "device_check", "memory", "memory_check", "scripted_players")


@contextmanager
def speed_parts():
    """Yield the modules of `benchmarks/side_by_side`, and the script `speed`, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        found = {name: importlib.import_module(f"side_by_side.{name}") for name in PARTS}
        yield SimpleNamespace(**found, speed=importlib.import_module("speed"))
    for name in [name for name in sys.modules if name in OTHERS or name.split(".")[0] == "side_by_side"]:
        sys.modules.pop(name, None)


def iteration(seconds=2.0, sampled=100, trained=None, **more):
    """Return what a contender would measure of an iteration."""
    trained = sampled if trained is None else trained
    return {
        "seconds": dict.fromkeys(("generate", "rollout", "update", "iteration"), seconds),
        "tokens": {"sampled": sampled, "trained": trained, "responses": sampled // 4},
        "padding": {"rollout": 0.1, "update": 0.25},
        "peak_gib": {"process": 1.5},
        **more,
    }


def noted(gap, largest=None, limit=1e-3, **more):
    """Return an iteration whose log-probabilities as sampled and as scored differ."""
    largest = gap if largest is None else largest
    return iteration(**{"logp_difference": gap, "largest_logp_difference": largest, "logp_limit": limit}, **more)


def process(*iterations, first_update_s=9.0, **more):
    """Return what a contender's process would find."""
    found = {"iterations": list(iterations), "first_update_s": first_update_s, "loaded_gib": 1.0}
    return found | {"place": 0, "load": 0.3} | more


def contender(seconds, sampled=100, *, starts=(), **more):
    """Return what a contender's two processes find in three iterations each, and further ones that only start."""
    found = [process(*[iteration(seconds, sampled, **more)] * 3) for _ in range(2)]
    return found + [process(first_update_s=taken) for taken in starts]


def result(parts, runs, **more):
    """Return a whole result."""
    compared = parts.report.compare(runs, more.get("extras"))
    goals, left_out = parts.goals.judge(compared, "cpu")
    return {
        "card": "cpu",
        "cpu": "a processor",
        "threads": 2,
        "preset": "cpu",
        "parameters": 421_824,
        "versions": {"torch": "2.13.0", "trl": None},
        "tuning": {"lockstep": {"chosen": 8, "tried": [(4, 3.0), (8, 2.0), (16, None)]}},
        "contenders": runs,
        "compared": compared,
        "goals": goals,
        "environments": {},
        "loads": {"the environments": 0.4, "the end": 0.2},
        "left_out": left_out,
        **more,
    }
