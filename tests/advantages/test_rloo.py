import pytest
import torch
from trial_builder import VECTORS, group_of_vectors, make_trial, random_trials, tabulate

from metarl_agents.advantages import gigpo_advantages, rloo_advantages


def test_the_worked_group_in_trial_units_is_reproduced():
    advantages = rloo_advantages(tabulate(group_of_vectors()))
    assert advantages.tolist() == pytest.approx(VECTORS["rloo_trial_units"]["advantages"], abs=1e-5)


def test_the_worked_group_in_row_units_is_reproduced():
    table = tabulate(group_of_vectors(), "recursive", credit_unit="row")
    advantages = rloo_advantages(table, episode_score="reward", credit_unit="row")
    assert advantages.tolist() == pytest.approx(VECTORS["gigpo_row_units"]["rloo_rows"], abs=1e-5)


def test_the_baseline_is_the_mean_over_trials_and_not_over_rows():
    # One turn with reward 10 against seven turns with reward 0.
    table = tabulate([make_trial([10]), make_trial([0] * 7)])
    by_trial, by_row = (rloo_advantages(table, credit_unit=unit) for unit in ("trial", "row"))
    assert (table.scores() - by_trial).tolist() == pytest.approx([0] + [10] * 7)
    assert (table.scores() - by_row).tolist()[1:] == pytest.approx([10 / 7] * 7)
    mean_of = {
        u: (table.scores() - gigpo_advantages(table, step_weight=0.0, credit_unit=u))[0].item()
        for u in ("trial", "row")
    }
    assert mean_of == pytest.approx({"trial": 5.0, "row": 1.25})


def test_rloo_is_n_over_n_minus_1_times_the_mean_centred_score():
    for seed in range(10):
        table = tabulate(random_trials(seed))
        cell = table.cells()
        centred = gigpo_advantages(table, step_weight=0.0)
        size = torch.tensor([len(table.trial[cell == key].unique()) for key in cell])
        factor = torch.where(size > 1, size / (size - 1).clamp(min=1), 0.0)
        assert torch.allclose(rloo_advantages(table), factor * centred, atol=1e-5)


def test_a_trial_that_reached_an_episode_alone_gets_zero_there():
    table = tabulate([make_trial([0], [10]), make_trial([10])])
    assert rloo_advantages(table).tolist() == pytest.approx([-4, 0, 0, 4])
