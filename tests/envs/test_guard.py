"""Time limits by alarm, in the main thread."""

import signal
import threading
import time

import pytest

from metarl_agents.envs.guard import EnvironmentTimeout, call_with_timeout, can_interrupt


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
