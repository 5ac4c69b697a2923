"""Who plays Kuhn poker against the agent: three fixed characters, the equilibrium, CFR, best responses.

The three characters are those of MAGE's training (arXiv 2603.03680), met by 30, 30 and 40 % of the tasks by default.
"""

from __future__ import annotations

from functools import partial

from metarl_agents.environments.kuhn import equilibrium
from metarl_agents.environments.kuhn.game import BET, DECISIONS, Known
from metarl_agents.envs.games import HumanOpponent, MixedOpponent, Opponent, TableOpponent, UniformOpponent
from metarl_agents.envs.games.environment import named_opponent

DEFAULT_POOL = {"conservative": 0.3, "aggressive": 0.3, "intermediate": 0.4}
"""Name -> weight."""
_ANSWERS_TO = "best_response_to_"


def _character(unprovoked: str, facing_bet: str) -> equilibrium.Table:
    """Return a table that bets with some cards: where no bet has been made, and in answer to one."""
    return equilibrium.bets(
        {
            Known(card, actions): float(card in (facing_bet if BET in actions else unprovoked))
            for actions in DECISIONS
            for card in "JQK"
        }
    )


CHARACTERS = {
    "conservative": _character(unprovoked="K", facing_bet="K"),
    "aggressive": _character(unprovoked="JQK", facing_bet="QK"),
    "intermediate": _character(unprovoked="QK", facing_bet="K"),
}
"""Name -> what it does; nothing is left to chance."""


def find_opponent(name: str) -> Opponent:
    """Return the opponent of a name.

    `random`, `human`, one of `CHARACTERS`, `equilibrium` (mixed), `cfr` (average of 1000 iterations, mixed),
    `cfr_likeliest` (its likeliest action, always), or `best_response_to_<one of these>`.
    """
    if name.startswith(_ANSWERS_TO):
        other = find_opponent(name.removeprefix(_ANSWERS_TO))
        if isinstance(other, MixedOpponent):
            return TableOpponent(name, equilibrium.best_response_table(other.probabilities))
    makers = {
        "random": UniformOpponent,
        **{character: partial(TableOpponent, character, table) for character, table in CHARACTERS.items()},
        "equilibrium": lambda: TableOpponent("equilibrium", equilibrium.equilibrium()),
        "cfr": lambda: TableOpponent("cfr", equilibrium.cfr()),
        "cfr_likeliest": lambda: TableOpponent("cfr_likeliest", equilibrium.likeliest(equilibrium.cfr())),
        "human": HumanOpponent,
    }
    return named_opponent("Kuhn poker", name, makers, f" and {_ANSWERS_TO}<one of these but human>")
