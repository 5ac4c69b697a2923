"""Text environments of Gymnasium, by the name `gymnasium:<id>`.

What lives here: `GymnasiumEnvironment`, which gives a Gymnasium environment our contract, and how a coloured terminal
drawing becomes plain text. How answers become actions is in `actions.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from metarl_agents.envs.adapters import chosen_wording, first_line, need
from metarl_agents.envs.adapters.actions import Actions, actions_of
from metarl_agents.envs.base import Environment
from metarl_agents.envs.probing import is_bool
from metarl_agents.envs.wording import COMPACT, Wording
from metarl_agents.errors import ConfigError, UnknownEnvironmentError
from metarl_agents.types import StepResult

_SUCCESS_KEYS = ("success", "won", "is_success")
_WORDINGS = {"paper": Wording(), "compact": replace(COMPACT, play_request="Act inside <action> </action>.")}


class GymnasiumEnvironment(Environment):
    """An environment of Gymnasium that can be read and written, one task per seed.

    Observations are those of a Text space, or, with `render_mode="ansi"`, what `render()` draws. Actions are those of a
    Text space, or of a Discrete space by number or by name. Where `info` holds `success`, `won` or `is_success`, it
    decides about success; otherwise an episode has succeeded that terminates with a reward above zero.

    Args:
        env_id: as in `gymnasium.make`, `module:EnvId-v0` of other packages included.
        action_names: one name for each action of a Discrete space, in their order; then answers are names.
        description: the rules, shown to the model on every page; default: the actions of a Discrete space.
        success_reward: if given, it alone decides: an episode has succeeded that terminates with at least this reward.
        reset_options: passed to every `reset` as its `options`.
        wording: "paper", "compact", or a `Wording`.
        make_kwargs: passed to `gymnasium.make`.

    Raises:
        UnknownEnvironmentError: Gymnasium knows no such id.
        ConfigError: Gymnasium is missing or cannot build it, its observations are no text, or its actions are neither
            texts nor numbers.
    """

    def __init__(
        self,
        env_id: str,
        /,
        *,
        action_names: Sequence[str] | None = None,
        description: str | None = None,
        success_reward: float | None = None,
        reset_options: Mapping[str, Any] | None = None,
        wording: str | Wording = "paper",
        **make_kwargs: Any,
    ) -> None:
        library = need("gymnasium")
        self.wording = chosen_wording("gymnasium", wording, _WORDINGS)
        self._id, self._over = env_id, True
        self._success_reward, self._options = success_reward, dict(reset_options) if reset_options else None
        self._game = _made(library, env_id, make_kwargs)
        self._drawn = _is_drawn(library, self._game, env_id)
        self._actions: Actions = actions_of(library, self._game.action_space, action_names, env_id)
        self._description = self._actions.describe() if description is None else description

    def describe(self) -> str:
        """Return the description given, or the list of actions."""
        return self._description

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the task that `seed` decides; a Gymnasium environment draws all it needs from that seed."""
        self.seed, self._over = seed, False
        observation, info = self._game.reset(seed=seed, options=self._options)
        return self._text(observation), self._told(info)

    def parse_action(self, text: str) -> str | None:
        """Return the action as the model is to read it, or None where the action space holds no such action."""
        answer = super().parse_action(text)
        return None if answer is None else self._actions.read(answer)

    def step(self, action: str) -> StepResult:
        """Play one action."""
        if self._over:
            raise RuntimeError(f"The episode of {self._id} is over. Call `reset` or `restart` before the next `step`.")
        observation, reward, terminated, truncated, info = self._game.step(self._actions.value(action))
        self._over = bool(terminated or truncated)
        told = self._told(info) | {"success": self._is_success(info, float(reward), bool(terminated))}
        return StepResult(self._text(observation), float(reward), bool(terminated), bool(truncated), told)

    def close(self) -> None:
        """Close the Gymnasium environment."""
        self._game.close()

    def _text(self, observation: Any) -> str:
        if isinstance(observation, str):
            return str(observation)
        drawing = self._game.render() if self._drawn else observation
        if not isinstance(drawing, str):
            raise TypeError(f"{self._id} gave an observation of type {type(drawing).__name__}, but a text is expected.")
        return plain_drawing(drawing)

    def _told(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return what our contract knows of `info`, as plain values."""
        listed = self._actions.listed(info)
        flags = {key: bool(info[key]) for key in ("invalid", "draw") if is_bool(info.get(key))}
        return flags | ({"admissible_actions": listed} if listed else {})

    def _is_success(self, info: Mapping[str, Any], reward: float, terminated: bool) -> bool:
        if self._success_reward is not None:
            return terminated and reward >= self._success_reward
        for key in _SUCCESS_KEYS:
            if key in info:
                return bool(info[key])
        return terminated and reward > 0


def _made(library: Any, env_id: str, make_kwargs: dict[str, Any]) -> Any:
    """Return what `gymnasium.make` builds, without Gymnasium's own checker: `check_environment` looks at more."""
    try:
        return library.make(env_id, **{"disable_env_checker": True, **make_kwargs})
    except (library.error.UnregisteredEnv, library.error.DeprecatedEnv) as error:
        told = first_line(error)
        # Another package's environment is unknown until that package is imported.
        elsewhere = f' Is it another package\'s? Then name the module too: "gymnasium:package.module:{env_id}".'
        raise UnknownEnvironmentError(
            f'Gymnasium knows no environment "{env_id}": {told}{"" if told.endswith("?") else "."}'
            f"{'' if ':' in env_id or isinstance(error, library.error.DeprecatedEnv) else elsewhere}"
        ) from None
    except Exception as error:  # a constructor of anybody's may raise anything
        raise ConfigError(
            f'Gymnasium cannot build "{env_id}" ({type(error).__name__}: {first_line(error)}): check its name and '
            f"`env_kwargs`, which are passed on to gymnasium.make."
        ) from error


def _is_drawn(library: Any, game: Any, env_id: str) -> bool:
    """Return whether observations are what `render()` draws; refuse what cannot be read either way."""
    space = getattr(game, "observation_space", None)
    modes = list(game.metadata.get("render_modes") or ())
    drawn = game.render_mode == "ansi" and "ansi" in modes
    gymnasiums = isinstance(space, library.Space) and type(space).__module__.split(".")[0] == "gymnasium"
    # A space of somebody else's may well hold texts: its observations are looked at when they come.
    if drawn or not gymnasiums or isinstance(space, library.spaces.Text):
        return drawn
    remedy = "It draws no text either: wrap it in an environment of your own that prints its observations."
    if "ansi" in modes:
        remedy = 'It can draw itself as text: set `--env_kwargs "{render_mode: ansi}"`.'
    raise ConfigError(f'Gymnasium\'s "{env_id}" observes {_short(space)}, but a language model reads text. {remedy}')


def _short(space: Any) -> str:
    told = " ".join(str(space).split())
    return told if len(told) <= 80 else f"a {type(space).__name__} space"


_COLOURS = ("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "white", "crimson")
_COLOURED = re.compile(r"((?:\x1b\[[\d;]*[1-9][\d;]*m)+)(.*?)(?:\x1b\[0?m)+", flags=re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")


def plain_drawing(drawing: str) -> str:
    r"""Return a terminal drawing as plain text: what is coloured, or lies on a coloured ground, names its colours.

    >>> plain_drawing("\n\x1b[41mS\x1b[0mFFF\nFHFG\n")
    '[red:S]FFF\nFHFG'
    """
    named = _COLOURED.sub(lambda match: _in_colours(match[1], match[2]), drawing)
    return _ESCAPE.sub("", named).strip("\n")


def _in_colours(codes: str, text: str) -> str:
    numbers = [int(number) for number in re.findall(r"\d+", codes)]
    # 30 and on colour the letters, 40 and on the ground; other numbers are bold, underlined and the like.
    names = [_COLOURS[number % 10] for number in numbers if 30 <= number <= 48 and number % 10 < len(_COLOURS)]
    return f"[{','.join(names)}:{text}]" if names else text
