"""Who plays whom, and in which seat: a function of the task's seed.

All trials of a group share their seed, so a group has one opponent and one seat ("stationary grouping" of MAGE,
arXiv 2603.03680), and advantages compare like with like.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.games.contract import Opponent
from metarl_agents.errors import ConfigError

MIXED = "mixed"
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio


@dataclass(frozen=True)
class Seating:
    """The opponents a game may meet, how often each, and the agent's seat."""

    opponents: tuple[Opponent, ...]
    shares: tuple[float, ...]
    """(len(opponents),) positive, adding up to 1."""
    seats: tuple[int, ...]
    """The agent's possible seats."""

    def of(self, seed: int) -> tuple[Opponent, int]:
        """Return the opponent and the agent's seat in the task of a seed.

        Consecutive seeds, as in evaluation, take the seats in turn; of n tasks an opponent gets its share of n up to a
        few, because multiples of the golden ratio fill the unit interval evenly. Seeds drawn at random give both in
        these shares on average, independently of each other.
        """
        number, place = divmod(seed, len(self.seats))
        point = (number * _GOLDEN % 2**64) / 2**64
        for opponent, share in zip(self.opponents, self.shares, strict=True):
            point -= share
            if point < 0:
                return opponent, self.seats[place]
        return self.opponents[-1], self.seats[place]  # the shares' sum may be a hair's breadth below 1


def seating(
    game: str, opponents: Sequence[Opponent], weights: Sequence[float] | None, seat: str, players: Sequence[str]
) -> Seating:
    """Check the settings and return a seating.

    Args:
        game: the game's name, for messages.
        opponents: one or more, with different names.
        weights: how often each is met, relative to the others; None for equally often.
        seat: a player's name, or "mixed".
        players: the names of the seats.

    Raises:
        ConfigError: the settings do not fit.
    """
    for opponent in opponents:
        if not (isinstance(getattr(opponent, "name", None), str) and callable(getattr(opponent, "act", None))):
            raise ConfigError(
                f"{opponent!r} was given as an opponent in {game}, but a name is expected, or an object with a `name` "
                f"and a method `act` (metarl_agents.envs.games.Opponent)."
            )
    names = [opponent.name for opponent in opponents]
    if not names:
        raise ConfigError(f"`opponents` is empty, but somebody must play {game} against the agent. Name at least one.")
    if len(set(names)) < len(names):
        raise ConfigError(f"`opponents` lists {', '.join(names)}, one of them twice. Use `weights` to meet it oftener.")
    weights = [1.0] * len(names) if weights is None else list(weights)
    if len(weights) != len(names) or not all(0 < weight < math.inf for weight in weights):
        raise ConfigError(f"`weights` is {weights}, but {len(names)} positive numbers are expected, one per opponent.")
    check_choice(game, "seat", seat, (*players, MIXED))
    seats = tuple(range(len(players))) if seat == MIXED else (list(players).index(seat),)
    total = sum(weights)
    return Seating(tuple(opponents), tuple(weight / total for weight in weights), seats)
