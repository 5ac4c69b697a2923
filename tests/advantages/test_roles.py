"""Roles: trials are compared with trials against the same opponent in the same seat, unless that is switched off."""

import pytest
import torch
from trial_builder import make_trial, tabulate

from metarl_agents.advantages import ADVANTAGES
from metarl_agents.config import CreditConfig
from metarl_agents.training.credit import tabulate as tabulate_for_training

COMPARING = ("rloo", "grpo", "gigpo")


def seats(advantage_of_the_first, opponents=("x", "x")):
    """Four trials of one group, two in each seat; the first seat's earn `advantage_of_the_first` more."""
    rewards = [(0, 1.0), (0, 3.0), (1, 2.0), (1, 6.0)]
    return [
        make_trial([reward + (advantage_of_the_first if seat == 0 else 0.0)], seat=seat, opponent=opponents[seat])
        for seat, reward in rewards
    ]


def test_hand_made_leave_one_out_baselines_are_those_of_the_own_seat():
    # First seat 11 and 13, second 2 and 6: each is compared with the other one of its seat.
    assert ADVANTAGES["rloo"](tabulate(seats(10.0))).tolist() == [-2.0, 2.0, -4.0, 4.0]


def test_hand_made_baselines_without_roles_pay_for_the_seat():
    # 11, 13, 2, 6 with the means of the other three: 7, 19/3, 10, 26/3.
    advantages = ADVANTAGES["rloo"](tabulate(seats(10.0), by_role=False))
    assert advantages.tolist() == pytest.approx([4.0, 20 / 3, -8.0, -8 / 3])


@pytest.mark.parametrize("name", COMPARING)
def test_what_a_seat_is_worth_vanishes_from_advantages(name):
    assert torch.allclose(ADVANTAGES[name](tabulate(seats(10.0))), ADVANTAGES[name](tabulate(seats(0.0))))


@pytest.mark.parametrize("name", COMPARING)
def test_what_an_opponent_is_worth_vanishes_from_advantages(name):
    weak = [make_trial([reward + 10.0], opponent="weak") for reward in (1.0, 3.0)]
    strong = [make_trial([reward], opponent="strong") for reward in (2.0, 6.0)]
    level = [make_trial([reward], opponent="weak") for reward in (1.0, 3.0)]
    assert torch.allclose(ADVANTAGES[name](tabulate(weak + strong)), ADVANTAGES[name](tabulate(level + strong)))


@pytest.mark.parametrize("name", COMPARING)
def test_without_roles_a_seat_is_worth_something(name):
    one, other = (ADVANTAGES[name](tabulate(seats(worth), by_role=False)) for worth in (0.0, 10.0))
    assert (one - other).abs().min() > 0.1


def test_equal_observations_in_two_seats_are_two_anchors_unless_roles_are_one():
    trials = [make_trial([(0.0, "board")], seat=seat) for seat in (0, 1)]
    apart, together = tabulate(trials), tabulate(trials, by_role=False)
    assert apart.anchor[0] != apart.anchor[1] and apart.role[0] != apart.role[1]
    assert together.anchor[0] == together.anchor[1] and together.role[0] == together.role[1]


def test_the_setting_decides():
    trials = seats(10.0)
    assert tabulate_for_training(trials, CreditConfig()).role.tolist() == [0, 0, 1, 1]
    assert tabulate_for_training(trials, CreditConfig(normalise_by_role=False)).role.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", COMPARING)
def test_where_all_roles_are_equal_the_switch_changes_nothing(name):
    trials = [make_trial([reward], [reward + 1.0]) for reward in (1.0, 4.0, 2.0)]
    assert torch.equal(ADVANTAGES[name](tabulate(trials)), ADVANTAGES[name](tabulate(trials, by_role=False)))


def test_reinforce_compares_no_trials_so_that_roles_are_nothing_to_it():
    # Its baseline is one running mean over all roles, as the help of `normalise_by_role` says.
    apart, together = (ADVANTAGES["reinforce"](tabulate(seats(10.0), by_role=on), baseline=2.0) for on in (True, False))
    assert torch.equal(apart, together) and apart.tolist() == [9.0, 11.0, 0.0, 4.0]
