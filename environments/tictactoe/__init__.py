"""Tic-Tac-Toe: the hidden thing is how the other player plays, and memory can carry it over.

Read first: `game.py` (rules), `opponents.py`, then `env.py` (text in and out, rewards).
"""

from metarl_agents.environments.tictactoe.env import TicTacToe

__all__ = ["TicTacToe"]
