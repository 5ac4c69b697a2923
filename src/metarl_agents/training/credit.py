"""From trials to one advantage per row, as the settings say. The mathematics is in `advantages/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from metarl_agents.advantages import (
    ADVANTAGES,
    NEEDS_BASELINE,
    NEEDS_VALUES,
    RETURN_MODES,
    RunningMean,
    TurnTable,
    anchor_counts,
    batch_scores,
    count_lone_trials,
    moment_sums,
    scale_and_clip,
    std_from_sums,
    tabulate_turns,
)
from metarl_agents.advantages.grouping import group_sum
from metarl_agents.config import CreditConfig
from metarl_agents.training.loss import Stats
from metarl_agents.types import Trial

SumOverRanks = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Credit:
    """What a batch of trials earned."""

    table: TurnTable
    advantages: Tensor
    """(B,) float32."""
    has_signal: Tensor
    """(B,) bool: the row's group holds a non-zero advantage."""
    stats: Stats


def drop_crashed_groups(trials: Sequence[Trial]) -> list[Trial]:
    """Leave out every group with a crashed trial: an environment's failure must not be scored as the agent's."""
    crashed = {trial.group for trial in trials if trial.crashed}
    return [trial for trial in trials if trial.group not in crashed]


def tabulate(trials: Sequence[Trial], config: CreditConfig) -> TurnTable:
    """Return the turn table of `trials` under the configured return mode."""
    return_fn = partial(RETURN_MODES[config.return_mode], gamma_step=config.gamma_step, gamma_traj=config.gamma_traj)
    return tabulate_turns(
        trials,
        return_fn,
        gamma_step=config.gamma_step,
        anchor_scope=config.anchor_scope,
        credit_unit=config.credit_unit,
        by_role=config.normalise_by_role,
    )


def assign_credit(
    table: TurnTable, config: CreditConfig, baseline: RunningMean, sum_over_ranks: SumOverRanks
) -> Credit:
    """Compute the advantages of a batch.

    Groups are whole on one rank, so estimators need no communication; only batch-wide statistics do.

    Args:
        table: the batch; with critic values where the estimator needs them.
        config: which estimator, and how to scale.
        baseline: REINFORCE's running mean; updated here.
        sum_over_ranks: adds a tensor over all processes.
    """
    estimator = partial(ADVANTAGES[config.advantages], **_options(config))
    if config.advantages in NEEDS_BASELINE:
        scores = batch_scores(table, episode_score=config.episode_score, credit_unit=config.credit_unit)
        count, total, _ = sum_over_ranks(moment_sums(scores)).tolist()
        common_mean = torch.tensor([total / count] if count else [])
        advantages = estimator(table, baseline=baseline.update(common_mean))
    else:
        advantages = estimator(table)
    std = std_from_sums(sum_over_ranks(moment_sums(advantages)))
    scaled = scale_and_clip(advantages, scale=config.scale_advantages, clip=config.advantage_clip, std=std)
    signal = group_sum((advantages != 0).double(), table.group) > 0 if len(table) else torch.zeros(0, dtype=torch.bool)
    rows, anchors, singletons = anchor_counts(table)
    stats: Stats = {
        "gigpo/mean_group_size": (rows, anchors),
        "gigpo/singleton_frac": (singletons, rows),
        "advantages/lone_trials": (count_lone_trials(table), 1),
        "advantages/std": (std, 1),
    }
    return Credit(table, scaled, signal, stats)


def needs_values(config: CreditConfig) -> bool:
    """Whether the estimator reads a critic."""
    return config.advantages in NEEDS_VALUES


def _options(config: CreditConfig) -> dict:
    common = {"episode_score": config.episode_score, "credit_unit": config.credit_unit}
    return {
        "gigpo": common | {"step_weight": config.step_weight, "norm": config.norm},
        "rloo": common,
        "grpo": common,
        "reinforce": {"episode_score": config.episode_score},
        "ppo": {"gae_lambda": config.gae_lambda},
    }[config.advantages]
