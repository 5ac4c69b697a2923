"""GiGPO: compare trials of a group as a whole, and turns that acted on the same observation one by one.

What lives here: the estimator, and how well its step level is fed (anchor metrics). What does not: which rows share
an anchor (`table.py`). The default estimator of the library.
"""

from __future__ import annotations

from torch import Tensor

from metarl_agents.advantages.grouping import (
    Comparison,
    check_choice,
    group_count,
    minus_mean,
    standardised,
)
from metarl_agents.advantages.marks import compares_trials
from metarl_agents.advantages.table import TurnTable, episode_level

NORMS: dict[str, Comparison] = {"mean": minus_mean, "mean_std": standardised}
"""How a number is seen against its group, by the name a command line gives it."""


@compares_trials
def gigpo_advantages(
    table: TurnTable,
    *,
    step_weight: float = 1.0,
    norm: str = "mean",
    episode_score: str = "return",
    credit_unit: str = "trial",
) -> Tensor:
    """Group-in-group advantage: an episode level plus a step level.

        A = A_E + w · A_S
        A_E = score − mean score of the cell              A_S = Gₜ − mean Gₜ of the rows with the same anchor

    A trial alone in its cell has A_E = 0, a row alone with its anchor has A_S = 0. w = 0 leaves the episode level.

    Args:
        table: the batch; its anchors were made for the same `credit_unit`.
        step_weight: w.
        norm: `mean` subtracts, `mean_std` also divides by (unbiased standard deviation + 1e-6), at both levels.
        episode_score: what A_E compares, `return` (G₀⁽ⁿ⁾) or `reward` (R_n).
        credit_unit: `trial` counts each trial of a cell once; `row` compares all rows of a group, reflections among
            them, as published code does.

    Returns:
        (B,) float32, one advantage per row.

    Source: GiGPO, arXiv 2505.10978; its use in a trial of several episodes: LaMer, arXiv 2512.16848.
    Differs: A_E counts trials and not rows, and reflections have cells and anchors of their own.
    """
    check_choice("norm", norm, NORMS)
    compare = NORMS[norm]
    episode_part = episode_level(table, compare, episode_score=episode_score, credit_unit=credit_unit)
    step_part = compare(table.returns, table.anchor)
    return (episode_part + step_weight * step_part).float()


def anchor_counts(table: TurnTable) -> tuple[int, int, int]:
    """Return the numbers of rows, of distinct anchors, and of rows alone with their anchor.

    A group lives on one process, so processes may add these up before dividing.
    """
    sizes = group_count(table.anchor)
    return len(table), len(table.anchor.unique()), int((sizes == 1).sum())


def singleton_fraction(table: TurnTable) -> float:
    """Share of rows that have their anchor to themselves, where A_S = 0; 0 for an empty table."""
    num_rows, _, num_singletons = anchor_counts(table)
    return num_singletons / max(num_rows, 1)


def mean_anchor_group_size(table: TurnTable) -> float:
    """Mean number of rows that share an anchor, over anchors; 0 for an empty table."""
    num_rows, num_anchors, _ = anchor_counts(table)
    return num_rows / max(num_anchors, 1)
