import random

import pytest
import torch
from trial_builder import GAMMAS, VECTORS, make_trial, random_trials

from metarl_agents.advantages import RETURN_MODES, differential_rewards

MODES = sorted(RETURN_MODES)
CASES = [(trial, mode) for trial in VECTORS["trials"] for mode in trial["returns"]]


def columns(trial):
    """(rewards, episode, is_reflection) of a list of (phase, episode, reward) rows."""
    phases, episodes, rewards = zip(*trial, strict=True)
    return (
        torch.tensor(rewards, dtype=torch.float32),
        torch.tensor(episodes),
        torch.tensor([phase == "reflect" for phase in phases]),
    )


def rows_of(trial):
    return [(turn.phase.value, n, turn.reward) for n, _, turn in trial.rows()]


def random_rows(seed):
    """Rows of a random trial with fractional rewards on every row, reflections too."""
    rng = random.Random(seed)
    trial = random_trials(seed, num_groups=1, group_size=1)[0]
    return [(phase, n, rng.uniform(-2, 2)) for phase, n, _ in rows_of(trial)]


def brute_force(rows, gamma_step, gamma_traj):
    """Eq. 3 and 4 as double sums, quadratic and obvious."""
    plays = {}
    for t, (phase, n, reward) in enumerate(rows):
        if phase == "play":
            plays.setdefault(n, []).append((t, reward))

    def g(n, t):
        later = [reward for position, reward in plays[n] if position >= t]
        return sum(gamma_step**i * reward for i, reward in enumerate(later))

    def ahead(n, base):
        return sum(gamma_traj ** (m - base) * g(m, 0) for m in plays if m > n)

    return [
        g(n, t) + ahead(n, n) if phase == "play" else reward + ahead(n, n + 1)
        for t, (phase, n, reward) in enumerate(rows)
    ]


@pytest.mark.parametrize(("trial", "mode"), CASES, ids=[f"{trial['name']}-{mode}" for trial, mode in CASES])
def test_every_worked_vector_is_reproduced(trial, mode):
    returns = RETURN_MODES[mode](*columns(trial["rows"]), **GAMMAS)
    assert returns.tolist() == pytest.approx(trial["returns"][mode], abs=2e-5)


@pytest.mark.parametrize(
    "trial", [t for t in VECTORS["trials"] if "differential_rewards" in t], ids=lambda t: t["name"]
)
def test_every_worked_differential_reward_is_reproduced(trial):
    rewards = differential_rewards(*columns(trial["rows"]))
    assert rewards.tolist() == pytest.approx(trial["differential_rewards"], abs=1e-5)


def test_the_three_turn_then_two_turn_trial_has_its_documented_returns():
    trial = columns(rows_of(make_trial([0.5, 0.5, -0.1], [0.5, 10], reflections=False)))
    ahead = 0.6 * (0.5 + 0.95 * 10)
    within = [0.5 + 0.95 * 0.405, 0.5 - 0.095, -0.1]
    paper = RETURN_MODES["paper"](*trial, **GAMMAS).tolist()
    assert paper == pytest.approx([g + ahead for g in within] + [10, 10], abs=1e-5)
    assert [int(value * 100) / 100 for value in paper[:2]] == [6.88, 6.4]
    recursive = RETURN_MODES["recursive"](*trial, **GAMMAS).tolist()
    assert recursive == pytest.approx([6.30, 6.11, 5.90, 10, 10], abs=0.005)


def test_paper_returns_equal_the_double_sum_of_equation_4():
    for seed in range(40):
        rows = random_rows(seed)
        returns = RETURN_MODES["paper"](*columns(rows), gamma_step=0.9, gamma_traj=0.7)
        assert returns.tolist() == pytest.approx(brute_force(rows, 0.9, 0.7), abs=1e-5)


def test_paper_returns_without_discounts_are_suffix_sums_of_play_rewards():
    for seed in range(20):
        rows = random_rows(seed)
        returns = RETURN_MODES["paper"](*columns(rows), gamma_step=1.0, gamma_traj=1.0).tolist()
        for t, (phase, _, own) in enumerate(rows):
            later = sum(reward for p, _, reward in rows[t:] if p == "play")
            assert returns[t] == pytest.approx(later + (own if phase == "reflect" else 0.0), abs=1e-5)


def test_gamma_traj_0_makes_play_rows_independent_of_other_episodes():
    for mode in ("paper", "recursive", "single"):
        for seed in range(20):
            rows = random_rows(seed)
            whole = RETURN_MODES[mode](*columns(rows), gamma_step=0.9, gamma_traj=0.0).tolist()
            for n in {n for _, n, _ in rows}:
                alone = [("play", 0, reward) for p, m, reward in rows if p == "play" and m == n]
                expected = RETURN_MODES[mode](*columns(alone), gamma_step=0.9, gamma_traj=0.0).tolist()
                here = [value for value, (p, m, _) in zip(whole, rows, strict=True) if p == "play" and m == n]
                assert here == pytest.approx(expected, abs=1e-6)


def test_single_is_paper_with_gamma_traj_0_whatever_gamma_traj_says():
    for seed in range(20):
        trial = columns(random_rows(seed))
        single = RETURN_MODES["single"](*trial, gamma_step=0.9, gamma_traj=0.6)
        assert torch.equal(single, RETURN_MODES["paper"](*trial, gamma_step=0.9, gamma_traj=0.0))


def test_recursive_equals_paper_where_gamma_step_is_1_and_differs_below():
    trial = columns(rows_of(make_trial([0, 0, 0], [10])))
    same = [RETURN_MODES[mode](*trial, gamma_step=1.0, gamma_traj=0.6) for mode in ("paper", "recursive")]
    assert torch.equal(*same)
    below = [RETURN_MODES[mode](*trial, gamma_step=0.95, gamma_traj=0.6)[0].item() for mode in ("paper", "recursive")]
    assert below == pytest.approx([6.0, 6.0 * 0.95**2])


@pytest.mark.parametrize("mode", MODES)
def test_a_reflection_earns_the_return_of_the_next_episode_plus_its_own_reward(mode):
    for own in (0.0, -0.5):
        rows = [("play", 0, 1.0), ("play", 0, 2.0), ("reflect", 0, own), ("play", 1, 3.0), ("play", 1, 4.0)]
        returns = RETURN_MODES[mode](*columns(rows), **GAMMAS).tolist()
        assert returns[2] == pytest.approx(returns[3] + own)


@pytest.mark.parametrize("mode", MODES)
def test_the_reward_of_a_reflection_never_enters_a_play_row(mode):
    for seed in range(20):
        rows = random_rows(seed)
        muted = [(phase, n, 0.0 if phase == "reflect" else reward) for phase, n, reward in rows]
        loud, quiet = (RETURN_MODES[mode](*columns(r), gamma_step=0.9, gamma_traj=0.8) for r in (rows, muted))
        own = torch.tensor([reward if phase == "reflect" else 0.0 for phase, _, reward in rows])
        assert torch.allclose(loud - quiet, own, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_reflection_with_no_episode_after_it_earns_its_own_reward(mode):
    rows = [("play", 0, 1.0), ("reflect", 0, 0.0), ("play", 1, 3.0), ("reflect", 1, -0.5)]
    returns = RETURN_MODES[mode](*columns(rows), **GAMMAS).tolist()
    assert returns[3] == pytest.approx(-0.5)
    assert RETURN_MODES[mode](*columns(rows[:3]), **GAMMAS).tolist() == pytest.approx(returns[:3])


@pytest.mark.parametrize("mode", MODES)
def test_a_one_episode_trial_without_discount_sums_its_later_rewards(mode):
    returns = RETURN_MODES[mode](*columns([("play", 0, r) for r in (1.0, 2.0, 3.0)]), gamma_step=1.0, gamma_traj=0.6)
    assert returns.tolist() == pytest.approx([6.0, 6.0, 6.0] if mode == "differential" else [6.0, 5.0, 3.0])


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_in_which_nothing_was_played_costs_one_discount_and_nothing_else(mode):
    # Episode 1 ran out of context at its first prompt: its reflection is its only row.
    rows = [("play", 0, 0.0), ("reflect", 0, 0.0), ("reflect", 1, 0.0), ("play", 2, 10.0)]
    returns = RETURN_MODES[mode](*columns(rows), gamma_step=0.95, gamma_traj=0.5).tolist()
    assert returns == pytest.approx([0.0, 0.0, 10.0, 10.0] if mode == "single" else [2.5, 5.0, 10.0, 10.0])


@pytest.mark.parametrize("mode", MODES)
def test_a_trial_without_rows_has_no_returns(mode):
    empty = torch.zeros(0), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool)
    assert RETURN_MODES[mode](*empty, **GAMMAS).shape == (0,)


@pytest.mark.parametrize("mode", MODES)
def test_returns_are_float32_even_for_float64_rewards(mode):
    rewards, episode, is_reflection = columns([("play", 0, 0.1), ("play", 0, 0.2)])
    assert RETURN_MODES[mode](rewards.double(), episode, is_reflection, **GAMMAS).dtype is torch.float32


def test_differential_rewards_add_up_to_the_last_episode():
    for seed in range(20):
        rows = random_rows(seed)
        last = max(n for _, n, _ in rows)
        final = sum(reward for phase, n, reward in rows if phase == "play" and n == last)
        assert differential_rewards(*columns(rows)).sum().item() == pytest.approx(final, abs=1e-5)


def test_differential_rewards_a_loss_before_a_win_slightly():
    trial = columns(rows_of(make_trial([-10], [10])))
    assert differential_rewards(*trial).tolist() == [-10, 0, 20]
    returns = RETURN_MODES["differential"](*trial, **GAMMAS)
    assert returns.tolist() == pytest.approx([2, 20, 20])
    paper = RETURN_MODES["paper"](*trial, **GAMMAS)
    assert paper[0].item() == pytest.approx(-4)


def test_final_pays_the_episode_before_when_nothing_was_played_in_the_last_one():
    rows = [("play", 0, 10.0), ("reflect", 0, 0.0), ("reflect", 1, 0.0)]
    assert RETURN_MODES["final"](*columns(rows), **GAMMAS).tolist() == [10, 0, 0]


def test_final_pays_the_last_played_episode_only():
    earlier = columns(rows_of(make_trial([5, 7], [1, 2])))
    nothing = columns(rows_of(make_trial([0, 0], [1, 2])))
    paid, unpaid = (RETURN_MODES["final"](*trial, **GAMMAS) for trial in (earlier, nothing))
    assert torch.equal(paid, unpaid)
    assert torch.equal(unpaid, RETURN_MODES["paper"](*nothing, **GAMMAS))
