"""Play an environment while looking closely at everything it returns.

What lives here: single calls whose answers must have the right shape, and one episode played with them. What does
not: whether the answers repeat themselves (`checks.py`).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from numbers import Real
from typing import Any

from metarl_agents.errors import EnvironmentContractError
from metarl_agents.types import StepResult

# Answers tried where the environment neither lists its actions nor has a player.
_SAMPLES = ("(1, 1)", "(2, 2)", "1", "2", "up", "left", "A", "B", "yes", "no", "look", "search[red shoes]", "call")
_PLAYER_TRIES = 20


@dataclass(frozen=True)
class Record:
    """One episode as it was first played."""

    seed: int
    first: str
    """The first observation."""
    actions: list[Any]
    results: list[StepResult]
    """(len(actions),)"""

    @property
    def ended(self) -> bool:
        """Whether its last step ended it."""
        return bool(self.results) and (self.results[-1].terminated or self.results[-1].truncated)


def begin(env: Any, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
    """Call `reset` with a seed, or `restart` without one; return (observation, info)."""
    name = f"{type(env).__name__}." + ("restart()" if seed is None else f"reset(seed={seed})")
    try:
        answer = env.restart() if seed is None else env.reset(seed=seed)
    except Exception as error:
        raise EnvironmentContractError(
            f"{name} raised {type(error).__name__}: {error}\nEvery seed must give a task that can be played."
        ) from error
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise EnvironmentContractError(
            f"{name} returned {shown(answer)}, but a pair (observation, info) of a text and a dict is expected."
        )
    if not isinstance(answer[0], str):
        raise EnvironmentContractError(
            f"{name} returned an observation of type {type(answer[0]).__name__}, but the model reads text. "
            f"Print it into a `str`."
        )
    _admissible(name, answer[1])
    return answer


def checked_step(env: Any, action: Any) -> StepResult:
    """Call `step` with an action that `parse_action` let through."""
    name = f"{type(env).__name__}.step({shown(action)})"
    try:
        answer = env.step(action)
    except Exception as error:
        raise EnvironmentContractError(
            f"{name} raised {type(error).__name__}: {error}\n`parse_action` lets this action through, so `step` must "
            f"answer it. Return None from `parse_action` for what is malformed; let a silly move have no effect."
        ) from error
    if not (isinstance(answer, tuple) and len(answer) == 5):
        raise EnvironmentContractError(
            f"{name} returned {shown(answer)}, but (observation, reward, terminated, truncated, info) is expected."
        )
    result = StepResult(*answer)
    _check_result(name, result)
    return result


def _check_result(name: str, result: StepResult) -> None:
    observation, reward, terminated, truncated, info = result
    complaint = None
    if not isinstance(observation, str):
        complaint = f"an observation of type {type(observation).__name__}, but the model reads text"
    elif not isinstance(reward, Real) or not math.isfinite(reward):
        complaint = f"the reward {reward!r}, but a finite number is expected; one such reward spoils a whole batch"
    elif not (is_bool(terminated) and is_bool(truncated)):
        complaint = f"terminated={terminated!r} and truncated={truncated!r}, but both must be True or False"
    elif not isinstance(info, dict):
        complaint = f"an info of type {type(info).__name__}, but a dict is expected"
    else:
        for key in ("success", "invalid", "draw"):
            if key in info and not is_bool(info[key]):
                complaint = f'info["{key}"] = {shown(info[key])}, but True or False is expected'
    if complaint:
        raise EnvironmentContractError(f"{name} returned {complaint}.")
    _admissible(name, info)


def _admissible(name: str, info: dict[str, Any]) -> list[str]:
    listed = info.get("admissible_actions", [])
    if not isinstance(listed, list) or not all(isinstance(action, str) for action in listed):
        raise EnvironmentContractError(
            f'{name} returned info["admissible_actions"] = {shown(listed)}, but a list of texts is expected.'
        )
    return listed


def play(env: Any, seed: int, max_turns: int, *, by_player: bool = False) -> Record:
    """Play one episode with listed actions (not if `by_player`), or the environment's own player, or sample answers."""
    observation, info = begin(env, seed=seed)
    record = Record(seed, observation, [], [])
    rng = random.Random(seed)
    player = env.player() if callable(getattr(env, "player", None)) else None
    if player is not None:
        player.start_episode([], rng)
    while len(record.actions) < max_turns and not record.ended:
        listed = [] if by_player else info.get("admissible_actions", [])
        action = _choose(env, listed, player, observation, rng)
        result = checked_step(env, action)
        record.actions.append(action)
        record.results.append(result)
        observation, info = result.observation, result.info
    return record


def _choose(env: Any, listed: list[str], player: Any, observation: str, rng: random.Random) -> Any:
    """Return an action that `parse_action` lets through."""
    name = type(env).__name__
    if listed:
        text = f"<action>{rng.choice(listed)}</action>"
        action = env.parse_action(text)
        if action is None:
            raise EnvironmentContractError(
                f'{name} lists admissible actions, but `parse_action("{text}")` gives None. What is listed is shown to '
                f"the model as it stands, so it must be readable."
            )
        return action
    if player is None:
        source = "sample answer"
        answers = iter(f"<action>{sample}</action>" for sample in rng.sample(_SAMPLES, len(_SAMPLES)))
    else:
        source = "answer of its player"
        # One at a time: a player may remember what it has just said.
        answers = (player.act(observation, rng) for _ in range(_PLAYER_TRIES))
    text = ""
    for text in answers:
        action = env.parse_action(text)
        if action is not None:
            return action
    raise EnvironmentContractError(
        f"{name}.parse_action accepted no {source} ({shown(text)} was the last), so nothing can be played. "
        f'List info["admissible_actions"], or return from `player()` a player whose answers it can read.'
    )


def visible(result: StepResult) -> tuple[Any, ...]:
    """Return what of a step's answer must repeat itself."""
    info = result.info
    return (*result[:4], *(info.get(key) for key in ("success", "admissible_actions", "invalid", "draw")))


def is_bool(value: Any) -> bool:
    """Return whether a value is True or False, numpy's included."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def shown(value: Any) -> str:
    """Return a short printable form for an error message."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
