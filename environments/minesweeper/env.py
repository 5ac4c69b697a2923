"""MineSweeper as an environment: boards as text, 1-based cells as actions, rewards.

What does not live here: the rules (`game.py`), the model's texts (`wording.py`), the scripted player (`player.py`).
"""

from __future__ import annotations

from typing import Any

from metarl_agents.environments.minesweeper.game import Game, draw_game
from metarl_agents.environments.minesweeper.player import MinesweeperPlayer
from metarl_agents.environments.minesweeper.wording import texts
from metarl_agents.envs.base import Environment
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.parsing import last_tag, parse_cell
from metarl_agents.errors import ConfigError
from metarl_agents.types import StepResult

# Preset -> (win, several cells opened, one cell opened, mine, no effect).
_REWARDS = {
    "sparse": (10.0, 0.0, 0.0, 0.0, 0.0),
    "shaped": (10.0, 2.0, 0.5, -0.1, -1.0),
}
_MAX_SIZE = 30


class Minesweeper(Environment):
    """A square board with hidden mines; the seed decides mines and opening.

    Args:
        size: rows, and columns, 2 to 30.
        mines: how many mines, at least 1, leaving at least two safe cells.
        max_clicks: only tasks that so few clicks can win; None takes all.
        reward_preset: `sparse` pays 10 for winning; `shaped` also pays opened cells and charges mistakes.
        wording: `paper` for language models, `compact` for very small ones.
    """

    def __init__(
        self,
        *,
        size: int = 6,
        mines: int = 3,
        max_clicks: int | None = None,
        reward_preset: str = "sparse",
        wording: str = "paper",
    ):
        _check_settings(size, mines, max_clicks, reward_preset)
        self.size, self.mines, self.max_clicks = size, mines, max_clicks
        self.rewards = _REWARDS[reward_preset]
        self._rules, self.wording = texts(wording, size=size, mines=mines)
        if wording == "compact" and size in (4, 6):
            self.tiny_model = f"minesweeper_{size}x{size}"
        self._game: Game | None = None

    def describe(self) -> str:
        """Return the rules in the chosen wording."""
        return self._rules

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Draw the board of `seed` and open its first cell."""
        self.seed = seed
        self._game = draw_game(seed, size=self.size, mines=self.mines, max_clicks=self.max_clicks)
        return board_text(self._game), {}

    def parse_action(self, text: str) -> tuple[int, int] | None:
        """Return the 1-based (row, col) inside the last <action> pair, on the board or not; or None."""
        return parse_cell(last_tag(text, "action"))

    def step(self, action: tuple[int, int]) -> StepResult:
        """Open a cell; one that is off the board or open already has no effect and uses up the turn."""
        game = self._started()
        if game.over:
            raise RuntimeError("This MineSweeper attempt is over. Call `reset` or `restart` before the next `step`.")
        row, col = action
        on_board = 1 <= row <= self.size and 1 <= col <= self.size
        opened = game.open((row - 1) * self.size + col - 1) if on_board else 0
        return StepResult(board_text(game), self._reward(game, opened), game.over, False, {"success": game.won})

    def min_turns(self) -> int:
        """Return the fewest turns that win the current task from its start, for someone who knows the mines."""
        return self._started().fresh().min_clicks()

    def player(self) -> MinesweeperPlayer:
        """Return the scripted player."""
        return MinesweeperPlayer()

    def _started(self) -> Game:
        if self._game is None:
            raise RuntimeError("No MineSweeper task has been started. Call `reset(seed=...)` first.")
        return self._game

    def _reward(self, game: Game, opened: int) -> float:
        win, several, one, mine, nothing = self.rewards
        if game.won:
            return win
        if game.hit is not None:
            return mine
        if opened == 0:
            return nothing
        return one if opened == 1 else several


def board_text(game: Game) -> str:
    """Return the board as the agent sees it, one line a row: `Row 1: ? ? 1 .`."""
    signs = ["?"] * len(game.counts)
    for cell in game.opened:
        signs[cell] = str(game.counts[cell] or ".")
    if game.hit is not None:
        signs[game.hit] = "*"
    size = game.size
    rows = (signs[row * size : (row + 1) * size] for row in range(size))
    return "\n".join(f"Row {number}: {' '.join(row)}" for number, row in enumerate(rows, start=1))


def _check_settings(size: int, mines: int, max_clicks: int | None, reward_preset: str) -> None:
    if not 2 <= size <= _MAX_SIZE:
        raise ConfigError(f"`size` is {size}, but a MineSweeper board has 2 to {_MAX_SIZE} rows. Choose such a size.")
    most = size * size - 2
    if not 1 <= mines <= most:
        raise ConfigError(
            f"`mines` is {mines}, but a board of `size` {size} takes 1 to {most}, which leaves two safe cells: "
            f"one opened at the start, one to find. Choose a number in that range."
        )
    if max_clicks is not None and max_clicks < 1:
        raise ConfigError(
            f"`max_clicks` is {max_clicks}, but every task needs at least 1. "
            f"Raise it, or leave it out to take all boards."
        )
    check_choice("MineSweeper", "reward_preset", reward_preset, _REWARDS)
