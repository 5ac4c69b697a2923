"""RLOO: judge a trial by how it compares with the *other* trials of its group.

What lives here: the estimator. What does not: leave-one-out itself (`grouping.py`), scores and cells (`table.py`).
"""

from __future__ import annotations

from torch import Tensor

from metarl_agents.advantages.grouping import minus_mean_of_others
from metarl_agents.advantages.marks import compares_trials
from metarl_agents.advantages.table import TurnTable, episode_level


@compares_trials
def rloo_advantages(table: TurnTable, *, episode_score: str = "return", credit_unit: str = "trial") -> Tensor:
    """Leave-one-out advantage.

        Aᵢ = scoreᵢ − 1/(n−1) · Σ_{j≠i} scoreⱼ          over the n trials of the cell

    The baseline does not contain the judged score, so the gradient estimate is unbiased. Equals n/(n−1) times the
    mean-centred score. A trial alone in its cell has A = 0.

    Args:
        table: the batch.
        episode_score: `return` (G₀⁽ⁿ⁾) or `reward` (R_n).
        credit_unit: `trial` leaves out one trial of a cell, `row` one row of a group.

    Returns:
        (B,) float32, one advantage per row.

    Source: RLOO, arXiv 2402.14740.
    """
    return episode_level(table, minus_mean_of_others, episode_score=episode_score, credit_unit=credit_unit).float()
