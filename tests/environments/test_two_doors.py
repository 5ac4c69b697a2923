"""Two doors: balanced, nothing leaks, one choice an attempt, and memory is worth half of the second attempt."""

import os
import random
import subprocess
import sys

import pytest

from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs import check_environment
from metarl_agents.types import Episode


def prize(seed):
    env = TwoDoors()
    env.reset(seed=seed)
    return "A" if env.step("A").info["success"] else "B"


def test_it_keeps_the_contract():
    report = check_environment(TwoDoors, seeds=range(6))
    assert report.warnings == () and report.episodes_ended == 6


def test_the_doors_are_balanced_and_do_not_follow_the_seed():
    doors = "".join(prize(seed) for seed in range(1000))
    assert doors.count("A") == 500
    assert 420 < sum(doors[seed] == "A" for seed in range(0, 1000, 2)) / 500 * 1000 < 580
    assert doors.startswith("BABAABABBABABABAABBA")


def test_the_prize_is_the_same_in_another_process():
    code = (
        "from metarl_agents.environments.two_doors import TwoDoors\n"
        "env = TwoDoors()\n"
        "print(''.join((env.reset(seed=s), env.step('A'))[1].info['success'] and 'A' or 'B' for s in range(40)))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "99"}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert out.strip() == "".join(prize(seed) for seed in range(40))


def test_nothing_leaks_before_the_choice_and_the_choice_tells():
    env = TwoDoors()
    starts = {env.reset(seed=seed) == ("Both doors are closed.", {}) for seed in range(50)}
    assert starts == {True}
    env.reset(seed=0)
    assert env.step("A") == ("Door A is open: empty.", 0.0, True, False, {"success": False})
    env.restart()
    assert env.step("B") == ("Door B is open: the prize!", 10.0, True, False, {"success": True})
    with pytest.raises(RuntimeError, match="Call `reset` or `restart`"):
        env.step("A")


@pytest.mark.parametrize(
    ("text", "action"),
    [("<action>A</action>", "A"), ("<action> door b </action>", "B"), ("A", None), ("<action>AB</action>", None)],
)
def test_parse_action(text, action):
    assert TwoDoors().parse_action(text) == action


def test_the_player_tries_both_doors_and_names_the_empty_one():
    player, rng = TwoDoors().player(), random.Random(0)
    assert {player.act("", rng) for _ in range(20)} == {"<action>A</action>", "<action>B</action>"}
    lost = Episode("Both doors are closed.", final_observation="Door A is open: empty.")
    assert player.reflect(lost, rng) == "<remark>door A was empty</remark>"
