"""Read the part of PDDL that game files use: typed actions, problems, and/or/not/exists, conditional effects.

What lives here: text to frozen data. What does not: what holds and what happens (`world.py`). All names are
lower-cased, as planners do. Types are flat: a thing has exactly the type it is declared with. Source of the format:
Fox and Long, "PDDL2.1", JAIR 20, 2003. Everything raises ValueError with a short reason for text that is not that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_COMMENT = re.compile(r";[^\n]*")
_TOKEN = re.compile(r"[()]|[^\s()]+")

Tree = list  # of str and Tree
Variables = tuple[tuple[str, str], ...]
"""(name, type) pairs."""


@dataclass(frozen=True)
class Atom:
    """`(predicate arg ...)`; an argument that begins with "?" is a variable."""

    predicate: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    """True where `body` does not hold."""

    body: Formula
    variables: tuple[str, ...]
    """The variables of `body` that it does not bind itself."""


@dataclass(frozen=True)
class And:
    """All parts at once; no parts means always true."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Or:
    """Any of the parts."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Exists:
    """Some things of these types make `body` true."""

    variables: Variables
    body: Formula


Formula = Atom | Not | And | Or | Exists


@dataclass(frozen=True)
class Effect:
    """What an action does to one atom."""

    atom: Atom
    adds: bool
    """False where the atom becomes false."""
    condition: Formula | None
    """None means always."""


@dataclass(frozen=True)
class Action:
    """One action with variables."""

    name: str
    parameters: Variables
    precondition: Formula
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Problem:
    """One initial state and what is to be reached."""

    types: dict[str, str]
    """Thing -> type, in the order of declaration."""
    facts: tuple[Atom, ...]
    goal: Formula


def read_domain(text: str) -> tuple[Action, ...]:
    """Return the actions of a domain."""
    actions = []
    for part in _sections(text):
        if part[0] == ":action":
            if len(part) % 2 or not all(isinstance(name, str) for name in [part[1], *part[2::2]]):
                raise ValueError(f"the action {str(part[1:2])[:60]} is malformed")
            fields = dict(zip(part[2::2], part[3::2], strict=True))
            try:
                parameters, effect = fields[":parameters"], fields[":effect"]
            except KeyError as missing:
                raise ValueError(f"the action {part[1]} has no {missing.args[0]}") from None
            precondition = _formula(fields.get(":precondition", []))
            actions.append(Action(part[1], _typed(parameters), precondition, tuple(_effects(effect, None))))
    if not actions:
        raise ValueError("the domain has no actions")
    return tuple(actions)


def read_problem(text: str) -> Problem:
    """Return objects, initial facts and goal of a problem; numeric facts are left out."""
    sections = {part[0]: part[1:] for part in _sections(text)}
    for name in (":objects", ":init", ":goal"):
        if not sections.get(name):
            raise ValueError(f"the problem has no {name}")
    facts = [_formula(fact) for fact in sections[":init"] if fact and fact[0] != "="]
    if not all(isinstance(fact, Atom) for fact in facts):
        raise ValueError("the initial state holds something that is not a plain fact")
    return Problem(dict(_typed(sections[":objects"])), tuple(facts), _formula(sections[":goal"][0]))


def _sections(text: str) -> list[Tree]:
    """Return the parts of `(define part ...)`."""
    stack: list[Tree] = [[]]
    for token in _TOKEN.findall(_COMMENT.sub("", text).lower()):
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) > 1:
            closed = stack.pop()
            stack[-1].append(closed)
        else:
            raise ValueError("a closing parenthesis too many")
    if len(stack) > 1:
        raise ValueError("a parenthesis is never closed")
    definitions = [tree for tree in stack[0] if isinstance(tree, list)]
    if not definitions or definitions[0][:1] != ["define"]:
        raise ValueError("it does not begin with (define ...)")
    return [part for part in definitions[0][1:] if isinstance(part, list) and part and isinstance(part[0], str)]


def _typed(tokens: Iterable) -> Variables:
    """Return the (name, type) pairs of `a b - t c`; what has no type is an "object"."""
    pairs: list[tuple[str, str]] = []
    waiting: list[str] = []
    rest = iter(tokens)
    for token in rest:
        if not isinstance(token, str):
            raise ValueError("a list of names holds a parenthesis")
        if token == "-":
            kind = next(rest, None)
            if not isinstance(kind, str):
                raise ValueError("a list of names ends with a dash")
            pairs += [(name, kind) for name in waiting]
            waiting = []
        else:
            waiting.append(token)
    return tuple(pairs + [(name, "object") for name in waiting])


def _formula(tree: Tree | str) -> Formula:
    if isinstance(tree, str) or (tree and not isinstance(tree[0], str)):
        raise ValueError(f"a condition is expected, but {str(tree)[:60]} came")
    if not tree:
        return And(())
    head, parts = tree[0], tree[1:]
    if head in ("and", "or"):
        return (And if head == "and" else Or)(tuple(_formula(part) for part in parts))
    if head == "not" and len(parts) == 1:
        body = _formula(parts[0])
        return Not(body, tuple(sorted(_open_variables(body))))
    if head == "exists" and len(parts) == 2:
        return Exists(_typed(parts[0]), _formula(parts[1]))
    if head in ("not", "exists", "forall", "imply", "when"):
        raise ValueError(f"the condition ({head} ...) is malformed or not supported")
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(f"the fact ({head} ...) holds a parenthesis")
    return Atom(head, tuple(parts))


def _open_variables(formula: Formula) -> set[str]:
    if isinstance(formula, Atom):
        return {arg for arg in formula.args if arg[0] == "?"}
    if isinstance(formula, Not):
        return set(formula.variables)
    if isinstance(formula, Exists):
        return _open_variables(formula.body) - {name for name, _ in formula.variables}
    return {name for part in formula.parts for name in _open_variables(part)}


def _effects(tree: Tree | str, condition: Formula | None) -> Iterable[Effect]:
    """Yield effects one by one; costs are left out."""
    if not tree or tree[0] == "increase":
        return
    if tree[0] == "and":
        for part in tree[1:]:
            yield from _effects(part, condition)
    elif tree[0] == "when" and len(tree) == 3 and condition is None:
        yield from _effects(tree[2], _formula(tree[1]))
    else:
        effect = _formula(tree)
        atom = effect.body if isinstance(effect, Not) else effect
        if not isinstance(atom, Atom):
            raise ValueError(f"the effect ({tree[0]} ...) is malformed or not supported")
        yield Effect(atom, not isinstance(effect, Not), condition)
