"""Trials whose environments live in worker processes: the same trials, sooner, and a dying worker costs its own."""

import time
from functools import partial

import pytest
from rollout_worlds import House, Stairs

from metarl_agents.config import TrialConfig
from metarl_agents.envs.workers import WorkerPool
from metarl_agents.errors import ConfigError
from metarl_agents.rollout import collect_trials
from metarl_agents.types import Outcome

WORDS = [
    "up", "win", "lose", "draw", "cut", "coin", "refused", "menu", "bad menu", "raise", "junk", "number", "exit",
    "nan", "inf", "none", "PARSE", "sleep",
]  # fmt: skip


def act(word):
    return f"<action>{word}</action>"


def climb(page):
    return "<remark>higher</remark>" if "REFLECT" in page else act("up")


def collect(speaker, make_env, *, seeds, group_size=1, limit=10_000, **settings):
    config = TrialConfig(**{"max_turns": 3, "num_episodes": 2, "env_timeout_s": 30.0, **settings})
    return collect_trials(speaker, make_env, seeds, config, group_size=group_size, max_prompt_tokens=limit)


@pytest.mark.parametrize(("memory", "words", "breaks"), [("reflection", WORDS, ()), ("both", WORDS[:-1], ("restart",))])
def test_workers_change_nothing_in_trials_prompts_and_rewards(scripted_speaker, memory, words, breaks):
    def answer(page):
        if "REFLECT" in page:
            return "<remark>once more</remark>"
        house = int(page.rsplit("house ", 1)[-1].split()[0])
        turn = page.count(">")
        return "hm" if house == 97 else act(words[(house + turn * 5) % len(words)])

    def play(workers):
        speaker = scripted_speaker(answer)
        trials = collect(
            speaker, partial(Stairs, breaks=breaks), seeds=[*range(len(words)), 97], memory=memory, limit=80,
            group_size=1, stop_on_success=False, env_workers=workers, env_timeout_s=1.0,
        )  # fmt: skip
        return trials, speaker.waves

    (here, pages_here), (there, pages_there) = play(0), play(2)
    assert here == there and pages_here == pages_there
    reasons = {trial.error.split(":")[0] for trial in here if trial.error}
    assert {"ZeroDivisionError", "TypeError", "SystemExit", "KeyError"} <= reasons
    assert ("RuntimeError" if breaks else "EnvironmentTimeout") in reasons
    assert {episode.outcome for trial in here for episode in trial.episodes} == set(Outcome)


@pytest.mark.slow
def test_slow_environments_overlap_in_steps_and_resets(scripted_speaker):
    make_env = partial(House, 0.02)

    def play(build):
        started = time.monotonic()
        speaker = scripted_speaker(climb)
        trials = collect(speaker, build, seeds=range(4), group_size=4, memory="none")
        return trials, time.monotonic() - started

    alone, seconds_alone = play(make_env)
    with WorkerPool(make_env, 4, 30.0) as pool:
        together, seconds_together = play(pool)
    assert alone == together and all(len(list(trial.rows())) == 6 for trial in alone)
    # 16 trials of 6 steps and 2 resets sleep for 2.56 s one after the other, and for 0.64 s in four workers.
    assert seconds_alone > 2.5 and seconds_together < 0.6 * seconds_alone


def test_a_worker_that_dies_costs_its_trials_and_the_others_are_played_to_their_ends(scripted_speaker):
    with WorkerPool(partial(House, fatal=(3,)), 2, 30.0) as pool:
        # Trials are dealt to the workers in turn, so those of tasks 1 and 3 share one.
        trials = collect(scripted_speaker(climb), pool, seeds=[1, 2, 3, 4])
        assert [trial.crashed for trial in trials] == [True, False, True, False]
        assert "died (exit code 5)" in trials[2].error and "lived in has ended" in trials[0].error
        for trial in (trials[1], trials[3]):
            assert [episode.outcome for episode in trial.episodes] == [Outcome.OUT_OF_TURNS] * 2
        assert not any(trial.crashed for trial in collect(scripted_speaker(climb), pool, seeds=[1, 2, 4]))
        assert len(pool.process_ids) == 2


def test_what_cannot_be_sent_to_a_worker_is_refused_before_anything_is_played(scripted_speaker):
    speaker = scripted_speaker([])
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        collect(speaker, lambda: Stairs(), seeds=[1], env_workers=1)
    assert speaker.encoded == []
