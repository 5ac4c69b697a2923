"""Who gets credit: from trials to one advantage per turn, by pure functions.

What lives here: returns (`returns.py`), the table of turns (`table.py`), statistics (`grouping.py`) and one file
per estimator. What does not: devices, processes, configuration, and the loss that spreads an advantage over tokens
(`training/loss.py`). Read `returns.py` first, then `gigpo.py`.

An estimator is any function `TurnTable -> (B,) float32`. Its further parameters are named like the settings that fill
them; what it needs besides is said by a mark (`marks.py`). A return mode is told the same way (`returns.py`).
"""

from collections.abc import Callable

from torch import Tensor

from metarl_agents.addresses import ESTIMATOR, RETURN_MODE, load
from metarl_agents.advantages.gae import ppo_advantages
from metarl_agents.advantages.gigpo import (
    anchor_counts,
    gigpo_advantages,
    mean_anchor_group_size,
    singleton_fraction,
)
from metarl_agents.advantages.grouping import moment_sums, scale_and_clip, std_from_sums
from metarl_agents.advantages.grpo import grpo_advantages
from metarl_agents.advantages.marks import compares_trials, reads_values
from metarl_agents.advantages.reinforce import RunningMean, reinforce_advantages
from metarl_agents.advantages.returns import (
    differential_returns,
    differential_rewards,
    final_returns,
    paper_returns,
    recursive_returns,
    single_returns,
)
from metarl_agents.advantages.rloo import rloo_advantages
from metarl_agents.advantages.table import ReturnFn, TurnTable, batch_scores, count_lone_trials, tabulate_turns

ADVANTAGES: dict[str, Callable[..., Tensor]] = {name: load(name, ESTIMATOR) for name in ESTIMATOR.names}
"""Shipped estimators by the name a command line gives them."""

RETURN_MODES: dict[str, Callable[..., Tensor]] = {name: load(name, RETURN_MODE) for name in RETURN_MODE.names}
"""Shipped return modes by the name a command line gives them."""

__all__ = [
    "ADVANTAGES",
    "RETURN_MODES",
    "ReturnFn",
    "RunningMean",
    "TurnTable",
    "anchor_counts",
    "batch_scores",
    "compares_trials",
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
    "reads_values",
    "recursive_returns",
    "reinforce_advantages",
    "rloo_advantages",
    "scale_and_clip",
    "single_returns",
    "singleton_fraction",
    "std_from_sums",
    "tabulate_turns",
]
