"""From trials to one advantage per row, as the settings say. The mathematics is in `advantages/`.

What lives here: calling the estimator and the return mode that the settings name, shipped or a user's own. Their
parameters tell what they are given (`asked_of`); what a user's own function returns is checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metarl_agents.addresses import ESTIMATOR, RETURN_MODE, has_mark, load
from metarl_agents.advantages import (
    ReturnFn,
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
from metarl_agents.errors import ConfigError
from metarl_agents.training.loss import Stats
from metarl_agents.types import Trial

SumOverRanks = Callable[[Tensor], Tensor]

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_TABLE = ("the table of turns",)
_COLUMNS = ("rewards", "episode", "is_reflection")


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
    """Return the turn table of `trials` under the configured return mode.

    Raises:
        ConfigError: the return mode cannot be called with the settings, or a user's own returns something else than
            one finite float per row.
    """
    return tabulate_turns(
        trials,
        _return_fn(config),
        gamma_step=config.gamma_step,
        anchor_scope=config.anchor_scope,
        anchor_visits=config.anchor_visits,
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

    Raises:
        ConfigError: the estimator cannot be called with the settings, or a user's own returns something else than one
            finite float per row.
    """
    advantages = _advantages(table, config, baseline, sum_over_ranks)
    std = std_from_sums(sum_over_ranks(moment_sums(advantages)))
    scaled = scale_and_clip(advantages, scale=config.scale_advantages, clip=config.advantage_clip, std=std)
    signal = group_sum((advantages != 0).double(), table.group) > 0 if len(table) else torch.zeros(0, dtype=torch.bool)
    rows, anchors, singletons = anchor_counts(table)
    alone = count_lone_trials(table)
    stats: Stats = {
        "gigpo/mean_group_size": (rows, anchors),
        "gigpo/singleton_frac": (singletons, rows),
        "advantages/lone_trials": (alone, 1),
        "advantages/lone_frac": (alone, len(batch_scores(table))),
        "advantages/std": (std, 1),
    }
    return Credit(table, scaled, signal, stats)


def needs_values(config: CreditConfig) -> bool:
    """Whether the estimator reads a critic."""
    return has_mark(load(config.advantages, ESTIMATOR), "reads_values")


def check_functions(config: CreditConfig) -> None:
    """Refuse an estimator or a return mode that cannot be found, or cannot be called with the settings.

    Raises:
        ConfigError: that is so.
    """
    asked_of(load(config.advantages, ESTIMATOR), config.advantages, config, _TABLE, "baseline")
    asked_of(load(config.return_mode, RETURN_MODE), config.return_mode, config, _COLUMNS)


def asked_of(
    function: Callable[..., Any], name: str, config: CreditConfig, given: Sequence[str], *further: str
) -> dict[str, Any]:
    """Return what a function asks for by the names of its parameters.

    Args:
        function: an estimator or a return mode.
        name: what the settings call it.
        config: a parameter named like one of these settings is filled with it.
        given: what the function is called with besides, in order; so many parameters are passed over.
        further: names that are no settings and may be asked for, too; what they get is up to the caller.

    Returns:
        {name: value} of the settings asked for, {name: None} of the further names.

    Raises:
        ConfigError: the function has no parameters for what it is given, or one that nothing fills.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise ConfigError(f"`{name}` does not tell its parameters: write it as a function, with `def`.") from None
    parameters = list(signature.parameters.values())
    first, rest = parameters[: len(given)], parameters[len(given) :]
    if len([p for p in first if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) < len(given):
        raise ConfigError(
            f"`{name}` takes {signature}, but is given {', '.join(given)}, in this order: let it begin with a "
            f"parameter{' for each' * (len(given) > 1)}."
        )
    known = asdict(config) | dict.fromkeys(further)
    fixed = getattr(function, "keywords", {})  # of a `functools.partial`, which has decided these
    asked = {}
    for parameter in rest:
        if parameter.name in known and parameter.name not in fixed and parameter.kind in _BY_NAME:
            asked[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty and parameter.kind not in _COLLECTING:
            raise ConfigError(
                f"`{name}` has a parameter `{parameter.name}` that nothing fills: give it a default, or the name of "
                f"what it is to get ({', '.join(known)})."
            )
    return asked


def _return_fn(config: CreditConfig) -> ReturnFn:
    """Return the return mode with its settings bound."""
    name = config.return_mode
    function = load(name, RETURN_MODE)
    bound = partial(function, **asked_of(function, name, config, _COLUMNS))
    if name in RETURN_MODE.names:
        return bound
    return lambda *columns: _one_float_each(bound(*columns), len(columns[0]), name, "of the trial")


def _advantages(table: TurnTable, config: CreditConfig, baseline: RunningMean, sum_over_ranks: SumOverRanks) -> Tensor:
    """Call the estimator with what it asks for; (B,) float32."""
    name = config.advantages
    estimator = load(name, ESTIMATOR)
    asked = asked_of(estimator, name, config, _TABLE, "baseline")
    if "baseline" in asked:
        scores = batch_scores(table, episode_score=config.episode_score, credit_unit=config.credit_unit)
        count, total, _ = sum_over_ranks(moment_sums(scores)).tolist()
        common_mean = torch.tensor([total / count] if count else [])
        asked["baseline"] = baseline.update(common_mean)
    if name in ESTIMATOR.names:
        return estimator(table, **asked)
    if not len(table):  # every group crashed, which a user's own function need not have thought of
        return torch.zeros(0)
    return _one_float_each(estimator(table, **asked), len(table), name, "of the table").to(table.returns.device)


def _one_float_each(result: Any, rows: int, name: str, place: str) -> Tensor:
    """Return what a user's own function returned as float32, if it is (rows,) floats that are finite as such."""
    if not isinstance(result, Tensor):
        found = f"a {type(result).__name__}"
    elif result.shape != (rows,):
        found = f"shape {tuple(result.shape)}"
    elif not result.is_floating_point():
        found = f"{result.dtype} numbers"
    elif not result.isfinite().all():
        found = "numbers that are not all finite"
    elif not (single := result.detach().float()).isfinite().all():
        found = "numbers that are too large for float32"
    else:
        return single
    error = ConfigError(
        f"`{name}` must return a tensor of shape ({rows},), one finite float for each row {place}, but returned "
        f"{found}."
    )
    error.of_one_process = True  # others may have got what was asked for
    raise error
