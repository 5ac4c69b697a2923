"""REINFORCE: judge a trial by how it compares with the batches before it.

What lives here: the estimator and the one number it remembers between batches, `RunningMean`, which the trainer
owns and saves. What does not: scores and cells (`table.py`).
"""

from __future__ import annotations

from torch import Tensor

from metarl_agents.advantages.table import TurnTable
from metarl_agents.errors import ConfigError


class RunningMean:
    """Exponential running mean of batch means: b ← decay · b + (1 − decay) · mean(scores).

    It forgets, because the scores of a learning policy move. Before any batch has been seen there is no b; the first
    batch is therefore judged by its own mean, and b starts there.

    >>> from torch import tensor
    >>> running = RunningMean(decay=0.5)
    >>> [running.update(tensor([score])) for score in (4.0, 8.0, 8.0)]
    [4.0, 4.0, 6.0]
    """

    def __init__(self, decay: float = 0.9) -> None:
        if not 0 <= decay < 1:
            raise ConfigError(f"`decay` of a running mean is {decay}, but it must be at least 0 and below 1.")
        self.decay = decay
        self.mean: float | None = None

    def update(self, scores: Tensor) -> float:
        """Take in a batch and return the baseline *for that batch*, which (but for the first) has not seen it.

        Args:
            scores: (U,) scores of the batch, each counted once (`batch_scores`). Processes that share a baseline pass
                their common mean as (1,). An empty batch changes nothing.

        Returns:
            The mean before this batch; for the first batch its own mean; 0 while nothing has been seen.
        """
        if scores.numel() == 0:
            return 0.0 if self.mean is None else self.mean
        batch_mean = scores.double().mean().item()
        baseline = batch_mean if self.mean is None else self.mean
        self.mean = self.decay * baseline + (1 - self.decay) * batch_mean
        return baseline

    def state_dict(self) -> dict[str, float | None]:
        """Return what a checkpoint must hold."""
        return {"mean": self.mean}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Continue from what `state_dict` returned."""
        self.mean = state["mean"]


def reinforce_advantages(table: TurnTable, *, baseline: float, episode_score: str = "return") -> Tensor:
    """Advantage over a baseline that does not depend on the group.

        A = score − b − penalty

    A group of one, and a group with equal scores, may have non-zero advantages here.

    Args:
        table: the batch.
        baseline: b, from `RunningMean.update`.
        episode_score: `return` (G₀⁽ⁿ⁾) or `reward` (R_n).

    Returns:
        (B,) float32, one advantage per row.

    Source: Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning".
    """
    return (table.scores(episode_score) - baseline - table.row_penalty.double()).float()
