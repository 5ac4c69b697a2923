"""Who plays matrix games against the agent: habits by name, and the pool of each game."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from metarl_agents.environments.matrix_game.equilibrium import equilibrium
from metarl_agents.environments.matrix_game.game import MatrixRules
from metarl_agents.environments.matrix_game.habits import (
    BeatFrequent,
    BeatLast,
    BySeat,
    Cycle,
    Fixed,
    Grim,
    TitForTat,
    WinStayLoseShift,
    mostly,
)
from metarl_agents.envs.games import HumanOpponent, Opponent, named_opponent, uniform

_FORGIVES = 1 / 3


def makers(rules: MatrixRules) -> dict[str, Callable[[], Opponent]]:
    """Return name -> function that builds that opponent for these rules."""
    always = {f"always_{a}": partial(Fixed, f"always_{a}", rules, {a: 1.0}) for a in rules.actions}
    often = {f"mostly_{a}": partial(Fixed, f"mostly_{a}", rules, mostly(rules, a)) for a in rules.actions}
    return {
        **always,
        **often,
        "cycle": partial(Cycle, "cycle", rules),
        "tit_for_tat": partial(TitForTat, "tit_for_tat", rules),
        "generous_tit_for_tat": partial(TitForTat, "generous_tit_for_tat", rules, _FORGIVES),
        "grim": partial(Grim, "grim", rules),
        "win_stay_lose_shift": partial(WinStayLoseShift, "win_stay_lose_shift", rules),
        "beat_last": partial(BeatLast, "beat_last", rules),
        "beat_frequent": partial(BeatFrequent, "beat_frequent", rules),
        "random": partial(Fixed, "random", rules, uniform(rules.actions)),
        "equilibrium": lambda: BySeat("equilibrium", rules, equilibrium(rules)),
        "human": HumanOpponent,
    }


def default_pool(rules: MatrixRules) -> list[str]:
    """Return who is met where nobody is named: habits, some easier to exploit than others.

    In a zero-sum game always the same action, `cycle`, `tit_for_tat`, `win_stay_lose_shift`, `beat_last` and
    `beat_frequent`; elsewhere `grim` and `generous_tit_for_tat` in place of the last two.
    """
    shared = [*(f"always_{action}" for action in rules.actions), "cycle", "tit_for_tat", "win_stay_lose_shift"]
    return shared + (["beat_last", "beat_frequent"] if rules.zero_sum else ["grim", "generous_tit_for_tat"])


def find_opponent(name: str, rules: MatrixRules) -> Opponent:
    """Return the opponent of a name in `makers`."""
    return named_opponent("the matrix game", name, makers(rules))
