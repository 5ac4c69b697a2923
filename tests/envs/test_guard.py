"""Time limits: by alarm in the main thread, by a worker process anywhere; workers die and the caller lives."""

import functools
import os
import random
import signal
import threading
import time

import pytest

from metarl_agents.environments.minesweeper import Minesweeper
from metarl_agents.envs import Environment, check_environment
from metarl_agents.envs.guard import (
    EnvironmentCrash,
    EnvironmentTimeout,
    ProcessEnvironment,
    call_with_timeout,
    can_interrupt,
)
from metarl_agents.errors import ConfigError


def sleep_for_ever():
    while True:
        time.sleep(0.01)


def test_a_quick_call_returns_and_leaves_no_timer():
    handler = signal.getsignal(signal.SIGALRM)
    assert call_with_timeout(lambda: 7, 5.0) == 7
    assert call_with_timeout(lambda: 8, None) == 8
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == handler


def test_a_slow_call_is_interrupted():
    started = time.monotonic()
    with pytest.raises(EnvironmentTimeout, match=r"did not answer within 0\.1 s"):
        call_with_timeout(sleep_for_ever, 0.1)
    assert time.monotonic() - started < 3
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_exceptions_pass_through():
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(lambda: 1 / 0, 5.0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_swallowing_the_interruption_does_not_help():
    def stubborn():
        for _ in range(3):
            try:
                sleep_for_ever()
            except Exception:
                continue
        return "fine"

    with pytest.raises(EnvironmentTimeout):
        call_with_timeout(stubborn, 0.05)


def test_an_earlier_timer_is_put_back():
    rings = []
    old = signal.signal(signal.SIGALRM, lambda signum, frame: rings.append(time.monotonic()))
    try:
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(EnvironmentTimeout):
            call_with_timeout(sleep_for_ever, 0.05)
        assert not rings and 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 0.4
        while not rings and time.monotonic() - started < 5:
            time.sleep(0.01)
        assert rings[0] - started >= 0.39
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_limits_nest():
    def inner():
        with pytest.raises(EnvironmentTimeout, match=r"0\.05 s"):
            call_with_timeout(sleep_for_ever, 0.05)
        sleep_for_ever()

    with pytest.raises(EnvironmentTimeout, match=r"0\.3 s"):
        call_with_timeout(inner, 0.3)


def test_other_threads_are_told_about_the_worker_process():
    answers = []

    def elsewhere():
        answers.append(can_interrupt())
        try:
            call_with_timeout(lambda: 7, 1.0)
        except RuntimeError as error:
            answers.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert answers[0] is False and "ProcessEnvironment(make_env, timeout_s)" in answers[1]
    assert can_interrupt()


class OddError(Exception):
    """Known in the worker alone, for all the caller knows."""


class Weather(Environment):
    """Does what its action says."""

    def __init__(self, broken=False):
        if broken:
            raise ValueError("no rooms")

    def reset(self, *, seed):
        self.seed, self.turns = seed, 0
        return f"task {seed}", {}

    def step(self, action):
        self.turns += 1
        if action == "sleep":
            time.sleep(60)
        if action == "die":
            os._exit(3)
        if action == "raise":
            raise RuntimeError("the game is over")
        if action == "odd":
            raise OddError("strange")
        if action == "unsendable":
            return "", 0.0, False, False, {"success": False, "why": lambda: None}
        return f"turn {self.turns}", 1.0, False, False, {"success": False}

    def rooms(self, count):
        return ["room"] * count


@pytest.fixture(scope="module")
def weather():
    env = ProcessEnvironment(Weather, timeout_s=2.0)
    yield env
    env.close()


def test_a_worker_answers_like_the_environment():
    make_env = functools.partial(Minesweeper, size=4, wording="compact")
    here, there = make_env(), ProcessEnvironment(make_env, timeout_s=30)
    assert there.wording == here.wording and there.describe() == here.describe()
    assert there.reset(seed=3) == here.reset(seed=3)
    assert there.min_turns() == here.min_turns()
    player, rng = there.player(), random.Random(0)
    text = player.act(here.restart()[0], rng)
    assert there.parse_action(text) == here.parse_action(text)
    assert there.step(here.parse_action(text)) == here.step(here.parse_action(text))
    assert there.restart() == here.restart()
    assert there.parse_action("nonsense") is None
    there.close()
    there.close()


def test_a_worker_keeps_the_contract():
    assert check_environment(functools.partial(ProcessEnvironment, Weather, 30), seeds=(0,), max_turns=2).turns == 2


def test_a_slow_worker_is_killed_and_the_next_task_gets_a_new_one(weather):
    assert weather.reset(seed=1) == ("task 1", {})
    started = time.monotonic()
    with pytest.raises(EnvironmentTimeout, match="within 2 s"):
        weather.step("sleep")
    assert time.monotonic() - started < 10
    with pytest.raises(EnvironmentCrash, match="Call `reset`"):
        weather.step("look")
    assert weather.restart() == ("task 1", {})
    assert weather.step("look")[0] == "turn 1"


def test_a_dying_worker_is_reported_and_replaced(weather):
    weather.reset(seed=2)
    with pytest.raises(EnvironmentCrash, match="exit code 3"):
        weather.step("die")
    assert weather.reset(seed=4) == ("task 4", {})
    weather._process.kill()
    weather._process.join()
    with pytest.raises(EnvironmentCrash, match="died"):
        weather.step("look")
    assert weather.reset(seed=5) == ("task 5", {})


def test_exceptions_keep_their_type_and_the_worker_lives(weather):
    weather.reset(seed=1)
    with pytest.raises(RuntimeError, match="the game is over") as caught:
        weather.step("raise")
    assert "in step" in caught.value.__notes__[0]
    with pytest.raises(EnvironmentCrash, match="OddError: strange"):
        weather.step("odd")
    with pytest.raises(RuntimeError, match="cannot be sent to another process"):
        weather.step("unsendable")
    assert weather.step("look")[0] == "turn 4"


def test_further_methods_are_forwarded(weather):
    assert weather.rooms(2) == ["room", "room"]
    with pytest.raises(AttributeError, match="no attribute `cellars`"):
        weather.cellars  # noqa: B018


def test_it_works_from_another_thread(weather):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(weather.reset(seed=8)))
    thread.start()
    thread.join()
    assert answers == [("task 8", {})]


def test_builders_that_fail_say_so():
    with pytest.raises(ValueError, match="no rooms"):
        ProcessEnvironment(functools.partial(Weather, broken=True))
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        ProcessEnvironment(lambda: Weather())
