import doctest
import importlib

import pytest


@pytest.mark.parametrize("stem", ["returns", "grouping", "reinforce"])
def test_the_examples_in_the_docstrings_are_true(stem):
    results = doctest.testmod(importlib.import_module(f"metarl_agents.advantages.{stem}"))
    assert results.attempted > 0
    assert results.failed == 0
