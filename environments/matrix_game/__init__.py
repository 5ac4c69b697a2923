"""Iterated matrix games: how the other player chooses is the hidden thing that memory can carry over.

Read first: `game.py` (tables, rounds), `habits.py` (opponents), then `env.py` (text in and out, rewards).
"""

from metarl_agents.environments.matrix_game.env import MatrixGame

__all__ = ["MatrixGame"]
