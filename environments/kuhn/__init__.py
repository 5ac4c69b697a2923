"""Kuhn poker: the other player's card and habits are the hidden things that memory can carry over.

Read first: `game.py` (rules), `opponents.py`, then `env.py` (text in and out, rewards).
"""

from metarl_agents.environments.kuhn.env import Kuhn

__all__ = ["Kuhn"]
