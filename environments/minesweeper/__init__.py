"""MineSweeper: open every safe cell of a small board; the mines are the hidden thing memory can carry over.

Read first: `game.py` (rules), then `env.py` (text in and out, rewards).
"""

from metarl_agents.environments.minesweeper.env import Minesweeper

__all__ = ["Minesweeper"]
