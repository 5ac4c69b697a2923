"""The README's agent snippet, for every shipped model: it loads as its preset evaluates it, and plays."""

from __future__ import annotations

import json

import pytest
import yaml
from test_readme import blocks

from metarl_agents import Agent, ConfigError, Sampling, make, run_trial
from metarl_agents.cli import tiny_settings
from metarl_agents.policy.loading import shipped_folder, shipped_tiny_models


def preset_of(name: str) -> dict:
    facts = json.loads((shipped_folder(name) / "warm_start.json").read_text(encoding="utf-8"))
    return tiny_settings(facts["env"], facts["preset"])


def run_snippet(model, preset, monkeypatch) -> dict:
    """Run the snippet with another model and its environment; nothing else is replaced."""
    (code,) = [block for block in blocks("python") if "Agent.from_pretrained" in block]
    keywords = ", ".join(f"{name}={value!r}" for name, value in preset.get("env_kwargs", {}).items())
    code = code.replace('"runs/my_run"', repr(str(model)))
    code = code.replace('"minesweeper", size=4, mines=4', f'"{preset["env"]}", {keywords}'.rstrip(", "))
    assert str(model) in code and f'make("{preset["env"]}"' in code
    space: dict = {}
    exec(compile(code, "README.md", "exec"), space)
    return space


@pytest.mark.parametrize("name", shipped_tiny_models())
def test_every_shipped_model_loads_with_the_settings_of_its_preset_and_plays(name, monkeypatch, capsys):
    preset = preset_of(name)
    if preset["env"] == "webshop":
        pytest.importorskip("rank_bm25")
    space = run_snippet(shipped_folder(name), preset, monkeypatch)
    agent, trial = space["agent"], space["trial"]
    assert agent.sampling.max_new_tokens == preset["max_new_tokens_per_turn"]
    assert agent.max_prompt_tokens == preset["max_prompt_tokens"]
    assert trial.error is None and capsys.readouterr().out
    usual = run_trial(agent, space["make"](preset["env"], **preset.get("env_kwargs", {}), wording="compact"), 7)
    assert usual.error is None and all(len(episode.turns) <= preset["max_turns"] for episode in usual.episodes)
    if not preset.get("stop_on_success", True):
        assert len(usual.episodes) == preset["num_episodes"]


def test_a_run_brings_its_evaluation_sampling_and_its_trials(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for file in shipped_folder("kuhn_tiny").iterdir():
        if file.name != "warm_start.json":
            (folder / file.name).write_bytes(file.read_bytes())
    values = {"model_name_or_path": "tiny", "env": "kuhn", "max_new_tokens_per_turn": 9, "eval_temperature": 0.3}
    values |= {"max_prompt_tokens": 99, "num_episodes": 2, "max_turns": 1, "memory": "none", "stop_on_success": False}
    (folder / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    agent = Agent.from_pretrained(folder)
    assert (agent.sampling.temperature, agent.sampling.max_new_tokens, agent.max_prompt_tokens) == (0.3, 9, 99)
    trial = run_trial(agent, make("kuhn", wording="compact"), 3)
    assert len(trial.episodes) == 2 and all(episode.reflection is None for episode in trial.episodes)
    assert all(len(episode.turns) <= 1 for episode in trial.episodes)
    assert len(run_trial(agent, make("kuhn", wording="compact"), 3, num_episodes=3).episodes) == 3
    own = Agent.from_pretrained(folder, sampling=Sampling(temperature=0, max_new_tokens=5))
    assert own.sampling == Sampling(temperature=0, max_new_tokens=5)


def test_a_model_of_nobody_s_run_whose_context_is_short_names_the_public_cure(tmp_path):
    for file in shipped_folder("kuhn_tiny").iterdir():
        if file.name != "warm_start.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ConfigError, match=r"`sampling=Sampling\(max_new_tokens=128\)`"):
        Agent.from_pretrained(tmp_path)
    assert Agent.from_pretrained(tmp_path, sampling=Sampling(max_new_tokens=128)).max_prompt_tokens == 896
