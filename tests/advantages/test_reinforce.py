import json
from dataclasses import replace

import pytest
import torch
from trial_builder import group_of_vectors, make_trial, tabulate

from metarl_agents.advantages import RunningMean, batch_scores, reinforce_advantages
from metarl_agents.errors import ConfigError


def test_the_advantage_is_the_score_minus_the_baseline_on_every_row():
    table = tabulate(group_of_vectors())
    advantages = reinforce_advantages(table, baseline=5.0)
    assert advantages.tolist() == pytest.approx([0.148, 0.148, 2.905, 2.905, 2.905, 5, 5, 6.5, 6.5], abs=1e-5)


def test_a_row_penalty_is_subtracted_from_its_own_row():
    table = tabulate(group_of_vectors())
    penalised = replace(table, row_penalty=torch.eye(9)[4] * 0.5)
    difference = reinforce_advantages(table, baseline=1.0) - reinforce_advantages(penalised, baseline=1.0)
    assert torch.allclose(difference, penalised.row_penalty, atol=1e-6)


def test_the_first_batch_is_judged_by_its_own_mean():
    table = tabulate([make_trial([4]), make_trial([8])])
    baseline = RunningMean().update(batch_scores(table))
    assert baseline == pytest.approx(6.0)
    assert reinforce_advantages(table, baseline=baseline).tolist() == pytest.approx([-2, 2])


def test_a_later_batch_is_judged_by_the_batches_before_it():
    running = RunningMean(decay=0.75)
    first, second, third = (running.update(torch.tensor(batch)) for batch in ([4.0, 8.0], [10.0], [0.0]))
    assert (first, second, third) == pytest.approx((6.0, 6.0, 7.0))
    assert running.mean == pytest.approx(5.25)


def test_an_empty_batch_changes_nothing():
    running = RunningMean()
    assert running.update(torch.zeros(0)) == 0.0
    assert running.mean is None
    running.update(torch.tensor([3.0]))
    assert running.update(torch.zeros(0)) == 3.0
    assert running.mean == 3.0


def test_a_saved_and_loaded_running_mean_continues_as_if_never_stopped():
    batches = [torch.tensor([float(i), float(i * i)]) for i in range(6)]
    straight, before, after = RunningMean(), RunningMean(), RunningMean()
    expected = [straight.update(batch) for batch in batches]
    resumed = [before.update(batch) for batch in batches[:3]]
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    resumed += [after.update(batch) for batch in batches[3:]]
    assert resumed == expected


def test_a_running_mean_that_has_seen_nothing_can_be_saved_and_loaded():
    running = RunningMean()
    running.load_state_dict(RunningMean().state_dict())
    assert running.update(torch.tensor([2.0])) == 2.0


@pytest.mark.parametrize("decay", [-0.1, 1.0, 2.0])
def test_a_decay_that_never_forgets_or_never_learns_is_refused(decay):
    with pytest.raises(ConfigError, match="decay"):
        RunningMean(decay=decay)
