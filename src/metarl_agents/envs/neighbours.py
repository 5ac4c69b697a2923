"""Part of the contract's check: two objects that play side by side do not see each other.

Two environments are built, and each replays an episode that was recorded when it was alone: turn about, with resets
and restarts of one in the middle of the other's episode. Every answer must be as it was alone.
"""

from __future__ import annotations

import inspect
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle, islice
from typing import Any

from metarl_agents.envs.base import Environment
from metarl_agents.envs.probing import Record, begin, checked_step, play, shown, visible
from metarl_agents.errors import EnvironmentContractError

Event = tuple[str, int]
"""`reset` or `restart` with -1, or `step` with the number of the recorded action."""
_AFTER_RESTART = 3


def check_neighbours(build: Callable[[], Any], records: list[Record], max_turns: int) -> None:
    """Let two objects replay recorded episodes side by side, of two tasks and of the same one.

    Args:
        build: builds one environment.
        records: episodes that were played alone.
        max_turns: turns of a further episode, where all records are of one task.

    Raises:
        EnvironmentContractError: an answer differs from the recorded one; it names the state that both objects share.
    """
    for number, record in enumerate(records):
        others = [other for other in records[number + 1 :] + records[:number] if other.seed != record.seed]
        other = others[0] if others else play(build(), record.seed + 1, max_turns)
        for neighbour in (other, record):  # another task, and the same one, as within a group
            _play_side_by_side(build, record, neighbour)


def _play_side_by_side(build: Callable[[], Any], mine: Record, other: Record) -> None:
    pair, records = (build(), build()), (mine, other)
    called: list[tuple[int, Event]] = []
    for who, event in _schedule(mine, other):
        called.append((who, event))
        fault = _differs(pair[who], records[who], event)
        if fault:
            raise EnvironmentContractError(_sentence(build, records, called, fault))


def _schedule(mine: Record, other: Record) -> Iterator[tuple[int, Event]]:
    """Yield (whose turn it is, what is called): each object goes through its own episode and starts it again."""
    steps = [("step", turn) for turn in range(len(mine.actions))]
    own = [("reset", -1), *steps, ("restart", -1), *steps[:_AFTER_RESTART]]
    theirs = [("step", turn) for turn in range(len(other.actions))]
    changing = [("reset", -1), *theirs[:1], ("restart", -1), *theirs[:2], ("reset", -1), *theirs, ("restart", -1)]
    for event, beside in zip(own, islice(cycle(changing), len(own)), strict=True):
        yield 0, event
        yield 1, beside


def _differs(env: Any, record: Record, event: Event) -> str:
    """Make one call; return how its answer differs from the recorded one, "" where it does not."""
    call, turn = event
    if call != "step":
        first, _ = begin(env, seed=record.seed if call == "reset" else None)
        return "" if first == record.first else "gave two different first observations"
    action = record.actions[turn]
    if visible(checked_step(env, action)) == visible(record.results[turn]):
        return ""
    return f"led to two different answers to the same actions (turn {turn + 1}, action {shown(action)})"


def _sentence(
    build: Callable[[], Any], records: tuple[Record, Record], called: list[tuple[int, Event]], fault: str
) -> str:
    """Return what went wrong: the call that began this episode, the neighbour's last call, and what they share."""
    who, _ = called[-1]
    begun = next(call for one, (call, _) in reversed(called) if one == who and call != "step")
    last = next((call for one, (call, _) in reversed(called) if one != who), None)
    env = build()
    name = f"{type(env).__name__}." + (f"reset(seed={records[who].seed})" if begun == "reset" else "restart()")
    task = "another task" if records[0].seed != records[1].seed else "the same task"
    shared = _shared(build, records, called)
    named = f" Both objects share {', '.join(shared)}." if shared else ""
    return (
        f"{name}, while another object played {task}, {fault}, after the other's `{last}`.{named} Trials are played "
        "side by side: keep the state of a task on the object (`self`), not on the class, in the module or in an "
        "object that both hold."
    )


def _shared(build: Callable[[], Any], records: tuple[Record, Record], called: list[tuple[int, Event]]) -> list[str]:
    """Play the same calls again and return what changed outside the objects, or is held by both of them."""
    pair = (build(), build())
    before, changed = _outside(pair[0]), []
    for who, event in called:
        with suppress(EnvironmentContractError):
            _differs(pair[who], records[who], event)
        after = _outside(pair[0]) | _held_by_both(*pair)
        changed += [name for name, state in after.items() if name in before and before[name] != state]
        before = after
    return [f"`{name}`" for name in dict.fromkeys(changed)]


def _held_by_both(one: Any, other: Any) -> dict[str, bytes]:
    """Return {name: state} of the attributes that are one object in both environments."""
    mine, theirs = getattr(one, "__dict__", {}), getattr(other, "__dict__", {})
    simple = (str, bytes, int, float, bool, tuple, frozenset, type(None))
    both = [name for name in mine if name in theirs and mine[name] is theirs[name]]
    return {f"self.{name}": _state(mine[name]) for name in both if not isinstance(mine[name], simple)}


def _outside(env: Any) -> dict[str, bytes]:
    """Return {name: state} of what lives on an environment's classes, in their modules and in default arguments."""
    found: dict[str, bytes] = {}
    for owner in type(env).__mro__:
        if owner in (object, Environment):
            continue
        for name, value in vars(owner).items():
            function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if inspect.isfunction(function):
                defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
                found[f"a default argument of {owner.__name__}.{name}"] = _state(defaults)
            elif not name.startswith("__") and not callable(value):
                found[f"{owner.__name__}.{name}"] = _state(value)
        for name, value in vars(sys.modules.get(owner.__module__, object)).items():
            if not name.startswith("__") and not callable(value) and not inspect.ismodule(value):
                found[f"{owner.__module__}.{name}"] = _state(value)
    return found


def _state(value: Any) -> bytes:
    if isinstance(value, random.Random):
        value = value.getstate()
    try:
        return pickle.dumps(value)
    except Exception:  # whatever an object does when it is stored
        return repr(value).encode(errors="replace")
