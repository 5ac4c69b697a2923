"""The turn table: all turns of all trials of a batch as columns, one row per LLM call.

What lives here: `TurnTable`, `tabulate_turns` (the only function of this room that sees trials), and which number a
row is judged by (score) against which other rows (cell). What does not: the comparison itself (`grouping.py`) and
the choice of it (`gigpo.py` and its neighbours). Read `TurnTable` first.

Row law: rows stand in the order of the trials given, and within a trial in time order; whoever builds a training
batch from the same trials has the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metarl_agents.advantages.grouping import (
    Comparison,
    check_choice,
    combine_keys,
    compare_within_cells,
    group_count,
    group_sum,
    one_per_trial,
)
from metarl_agents.types import Phase, Trial, Turn

ReturnFn = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(rewards (T,), episode (T,), is_reflection (T,)) -> (T,) returns of one trial."""

ANCHOR_SCOPES = ("global", "episode")
ANCHOR_VISITS = ("matched", "pooled")
CREDIT_UNITS = ("trial", "row")
EPISODE_SCORES = ("return", "reward")


@dataclass(frozen=True, eq=False)
class TurnTable:
    """Columns over the B rows of a batch. All of shape (B,)."""

    group: Tensor
    """(B,) int64, consecutive from 0: equal where trials play the same task."""
    trial: Tensor
    """(B,) int64: position of the row's trial among the trials given."""
    episode: Tensor
    """(B,) int64: episode index within the trial; a reflection carries the episode it is about."""
    turn: Tensor
    """(B,) int64: turn index, restarting at 0 in every episode."""
    role: Tensor
    """(B,) int64: opponent and seat; one value outside games."""
    anchor: Tensor
    """(B,) int64: equal where turns are comparable step by step (see `tabulate_turns`)."""
    is_reflection: Tensor
    """(B,) bool."""
    reward: Tensor
    """(B,) float32: reward of the row itself."""
    episode_reward: Tensor
    """(B,) float32: R_n, the undiscounted sum over the play rows of the row's episode."""
    returns: Tensor
    """(B,) float32: G of the row, under the chosen return mode."""
    row_penalty: Tensor
    """(B,) float32: subtracted from the row's own episode-level advantage and from nothing else."""
    gamma_step: float
    """Discount between the turns of one episode, as used in `returns`."""
    values: Tensor | None = None
    """(B,) float32: the critic's prediction of `returns`, for PPO."""

    def __len__(self) -> int:
        """Return B, the number of rows."""
        return len(self.returns)

    def with_values(self, values: Tensor) -> TurnTable:
        """Return the same table with a critic's predictions, (B,) on any device, detached from its graph."""
        assert values.shape == self.returns.shape, f"{tuple(values.shape)} values for {len(self)} rows"
        return replace(self, values=values.detach().to(self.returns.device, torch.float32))

    def scores(self, episode_score: str = "return") -> Tensor:
        """Return the number each row is judged by at the episode level.

        `return`: G₀⁽ⁿ⁾ for every play row of episode n, its own return for a reflection.
        `reward`: R_n for every play row, 0 for a reflection; return modes and γ_traj then have no say here.

        Returns:
            (B,) float64.
        """
        check_choice("episode_score", episode_score, EPISODE_SCORES)
        if episode_score == "reward":
            return self.episode_reward.double().masked_fill(self.is_reflection, 0.0)
        chain = combine_keys(self.trial, self.episode)  # (B,)
        is_first = self.turn == 0
        # Sums and not means: the sum over one first turn is its return to the last bit, however long the episode,
        # so equal scores stay equal. An episode with a reflection and no play row has an entry that nobody reads.
        first_return = group_sum(self.returns * is_first, chain) / group_sum(is_first, chain).clamp(min=1)
        return torch.where(self.is_reflection, self.returns.double(), first_return)

    def cells(self, credit_unit: str = "trial") -> Tensor:
        """Return the key of the rows that a row's score is compared with.

        `trial`: group, role, play or reflection, and episode index. `row`: group and role alone.

        Returns:
            (B,) int64.
        """
        check_choice("credit_unit", credit_unit, CREDIT_UNITS)
        if credit_unit == "row":
            return combine_keys(self.group, self.role)
        return combine_keys(self.group, self.role, self.is_reflection, self.episode)


def _number(ids: dict[Hashable, int], key: Hashable) -> int:
    """Return the id of a key, giving a new key the next one."""
    return ids.setdefault(key, len(ids))


def _anchor_key(group: int, role: int, n: int, turn: Turn, anchor_scope: str, credit_unit: str) -> Hashable:
    """Return what two turns must have in common to be compared step by step."""
    if turn.phase is Phase.REFLECT:
        return (group, role, Phase.REFLECT, n if credit_unit == "trial" else None)
    return (group, role, Phase.PLAY, n if anchor_scope == "episode" else None, turn.observation)


def _trial_returns(trial: Trial, return_fn: ReturnFn) -> list[float]:
    """Return G of each row of one trial, in time order."""
    rows = list(trial.rows())
    if not rows:
        return []
    returns = return_fn(
        torch.tensor([turn.reward for _, _, turn in rows], dtype=torch.float64),  # (T,)
        torch.tensor([n for n, _, _ in rows]),
        torch.tensor([turn.phase is Phase.REFLECT for _, _, turn in rows]),
    )
    assert returns.shape == (len(rows),), f"return_fn gave {tuple(returns.shape)} for {len(rows)} rows"
    return returns.tolist()


def tabulate_turns(
    trials: Sequence[Trial],
    return_fn: ReturnFn,
    *,
    gamma_step: float,
    anchor_scope: str = "global",
    anchor_visits: str = "matched",
    credit_unit: str = "trial",
    by_role: bool = True,
) -> TurnTable:
    """Lay out the turns of a batch of trials as one table.

    Anchors, by exact equality: a play row has (group, role, raw observation), under `anchor_scope="episode"` the
    episode index too. A reflection has (group, role, "reflection", episode index), because reflections on different
    episodes have different futures; under `credit_unit="row"` all reflections of a group share one anchor.

    A trial may visit an anchor several times. `anchor_visits="matched"` compares k-th visits with each other only, so
    that turns of one trial are never compared among themselves and identical trials have no step-level advantage.
    `pooled` compares all visits, whichever trial and turn they are of, as the paper does.

    Args:
        trials: the batch, without crashed groups; whole groups only, since advantages compare within a group.
        return_fn: a return mode with its discounts bound, e.g. `partial(paper_returns, gamma_step=.., gamma_traj=..)`.
        gamma_step: the same γ_step, kept in the table for PPO.
        anchor_scope: `global` or `episode`.
        anchor_visits: `matched` or `pooled`.
        credit_unit: `trial` or `row`; the estimator must be given the same.
        by_role: False makes all roles one, so that trials are compared whatever their opponent and seat (an ablation).

    Returns:
        A table with one row per turn: no turn is left out, none is doubled, nothing is padded. No trials, no rows.

    Source: anchors are the anchor states of GiGPO, arXiv 2505.10978.
    Differs: reflections, roles, episode scope and matched visits are not in that paper.
    """
    check_choice("anchor_scope", anchor_scope, ANCHOR_SCOPES)
    check_choice("anchor_visits", anchor_visits, ANCHOR_VISITS)
    check_choice("credit_unit", credit_unit, CREDIT_UNITS)
    groups: dict[Hashable, int] = {}
    roles: dict[Hashable, int] = {}
    anchors: dict[Hashable, int] = {}
    keys: list[tuple[int, ...]] = []
    numbers: list[tuple[float, ...]] = []
    for index, trial in enumerate(trials):
        group = _number(groups, trial.group)
        role = _number(roles, (trial.opponent, trial.seat) if by_role else None)
        episode_rewards = [episode.reward for episode in trial.episodes]
        visits: Counter[Hashable] = Counter()
        for (n, t, turn), value in zip(trial.rows(), _trial_returns(trial, return_fn), strict=True):
            place = _anchor_key(group, role, n, turn, anchor_scope, credit_unit)
            visits[place] += 1
            anchor = _number(anchors, (place, visits[place] if anchor_visits == "matched" else None))
            keys.append((group, index, n, t, role, anchor, int(turn.phase is Phase.REFLECT)))
            numbers.append((turn.reward, episode_rewards[n], value, turn.row_penalty))
    # The reshape gives a batch without rows its columns too.
    *ids, reflects = torch.tensor(keys, dtype=torch.int64).reshape(-1, 7).unbind(dim=1)  # 7 × (B,)
    floats = torch.tensor(numbers, dtype=torch.float64).reshape(-1, 4).float().unbind(dim=1)  # 4 × (B,)
    return TurnTable(*ids, reflects.bool(), *floats, gamma_step=gamma_step)


def episode_level(
    table: TurnTable, compare: Comparison, *, episode_score: str = "return", credit_unit: str = "trial"
) -> Tensor:
    """Episode-level advantage: each row's score seen against its cell, less the row's own penalty.

        A_E = compare(score, scores of the cell) − penalty

    The penalty stays out of the scores, so it moves no baseline; it is in units of A_E.

    Args:
        table: the batch.
        compare: `minus_mean`, `standardised` or `minus_mean_of_others`.
        episode_score: `return` or `reward`.
        credit_unit: `trial` counts each trial of a cell once, `row` each row.

    Returns:
        (B,) float64.
    """
    cell = table.cells(credit_unit)
    scores = table.scores(episode_score)
    compared = compare_within_cells(compare, scores, cell=cell, trial=table.trial, credit_unit=credit_unit)
    return compared - table.row_penalty.double()


def batch_scores(table: TurnTable, *, episode_score: str = "return", credit_unit: str = "trial") -> Tensor:
    """Return the scores of a batch, each counted once: one per trial and cell, or one per row; (U,) float64."""
    scores, cell = table.scores(episode_score), table.cells(credit_unit)
    return scores if credit_unit == "row" else one_per_trial(scores, cell, table.trial)[0]


def count_lone_trials(table: TurnTable) -> int:
    """Count trials alone in their cell, once for each such cell: nobody is there to be compared with."""
    _, cells, _ = one_per_trial(table.scores(), table.cells(), table.trial)
    return int((group_count(cells) == 1).sum())
