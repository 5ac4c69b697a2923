"""Building environments: what is only looked at is closed, whatever it does."""

import time
from functools import partial

import pytest
from worker_worlds import Weather

from metarl_agents.config import TrialConfig
from metarl_agents.envs import Environment
from metarl_agents.envs.factory import close_quietly, environment_factory, environment_workers, opened
from metarl_agents.envs.guard import EnvironmentTimeout

LOG = []


class Open(Environment):
    """Notes when it is built and closed."""

    def __init__(self, farewell=None):
        LOG.append("built")
        self.farewell = farewell

    def close(self):
        LOG.append("closed")
        if self.farewell is not None:
            raise self.farewell


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


def test_the_environment_that_checks_the_keywords_is_closed():
    build = environment_factory(TrialConfig(env=f"{__name__}:Open"))
    assert LOG == ["built", "closed"]
    assert isinstance(build(), Open)


@pytest.mark.parametrize("farewell", [None, OSError("stuck"), SystemExit(3)])
def test_what_was_opened_is_closed_and_a_failing_close_is_no_failure(farewell):
    with opened(lambda: Open(farewell), 5.0):
        assert LOG == ["built"]
    assert LOG == ["built", "closed"]
    with pytest.raises(ZeroDivisionError), opened(lambda: Open(farewell)):
        raise ZeroDivisionError
    assert LOG == ["built", "closed"] * 2


def test_a_close_that_hangs_and_one_that_is_missing_are_passed_over():
    class Stuck(Open):
        def close(self):
            time.sleep(30)

    started = time.monotonic()
    close_quietly(Stuck(), 0.1)
    close_quietly(object(), None)
    assert time.monotonic() - started < 10


def test_an_environment_that_is_not_built_in_time_says_so():
    with pytest.raises(EnvironmentTimeout), opened(lambda: time.sleep(30), 0.1):
        raise AssertionError("it was never built")


def test_an_environment_in_a_worker_is_closed_there(tmp_path):
    said = tmp_path / "said"
    with environment_workers(partial(Weather, farewell=str(said)), TrialConfig(env_workers=1)) as build:
        with opened(build, 30.0) as env:
            assert env.tiny_model == "weather" and not said.exists()
        with opened(build, 30.0) as another:
            another.reset(seed=0)  # is answered after the first one's end
            assert said.exists()
