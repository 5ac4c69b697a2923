"""The losses in closed form, and what lies outside the response weighing exactly nothing."""

import math

import pytest
import torch
from training_helpers import micro, plain, scores

from metarl_agents.config import UpdateConfig
from metarl_agents.training.loss import kl_to_reference, policy_gradient_loss, token_weights, value_loss


def loss_at(ratio, advantage, **settings):
    """Loss and gradient by log π of one token whose ratio is `ratio`."""
    given = scores([[0.0, math.log(ratio)]])
    batch = micro([[0, 1]], [advantage], old_logprobs=[[0.0, 0.0]])
    loss, stats = policy_gradient_loss(given, batch, plain(**settings))
    loss.backward()
    return loss.item(), given.logprobs.grad[0, 1].item(), stats


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # better already than 1 + 0.2 allows
        (0.5, 2.0, -1.0, -1.0),  # worse than before: nothing is clipped
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 3.0),
        (0.9, -2.0, 1.8, 1.8),
    ],
)
def test_the_clipped_loss_and_its_gradient(ratio, advantage, loss, gradient):
    assert loss_at(ratio, advantage)[:2] == pytest.approx((loss, gradient), rel=1e-5)


def test_each_side_has_its_own_clip_range():
    assert loss_at(1.5, 1.0, clip_high=0.3)[0] == pytest.approx(-1.3)
    assert loss_at(0.5, -1.0, clip_low=0.4)[0] == pytest.approx(0.6)


def test_the_dual_clip_bounds_the_loss_of_bad_tokens_alone():
    assert loss_at(5.0, -2.0, dual_clip=3.0)[:2] == pytest.approx((6.0, 0.0))
    assert loss_at(2.0, -2.0, dual_clip=3.0)[:2] == pytest.approx((4.0, 4.0))
    assert loss_at(5.0, 2.0, dual_clip=3.0)[0] == pytest.approx(-2.4)


def test_without_old_log_probs_the_ratio_is_1_and_the_gradient_that_of_log_pi():
    given = scores([[0.0, -3.0, -1.0]])
    loss, stats = policy_gradient_loss(given, micro([[0, 1, 1]], [2.5]), plain())
    loss.backward()
    assert loss.item() == pytest.approx(-5.0)
    assert given.logprobs.grad.tolist() == [[0.0, -2.5, -2.5]]
    assert stats["clip_ratio/high_mean"] == stats["clip_ratio/low_mean"] == (0.0, 2.0)


def test_clip_metrics_count_the_tokens_that_were_clipped():
    batch = micro([[0, 1, 1], [0, 1, 1]], [1.0, -1.0], old_logprobs=torch.zeros(2, 3))
    given = scores([[0.0, math.log(2), 0.0], [0.0, math.log(0.5), math.log(2)]])
    _, stats = policy_gradient_loss(given, batch, plain())
    assert stats["clip_ratio/high_mean"] == (1.0, 4.0)
    assert stats["clip_ratio/low_mean"] == (1.0, 4.0)


@pytest.mark.parametrize("difference", [-2.0, -0.1, 0.0, 0.3, 1.5])
def test_k3_is_its_formula_and_never_negative(difference):
    kl = kl_to_reference(torch.tensor([-1.0]), torch.tensor([-1.0 + difference])).item()
    assert kl == pytest.approx(math.exp(difference) - difference - 1, abs=1e-6)
    assert kl >= -1e-7


def test_the_mean_of_k3_under_the_policy_is_the_kl_divergence():
    policy, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    exact = (policy * (policy / reference).log()).sum()
    assert (policy * kl_to_reference(policy.log(), reference.log())).sum() == pytest.approx(exact.item(), rel=1e-5)


def test_beta_and_the_entropy_coefficient_enter_the_loss():
    given = scores([[0.0, -1.0]], entropy=[[0.0, 2.0]])
    batch = micro([[0, 1]], [0.0], reference_logprobs=[[0.0, -0.5]])
    loss, stats = policy_gradient_loss(given, batch, plain(beta=0.1, entropy_coef=0.01))
    kl = math.exp(0.5) - 1.5
    assert loss.item() == pytest.approx(0.1 * kl - 0.02, rel=1e-5)
    assert stats["kl"] == pytest.approx((kl, 1.0)) and stats["entropy"] == (2.0, 1.0)


def test_rows_of_groups_without_signal_get_no_entropy_bonus():
    given = scores([[0.0, -1.0], [0.0, -1.0]], entropy=[[0.0, 2.0], [0.0, 5.0]])
    batch = micro([[0, 1], [0, 1]], [0.0, 0.0], entropy_weight=[1.0, 0.0])
    assert policy_gradient_loss(given, batch, plain(entropy_coef=0.5))[0].item() == pytest.approx(-1.0)


def test_token_mean_counts_tokens_and_sequence_mean_counts_rows():
    mask = torch.tensor([[0, 1, 1, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
    assert token_weights(mask, "token_mean").sum(dim=1).tolist() == [4.0, 1.0, 0.0]
    assert token_weights(mask, "sequence_mean").sum(dim=1).tolist() == [1.0, 1.0, 0.0]
    batch = micro(mask.tolist(), [1.0, 3.0, 9.0])
    zeros = scores(torch.zeros(3, 5))
    assert policy_gradient_loss(zeros, batch, plain())[0].item() == pytest.approx(-7.0)
    assert policy_gradient_loss(zeros, batch, plain(loss_aggregation="sequence_mean"))[0].item() == pytest.approx(-4.0)


@pytest.mark.parametrize("filler", [7.0, -50.0, 1e30, float("inf"), float("-inf"), float("nan")])
def test_what_fills_masked_positions_changes_nothing(filler):
    mask = [[0, 1, 1, 0], [0, 0, 1, 0]]
    settings = UpdateConfig(beta=0.2, entropy_coef=0.1)

    def result(fill):
        def filled(values):
            return torch.where(torch.tensor(mask).bool(), torch.tensor(values), torch.full((), fill))

        given = scores(filled([[0.0, -1.0, -2.0, 0.0], [0.0, 0.0, -3.0, 0.0]]), filled([[1.0] * 4] * 2))
        columns = {
            "old_logprobs": filled([[0.0, -1.5, -1.0, 0.0], [0.0, 0.0, -3.0, 0.0]]),
            "reference_logprobs": filled([[0.0, -1.2, -2.0, 0.0], [0.0, 0.0, -2.0, 0.0]]),
            "sampled_logprobs": filled([[0.0, -1.1, -2.0, 0.0], [0.0, 0.0, -3.0, 0.0]]),
        }
        loss, stats = policy_gradient_loss(given, micro(mask, [1.0, -1.0], **columns), settings)
        loss.backward()
        return loss.item(), stats, given.logprobs.grad

    loss, stats, gradient = result(filler)
    expected_loss, expected_stats, expected_gradient = result(0.0)
    assert loss == expected_loss and stats == expected_stats
    assert torch.equal(gradient, expected_gradient)
    assert (gradient[~torch.tensor(mask).bool()] == 0).all() and gradient.abs().sum() > 0


def test_an_empty_micro_batch_has_a_loss_of_0_with_a_graph():
    given = scores([[-4.0]], entropy=[[3.0]])
    loss, stats = policy_gradient_loss(given, micro([[0]], [5.0]), UpdateConfig())
    loss.backward()
    assert loss.item() == 0.0 and given.logprobs.grad.tolist() == [[0.0]]
    assert stats["entropy"] == (0.0, 0.0) and stats["sampling/logp_difference/max"][0] == 0.0


@pytest.mark.parametrize(
    ("value", "expected", "gradient"),
    [(0.3, 0.5 * 9.7**2, -9.7), (2.0, 0.5 * 9.5**2, 0.0), (-2.0, 0.5 * 12**2, -12.0)],
)
def test_the_value_loss_is_the_clipped_square(value, expected, gradient):
    values = torch.tensor([value], requires_grad=True)
    loss = value_loss(values, torch.tensor([0.0]), torch.tensor([10.0]), torch.tensor([1.0]), clip=0.5)
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert values.grad.item() == pytest.approx(gradient, rel=1e-5)


def test_without_a_value_clip_and_by_weight():
    values, returns = torch.tensor([2.0, 5.0]), torch.tensor([10.0, 1.0])
    assert value_loss(values, values * 0, returns, torch.tensor([1.0, 0.0]), clip=None).item() == pytest.approx(32.0)
