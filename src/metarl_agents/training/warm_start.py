"""Supervised fine-tuning on demonstrations: how the tiny model learns the format and some skill.

What lives here: the training loop on (prompt, response) rows. What does not: the rows (`demonstrations.py`).
The loss counts response tokens only, as the policy gradient does.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from metarl_agents.config import Config
from metarl_agents.envs.base import MakeEnv
from metarl_agents.errors import ConfigError
from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.tiny import build_model, build_tokenizer, frequent_pieces
from metarl_agents.prompting.messages import Messages
from metarl_agents.rollout.tasks import TaskStream, mix
from metarl_agents.training.demonstrations import Row, demonstrate


@dataclass(frozen=True)
class WarmStartConfig:
    """Settings of the warm start."""

    steps: int = 1500
    batch_size: int = 128
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    seed: int = 0


ON_THE_FLY_TRIALS = 400
VOCABULARY_TRIALS = 50
ON_THE_FLY = WarmStartConfig(steps=200, batch_size=32, learning_rate=3e-3, warmup_steps=20)
ON_THE_FLY_SIZE = {"layers": 2, "hidden": 64}


def warm_start(
    policy: Policy,
    rows: Sequence[Row],
    config: WarmStartConfig,
    on_step: Callable[[int, float, float], None] | None = None,
) -> float:
    """Fit the policy to demonstrations, in place, and return the last loss (nats a response token).

    The learning rate rises over `warmup_steps` and falls to zero along a cosine. The order of rows is a function of
    the seed alone.

    Args:
        policy: the model to teach, in fp32.
        rows: (prompt ids, response ids) pairs; at least one.
        config: steps, batch size, learning rate.
        on_step: called with (step, loss, seconds since the start).
    """
    scorer = TokenScorer(policy.model).train()
    optimizer = torch.optim.AdamW(scorer.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, config))
    rng = random.Random(config.seed)
    started, loss_value = time.time(), math.nan
    for step in range(config.steps):
        batch = [rows[rng.randrange(len(rows))] for _ in range(config.batch_size)]
        ids, attention, response = right_pad([p for p, _ in batch], [r for _, r in batch], policy.pad_id)
        device = policy.model.device
        scores = scorer(ids.to(device), attention.to(device), response.to(device))
        loss = -scores.logprobs.sum() / response.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        loss_value = loss.item()
        if on_step is not None:
            on_step(step, loss_value, time.time() - started)
    policy.model.eval()
    return loss_value


def _rate(step: int, config: WarmStartConfig) -> float:
    rising = min(1.0, (step + 1) / max(1, config.warmup_steps))
    return rising * 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, config.steps))))


def tiny_policy_on_the_fly(make_env: MakeEnv, config: Config) -> Policy:
    """Return a small fresh model that speaks an environment which no shipped model knows.

    It learns from the environment's `player()`, or, where there is none, from parseable answers drawn from its
    admissible actions. Takes seconds to a few minutes on a CPU; a function of the run's seed alone.

    Raises:
        ConfigError: the environment has neither a player nor admissible actions, or its prompts do not fit.
    """
    policy = untaught_tiny_policy(make_env, config)
    seeds = _seeds(config)
    rows = list(demonstrate(make_env, seeds, config.trial, policy.encode, policy.answer_ids, config.run.seed))
    fitting = [(p, r) for p, r in rows if len(p) + len(r) <= (policy.context_length or len(p) + len(r))]
    if not fitting:
        raise ConfigError(
            f"the tiny model reads {policy.context_length} tokens, but every prompt of this environment is longer: "
            "shorten its texts, or pass `--model_name_or_path` a real model."
        )
    warm_start(policy, fitting, replace(ON_THE_FLY, seed=config.run.seed))
    return policy


def untaught_tiny_policy(make_env: MakeEnv, config: Config) -> Policy:
    """Return the small fresh model before it is taught: its tokenizer knows the environment's words already."""
    pieces = _pieces(make_env, _seeds(config)[:VOCABULARY_TRIALS], config)
    tokenizer = build_tokenizer(extra=pieces)
    return Policy(build_model(tokenizer, **ON_THE_FLY_SIZE), tokenizer)


def _seeds(config: Config) -> list[int]:
    return TaskStream(mix(1_000_003, config.run.seed), ON_THE_FLY_TRIALS).take(0)


def _pieces(make_env: MakeEnv, seeds: Sequence[int], config: Config) -> list[str]:
    """Return the words of the environment's prompts and answers, so that the model reads words and not bytes."""
    texts: list[str] = []

    def note(messages: Messages) -> tuple[int, ...]:
        texts.extend(message["content"] for message in messages)
        return ()

    def note_answer(text: str) -> tuple[int, ...]:
        texts.append(text)
        return ()

    for _ in demonstrate(make_env, seeds, config.trial, note, note_answer, config.run.seed):
        pass
    return frequent_pieces(texts)
