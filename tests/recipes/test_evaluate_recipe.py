"""Laws of `recipes/evaluate.py`."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from metarl_agents.cli import TRIAL_SETTINGS
from metarl_agents.config import Config
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.agents import AGENTS, agent_label
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.training import warm_start

RECIPE = Path(__file__).parents[2] / "recipes" / "evaluate.py"
QUICK = ["--env", "two_doors", "--eval_tasks", "3", "--eval_samples", "2", "--max_turns", "1", "--num_episodes", "2"]
QUICK += ["--max_new_tokens_per_turn", "4"]


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("evaluate_recipe", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(tmp_path):
    tokenizer = build_tokenizer()
    Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def run(recipe, monkeypatch):
    def call(*flags):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *map(str, flags)])
        return recipe.main()

    return call


def test_it_prints_a_table_and_saves_the_result_beside_the_model(run, model, capsys):
    assert run("--model_name_or_path", model, *QUICK) == 0
    text = capsys.readouterr().out
    assert "pass@2" in text and "indep. pass@2" in text and "diversity" in text and "Wilson" in text
    result = EvaluationResult.from_json(model / "eval" / "evaluate-policy.json")
    assert (result.num_tasks, result.num_episodes, result.memory, result.split) == (3, 2, "reflection", "test")


def test_the_same_command_gives_the_same_outcomes(run, model, tmp_path):
    files = [tmp_path / name for name in ("a.json", "b.json")]
    for file in files:
        run("--model_name_or_path", model, *QUICK, "--output", file)
    found = [json.loads(file.read_text()) for file in files]
    assert all(found[0][name] == found[1][name] for name in ("solved_at", "first_episode_successes", "tokens"))
    assert not (model / "eval").exists()


def test_a_label_names_row_and_file_and_the_split_names_the_tasks(run, model):
    run("--model_name_or_path", model, *QUICK, "--eval_samples", "0", "--label", "my: run", "--split", "validation")
    result = EvaluationResult.from_json(model / "eval" / "evaluate-my_run.json")
    assert result.label == "my: run" and result.split == "validation"


def test_an_untrained_agent_asks_in_its_own_words_and_with_its_own_memory(run, model):
    run("--model_name_or_path", model, *QUICK, "--agent", "react")
    assert EvaluationResult.from_json(model / "eval" / "evaluate-react.json").memory == "none"


def chosen(recipe, *flags):
    return recipe.parse_with_extras(list(map(str, flags)), recipe._parser(), recipe._defaults)[0]


def test_a_runs_trial_settings_are_defaults_and_flags_win(recipe, tmp_path):
    values = {"model_name_or_path": "tiny", "env": "minesweeper", "env_kwargs": {"size": 5, "mines": 2}, "max_turns": 9}
    values |= {"wording": "compact", "num_episodes": 2, "max_prompt_tokens": 99, "eval_samples": 0}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    config = chosen(recipe, "--model_name_or_path", tmp_path, "--max_turns", 4)
    assert (config.trial.env_kwargs, config.trial.max_turns) == ({"size": 5, "mines": 2}, 4)
    assert (config.sampling.max_prompt_tokens, config.run.eval_samples) == (99, 8)
    assert chosen(recipe, "--model_name_or_path", tmp_path, "--agent", "reflexion").trial.memory == "reflection"


SHAPED = {"max_remark_chars": 40, "penalty_scope": "row", "length_penalty": 0.25, "invalid_action_penalty": 0.125}
SHAPED |= {"eval_temperature": 0.3, "eval_top_p": 0.9, "eval_top_k": 5, "eval_min_p": 0.01, "enable_thinking": True}
SHAPED |= {"eval_repetition_penalty": 1.1, "env_timeout_s": 7.0, "stop_on_success": False, "memory": "both"}


def test_a_run_brings_every_setting_that_shapes_its_trials(recipe, tmp_path):
    values = Config().flat() | {"env": "two_doors"} | SHAPED
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    flat = chosen(recipe, "--model_name_or_path", tmp_path).flat()
    assert {name: flat[name] for name in SHAPED} == SHAPED
    assert {name for name, value in values.items() if value != flat[name]} == {"model_name_or_path"}
    flags = ["--max_remark_chars", 50, "--eval_temperature", 0.7]
    won = chosen(recipe, "--model_name_or_path", tmp_path, *flags).flat()
    assert (won["max_remark_chars"], won["eval_temperature"], won["eval_top_k"]) == (50, 0.7, 5)
    old = {name: values[name] for name in ("env", "model_name_or_path", "max_turns")}  # of a version without the rest
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(old))
    assert chosen(recipe, "--model_name_or_path", tmp_path).flat()["max_remark_chars"] == 2000


PRESETS = sorted((RECIPE.parent / "configs").glob("*/tiny.yaml"))


@pytest.mark.parametrize("file", PRESETS, ids=lambda file: file.parent.name)
def test_the_tiny_model_is_measured_as_its_preset_trains_it_in_every_environment(recipe, file):
    preset = yaml.safe_load(file.read_text(encoding="utf-8"))
    flat = chosen(recipe, "--env", file.parent.name).flat()
    brought = {name: preset[name] for name in TRIAL_SETTINGS if name in preset}
    assert {name: flat[name] for name in brought} == brought and "max_new_tokens_per_turn" in brought
    assert flat["env_kwargs"] == preset.get("env_kwargs", {})


def test_the_tiny_model_plays_minesweeper_by_default_and_briefly_where_there_is_no_preset(recipe):
    trial = chosen(recipe).trial
    assert (trial.env, trial.wording, trial.env_kwargs) == ("minesweeper", "compact", {"size": 4, "mines": 4})
    unknown = chosen(recipe, "--env", "my_package.my_env:MyEnv")
    assert (unknown.trial.wording, unknown.sampling.max_new_tokens_per_turn) == ("compact", 24)
    assert chosen(recipe, "--model_name_or_path", "Qwen/Qwen3-4B", "--env", "kuhn").trial.wording == "paper"


def test_the_shipped_model_of_a_game_is_measured_at_once(run, tmp_path, capsys):
    flags = ["--env", "kuhn", "--eval_tasks", "4", "--eval_samples", "0", "--output", tmp_path / "result.json"]
    assert run(*flags) == 0
    printed = capsys.readouterr()
    assert "making the tiny model" not in printed.err and "all games" in printed.out
    assert EvaluationResult.from_json(tmp_path / "result.json").max_turns == 4


def test_the_progress_of_making_the_tiny_model_is_shown(run, monkeypatch, capsys):
    monkeypatch.setattr("metarl_agents.progress.SILENT_S", 0.0)
    monkeypatch.setattr(warm_start, "ON_THE_FLY", replace(warm_start.ON_THE_FLY, steps=2))
    assert run(*QUICK) == 0
    assert "making the tiny model: 1 of 2" in capsys.readouterr().err


def test_a_wrong_command_is_refused_before_any_model_is_loaded(run):
    with pytest.raises(ConfigError, match="react"):
        run("--agent", "reakt")
    with pytest.raises(ConfigError, match="no model folder"):
        run("--model_name_or_path", "./nothing", "--env", "two_doors")


def test_baselines_of_the_tiny_model_say_that_they_mean_nothing():
    for name, spec in AGENTS.items():
        assert agent_label(name, "Qwen/Qwen3-4B") == name
        assert agent_label(name, "tiny").endswith("(not meaningful for the tiny model)") == (
            spec.play_request is not None
        )
    assert agent_label("react", "tiny", "mine") == "mine (not meaningful for the tiny model)"
