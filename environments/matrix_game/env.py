"""Iterated matrix games as an environment: rounds as text, a word as action, points as rewards.

What does not live here: tables and rounds (`game.py`), opponents (`habits.py`, `opponents.py`), exact play
(`equilibrium.py`), the model's texts (`wording.py`), the scripted player (`player.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from metarl_agents.environments.matrix_game.equilibrium import (
    best_response,
    equilibrium,
    equilibrium_value,
    mix_value,
)
from metarl_agents.environments.matrix_game.game import Play, rules_of
from metarl_agents.environments.matrix_game.habits import Habit
from metarl_agents.environments.matrix_game.opponents import default_pool, find_opponent
from metarl_agents.environments.matrix_game.player import MatrixPlayer
from metarl_agents.environments.matrix_game.wording import show_rounds, texts
from metarl_agents.envs.games import GameEnvironment, Opponent
from metarl_agents.envs.games.exact import TooLarge
from metarl_agents.envs.parsing import last_tag
from metarl_agents.errors import ConfigError

_HALF = 0.5
_ROUNDING = 1e-9


class MatrixGame(GameEnvironment):
    """Several rounds of one matrix game against a strategy with a habit, which the seed decides.

    The rewards of a play add up to 10 times its points, divided by the most that so many rounds can hold. A zero-sum
    game is won with more than 0 points and drawn with 0. Other games are won by gaining at least half of what the best
    response to the opponent gains over equilibrium play (`bar`).

    Args:
        game: a name in `game.PRESETS`, or a mapping with `actions`, `payoffs` and perhaps `other_payoffs`.
        rounds: how many, 1 to 100.
        opponent: one opponent for all tasks, by name (`opponents.makers`) or as an object.
        opponents: several of them; by default `opponents.default_pool`.
        weights: how often each of `opponents` is met; None for equally often.
        seat: "first", "second" or "mixed".
        redraw_deal: let the opponent's chance differ from episode to episode; there is nothing else to deal.
        wording: `paper` for language models, `compact` for very small ones.
    """

    name = "the matrix game"

    def __init__(
        self,
        *,
        game: str | Mapping[str, Any] = "rock_paper_scissors",
        rounds: int = 5,
        opponent: str | Opponent | None = None,
        opponents: Sequence[str | Opponent] | None = None,
        weights: Sequence[float] | None = None,
        seat: str = "mixed",
        redraw_deal: bool = False,
        wording: str = "paper",
    ):
        self.rules = rules_of(game, rounds)
        super().__init__(
            self.rules,
            partial(find_opponent, rules=self.rules),
            opponent=opponent,
            opponents=opponents,
            weights=weights,
            seat=seat,
            redraw_deal=redraw_deal,
            pool=dict.fromkeys(default_pool(self.rules), 1.0),
        )
        self._texts = texts(wording, self.rules)
        self.wording, self.refusal = self._texts.wording, self._texts.refusal
        if wording == "compact" and (game, rounds) == ("rock_paper_scissors", 3):
            self.tiny_model = "matrix_game_tiny"
        self.reward_scale = 10.0 / (rounds * self.rules.largest)
        self._bars: dict[tuple[str, int], float] = {}

    def describe(self) -> str:
        """Return the rules in the chosen wording."""
        return self._texts.rules

    def show(self, state: Play, seat: int) -> str:
        """Return the rounds that are over as that seat sees them; never a choice that is pending."""
        return show_rounds(self.rules, self.rules.information(state, seat), seat, self._texts)

    def parse_action(self, text: str) -> str | None:
        """Return the action where the last <action> pair holds just its word; or None."""
        answer = (last_tag(text, "action") or "").lower()
        return answer if answer in self.rules.actions else None

    def succeeded(self, payoffs: tuple[float, ...], seat: int) -> bool:
        """Return whether the agent won: see the class."""
        if self.rules.zero_sum:
            return payoffs[seat] > 0
        return payoffs[seat] >= self.bar(self._opponent, seat) - _ROUNDING

    def drew(self, payoffs: tuple[float, ...], seat: int) -> bool:
        """Return whether a zero-sum game ended with 0 points."""
        return self.rules.zero_sum and payoffs[seat] == 0

    def bar(self, opponent: Opponent, seat: int) -> float:
        """Return the points that win a game that is not zero-sum.

        Halfway between what equilibrium play and the best response earn on average against this opponent; against one
        that is no habit (a model, a human), or remembers too much to be answered exactly, what equilibrium play earns
        against itself.
        """
        key = (opponent.name, seat)
        if key not in self._bars:
            self._bars[key] = self._bar(opponent, seat)
        return self._bars[key]

    def _bar(self, opponent: Opponent, seat: int) -> float:
        if isinstance(opponent, Habit):
            with suppress(TooLarge):
                floor, ceiling = self._frame(opponent, seat)
                return floor + _HALF * (ceiling - floor)
        return equilibrium_value(self.rules, seat)

    def exact_values(self, opponent: Opponent, seat: int) -> tuple[float, float] | None:
        """Return what equilibrium play and the best response earn against a habit, by backward induction.

        None against anybody else, and where the table has no equilibrium that can be found.

        Raises:
            TooLarge: the habit remembers too much.
        """
        if not isinstance(opponent, Habit):
            return None
        with suppress(ConfigError):
            return self._frame(opponent, seat)
        return None

    def _frame(self, habit: Habit, seat: int) -> tuple[float, float]:
        floor = mix_value(self.rules, equilibrium(self.rules)[seat], habit, seat)
        return floor, best_response(self.rules, habit, seat).value

    def player(self) -> MatrixPlayer:
        """Return the scripted player."""
        return MatrixPlayer(self.rules)
