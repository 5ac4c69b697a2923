"""The MineSweeper recipe: its presets fit, its shipped model plays, a launch leaves what it promises."""

import json
import re
import subprocess
import sys
import time
from functools import partial

import pytest
from recipe_helpers import ROOT, call, recipe, takes_a_step
from recipe_helpers import settings as preset_of

from metarl_agents.config import Config, ModelConfig
from metarl_agents.envs.factory import environment_factory, tiny_model_name
from metarl_agents.evaluation.evaluate import evaluate
from metarl_agents.policy.loading import load_policy
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.rollout.tasks import evaluation_seeds
from metarl_agents.training.warm_start import WarmStartPreset

settings = partial(preset_of, "minesweeper")
PRESETS = sorted(path.stem for path in (ROOT / "recipes/configs/minesweeper").glob("*.yaml"))
TRAINING = [name for name in PRESETS if not name.startswith("warm_start")]


def test_the_presets_are_those_that_are_tested_here():
    assert TRAINING == ["llama31_8b", "llama31_8b_lora", "qwen3_4b", "qwen3_4b_lora", "smollm2", "tiny", "tiny_6x6"]


@pytest.mark.parametrize("preset", TRAINING)
def test_every_preset_is_made_of_known_settings_and_its_boards_can_be_won_in_time(preset):
    config = Config.from_flat(settings(preset))
    config.check()
    assert config.trial.env == "minesweeper"
    world = environment_factory(config.trial)()
    turns = []
    for split in ("validation", "test"):
        for seed in evaluation_seeds(split, 25):
            text, _ = world.reset(seed=seed)
            assert text
            turns.append(world.min_turns())
    # Nobody can win some boards in the papers' seven turns (6.6 % of 512). The pipeline check plays two turns.
    can_be_won = sum(turn <= config.trial.max_turns for turn in turns) / len(turns)
    assert can_be_won > (0.75 if preset != "smollm2" else 0)


@pytest.mark.parametrize("preset", ["qwen3_4b", "llama31_8b"])
def test_the_language_model_presets_are_the_published_settings(preset):
    """LaMer, arXiv 2512.16848: MineSweeper."""
    found = settings(preset)
    published = {"num_episodes": 3, "group_size": 8, "tasks_per_step": 16, "max_steps": 300, "memory": "reflection"}
    published |= {"gamma_step": 0.95, "gamma_traj": 0.6, "learning_rate": 1e-6, "max_turns": 7, "wording": "paper"}
    published |= {"max_prompt_tokens": 2048, "max_new_tokens_per_turn": 1024, "env_kwargs": {"size": 6, "mines": 3}}
    assert {name: found.get(name) for name in published} == published
    config = Config.from_flat(found)
    assert config.model.model_name_or_path.endswith({"qwen3_4b": "Qwen3-4B", "llama31_8b": "3.1-8B-Instruct"}[preset])
    assert not config.model.enable_thinking and config.credit.advantages == "gigpo"
    world = environment_factory(config.trial)()
    assert (world.size, world.mines) == (6, 3) and tiny_model_name(world) is None


@pytest.mark.parametrize(("preset", "size"), [("warm_start_4x4", 4), ("warm_start_6x6", 6)])
def test_the_shipped_models_have_seen_the_boards_that_they_are_named_for(preset, size):
    made = WarmStartPreset.from_mapping(settings(preset))
    names = set()
    for kind in range(len(made.tasks)):
        world = made.worlds(kind)[0]()
        assert world.size == size
        names.add(tiny_model_name(world))
    assert names == {f"minesweeper_{size}x{size}"}


def test_a_dry_run_shows_the_default_job_and_trains_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, recipe("train_minesweeper"), {"dry_run": "true"}) == 0
    text = capsys.readouterr().out
    assert "First prompt (" in text and "Reflection prompt (" in text
    assert "model_name_or_path: tiny" in text and "max_steps: 100" in text and "mines: 4" in text
    assert not list(tmp_path.iterdir())


def test_a_dry_run_of_the_published_job_shows_its_prompts(monkeypatch, capsys, tmp_path):
    """With a small model in the place of the real one, which is not here."""
    monkeypatch.chdir(tmp_path)
    Policy(build_model(build_tokenizer(), layers=1, hidden=16), build_tokenizer()).save(tmp_path / "model")
    file = ROOT / "recipes/configs/minesweeper/qwen3_4b.yaml"
    flags = {"dry_run": "true", "config": file, "model_name_or_path": tmp_path / "model"}
    assert call(monkeypatch, recipe("train_minesweeper"), flags) == 0
    text = capsys.readouterr().out
    assert "First prompt (" in text and "gamma_traj: 0.6" in text and "max_steps: 300" in text
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_shipped_model_wins_one_board_in_five_at_once():
    """Less would leave meta-RL little to start from; the README's 512 boards say 34 to 37 %."""
    config = Config.from_flat(settings("tiny") | {"num_episodes": 1})
    make_env = environment_factory(config.trial)
    policy = load_policy(ModelConfig(), tiny_name=tiny_model_name(make_env()))
    result = evaluate(policy, make_env, config, num_tasks=64)
    assert result.num_tasks == 64 and not result.crashed
    assert sum(solved is not None for solved in result.solved_at) >= 0.2 * 64


@pytest.mark.slow
def test_two_steps_of_the_quick_start_end_in_time_and_leave_what_they_promise(tmp_path):
    run = tmp_path / "run"
    flags = ["--max_steps", "2", "--eval_tasks", "8", "--eval_steps", "0", "--save_trajectories_steps", "1"]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "recipes/train_minesweeper.py", *flags, "--output_dir", str(run)],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert time.perf_counter() - started < 180
    assert not re.search("warn|deprecat|error|following values", done.stderr, flags=re.IGNORECASE), done.stderr
    assert "pass@1" in done.stdout and str(run) in done.stdout
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line["metrics"] for line in lines if line["prefix"] == "train"]
    assert len(steps) == 2 and all(step["update/steps"] == 1 for step in steps)
    assert max(step["sampling/logp_difference/max"] for step in steps) < 1e-3
    trials = [json.loads(line) for file in (run / "trajectories").glob("*.jsonl") for line in file.open()]
    assert len(trials) >= 2 * 16 * 8
    assert "MineSweeper" in (card := (run / "README.md").read_text(encoding="utf-8")) or "minesweeper" in card
    for name in ("model.safetensors", "config.json", "tokenizer.json", "config.yaml", "versions.json", "checkpoint-2"):
        assert (run / name).exists(), name
    assert load_policy(ModelConfig(model_name_or_path=str(run))).encode([{"role": "user", "content": "row 1: ? ?"}])


@pytest.mark.parametrize("env", ["minesweeper", "two_doors"])
def test_a_step_of_the_recipe_samples_updates_and_saves(env, tmp_path, monkeypatch):
    Policy(build_model(build_tokenizer(), layers=1, hidden=32), build_tokenizer()).save(tmp_path / "model")
    takes_a_step(monkeypatch, env, tmp_path / "model", tmp_path / "run")
