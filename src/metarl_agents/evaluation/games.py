"""The exam in games: what is won against whom, in which seat, in which episode, between a floor and a ceiling.

What lives here: rows of trials as JSON keeps them, statistics, and the table. What does not: playing the trials
(`evaluate.py`), floor and ceiling (`game_values.py`). Read first: `summarise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import environment_factory, in_process, opened
from metarl_agents.envs.games import GameEnvironment
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.game_values import Exact, Role, facing, least_payoff, role_frames
from metarl_agents.evaluation.layout import NOTHING, WIDEST, lay_out, lay_out_notes, narrow_percent, percent
from metarl_agents.evaluation.metrics import paired_bootstrap, wilson_interval
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.rollout.opponent_lists import MODEL, SELF, Listed, read_listed
from metarl_agents.rollout.opponents import SeatedGame
from metarl_agents.rollout.runner import length_penalty
from metarl_agents.types import Episode, Outcome, Trial

SMALLEST_GAP = 0.05
"""Where ceiling and floor are no farther apart than this payoff, there is nothing to exploit and no share of it."""
_ENDINGS = {Outcome.SUCCESS: "won", Outcome.DRAW: "drawn", Outcome.FAILURE: "lost"}
_UNFINISHED = "unfinished"
_RESAMPLES = 2_000

Row = Mapping[str, Any]
"""One trial: seed, opponent, seat, and by episode `payoffs` (what the agent earned) and `endings`."""


class Estimate(NamedTuple):
    """A mean over tasks with its 95 % interval."""

    mean: float
    low: float
    high: float


# ---- what a result file keeps --------------------------------------------------------------------------------------


def games_record(make_env: MakeEnv, trials: Sequence[Trial], config: TrialConfig, max_new_tokens: int) -> dict:
    """Return {"games": {"players", "rows"}} for `EvaluationResult.meta`, or {} where no game is played.

    Crashed trials are kept: whom they would have met the seed tells, and plays that never came count as unfinished.

    Args:
        make_env: builds one environment.
        trials: (tasks,) as they were played.
        config: the settings they were played under.
        max_new_tokens: L_max of the length penalty.
    """
    # Only what crashed before it had met anybody leaves it open whether this is a game.
    maybe = any(trial.opponent is not None or trial.crashed for trial in trials)
    env = _game(make_env, config.env_timeout_s) if maybe else None
    if env is None:
        return {}
    rows = [game_row(trial, config, env.reward_scale, max_new_tokens) for trial in trials]
    for trial, row in zip(trials, rows, strict=True):
        if trial.opponent is None:
            opponent, row["seat"] = env.seating.of(trial.seed)
            row["opponent"] = opponent.name
        missing = config.num_episodes - len(row["endings"]) if trial.crashed else 0
        row["payoffs"] += [0.0] * missing  # what was earned; `summarise` counts the least
        row["endings"] += [_UNFINISHED] * missing
    return {"games": {"players": list(env.game.players), "rows": rows}}


def _game(make_env: MakeEnv, timeout_s: float | None) -> GameEnvironment | None:
    """Return the game that is played, or None where it is none, or cannot be built just now."""
    with suppress(Exception, SystemExit), opened(in_process(make_env), timeout_s) as env:
        env = env.env if isinstance(env, SeatedGame) else env
        return env if isinstance(env, GameEnvironment) else None
    return None


def game_row(trial: Trial, config: TrialConfig, scale: float, max_new_tokens: int = 0) -> dict[str, Any]:
    """Return what a result file keeps of a trial: see `Row`.

    A play that did not end (out of turns, a crash) keeps what it had earned until then.

    Args:
        trial: as it was played.
        config: the settings it was played under.
        scale: reward for one unit of payoff.
        max_new_tokens: L_max of the length penalty.
    """
    return {
        "seed": int(trial.seed),
        "opponent": trial.opponent,
        "seat": trial.seat,
        "payoffs": [episode_payoff(episode, config, scale, max_new_tokens) for episode in trial.episodes],
        "endings": [_ENDINGS.get(episode.outcome, _UNFINISHED) for episode in trial.episodes],
    }


def episode_payoff(episode: Episode, config: TrialConfig, scale: float, max_new_tokens: int = 0) -> float:
    """Return the payoff behind an episode's rewards, which the library's own penalties have entered.

    Args:
        episode: as it was played.
        config: the settings it was played under.
        scale: reward for one unit of payoff.
        max_new_tokens: L_max of the length penalty.
    """
    invalid = config.invalid_action_penalty if config.penalty_scope == "return" else 0.0
    earned = sum(
        turn.reward
        + length_penalty(len(turn.response.ids), max_new_tokens, config.length_penalty)
        + invalid * turn.invalid
        for turn in episode.turns
    )
    return round(earned / scale, 9)


# ---- how games are examined ----------------------------------------------------------------------------------------


def exam_opponents(opponents: Sequence[str] | None, *, models: bool = False) -> list[Listed]:
    """Read the setting `opponents` for an evaluation.

    Args:
        opponents: `NAME` or `model:FOLDER`, each perhaps with `=WEIGHT`.
        models: whether the caller seats models.

    Raises:
        ConfigError: `self` is among them, or a model where nobody seats it, or a weight is not positive.
    """
    listed = [read_listed(entry) for entry in opponents or ()]
    if any(entry.name == SELF and entry.source is None for entry in listed):
        raise ConfigError(
            f"`opponents` names `{SELF}`, but nobody is trained in an evaluation: name a folder, `{MODEL}FOLDER`, "
            "which may be that of the evaluated model."
        )
    if not models and any(entry.source is not None for entry in listed):
        raise ConfigError(
            f"`opponents` names `{MODEL}...`, but this evaluation seats no models: leave it out, or use "
            "recipes/evaluate.py."
        )
    return listed


def exam_settings(config: TrialConfig, opponents: Sequence[str] | None = None, *, models: bool = False) -> TrialConfig:
    """Return the settings under which a game is examined; those of other environments stay as they are.

    All episodes are played, whoever wins, since what counts is the payoff of each.

    Args:
        config: trial settings.
        opponents: whom to meet instead of the settings' own, for example some never seen in training; see
            `exam_opponents`.
        models: whether the caller seats the models among them.

    Raises:
        ConfigError: `opponents` is given for no game, or names somebody the game does not know.
    """
    listed = exam_opponents(opponents, models=models)
    if not isinstance(environment_factory(config)(), GameEnvironment):
        if opponents:
            raise ConfigError(
                f"`opponents` is {list(opponents)}, but {config.env} is no game: leave `--opponents` out."
            )
        return config
    scripted = [entry for entry in listed if entry.source is None]
    weights = [entry.weight for entry in scripted]
    uneven = weights if len(set(weights)) > 1 else None
    kwargs = facing(config.env_kwargs, [entry.name for entry in scripted], uneven) if scripted else config.env_kwargs
    examined = replace(config, env_kwargs=kwargs, stop_on_success=False)
    environment_factory(examined)
    return examined


# ---- statistics ----------------------------------------------------------------------------------------------------


def examine_games(result: EvaluationResult, config: TrialConfig) -> dict[str, Any] | None:
    """Add floor, ceiling and statistics to `result.meta["games"]` and return it; None where no game was played.

    Args:
        result: of `evaluate`.
        config: the settings it was played under.
    """
    games = result.meta.get("games")
    if games is None:
        return None
    rows = games["rows"]
    tasks: dict[Role, list[int]] = {}
    for row in rows:
        tasks.setdefault((row["opponent"], row["seat"]), []).append(row["seed"])
    values, missing = role_frames(config, tasks)
    env = environment_factory(config)()
    stalled = sorted({row["seat"] for row in rows if _UNFINISHED in row["endings"]})
    # Settings that name another environment than was played, as a program may pass it, know nothing of the game.
    least = {seat: least_payoff(env.game, seat) if isinstance(env, GameEnvironment) else None for seat in stalled}
    games["exact"] = [{"opponent": name, "seat": seat, **value._asdict()} for (name, seat), value in values.items()]
    games["unframed"] = [{"opponent": name, "seat": seat, "why": why} for (name, seat), why in missing.items()]
    games["least"] = [{"seat": seat, "payoff": payoff} for seat, payoff in least.items()]
    games["summary"] = summarise(rows, values, least)
    return games


def summarise(
    rows: Sequence[Row], values: Mapping[Role, Exact], least: Mapping[int, float | None] | None = None
) -> list[dict[str, Any]]:
    """Return statistics by episode: of all trials, of each seat, of each opponent in each seat.

        exploited share = Σ (payoff - floor) / Σ (ceiling - floor)

    over the trials whose role has a gap of more than `SMALLEST_GAP`. 0 is equilibrium play, 1 the best response.

    Args:
        rows: trials.
        values: floor and ceiling of each role, where they are known.
        least: what an unfinished play counts, by seat: the least the game can pay, so that stalling never beats
            losing. Where it is None or not given, what the play had earned.

    Returns:
        One entry a set of trials: `opponent` and `seat` (None = any), `n`, and `episodes`: shares `won`, `drawn`,
        `lost` and `unfinished` of the trials that reached it, `payoff` and `exploited` as (mean, low, high) or None.
    """
    sets: dict[tuple[str | None, int | None], list[Row]] = {(None, None): list(rows)}
    for seat in sorted({row["seat"] for row in rows}):
        sets[None, seat] = [row for row in rows if row["seat"] == seat]
    for role in sorted({(row["opponent"], row["seat"]) for row in rows}):
        sets[role] = [row for row in rows if (row["opponent"], row["seat"]) == role]
    return [
        {"opponent": opponent, "seat": seat, "n": len(members), "episodes": _episodes(members, values, least or {})}
        for (opponent, seat), members in sets.items()
    ]


def _episodes(
    rows: Sequence[Row], values: Mapping[Role, Exact], least: Mapping[int, float | None]
) -> list[dict[str, Any]]:
    longest = max((len(row["endings"]) for row in rows), default=0)
    return [
        _episode([row for row in rows if len(row["endings"]) > episode], episode, values, least)
        for episode in range(longest)
    ]


def _episode(
    rows: Sequence[Row], episode: int, values: Mapping[Role, Exact], least: Mapping[int, float | None]
) -> dict[str, Any]:
    endings = [row["endings"][episode] for row in rows]
    payoffs = [counted(row, episode, least) for row in rows]
    shares = {ending: endings.count(ending) / len(rows) for ending in (*_ENDINGS.values(), _UNFINISHED)}
    framed = [
        (payoff, exact)
        for row, payoff in zip(rows, payoffs, strict=True)
        if _leaves_something(exact := values.get((row["opponent"], row["seat"])))
    ]
    gap = sum(exact.gap for _, exact in framed) / len(framed) if framed else 0.0
    exploited = estimate([(payoff - exact.floor) / gap for payoff, exact in framed]) if framed else None
    return {"n": len(rows), **shares, "payoff": estimate(payoffs), "exploited": exploited}


def _leaves_something(exact: Exact | None) -> TypeGuard[Exact]:
    """Whether floor and ceiling are known and far enough apart for a share of what lies between them."""
    return exact is not None and exact.gap > SMALLEST_GAP


def counted(row: Row, episode: int, least: Mapping[int, float | None]) -> float:
    """Return what an episode of a trial counts: a play that did not end, the least that the game can pay.

    Args:
        row: the trial.
        episode: from 0.
        least: by seat; where it is None or not given, what the play had earned counts.
    """
    forfeited = least.get(row["seat"]) if row["endings"][episode] == _UNFINISHED else None
    return row["payoffs"][episode] if forfeited is None else forfeited


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean over tasks with its bootstrap interval."""
    found = paired_bootstrap(np.asarray(values), np.zeros(len(values)), resamples=_RESAMPLES)
    return Estimate(found.mean, found.low, found.high)


# ---- the table -----------------------------------------------------------------------------------------------------


def format_games(games: Mapping[str, Any], *, markdown: bool = False, width: int = 100) -> str:
    """Lay out what `examine_games` returned: all trials by episode, then a table of each seat, by opponent and episode.

    Args:
        games: `result.meta["games"]`, examined.
        markdown: Markdown tables instead of plain columns.
        width: characters of a line of plain columns.
    """
    everything, *parts = games["summary"]
    if not everything["episodes"]:
        return "no game was begun"
    header = ["all games", "n", "won %", "drawn %", "lost %", "unfinished %", "payoff", "exploited %"]
    rows = [_episode_line(number, found) for number, found in enumerate(everything["episodes"], start=1)]
    tables = [lay_out(header, rows, markdown, width)]
    exact = {(value["opponent"], value["seat"]): Exact(value["floor"], value["ceiling"]) for value in games["exact"]}
    for seat in sorted({part["seat"] for part in parts}):
        header = [f"{games['players'][seat]} seat, against", "n", "ep", "won %", "drawn %", "payoff"]
        header += ["floor", "ceiling", "exploited %"]
        rows = [line for part in parts if part["seat"] == seat for line in _role_lines(part, exact)]
        tables.append(lay_out(header, rows, markdown, width))
    return "\n\n".join([*tables, lay_out_notes(_notes(games, exact), markdown, width)])


def _episode_line(number: int, found: Mapping[str, Any]) -> list[str]:
    n = found["n"]
    won = percent(found["won"], wilson_interval(round(found["won"] * n), n))
    others = [percent(found[ending]) for ending in ("drawn", "lost", _UNFINISHED)]
    low, high = found["payoff"][1:]
    return [
        f"episode {number}",
        str(n),
        won,
        *others,
        f"{found['payoff'][0]:+.3f} [{low:+.3f}, {high:+.3f}]",
        narrow_percent(found["exploited"]),
    ]


def _role_lines(part: Mapping[str, Any], exact: Mapping[Role, Exact]) -> list[list[str]]:
    """Return a line for each episode; what holds for all of them stands in the first."""
    value = exact.get((part["opponent"], part["seat"]))
    frame = [NOTHING] * 2 if value is None else [f"{number:+.2f}" for number in value]
    lines = []
    for number, found in enumerate(part["episodes"], start=1):
        first = number == 1
        low, high = found["payoff"][1:]
        lines.append(
            [
                (part["opponent"] or "all") if first else "",
                str(found["n"]),
                str(number),
                percent(found["won"]),
                percent(found["drawn"]),
                f"{found['payoff'][0]:+.2f} [{low:+.2f}, {high:+.2f}]",
                *(frame if first else ["", ""]),
                narrow_percent(found["exploited"], digits=0),
            ]
        )
    return lines


def _notes(games: Mapping[str, Any], exact: Mapping[Role, Exact]) -> list[str]:
    notes = [
        "payoff: points, chips, or 1 for a win, mean over tasks, with a bootstrap 95 % interval",
        "floor: equilibrium play; ceiling: the best response to this opponent, which knows the deal where that is "
        f"replayed; exploited: (payoff - floor) / (ceiling - floor) where they differ by more than {SMALLEST_GAP}, "
        f"with a bootstrap 95 % interval; {NOTHING} where that is wider than {100 * WIDEST:.0f} points",
    ]
    if entered := _entered(games, exact):
        notes.append(f"exploited, all opponents together: of {entered}; the others have no such floor and ceiling")
    for why in dict.fromkeys(one["why"] for one in games.get("unframed", ())):
        names = dict.fromkeys(one["opponent"] for one in games["unframed"] if one["why"] == why)
        notes.append(f"without floor and ceiling: {', '.join(names)} ({why})")
    if any(found[_UNFINISHED] for found in games["summary"][0]["episodes"]):
        notes.append(f"unfinished: out of turns or crashed; it counts {_forfeit(games)}")
    return notes


def _entered(games: Mapping[str, Any], exact: Mapping[Role, Exact]) -> str:
    """Say of how many tasks the exploited shares of several opponents are; "" where they are of all."""
    counts = {seat: [0, 0] for seat in range(len(games["players"]))}
    for part in games["summary"]:
        if part["opponent"] is not None:
            value = exact.get((part["opponent"], part["seat"]))
            counts[part["seat"]][0] += part["n"] * _leaves_something(value)
            counts[part["seat"]][1] += part["n"]
    told = [f"{framed} of {n} ({games['players'][seat]} seat)" for seat, (framed, n) in counts.items() if n]
    return "" if all(framed == n for framed, n in counts.values()) else f"{' and '.join(told)} tasks"


def _forfeit(games: Mapping[str, Any]) -> str:
    """Say what an unfinished play counts; seats without their least count what was earned."""
    known = {one["seat"] for one in games.get("least", ()) if one["payoff"] is not None}
    unknown = {one["seat"] for one in games.get("least", ())} - known
    if not known:
        return "what it had earned (the game's least is not known)"
    seats = ", ".join(str(games["players"][seat]) for seat in sorted(unknown))
    more = f", but what it had earned in the seats where that is not known ({seats})" if unknown else ""
    return f"the least that the game can pay{more}"
