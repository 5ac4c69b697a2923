"""Closed forms, brute force and coverage: the statistics of the exam against what they estimate."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.diversity import entropy_interval, trajectory_diversity, trajectory_entropies
from metarl_agents.evaluation.metrics import (
    holm_adjusted,
    independent_pass_at_k,
    independent_pass_interval,
    paired_bootstrap,
    pooled,
    seed_spread,
    sequential_pass_at_k,
    wilson_interval,
)


def test_sequential_pass_at_k_counts_tasks_solved_within_k_episodes():
    solved_at = [0, 0, 1, 2, None]
    assert [sequential_pass_at_k(solved_at, k, 3) for k in (1, 2, 3)] == [2 / 5, 3 / 5, 4 / 5]


@pytest.mark.parametrize("k", [0, 4])
def test_sequential_pass_at_k_refuses_more_episodes_than_were_played(k):
    with pytest.raises(ConfigError, match=rf"pass@{k} cannot be measured with 3 episodes a trial: .* 1 and 3"):
        sequential_pass_at_k([0], k, 3)


def test_no_tasks_have_no_pass_at_k():
    with pytest.raises(ConfigError, match="no tasks"):
        sequential_pass_at_k([], 1, 3)
    with pytest.raises(ConfigError, match="no tasks"):
        independent_pass_at_k([], 1)


def test_independent_pass_at_k_is_the_share_of_all_subsets_that_hold_a_success():
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            samples = [True] * c + [False] * (n - c)
            subsets = list(itertools.combinations(samples, k))
            share = sum(map(any, subsets)) / len(subsets)
            assert independent_pass_at_k([samples], k) == pytest.approx(share, abs=1e-12)


def test_independent_pass_at_k_is_stable_for_many_samples():
    n, c, k = 2000, 3, 700
    exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
    assert independent_pass_at_k([[True] * c + [False] * (n - c)], k) == pytest.approx(float(exact), rel=1e-12)


def test_independent_pass_at_k_is_unbiased_and_averages_over_tasks():
    generator, p, k = random.Random(0), (0.2, 0.7), 3
    found = [independent_pass_at_k([[generator.random() < q for _ in range(5)] for q in p], k) for _ in range(4000)]
    expected = sum(1 - (1 - q) ** k for q in p) / 2
    assert sum(found) / len(found) == pytest.approx(expected, abs=4 * np.std(found) / math.sqrt(len(found)))


def test_independent_pass_at_k_refuses_more_attempts_than_samples_of_any_task():
    with pytest.raises(ConfigError, match="pass@3 cannot be measured with 2 samples a task"):
        independent_pass_at_k([[True] * 4, [False] * 2], 3)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_gives_published_values(successes, n, low, high):
    # 81 of 263 is the worked example of Newcombe, Statistics in Medicine 17 (1998), table I.
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_mirrors_and_widens_with_confidence_and_stays_inside_the_unit_interval():
    for n, successes in [(7, 2), (512, 170), (3, 0)]:
        low, high = wilson_interval(successes, n)
        assert wilson_interval(n - successes, n) == pytest.approx((1 - high, 1 - low))
        wide_low, wide_high = wilson_interval(successes, n, 0.99)
        assert 0 <= wide_low <= low <= successes / n <= high < wide_high <= 1
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_wilson_refuses_impossible_counts_and_confidences():
    with pytest.raises(ConfigError, match="`successes` is 4 of 3"):
        wilson_interval(4, 3)
    with pytest.raises(ConfigError, match="`confidence` is 95"):
        wilson_interval(1, 3, 95)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_wilson_covers_the_truth_about_as_often_as_it_says(p):
    n = 60
    covered = sum(
        math.comb(n, c) * p**c * (1 - p) ** (n - c)
        for c in range(n + 1)
        if wilson_interval(c, n)[0] <= p <= wilson_interval(c, n)[1]
    )
    assert 0.93 < covered < 0.98


def test_the_interval_of_independent_pass_at_k_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(1)
    truth = 2 / 3  # pass@2 of a success probability uniform on [0, 1]: 1 - E(1 - p)^2
    covered = 0
    for _ in range(200):
        samples = generator.random((60, 6)) < generator.random((60, 1))
        low, high = independent_pass_interval(samples.tolist(), 2, resamples=400)
        covered += low <= truth <= high
    assert 180 <= covered <= 199


def test_the_interval_of_independent_pass_at_k_holds_the_estimate_and_repeats():
    samples = [[True, False, False], [False] * 3, [True] * 3, [False, True, True]]
    low, high = independent_pass_interval(samples, 2, seed=3)
    assert low < independent_pass_at_k(samples, 2) < high
    assert independent_pass_interval(samples, 2, seed=3) == (low, high)


def test_tasks_that_never_differ_do_not_give_an_interval_without_width():
    assert independent_pass_interval([[False] * 4] * 20, 2) == wilson_interval(0, 20)
    assert independent_pass_interval([[True] * 4] * 20, 2) == wilson_interval(20, 20)


def test_identical_methods_do_not_differ():
    outcomes = np.random.default_rng(0).random((3, 50)) < 0.4
    assert paired_bootstrap(outcomes, outcomes) == (0.0, 0.0, 0.0, 1.0)


def test_methods_of_equal_strength_rarely_look_different():
    generator = np.random.default_rng(0)
    alarms = contained = 0
    for _ in range(200):
        difficulty = generator.random(80)
        a, b = (generator.random(80) < difficulty for _ in range(2))
        difference = paired_bootstrap(a, b, resamples=400)
        alarms += difference.p_value < 0.05
        contained += difference.low <= 0 <= difference.high
    assert 1 <= alarms <= 22 and contained >= 178


def test_a_real_difference_is_found_and_changes_sign_with_the_order():
    a, b = np.arange(200) % 10 < 6, np.arange(200) % 10 < 3
    forward, backward = paired_bootstrap(a, b), paired_bootstrap(b, a)
    assert forward.mean == pytest.approx(0.3) and backward.mean == pytest.approx(-0.3)
    assert 0 < forward.low < 0.3 < forward.high
    assert (backward.low, backward.high) == pytest.approx((-forward.high, -forward.low), abs=0.01)
    assert forward.p_value == pytest.approx(2 / 10_001)


def test_pairing_on_tasks_is_narrower_than_two_separate_intervals():
    difficulty = np.arange(300) % 2 == 0
    a = difficulty | (np.arange(300) % 29 == 0)
    difference = paired_bootstrap(a, difficulty)
    low_a, high_a = wilson_interval(int(a.sum()), 300)
    assert difference.high - difference.low < (high_a - low_a) / 2


def test_runs_of_a_task_are_resampled_together():
    once = np.random.default_rng(0).random(100) < 0.5
    other = np.random.default_rng(1).random(100) < 0.4
    single = paired_bootstrap(once, other)
    # Copies of a run bring no information, so neither the interval nor the p-value may move.
    assert paired_bootstrap(np.stack([once] * 5), np.stack([other] * 2)) == pytest.approx(single)


def test_a_paired_comparison_refuses_other_tasks():
    with pytest.raises(ConfigError, match="same tasks, but got 3 of the first method and 2"):
        paired_bootstrap([1, 0, 1], [1, 0])
    with pytest.raises(ConfigError, match="shape"):
        paired_bootstrap([], [])


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    assert holm_adjusted([0.04, 0.01, 0.03, 0.9]) == pytest.approx([0.09, 0.04, 0.09, 0.9])
    assert holm_adjusted([0.6, 0.7]) == [1.0, 1.0]
    assert holm_adjusted([0.02]) == [0.02] and holm_adjusted([]) == []


def test_diversity_is_0_for_one_trajectory_and_ln_m_for_m_different_ones():
    assert trajectory_diversity([["a"] * 8]) == (0.0, 0.0)
    assert trajectory_diversity([list("abcdefgh")]) == pytest.approx((math.log(8), 1.0))
    mixed = trajectory_diversity([["a"] * 4, list("abcd"), list("aabb")])
    assert mixed == pytest.approx(((math.log(4) + math.log(2)) / 3, 0.5))


def test_diversity_compares_whole_trajectories():
    left, right = (("s", "left"), ("t", "up")), (("s", "left"), ("t", "down"))
    assert trajectory_diversity([[left, right]]).nats == pytest.approx(math.log(2))


def test_diversity_refuses_too_few_or_uneven_samples():
    with pytest.raises(ConfigError, match="at least 2, but got 1"):
        trajectory_diversity([["a"]])
    with pytest.raises(ConfigError, match="but got 2 and 3"):
        trajectory_diversity([["a"] * 2, ["a"] * 3])


def test_spread_and_pool_over_runs():
    assert seed_spread([0.1, 0.2, 0.6]) == pytest.approx((0.3, 0.1, 0.6, np.std([0.1, 0.2, 0.6], ddof=1)))
    assert seed_spread([0.5]) == (0.5, 0.5, 0.5, None)
    assert pooled([(3, 10), (4, 10), (0, 5)]) == (7, 25)
    with pytest.raises(ConfigError, match="at least one run"):
        seed_spread([])


def test_the_diversity_is_the_mean_of_the_entropies_of_the_tasks():
    samples = [["a"] * 4, list("abcd"), list("aabb")]
    entropies = trajectory_entropies(samples)
    assert entropies == pytest.approx([0.0, math.log(4), math.log(2)])
    assert trajectory_diversity(samples).nats == pytest.approx(sum(entropies) / 3)


def test_the_interval_of_the_diversity_holds_the_true_mean_as_often_as_it_says():
    source = random.Random(0)
    values, hits, rounds = (0.0, math.log(2), math.log(4)), 0, 200
    for number in range(rounds):
        drawn = [source.choice(values) for _ in range(60)]
        low, high = entropy_interval(drawn, 4, resamples=1_000, seed=number)
        assert low <= sum(drawn) / 60 <= high
        hits += low <= sum(values) / 3 <= high
    assert 0.89 < hits / rounds < 0.99


def test_tasks_that_are_all_at_one_end_leave_the_diversity_uncertain():
    largest = math.log(8)
    low, high = entropy_interval([0.0] * 40, 8)
    assert (low, high) == pytest.approx((0.0, wilson_interval(0, 40)[1] * largest)) and high > 0.1
    low, high = entropy_interval([largest] * 40, 8)
    assert (low, high) == pytest.approx((wilson_interval(40, 40)[0] * largest, largest)) and low < largest - 0.1
    with pytest.raises(ConfigError, match="no tasks"):
        entropy_interval([], 8)
