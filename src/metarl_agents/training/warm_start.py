"""Supervised fine-tuning on demonstrations: how the tiny model learns the format and some skill.

What lives here: the training loop on (prompt, response) rows, and what a preset of a shipped model says. What does
not: the play behind the rows (`demonstrations.py`). The loss counts response tokens only, as the policy gradient does.
"""

from __future__ import annotations

import difflib
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from multiprocessing import get_context
from typing import Any

import torch

from metarl_agents.cli import is_first_process
from metarl_agents.config import Config, TrialConfig
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import environment_factory
from metarl_agents.errors import ConfigError, NonFiniteError
from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.tiny import build_model, build_tokenizer, frequent_pieces
from metarl_agents.progress import progress
from metarl_agents.rollout.tasks import TaskStream, mix
from metarl_agents.training.demonstrations import MEMORY_MIX, Row, demonstrate, pages_and_answers
from metarl_agents.types import MemoryMode


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
ON_THE_FLY_SIZE: dict[str, Any] = {"layers": 2, "hidden": 64, "initializer_range": 0.1}
"""With the 0.02 of large models a network of this width still ignores its prompt after 300 steps."""


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

    Raises:
        NonFiniteError: the loss is no finite number.
    """
    scorer = TokenScorer(policy.model)
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
        if not math.isfinite(loss_value):
            raise NonFiniteError(
                f"the loss of step {step} of the warm start is {loss_value}: lower its learning rate of "
                f"{config.learning_rate:g}; nothing was saved."
            )
        if on_step is not None:
            on_step(step, loss_value, time.time() - started)
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
    lessons = replace(ON_THE_FLY, seed=config.run.seed)
    with progress("making the tiny model", lessons.steps, shown=is_first_process()) as at:
        warm_start(policy, fitting, lessons, lambda step, *_: at(step + 1))
    return policy


def untaught_tiny_policy(make_env: MakeEnv, config: Config) -> Policy:
    """Return the small fresh model before it is taught: its tokenizer knows the environment's words already."""
    seeds = _seeds(config)[:VOCABULARY_TRIALS]
    pieces = frequent_pieces(pages_and_answers(make_env, seeds, config.trial, seed=config.run.seed))
    tokenizer = build_tokenizer(extra=pieces)
    return Policy(build_model(tokenizer, **ON_THE_FLY_SIZE), tokenizer)


def _seeds(config: Config) -> list[int]:
    return TaskStream(mix(1_000_003, config.run.seed), ON_THE_FLY_TRIALS).take(0)


# ---- the models that ship ------------------------------------------------------------------------------------------

_CHUNK = 100
"""Trials that one process plays before it takes up the next ones."""


@dataclass(frozen=True)
class WarmStartPreset:
    """What a shipped tiny model is made of (`recipes/configs/<env>/warm_start*.yaml`)."""

    env: str
    """Registered name or address `package.module:Class`."""
    tasks: Sequence[Mapping[str, Any]] = ({},)
    """Keywords of the environment; each entry gets an equal share of the trials."""
    wording: str = "compact"
    max_turns: int = 7
    num_episodes: int = 3
    stop_on_success: bool = True
    """False plays all episodes of a trial, as games do."""
    trials: int = 16_000
    memory_mix: Sequence[str] = MEMORY_MIX
    """Memory modes that trials are played under, each as likely as it is listed often."""
    player: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the environment's scripted player."""
    vocabulary_trials: int = 0
    """Trials whose commonest words become words of the tokenizer; 0 keeps the built-in words alone."""
    model: Mapping[str, int] = field(default_factory=dict)
    """Keywords of `build_model`: layers, hidden, max_length."""
    stages: Sequence[tuple[int, float]] = ((1500, 2e-3), (1500, 1e-3))
    """(optimizer steps, peak learning rate); each falls to zero along a cosine."""
    batch_size: int = 128

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> WarmStartPreset:
        """Check what a preset file holds.

        Raises:
            ConfigError: an unknown or missing name, or a value that does not fit.
        """
        known = [item.name for item in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"it may hold {', '.join(known)}."
                raise ConfigError(f"a warm-start preset has no `{name}`; {hint}")
        if "env" not in values:
            raise ConfigError("the warm-start preset names no `env`: add the environment's name or address.")
        try:
            stages = tuple((int(steps), float(rate)) for steps, rate in values.get("stages", cls.stages))
        except (TypeError, ValueError):
            raise ConfigError(
                f"`stages` is {values['stages']!r}, but lists [steps, learning rate] pairs: write [[1500, 2.0e-3]]."
            ) from None
        preset = cls(**{**values, "stages": stages})
        modes = [mode.value for mode in MemoryMode]
        strange = [mode for mode in preset.memory_mix if mode not in modes]
        if strange or not preset.memory_mix or not preset.tasks or not stages:
            raise ConfigError(
                f"a warm-start preset lists at least one of `tasks`, of `stages` and of `memory_mix` "
                f"({', '.join(modes)}), but the last is {list(preset.memory_mix)}."
            )
        return preset

    def seeds(self, kind: int, seed: int) -> list[int]:
        """Return the training tasks of entry number `kind` of `tasks`."""
        return TaskStream(mix(1_000_003, seed, kind), self.trials // len(self.tasks)).take(0)

    def worlds(self, kind: int) -> tuple[MakeEnv, TrialConfig]:
        """Return (what builds the environment, what a trial is) of entry number `kind` of `tasks`."""
        trial = TrialConfig(
            env=self.env,
            env_kwargs=dict(self.tasks[kind]),
            wording=self.wording,
            max_turns=self.max_turns,
            num_episodes=self.num_episodes,
            stop_on_success=self.stop_on_success,
            env_timeout_s=None,
        )
        return environment_factory(trial), trial


def preset_tokenizer(preset: WarmStartPreset, seed: int) -> Any:
    """Return the tokenizer of a preset's model, the commonest words of `vocabulary_trials` trials included."""
    texts: list[str] = []
    for kind in range(len(preset.tasks)) if preset.vocabulary_trials else ():
        make_env, trial = preset.worlds(kind)
        seeds = preset.seeds(kind, seed)[: -(-preset.vocabulary_trials // len(preset.tasks))]
        options = {"memory_mix": preset.memory_mix, "player": preset.player}
        texts += pages_and_answers(make_env, seeds, trial, seed=seed, **options)
    return build_tokenizer(extra=frequent_pieces(texts))


def preset_rows(preset: WarmStartPreset, tokenizer: Any, seed: int, workers: int = 1) -> Iterator[Row]:
    """Yield the demonstrations of a preset, the same ones in the same order for every number of processes.

    Args:
        preset: what is played and how.
        tokenizer: turns pages and answers into ids.
        seed: decides tasks and players.
        workers: processes that play; with 1 no process is started.

    Raises:
        ConfigError: the player has no such attribute, or the environment fails.
    """
    share = preset.trials // len(preset.tasks)
    parts = [(preset, seed, kind, first) for kind in range(len(preset.tasks)) for first in range(0, share, _CHUNK)]
    if workers <= 1:
        speaker = _speaker(tokenizer)
        yield from chain.from_iterable(_play_part(speaker, *part) for part in parts)
        return
    # A fresh interpreter each: a fork would inherit the threads of torch and of the tokenizer.
    with get_context("spawn").Pool(workers, initializer=_start_worker, initargs=(tokenizer,)) as pool:
        yield from chain.from_iterable(pool.imap(_play_in_worker, parts))


def _speaker(tokenizer: Any) -> Policy:
    """Return a policy that only encodes."""
    return Policy(build_model(tokenizer, layers=1, hidden=8), tokenizer)


def _play_part(speaker: Policy, preset: WarmStartPreset, seed: int, kind: int, first: int) -> list[Row]:
    make_env, trial = preset.worlds(kind)
    seeds = preset.seeds(kind, seed)[first : first + _CHUNK]
    options = {"first": first, "memory_mix": preset.memory_mix, "player": preset.player}
    return list(demonstrate(make_env, seeds, trial, speaker.encode, speaker.answer_ids, seed, **options))


_in_worker: dict[str, Policy] = {}


def _start_worker(tokenizer: Any) -> None:
    _in_worker["speaker"] = _speaker(tokenizer)


def _play_in_worker(part: tuple[WarmStartPreset, int, int, int]) -> list[Row]:
    return _play_part(_in_worker["speaker"], *part)
