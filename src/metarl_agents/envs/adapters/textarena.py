"""Single-player games of TextArena, by the name `textarena:<id>`.

What lives here: `TextArenaEnvironment`, and the random states that each game keeps for itself. TextArena's games draw
from Python's global generator, so that games played side by side would disturb each other.
"""

from __future__ import annotations

import copy
import io
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import Any

from metarl_agents.addresses import did_you_mean
from metarl_agents.envs.adapters import chosen_wording, first_line, need
from metarl_agents.envs.base import Environment
from metarl_agents.envs.wording import COMPACT, Wording
from metarl_agents.errors import ConfigError, UnknownEnvironmentError
from metarl_agents.types import StepResult

_REQUEST = (
    "Think step by step about what you have seen so far, then give your next move, written as the game asks, inside "
    "<action> </action>."
)
# A game's rules are in its first observation, and later ones hold only what is new: both windows stay open.
_WORDINGS = {
    "paper": Wording(play_request=_REQUEST, history_turns=20, full_observations=20, reflect_full_observations=50),
    "compact": replace(
        COMPACT,
        play_request="Move inside <action> </action>.",
        initial="{observation}",
        history_entry="{action}: {observation}",
        trajectory_entry="{action}: {observation}",
        entry_separator="\n",
        history_turns=20,
        full_observations=20,
        reflect_full_observations=50,
    ),
}
_proven: set[str] = set()
"""Games that were found to be played alone; finding out takes a game, which is as slow as the game."""


class TextArenaEnvironment(Environment):
    """A game of TextArena for one player, one task per seed.

    The first observation holds the game's rules, later ones what the game said since. The reward comes with the last
    move, as TextArena gives it: 1 for a solved game, less for part of it. A refused move is forgiven once, and marked
    `info["invalid"]`; a second one in a row loses the game.

    Args:
        game_id: as in `textarena.make`.
        success_reward: a game that ends with at least this reward is solved.
        wording: "paper", "compact", or a `Wording`.
        make_kwargs: passed to `textarena.make`.

    Raises:
        UnknownEnvironmentError: TextArena knows no such game.
        ConfigError: TextArena is missing or cannot build the game, or the game is for several players.
    """

    def __init__(
        self, game_id: str, /, *, success_reward: float = 1.0, wording: str | Wording = "paper", **make_kwargs: Any
    ) -> None:
        self.wording = chosen_wording("textarena", wording, _WORDINGS)
        self._id, self._success_reward, self._over = game_id, success_reward, True
        self._generators = _OwnGenerators()
        with self._at_play(0):
            self._library = need("textarena")
            self._unplayed = _made(self._library, game_id, make_kwargs)
        if game_id not in _proven:
            self._check_is_for_one()
            _proven.add(game_id)

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the task that `seed` decides."""
        self.seed, self._over = seed, False
        # A copy of the game as it was built: some games keep things from one playing to the next.
        self._game = copy.deepcopy(self._unplayed)
        with self._at_play(seed):
            self._game.reset(num_players=1, seed=seed)
            return self._news(), {}

    def step(self, action: str) -> StepResult:
        """Send one move."""
        if self._over:
            raise RuntimeError(f"The game {self._id} is over. Call `reset` or `restart` before the next `step`.")
        with self._at_play():
            self._over = bool(self._game.step(action)[0])
            observation = self._news()
            reward, reason, refused = self._ending() if self._over else (0.0, "", False)
        info = {
            "success": self._over and reward >= self._success_reward,
            "invalid": refused or self._state.error_count > 0,
        }
        return StepResult(f"{observation}\n{reason}".strip(), reward, self._over, False, info)

    def _ending(self) -> tuple[float, str, bool]:
        """Return (reward, reason, whether a refused move ended it) of the game that is over."""
        rewards, told = self._game.close()
        reward, own = (rewards or {}).get(0, 0.0), told.get(0, {})
        refused = bool(own.get("invalid_move"))
        if isinstance(reward, str):
            # Some games of TextArena 0.7.4 lose by a refused move with reason and reward in each other's place.
            return 0.0, f"Invalid Move: {reward}", refused
        return float(reward), str(own.get("reason") or ""), refused

    @contextmanager
    def _at_play(self, seed: int | None = None) -> Iterator[None]:
        """Let the game draw from its own random states, and drop what it prints for its developers."""
        with self._generators.used(seed), redirect_stdout(io.StringIO()):
            yield

    @property
    def _inner(self) -> Any:
        """The game without its wrappers of observations, which would repeat all that was said before."""
        game = self._game
        while isinstance(game, self._library.Wrapper):
            game = game.env
        return game

    @property
    def _state(self) -> Any:
        return self._inner.state

    def _news(self) -> str:
        """Return what the game said since the last call; the player's own moves are in the history already."""
        _, messages = self._inner.get_observation()
        own = self._library.ObservationType.PLAYER_ACTION
        return "\n".join(str(text).strip() for _, text, kind in messages if kind is not own)

    def _check_is_for_one(self) -> None:
        try:
            self.reset(seed=0)
        except Exception as error:  # each game has its own way of refusing a lonely player
            raise ConfigError(
                f'TextArena\'s "{self._id}" cannot be played by one player alone ({first_line(error)}): choose a '
                f'single-player game, for example "textarena:GuessTheNumber-v0".'
            ) from error
        if not isinstance(self._state, self._library.SinglePlayerState):
            raise ConfigError(
                f'TextArena\'s "{self._id}" is a game for several players: choose a single-player game, for example '
                f'"textarena:GuessTheNumber-v0".'
            )
        self.seed, self._over = None, True


def _made(library: Any, game_id: str, make_kwargs: dict[str, Any]) -> Any:
    known = library.envs.registration.ENV_REGISTRY
    if game_id not in known:
        raise UnknownEnvironmentError(
            f'TextArena knows no game "{game_id}".{did_you_mean(game_id, list(known))} '
            f"`textarena.pprint_registry_detailed()` lists all {len(known)}."
        )
    try:
        return library.make(game_id, **make_kwargs)
    except Exception as error:  # a game's module and constructor may raise anything
        if isinstance(error, LookupError) and "nltk" in str(error):
            raise ConfigError(
                f'TextArena\'s "{game_id}" needs word lists of nltk that are not on this machine: where there is a '
                f"network, run `python -m nltk.downloader words averaged_perceptron_tagger_eng` once."
            ) from None
        raise ConfigError(
            f'TextArena cannot build "{game_id}" ({type(error).__name__}: {first_line(error)}): check `env_kwargs`, '
            f"which are passed on to textarena.make, or choose another game."
        ) from error


class _OwnGenerators:
    """The states of the global random generators as one game left them; everybody else's stay as they are."""

    def __init__(self) -> None:
        self._states: tuple[Any, Any] = (None, None)

    @contextmanager
    def used(self, seed: int | None = None) -> Iterator[None]:
        """Put the game's states in place, freshly seeded if a seed is given, and the others back at the end."""
        # Games that draw from numpy's generator have imported it; without it there is nothing to keep.
        numpy = sys.modules.get("numpy")
        outside = random.getstate(), numpy.random.get_state() if numpy else None
        if seed is not None:
            legacy = numpy.random.RandomState(seed % 2**32).get_state() if numpy else None
            self._states = random.Random(seed).getstate(), legacy
        try:
            _put(self._states, numpy)
            yield
            self._states = random.getstate(), numpy.random.get_state() if numpy else None
        finally:
            _put(outside, numpy)


def _put(states: tuple[Any, Any], numpy: Any) -> None:
    random.setstate(states[0])
    if numpy and states[1] is not None:
        numpy.random.set_state(states[1])
