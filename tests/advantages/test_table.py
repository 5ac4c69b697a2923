from dataclasses import FrozenInstanceError, replace
from functools import partial

import pytest
import torch
from trial_builder import group_of_vectors, make_trial, play, random_trials, reflect, tabulate

from metarl_agents.advantages import ADVANTAGES, batch_scores, count_lone_trials, paper_returns, tabulate_turns
from metarl_agents.errors import ConfigError
from metarl_agents.types import Episode, Trial


def same(table, column, i, j):
    values = getattr(table, column)
    return bool(values[i] == values[j])


def test_rows_stand_in_the_order_of_trials_and_time():
    table = tabulate([make_trial([1, 2], [3], group=7), make_trial([4], group=9)])
    assert table.trial.tolist() == [0, 0, 0, 0, 1]
    assert table.episode.tolist() == [0, 0, 0, 1, 0]
    assert table.turn.tolist() == [0, 1, 2, 0, 0]
    assert table.reward.tolist() == [1, 2, 0, 3, 4]
    assert table.is_reflection.tolist() == [False, False, True, False, False]
    assert table.group.tolist() == [0, 0, 0, 0, 1]


def test_columns_have_their_documented_types():
    table = tabulate(random_trials(0))
    integers = (table.group, table.trial, table.episode, table.turn, table.role, table.anchor)
    assert {column.dtype for column in integers} == {torch.int64}
    floats = (table.reward, table.episode_reward, table.returns, table.row_penalty)
    assert {column.dtype for column in floats} == {torch.float32}
    assert table.is_reflection.dtype is torch.bool
    assert {column.shape for column in (*integers, *floats, table.is_reflection)} == {(len(table),)}


def test_returns_and_episode_rewards_are_those_of_each_trial():
    table = tabulate([make_trial([1, 2], [10])], gamma_step=0.5, gamma_traj=0.5)
    assert table.returns.tolist() == [7, 7, 10, 10]
    assert table.episode_reward.tolist() == [3, 3, 3, 10]


def test_a_table_has_one_row_per_turn_whatever_multiple_that_is():
    for turns in range(1, 18):
        table = tabulate([make_trial([1] * turns), make_trial([0])])
        assert len(table) == turns + 1
        assert len({*zip(table.trial.tolist(), table.episode.tolist(), table.turn.tolist(), strict=True)}) == turns + 1


def test_rows_that_were_doubled_to_fill_a_batch_would_not_move_an_episode_level_baseline():
    # 7 rows brought to 8 by a copy of the first one, the fault of public code.
    table = tabulate([make_trial([0, 0, 4]), make_trial([0, 0, 0, 1])], gamma_step=1.0)
    columns = {name: column for name, column in vars(table).items() if isinstance(column, torch.Tensor)}
    padded = replace(table, **{name: torch.cat([column, column[:1]]) for name, column in columns.items()})
    assert len(table) == 7
    assert len(padded) == 8
    for name in ("rloo", "grpo"):
        plain, doubled = ADVANTAGES[name](table), ADVANTAGES[name](padded)
        assert torch.equal(doubled[:7], plain)
        assert plain.abs().min() > 0.1


def test_no_trials_give_a_table_without_rows_that_every_estimator_accepts():
    for trials in ([], [Trial(seed=0, group=0)], [make_trial([])]):
        table = tabulate(trials).with_values(torch.zeros(0))
        assert len(table) == 0
        assert count_lone_trials(table) == 0
        assert batch_scores(table).shape == (0,)
        for name, estimator in ADVANTAGES.items():
            options = {"baseline": 0.0} if name == "reinforce" else {}
            advantages = estimator(table, **options)
            assert advantages.shape == (0,)
            assert advantages.dtype is torch.float32


def test_play_rows_share_an_anchor_when_group_and_observation_are_equal():
    table = tabulate(
        [make_trial([(0, "a"), (0, "b"), (0, "a")]), make_trial([(0, "a")]), make_trial([(0, "a")], group=1)],
        anchor_visits="pooled",
    )
    assert same(table, "anchor", 0, 2)
    assert same(table, "anchor", 0, 3)
    assert not same(table, "anchor", 0, 1)
    assert not same(table, "anchor", 0, 4)


def test_observations_are_compared_exactly():
    table = tabulate([make_trial([(0, "a"), (0, "a "), (0, "A"), (0, "")])])
    assert len(table.anchor.unique()) == 4


def test_anchor_scope_decides_whether_episodes_share_an_anchor():
    trial = make_trial([(0, "a")], [(0, "a")])
    assert same(tabulate([trial], anchor_visits="pooled"), "anchor", 0, 2)
    assert not same(tabulate([trial], anchor_scope="episode", anchor_visits="pooled"), "anchor", 0, 2)


def test_matched_visits_share_an_anchor_across_trials_and_never_within_one():
    later = make_trial([(0, "b")], [(0, "a")], [(0, "a")])
    for scope, is_shared in (("global", True), ("episode", False)):
        table = tabulate([make_trial([(0, "a"), (0, "a")]), later], anchor_scope=scope)
        plays = table.anchor[~table.is_reflection]  # a a | b a a
        assert plays[0] != plays[1] and plays[3] != plays[4]
        assert [bool(plays[0] == plays[3]), bool(plays[1] == plays[4])] == [is_shared] * 2


def test_reflections_share_an_anchor_only_on_the_same_episode():
    table = tabulate([make_trial([0], [0], [0]), make_trial([0], [0], [0])])
    reflections = table.anchor[table.is_reflection]
    assert reflections[0] == reflections[2]
    assert reflections[1] == reflections[3]
    assert reflections[0] != reflections[1]


def test_reflections_of_a_group_share_one_anchor_in_row_units():
    trials = [make_trial([0], [0], [0]), make_trial([0], [0], [0], group=1)]
    reflections = [
        tabulate(trials, credit_unit="row", anchor_scope=s, anchor_visits="pooled") for s in ("global", "episode")
    ]
    for table in reflections:
        anchors = table.anchor[table.is_reflection]
        assert anchors[0] == anchors[1]
        assert anchors[0] != anchors[2]


def test_a_reflection_never_shares_an_anchor_with_a_play_row():
    # A reflection carries an empty observation, and so may a game.
    table = tabulate([make_trial([(0, "")], [(0, "")])])
    assert not same(table, "anchor", 0, 1)


def test_roles_differ_by_opponent_and_by_seat_and_part_anchors():
    for fields in ({"opponent": "mcts"}, {"seat": 1}):
        table = tabulate([make_trial([(0, "a")]), make_trial([(0, "a")], **fields)])
        assert not same(table, "role", 0, 1)
        assert not same(table, "anchor", 0, 1)
    assert len(tabulate(random_trials(0)).role.unique()) == 1


def test_the_score_of_every_play_row_is_the_return_of_its_episodes_first_turn():
    table = tabulate(random_trials(3))
    scores = table.scores("return").tolist()
    keys = list(zip(table.trial.tolist(), table.episode.tolist(), table.is_reflection.tolist(), strict=True))
    first = {}
    for key, value in zip(keys, table.returns.tolist(), strict=True):
        first.setdefault(key, value)
    assert scores == [first[key] for key in keys]


def test_the_score_reward_is_the_episode_reward_and_0_for_a_reflection():
    table = tabulate([make_trial([1, 2], [10])])
    assert table.scores("reward").tolist() == [3, 3, 0, 10]


def test_scores_of_equal_returns_are_equal_to_the_last_bit_whatever_the_number_of_turns():
    # 0.1 in thirds and sevenths does not come back exactly from a mean.
    table = tabulate([make_trial([0] * n + [0.1]) for n in range(12)], gamma_step=1.0)
    assert len(table.scores().unique()) == 1


def test_a_reflection_on_an_episode_without_turns_has_a_score():
    empty = Episode("start", [], "start", reflection=reflect())
    trial = Trial(seed=0, group=0, episodes=[empty, Episode("start", [play(10)])])
    table = tabulate([trial])
    assert table.scores().tolist() == [10, 10]
    assert torch.isfinite(ADVANTAGES["gigpo"](table)).all()


def test_batch_scores_count_each_trial_once_per_cell_and_each_row_once_in_row_units():
    table = tabulate([make_trial([0, 0, 6]), make_trial([2])], gamma_step=1.0)
    assert sorted(batch_scores(table).tolist()) == [2, 6]
    assert sorted(batch_scores(table, credit_unit="row").tolist()) == [2, 6, 6, 6]


def test_trials_alone_in_their_cell_are_counted_once_per_cell():
    both, one = make_trial([0], [0]), make_trial([0])
    assert count_lone_trials(tabulate([both, both])) == 0
    assert count_lone_trials(tabulate([both, one])) == 2  # the reflection, and episode 1
    assert count_lone_trials(tabulate([one, make_trial([0, 0], seat=1)])) == 2


def test_with_values_detaches_and_leaves_the_original_alone():
    table = tabulate(group_of_vectors())
    predictions = torch.zeros(len(table), dtype=torch.float64, requires_grad=True)
    valued = table.with_values(predictions)
    assert valued.values.dtype is torch.float32
    assert not valued.values.requires_grad
    assert table.values is None
    with pytest.raises(FrozenInstanceError):
        table.values = predictions


def test_the_table_keeps_the_row_penalty_and_gamma_step():
    trial = Trial(
        seed=0, group=0, episodes=[Episode("start", [play(1, penalty=0.5)], reflection=reflect(penalty=0.25))]
    )
    return_fn = partial(paper_returns, gamma_step=0.9, gamma_traj=0.6)
    table = tabulate_turns([trial], return_fn, gamma_step=0.9)
    assert table.row_penalty.tolist() == [0.5, 0.25]
    assert table.gamma_step == 0.9


@pytest.mark.parametrize("option", ["anchor_scope", "anchor_visits", "credit_unit"])
def test_an_unknown_word_for_an_option_is_named_with_the_words_known(option):
    with pytest.raises(ConfigError, match=f"`{option}` is 'turn'.*(episode|pooled|row)"):
        tabulate([], **{option: "turn"})
