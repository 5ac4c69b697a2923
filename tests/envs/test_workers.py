"""Environments in other processes: the same answers, side by side, and what dies there costs nothing else."""

import functools
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import worker_worlds
from worker_worlds import Weather

from metarl_agents import register
from metarl_agents.config import TrialConfig
from metarl_agents.environments.minesweeper import Minesweeper
from metarl_agents.envs import Environment, check_environment, make
from metarl_agents.envs.factory import address_of, environment_factory, environment_workers
from metarl_agents.envs.guard import EnvironmentCrash, EnvironmentTimeout
from metarl_agents.envs.workers import ProcessEnvironment, WorkerPool
from metarl_agents.errors import ConfigError

LIMIT_S = 1.0
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def pool():
    """Two workers. Tests may kill them: they are replaced."""
    with WorkerPool(Weather, 2, LIMIT_S) as pool:
        yield pool


@pytest.fixture(scope="module")
def weather(pool):
    env = pool()
    yield env
    env.close()


def opened(pool, count):
    """Return that many environments, each at the start of a task."""
    envs = [pool() for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    return envs


def close(envs):
    for env in envs:
        env.close()


def is_gone(pid, within_s=20.0):
    """Whether a process ends in time; one that nobody has reaped yet counts as ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        stat = Path(f"/proc/{pid}/stat")
        try:
            os.kill(pid, 0)
            if stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


# ---- the same answers ----------------------------------------------------------------------------------------


def test_an_environment_elsewhere_answers_like_one_here():
    make_env = functools.partial(Minesweeper, size=4, wording="compact")
    with WorkerPool(make_env, 1) as pool:
        here, there = make_env(), pool()
        assert there.wording == here.wording and there.describe() == here.describe()
        assert there.tiny_model == here.tiny_model
        assert there.reset(seed=3) == here.reset(seed=3)
        assert there.min_turns() == here.min_turns()
        player, rng = there.player(), random.Random(0)
        text = player.act(here.restart()[0], rng)
        assert there.parse_action(text) == here.parse_action(text)
        assert there.step(here.parse_action(text)) == here.step(here.parse_action(text))
        assert there.restart() == here.restart()
        assert there.parse_action("nonsense") is None
        assert check_environment(pool, seeds=(0, 1), max_turns=3).environment == "ProcessEnvironment"
        assert address_of(pool) == "metarl_agents.environments.minesweeper.env:Minesweeper"


def test_everything_an_environment_has_is_asked_of_the_one_elsewhere():
    public = {name for name in vars(Environment) if not name.startswith("_")}
    assert public - {"seed"} <= set(vars(ProcessEnvironment))


def test_further_methods_and_attributes_are_forwarded(weather):
    assert weather.rooms(2) == ["room", "room"] and weather.altitude == 70 and weather.tiny_model == "weather"
    assert getattr(weather, "min_turns", None) is None
    with pytest.raises(AttributeError, match="no attribute 'cellars'"):
        weather.cellars  # noqa: B018


@pytest.mark.parametrize("word", ["raise", "key", "stop", "odd", "leave"])
def test_exceptions_are_called_and_read_as_here_and_the_environment_goes_on(weather, word):
    weather.reset(seed=1)
    here = Weather()
    here.reset(seed=1)
    with pytest.raises((Exception, SystemExit)) as expected:
        here.step(word)
    with pytest.raises(Exception) as caught:  # noqa: B017
        weather.step(word)
    told, known = caught.value, expected.value
    assert (type(told).__name__, str(told)) == (type(known).__name__, str(known))
    assert isinstance(told, type(known) if word in ("raise", "key", "stop") else EnvironmentCrash)
    assert "in step" in told.__notes__[0]
    assert weather.step("look")[0] == "turn 2"


@pytest.mark.parametrize(("word", "text"), [("unsendable", "cannot be sent"), ("unreadable", "cannot be read here")])
def test_what_cannot_travel_is_the_environments_failure(weather, word, text):
    weather.reset(seed=1)
    with pytest.raises(RuntimeError, match=text):
        weather.step(word)
    assert weather.step("look")[0] == "turn 2"
    with pytest.raises(RuntimeError, match="`step` was called with something that cannot be sent"):
        weather.step(lambda: None)


def test_what_an_environment_prints_is_not_taken_for_an_answer(weather):
    weather.reset(seed=1)
    assert [weather.step(word)[0] for word in ("say", "say", "look")] == ["turn 1", "turn 2", "turn 3"]


def test_long_texts_pass_both_ways_at_once(pool):
    envs = opened(pool, 4)
    long = "long " + "x" * 2**20
    answers = [env.post("step", long) for env in envs for _ in range(3)]
    assert [len(answer()[0]) for answer in answers] == [2**20 + 6] * 12
    close(envs)


# ---- side by side --------------------------------------------------------------------------------------------


def test_environments_are_spread_over_few_long_lived_processes(pool):
    envs = opened(pool, 6)
    homes = [env.process() for env in envs]
    assert sorted(map(homes.count, set(homes))) == [3, 3] and os.getpid() not in homes
    close(envs)
    later = opened(pool, 2)
    assert {env.process() for env in later} == set(homes)
    close(later)


def test_what_is_posted_first_and_awaited_later_overlaps(pool):
    envs = opened(pool, 8)
    started = time.monotonic()
    answers = [env.post("step", "nap") for env in envs]
    assert [answer()[0] for answer in answers] == ["turn 1"] * 8
    assert time.monotonic() - started < 0.7  # one after the other they would sleep for 0.8 s, in two workers for 0.4 s
    close(envs)


def test_answers_may_be_awaited_in_any_order(pool):
    envs = opened(pool, 4)
    answers = [env.post("reset", seed=10 + number) for number, env in enumerate(envs)]
    assert [answer()[0] for answer in reversed(answers)] == ["task 13", "task 12", "task 11", "task 10"]
    close(envs)


def test_another_thread_may_use_it(weather):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(weather.reset(seed=8)))
    thread.start()
    thread.join()
    assert answers == [("task 8", {})]


# ---- what dies -----------------------------------------------------------------------------------------------


def test_a_slow_environment_is_interrupted_and_its_neighbours_live(pool):
    envs = opened(pool, 4)
    slow, neighbour = envs[0], envs[2]
    home = slow.process()
    assert neighbour.process() == home
    with pytest.raises(EnvironmentTimeout, match="did not answer within 1 s"):
        slow.step("sleep")
    with pytest.raises(EnvironmentCrash, match="Call `reset`"):
        slow.step("look")
    assert neighbour.step("look")[0] == "turn 1" and neighbour.process() == home
    assert slow.restart() == ("task 0", {}) and slow.step("look")[0] == "turn 1"
    close(envs)


@pytest.mark.parametrize(
    ("word", "kind", "text"),
    [
        ("die", EnvironmentCrash, r"died \(exit code 3\)"),
        ("fault", EnvironmentCrash, r"died \(exit code -11\)"),
        ("spin", EnvironmentTimeout, "did not answer within 1 s"),
    ],
)
def test_a_worker_that_dies_or_hangs_costs_those_who_lived_in_it_and_is_replaced(pool, word, kind, text):
    envs = opened(pool, 4)
    home = envs[0].process()
    answers = [env.post("step", word if number == 0 else "look") for number, env in enumerate(envs)]
    with pytest.raises(kind, match=text):
        answers[0]()
    with pytest.raises(EnvironmentCrash, match=rf"lived in has ended: .*{text}"):
        answers[2]()
    assert [answers[number]()[0] for number in (1, 3)] == ["turn 1", "turn 1"]
    assert is_gone(home)
    assert [env.restart()[0] for env in envs] == [f"task {seed}" for seed in range(4)]
    assert len(pool.process_ids) == 2 and home not in pool.process_ids
    close(envs)


def test_a_worker_that_is_killed_while_idle_is_noticed(pool):
    envs = opened(pool, 2)
    homes = [env.process() for env in envs]
    for home in homes:
        os.kill(home, signal.SIGKILL)
    with pytest.raises(EnvironmentCrash, match=r"died \(exit code -9\)"):
        envs[0].step("look")
    assert envs[0].reset(seed=4) == ("task 4", {})
    new = pool()  # is given the other, dead worker's place
    assert new.reset(seed=5) == ("task 5", {})
    assert envs[1].reset(seed=6) == ("task 6", {})
    assert not set(homes) & set(pool.process_ids)
    close([*envs, new])


# ---- beginning and end ---------------------------------------------------------------------------------------


def test_environments_are_closed_and_no_process_remains(tmp_path):
    farewell = tmp_path / "farewell"
    with WorkerPool(functools.partial(Weather, farewell=str(farewell)), 2) as pool:
        envs = opened(pool, 4)
        engine = envs[1].start_engine()
        envs[0].close()
        envs[2].describe()  # the same worker closed the first one before it answered this
        assert farewell.read_text() == "0\n"
        pids = pool.process_ids
        assert len(pids) == 2 and not is_gone(engine, 0.1)
    assert sorted(farewell.read_text().split()) == ["0", "1", "2", "3"]
    assert pool.process_ids == [] and all(is_gone(pid, 0.1) for pid in pids) and is_gone(engine)
    pool.close()
    with pytest.raises(EnvironmentCrash, match="have been closed"):
        envs[1].step("look")
    with pytest.raises(EnvironmentCrash, match="have been closed"):
        pool()


def test_a_worker_answers_everything_that_an_environment_may_be_asked():
    asked = {name for name in vars(Environment) if not name.startswith("_") and name != "seed"}
    assert asked <= vars(ProcessEnvironment).keys()
    env = ProcessEnvironment(functools.partial(make, "kuhn"))
    assert env.players() == ("first", "second")
    env.close()


def test_one_of_its_own_has_its_own_worker():
    env = ProcessEnvironment(Weather, timeout_s=30)
    home = env.process()
    assert env.reset(seed=1) == ("task 1", {})
    env.close()
    env.close()
    assert is_gone(home, 0.1)
    other = ProcessEnvironment(Weather)
    home = other.process()
    del other
    assert is_gone(home, 0.1)


def test_builders_that_fail_say_so(monkeypatch):
    with pytest.raises(ValueError, match="no rooms"):
        ProcessEnvironment(functools.partial(Weather, broken=True))
    with pytest.raises(ConfigError, match=r"`make_env` is .* cannot be sent to another process"):
        WorkerPool(lambda: Weather(), 1)
    # A function that only this process knows.
    found_here = functools.update_wrapper(lambda: Weather(), worker_worlds.not_here)
    found_here.__name__ = found_here.__qualname__ = "found_here"
    monkeypatch.setattr(worker_worlds, "found_here", found_here, raising=False)
    with pytest.raises(ConfigError, match="cannot load what builds environments .*found_here"):
        WorkerPool(found_here, 1)


def test_no_workers_are_opened_where_none_are_asked_for():
    with environment_workers(Weather, TrialConfig()) as make_env:
        assert make_env is Weather


def test_settings_open_workers_which_know_names_that_were_registered_as_the_program_ran():
    register("weather_of_workers", "worker_worlds:Weather")
    config = TrialConfig(env="weather_of_workers", env_workers=1, env_kwargs={"farewell": None})
    with environment_workers(environment_factory(config), config) as pool:
        with environment_workers(pool, config) as same:
            assert same is pool and pool.timeout_s == config.env_timeout_s
        assert pool().reset(seed=1) == make("weather_of_workers").reset(seed=1)
        assert address_of(pool) == "worker_worlds:Weather"


def test_a_number_of_workers_below_zero_is_refused():
    with pytest.raises(ConfigError, match="`env_workers` is -1, but must be at least 0"):
        TrialConfig(env_workers=-1)


def program(tmp_path, body, *, guarded=True):
    """Start a program that opens a pool of two workers and prints their process ids."""
    lines = f"""
        import os, signal, sys, time
        sys.path.insert(0, {str(HERE)!r})
        from worker_worlds import Weather
        from metarl_agents.envs.workers import WorkerPool

        def run():
            pool = WorkerPool(Weather, 2, None)
            envs = [pool() for _ in range(2)]
            for env in envs:
                env.reset(seed=1)
            print(*pool.process_ids, flush=True)
    """
    text = textwrap.dedent(lines) + textwrap.indent(textwrap.dedent(body), "    ")
    text += '\nif __name__ == "__main__":\n    run()\n' if guarded else "\nrun()\n"
    file = tmp_path / "program.py"
    file.write_text(text)
    return subprocess.Popen(
        [sys.executable, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_workers_end_with_a_parent_that_is_killed_even_inside_code_that_never_returns(tmp_path):
    with program(
        tmp_path, 'envs[0].post("step", "spin")\nprint(envs[1].start_engine(), flush=True)\ntime.sleep(60)'
    ) as parent:
        workers, engine = parent.stdout.readline().split(), parent.stdout.readline()
        time.sleep(0.2)
        parent.kill()
    assert len(workers) == 2
    assert all(is_gone(int(pid)) for pid in [*workers, engine])


def test_workers_do_not_hear_ctrl_c_and_end_with_a_parent_that_exits_without_closing_them(tmp_path):
    body = """
        heard = []
        signal.signal(signal.SIGINT, lambda *_: heard.append(1))
        print("ready", flush=True)
        while not heard:
            time.sleep(0.01)
        time.sleep(0.2)
        print(envs[0].step("look")[0], envs[1].step("look")[0], flush=True)
    """
    with program(tmp_path, body) as parent:
        workers = parent.stdout.readline().split()
        assert parent.stdout.readline() == "ready\n"
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout.readline() == "turn 1 turn 1\n"
        assert parent.wait(timeout=30) == 0 and parent.stderr.read() == ""
    assert len(workers) == 2 and all(is_gone(int(pid), 0.1) for pid in workers)


@pytest.mark.slow
def test_a_program_that_trains_when_it_is_imported_is_told_to_guard_its_main_part(tmp_path):
    with program(tmp_path, "", guarded=False) as parent:
        out, err = parent.communicate(timeout=60)
    assert parent.returncode != 0 and out == ""
    assert 'needs `if __name__ == "__main__":`' in err.splitlines()[-1]
