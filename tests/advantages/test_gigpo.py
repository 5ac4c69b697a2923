import statistics
from dataclasses import replace

import pytest
import torch
from trial_builder import VECTORS, group_of_vectors, make_trial, random_trials, tabulate

from metarl_agents.advantages import (
    anchor_counts,
    gigpo_advantages,
    mean_anchor_group_size,
    singleton_fraction,
)
from metarl_agents.errors import ConfigError

ROW = VECTORS["gigpo_row_units"]
TRIAL = VECTORS["gigpo_trial_units"]
ROW_OPTIONS = {"episode_score": "reward", "credit_unit": "row"}


def row_table():
    return tabulate(group_of_vectors(), ROW["return_mode"], credit_unit="row", anchor_visits="pooled")


def test_the_nine_row_table_of_row_units_is_reproduced_under_both_norms():
    table = row_table()
    assert table.scores("reward").tolist() == pytest.approx(ROW["scores"], abs=1e-6)
    mean = gigpo_advantages(table, norm="mean", **ROW_OPTIONS)
    assert mean.tolist() == pytest.approx(ROW["advantages_mean"], abs=1e-5)
    mean_std = gigpo_advantages(table, norm="mean_std", **ROW_OPTIONS)
    assert mean_std.tolist() == pytest.approx(ROW["advantages_mean_std"], abs=1e-5)


def test_the_nine_row_table_has_its_two_levels():
    table = row_table()
    episode = gigpo_advantages(table, step_weight=0.0, **ROW_OPTIONS)
    expected = [-3.88889] * 2 + [-4.28889] + [-2.38889] * 2 + [-4.28889, 5.71111, 7.71111, 7.71111]
    assert episode.tolist() == pytest.approx(expected, abs=1e-5)
    step = gigpo_advantages(table, step_weight=1.0, **ROW_OPTIONS) - episode
    expected = [-3.72136, -2.76850, -1.19750, -0.85621, 0, 1.19750, 1.53879, 3.03879, 2.76850]
    assert step.tolist() == pytest.approx(expected, abs=1e-5)


def test_the_mean_and_spread_of_the_nine_scores_are_the_documented_ones():
    scores = row_table().scores("reward").tolist()
    assert statistics.fmean(scores) == pytest.approx(4.28889, abs=1e-5)
    assert statistics.stdev(scores) == pytest.approx(5.36177, abs=1e-5)


def test_the_same_group_in_trial_units_is_reproduced():
    advantages = gigpo_advantages(tabulate(group_of_vectors(), anchor_visits="pooled"))
    assert advantages.tolist() == pytest.approx(TRIAL["advantages_mean"], abs=1e-5)


def test_the_same_group_with_anchors_per_episode_is_reproduced():
    advantages = gigpo_advantages(tabulate(group_of_vectors(), anchor_scope="episode", anchor_visits="pooled"))
    assert advantages.tolist() == pytest.approx(TRIAL["advantages_mean_anchor_scope_episode"], abs=1e-5)


def test_matched_visits_compare_first_with_first_and_second_with_second():
    trials = [
        make_trial([(0, "start"), (0, "start"), (8, "end")]),
        make_trial([(0, "start"), (2, "end")]),
    ]
    table = tabulate(trials, gamma_step=0.5)
    assert table.returns.tolist() == [2, 4, 8, 1, 2]
    step = gigpo_advantages(table) - gigpo_advantages(table, step_weight=0.0)
    assert step.tolist() == [0.5, 0.0, 3.0, -0.5, -3.0]  # the second visit of the first trial has no counterpart
    pooled = tabulate(trials, gamma_step=0.5, anchor_visits="pooled")
    step = gigpo_advantages(pooled) - gigpo_advantages(pooled, step_weight=0.0)
    assert step.tolist() == pytest.approx([2 - 7 / 3, 4 - 7 / 3, 3.0, 1 - 7 / 3, -3.0], abs=1e-6)


def two_by_three():
    """Two trials of three turns; they share the first observation, and one the second time only."""
    return tabulate(
        [
            make_trial([(0, "start"), (0, "left"), (4, "end")]),
            make_trial([(0, "start"), (0, "right"), (2, "end")]),
        ],
        gamma_step=0.5,
    )


def test_a_two_by_three_group_by_hand_is_episode_part_plus_weighted_step_part():
    table = two_by_three()
    assert table.returns.tolist() == [1, 2, 4, 0.5, 1, 2]
    for weight in (0.0, 1.0, 2.5):
        advantages = gigpo_advantages(table, step_weight=weight)
        step = [0.25, 0, 1, -0.25, 0, -1]
        episode = [0.25] * 3 + [-0.25] * 3
        assert advantages.tolist() == pytest.approx([e + weight * s for e, s in zip(episode, step, strict=True)])


def test_a_row_alone_with_its_anchor_has_no_step_part_under_either_norm():
    table = two_by_three()
    alone = torch.tensor([1, 4])
    for norm in ("mean", "mean_std"):
        with_step, without = (gigpo_advantages(table, step_weight=w, norm=norm)[alone] for w in (5.0, 0.0))
        assert torch.equal(with_step, without)
        assert torch.isfinite(with_step).all()


def test_mean_std_divides_both_levels_by_the_unbiased_spread():
    advantages = gigpo_advantages(two_by_three(), norm="mean_std")
    assert advantages.tolist() == pytest.approx([2**0.5, 0.5**0.5, 2**0.5, -(2**0.5), -(0.5**0.5), -(2**0.5)], abs=1e-4)


def test_equal_returns_give_zeros_and_never_nan_under_mean_std():
    table = tabulate([make_trial([(0, "a"), (3, "b")]) for _ in range(3)])
    assert torch.equal(gigpo_advantages(table, norm="mean_std"), torch.zeros(6))


def test_the_step_part_is_centred_on_every_anchor_and_the_episode_part_on_every_cell_of_trials():
    for seed in range(10):
        table = tabulate(random_trials(seed))
        episode = gigpo_advantages(table, step_weight=0.0).double()
        step = gigpo_advantages(table).double() - episode
        for anchor in table.anchor.unique():
            assert step[table.anchor == anchor].sum().abs().item() < 1e-4
        cell = table.cells()
        for key in cell.unique():
            of_trial = {
                t: a for t, a, c in zip(table.trial.tolist(), episode.tolist(), cell.tolist(), strict=True) if c == key
            }
            assert abs(sum(of_trial.values())) < 1e-4


def test_play_rows_of_later_episodes_are_compared_only_with_the_same_episode():
    table = tabulate([make_trial([0], [10]), make_trial([0], [4]), make_trial([10])], gamma_traj=0.0)
    episode = gigpo_advantages(table, step_weight=0.0)
    second = (table.episode == 1) & ~table.is_reflection
    assert episode[second].tolist() == pytest.approx([3, -3])
    assert episode[table.is_reflection].tolist() == pytest.approx([3, -3])
    assert episode[(table.episode == 0) & ~table.is_reflection].tolist() == pytest.approx([-10 / 3, -10 / 3, 20 / 3])


def test_a_row_penalty_moves_its_own_row_and_no_other():
    for options in ({}, {"norm": "mean_std"}, {"step_weight": 3.0}, {"credit_unit": "row"}):
        table = tabulate(group_of_vectors())
        penalty = torch.tensor([0, 0.5, 0, 0, 0, 0.25, 0, 0, 0])
        plain, penalised = (
            gigpo_advantages(table, **options),
            gigpo_advantages(replace(table, row_penalty=penalty), **options),
        )
        assert torch.allclose(plain - penalised, penalty, atol=1e-6)


def test_anchor_metrics_count_rows_anchors_and_singletons():
    table = two_by_three()
    assert anchor_counts(table) == (6, 4, 2)
    assert singleton_fraction(table) == pytest.approx(1 / 3)
    assert mean_anchor_group_size(table) == pytest.approx(1.5)


def test_anchor_metrics_of_an_empty_table_are_zero():
    assert singleton_fraction(tabulate([])) == 0.0
    assert mean_anchor_group_size(tabulate([])) == 0.0


@pytest.mark.parametrize(
    ("option", "known"), [("norm", "mean_std"), ("episode_score", "reward"), ("credit_unit", "row")]
)
def test_an_unknown_word_for_an_option_of_gigpo_is_refused_with_the_words_known(option, known):
    with pytest.raises(ConfigError, match=f"`{option}` is 'max'.*{known}"):
        gigpo_advantages(tabulate([]), **{option: "max"})
