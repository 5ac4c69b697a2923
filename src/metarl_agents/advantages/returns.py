"""Returns: what a turn is worth, within its own episode and across the episodes of its trial.

What lives here: one pure function per return mode, all of the same shape. What does not: their short names
(`addresses.py`); comparing trials with each other (`grouping.py` and the estimators); where rewards come from (the
environments). Read `paper_returns` first: the other modes are told as differences from it.

In every mode a reflection on episode n earns its own reward (a penalty, or 0) plus the return of the first turn of
episode n+1, and its own reward never enters a play row. Discounts are computed in float64, results are float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class _Rows(NamedTuple):
    """One trial as plain lists; loops over a few dozen Python floats are exact and fast enough."""

    rewards: list[float]
    """(T,) reward of each row."""
    episode: list[int]
    """(T,) episode index of each row."""
    is_reflection: list[bool]
    """(T,) whether the row is a reflection."""
    plays: list[list[int]]
    """One list per episode: the positions of its play rows in time order, possibly none."""


def _unpack(rewards: Tensor, episode: Tensor, is_reflection: Tensor) -> _Rows:
    assert rewards.shape == episode.shape == is_reflection.shape, "one reward, episode and flag per row"
    episodes, reflects = episode.tolist(), is_reflection.tolist()
    plays: list[list[int]] = [[] for _ in range(max(episodes, default=-1) + 1)]
    for t, (n, reflect) in enumerate(zip(episodes, reflects, strict=True)):
        if not reflect:
            plays[n].append(t)
    return _Rows(rewards.double().tolist(), episodes, reflects, plays)


def _finish(rows: _Rows, play_returns: list[float], start: list[float], like: Tensor) -> Tensor:
    """Give each reflection its own reward plus what the next episode starts with; play rows keep their return."""
    returns = [
        reward + start[n + 1] if reflect else play
        for reward, n, reflect, play in zip(rows.rewards, rows.episode, rows.is_reflection, play_returns, strict=True)
    ]
    return torch.tensor(returns, dtype=torch.float64, device=like.device).float()  # (T,)


def _within_episodes(rows: _Rows, rewards: list[float], gamma_step: float) -> tuple[list[float], list[float]]:
    """Return gₜ⁽ⁿ⁾ of every play row, and g₀⁽ⁿ⁾ of every episode with one 0 behind the last."""
    within = [0.0] * len(rewards)
    start = [0.0] * (len(rows.plays) + 1)
    for n, plays in enumerate(rows.plays):
        for t in reversed(plays):
            start[n] = within[t] = rewards[t] + gamma_step * start[n]
    return within, start


def _paper(rows: _Rows, rewards: list[float], gammas: tuple[float, float], like: Tensor) -> Tensor:
    gamma_step, gamma_traj = gammas
    returns, start = _within_episodes(rows, rewards, gamma_step)
    for n in reversed(range(len(rows.plays))):
        ahead = gamma_traj * start[n + 1]
        start[n] += ahead
        for t in rows.plays[n]:
            returns[t] += ahead
    return _finish(rows, returns, start, like)


def _recursive(rows: _Rows, rewards: list[float], gammas: tuple[float, float], like: Tensor) -> Tensor:
    gamma_step, gamma_traj = gammas
    returns = [0.0] * len(rewards)
    start = [0.0] * (len(rows.plays) + 1)
    for n in reversed(range(len(rows.plays))):
        ahead = gamma_traj * start[n + 1]  # crossing the episode boundary
        for t in reversed(rows.plays[n]):
            returns[t] = rewards[t] + ahead
            ahead = gamma_step * returns[t]
        # An episode in which nothing was played still costs its boundary.
        start[n] = returns[rows.plays[n][0]] if rows.plays[n] else ahead
    return _finish(rows, returns, start, like)


def _improvements(rows: _Rows) -> list[float]:
    rewards = [0.0] * len(rows.rewards)
    previous = 0.0
    for plays in filter(None, rows.plays):
        total = sum(rows.rewards[t] for t in plays)
        rewards[plays[-1]] = total - previous
        previous = total
    return rewards


def paper_returns(
    rewards: Tensor, episode: Tensor, is_reflection: Tensor, *, gamma_step: float, gamma_traj: float
) -> Tensor:
    """Return of every row of one trial, looking past the end of its own episode.

    Within episode n, gₜ = rₜ + γ_step · gₜ₊₁. Across episodes, a turn also owns what the later attempts achieve:

        Gₜ⁽ⁿ⁾ = gₜ⁽ⁿ⁾ + Σ_{m>n} γ_traj^(m-n) · g₀⁽ᵐ⁾ = gₜ⁽ⁿ⁾ + γ_traj · G₀⁽ⁿ⁺¹⁾,    G₀⁽ᴺ⁾ = 0

    A reflection on episode n earns its own reward plus G₀⁽ⁿ⁺¹⁾: it is judged by the attempt it prepared. γ_traj = 0
    makes the play rows of different episodes independent (plain multi-turn RL).

    Args:
        rewards: (T,) reward of each row, in time order; a reflection carries its own penalty or 0.
        episode: (T,) episode index of each row, non-decreasing from 0.
        is_reflection: (T,) True where the row is the reflection on its episode.
        gamma_step: discount between the turns of one episode.
        gamma_traj: discount between the episodes of one trial.

    Returns:
        (T,) float32 returns.

    Source: LaMer, arXiv 2512.16848, eq. 3 and 4.

    >>> trial = torch.tensor([0.0, 0.0, 10.0]), torch.tensor([0, 0, 1]), torch.tensor([False, True, False])
    >>> paper_returns(*trial, gamma_step=0.9, gamma_traj=0.5)
    tensor([ 5., 10., 10.])
    """
    rows = _unpack(rewards, episode, is_reflection)
    return _paper(rows, rows.rewards, (gamma_step, gamma_traj), rewards)


def recursive_returns(
    rewards: Tensor, episode: Tensor, is_reflection: Tensor, *, gamma_step: float, gamma_traj: float
) -> Tensor:
    """Return of every row by one backward pass that changes its discount at episode boundaries.

        Gₜ⁽ⁿ⁾ = rₜ⁽ⁿ⁾ + γ_step · Gₜ₊₁⁽ⁿ⁾       inside episode n
        Gₜ⁽ⁿ⁾ = rₜ⁽ⁿ⁾ + γ_traj · G₀⁽ⁿ⁺¹⁾       at its last turn

    The last turn of each episode, and every turn where γ_step = 1, agrees with `paper_returns`.

    Args:
        rewards: (T,) reward of each row, in time order.
        episode: (T,) episode index of each row, non-decreasing from 0.
        is_reflection: (T,) True where the row is the reflection on its episode.
        gamma_step: discount between the turns of one episode.
        gamma_traj: discount between the episodes of one trial.

    Returns:
        (T,) float32 returns.

    Source: the code released with LaMer, arXiv 2512.16848.
    Differs: from the paper's eq. 4, by shrinking later episodes by γ_step for every turn left in this one.

    >>> trial = torch.tensor([0.0, 0.0, 10.0]), torch.tensor([0, 0, 1]), torch.tensor([False, False, False])
    >>> recursive_returns(*trial, gamma_step=0.5, gamma_traj=0.5)
    tensor([ 2.5000,  5.0000, 10.0000])
    """
    rows = _unpack(rewards, episode, is_reflection)
    return _recursive(rows, rows.rewards, (gamma_step, gamma_traj), rewards)


def differential_rewards(rewards: Tensor, episode: Tensor, is_reflection: Tensor) -> Tensor:
    """Pay each episode its improvement over the one before, at its last turn, and nothing elsewhere.

        d_n = R_n − R_{n−1},    R_{−1} = 0,    R_n the undiscounted reward sum of episode n's play rows

    The sum over a trial telescopes to the reward of its last played episode. An episode without a play row is
    passed over.

    Args:
        rewards: (T,) reward of each row, in time order.
        episode: (T,) episode index of each row, non-decreasing from 0.
        is_reflection: (T,) True where the row is the reflection on its episode.

    Returns:
        (T,) float32 rewards; reflections carry 0.

    Source: MAGE, arXiv 2603.03680, differential return.

    >>> differential_rewards(torch.tensor([-10.0, 10.0]), torch.tensor([0, 1]), torch.tensor([False, False]))
    tensor([-10.,  20.])
    """
    improvements = _improvements(_unpack(rewards, episode, is_reflection))
    return torch.tensor(improvements, dtype=torch.float64, device=rewards.device).float()  # (T,)


def differential_returns(
    rewards: Tensor, episode: Tensor, is_reflection: Tensor, *, gamma_step: float, gamma_traj: float
) -> Tensor:
    """Return of every row when an episode is paid for improving on the one before: `recursive_returns` of d_n.

    Know before use: a loss (−10) followed by a win (+10) gives d = (−10, +20), so with γ_traj = 0.6 the last turn of
    the losing episode earns −10 + 0.6 · 20 = +2, where losing twice gives −10 there. Losing first is then slightly
    rewarded.

    Args:
        rewards: (T,) reward of each row, in time order.
        episode: (T,) episode index of each row, non-decreasing from 0.
        is_reflection: (T,) True where the row is the reflection on its episode.
        gamma_step: discount between the turns of one episode.
        gamma_traj: discount between the episodes of one trial.

    Returns:
        (T,) float32 returns.

    Source: MAGE, arXiv 2603.03680, differential return.

    >>> trial = torch.tensor([-10.0, 10.0]), torch.tensor([0, 1]), torch.tensor([False, False])
    >>> differential_returns(*trial, gamma_step=0.95, gamma_traj=0.6)
    tensor([ 2., 20.])
    """
    rows = _unpack(rewards, episode, is_reflection)
    return _recursive(rows, _improvements(rows), (gamma_step, gamma_traj), rewards)


def final_returns(
    rewards: Tensor, episode: Tensor, is_reflection: Tensor, *, gamma_step: float, gamma_traj: float
) -> Tensor:
    """Return of every row when only the last played episode pays: `paper_returns` with earlier rewards set to 0.

    A reflection keeps its own reward, which is its own business and not the episode's.

    Args:
        rewards: (T,) reward of each row, in time order.
        episode: (T,) episode index of each row, non-decreasing from 0.
        is_reflection: (T,) True where the row is the reflection on its episode.
        gamma_step: discount between the turns of one episode.
        gamma_traj: discount between the episodes of one trial.

    Returns:
        (T,) float32 returns.

    Source: MAGE, arXiv 2603.03680, the final episode's reward as the objective.

    >>> trial = torch.tensor([5.0, 10.0]), torch.tensor([0, 1]), torch.tensor([False, False])
    >>> final_returns(*trial, gamma_step=0.95, gamma_traj=0.6)
    tensor([ 6., 10.])
    """
    rows = _unpack(rewards, episode, is_reflection)
    last = max((n for n, plays in enumerate(rows.plays) if plays), default=0)
    paid = [reward if n == last else 0.0 for reward, n in zip(rows.rewards, rows.episode, strict=True)]
    return _paper(rows, paid, (gamma_step, gamma_traj), rewards)


def single_returns(
    rewards: Tensor, episode: Tensor, is_reflection: Tensor, *, gamma_step: float, gamma_traj: float
) -> Tensor:
    """Return of every row when an episode owns only itself: G = gₜ⁽ⁿ⁾, and a reflection earns g₀⁽ⁿ⁺¹⁾.

    Equals `paper_returns` with γ_traj = 0.

    Args:
        rewards: (T,) reward of each row, in time order.
        episode: (T,) episode index of each row, non-decreasing from 0.
        is_reflection: (T,) True where the row is the reflection on its episode.
        gamma_step: discount between the turns of one episode.
        gamma_traj: not used; accepted so that all modes are called alike.

    Returns:
        (T,) float32 returns.

    Source: LaMer, arXiv 2512.16848, eq. 3.

    >>> trial = torch.tensor([1.0, 0.0, 10.0]), torch.tensor([0, 0, 1]), torch.tensor([False, True, False])
    >>> single_returns(*trial, gamma_step=0.95, gamma_traj=0.6)
    tensor([ 1., 10., 10.])
    """
    rows = _unpack(rewards, episode, is_reflection)
    within, start = _within_episodes(rows, rows.rewards, gamma_step)
    return _finish(rows, within, start, rewards)
