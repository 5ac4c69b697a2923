from dataclasses import replace

import pytest
import torch
from trial_builder import group_of_vectors, make_trial, random_trials, tabulate

from metarl_agents.advantages import RETURN_MODES, ppo_advantages
from metarl_agents.errors import ConfigError


def with_random_values(table, seed=0):
    return table.with_values(torch.randn(len(table), generator=torch.Generator().manual_seed(seed)) * 3)


@pytest.mark.parametrize("mode", sorted(RETURN_MODES))
def test_lambda_1_gives_return_minus_value_in_every_return_mode(mode):
    for seed in range(5):
        table = with_random_values(tabulate(random_trials(seed), mode), seed)
        assert torch.allclose(ppo_advantages(table), table.returns - table.values, atol=1e-6)


def test_lambda_0_gives_the_one_step_error():
    table = tabulate([make_trial([1, 2, 4])], gamma_step=0.5).with_values(torch.tensor([1.0, 3.0, 7.0]))
    # r + γ V' − V, and no value after the last turn.
    assert ppo_advantages(table, gae_lambda=0.0).tolist() == pytest.approx([1 + 1.5 - 1, 2 + 3.5 - 3, 4 - 7])


def test_lambda_between_mixes_later_errors_in():
    table = tabulate([make_trial([1, 2, 4])], gamma_step=0.5).with_values(torch.tensor([1.0, 3.0, 7.0]))
    last = -3.0
    middle = 2.5 + 0.5 * 0.8 * last
    first = 1.5 + 0.5 * 0.8 * middle
    assert ppo_advantages(table, gae_lambda=0.8).tolist() == pytest.approx([first, middle, last])


def test_the_last_turn_of_an_episode_owns_the_later_episodes_and_no_value_after_it():
    table = tabulate([make_trial([0, 0], [10])], gamma_step=0.5).with_values(torch.tensor([0.0, 0.0, 0.0, 99.0]))
    advantages = ppo_advantages(table, gae_lambda=0.0)
    assert advantages[1].item() == pytest.approx(6.0)  # γ_traj · G₀ of the next episode, whatever its value
    assert advantages[0].item() == pytest.approx(6.0 - 0.5 * 6.0)


def test_a_reflection_is_a_chain_of_one_row_for_every_lambda():
    table = with_random_values(tabulate(group_of_vectors()))
    for gae_lambda in (0.0, 0.5, 1.0):
        advantages = ppo_advantages(table, gae_lambda=gae_lambda)
        assert torch.allclose(advantages[table.is_reflection], (table.returns - table.values)[table.is_reflection])


def test_a_chain_does_not_run_on_into_the_next_trial():
    trials = [make_trial([1, 2]), make_trial([3, 4])]
    values = torch.tensor([0.5, 0.6, 0.7, 0.8])
    together = ppo_advantages(tabulate(trials).with_values(values), gae_lambda=0.5)
    alone = [
        ppo_advantages(tabulate([t]).with_values(v), gae_lambda=0.5)
        for t, v in zip(trials, values.split(2), strict=True)
    ]
    assert torch.equal(together, torch.cat(alone))


def test_a_row_penalty_is_subtracted_from_its_own_row_only():
    table = with_random_values(tabulate(group_of_vectors()))
    penalty = torch.eye(9)[1] * 0.5
    for gae_lambda in (0.0, 1.0):
        plain = ppo_advantages(table, gae_lambda=gae_lambda)
        penalised = ppo_advantages(replace(table, row_penalty=penalty), gae_lambda=gae_lambda)
        assert torch.allclose(plain - penalised, penalty, atol=1e-6)


def test_a_table_without_values_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match="with_values"):
        ppo_advantages(tabulate(group_of_vectors()))
