"""Laws that hold for several estimators at once."""

import inspect
from dataclasses import replace
from functools import partial

import pytest
import torch
from trial_builder import make_trial, random_trials, tabulate

from metarl_agents.addresses import has_mark
from metarl_agents.advantages import (
    ADVANTAGES,
    gigpo_advantages,
    grpo_advantages,
    reinforce_advantages,
    rloo_advantages,
)

MARKS = ("compares_trials", "reads_values")
EPISODE_LEVEL = {
    "gigpo-w0": partial(gigpo_advantages, step_weight=0.0),
    "gigpo-w0-mean_std": partial(gigpo_advantages, step_weight=0.0, norm="mean_std"),
    "rloo": rloo_advantages,
    "grpo": grpo_advantages,
}
RELATIVE = EPISODE_LEVEL | {
    "gigpo": gigpo_advantages,
    "gigpo-mean_std": partial(gigpo_advantages, norm="mean_std"),
    "gigpo-row": partial(gigpo_advantages, credit_unit="row"),
    "rloo-row": partial(rloo_advantages, credit_unit="row"),
    "grpo-row": partial(grpo_advantages, credit_unit="row"),
}
TRIAL_UNITS = {name: estimator for name, estimator in RELATIVE.items() if not name.endswith("-row")}
relative = pytest.mark.parametrize("estimator", RELATIVE.values(), ids=RELATIVE)
episode_level = pytest.mark.parametrize("estimator", EPISODE_LEVEL.values(), ids=EPISODE_LEVEL)


def call(name, table):
    """Run an estimator by its name, with what it needs."""
    estimator = ADVANTAGES[name]
    if has_mark(estimator, "reads_values"):
        table = table.with_values(torch.zeros(len(table)))
    return estimator(table, **({"baseline": 1.0} if "baseline" in inspect.signature(estimator).parameters else {}))


def per_trial(table, advantages):
    return [advantages[table.trial == trial] for trial in table.trial.unique()]


def test_marks_say_who_compares_trials_and_who_reads_values():
    marked = {mark: {name for name in ADVANTAGES if has_mark(ADVANTAGES[name], mark)} for mark in MARKS}
    papers = {"gigpo", "rloo", "grpo", "reinforce", "ppo"}
    assert papers & marked["compares_trials"] == {"gigpo", "rloo", "grpo"}
    assert papers & marked["reads_values"] == {"ppo"} and papers <= set(ADVANTAGES)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_who_compares_trials_has_nothing_to_say_of_equal_ones_and_only_they_may_be_silent_of_one_alone(name):
    alone = tabulate([make_trial([1.0, 2.0])])
    equal = tabulate([make_trial([1.0, 2.0]) for _ in range(4)])
    if has_mark(ADVANTAGES[name], "compares_trials"):
        assert not call(name, equal).any() and not call(name, alone).any()
    else:
        assert call(name, alone).any()


@pytest.mark.parametrize("anchor_scope", ["global", "episode"])
@pytest.mark.parametrize("estimator", TRIAL_UNITS.values(), ids=TRIAL_UNITS)
def test_a_group_of_identical_trials_has_zero_advantages(estimator, anchor_scope):
    stuck = make_trial([(-0.5, "same page")] * 7)
    for trial in (stuck, *random_trials(0), *random_trials(1)):
        table = tabulate([replace(trial, group=0)] * 8, anchor_scope=anchor_scope)
        assert not estimator(table).any()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_every_estimator_gives_one_finite_float32_per_row(name):
    for seed in range(5):
        table = tabulate(random_trials(seed))
        advantages = call(name, table)
        assert advantages.shape == (len(table),)
        assert advantages.dtype is torch.float32
        assert torch.isfinite(advantages).all()


@relative
def test_adding_one_constant_to_all_returns_of_a_group_changes_no_advantage(estimator):
    for seed in range(5):
        table = tabulate(random_trials(seed))
        shifts = torch.tensor([5.0, -3.0, 100.0])[table.group]
        shifted = replace(table, returns=table.returns + shifts)
        assert torch.allclose(estimator(shifted), estimator(table), atol=1e-3)


def test_a_constant_does_change_what_is_not_relative_to_the_group():
    table = tabulate(random_trials(0))
    shifted = replace(table, returns=table.returns + 5.0)
    for name in ("reinforce", "ppo"):
        assert torch.allclose(call(name, shifted) - call(name, table), torch.tensor(5.0), atol=0.3)
        assert not torch.allclose(call(name, shifted), call(name, table), atol=1.0)


@relative
def test_permuting_trials_permutes_advantages(estimator):
    for seed in range(5):
        trials = random_trials(seed)
        order = torch.randperm(len(trials), generator=torch.Generator().manual_seed(seed)).tolist()
        table, shuffled = tabulate(trials), tabulate([trials[i] for i in order])
        before, after = per_trial(table, estimator(table)), per_trial(shuffled, estimator(shuffled))
        for position, index in enumerate(order):
            assert torch.allclose(after[position], before[index], atol=1e-5)


@relative
def test_a_group_does_not_feel_the_other_groups(estimator):
    trials = random_trials(1)
    alone = [trial for trial in trials if trial.group == 1]
    table, small = tabulate(trials), tabulate(alone)
    assert torch.allclose(estimator(table)[table.group == 1], estimator(small), atol=1e-6)


@episode_level
def test_a_group_of_one_gives_zeros_at_the_episode_level(estimator):
    for seed in range(5):
        table = tabulate(random_trials(seed, num_groups=3, group_size=1))
        assert torch.equal(estimator(table), torch.zeros(len(table)))


def test_a_group_of_one_that_never_sees_an_observation_twice_gives_zeros_under_gigpo():
    for norm in ("mean", "mean_std"):
        table = tabulate([make_trial([0, 1], [0, 10])])
        assert torch.equal(gigpo_advantages(table, norm=norm), torch.zeros(len(table)))


@relative
def test_a_group_with_equal_returns_gives_exact_zeros_and_never_nan(estimator):
    for value in (0.0, 0.1, -7.3):
        for seed in range(3):
            table = tabulate(random_trials(seed))
            table = replace(table, returns=torch.full_like(table.returns, value))
            assert torch.equal(estimator(table), torch.zeros(len(table)))


@episode_level
def test_adding_turns_to_one_trial_at_equal_scores_leaves_its_neighbours_alone(estimator):
    for extra in (1, 5, 20):
        short = tabulate([make_trial([10]), make_trial([0]), make_trial([4])], gamma_step=1.0)
        long = tabulate([make_trial([10]), make_trial([0] * (1 + extra)), make_trial([4])], gamma_step=1.0)
        for trial in (0, 2):
            assert torch.equal(estimator(long)[long.trial == trial], estimator(short)[short.trial == trial])


@pytest.mark.parametrize("estimator", [rloo_advantages, grpo_advantages, gigpo_advantages])
def test_in_row_units_adding_turns_does_move_the_neighbours(estimator):
    # The fault that trial units avoid; this also shows that the law above can fail.
    short = tabulate([make_trial([10]), make_trial([0]), make_trial([4])], gamma_step=1.0)
    long = tabulate([make_trial([10]), make_trial([0] * 9), make_trial([4])], gamma_step=1.0)
    before, after = (estimator(table, credit_unit="row")[0] for table in (short, long))
    assert (before - after).abs() > 0.1


@pytest.mark.parametrize("name", ["gigpo", "grpo", "rloo", "ppo", "reinforce"])
def test_a_win_in_the_second_episode_reaches_the_first_through_gamma_traj(name):
    trials = [make_trial([0, 0], [0, 10]), make_trial([0, 0], [0, 0])]
    table = tabulate(trials, gamma_traj=0.0)
    first = (table.episode == 0) & ~table.is_reflection & (table.trial == 0)
    blind, sighted = (call(name, tabulate(trials, gamma_traj=gamma))[first] for gamma in (0.0, 0.9))
    assert (sighted > blind + 0.1).all()


@relative
def test_trials_of_different_opponents_or_seats_are_not_compared(estimator):
    # The second seat always loses this game; its trials are nevertheless centred on their own.
    for field in ({"seat": 1}, {"opponent": "strong"}):
        winners = [make_trial([(reward, "s")]) for reward in (10, 8)]
        losers = [make_trial([(reward, "s")], **field) for reward in (-10, -8)]
        mixed = tabulate([winners[0], losers[0], winners[1], losers[1]])
        apart = torch.cat([estimator(tabulate(winners)), estimator(tabulate(losers))])
        assert torch.allclose(estimator(mixed)[torch.tensor([0, 2, 1, 3])], apart, atol=1e-6)
        assert estimator(mixed)[3] > 0  # losing by less is good for that role


@relative
def test_advantages_are_centred_within_each_role(estimator):
    trials = [make_trial([(reward, "s")], seat=seat) for seat, reward in [(0, 10), (0, 4), (1, -10), (1, 0), (1, -3)]]
    table = tabulate(trials)
    for role in table.role.unique():
        assert estimator(table)[table.role == role].sum().abs() < 1e-4


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_a_row_penalty_is_paid_by_its_own_row_under_every_estimator(name):
    table = tabulate(random_trials(4))
    penalty = torch.zeros(len(table))
    penalty[3] = 0.5
    difference = call(name, table) - call(name, replace(table, row_penalty=penalty))
    assert torch.allclose(difference, penalty, atol=1e-5)


@relative
def test_no_estimator_changes_the_table_it_reads(estimator):
    table, copy = tabulate(random_trials(2)), tabulate(random_trials(2))
    estimator(table)
    for column in ("returns", "anchor", "trial", "row_penalty", "episode_reward", "is_reflection"):
        assert torch.equal(getattr(table, column), getattr(copy, column))


def test_the_score_reward_does_not_depend_on_gamma_traj():
    trials = random_trials(6)
    for estimator in (rloo_advantages, grpo_advantages, partial(reinforce_advantages, baseline=0.0)):
        low, high = (estimator(tabulate(trials, gamma_traj=gamma), episode_score="reward") for gamma in (0.0, 0.9))
        assert torch.equal(low, high)
