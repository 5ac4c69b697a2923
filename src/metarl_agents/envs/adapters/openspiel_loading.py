"""From a name and parameters to a game of OpenSpiel that can be played here, or one sentence why not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from metarl_agents.addresses import did_you_mean
from metarl_agents.envs.adapters import first_line, need
from metarl_agents.envs.adapters.openspiel_game import OpenSpielGame
from metarl_agents.errors import ConfigError, UnknownEnvironmentError

_ROUNDS = "num_repetitions"


def load_game(name: str, parameters: Mapping[str, Any]) -> OpenSpielGame:
    """Return the game of that name.

    Args:
        name: as in `pyspiel.load_game`, "goofspiel(num_cards=4)" included.
        parameters: further ones. `num_repetitions` plays a game of one simultaneous choice, such as `matrix_rps`, so
            many times in a row.

    Raises:
        UnknownEnvironmentError: OpenSpiel knows no such game.
        ConfigError: OpenSpiel is missing or refuses the parameters, or the game cannot be played by two in turns.
    """
    library = need("openspiel", "pyspiel", "open-spiel")
    short = name.partition("(")[0].strip()
    kinds = {kind.short_name: kind for kind in library.registered_games()}
    if short not in kinds:
        raise UnknownEnvironmentError(
            f'OpenSpiel knows no game "{short}".{did_you_mean(short, list(kinds))} `pyspiel.registered_names()` lists '
            f"all {len(kinds)}."
        )
    given, repeated = dict(parameters), None
    if kinds[short].information == library.GameType.Information.ONE_SHOT:
        repeated = given.pop(_ROUNDS, None)
    _check_names(short, given, kinds[short].parameter_specification)
    game = _loaded(library, name, given)
    if repeated is not None:
        game = _repeated(library, game, repeated)
    _check_playable(library, game)
    return OpenSpielGame(str(game))


def _check_names(short: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a name that the game does not have, before OpenSpiel writes to the terminal about it."""
    for wrong in given.keys() - known.keys():
        takes = f"It takes: {', '.join(sorted(known))}." if known else "It takes none."
        raise ConfigError(f'OpenSpiel\'s "{short}" has no parameter "{wrong}". {takes}')


def _loaded(library: Any, name: str, given: dict[str, Any]) -> Any:
    try:
        if not given:
            return library.load_game(name)
        inside = library.game_parameters_from_string(name)
        return library.load_game(inside.pop("name"), {**inside, **given})
    except Exception as error:  # a game's constructor may raise anything
        raise ConfigError(
            f'OpenSpiel cannot build "{name}" with {given or "no further parameters"}: {first_line(error)}. Check the '
            f"name's parameters and `env_kwargs`, or choose another game."
        ) from error


def _repeated(library: Any, stage: Any, rounds: Any) -> Any:
    if type(rounds) is not int or not 1 <= rounds <= 1000:
        raise ConfigError(f"`{_ROUNDS}` is {rounds!r}, but a game is repeated 1 to 1000 times. Choose such a number.")
    return _loaded(library, f"repeated_game(stage_game={stage},{_ROUNDS}={rounds},recall={rounds})", {})


def _check_playable(library: Any, game: Any) -> None:
    """Refuse what has no two seats, draws chance that nobody can replay, or shows nothing that could be read."""
    kind, kinds = game.get_type(), library.GameType
    complaint = None
    if game.num_players() != 2:
        settable = "players" in kind.parameter_specification and kind.min_num_players <= 2 <= kind.max_num_players
        way = ": set its parameter `players` to 2, or choose another" if settable else ": choose another"
        complaint = f"is for {game.num_players()} here, but only games for two are played{way}"
    elif kind.dynamics == kinds.Dynamics.MEAN_FIELD:
        complaint = "is a mean field game, in which nobody sits: choose another"
    elif kind.chance_mode == kinds.ChanceMode.SAMPLED_STOCHASTIC:
        complaint = "draws its chance inside itself, so that no attempt could replay it: choose another"
    elif not (kind.provides_observation_string or kind.provides_information_state_string):
        complaint = "has no text of what a player sees: choose another"
    elif not all(math.isfinite(bound) for bound in (game.min_utility(), game.max_utility())):
        complaint = "has no bounds for what a player can earn: choose another"
    if complaint:
        raise ConfigError(f'OpenSpiel\'s "{kind.short_name}" {complaint}.')
