"""Rules and sentences of generated games: our own, or those of the installed `alfworld` package.

Both know the same commands with the same effects; the sentences differ. What lives here: the domain, the text
grammar and the goals. What does not: what is where (`generator.py`). Nothing of the package's text is kept here.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from metarl_agents.environments.alfworld.tables import STATIONS
from metarl_agents.errors import ConfigError

# Predicates are called as in the published games, so that one problem text serves either domain.
_DOMAIN = """\
(define (domain alfred)
  (:requirements :adl :typing)
  (:types agent location receptacle object rtype otype)
  (:predicates
    (atLocation ?who - agent ?l - location)
    (receptacleAtLocation ?r - receptacle ?l - location)
    (objectAtLocation ?o - object ?l - location)
    (openable ?r - receptacle)
    (opened ?r - receptacle)
    (inReceptacle ?o - object ?r - receptacle)
    (isReceptacleObject ?o - object)
    (receptacleType ?r - receptacle ?rt - rtype)
    (objectType ?o - object ?ot - otype)
    (canContain ?rt - rtype ?ot - otype)
    (holds ?who - agent ?o - object)
    (handsFull ?who - agent)
    (pickupable ?o - object)
    (toggleable ?o - object)
    (isToggled ?o - object)
    (cleanable ?o - object)
    (isClean ?o - object)
    (heatable ?o - object)
    (isHot ?o - object)
    (coolable ?o - object)
    (isCool ?o - object)
    (sliceable ?o - object)
    (isSliced ?o - object)
    (asked ?who - agent)
    (seen ?o - object)
    (visited ?r - receptacle))

  (:action look
    :parameters (?who - agent)
    :precondition ()
    :effect (asked ?who))
  (:action inventory
    :parameters (?who - agent)
    :precondition ()
    :effect (asked ?who))
  (:action help
    :parameters (?who - agent)
    :precondition ()
    :effect (asked ?who))

  (:action walk
    :parameters (?who - agent ?from - location ?to - location ?r - receptacle)
    :precondition (and (receptacleAtLocation ?r ?to) (atLocation ?who ?from))
    :effect (and (atLocation ?who ?to) (not (atLocation ?who ?from))))

  (:action inspect
    :parameters (?who - agent ?l - location ?r - receptacle)
    :precondition (and (receptacleAtLocation ?r ?l) (atLocation ?who ?l))
    :effect (visited ?r))
  (:action regard
    :parameters (?who - agent ?o - object)
    :precondition (holds ?who ?o)
    :effect (seen ?o))

  (:action unclose
    :parameters (?who - agent ?l - location ?r - receptacle)
    :precondition (and (atLocation ?who ?l) (receptacleAtLocation ?r ?l) (openable ?r) (not (opened ?r)))
    :effect (opened ?r))
  (:action shut
    :parameters (?who - agent ?l - location ?r - receptacle)
    :precondition (and (atLocation ?who ?l) (receptacleAtLocation ?r ?l) (opened ?r))
    :effect (not (opened ?r)))

  (:action grab
    :parameters (?who - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (not (handsFull ?who)) (atLocation ?who ?l) (receptacleAtLocation ?r ?l)
                       (inReceptacle ?o ?r) (pickupable ?o) (or (opened ?r) (not (openable ?r))))
    :effect (and (holds ?who ?o) (handsFull ?who) (not (inReceptacle ?o ?r)) (not (objectAtLocation ?o ?l))))
  (:action place
    :parameters (?who - agent ?l - location ?r - receptacle ?rt - rtype ?o - object ?ot - otype)
    :precondition (and (holds ?who ?o) (objectType ?o ?ot) (canContain ?rt ?ot) (receptacleType ?r ?rt)
                       (atLocation ?who ?l) (receptacleAtLocation ?r ?l) (or (opened ?r) (not (openable ?r))))
    :effect (and (inReceptacle ?o ?r) (objectAtLocation ?o ?l) (not (holds ?who ?o)) (not (handsFull ?who))))

  (:action wash
    :parameters (?who - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (holds ?who ?o) (cleanable ?o) (atLocation ?who ?l) (receptacleAtLocation ?r ?l)
                       (receptacleType ?r SinkBasinType))
    :effect (isClean ?o))
  (:action warm
    :parameters (?who - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (holds ?who ?o) (heatable ?o) (atLocation ?who ?l) (receptacleAtLocation ?r ?l)
                       (receptacleType ?r MicrowaveType))
    :effect (and (isHot ?o) (not (isCool ?o))))
  (:action chill
    :parameters (?who - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (holds ?who ?o) (coolable ?o) (atLocation ?who ?l) (receptacleAtLocation ?r ?l)
                       (receptacleType ?r FridgeType))
    :effect (and (isCool ?o) (not (isHot ?o))))

  (:action switch
    :parameters (?who - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (toggleable ?o) (inReceptacle ?o ?r) (receptacleAtLocation ?r ?l) (atLocation ?who ?l))
    :effect (isToggled ?o))
  (:action cut
    :parameters (?who - agent ?l - location ?o - object ?tool - object)
    :precondition (and (holds ?who ?tool) (or (objectType ?tool KnifeType) (objectType ?tool ButterKnifeType))
                       (sliceable ?o) (objectAtLocation ?o ?l) (atLocation ?who ?l))
    :effect (isSliced ?o)))
"""

_GRAMMAR = '''\
grammar :: """
{
  "intro": [{"rhs": "#surroundings#\\n\\nTask: GOAL."}],
  "surroundings": [
    {"condition": "atlocation(who:agent, l:location) & receptacleatlocation(r:receptacle, l:location)",
     "rhs": "You stand at #here#."},
    {"rhs": "You stand in a room and see #around#."}
  ],
  "here": [
    {"rhs": "[{r.name | atlocation(who:agent, l:location) & receptacleatlocation(r:receptacle, l:location)}]"}
  ],
  "around": [{"rhs": "[{r.indefinite + ' ' + r.name | receptacleatlocation(r:receptacle, l:location)}]"}],
  "inside": [
    {"condition": "openable(r:receptacle) & opened(r:receptacle)", "rhs": "{r.name} is open and holds #content#."},
    {"condition": "openable(r:receptacle)", "rhs": "{r.name} is shut."},
    {"rhs": "{r.name} holds #content#."}
  ],
  "content": [{"rhs": "[{o.indefinite + ' ' + o.name | inreceptacle(o:object, r:receptacle)}]"}],
  "warmth": [
    {"condition": "ishot(o:object)", "rhs": ", hot"},
    {"condition": "iscool(o:object)", "rhs": ", cold"},
    {"rhs": ""}
  ],
  "cleanness": [{"condition": "isclean(o:object)", "rhs": ", clean"}, {"rhs": ""}],
  "cut": [{"condition": "issliced(o:object)", "rhs": ", sliced"}, {"rhs": ""}],
  "hands": [
    {"rhs": "You hold [{o.indefinite + ' ' + o.name | holds(who:agent, o:object)}]."}
  ],
  "list_empty": [{"rhs": "nothing"}],
  "list_separator": [{"rhs": ", "}],
  "list_last_separator": [{"rhs": ", and "}]
}
""";

action look { template :: "look"; feedback :: "#surroundings#"; }
action inventory { template :: "inventory"; feedback :: "#hands#"; }
action help { template :: "help"; feedback :: "Commands are look, inventory, go to, examine, open, close, take from, \
move to, clean with, heat with, cool with, use, and slice with."; }
action walk { template :: "go to {r}"; feedback :: "You walk to {r.name}. #inside#"; }
action inspect { template :: "examine {r}"; feedback :: "#inside#"; }
action regard { template :: "examine {o}"; feedback :: "You look at {o.name}#warmth##cleanness##cut#."; }
action unclose { template :: "open {r}"; feedback :: "#inside#"; }
action shut { template :: "close {r}"; feedback :: "{r.name} is shut."; }
action grab { template :: "take {o} from {r}"; feedback :: "You hold {o.name} now, out of {r.name}."; }
action place { template :: "move {o} to {r}"; feedback :: "You leave {o.name} at {r.name}."; }
action wash { template :: "clean {o} with {r}"; feedback :: "{o.name} gets clean in {r.name}."; }
action warm { template :: "heat {o} with {r}"; feedback :: "{o.name} gets hot in {r.name}."; }
action chill { template :: "cool {o} with {r}"; feedback :: "{o.name} gets cold in {r.name}."; }
action switch { template :: "use {o}"; feedback :: "{o.name} is lit."; }
action cut { template :: "slice {o} with {tool}"; feedback :: "{o.name} gets sliced by {tool.name}."; }
'''

_GOALS = {
    "pick_and_place_simple": "bring {obj} to {recep}",
    "look_at_obj_in_light": "hold {obj} next to {toggle} that is lit",
    "pick_clean_then_place_in_recep": "clean {obj} and bring it to {recep}",
    "pick_heat_then_place_in_recep": "heat {obj} and bring it to {recep}",
    "pick_cool_then_place_in_recep": "cool {obj} and bring it to {recep}",
    "pick_two_obj_and_place": "bring {obj} and another {bare} to {recep}",
}


@dataclass(frozen=True)
class Rules:
    """What makes a game out of an arrangement of things."""

    domain: str
    grammar: Callable[[str], str]
    """Goal sentence -> grammar text."""
    sentences: Callable[[str], tuple[str, ...]]
    """Task type -> ways to say it, with the fields obj, recep, toggle (lower-case kinds)."""
    articles: bool
    """Whether the fields bring their article."""


def rules_named(name: str) -> Rules:
    """Return the rules called "own" or "alfworld".

    Raises:
        ConfigError: there are none of that name, or the package is not installed.
    """
    if name == "own":
        return Rules(_DOMAIN, lambda goal: _GRAMMAR.replace("GOAL", goal), lambda task: (_GOALS[task],), True)
    if name == "alfworld":
        return _installed()
    raise ConfigError(f'`rules` is "{name}", but ALFWorld games are made with "own" or "alfworld". Choose one of them.')


def goal_condition(task: str, obj: str, goal: str) -> str:
    """Return the PDDL goal of a task type.

    Args:
        task: one of `tables.TASKS`.
        obj: kind of the thing to be handled.
        goal: kind of the receptacle, or of the lamp in `look_at_obj_in_light`.
    """
    if task == "look_at_obj_in_light":
        return (
            f"(exists (?who - agent ?l - location ?lamp - object ?r - receptacle ?o - object) (and "
            f"(objectType ?lamp {goal}Type) (toggleable ?lamp) (isToggled ?lamp) (inReceptacle ?lamp ?r) "
            f"(receptacleAtLocation ?r ?l) (atLocation ?who ?l) (objectType ?o {obj}Type) (holds ?who ?o)))"
        )
    there = f"(objectType ?o {obj}Type) (inReceptacle ?o ?r) (receptacleType ?r {goal}Type)"
    if task == "pick_two_obj_and_place":
        second = there.replace("?o", "?other")
        return f"(exists (?r - receptacle ?o - object ?other - object) (and {there} {second} (not (= ?o ?other))))"
    state = STATIONS[task].state if task in STATIONS else ""
    return f"(exists (?r - receptacle ?o - object) (and {there}{f' ({state} ?o)' if state else ''}))"


@lru_cache(maxsize=1)
def _installed() -> Rules:
    """Read rules and sentences out of the installed package, without importing it.

    Importing it would create a folder in the home directory and set an environment variable.
    """
    spec = importlib.util.find_spec("alfworld")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    try:
        root = Path(roots[0])
        domain = (root / "data" / "alfred.pddl").read_text(encoding="utf-8")
        grammar = (root / "data" / "alfred.twl2").read_text(encoding="utf-8")
        loader = importlib.machinery.SourceFileLoader("alfworld_goals", str(root / "gen" / "goal_library.py"))
        goals = importlib.util.module_from_spec(importlib.util.spec_from_loader("alfworld_goals", loader))
        loader.exec_module(goals)
        sentences = {task: tuple(goals.gdict[task]["templates"]) for task in _GOALS}
    except (OSError, IndexError, KeyError, AttributeError):
        raise ConfigError(
            '`rules` is "alfworld", but the files of the package alfworld 0.4 are not installed. '
            'Install them with `make alfworld-files`, or use the rules "own", which need nothing.'
        ) from None
    return Rules(domain, lambda goal: grammar.replace("UNKNOWN GOAL", goal), sentences.__getitem__, False)
