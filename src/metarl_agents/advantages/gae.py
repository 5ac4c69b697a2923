"""GAE: PPO's advantage, from returns and a critic's predictions of them.

What lives here: the estimator. What does not: the critic (`policy/value.py`), its loss (`training/loss.py`), and
the returns (`returns.py`), which are taken as they are in every return mode.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metarl_agents.advantages.marks import reads_values
from metarl_agents.advantages.table import TurnTable
from metarl_agents.errors import ConfigError


@reads_values
def ppo_advantages(table: TurnTable, *, gae_lambda: float = 1.0) -> Tensor:
    """Generalised advantage along the turns of each episode.

        ρₜ = Gₜ − γ_step · Gₜ₊₁,  ρ = G at the last turn
        δₜ = ρₜ + γ_step · Vₜ₊₁ − Vₜ,  V = 0 after the last turn
        Aₜ = δₜ + γ_step · λ · Aₜ₊₁

    A chain is the play rows of one episode; a reflection is a chain of one row, A = G − V. λ = 1 gives A = G − V
    everywhere, λ = 0 gives A = δ. What later episodes achieve is inside G, so ρ of the last turn holds it (with
    `paper` returns, ρ of each turn before holds a share 1 − γ_step of it too).

    Args:
        table: the batch, with `values`; rows of an episode stand in time order.
        gae_lambda: λ.

    Returns:
        (B,) float32, one advantage per row; the value target is `table.returns`.

    Raises:
        ConfigError: the table has no values.

    Source: PPO, arXiv 1707.06347, eq. 11 and 12; GAE, arXiv 1506.02438.
    Differs: rewards are read back from the returns, so that one return mode serves every estimator; no whitening.
    """
    if table.values is None:
        raise ConfigError(
            "`ppo` needs a value for every row. Add a critic's predictions with `table.with_values(v)`; an estimator "
            "that calls this one needs the mark `@reads_values`."
        )
    returns, values = table.returns.double().tolist(), table.values.double().tolist()
    chains = zip(table.trial.tolist(), table.episode.tolist(), table.is_reflection.tolist(), strict=True)
    advantages = [0.0] * len(returns)
    later_chain, later = None, 0
    for row, chain in reversed(list(enumerate(chains))):
        advantages[row] = returns[row] - values[row]
        if chain == later_chain:
            # δₜ with ρₜ written out: its two later terms are −γ_step · (Gₜ₊₁ − Vₜ₊₁).
            advantages[row] -= table.gamma_step * (returns[later] - values[later])
            advantages[row] += table.gamma_step * gae_lambda * advantages[later]
        later_chain, later = chain, row
    result = torch.tensor(advantages, dtype=torch.float64, device=table.returns.device)  # (B,)
    return (result - table.row_penalty.double()).float()
