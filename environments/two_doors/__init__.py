"""Two doors: the smallest world in which an agent must learn from its own failed attempt."""

from metarl_agents.environments.two_doors.env import TwoDoors

__all__ = ["TwoDoors"]
