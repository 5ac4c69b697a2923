"""Learning rates are functions of the optimizer steps taken."""

import pytest
import torch

from metarl_agents.policy.schedules import Schedule, rate_factor


@pytest.mark.parametrize("name", ["constant", "constant_with_warmup", "linear", "cosine"])
@pytest.mark.parametrize(("warmup", "total"), [(0, 7), (3, 7), (7, 7), (9, 7), (0, 0)])
def test_the_rates_are_those_of_transformers(name, warmup, total):
    from transformers import get_scheduler

    own = torch.optim.AdamW([{"params": [torch.zeros(1)], "lr": 0.3}, {"params": [torch.zeros(1)], "lr": 1e-5}])
    theirs = torch.optim.AdamW([{"params": [torch.zeros(1)], "lr": 0.3}, {"params": [torch.zeros(1)], "lr": 1e-5}])
    plain = "constant_with_warmup" if name == "constant" and warmup else name
    expected = get_scheduler(plain, theirs, num_warmup_steps=warmup, num_training_steps=total)
    schedule = Schedule(name, own, warmup_steps=warmup, total_steps=total)
    for steps in range(max(total, warmup) + 1):
        schedule.go_to(steps)
        assert schedule.rates == expected.get_last_lr(), steps
        theirs.step()
        expected.step()


def test_a_rate_never_rises_again_beyond_the_end():
    for name in ("linear", "cosine"):
        assert rate_factor(name, 9, warmup_steps=1, total_steps=5) == 0.0
