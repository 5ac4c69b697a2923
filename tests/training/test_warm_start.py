"""Demonstrations go through the pages and parsers of training, and a model learns from them."""

import pytest
import torch
from training_helpers import TOKENIZER, Coin, same_weights, small_config, small_policy, weights_of

from metarl_agents.config import TrialConfig
from metarl_agents.environments.minesweeper import Minesweeper
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs.parsing import last_tag
from metarl_agents.errors import ConfigError
from metarl_agents.training import warm_start as module
from metarl_agents.training.demonstrations import demonstrate
from metarl_agents.training.warm_start import WarmStartConfig, tiny_policy_on_the_fly, warm_start
from metarl_agents.types import StepResult


class Words(Coin):
    """No player, but a list of what may be said."""

    def reset(self, *, seed):
        self.seed = seed
        return "Choose one.", {"admissible_actions": ["left", "right"]}

    def parse_action(self, text):
        word = last_tag(text, "action")
        return word if word in ("left", "right") else None

    def step(self, action):
        won = action == "left"
        return StepResult("so", float(won), True, False, {"success": won, "admissible_actions": ["left", "right"]})


class Mute(Coin):
    """Neither a player nor a list of actions."""


class Failing(Words):
    def step(self, action):
        raise ZeroDivisionError("rules")


def rows_of(make_env, tasks=range(12), seed=0, **settings):
    policy = small_policy()
    trial = TrialConfig(**({"max_turns": 4, "num_episodes": 3} | settings))
    return policy, list(demonstrate(make_env, tasks, trial, policy.encode, policy.answer_ids, seed))


@pytest.mark.parametrize("make_env", [TwoDoors, lambda: Minesweeper(size=4, mines=4, wording="compact"), Words])
def test_each_scripted_answer_parses_where_it_was_asked(make_env):
    policy, rows = rows_of(make_env, tasks=range(30))
    kinds = {"play": 0, "reflect": 0}
    request = make_env().wording.reflect_request
    for prompt, response in rows:
        page, text = policy.decode(prompt), policy.decode(response)
        if page.endswith(request):
            kinds["reflect"] += 1
            assert last_tag(text, "remark")
        else:
            kinds["play"] += 1
            env = make_env()
            env.reset(seed=0)
            assert env.parse_action(text) is not None, text
        assert response[-1] == TOKENIZER.eos_token_id
    assert min(kinds.values()) > 3


def test_pages_are_those_of_training_in_all_memory_modes():
    policy, rows = rows_of(TwoDoors, tasks=range(60))
    pages = {policy.decode(prompt) for prompt, _ in rows}
    assert all("A prize is behind door A or door B." in page for page in pages)
    assert any("Attempt 1 failed: door" in page for page in pages)  # a remark
    assert any("Observation: Door" in page for page in pages)  # a trajectory
    assert any(page.count("Attempt") == 2 for page in pages)  # two episodes back


def test_an_environment_without_a_player_is_shown_its_admissible_actions():
    policy, rows = rows_of(Words)
    said = {last_tag(policy.decode(response), "action") for _, response in rows}
    assert {"left", "right"} <= said <= {"left", "right", None}


def test_neither_player_nor_actions_is_one_sentence():
    with pytest.raises(ConfigError, match=r"^Mute has neither a player\(\) nor info\['admissible_actions'\][^\n]*$"):
        rows_of(Mute)


def test_an_environment_that_fails_in_scripted_play_is_named():
    with pytest.raises(ConfigError, match="scripted play of task 0: ZeroDivisionError: rules"):
        rows_of(Failing)


def test_demonstrations_are_decided_by_their_seed():
    assert rows_of(TwoDoors, seed=1)[1] == rows_of(TwoDoors, seed=1)[1] != rows_of(TwoDoors, seed=2)[1]


def test_a_warm_start_lowers_the_loss_and_is_deterministic():
    _, rows = rows_of(TwoDoors)
    settings = WarmStartConfig(steps=25, batch_size=8, learning_rate=5e-3, warmup_steps=2)
    ends, losses = [], []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        policy, log = small_policy(), []
        last = warm_start(policy, rows, settings, lambda step, loss, seconds, log=log: log.append((step, loss)))
        assert last == log[-1][1] and [step for step, _ in log] == list(range(25))
        assert not policy.model.training
        ends.append(weights_of(policy.model))
        losses.append(log)
    assert losses[0][-1][1] < 0.6 * losses[0][0][1]
    assert losses[0] == losses[1] and same_weights(*ends)


def test_only_response_tokens_are_learned():
    policy = small_policy()
    prompt, other = policy.encode([{"role": "user", "content": "left"}]), policy.answer_ids("yes")
    settings = WarmStartConfig(steps=1, batch_size=2, learning_rate=0.0)
    alone = warm_start(policy, [(prompt, other)], settings)
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *other]])).logits.log_softmax(dim=-1)
    place = len(prompt) - 1
    expected = -sum(logits[0, place + i, token].item() for i, token in enumerate(other)) / len(other)
    assert alone == pytest.approx(expected, rel=1e-4)


def test_a_tiny_model_on_the_fly_is_small_and_decided_by_the_run_s_seed(monkeypatch):
    monkeypatch.setattr(module, "ON_THE_FLY", WarmStartConfig(steps=2, batch_size=4))
    monkeypatch.setattr(module, "ON_THE_FLY_TRIALS", 4)
    one, again, other = (
        weights_of(tiny_policy_on_the_fly(TwoDoors, small_config(seed=seed)).model) for seed in (0, 0, 1)
    )
    assert same_weights(one, again) and not same_weights(one, other)
    assert sum(value.numel() for value in one.values()) < 400_000


def test_prompts_beyond_the_tiny_model_s_context_are_refused(monkeypatch):
    class Long(Words):
        def describe(self):
            return "é" * 3000

    monkeypatch.setattr(module, "ON_THE_FLY_TRIALS", 2)
    with pytest.raises(ConfigError, match="every prompt of this environment is longer"):
        tiny_policy_on_the_fly(Long, small_config())
