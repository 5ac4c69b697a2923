import math
import random
import statistics

import pytest
import torch

from metarl_agents.advantages.grouping import (
    combine_keys,
    group_count,
    group_mean,
    group_mean_of_others,
    group_std,
    group_sum,
    minus_mean,
    moment_sums,
    one_per_trial,
    scale_and_clip,
    standardised,
    std_from_sums,
)
from metarl_agents.errors import ConfigError


def random_groups(seed):
    rng = random.Random(seed)
    keys = [rng.choice([-3, 0, 5, 10**12]) for _ in range(rng.randint(1, 30))]
    return torch.tensor([rng.uniform(-5, 5) for _ in keys]), torch.tensor(keys)


def members(values, key, row):
    return [value for value, k in zip(values.tolist(), key.tolist(), strict=True) if k == key[row].item()]


def test_statistics_equal_those_of_the_standard_library_for_any_integer_keys():
    for seed in range(30):
        values, key = random_groups(seed)
        for row in range(len(values)):
            group = members(values, key, row)
            others = [v for v in group]
            others.remove(values[row].item())
            assert group_count(key)[row].item() == len(group)
            assert group_sum(values, key)[row].item() == pytest.approx(sum(group))
            assert group_mean(values, key)[row].item() == pytest.approx(statistics.fmean(group))
            std = statistics.stdev(group) if len(group) > 1 else 0.0
            assert group_std(values, key)[row].item() == pytest.approx(std)
            rest = statistics.fmean(others) if others else values[row].item()
            assert group_mean_of_others(values, key)[row].item() == pytest.approx(rest)


def test_the_mean_of_equal_float32_numbers_is_that_number_to_the_last_bit():
    for count in (3, 7, 1000):
        for value in (0.1, -1e-3, 9.7):
            values = torch.full((count,), value)
            key = torch.zeros(count, dtype=torch.int64)
            assert torch.equal(minus_mean(values, key), torch.zeros(count, dtype=torch.float64))
            assert torch.equal(standardised(values, key), torch.zeros(count, dtype=torch.float64))


def test_combined_keys_are_equal_exactly_where_all_columns_are():
    generator = torch.Generator().manual_seed(0)
    columns = [torch.randint(-2, 3, (200,), generator=generator) * 10**15 for _ in range(4)]
    columns.append(torch.rand(200, generator=generator) > 0.5)
    key = combine_keys(*columns).tolist()
    tuples = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(set(zip(key, tuples, strict=True))) == len(set(key)) == len(set(tuples))
    assert set(key) == set(range(len(set(key))))


def test_a_trial_counts_once_however_many_rows_it_has():
    scores, cell, unit = one_per_trial(
        torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([4, 4, 4, 4]), torch.tensor([0, 1, 1, 1])
    )
    assert sorted(scores.tolist()) == [0, 1]
    assert cell.tolist() == [4, 4]
    assert scores[unit].tolist() == [1, 0, 0, 0]


def test_scaling_divides_by_the_unbiased_spread_and_keeps_signs():
    advantages = torch.tensor([-1.0, 2.0, 5.0])
    scaled = scale_and_clip(advantages, scale="batch_std")
    assert scaled.tolist() == pytest.approx([-1 / 3, 2 / 3, 5 / 3])
    assert scaled.dtype is torch.float32


def test_scale_none_without_a_clip_changes_nothing():
    advantages = torch.randn(20, generator=torch.Generator().manual_seed(0))
    assert torch.equal(scale_and_clip(advantages), advantages)


def test_scaled_advantages_do_not_depend_on_the_size_of_rewards():
    advantages = torch.randn(20, generator=torch.Generator().manual_seed(1))
    one, thousand = (scale_and_clip(advantages * size, scale="batch_std", clip=4.0) for size in (1, 1000))
    assert torch.allclose(one, thousand, atol=1e-5)
    assert one.double().std().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("rows", [[], [3.0], [0.0, 0.0], [0.3] * 7, [10000 / 3] * 7, [-1e-4] * 3])
def test_a_batch_without_spread_is_left_as_it_is_and_never_nan(rows):
    advantages = torch.tensor(rows)
    assert torch.equal(scale_and_clip(advantages, scale="batch_std"), advantages)


@pytest.mark.parametrize("std", [0.0, math.nan, math.inf])
def test_a_spread_that_cannot_divide_is_ignored(std):
    advantages = torch.tensor([1.0, 2.0])
    assert torch.equal(scale_and_clip(advantages, scale="batch_std", std=std), advantages)


def test_clipping_comes_after_scaling():
    assert scale_and_clip(torch.tensor([-9.0, 1.0, 9.0]), scale="batch_std", clip=2.0, std=3.0).tolist() == (
        pytest.approx([-2, 1 / 3, 2])
    )


def test_processes_that_add_their_sums_get_the_spread_of_all_rows():
    rows = torch.randn(33, generator=torch.Generator().manual_seed(2)) + 5
    for cut in (0, 1, 20, 33):
        sums = moment_sums(rows[:cut]) + moment_sums(rows[cut:])
        assert std_from_sums(sums) == pytest.approx(rows.double().std().item())
        std = std_from_sums(sums)
        halves = [scale_and_clip(part, scale="batch_std", std=std) for part in (rows[:cut], rows[cut:])]
        assert torch.allclose(torch.cat(halves), scale_and_clip(rows, scale="batch_std"))


def test_empty_rows_added_after_credit_do_not_enter_a_spread_given_from_outside():
    rows = torch.tensor([1.0, -2.0, 4.0, 0.5, -1.0, 3.0, 2.0])
    padded = torch.cat([rows, torch.zeros(1)])
    std = std_from_sums(moment_sums(rows))
    assert torch.equal(
        scale_and_clip(padded, scale="batch_std", std=std)[:7], scale_and_clip(rows, scale="batch_std", std=std)
    )


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_that_is_not_positive_is_refused(clip):
    with pytest.raises(ConfigError, match="advantage_clip"):
        scale_and_clip(torch.zeros(2), clip=clip)


def test_an_unknown_scale_is_refused_with_the_words_known():
    with pytest.raises(ConfigError, match="`scale_advantages` is 'std'.*none, batch_std"):
        scale_and_clip(torch.zeros(2), scale="std")
