"""One game: its file's rules and texts put together, played by typing commands.

What lives here: names of things, admissible commands, restarts. What does not: where games come from (`gamefile.py`,
`generator.py`), and what a model reads around them (`env.py`). Plays to the letter as TextWorld's engine does; only
where a text asks about an atom that a conditional effect has changed, TextWorld may tell the opposite of what holds.
No text of the published games does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from metarl_agents.environments.alfworld.grammar import Grammar
from metarl_agents.environments.alfworld.pddl import Action, Problem, read_domain, read_problem
from metarl_agents.environments.alfworld.world import Memo, World

NOTHING_HAPPENS = "Nothing happens."
_SIGNS = (("_bar_", "|"), ("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ","))


@dataclass(frozen=True)
class GameFile:
    """What a `game.tw-pddl` file holds, as text."""

    domain: str
    problem: str
    grammar: str
    task_type: str
    """One of the six names of `tables.TASKS`."""
    walkthrough: tuple[str, ...] = ()
    """Commands that win; empty where the file brings none."""
    path: str = ""
    """Where it was read from; empty for a generated game."""


@dataclass(frozen=True)
class Script:
    """A game file, read: what all plays of it share."""

    actions: tuple[Action, ...]
    problem: Problem
    grammar: Grammar
    names: dict[str, str]
    """Thing -> its name in texts."""
    commands: dict[tuple[str, ...], str] = field(default_factory=dict)
    """(action, thing, ...) -> its command, filled as commands come up."""
    memo: Memo = field(default_factory=dict)
    """What holds in states met before, filled during play."""


@lru_cache(maxsize=32)
def read_script(game: GameFile) -> Script:
    """Read the texts of a game file; raises ValueError with a short reason where they make no game."""
    actions, problem, grammar = _domain(game.domain), read_problem(game.problem), _grammar(game.grammar)
    for action in actions:
        grammar.check_feedback(action.name)
    used = {thing for fact in problem.facts for thing in fact.args}
    if strange := sorted(used - set(problem.types)):
        raise ValueError(f"the initial state speaks of {strange[0]}, which is not declared")
    script = Script(actions, problem, grammar, display_names(used))
    Game(script).restart()
    return script


_domain = lru_cache(maxsize=8)(read_domain)
_grammar = lru_cache(maxsize=32)(Grammar)


def display_names(ids: Iterable[str]) -> dict[str, str]:
    """Return the name of each id: its kind, and a number that counts downwards in the order of the ids.

    An id is `kind_bar_x_bar_y_bar_z`; one that holds "basin" anywhere is of the kind with "basin" added. What has no
    "_bar_" (the agent, types) is called by its id and a blank.

    >>> display_names(["mug_bar_1", "mug_bar_2", "agent1"])
    {'agent1': 'agent1 ', 'mug_bar_1': 'mug 2', 'mug_bar_2': 'mug 1'}
    """
    kinds = {}
    for thing in sorted(ids):
        kind, bar, _ = thing.partition("_bar_")
        for code, sign in _SIGNS:
            kind = kind.replace(code, sign)
        kinds[thing] = kind + ("basin" if "basin" in thing else "") if bar else None
    left = Counter(kind for kind in kinds.values() if kind)
    names = {}
    for thing, kind in kinds.items():
        names[thing] = f"{kind} {left[kind]}" if kind else f"{thing} "
        left[kind] -= 1
    return names


class Game:
    """One play of a script.

    Attributes:
        admissible: the commands that do something now, sorted.
        won: whether the goal holds.
    """

    def __init__(self, script: Script):
        self._script = script
        self._world = World(script.actions, script.problem, script.memo)

    def restart(self) -> str:
        """Return to the initial state; return the opening text, which holds the task."""
        self._world.restart()
        self._look_around()
        return self._script.grammar.symbol("intro", {}, self._world, self._script.names)

    def play(self, command: str) -> str:
        """Do what a command says and return the answer; one that is not admissible changes nothing."""
        chosen = self._choices.get(command.strip())
        if chosen is None:
            return NOTHING_HAPPENS
        action, binding = chosen
        self._world.apply(action, binding)
        feedback = self._script.grammar.actions[action.name].feedback
        text = self._script.grammar.derive(feedback, _bare(binding), self._world, self._script.names)
        self._look_around()
        return text

    def _look_around(self) -> None:
        """Find out what can be typed now, and whether the game is won."""
        self._choices: dict[str, tuple[Action, dict[str, str]]] = {}
        for action, binding in self._world.applicable():
            self._choices.setdefault(self._command(action, binding), (action, binding))
        self.admissible = sorted(self._choices)
        self.won = self._world.won()

    def _command(self, action: Action, binding: dict[str, str]) -> str:
        key = (action.name, *binding.values())
        command = self._script.commands.get(key)
        if command is None:
            template = self._script.grammar.actions[action.name].template
            command = self._script.grammar.derive(template, _bare(binding), self._world, self._script.names)
            self._script.commands[key] = command
        return command


def _bare(binding: dict[str, str]) -> dict[str, str]:
    return {variable[1:]: thing for variable, thing in binding.items()}
