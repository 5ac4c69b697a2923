"""Tic-Tac-Toe as an environment: boards as text, 1-based cells as actions, 10 for a win and -10 for a loss.

What does not live here: the rules (`game.py`), opponents (`opponents.py`), the model's texts (`wording.py`), the
scripted player (`player.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from metarl_agents.environments.tictactoe.game import TicTacToeGame, winner
from metarl_agents.environments.tictactoe.opponents import DEFAULT_POOL, find_opponent
from metarl_agents.environments.tictactoe.player import TicTacToePlayer
from metarl_agents.environments.tictactoe.wording import show_state, texts
from metarl_agents.envs.games import GameEnvironment, Opponent
from metarl_agents.envs.parsing import last_tag, parse_cell


class TicTacToe(GameEnvironment):
    """Tic-Tac-Toe against an opponent that the seed decides, in a seat that the seed decides.

    Args:
        opponent: one opponent for all tasks, by name (`opponents.find_opponent`) or as an object.
        opponents: several of them; by default the pool of MAGE's training.
        weights: how often each of `opponents` is met; None for equally often.
        seat: "first", "second" or "mixed".
        redraw_deal: let the opponent's chance differ from episode to episode; there is nothing else to deal.
        wording: `paper` for language models, `compact` for very small ones.
    """

    name = "Tic-Tac-Toe"
    reward_scale = 10.0

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
            TicTacToeGame(),
            find_opponent,
            opponent=opponent,
            opponents=opponents,
            weights=weights,
            seat=seat,
            redraw_deal=redraw_deal,
            pool=DEFAULT_POOL,
        )
        self._texts = texts(wording)
        self.wording, self.refusal = self._texts.wording, self._texts.refusal
        if wording == "compact":
            self.tiny_model = "tictactoe_tiny"

    def describe(self) -> str:
        """Return the rules in the chosen wording."""
        return self._texts.rules

    def show(self, state: str, seat: int) -> str:
        """Return the board as that seat sees it, its own signs as X."""
        return show_state(state, seat, winner(state), self.game.current_player(state) is None, self._texts)

    def parse_action(self, text: str) -> str | None:
        """Return the 1-based "(row, col)" inside the last <action> pair, playable or not; or None."""
        cell = parse_cell(last_tag(text, "action"))
        return None if cell is None else f"({cell[0]}, {cell[1]})"

    def player(self) -> TicTacToePlayer:
        """Return the scripted player."""
        return TicTacToePlayer()
