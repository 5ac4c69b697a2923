"""What holds in a world and what its actions do: facts, queries over them, applicable actions, effects.

What lives here: closed-world logic over the data of `pddl.py`. What does not: names and sentences (`grammar.py`).
A binding is a dict variable -> thing. Read first: `World.applicable`, then `World.solve`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from metarl_agents.environments.alfworld.pddl import Action, And, Atom, Exists, Formula, Not, Or, Problem

Things = tuple[str, ...]
Binding = dict[str, str]
_LAST = 1 << 30
_MEMO_SIZE = 1024
_NOTHING: frozenset[Things] = frozenset()


class Facts:
    """The atoms that hold, indexed by predicate and by argument; and those that an effect has denied.

    Attributes:
        denied: predicate -> argument tuples that an effect made false, whether or not they had been true.
    """

    def __init__(self, atoms: Iterable[Atom]):
        self._rows: dict[str, set[Things]] = defaultdict(set)
        self._index: dict[tuple[str, int, str], set[Things]] = defaultdict(set)
        self.denied: dict[str, set[Things]] = defaultdict(set)
        self._snapshots: dict[str, frozenset[Things]] = {}
        for atom in atoms:
            self.add(atom.predicate, atom.args)

    def rows(self, predicate: str) -> Collection[Things]:
        """Return the argument tuples for which `predicate` holds."""
        return self._rows.get(predicate, _NOTHING)

    def snapshot(self, predicate: str) -> frozenset[Things]:
        """Return the same as `rows`, never to change."""
        snapshot = self._snapshots.get(predicate)
        if snapshot is None:
            snapshot = self._snapshots[predicate] = frozenset(self.rows(predicate))
        return snapshot

    def candidates(self, predicate: str, args: Sequence[str], binding: Mapping[str, str]) -> Collection[Things]:
        """Return a small set of tuples that holds every match of `args` under `binding`."""
        best = self._rows.get(predicate, _NOTHING)
        for place, arg in enumerate(args):
            value = binding.get(arg) if arg[0] == "?" else arg
            if value is not None:
                rows = self._index.get((predicate, place, value), _NOTHING)
                if len(rows) < len(best):
                    best = rows
        return best

    def add(self, predicate: str, args: Things) -> None:
        """Make an atom true."""
        self.denied[predicate].discard(args)
        if args not in self._rows[predicate]:
            self._rows[predicate].add(args)
            self._snapshots.pop(predicate, None)
            for place, value in enumerate(args):
                self._index[predicate, place, value].add(args)

    def deny(self, predicate: str, args: Things) -> None:
        """Make an atom false."""
        self.denied[predicate].add(args)
        if args in self._rows[predicate]:
            self._rows[predicate].discard(args)
            self._snapshots.pop(predicate, None)
            for place, value in enumerate(args):
                self._index[predicate, place, value].discard(args)


Memo = dict[tuple[Any, ...], Any]
"""(action name, what holds of each predicate it asks for) -> what was found; for any play of one problem."""


class World:
    """The state of one game, with the actions of its domain.

    Args:
        actions: of the domain.
        problem: initial state and goal.
        memo: shared by plays of the same problem, so that a state met before costs next to nothing.

    Attributes:
        types: thing -> type.
        facts: what holds now.
    """

    def __init__(self, actions: Sequence[Action], problem: Problem, memo: Memo):
        self.types = problem.types
        self._problem, self._memo = problem, memo
        self._of_type: dict[str, list[str]] = defaultdict(list)
        for thing, kind in problem.types.items():
            self._of_type[kind].append(thing)
        self._actions = [(action, tuple(sorted(_predicates(action.precondition)))) for action in actions]
        self._goal_predicates = tuple(sorted(_predicates(problem.goal)))
        self.restart()

    def restart(self) -> None:
        """Return to the initial state."""
        self.facts = Facts(self._problem.facts)

    def won(self) -> bool:
        """Return whether the goal holds."""
        key = (":goal", *map(self.facts.snapshot, self._goal_predicates))
        won = self._memo.get(key)
        if won is None:
            won = self._holds(self._problem.goal, {}, {})
            self._keep(key, won)
        return won

    def applicable(self) -> Iterator[tuple[Action, Binding]]:
        """Yield every action that can be done now, its parameters bound in the order of declaration.

        Actions that can change nothing (going where one stands) are left out, as planners leave them out.
        """
        for action, predicates in self._actions:
            key = (action.name, *map(self.facts.snapshot, predicates))
            bindings = self._memo.get(key)
            if bindings is None:
                bindings = self._bindings(action)
                self._keep(key, bindings)
            for binding in bindings:
                yield action, binding

    def _keep(self, key: tuple[Any, ...], found: Any) -> None:
        if len(self._memo) >= _MEMO_SIZE:
            self._memo.clear()
        self._memo[key] = found

    def apply(self, action: Action, binding: Binding) -> None:
        """Do an action: its conditions look at the state before, and what it adds wins over what it denies."""
        types = dict(action.parameters)
        due = [e for e in action.effects if e.condition is None or self._holds(e.condition, binding, types)]
        for effect in due:
            if not effect.adds:
                self.facts.deny(effect.atom.predicate, _ground(effect.atom, binding))
        for effect in due:
            if effect.adds:
                self.facts.add(effect.atom.predicate, _ground(effect.atom, binding))

    def solve(self, formula: Formula, binding: Binding, types: Mapping[str, str]) -> Iterator[Binding]:
        """Yield every way to extend `binding` so that `formula` holds; one way may come more than once.

        Args:
            formula: what is to hold.
            binding: what is bound already.
            types: variable -> the type it is declared with.
        """
        if isinstance(formula, Atom):
            yield from self._match(formula, binding, types)
        elif isinstance(formula, And):
            yield from self._solve_all(list(formula.parts), binding, types)
        elif isinstance(formula, Or):
            for part in formula.parts:
                yield from self.solve(part, binding, types)
        elif isinstance(formula, Exists):
            yield from self._solve_inside(formula, binding, types)
        else:
            loose = [(name, types[name]) for name in formula.variables if name not in binding and name in types]
            for full in self._completed(loose, binding) if loose else (binding,):
                if not self._holds(formula.body, full, types):
                    yield full

    def _holds(self, formula: Formula, binding: Binding, types: Mapping[str, str]) -> bool:
        return next(self.solve(formula, binding, types), None) is not None

    def _match(self, atom: Atom, binding: Binding, types: Mapping[str, str]) -> Iterator[Binding]:
        args = atom.args
        if atom.predicate == "=":
            if len({binding.get(arg, arg) for arg in args}) == 1:
                yield binding
            return
        for row in self.facts.candidates(atom.predicate, args, binding):
            if len(row) != len(args):
                raise ValueError(f"{atom.predicate} has {len(row)} arguments in a fact, {len(args)} in a condition")
            extended = binding
            for arg, value in zip(args, row, strict=True):
                known = extended.get(arg) if arg[0] == "?" else arg
                if known is None:
                    if self.types.get(value) != types.get(arg):
                        break
                    extended = {**extended, arg: value}
                elif known != value:
                    break
            else:
                yield extended

    def _solve_all(self, parts: list[Formula], binding: Binding, types: Mapping[str, str]) -> Iterator[Binding]:
        """Solve a conjunction: the atom with the fewest candidates first, negations last."""
        if not parts:
            yield binding
            return
        chosen, fewest = 0, None
        for number, part in enumerate(parts):
            if isinstance(part, Atom):
                # An equation binds nothing, so it waits for the facts that do.
                equation = part.predicate == "="
                count = _LAST if equation else len(self.facts.candidates(part.predicate, part.args, binding))
                if fewest is None or count < fewest:
                    chosen, fewest = number, count
        if fewest is None:
            chosen = min(range(len(parts)), key=lambda number: isinstance(parts[number], Not))
        rest = parts[:chosen] + parts[chosen + 1 :]
        for extended in self.solve(parts[chosen], binding, types):
            yield from self._solve_all(rest, extended, types)

    def _solve_inside(self, formula: Exists, binding: Binding, types: Mapping[str, str]) -> Iterator[Binding]:
        # A type without things makes it false, whatever the body says. Some domains declare "location," with a
        # stray comma, and their games are known with the meaning that this gives them.
        if not all(self._of_type.get(kind) for _, kind in formula.variables):
            return
        own = {name for name, _ in formula.variables}
        outer = {name: value for name, value in binding.items() if name not in own}
        for extended in self.solve(formula.body, outer, {**types, **dict(formula.variables)}):
            inner = {name: value for name, value in extended.items() if name not in own}
            yield {**inner, **{name: value for name, value in binding.items() if name in own}}

    def _bindings(self, action: Action) -> list[Binding]:
        types, may_be_idle = dict(action.parameters), _may_change_nothing(action)
        found: dict[Things, Binding] = {}
        for partial in self.solve(action.precondition, {}, types):
            for full in self._completed(action.parameters, partial):
                key = tuple(full[name] for name in types)
                if key not in found and not (may_be_idle and _changes_nothing(action, full)):
                    found[key] = dict(zip(types, key, strict=True))
        return list(found.values())

    def _completed(self, variables: Iterable[tuple[str, str]], binding: Binding) -> list[Binding]:
        """Return `binding` with each of the variables that it leaves open bound to every thing of its type."""
        bindings = [binding]
        for name, kind in variables:
            if name not in binding:
                bindings = [{**begun, name: thing} for begun in bindings for thing in self._of_type.get(kind, ())]
        return bindings


def _ground(atom: Atom, binding: Mapping[str, str]) -> Things:
    return tuple(binding.get(arg, arg) for arg in atom.args)


def _predicates(formula: Formula) -> set[str]:
    if isinstance(formula, Atom):
        return {formula.predicate}
    parts = formula.parts if isinstance(formula, (And, Or)) else (formula.body,)
    return {predicate for part in parts for predicate in _predicates(part)}


def _may_change_nothing(action: Action) -> bool:
    """Return False where some effect adds an atom of a predicate that is not required beforehand."""
    required = {part.predicate for part in _required(action)}
    return all(effect.atom.predicate in required for effect in action.effects if effect.adds)


def _changes_nothing(action: Action, binding: Mapping[str, str]) -> bool:
    """Return whether what it adds is all required beforehand, and what it denies is all added back."""
    before = {(part.predicate, _ground(part, binding)) for part in _required(action)}
    added, denied = (
        {(effect.atom.predicate, _ground(effect.atom, binding)) for effect in action.effects if effect.adds is adds}
        for adds in (True, False)
    )
    return added <= before and denied <= added


def _required(action: Action) -> list[Atom]:
    condition = action.precondition
    return [
        part for part in (condition.parts if isinstance(condition, And) else (condition,)) if isinstance(part, Atom)
    ]
