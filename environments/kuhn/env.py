"""Kuhn poker as an environment: hands as text, pass or bet as actions, 5 for each chip won.

What does not live here: the rules (`game.py`), opponents (`opponents.py`), the model's texts (`wording.py`), exact
play (`equilibrium.py`), the scripted player (`player.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from metarl_agents.environments.kuhn.game import ACTIONS, Hand, KuhnGame
from metarl_agents.environments.kuhn.opponents import DEFAULT_POOL, find_opponent
from metarl_agents.environments.kuhn.player import KuhnPlayer
from metarl_agents.environments.kuhn.wording import show_hand, texts
from metarl_agents.envs.games import GameEnvironment, Opponent
from metarl_agents.envs.parsing import last_tag


class Kuhn(GameEnvironment):
    """Kuhn poker against an opponent that the seed decides, in a seat and with cards that the seed decides.

    Args:
        opponent: one opponent for all tasks, by name (`opponents.find_opponent`) or as an object.
        opponents: several of them; by default the characters of MAGE's training.
        weights: how often each of `opponents` is met; None for equally often.
        seat: "first", "second" or "mixed".
        redraw_deal: deal new cards in each episode of a trial; otherwise the same deal is replayed.
        wording: `paper` for language models, `compact` for very small ones.
    """

    name = "Kuhn poker"
    reward_scale = 5.0

    def __init__(
        self,
        *,
        opponent: str | Opponent | None = None,
        opponents: Sequence[str | Opponent] | None = None,
        weights: Sequence[float] | None = None,
        seat: str = "mixed",
        redraw_deal: bool = False,
        wording: str = "paper",
    ):
        super().__init__(
            KuhnGame(),
            find_opponent,
            opponent=opponent,
            opponents=opponents,
            weights=weights,
            seat=seat,
            redraw_deal=redraw_deal,
            pool=DEFAULT_POOL,
        )
        self._texts = texts(wording, redraw_deal=self.redraw_deal)
        self.wording, self.refusal = self._texts.wording, self._texts.refusal
        if wording == "compact":
            self.tiny_model = "kuhn_tiny"

    def describe(self) -> str:
        """Return the rules in the chosen wording."""
        return self._texts.rules

    def show(self, state: Hand, seat: int) -> str:
        """Return the hand as that seat sees it: its own card, all actions, and at the end what it won."""
        known = self.game.information(state, seat)
        over = self.game.current_player(state) is None
        payoff = self.game.payoffs(state)[seat] if over else None
        return show_hand(seat, known.card, known.actions, payoff, self._texts)

    def parse_action(self, text: str) -> str | None:
        """Return "pass" or "bet" where the last <action> pair holds just that word; or None."""
        answer = (last_tag(text, "action") or "").lower()
        return answer if answer in ACTIONS else None

    def min_turns(self) -> float | None:
        """Return the fewest turns that win the current deal for someone who knows both cards and the opponent.

        Infinite where the deal cannot be won; None under `redraw_deal`, where a trial has many deals.
        """
        return None if self.redraw_deal else self.fewest_turns_to_win()

    def player(self) -> KuhnPlayer:
        """Return the scripted player."""
        return KuhnPlayer()
