"""Text grammars of game files: command templates, feedback, and rules with conditions, expanded over a world.

What lives here: reading a grammar and deriving a text from it. What does not: what holds (`world.py`). Nothing of a
game file is ever run as code: expressions know four attributes, quoted text, "+" and "or", and no more.

A rule's right-hand side is made of plain text, `#symbol#`, `{expression}`, `{expression | facts}` (once per match,
joined without separator) and `[{expression | facts}]` (the matches as a list in words). Raises ValueError with a short
reason for text that is not that. Source of the format: Côté et al., "TextWorld", arXiv 1806.11532, PDDL games.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from metarl_agents.environments.alfworld.world import World

_TOKEN = re.compile(r'"""(?P<block>.*?)"""|"(?P<text>[^"]*)"|(?P<word>[\w/-]+)|(?P<end>\})|#[^\n]*', re.DOTALL)
_PIECE = re.compile(
    r"""\[\{(?P<listed>[^{}|]+)(?:\|(?P<listed_facts>[^{}]*))?\}\]
      | \{(?P<value>[^{}|]+)(?:\|(?P<value_facts>[^{}]*))?\}
      | \#(?P<symbol>[\w()/!<>\-\s,.]+)\#
      | "(?P<quoted>[^;|"<>\[\]\#{}]*)"
      | (?P<text>[^;|"<>\[\]\#{}]+)""",
    re.VERBOSE,
)
_FACT = re.compile(r"(\w+)\(([^()]*)\)")
_TERM = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([A-Za-z_]\w*)(?:\.(name|id|indefinite|definite))?)\s*""")
_LIST_SYMBOLS = ("list_empty", "list_separator", "list_last_separator")
_ARTICLES = {"indefinite": "a", "definite": "the"}

Fact = tuple[str, tuple[tuple[str, str], ...]]
"""(predicate, ((variable, type), ...)); "not_p" asks for atoms of p that an effect has denied."""
Binding = Mapping[str, str]
"""Variable, without question mark -> thing."""


@dataclass(frozen=True)
class Symbol:
    """Stands for the right-hand side of its first rule whose condition holds."""

    name: str


@dataclass(frozen=True)
class Value:
    """A text from the things bound; the terms are (literal) or (variable, attribute)."""

    terms: tuple[tuple[str, ...], ...] | Symbol
    facts: tuple[Fact, ...]
    listed: bool


Piece = str | Symbol | Value


@dataclass(frozen=True)
class Rule:
    """One right-hand side with its condition; no facts mean always."""

    condition: tuple[Fact, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ActionText:
    """How an action is typed, and what it answers."""

    template: tuple[Piece, ...]
    feedback: tuple[Piece, ...]


class Grammar:
    """The texts of one game file.

    Attributes:
        actions: action name in lower case -> its texts.
    """

    def __init__(self, source: str):
        fields, blocks = _declarations(source)
        self.actions: dict[str, ActionText] = {}
        for action, texts in fields.items():
            if not {"template", "feedback"} <= set(texts):
                raise ValueError(f"the text of the action {action} lacks a template or a feedback")
            self.actions[action.lower()] = ActionText(_pieces(texts["template"]), _pieces(texts["feedback"]))
        self._rules: dict[str, list[Rule]] = {}
        for block in blocks:
            lines = textwrap.dedent(block).split("\n")
            for name, rules in _json_rules("\n".join(line for line in lines if not line.lstrip().startswith("#"))):
                self._rules[name] = [Rule(_facts(rule.get("condition", "")), _pieces(rule["rhs"])) for rule in rules]
        self._check((Symbol("intro"),), ())
        for texts in self.actions.values():
            self._check(texts.template, ())

    def check_feedback(self, action: str) -> None:
        """Raise ValueError where typing `action`, or answering it, has no complete text."""
        if action not in self.actions:
            raise ValueError(f"the action {action} has no text")
        self._check(self.actions[action].feedback, ())

    def derive(self, pieces: tuple[Piece, ...], binding: Binding, world: World, names: Mapping[str, str]) -> str:
        """Return the text of `pieces`.

        Args:
            pieces: a template or a feedback.
            binding: variable -> thing.
            world: where conditions are looked up.
            names: thing -> its name in texts.
        """
        return "".join(self._text(piece, binding, world, names) for piece in pieces)

    def symbol(self, name: str, binding: Binding, world: World, names: Mapping[str, str]) -> str:
        """Return the text of the first rule of `name` whose condition holds."""
        for rule in self._rules[name]:
            if not rule.condition or next(_matches(rule.condition, binding, world), None) is not None:
                return self.derive(rule.pieces, binding, world, names)
        raise ValueError(f"no rule of the text {name} applies")

    def _text(self, piece: Piece, binding: Binding, world: World, names: Mapping[str, str]) -> str:
        if isinstance(piece, str):
            return piece
        if isinstance(piece, Symbol):
            return self.symbol(piece.name, binding, world, names)
        bindings = _matches(piece.facts, binding, world) if piece.facts else (binding,)
        if isinstance(piece.terms, Symbol):
            texts = [self.symbol(piece.terms.name, bound, world, names) for bound in bindings]
        else:
            texts = ["".join(_value(term, bound, names) for term in piece.terms) for bound in bindings]
        if not piece.listed:
            return "".join(texts)
        if len(texts) < 2:
            return texts[0] if texts else self.symbol("list_empty", binding, world, names)
        separator, last = (self.symbol(name, binding, world, names) for name in _LIST_SYMBOLS[1:])
        return separator.join(texts[:-1]) + last + texts[-1]

    def _check(self, pieces: tuple[Piece, ...], above: tuple[str, ...]) -> None:
        """Raise ValueError where a text is missing, or made of itself."""
        for piece in pieces:
            if isinstance(piece, str):
                continue
            named = [piece.name] if isinstance(piece, Symbol) else []
            if isinstance(piece, Value):
                named += [piece.terms.name] if isinstance(piece.terms, Symbol) else []
                named += _LIST_SYMBOLS if piece.listed else []
            for name in named:
                if name not in self._rules:
                    raise ValueError(f"the text {name} is missing")
                if name in above:
                    raise ValueError(f"the text {name} is made of itself")
                for rule in self._rules[name]:
                    self._check(rule.pieces, (*above, name))


def _declarations(source: str) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return (action -> field -> quoted text, blocks of rules)."""
    fields: dict[str, dict[str, str]] = {}
    blocks: list[str] = []
    action, word = None, ""
    for token in _TOKEN.finditer(source):
        if token["word"]:
            if word == "action" and action is None:
                action = token["word"]
                fields[action] = {}
            word = token["word"]
        elif token["block"] is not None and word == "grammar":
            blocks.append(token["block"])
        elif token["text"] is not None and action is not None:
            fields[action][word] = token["text"]
        elif token["end"]:
            action = None
    return fields, blocks


def _json_rules(text: str) -> list[tuple[str, list[dict[str, str]]]]:
    try:
        rules = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"a block of the grammar is not JSON ({error})") from None
    for name, alternatives in rules.items() if isinstance(rules, dict) else [("grammar", None)]:
        good = isinstance(alternatives, list) and all(
            isinstance(rule, dict) and isinstance(rule.get("rhs"), str) and isinstance(rule.get("condition", ""), str)
            for rule in alternatives
        )
        if not good:
            raise ValueError(f"the text {name} is not a list of rules")
    return list(rules.items())


def _pieces(text: str) -> tuple[Piece, ...]:
    """Read a right-hand side; blank space in front and all after a sign that cannot stand there is left out."""
    text = text.replace("\\n", "\n").lstrip()
    pieces: list[Piece] = []
    at = 0
    while match := _PIECE.match(text, at):
        at = match.end()
        listed = match["listed"] is not None
        if listed or match["value"] is not None:
            facts = match["listed_facts"] if listed else match["value_facts"]
            pieces.append(Value(_terms(match["listed"] if listed else match["value"]), _facts(facts or ""), listed))
        elif match["symbol"] is not None:
            pieces.append(Symbol(match["symbol"]))
        else:
            pieces.append(match["quoted"] if match["quoted"] is not None else match["text"])
    return tuple(pieces)


def _facts(text: str) -> tuple[Fact, ...]:
    facts = []
    for predicate, args in _FACT.findall(text):
        pairs = tuple(tuple(part.strip() for part in arg.split(":")) for arg in args.split(","))
        if not all(len(pair) == 2 for pair in pairs):
            raise ValueError(f"the condition {predicate}({args}) has an argument without a type")
        facts.append((predicate, pairs))
    if not facts and text.strip():
        raise ValueError(f'the condition "{text.strip()}" cannot be read')
    return tuple(facts)


def _terms(expression: str) -> tuple[tuple[str, ...], ...] | Symbol:
    """Read an expression. Every thing has a name, so of `a or b` the first part alone counts."""
    expression = expression.strip()
    if expression.startswith("#"):
        return Symbol(expression.strip("#"))
    terms: list[tuple[str, ...]] = []
    at, either = 0, False
    while match := _TERM.match(expression, at):
        quoted = match[1] if match[1] is not None else match[2]
        if not either:
            terms.append((quoted,) if quoted is not None else (match[3], match[4] or "name"))
        at = match.end()
        if at == len(expression):
            return tuple(terms)
        if expression.startswith("or ", at):
            at, either = at + 3, True
        elif expression[at] == "+":
            at += 1
        else:
            break
    raise ValueError(f"the expression {{{expression}}} is not one that texts may use")


def _value(term: tuple[str, ...], binding: Binding, names: Mapping[str, str]) -> str:
    if len(term) == 1:
        return term[0]
    variable, attribute = term
    if variable not in binding:
        raise ValueError(f"a text uses {{{variable}}}, which stands for nothing there")
    return _ARTICLES.get(attribute) or names[binding[variable]]


def _matches(facts: tuple[Fact, ...], binding: Binding, world: World, done: int = 0) -> Iterator[Binding]:
    """Yield the extensions of `binding` under which all facts hold, different variables being different things."""
    if done == len(facts):
        yield binding
        return
    predicate, args = facts[done]
    for row in sorted(_rows(predicate, args, binding, world)):
        if len(row) != len(args):
            raise ValueError(f"{predicate} has {len(row)} arguments in a fact, {len(args)} in a text")
        extended = dict(binding)
        for (variable, kind), thing in zip(args, row, strict=True):
            if world.types.get(thing) != kind:
                break
            if variable in extended:
                if extended[variable] != thing:
                    break
            elif thing in extended.values():
                break
            else:
                extended[variable] = thing
        else:
            yield from _matches(facts, extended, world, done + 1)


def _rows(predicate: str, args: tuple[tuple[str, str], ...], binding: Binding, world: World):
    if predicate.startswith("not_"):
        return world.facts.denied.get(predicate[4:], ())
    known = {f"?{variable}": thing for variable, thing in binding.items()}
    return world.facts.candidates(predicate, [f"?{variable}" for variable, _ in args], known)
