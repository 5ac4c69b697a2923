"""Invent households: rooms, what lies where, a task, and commands that win it.

What lives here: choosing. What does not: sentences and rules (`rules.py`), kinds (`tables.py`), files (`gamefile.py`).
A game is a function of split, tasks, size and seed alone. Rooms have numbers; furniture and standing places belong to
the number, what lies where belongs to the game. Read first: `draw_game`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from metarl_agents.environments.alfworld.game import GameFile, display_names
from metarl_agents.environments.alfworld.rules import goal_condition, rules_named
from metarl_agents.environments.alfworld.tables import (
    FIRST_NUMBER,
    FURNITURE,
    LAMP_TOPS,
    LAMPS,
    OPENABLE,
    RECEPTACLES_IN_ROOM,
    ROOMS,
    STATIONS,
    TASKS,
    THINGS,
    VESSELS,
    holders,
)

SPLITS = ("train", "valid_seen", "valid_unseen")
VALIDATION = "validation"
"""One more split of generated games: rooms that neither training nor `valid_unseen` has."""
SIZES = ("full", "small")
_ROOMS_PER_KIND = 99
_UNSEEN_EVERY = 5
"""Every fifth room is held out: no training task is set in it."""
_SEEN_GOALS_EVERY = 5
"""In the other rooms every fifth goal is held out for `valid_seen`."""
_VALIDATION_ROOMS = 1000
"""What is added to the numbers of the rooms that are for validation alone."""
_SHARED_PLACES = 0.15
"""How many receptacles are reached from the standing place of another one, as in the published rooms."""
_SMALL_NEEDS = ("CounterTop", "CoffeeTable", "Desk", "Drawer")
_SMALL_EXTRAS = 4
_SMALL_THINGS = 8
_START = "loc|0|0|0|30"
_CODES = (("-", "_minus_"), ("|", "_bar_"), ("+", "_plus_"), (".", "_dot_"), (",", "_comma_"))

T = TypeVar("T")


class Draw:
    """Draws that are the same on every Python version: they lean on `random()` alone, whose sequence is promised."""

    def __init__(self, key: str):
        self._random = random.Random(key).random

    def below(self, bound: int) -> int:
        """Return an integer in [0, bound)."""
        return int(self._random() * bound)

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def one(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Return up to `count` different items, in random order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]


@dataclass(frozen=True)
class Room:
    """One room, empty."""

    number: int
    kind: str
    receptacles: dict[str, str]
    """Id -> kind."""
    places: dict[str, str]
    """Id of a receptacle -> where one stands at it."""
    things: tuple[str, ...]
    """Kinds of things found in it."""
    lamp: str | None
    """Kind of lamp, where there is one."""

    @property
    def face(self) -> tuple[str, ...]:
        """What one who knows no numbers and distances can tell rooms apart by: furniture, kinds of things, lamp."""
        return (self.kind, *sorted(self.receptacles.values()), *self.things, self.lamp or "")


@dataclass(frozen=True)
class Task:
    """What is to be done in a room."""

    type: str
    thing: str
    """Kind of the thing to be handled."""
    goal: str
    """Kind of the receptacle it has to get to, or of the lamp to be lit."""

    @property
    def count(self) -> int:
        """How many things of the kind are needed."""
        return 2 if self.type == TASKS["pick_two"] else 1


@dataclass
class House:
    """A room with things in it, and a task."""

    room: Room
    task: Task
    kinds: dict[str, str] = field(default_factory=dict)
    """Id of a thing -> its kind."""
    inside: dict[str, str] = field(default_factory=dict)
    """Id of a thing -> id of the receptacle that holds it."""


@lru_cache(maxsize=64)
def draw_game(seed: int, *, split: str, tasks: tuple[str, ...], size: str, rules: str) -> tuple[GameFile, House]:
    """Return the game that a seed decides, and what it was made of, which is to be left as it is.

    Splits: `valid_unseen` is set in rooms of its own. `train` and `valid_seen` share their rooms, but no room asks for
    the same kinds in both. `validation` has rooms of its own as well.

    Args:
        seed: any integer.
        split: one of `SPLITS`, or `VALIDATION`.
        tasks: short names of task types, to be drawn from evenly.
        size: `full`, or `small` for few receptacles and things.
        rules: `own` or `alfworld`, as in `rules.py`; the house is the same with either.
    """
    house = draw_house(seed, split=split, tasks=tasks, size=size)
    return write_game(house, rules, seed), house


def draw_house(seed: int, *, split: str, tasks: Sequence[str], size: str) -> House:
    """Return the house and task that a seed decides; see `draw_game`."""
    draw = Draw(f"alfworld/{split}/{' '.join(tasks)}/{size}/{seed}")
    # Even among task types, not among the rooms that happen to allow them.
    task_type = TASKS[draw.one(tasks)]
    while True:
        room = draw_room(_draw_number(draw, task_type, split), size)
        goals = [goal for number, goal in enumerate(_goals(room, task_type)) if _belongs(split, room.number + number)]
        if goals and not _is_copy(room, split, size):
            return _furnish(room, draw.one(goals), size, draw)


def _draw_number(draw: Draw, task_type: str, split: str) -> int:
    return FIRST_NUMBER[draw.one(ROOMS[task_type])] + draw.one(_numbers(split))


def _numbers(split: str) -> list[int]:
    """Return the numbers of the rooms of a split, counted within a kind of room."""
    every = range(1, _ROOMS_PER_KIND + 1)
    if split == VALIDATION:
        return [_VALIDATION_ROOMS + n for n in every]
    return [n for n in every if (n % _UNSEEN_EVERY == 0) == (split == "valid_unseen")]


def _belongs(split: str, number: int) -> bool:
    held_out = split in ("valid_unseen", VALIDATION)
    return held_out or (number % _SEEN_GOALS_EVERY == 0) == (split == "valid_seen")


def _is_copy(room: Room, split: str, size: str) -> bool:
    """Return whether a held-out room happens to be furnished like a room of the splits it is held out from."""
    others = {"valid_unseen": ("train",), VALIDATION: ("train", "valid_unseen")}.get(split, ())
    return any(room.face in _faces(other, size) for other in others)


@lru_cache(maxsize=8)
def _faces(split: str, size: str) -> frozenset[tuple[str, ...]]:
    return frozenset(draw_room(first + n, size).face for first in FIRST_NUMBER.values() for n in _numbers(split))


@lru_cache(maxsize=1024)
def draw_room(number: int, size: str) -> Room:
    """Return the room of a number."""
    place = number % _VALIDATION_ROOMS
    kind = next(kind for kind, first in FIRST_NUMBER.items() if 0 < place - first <= _ROOMS_PER_KIND)
    draw = Draw(f"alfworld/room/{number}/{size}")
    furniture = _full_furniture(kind, draw) if size == "full" else _small_furniture(kind, draw)
    receptacles: dict[str, str] = {}
    places: dict[str, str] = {}
    for receptacle in furniture:
        thing = _new_id(receptacle, draw)
        shared = bool(places) and draw.chance(_SHARED_PLACES)
        spot = f"loc|{draw.between(-20, 20)}|{draw.between(-20, 20)}|{draw.below(4)}|{30 + len(places)}"
        places[thing] = draw.one(list(places.values())) if shared else spot
        receptacles[thing] = receptacle
    things = [thing for thing, known in THINGS.items() if kind in known.rooms.split()]
    fitting = [thing for thing in things if holders(thing) & set(furniture)]
    if size == "small":
        # The task stations of a small room are of use only while something can go into them.
        fitting = sorted(draw.some(fitting, _SMALL_THINGS))
    lamp = draw.one(LAMPS) if kind in ROOMS[TASKS["look"]] else None
    return Room(number, kind, receptacles, places, tuple(fitting), lamp)


def _full_furniture(kind: str, draw: Draw) -> list[str]:
    fewest, most = RECEPTACLES_IN_ROOM[kind]
    while True:
        furniture = []
        for receptacle, (low, high) in FURNITURE[kind].items():
            furniture += [receptacle] * draw.between(low, high)
        if fewest <= len(furniture) <= most:
            return furniture


def _small_furniture(kind: str, draw: Draw) -> list[str]:
    """Return one each of what tasks need, and of some more, in the order of the tables."""
    needed = {station.receptacle for station in STATIONS.values()} | set(_SMALL_NEEDS)
    more = [receptacle for receptacle in FURNITURE[kind] if receptacle not in needed]
    chosen = needed | set(draw.some(more, _SMALL_EXTRAS))
    return [receptacle for receptacle in FURNITURE[kind] if receptacle in chosen]


def _new_id(kind: str, draw: Draw) -> str:
    position = "|".join(f"{draw.between(-399, 399) / 100:+06.2f}" for _ in range(3))
    # Basins are parts of larger things, and named after them.
    bare = kind.removesuffix("Basin")
    return f"{bare}|{position}" + (f"|{kind}" if bare != kind else "")


def _goals(room: Room, task_type: str) -> list[Task]:
    """Return every task of a type that can be set in a room, in a fixed order."""
    if task_type == TASKS["look"]:
        return [Task(task_type, thing, room.lamp) for thing in room.things if room.lamp]
    station = STATIONS.get(task_type)
    present = set(room.receptacles.values())
    if station and station.receptacle not in present:
        return []
    tasks = []
    for thing in room.things:
        fitting = holders(thing) & present
        able = station is None or station.ability in THINGS[thing].abilities.split()
        if able and len(fitting) > 1:
            targets = fitting - {station.receptacle if station else None}
            tasks += [Task(task_type, thing, target) for target in sorted(targets)]
    return tasks


def _furnish(room: Room, task: Task, size: str, draw: Draw) -> House:
    """Put things into a room so that the task is open: nothing it asks for lies where it has to get to."""
    house = House(room, task)
    for kind in room.things:
        least = task.count if kind == task.thing else 1
        for _ in range(draw.between(least, max(least, 2 if size == "small" else 3))):
            fitting = holders(kind) - ({task.goal} if kind == task.thing else set())
            _put(house, kind, fitting, draw)
    if room.lamp:
        _put(house, room.lamp, frozenset(LAMP_TOPS), draw)
    return house


def _put(house: House, kind: str, fitting: frozenset[str], draw: Draw) -> None:
    where = [receptacle for receptacle, its_kind in house.room.receptacles.items() if its_kind in fitting]
    thing = _new_id(kind, draw)
    house.kinds[thing] = kind
    house.inside[thing] = draw.one(where)


def write_game(house: House, rules: str, seed: int) -> GameFile:
    """Return a house as a game file."""
    texts, task = rules_named(rules), house.task
    draw = Draw(f"alfworld/sentence/{task}/{seed}")
    names = {
        "obj": _said(task.thing, texts.articles),
        "recep": _said(task.goal, texts.articles),
        "toggle": _said(task.goal, texts.articles),
        "bare": task.thing.lower(),
        "mrecep": "",
    }
    sentence = draw.one(texts.sentences(task.type)).format(**names)
    problem = _problem(house)
    return GameFile(texts.domain, problem, texts.grammar(sentence), task.type, tuple(walkthrough(house)))


def _said(kind: str, article: bool) -> str:
    word = kind.lower()
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}" if article else word


def _code(thing: str) -> str:
    for sign, code in _CODES:
        thing = thing.replace(sign, code)
    return thing


def _problem(house: House) -> str:
    room, task = house.room, house.task
    kinds, present = sorted(set(house.kinds.values())), sorted(set(room.receptacles.values()))
    declared = ["agent1 - agent"]
    declared += [f"{kind}Type - otype" for kind in kinds] + [f"{kind}Type - rtype" for kind in present]
    declared += [f"{_code(thing)} - object" for thing in house.kinds]
    declared += [f"{_code(receptacle)} - receptacle" for receptacle in room.receptacles]
    declared += [f"{_code(place)} - location" for place in dict.fromkeys([_START, *room.places.values()])]
    facts = [f"atLocation agent1 {_code(_START)}"]
    for receptacle, kind in room.receptacles.items():
        facts += [f"receptacleType {_code(receptacle)} {kind}Type"]
        facts += [f"receptacleAtLocation {_code(receptacle)} {_code(room.places[receptacle])}"]
        facts += [f"openable {_code(receptacle)}"] if kind in OPENABLE else []
    for kind in kinds:
        fitting = holders(kind) if kind in THINGS else frozenset()
        facts += [f"canContain {where}Type {kind}Type" for where in present if where in fitting]
    for thing, kind in house.kinds.items():
        facts += _facts_of(thing, kind, house)
    lines = "\n".join(f"({fact})" for fact in facts)
    objects = "\n".join(declared)
    return (
        f"(define (problem room{room.number})\n(:domain alfred)\n(:objects\n{objects}\n)\n(:init\n{lines}\n)\n"
        f"(:goal {goal_condition(task.type, task.thing, task.goal)})\n)\n"
    )


def _facts_of(thing: str, kind: str, house: House) -> list[str]:
    name, receptacle = _code(thing), house.inside[thing]
    facts = [f"objectType {name} {kind}Type", f"inReceptacle {name} {_code(receptacle)}"]
    facts += [f"objectAtLocation {name} {_code(house.room.places[receptacle])}"]
    facts += [f"toggleable {name}" if kind in LAMPS else f"pickupable {name}"]
    facts += [f"isReceptacleObject {name}"] if kind in VESSELS else []
    return facts + [f"{ability} {name}" for ability in (THINGS[kind].abilities.split() if kind in THINGS else ())]


def walkthrough(house: House) -> list[str]:
    """Return commands that win, made by someone who knows where everything is.

    They are the fewest for one who fetches things one after the other, and treats and delivers each at once.
    """
    room, task = house.room, house.task
    coded = {_code(thing).lower(): thing for thing in (*house.kinds, *room.receptacles)}
    names = {coded[code]: name for code, name in display_names(coded).items()}
    wanted = [thing for thing, kind in house.kinds.items() if kind == task.thing]
    station = STATIONS.get(task.type)
    stations = _all_of(room.receptacles, station.receptacle) if station else [""]
    goals = _all_of(house.kinds if task.type == TASKS["look"] else room.receptacles, task.goal)
    plans = itertools.product(itertools.permutations(wanted, task.count), stations, goals)
    return min((_commands(house, names, *plan) for plan in plans), key=len)


def _commands(house: House, names: dict[str, str], things: Sequence[str], station: str, goal: str) -> list[str]:
    """Return commands that bring these things to `station`, where there is one, and on to `goal`; or that light it."""
    room, commands, opened = house.room, [], set()
    here = _START

    def visit(receptacle: str, into: bool) -> None:
        nonlocal here
        if here != room.places[receptacle]:
            commands.append(f"go to {names[receptacle]}")
            here = room.places[receptacle]
        if into and room.receptacles[receptacle] in OPENABLE and receptacle not in opened:
            commands.append(f"open {names[receptacle]}")
            opened.add(receptacle)

    for thing in things:
        visit(house.inside[thing], into=True)
        commands.append(f"take {names[thing]} from {names[house.inside[thing]]}")
        if goal in house.inside:
            visit(house.inside[goal], into=False)
            commands.append(f"use {names[goal]}")
            continue
        if station:
            visit(station, into=False)
            commands.append(f"{STATIONS[house.task.type].verb} {names[thing]} with {names[station]}")
        visit(goal, into=True)
        commands.append(f"move {names[thing]} to {names[goal]}")
    return commands


def _all_of(kinds: dict[str, str], kind: str) -> list[str]:
    return [name for name, its_kind in kinds.items() if its_kind == kind]
