"""Demonstrations go through the pages and parsers of training, and a model learns from them."""

import hashlib
import importlib.util
import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from training_helpers import TOKENIZER, Coin, same_weights, small_config, small_policy, weights_of

from metarl_agents.agent import Agent, run_trial
from metarl_agents.config import TrialConfig
from metarl_agents.environments.minesweeper import Minesweeper
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs.parsing import last_tag
from metarl_agents.envs.wording import Wording
from metarl_agents.errors import ConfigError
from metarl_agents.policy.loading import load_tokenizer
from metarl_agents.policy.sampling import Sampling
from metarl_agents.training import warm_start as module
from metarl_agents.training.demonstrations import MEMORY_MIX, demonstrate, scripted_player
from metarl_agents.training.warm_start import (
    WarmStartConfig,
    WarmStartPreset,
    preset_rows,
    preset_tokenizer,
    tiny_policy_on_the_fly,
    warm_start,
)
from metarl_agents.types import StepResult

RECIPE = Path(__file__).parents[2] / "recipes" / "warm_start.py"
PRESET_FILES = sorted((RECIPE.parent / "configs").glob("*/warm_start*.yaml"))
TWO_DOORS = {"env": "two_doors", "max_turns": 1, "num_episodes": 2, "trials": 230}


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


# Presets of the models that ship.


def load_recipe():
    spec = importlib.util.spec_from_file_location("warm_start_recipe", RECIPE)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return recipe


def run_recipe(monkeypatch, *flags):
    monkeypatch.setattr(sys, "argv", ["warm_start.py", *map(str, flags)])
    assert load_recipe().main() == 0


def two_doors(**settings):
    return WarmStartPreset.from_mapping(TWO_DOORS | settings)


@pytest.mark.parametrize("path", PRESET_FILES, ids=lambda path: f"{path.parent.name}_{path.stem}")
def test_each_shipped_preset_is_sound_and_named_after_its_file(path):
    preset = WarmStartPreset.from_mapping(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert load_recipe().PRESETS["_".join([path.parent.name, *path.stem.split("_")[2:]])] == path
    if path.parent.name == "webshop":
        pytest.importorskip("bm25s")
    for kind in range(len(preset.tasks)):
        make_env, _ = preset.worlds(kind)
        scripted_player(make_env(), preset.player)
    model = module.build_model(TOKENIZER, **preset.model)
    assert sum(value.numel() for value in model.parameters()) < 1_200_000


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("minesweeper_4x4", "2acfdb508777ec50e0b3580627ec8eeefad2e0baf7dad361215d2e97894ce06d"),
        ("minesweeper_6x6", "02c932af95f36df45469de9c41d59d2afc798c7512d625361d096913af3f9c3a"),
    ],
)
def test_the_shipped_minesweeper_models_were_made_of_these_very_rows(name, digest):
    preset = WarmStartPreset.from_mapping(yaml.safe_load(load_recipe().PRESETS[name].read_text(encoding="utf-8")))
    rows = list(preset_rows(replace(preset, trials=60), preset_tokenizer(preset, 0), 0))
    assert hashlib.sha256(repr(rows).encode()).hexdigest() == digest


def test_rows_of_a_preset_are_those_of_its_tasks_one_after_the_other():
    preset = two_doors(tasks=[{}, {}], trials=9)
    rows = list(preset_rows(preset, TOKENIZER, 3))
    policy, expected = small_policy(), []
    for kind in range(2):
        make_env, trial = preset.worlds(kind)
        seeds = preset.seeds(kind, 3)
        assert len(seeds) == 4 and (trial.num_episodes, trial.max_turns, trial.wording) == (2, 1, "compact")
        expected += demonstrate(make_env, seeds, trial, policy.encode, policy.answer_ids, 3)
    assert rows == expected and preset.seeds(0, 3) != preset.seeds(1, 3) != preset.seeds(1, 4)


@pytest.mark.slow
def test_processes_share_the_play_and_change_nothing():
    preset = two_doors(tasks=[{}, {}])  # 115 trials each: a whole part of the play and a piece
    rows = list(preset_rows(preset, TOKENIZER, 0))
    assert list(preset_rows(preset, TOKENIZER, 0, workers=2)) == rows and len(rows) > 300


def test_a_preset_decides_memory_modes_and_what_the_player_is_like():
    always = list(preset_rows(two_doors(memory_mix=["trajectory"], trials=60), TOKENIZER, 0))
    pages = [TOKENIZER.decode(prompt) for prompt, _ in always]
    assert not any("What to remember?" in page for page in pages)
    assert sum("Attempt 1" in page for page in pages) > 10
    make_env, trial = WarmStartPreset(env="minesweeper", tasks=({"size": 4, "mines": 4},)).worlds(0)
    policy = small_policy()
    plays = [
        list(demonstrate(make_env, range(6), trial, policy.encode, policy.answer_ids, 0, player=player))
        for player in (None, {"safe": 0.95}, {"safe": 0.0})
    ]
    assert plays[0] == plays[1] != plays[2]
    assert WarmStartPreset(env="minesweeper").memory_mix == MEMORY_MIX


def test_the_words_of_an_environment_become_words_of_its_tokenizer():
    plain = preset_tokenizer(two_doors(), 0)
    rich = preset_tokenizer(two_doors(vocabulary_trials=20), 0)
    assert plain.get_vocab() == TOKENIZER.get_vocab()
    assert set(plain.get_vocab()) < set(rich.get_vocab())
    page = TwoDoors().describe()
    assert len(rich.encode(page)) < 0.7 * len(plain.encode(page)) and rich.decode(rich.encode(page)) == page


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"env": "two_doors", "trails": 3}, "has no `trails`; did you mean `trials`?"),
        ({"env": "two_doors", "zzz": 3}, "has no `zzz`; it may hold env, tasks,"),
        ({"trials": 3}, "names no `env`"),
        ({"env": "two_doors", "stages": [100, 1e-3]}, "lists [steps, learning rate] pairs"),
        ({"env": "two_doors", "memory_mix": ["remark"]}, "reflection, trajectory, both, none"),
        ({"env": "two_doors", "tasks": []}, "at least one of `tasks`"),
    ],
)
def test_mistakes_in_a_preset_are_one_sentence(values, message):
    with pytest.raises(ConfigError) as error:
        WarmStartPreset.from_mapping(values)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_setting_that_the_player_lacks_is_named():
    with pytest.raises(ConfigError, match="MinesweeperPlayer has no setting `head`; did you mean `heed`?"):
        scripted_player(Minesweeper(), {"head": 1.0})
    with pytest.raises(ConfigError, match="has no setting `_avoid`; it has"):
        scripted_player(Minesweeper(), {"_avoid": ()})


def test_rows_may_be_saved_and_fitted_elsewhere_with_the_same_result(tmp_path, monkeypatch):
    preset = tmp_path / "doors.yaml"
    model = {"layers": 1, "hidden": 32, "max_length": 128}
    small = {"trials": 40, "vocabulary_trials": 20, "stages": [[3, 5e-3], [2, 1e-3]], "batch_size": 8, "model": model}
    preset.write_text(yaml.safe_dump(TWO_DOORS | small), encoding="utf-8")
    file = tmp_path / "rows" / "doors.npz"
    run_recipe(monkeypatch, "--preset", preset, "--rows_only", "--rows", file)
    direct, stored = tmp_path / "direct", tmp_path / "stored"
    run_recipe(monkeypatch, "--preset", preset, "--output_dir", direct, "--device", "cpu")
    run_recipe(monkeypatch, "--preset", preset, "--output_dir", stored, "--device", "cpu", "--rows", file)
    assert (direct / "model.safetensors").read_bytes() == (stored / "model.safetensors").read_bytes()
    assert (direct / "tokenizer.json").read_bytes() == (stored / "tokenizer.json").read_bytes()
    record = json.loads((stored / "warm_start.json").read_text(encoding="utf-8"))
    assert (record["preset"], record["env"], record["device"], record["model"]) == ("doors", "two_doors", "cpu", model)
    assert [(line["stage"], line["step"]) for line in record["log"]] == [(0, 0), (0, 2), (1, 0), (1, 1)]
    tokenizer = load_tokenizer(stored)
    rows = load_recipe().StoredRows(file)
    made = list(preset_rows(WarmStartPreset.from_mapping(TWO_DOORS | small), tokenizer, 0))
    assert list(rows) == made and len(rows) == len(made) == record["rows"] and rows[0] == made[0]


def test_what_is_missing_is_said_in_one_sentence(tmp_path, monkeypatch):
    for flags, message in (
        (["--preset", "minesweeper_5x5"], "there is no preset minesweeper_5x5: give a YAML file, or one of"),
        (["--preset", tmp_path / "no.yaml"], "cannot read the settings file"),
        (["--rows", tmp_path / "no.npz"], "there is no tokenizer folder"),
        (["--rows", tmp_path / "no.npz", "--init", tmp_path], "holds no config.json"),
    ):
        with pytest.raises(ConfigError, match=message):
            run_recipe(monkeypatch, *flags)
    with pytest.raises(ConfigError, match="make them with --rows_only"):
        load_recipe().StoredRows(tmp_path / "no.npz")


class Digits(TwoDoors):
    """Lists its actions, has neither player nor texts of its own, and answers with the action that was played."""

    wording = Wording()

    def reset(self, *, seed):
        self.seed, self.number = seed, random.Random(seed).randint(1, 9)
        return "Guess.", {"admissible_actions": list("123456789")}

    def parse_action(self, text):
        return last_tag(text, "action")

    def step(self, action):
        won = action == str(self.number)
        return StepResult(f"{action} is wrong.", 10.0 * won, True, False, {"success": won})

    def player(self):
        return None


@pytest.mark.slow  # half a minute
def test_a_model_made_on_the_spot_reads_its_prompt():
    config = small_config(num_episodes=2, max_turns=1, max_new_tokens_per_turn=24, wording="compact")
    policy = tiny_policy_on_the_fly(Digits, config)
    agent = Agent(policy, Sampling(temperature=1.0, max_new_tokens=24), trial={"wording": "compact"})
    trials = [run_trial(agent, Digits(), seed, num_episodes=2, max_turns=1) for seed in range(40)]
    failed = [trial.episodes[0] for trial in trials if len(trial.episodes) > 1]
    said = [
        episode.reflection.action == f"{episode.turns[0].action}: {episode.final_observation}" for episode in failed
    ]
    assert len(failed) > 20 and sum(said) > 0.7 * len(said)
