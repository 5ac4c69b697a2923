"""Games for several players behind the environment contract. Standard library only.

Read first: `contract.py` (rules and opponents), then `environment.py` (how the agent is seated). `search.py` and
`exact.py` look ahead in small games.
"""

from metarl_agents.envs.games.contract import Decision, Game, MixedOpponent, Opponent, Policy, State, choose, uniform
from metarl_agents.envs.games.environment import GameEnvironment, named_opponent
from metarl_agents.envs.games.opponents import HumanOpponent, PolicyOpponent, TableOpponent, UniformOpponent
from metarl_agents.envs.games.search import SearchOpponent

__all__ = [
    "Decision",
    "Game",
    "GameEnvironment",
    "HumanOpponent",
    "MixedOpponent",
    "Opponent",
    "Policy",
    "PolicyOpponent",
    "SearchOpponent",
    "State",
    "TableOpponent",
    "UniformOpponent",
    "choose",
    "named_opponent",
    "uniform",
]
