"""Who gets credit: from trials to one advantage per turn, by pure functions.

What lives here: returns (`returns.py`), the table of turns (`table.py`), statistics (`grouping.py`) and one file
per estimator. What does not: devices, processes, configuration, and the loss that spreads an advantage over tokens
(`training/loss.py`). Read `returns.py` first, then `gigpo.py`.

An estimator is any callable `TurnTable -> (B,) float32`; bind its options with `functools.partial`.
"""

from collections.abc import Callable

from torch import Tensor

from metarl_agents.advantages.gae import ppo_advantages
from metarl_agents.advantages.gigpo import (
    anchor_counts,
    gigpo_advantages,
    mean_anchor_group_size,
    singleton_fraction,
)
from metarl_agents.advantages.grouping import moment_sums, scale_and_clip, std_from_sums
from metarl_agents.advantages.grpo import grpo_advantages
from metarl_agents.advantages.reinforce import RunningMean, reinforce_advantages
from metarl_agents.advantages.returns import (
    RETURN_MODES,
    differential_returns,
    differential_rewards,
    final_returns,
    paper_returns,
    recursive_returns,
    single_returns,
)
from metarl_agents.advantages.rloo import rloo_advantages
from metarl_agents.advantages.table import ReturnFn, TurnTable, batch_scores, count_lone_trials, tabulate_turns

ADVANTAGES: dict[str, Callable[..., Tensor]] = {
    "gigpo": gigpo_advantages,
    "rloo": rloo_advantages,
    "grpo": grpo_advantages,
    "reinforce": reinforce_advantages,
    "ppo": ppo_advantages,
}
"""Estimators by the name a command line gives them."""

GROUP_RELATIVE = frozenset({"gigpo", "rloo", "grpo"})
"""Estimators that compare the trials of a group and so need at least two of them."""

NEEDS_BASELINE = frozenset({"reinforce"})
"""Estimators that are called with `baseline`, from a `RunningMean`."""

NEEDS_VALUES = frozenset({"ppo"})
"""Estimators that read `table.values`, so that a critic must run first."""

__all__ = [
    "ADVANTAGES",
    "GROUP_RELATIVE",
    "NEEDS_BASELINE",
    "NEEDS_VALUES",
    "RETURN_MODES",
    "ReturnFn",
    "RunningMean",
    "TurnTable",
    "anchor_counts",
    "batch_scores",
    "count_lone_trials",
    "differential_returns",
    "differential_rewards",
    "final_returns",
    "gigpo_advantages",
    "grpo_advantages",
    "mean_anchor_group_size",
    "moment_sums",
    "paper_returns",
    "ppo_advantages",
    "recursive_returns",
    "reinforce_advantages",
    "rloo_advantages",
    "scale_and_clip",
    "single_returns",
    "singleton_fraction",
    "std_from_sums",
    "tabulate_turns",
]
