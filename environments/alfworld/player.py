"""A scripted ALFWorld player: demonstrations for warm starts, a baseline, and a moving part for tests.

It reads the observation text and nothing else. It looks where the wanted thing could be, in random order, and its
remarks tell later attempts where things were. What does not live here: understanding the texts (`beliefs.py`).
"""

from __future__ import annotations

import re
from typing import Any

from metarl_agents.environments.alfworld.beliefs import Beliefs, Wish, kind_of
from metarl_agents.environments.alfworld.tables import LAMP_TOPS, LAMPS, THINGS

_FOUND = re.compile(r"\b([a-z]+ \d+) at ([a-z]+ \d+)")
_EMPTY = re.compile(r"\bno ([a-z]+) at ([^.]*)")
_NAME = re.compile(r"[a-z]+ \d+")
_HOLDERS = {kind.lower(): frozenset(known.holders.lower().split()) for kind, known in THINGS.items()}
_HOLDERS |= {lamp.lower(): frozenset(top.lower() for top in LAMP_TOPS) for lamp in LAMPS}
_MOST_NAMED = 12


class AlfworldPlayer:
    """Searches, carries and delivers; wanders off now and then, and may listen to its own remarks.

    Args:
        heed: probability of listening to the remarks, drawn once an episode.
        blunder: probability of going to any receptacle instead.
        sense: probability of common sense, drawn once an episode: looking where things of the kind usually are before
            looking elsewhere.
    """

    def __init__(self, heed: float = 0.8, blunder: float = 0.02, sense: float = 1.0):
        self.heed, self.blunder, self.sense = heed, blunder, sense
        self._is_sensible = True
        self._beliefs, self._last = Beliefs(), ""
        self._hints: dict[str, str] = {}
        self._barren: set[str] = set()
        self._order: list[str] = []

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin an attempt; with probability `heed`, look where the remarks say things are."""
        self._beliefs, self._last, self._order = Beliefs(), "", []
        heeds = rng.random() < self.heed
        self._is_sensible = self.sense >= 1 or rng.random() < self.sense
        self._hints, self._barren = read_remarks(remarks) if heeds else ({}, set())

    def act(self, observation: str, rng: Any) -> str:
        """Return the next command, as `<action>go to desk 1</action>`."""
        beliefs = self._beliefs
        if self._last:
            beliefs.hear(self._last, observation)
        else:
            beliefs.begin(observation)
            # Likely places first; among equals in random order.
            self._order = sorted(beliefs.receptacles, key=lambda _: rng.random())
        wanders = rng.random() < self.blunder and beliefs.receptacles
        place = beliefs.receptacles[int(rng.random() * len(beliefs.receptacles))] if wanders else None
        self._last = f"go to {place}" if place else self._choose()
        return f"<action>{self._last}</action>"

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return where things that matter were, or where they were not: `<remark>mug 2 at desk 1.</remark>`."""
        beliefs = reread(episode)
        wish = beliefs.wish
        if wish is None:
            return "<remark>look around first.</remark>"
        kinds = [wish.thing] + ([wish.goal] if wish.is_look and wish.goal else [])
        found = [f"{thing} at {place}" for thing, place in beliefs.first.items() if kind_of(thing) in kinds]
        seen = {kind_of(thing) for thing in beliefs.first}
        barren = ", ".join(name for name in beliefs.receptacles if name in beliefs.searched)
        missing = [f"no {kind} at {barren}" for kind in kinds if kind not in seen and barren]
        said = [*found[:_MOST_NAMED], *missing] or ["look around first"]
        return f"<remark>{'. '.join(said)}.</remark>"

    def _choose(self) -> str:
        beliefs, wish = self._beliefs, self._beliefs.wish
        if wish is None:
            return "look"
        if beliefs.held is None:
            return self._fetch(wish.thing, "take {thing} from {place}")
        if kind_of(beliefs.held) != wish.thing:
            return self._visit(self._order, kind=None) or "look"
        if wish.is_look and wish.goal:
            return self._fetch(wish.goal, "use {thing}")
        return self._deliver(wish)

    def _deliver(self, wish: Wish) -> str:
        """Return the next command with the wanted thing in hand."""
        beliefs = self._beliefs
        treats = wish.station is not None and not beliefs.treated
        kind = wish.station if treats else wish.goal
        places = [name for name in beliefs.receptacles if kind_of(name) == kind]
        # Both things of a pair have to get to the same receptacle.
        used = [beliefs.lies[thing] for thing in sorted(beliefs.delivered) if thing in beliefs.lies]
        place = next(iter(used if used and not treats else places), None)
        if place is None:
            return "inventory"
        if beliefs.here != place:
            return f"go to {place}"
        if treats:
            return f"{wish.verb} {beliefs.held} with {place}"
        return f"open {place}" if beliefs.is_shut(place) else f"move {beliefs.held} to {place}"

    def _fetch(self, kind: str, command: str) -> str:
        """Return the next command towards a thing of a kind: get to it, or search for it."""
        beliefs = self._beliefs
        known = beliefs.known(kind)
        if known:
            # What is here comes first, so that nothing is passed by.
            thing = min(known, key=lambda name: beliefs.lies[name] != beliefs.here)
            place = beliefs.lies[thing]
            if beliefs.here != place:
                return f"go to {place}"
            if beliefs.is_shut(place) and not command.startswith("use"):
                return f"open {place}"
            return command.format(thing=thing, place=place)
        hinted = [place for thing, place in self._hints.items() if kind_of(thing) == kind]
        return self._visit([*hinted, *self._order], kind) or "look"

    def _visit(self, places: list[str], kind: str | None) -> str | None:
        """Return the next command of a search: open what is shut here, or go on to a place not yet searched."""
        beliefs = self._beliefs
        here = beliefs.here
        if here is not None and here not in beliefs.searched:
            return f"open {here}" if beliefs.is_shut(here) else f"examine {here}"
        left = [name for name in places if name not in beliefs.searched and name in beliefs.receptacles]
        if not left:
            # All has been searched without success: go round once more.
            beliefs.searched.clear()
            left = [name for name in places if name != here]
        hinted = set(self._hints.values())
        homes = _HOLDERS.get(kind or "", frozenset())
        best = min(left, key=lambda name: self._rank(name, kind, hinted, homes), default=None)
        return f"go to {best}" if best else None

    def _rank(self, name: str, kind: str | None, hinted: set[str], homes: frozenset[str]) -> tuple[bool, bool, bool]:
        # What lies where it has to get to would hardly be asked for.
        wish = self._beliefs.wish
        likely = (not homes or kind_of(name) in homes) and (wish is None or kind_of(name) != wish.goal)
        likely = likely or not self._is_sensible
        return name not in hinted, f"{kind}/{name}" in self._barren, not likely


def read_remarks(remarks: list[str]) -> tuple[dict[str, str], set[str]]:
    """Return (thing -> place, "kind/place" where none of the kind was) that remarks name.

    >>> read_remarks(["mug 2 at desk 1. no desklamp at shelf 1, shelf 2."])[0]
    {'mug 2': 'desk 1'}
    """
    hints: dict[str, str] = {}
    barren: set[str] = set()
    for remark in remarks:
        lowered = remark.lower()
        hints.update(_FOUND.findall(lowered))
        for kind, places in _EMPTY.findall(lowered):
            barren |= {f"{kind}/{place}" for place in _NAME.findall(places)}
    return hints, barren


def reread(episode: Any) -> Beliefs:
    """Return what a finished `Episode` tells, read again from its start."""
    beliefs = Beliefs()
    beliefs.begin(episode.initial_observation)
    answers = [turn.observation for turn in episode.turns[1:]] + [episode.final_observation]
    for turn, answer in zip(episode.turns, answers, strict=False):  # an episode without turns has an answer to spare
        beliefs.hear(turn.shown_action, answer)
    return beliefs
