"""Meta reinforcement learning for language-model agents that learn to explore.

    from metarl_agents import Environment, train

    train(MyEnvironment, max_steps=50)

Names are imported when first used, so that `import metarl_agents` stays quick.
"""

from typing import TYPE_CHECKING, Any

from metarl_agents._version import __version__

_PUBLIC = {
    "Agent": "metarl_agents.agent",
    "CheckpointError": "metarl_agents.errors",
    "Config": "metarl_agents.config",
    "ConfigError": "metarl_agents.errors",
    "Environment": "metarl_agents.envs.base",
    "EnvironmentContractError": "metarl_agents.errors",
    "Episode": "metarl_agents.types",
    "EvaluationResult": "metarl_agents.evaluation.results",
    "Policy": "metarl_agents.policy.policy",
    "Response": "metarl_agents.types",
    "Sampling": "metarl_agents.policy.sampling",
    "StepResult": "metarl_agents.types",
    "Trial": "metarl_agents.types",
    "Turn": "metarl_agents.types",
    "UnknownEnvironmentError": "metarl_agents.errors",
    "Wording": "metarl_agents.envs.wording",
    "check_environment": "metarl_agents.envs.checks",
    "evaluate": "metarl_agents.evaluation.evaluate",
    "load_policy": "metarl_agents.policy.loading",
    "make": "metarl_agents.envs.registry",
    "register": "metarl_agents.envs.registry",
    "run_trial": "metarl_agents.agent",
    "train": "metarl_agents.training.trainer",
}

__all__ = [
    "__version__",
    "Agent",
    "CheckpointError",
    "Config",
    "ConfigError",
    "Environment",
    "EnvironmentContractError",
    "Episode",
    "EvaluationResult",
    "Policy",
    "Response",
    "Sampling",
    "StepResult",
    "Trial",
    "Turn",
    "UnknownEnvironmentError",
    "Wording",
    "check_environment",
    "evaluate",
    "load_policy",
    "make",
    "register",
    "run_trial",
    "train",
]

if TYPE_CHECKING:
    from metarl_agents.agent import Agent, run_trial
    from metarl_agents.config import Config
    from metarl_agents.envs.base import Environment
    from metarl_agents.envs.checks import check_environment
    from metarl_agents.envs.registry import make, register
    from metarl_agents.envs.wording import Wording
    from metarl_agents.errors import CheckpointError, ConfigError, EnvironmentContractError, UnknownEnvironmentError
    from metarl_agents.evaluation.evaluate import evaluate
    from metarl_agents.evaluation.results import EvaluationResult
    from metarl_agents.policy.loading import load_policy
    from metarl_agents.policy.policy import Policy
    from metarl_agents.policy.sampling import Sampling
    from metarl_agents.training.trainer import train
    from metarl_agents.types import Episode, Response, StepResult, Trial, Turn


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    import importlib

    if name not in _PUBLIC:
        raise AttributeError(f"module 'metarl_agents' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
