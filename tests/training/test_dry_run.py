"""Laws of the dry run: what a run would ask and with which settings, without doing it."""

import pytest

from metarl_agents.config import Config
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs import Environment
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.training.dry_run import describe_run
from metarl_agents.training.warm_start import untaught_tiny_policy

SECOND = "First prompt of the second episode"


class AlwaysWins(TwoDoors):
    """A task that every readable answer solves."""

    def step(self, action):
        return super().step(self._prize)


class NoPlayer(AlwaysWins):
    """The same, without anybody who could show it."""

    def player(self):
        return None


class Broken(Environment):
    """Fails at once."""

    def reset(self, *, seed):
        raise ValueError("a bug")


def described(make_env, **settings):
    return describe_run(Config.from_flat({"max_turns": 2, "max_new_tokens_per_turn": 8, **settings}), make_env)


def test_it_shows_the_three_kinds_of_prompts_as_the_model_reads_them():
    text = described(TwoDoors)
    pages = [text.index(title) for title in ("First prompt (", "Reflection prompt (", SECOND)]
    assert pages == sorted(pages)
    assert "<|user|>A prize is behind door A or door B." in text and "<|assistant|>" in text
    assert "door A was empty" in text or "door B was empty" in text


def test_a_page_is_shown_with_its_own_number_of_tokens():
    text = described(TwoDoors)
    policy = untaught_tiny_policy(TwoDoors, Config.from_flat({"max_turns": 2}))
    page = text.split("First prompt (")[1].split("-\n", 1)[1].split("\n\n---")[0]
    count = len(policy.tokenizer.encode(page, add_special_tokens=False))
    assert f"First prompt ({count} tokens)" in text


def test_it_states_settings_sampling_model_and_that_nothing_was_trained():
    text = described(TwoDoors, seed=3)
    assert "gamma_traj: 0.6" in text and "seed: 3" in text
    assert "temperature 1, top_p 1, top_k 0" in text and "temperature 0.7, top_p 0.8, top_k 20" in text
    assert "2048 tokens" in text and "Parameters:" in text
    assert text.endswith("Nothing was trained and nothing was written.\n")


@pytest.mark.parametrize("make_env", [AlwaysWins, NoPlayer])
def test_a_task_that_is_solved_at_once_still_shows_a_retry(make_env):
    assert SECOND in described(make_env)


def test_a_model_plays_where_nobody_else_can(tmp_path):
    tokenizer = build_tokenizer()
    Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer).save(tmp_path)
    assert SECOND in described(NoPlayer, model_name_or_path=str(tmp_path))


def test_one_episode_has_neither_reflection_nor_retry():
    text = described(TwoDoors, num_episodes=1)
    assert "`num_episodes` is 1" in text and "Reflection prompt (" not in text and SECOND not in text


@pytest.mark.parametrize("memory", ["none", "trajectory"])
def test_a_memory_without_remarks_has_no_reflection_prompt(memory):
    text = described(TwoDoors, memory=memory)
    assert f"No reflection prompt: `memory` is {memory}." in text and SECOND in text


def test_a_prompt_beyond_the_limit_is_marked():
    assert "more than max_prompt_tokens 20" in described(TwoDoors, max_prompt_tokens=20)


def test_a_failing_environment_is_named():
    assert "The environment failed: ValueError: a bug" in described(Broken)


def test_two_dry_runs_say_the_same():
    assert described(TwoDoors) == described(TwoDoors)
