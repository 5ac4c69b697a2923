"""The contract of `Environment` as a check you can run: `check_environment(MyEnv)`.

It plays every seed once, then plays the same actions again under changed circumstances (a second object, `restart`,
other states of the global random generators, another object that plays in between) and compares. The rollout relies on
nothing that is not checked here. Read first: `check_environment`, from top to bottom.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from metarl_agents.envs.neighbours import check_neighbours
from metarl_agents.envs.probing import Record, begin, checked_step, play, shown, visible
from metarl_agents.envs.splits import SPLITS
from metarl_agents.envs.wording import Wording
from metarl_agents.errors import EnvironmentContractError
from metarl_agents.expect import expect_builder, expect_count, expect_list, wrong

_METHODS = ("describe", "reset", "restart", "parse_action", "step")

_FUZZ = (
    "",
    " ",
    "\x00",
    "no tag at all",
    "<action>",
    "</action>",
    "<action></action>",
    "</action>up<action>",
    "<action>up</action> <action>down</action>",
    "<action><action>up</action></action>",
    "<think>still thinking <action>up</action>",
    "<action>()</action>",
    "<action>(1,)</action>",
    "<action>(-1, 2)</action>",
    "<action>(1, 1) (2, 2)</action>",
    "<action>(999999999999, 0)</action>",
    "<action>(\u0661, \u00b2)</action>",
    "<action>\ud800</action>",
    "<action>{0} %s \\ [ ( *</action>",
    "<action>" + "9" * 5000 + "</action>",
    "<action>" + "(" * 500 + "</action>",
    "<action>\n\n\t\u2028</action>",
)


@dataclass(frozen=True)
class CheckReport:
    """What was played, and what is allowed but probably not meant."""

    environment: str
    """Name of the class."""
    seeds: tuple[int, ...]
    episodes_ended: int
    """How many of the episodes ended within the turn limit; only these show how an end looks."""
    turns: int
    """Turns played, replays not counted."""
    warnings: tuple[str, ...]


def check_environment(
    make_env: Callable[[], Any], *, seeds: Sequence[int] = (0, 1, 2), max_turns: int = 30
) -> CheckReport:
    """Prove that an environment keeps its promises, or say which one it breaks.

    Actions come from `info["admissible_actions"]`, else from `player()`, else from sample answers that
    `parse_action` accepts; where listed actions end no episode, `player()` plays one more. The states of the global
    random generators are put back at the end.

    Args:
        make_env: builds one environment; a class will do.
        seeds: the tasks to play.
        max_turns: turns of each episode.

    Returns:
        What was played, with warnings.

    Raises:
        EnvironmentContractError: one broken promise, and what to do about it.
    """
    expect_builder("make_env", make_env)
    expect_list("seeds", seeds, Integral, "whole numbers")
    if not seeds:
        raise wrong("seeds", None, "at least one task")
    expect_count("max_turns", max_turns, least=1)
    built: list[Any] = []

    def build() -> Any:
        built.append(make_env())
        return built[-1]

    with _global_generators_kept():
        complaints: list[str] = []
        try:
            records, warnings = _check(build, seeds, max_turns)
        finally:
            for env in built:
                complaints += _closed(env)
    return CheckReport(
        environment=type(built[0]).__name__,
        seeds=tuple(seeds),
        episodes_ended=sum(record.ended for record in records),
        turns=sum(len(record.actions) for record in records),
        warnings=tuple(dict.fromkeys(warnings + complaints)),
    )


def _check(build: Callable[[], Any], seeds: Sequence[int], max_turns: int) -> tuple[list[Record], list[str]]:
    env = build()
    _check_members(env, build)
    _check_num_tasks(env)
    begin(env, seed=seeds[0])
    _check_parsing(env)
    warnings = []
    records = []
    for seed in seeds:
        _seed_global_generators(1)
        before = _global_states()
        records.append(play(env, seed, max_turns))
        if _global_states() != before:
            warnings.append("It moves the global random generators: build one inside `reset` instead.")
        _check_end(env, records[-1])
        _check_replays(env, build, records[-1])
    # Where drawing from a list leads nowhere, whoever plays with a purpose may come to an end.
    for seed in seeds if _has_player(env) else ():
        if any(record.ended for record in records):
            break
        records.append(play(env, seed, max_turns, by_player=True))
        _check_end(env, records[-1])
        _check_replays(env, build, records[-1])
    check_neighbours(build, records, max_turns)
    _check_descriptions(build(), records)
    if len(records) > 1 and _all_alike(env, records):
        warnings.append(f"The seeds {', '.join(map(str, seeds))} all give the same task.")
    if not any(record.ended for record in records):
        warnings.append(f"No episode ended within {max_turns} turns, so ends are unchecked: raise `max_turns`.")
    return records, warnings


def _closed(env: Any) -> list[str]:
    """Close an environment; return a warning where that fails, which ends no trial."""
    try:
        getattr(env, "close", bool)()
    except (Exception, SystemExit) as error:
        return [f"`close` raised {type(error).__name__}: {error}, so that what it holds may stay open."]
    return []


def _has_player(env: Any) -> bool:
    return callable(getattr(env, "player", None)) and env.player() is not None


def _check_members(env: Any, build: Callable[[], Any]) -> None:
    name = type(env).__name__
    for method in _METHODS:
        if not callable(getattr(env, method, None)):
            raise EnvironmentContractError(
                f"{name} has no method `{method}`. Subclass `metarl_agents.envs.Environment`, which brings a default "
                f"for all but `reset` and `step`, or define it."
            )
    try:
        inspect.signature(env.reset).bind(seed=0)
    except TypeError:
        raise EnvironmentContractError(
            f"{name}.reset{inspect.signature(env.reset)} does not accept the keyword `seed`, which alone decides the "
            f"task. Define it as `reset(self, *, seed)`."
        ) from None
    wording = getattr(env, "wording", None)
    if wording is not None and not isinstance(wording, Wording):
        raise EnvironmentContractError(
            f"{name}.wording is a {type(wording).__name__}, but `metarl_agents.envs.Wording` is expected."
        )
    if build() is env:
        raise EnvironmentContractError(
            f"Two calls of the environment's builder gave the same {name} object. Trials are played side by side, so "
            f"every call must build a new one."
        )


def _check_num_tasks(env: Any) -> None:
    """Check that `num_tasks`, where there is one, answers for every split and before any task was begun."""
    count_of = getattr(env, "num_tasks", None)
    for split in SPLITS if callable(count_of) else ():
        count = count_of(split)
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral) or count < 1):
            raise EnvironmentContractError(
                f'{type(env).__name__}.num_tasks("{split}") returned {shown(count)}, but a whole number above 0 is '
                f"expected, or None where there is no bound."
            )


def _check_descriptions(env: Any, records: list[Record]) -> None:
    texts = [env.describe()]
    for record in records:
        begin(env, seed=record.seed)
        texts.append(env.describe())
        for action in record.actions[:1]:
            checked_step(env, action)
            texts.append(env.describe())
    name = type(env).__name__
    if not all(isinstance(text, str) for text in texts):
        raise EnvironmentContractError(f"{name}.describe() returned {texts[0]!r}, but a text is expected.")
    if len(set(texts)) > 1:
        raise EnvironmentContractError(
            f"{name}.describe() changes from task to task or from turn to turn. It holds the rules and the answer "
            f"format, constant for one configuration; put what belongs to one task into the observations."
        )


def _check_end(env: Any, record: Record) -> None:
    """Check what the end of an episode must show; `env` is where the record left it."""
    name = type(env).__name__
    if record.results and "success" not in record.results[-1].info:
        when = "at the end of an episode" if record.ended else "in any step"
        raise EnvironmentContractError(
            f'{name}.step gave no info["success"] {when} (seed {record.seed}, after {len(record.actions)} turns). '
            f"Nothing else tells whether the task is solved: set it to True or False in every step."
        )
    if not record.ended:
        return
    try:
        env.step(record.actions[-1])
    except Exception:
        return
    raise EnvironmentContractError(
        f"{name}.step was called after the end of an episode and answered. It must raise, for example a RuntimeError, "
        f"so that no turn is played into a finished game unnoticed."
    )


def _check_replays(env: Any, build: Callable[[], Any], record: Record) -> None:
    """Play the record's actions again, each time with one thing changed; every answer must be as before."""
    seed, name = record.seed, type(env).__name__
    own = "Draw from a generator built inside `reset`, not from `random` or `numpy.random` globals."

    _seed_global_generators(1)
    _replay(build(), record, f"{name}.reset(seed={seed})", f"{own} Nor may `parse_action` touch the game.")
    _seed_global_generators(2)
    _replay(build(), record, f"{name}.reset(seed={seed})", f"It reads a global random generator. {own}")

    begin(env, seed=seed + 1)
    _replay(env, record, f"{name}.reset(seed={seed}), after another task was played on that object,", own)

    back = "It must return the same task in its initial state; the default does so by resetting with the last seed."
    _replay(env, record, f"{name}.restart(), after an episode,", back, restart=True)
    _replay(env, record, f"{name}.restart(), called a second time,", back, restart=True, turns=1)
    _replay(env, record, f"{name}.restart(), in the middle of an episode,", back, restart=True)

    pure = "`parse_action` must be pure: it may not touch the game."
    parsing = f"{name}.reset(seed={seed}), with answers being parsed in between,"
    _replay(env, record, parsing, pure, between=lambda: [env.parse_action(text) for text in _FUZZ])


def _replay(
    env: Any,
    record: Record,
    what: str,
    advice: str,
    *,
    restart: bool = False,
    turns: int | None = None,
    between: Callable[[], Any] | None = None,
) -> None:
    """Start again and play the record's first `turns` actions (default: all); raise at the first difference."""
    first, _ = begin(env, seed=None if restart else record.seed)
    if first != record.first:
        raise EnvironmentContractError(
            f"{what} gave two different first observations.\nA group compares trials of one task, so the seed alone "
            f"must decide the task. {advice}"
        )
    if between is not None:
        between()
    played = zip(record.actions[:turns], record.results[:turns], strict=True)
    for turn, (action, expected) in enumerate(played, start=1):
        if visible(checked_step(env, action)) != visible(expected):
            raise EnvironmentContractError(
                f"{what} led to two different answers to the same actions (turn {turn}, action {shown(action)}).\n"
                f"A group compares trials of one task, so the same actions must have the same effect. {advice}"
            )


def _check_parsing(env: Any) -> None:
    """Check that `parse_action` never raises, and repeats itself."""
    name = type(env).__name__
    for text in _FUZZ:
        try:
            answers = [env.parse_action(text), env.parse_action(text)]
        except Exception as error:
            raise EnvironmentContractError(
                f"{name}.parse_action({shown(text)}) raised {type(error).__name__}: {error}\nA model writes anything; "
                f"return None for what cannot be read."
            ) from error
        if answers[0] != answers[1]:
            raise EnvironmentContractError(
                f"{name}.parse_action({shown(text)}) gave {shown(answers[0])}, then {shown(answers[1])}. It must be "
                f"pure: the text alone decides."
            )
    if env.parse_action("") is not None:
        raise EnvironmentContractError(
            f'{name}.parse_action("") gave {shown(env.parse_action(""))}, but an empty answer is no action: return '
            f"None, so that it costs a penalty and not a move."
        )


def _all_alike(env: Any, records: list[Record]) -> bool:
    """Return whether the first record's actions meet the same answers under every seed."""
    model = records[0]
    for record in records[1:]:
        if begin(env, seed=record.seed)[0] != model.first:
            return False
        for action, expected in zip(model.actions, model.results, strict=True):
            if visible(checked_step(env, action)) != visible(expected):
                return False
    return True


def _seed_global_generators(seed: int) -> None:
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def _global_states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    state = numpy.random.get_state() if numpy else ()
    return random.getstate(), repr(state[2:]), state[1].tobytes() if numpy else b""


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy and numpy_state is not None:
            numpy.random.set_state(numpy_state)
