"""A toy plan and its runner, in the folder of the test that asks for them."""

import pytest
from bench_samples import runner_of, toy_plan


@pytest.fixture
def write(tmp_path):
    """Write a plan into the test's own folder, and load it."""
    return lambda *texts, **more: toy_plan(tmp_path / "plans", *texts, **more)


@pytest.fixture
def plan(write):
    return write()


@pytest.fixture
def make(plan, tmp_path):
    """Make a runner of the plan, or of another one; everything lies in the test's own folder."""
    return lambda trainer=None, **changes: runner_of(changes.pop("plan", plan), tmp_path, trainer, **changes)
