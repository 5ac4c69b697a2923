"""A policy as the rollout sees it: one sampling distribution, one stream of draws."""

from __future__ import annotations

from collections.abc import Sequence

from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.prompting.messages import Messages
from metarl_agents.rollout.tasks import mix
from metarl_agents.types import Response


class PolicySpeaker:
    """Answers prompts with `policy`; the draws of call c are a function of (`seed_parts`, c) alone."""

    def __init__(self, policy: Policy, sampling: Sampling, *seed_parts: int) -> None:
        """Bind a sampling distribution and a seed."""
        self._policy = policy
        self._sampling = sampling
        self._seed_parts = seed_parts

    def encode(self, messages: Messages) -> tuple[int, ...]:
        """Return the prompt's token ids."""
        return self._policy.encode(messages)

    def generate(self, prompts: Sequence[tuple[int, ...]], call: int) -> list[Response]:
        """Answer each prompt, in order."""
        return self._policy.generate(prompts, self._sampling, seed=mix(*self._seed_parts, call) % 2**31)
