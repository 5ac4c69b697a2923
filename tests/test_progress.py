"""What a user sees during a wait: a bar in a terminal, a line or two elsewhere, nothing of a short one."""

import io
import sys

import pytest

from metarl_agents import progress as module
from metarl_agents.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("seconds", [1.0, 100.0])
def test_outside_a_terminal_a_long_wait_is_two_lines_with_the_time_left_and_a_short_one_none(
    seconds, monkeypatch, capsys
):
    clock = iter([0.0, *(seconds * part for part in (0.25, 0.5, 0.75, 1.0, 1.0))])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with progress("making the tiny model", 4) as at:
        for done in range(1, 5):
            at(done)
    said = capsys.readouterr().err.splitlines()
    expected = [
        "making the tiny model: 1 of 4 after 25 s, about 75 s to go",
        "making the tiny model: done after 100 s",
    ]
    assert said == (expected if seconds > module.SILENT_S else [])


def test_a_terminal_shows_a_bar_and_other_processes_nothing(monkeypatch):
    for shown in (True, False):
        out = Terminal()
        monkeypatch.setattr(sys, "stderr", out)
        with progress("making the tiny model", 2, shown=shown) as at:
            at(1)
            at(2)
        assert ("making the tiny model" in out.getvalue() and "0/2" in out.getvalue()) == shown


def test_a_model_made_on_the_spot_says_so(monkeypatch, capsys):
    from metarl_agents.config import Config
    from metarl_agents.environments.two_doors import TwoDoors
    from metarl_agents.training import warm_start

    monkeypatch.setattr(module, "SILENT_S", 0.0)
    monkeypatch.setattr(warm_start, "ON_THE_FLY", warm_start.WarmStartConfig(steps=2, batch_size=4))
    monkeypatch.setattr(warm_start, "ON_THE_FLY_TRIALS", 4)
    warm_start.tiny_policy_on_the_fly(TwoDoors, Config.from_flat({"max_turns": 1}))
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("making the tiny model: 1 of 2 ") and "to go" in first and "done" in last
