"""Agents that nobody trained, as data: a request that replaces the wording's, and a memory mode.

They play through the same rollout as a trained policy, so that one table can hold all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_ANSWER_ONLY = "Give your next action inside <action> </action>, in the form the rules ask for. Write nothing else."
_REASON_THEN_ACT = (
    "First write down a thought: what do the observations tell you, and what should be done next? Then act on it: "
    "give exactly one action inside <action> </action>, in the form the rules ask for."
)


@dataclass(frozen=True)
class AgentSpec:
    """How a policy is asked to play."""

    memory: Literal["reflection", "none"] | None = None
    """Memory mode; None leaves it to the settings."""
    play_request: str | None = None
    """Replaces the wording's request; None keeps it."""


AGENTS: dict[str, AgentSpec] = {
    "policy": AgentSpec(),
    # Acts at once, and retries without a memory.
    "zero_shot": AgentSpec("none", _ANSWER_ONLY),
    # ReAct, arXiv 2210.03629: a thought before every action.
    "react": AgentSpec("none", _REASON_THEN_ACT),
    # Reflexion, arXiv 2303.11366: the same, with what it noted after failed attempts.
    "reflexion": AgentSpec("reflection", _REASON_THEN_ACT),
}


def agent_label(agent: str, model: str, label: str | None = None) -> str:
    """Return the name of a row in tables, `label` or the agent's; it says where a baseline means nothing.

    >>> agent_label("react", "tiny")
    'react (not meaningful for the tiny model)'
    """
    from metarl_agents.policy.loading import is_tiny

    name = label or agent
    # The tiny model knows a few hundred words: it cannot follow a request it was not taught.
    meaningless = AGENTS[agent].play_request is not None and is_tiny(model)
    return f"{name} (not meaningful for the tiny model)" if meaningless else name
