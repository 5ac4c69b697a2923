"""Sokoban: push every box of a small room onto a target; a careless push cannot be taken back.

Read first: `game.py` (rules), then `env.py` (text in and out, rewards), then `generator.py` (where rooms come from).
"""

from metarl_agents.environments.sokoban.env import Sokoban

__all__ = ["Sokoban"]
