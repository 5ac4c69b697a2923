"""What a player may conclude from the texts of an ALFWorld game: the task, and where things are.

It reads what the agent reads and nothing else, in our sentences or in the published ones: both name things as
"mug 2" and answer the same commands. What does not live here: what to do next (`player.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from metarl_agents.environments.alfworld.game import NOTHING_HAPPENS
from metarl_agents.environments.alfworld.tables import OPENABLE, STATIONS

_NAME = re.compile(r"\b([a-z]+) (\d+)\b")
_TASK = re.compile(r"task[^:\n]*:\s*([^\n]+)", re.IGNORECASE)
_COMMAND = re.compile(r"(go to|open|examine|take|move|put|clean|heat|cool|use) ([a-z]+ \d+)(?: \D+? ([a-z]+ \d+))?")
_CLOSED = re.compile(r"\b(closed|shut)\b")
_STATES = (("clean", "clean"), ("heat", "heat"), ("hot", "heat"), ("cool", "cool"), ("cold", "cool"))
_STATION_OF = {station.verb: station.receptacle.lower() for station in STATIONS.values()}
_OPENABLE = {kind.lower() for kind in OPENABLE}
_PLAIN = (
    "a an the some two another one and it them in on to at of with under next that is lit by "
    "put bring find look examine hold place turn use clean heat hot cool cold"
)
_PLAIN_WORDS = frozenset(_PLAIN.split())


@dataclass(frozen=True)
class Wish:
    """A task as its sentence tells it, kinds in lower case."""

    thing: str
    goal: str | None
    """Kind of receptacle, or of lamp; None where the sentence names none that is here."""
    verb: str | None
    """`clean`, `heat` or `cool`, if it asks for one."""
    count: int

    @property
    def is_look(self) -> bool:
        """Whether a lamp is to be lit."""
        return self.goal is not None and self.goal.endswith("lamp")

    @property
    def station(self) -> str | None:
        """Kind of receptacle that the verb needs."""
        return _STATION_OF.get(self.verb or "")


class Beliefs:
    """What has been seen in one attempt.

    Attributes:
        wish: the task, or None before it was read.
        receptacles: their names, as the opening lists them.
        lies: thing -> the receptacle it lies in or on, as far as known.
        first: thing -> the receptacle it lay in or on when first seen.
        searched: receptacles that have been looked into.
        open: receptacles that are known to be open.
        here: the receptacle gone to last.
        held: the thing in hand.
        treated: whether the thing in hand has been cleaned, heated or cooled as asked.
        delivered: things moved to where they have to get to.
    """

    def __init__(self) -> None:
        self.wish: Wish | None = None
        self.receptacles: list[str] = []
        self.lies: dict[str, str] = {}
        self.first: dict[str, str] = {}
        self.searched: set[str] = set()
        self.open: set[str] = set()
        self.here: str | None = None
        self.held: str | None = None
        self.treated = False
        self.delivered: set[str] = set()

    def begin(self, observation: str) -> None:
        """Read the opening text."""
        about = _TASK.search(observation)
        surroundings = observation[: about.start()] if about else observation
        self.receptacles = [" ".join(name) for name in _NAME.findall(surroundings.lower())]
        if about:
            self.wish = read_wish(about[1], {kind_of(name) for name in self.receptacles})

    def hear(self, command: str, observation: str) -> None:
        """Take in the answer to a command."""
        match = _COMMAND.fullmatch(command)
        if match is None:
            return
        verb, thing, place = match.groups()
        if observation.strip() == NOTHING_HAPPENS:
            self._hear_nothing(verb, thing)
        elif verb in ("go to", "open", "examine"):
            self._arrive(verb, thing, observation)
        elif verb == "take":
            self.held, self.treated = thing, False
            self.lies.pop(thing, None)
        elif verb in ("move", "put"):
            self._let_go(thing, place)
        elif verb in _STATION_OF and self.wish and verb == self.wish.verb:
            self.treated = True

    def is_shut(self, receptacle: str) -> bool:
        """Return whether it has to be opened to get in."""
        return kind_of(receptacle) in _OPENABLE and receptacle not in self.open

    def known(self, kind: str) -> list[str]:
        """Return the things of a kind whose place is known and that are still to be handled."""
        return [thing for thing in self.lies if kind_of(thing) == kind and thing not in self.delivered]

    def _hear_nothing(self, verb: str, thing: str) -> None:
        if verb == "go to" and thing in self.receptacles:
            # One cannot go to where one stands: it shares its standing place with the receptacle gone to last.
            self.here = thing
        elif verb == "take":
            self.lies.pop(thing, None)
        elif verb in ("open", "examine"):
            self.searched.add(thing)
            self.open.add(thing)

    def _arrive(self, verb: str, receptacle: str, observation: str) -> None:
        if receptacle not in self.receptacles:
            return
        self.here = receptacle
        if _CLOSED.search(observation):
            self.open.discard(receptacle)
            return
        self.open.add(receptacle)
        self.searched.add(receptacle)
        for name in map(" ".join, _NAME.findall(observation.lower())):
            if name not in self.receptacles:
                self.lies[name] = receptacle
                self.first.setdefault(name, receptacle)

    def _let_go(self, thing: str, place: str | None) -> None:
        self.held = None
        if place:
            self.lies[thing] = place
            if self.wish and kind_of(place) == self.wish.goal and (self.treated or not self.wish.verb):
                self.delivered.add(thing)


def kind_of(name: str) -> str:
    """Return the kind in a name.

    >>> kind_of("mug 2")
    'mug'
    """
    return name.partition(" ")[0]


def read_wish(sentence: str, receptacle_kinds: set[str]) -> Wish | None:
    """Return what a task sentence asks for, or None where it names no thing.

    >>> read_wish("put one clean mug on a desk.", {"desk", "shelf"})
    Wish(thing='mug', goal='desk', verb='clean', count=1)
    """
    words = re.findall(r"[a-z]+", sentence.lower())
    places = [word for word in words if word in receptacle_kinds or word.endswith("lamp")]
    things = [word for word in words if word not in _PLAIN_WORDS and word not in places]
    if not things:
        return None
    verb = next((verb for word, verb in _STATES if word in words), None)
    count = 2 if "two" in words or "another" in words else 1
    return Wish(things[0], places[-1] if places else None, verb, count)
