"""GRPO: judge a trial by how many standard deviations it lies above its group.

What lives here: the estimator. What does not: the statistics (`grouping.py`), scores and cells (`table.py`), and
the clipped loss of the same paper (`training/loss.py`).
"""

from __future__ import annotations

from torch import Tensor

from metarl_agents.advantages.grouping import standardised
from metarl_agents.advantages.marks import compares_trials
from metarl_agents.advantages.table import TurnTable, episode_level


@compares_trials
def grpo_advantages(table: TurnTable, *, episode_score: str = "return", credit_unit: str = "trial") -> Tensor:
    """Group-standardised advantage.

        A = (score − mean) / (std + 1e-6)          over the trials of the cell, std unbiased

    Equal scores and a trial alone in its cell have A = 0.

    Args:
        table: the batch.
        episode_score: `return` (G₀⁽ⁿ⁾) or `reward` (R_n).
        credit_unit: `trial` counts each trial of a cell once, `row` each row of a group.

    Returns:
        (B,) float32, one advantage per row.

    Source: GRPO, arXiv 2402.03300, section 4.1 (outcome supervision).
    """
    return episode_level(table, standardised, episode_score=episode_score, credit_unit=credit_unit).float()
