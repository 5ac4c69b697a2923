"""Rows, their order, their rectangles."""

import pytest
import torch

from metarl_agents.training.batch import TrialBatch, collate
from metarl_agents.types import Episode, Outcome, Phase, Response, Trial, Turn


def turn(prompt, response, phase=Phase.PLAY, logprobs=None):
    noted = tuple(-float(token) for token in response) if logprobs is None else logprobs
    return Turn(phase, "s", tuple(prompt), Response(tuple(response), "x", logprobs=noted), "x", "x", 0.0)


def trials():
    """Two trials: play 1, reflect 2, play 3 | play 4, play 5."""
    first = Episode("s", [turn([1], [11])], outcome=Outcome.FAILURE, reflection=turn([2, 2], [12], Phase.REFLECT))
    second = Episode("s", [turn([3, 3], [13, 14])], outcome=Outcome.SUCCESS)
    other = Episode("s", [turn([4], [15, 16, 17]), turn([5, 5, 5], [18])], outcome=Outcome.FAILURE)
    return [Trial(0, 0, [first, second]), Trial(0, 0, [other])]


def batch(advantages=(1.0, 2.0, 3.0, 4.0, 5.0), signal=(1, 1, 1, 0, 0)):
    numbers = torch.tensor(advantages)
    return collate(trials(), numbers, numbers * 10, torch.tensor(signal).bool(), pad_id=0)


def test_rows_stand_in_time_order_within_a_trial_and_trials_in_the_order_given():
    rows = batch()
    assert [prompt[0] for prompt in rows.prompts] == [1, 2, 3, 4, 5]
    assert rows.responses == [(11,), (12,), (13, 14), (15, 16, 17), (18,)]
    assert rows.advantages.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_missing_advantage_is_refused():
    with pytest.raises(AssertionError, match="5 rows but 4 advantages"):
        collate(trials(), torch.zeros(4), torch.zeros(4), torch.zeros(4).bool(), 0)


def test_micro_batch_by_drawing():
    micro = batch().micro_batch([3, 2])
    #                                   4  15  16  17  |  3   3  13  14
    assert micro.input_ids.tolist() == [[4, 15, 16, 17], [3, 3, 13, 14]]
    assert micro.response_mask.int().tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    assert micro.attention_mask.all()
    assert micro.sampled_logprobs.tolist() == [[0, -15, -16, -17], [0, 0, -13, -14]]
    assert micro.advantages.tolist() == [4.0, 3.0] and micro.returns.tolist() == [40.0, 30.0]
    assert micro.entropy_weight.tolist() == [0.0, 1.0] and micro.rows.tolist() == [3, 2]


def test_shorter_rows_are_padded_on_the_right_and_masked():
    micro = batch().micro_batch([0, 4])
    assert micro.input_ids.tolist() == [[1, 11, 0, 0], [5, 5, 5, 18]]
    assert micro.attention_mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert micro.response_mask.int().tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]


def test_per_token_columns_follow_their_tokens():
    rows = batch()
    old = [torch.arange(float(len(response))) + 1 for response in rows.responses]
    micro = TrialBatch(**{**vars(rows), "old_logprobs": old, "reference_logprobs": old}).micro_batch([2, 0])
    assert micro.old_logprobs.tolist() == [[0, 0, 1, 2], [0, 1, 0, 0]]
    assert torch.equal(micro.old_logprobs, micro.reference_logprobs)


def test_no_rows_give_one_masked_column():
    micro = batch().micro_batch([])
    assert micro.input_ids.shape == (1, 1) and not micro.response_mask.any() and not micro.attention_mask.any()
    assert micro.advantages.tolist() == [0.0] and micro.entropy_weight.tolist() == [0.0] and len(micro.rows) == 0


def test_a_response_that_was_not_recorded_has_log_probs_of_0():
    episode = Episode("s", [turn([1], [11, 12], logprobs=())], outcome=Outcome.FAILURE)
    rows = collate([Trial(0, 0, [episode])], torch.zeros(1), torch.zeros(1), torch.zeros(1).bool(), 0)
    assert rows.sampled_logprobs == [(0.0, 0.0)]


@pytest.mark.parametrize("budget", [1, 4, 7, 8, 12, 1000])
def test_split_covers_each_row_once_and_keeps_to_the_budget(budget):
    rows = batch()
    length = [len(p) + len(r) for p, r in zip(rows.prompts, rows.responses, strict=True)]
    groups = rows.split(range(5), budget)
    assert sorted(row for group in groups for row in group) == [0, 1, 2, 3, 4]
    for group in groups:
        assert len(group) == 1 or len(group) * max(length[row] for row in group) <= budget
    assert len(groups) == {1: 5, 4: 5, 7: 4, 8: 3, 12: 2, 1000: 1}[budget]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_parts_cover_each_row_once_and_differ_by_one_row_at_most(count):
    parts = batch().parts(count, seed=3)
    assert len(parts) == count
    assert sorted(row for part in parts for row in part) == [0, 1, 2, 3, 4]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_order_of_parts_is_decided_by_the_seed_alone():
    rows = batch()
    torch.manual_seed(1)
    first = rows.parts(2, seed=3)
    torch.manual_seed(2)
    assert rows.parts(2, seed=3) == first
    assert any(rows.parts(2, seed=seed) != first for seed in range(4, 9))


def test_response_tokens_are_counted():
    assert batch().num_response_tokens([0, 2, 3]) == 6
