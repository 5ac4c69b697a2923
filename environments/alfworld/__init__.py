"""ALFWorld: household tasks in text; where things are is the hidden thing memory can carry over.

Read first: `game.py` (playing), `generator.py` (where games come from), then `env.py` (the environment).
"""

from metarl_agents.environments.alfworld.env import ALFWorld

__all__ = ["ALFWorld"]
