import pytest
import torch
from trial_builder import VECTORS, group_of_vectors, make_trial, random_trials, tabulate

from metarl_agents.advantages import gigpo_advantages, grpo_advantages


def test_the_worked_group_in_trial_units_is_reproduced():
    advantages = grpo_advantages(tabulate(group_of_vectors()))
    assert advantages.tolist() == pytest.approx(VECTORS["grpo_trial_units"]["advantages"], abs=1e-5)


def test_the_baseline_of_one_turn_with_1_and_nine_turns_with_0_is_a_half():
    table = tabulate([make_trial([1]), make_trial([0] * 9)])
    assert (table.scores() - gigpo_advantages(table, step_weight=0.0)).tolist() == pytest.approx([0.5] * 10)
    assert grpo_advantages(table).tolist() == pytest.approx([0.5**0.5] + [-(0.5**0.5)] * 9, abs=1e-5)


def test_grpo_equals_the_episode_part_of_gigpo_with_mean_std():
    for seed in range(5):
        table = tabulate(random_trials(seed))
        assert torch.equal(grpo_advantages(table), gigpo_advantages(table, step_weight=0.0, norm="mean_std"))


def test_grpo_does_not_depend_on_the_size_of_rewards():
    small, large = (tabulate([make_trial([r * size]) for r in (0, 1, 5)]) for size in (1, 100))
    assert torch.allclose(grpo_advantages(small), grpo_advantages(large), atol=1e-5)


def test_equal_scores_give_zeros_and_never_nan():
    for value in (0.0, 0.1, 10.0):
        table = tabulate([make_trial([0] * n + [value]) for n in range(5)], gamma_step=1.0)
        assert torch.equal(grpo_advantages(table), torch.zeros(15))
