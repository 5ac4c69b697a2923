"""The socket: what it means to be a task. Standard library only.

Read first: `base.py` (the contract), then `checks.py` (the contract you can run).
"""

from metarl_agents.envs.base import Environment
from metarl_agents.envs.checks import check_environment
from metarl_agents.envs.registry import make, register, registered, resolve
from metarl_agents.envs.wording import Wording

__all__ = ["Environment", "Wording", "check_environment", "make", "register", "registered", "resolve"]
