"""Games of OpenSpiel for two, by the name `openspiel:<name>`.

What lives here: `OpenSpielEnvironment`, which seats the agent in such a game and shows it, and who plays against it.
What does not: rules (`openspiel_game.py`), loading (`openspiel_loading.py`), texts (`openspiel_wording.py`), exact play
(`openspiel_exact.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from metarl_agents.envs.adapters import chosen_wording
from metarl_agents.envs.adapters.openspiel_exact import EquilibriumOpponent, PerfectOpponent, frame
from metarl_agents.envs.adapters.openspiel_game import OpenSpielGame, Play
from metarl_agents.envs.adapters.openspiel_loading import load_game
from metarl_agents.envs.adapters.openspiel_wording import (
    AT_ONCE,
    HIDDEN,
    NEW_CHANCE,
    NUMBERS,
    ROUNDS,
    SAME_CHANCE,
    TAKE_TURNS,
    TEXTS,
    WORDINGS,
    Texts,
    read_move,
)
from metarl_agents.envs.games import (
    GameEnvironment,
    HumanOpponent,
    Opponent,
    SearchOpponent,
    UniformOpponent,
    named_opponent,
)
from metarl_agents.envs.parsing import last_tag
from metarl_agents.envs.wording import Wording

_WIN = 10.0
"""Reward for the most that a player can earn."""
_EXPLORATION = 1.4
_QUICK = 1_000
"""A search is met by default where a game's length times its actions is no more than that: it takes milliseconds."""
_MOST_NUMBERED = 20
_ROUNDING = 1e-9


class OpenSpielEnvironment(GameEnvironment):
    """A game of OpenSpiel against an opponent that the seed decides, in a seat and with a deal that the seed decides.

    Actions are OpenSpiel's action strings. The seated player reads OpenSpiel's text of what that player observes, or,
    where things are hidden, of all that it knows. Rewards are payoffs, scaled so that the most that anybody can earn is
    10. A payoff above `par` is a success, one of exactly `par` a draw.

    Args:
        name: as in `pyspiel.load_game`, parameters in brackets included.
        opponent: one opponent for all tasks, by name (`find_opponent`) or as an object.
        opponents: several of them; by default random play, and in short games without secrets a search.
        weights: how often each of `opponents` is met; None for equally often.
        seat: "first", "second" or "mixed".
        redraw_deal: let chance and the opponent's chance differ from episode to episode of a trial.
        par: for games in which everybody earns something.
        description: the rules, shown on every page; default: what can be said of any game.
        wording: "paper", "compact", or a `Wording`.
        parameters: the game's own, such as `num_cards`; `num_repetitions` repeats a matrix game.

    Raises:
        UnknownEnvironmentError: OpenSpiel knows no such game.
        ConfigError: OpenSpiel is missing, or the settings do not fit, or the game is not for two.
    """

    def __init__(
        self,
        name: str,
        /,
        *,
        opponent: str | Opponent | None = None,
        opponents: Sequence[str | Opponent] | None = None,
        weights: Sequence[float] | None = None,
        seat: str = "mixed",
        redraw_deal: bool = False,
        par: float = 0.0,
        description: str | None = None,
        wording: str | Wording = "paper",
        **parameters: Any,
    ) -> None:
        game = load_game(name, parameters)
        self.name, self.par = f'OpenSpiel\'s "{game.spec}"', float(par)
        self.wording = chosen_wording("openspiel", wording, WORDINGS)
        self._texts = TEXTS["compact" if wording == "compact" else "paper"]
        self.refusal = self._texts.refusal
        super().__init__(
            game,
            partial(find_opponent, game=game),
            opponent=opponent,
            opponents=opponents,
            weights=weights,
            seat=seat,
            redraw_deal=redraw_deal,
            pool=dict.fromkeys(default_pool(game), 1.0),
        )
        self.reward_scale = _WIN / _largest(game)
        self._description = rules_of(game, self._texts, self.par, self.redraw_deal)
        if description is not None:
            self._description = description

    def describe(self) -> str:
        """Return the description given, or what can be said of any game."""
        return self._description

    def show(self, state: Play, seat: int) -> str:
        """Return OpenSpiel's text for that seat, with seat and turn before it and the result behind it."""
        words, rules = self._texts, self.game.rules
        turn, payoff = self.game.current_player(state), self.game.payoffs(state)[seat]
        head = words.seats[seat]
        if turn is not None:
            head += words.own_turn if turn == seat else words.other_turn
            head += words.so_far.format(payoff=payoff) if rules.pays_on_the_way else ""
        lines = [head, rules.text(state.history, seat).strip("\n").rstrip()]
        if turn is None:
            result = words.results[0 if payoff > self.par + _ROUNDING else 1 if self._is_par(payoff) else 2]
            lines.append(words.over.format(result=result, payoff=payoff))
        return "\n".join(line for line in lines if line)

    def parse_action(self, text: str) -> str | None:
        """Return the action inside the last <action> pair as it is listed, or as it stands where none is meant."""
        legal = () if self._state is None else self.game.legal_actions(self._state)
        return read_move(last_tag(text, "action"), legal)

    def succeeded(self, payoffs: tuple[float, ...], seat: int) -> bool:
        """Return whether the agent earned more than par."""
        return payoffs[seat] > self.par + _ROUNDING

    def drew(self, payoffs: tuple[float, ...], seat: int) -> bool:
        """Return whether the agent earned par."""
        return self._is_par(payoffs[seat])

    def exact_values(self, opponent: Opponent, seat: int) -> tuple[float, float] | None:
        """Return (floor, ceiling) where positions tell them, and None where all histories can be walked.

        Raises:
            TooLarge: neither is possible in reasonable time.
        """
        return frame(self.game, opponent, seat)

    def _is_par(self, payoff: float) -> bool:
        return math.isclose(payoff, self.par, rel_tol=0.0, abs_tol=_ROUNDING)


def find_opponent(name: str, game: OpenSpielGame) -> Opponent:
    """Return the opponent of a name: one of `makers`, or in zero-sum games without secrets `mcts_<simulations>`."""
    search = re.fullmatch(r"mcts_([1-9]\d{0,6})", name)
    if search and _is_searched(game):
        # The constant is meant for payoffs between -1 and 1.
        return SearchOpponent(game, int(search[1]), _EXPLORATION * _largest(game), name)
    further = " and mcts_<simulations>" if _is_searched(game) else ""
    return named_opponent(f'OpenSpiel\'s "{game.spec}"', name, makers(game), further)


def makers(game: OpenSpielGame) -> dict[str, Callable[[], Opponent]]:
    """Return name -> function that builds that opponent: `random`, `human`, `perfect` or `equilibrium` where they fit.

    `perfect` is for zero-sum games without secrets, `equilibrium` for zero-sum games with some, one player at a time;
    building them says so where the game is too large.
    """
    found: dict[str, Callable[[], Opponent]] = {"random": UniformOpponent}
    rules = game.rules
    if _is_searched(game):
        found["perfect"] = partial(PerfectOpponent, game)
    elif rules.is_zero_sum and rules.remembers and not rules.is_simultaneous:
        found["equilibrium"] = partial(EquilibriumOpponent, game)
    return found | {"human": HumanOpponent}


def default_pool(game: OpenSpielGame) -> list[str]:
    """Return who is met where nobody is named."""
    bounds = game.rules.game.max_game_length() * game.rules.game.num_distinct_actions()
    return ["random", "mcts_100"] if _is_searched(game) and bounds <= _QUICK else ["random"]


def rules_of(game: OpenSpielGame, words: Texts, par: float, redraw_deal: bool) -> str:
    """Return what can be said of any game: how to read it, how to answer, what is wanted."""
    rules = game.rules
    details = "" if rules.is_open else HIDDEN
    if rules.has_chance:
        details += NEW_CHANCE if redraw_deal else SAME_CHANCE
    if game.spec.startswith("repeated_game("):
        details += ROUNDS
    elif numbers := _numbers(game):
        details += NUMBERS.format(numbers=numbers)
    least, most = rules.utilities
    return words.rules.format(
        title=rules.title,
        spec=game.spec,
        turns=AT_ONCE if rules.is_simultaneous else TAKE_TURNS,
        details=details,
        par=par,
        least=least,
        most=most,
    )


@lru_cache(maxsize=64)
def _numbers(game: OpenSpielGame) -> str:
    """Return what the numbers in texts of hidden games stand for, where they are few and always mean the same."""
    rules = game.rules
    if rules.is_open or rules.game.num_distinct_actions() > _MOST_NUMBERED:
        return ""
    names = rules.names(0)
    return ", ".join(f"{number} {name}" for number, name in enumerate(names)) if names == rules.names(1) else ""


def _is_searched(game: OpenSpielGame) -> bool:
    return game.perfect_information and game.rules.is_zero_sum


def _largest(game: OpenSpielGame) -> float:
    """Return the most that a player can earn; in games of losses only, the most that it can lose."""
    least, most = game.rules.utilities
    return most if most > 0 else abs(least) or 1.0
