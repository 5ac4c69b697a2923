"""What the tests of all recipes share: presets, scripted trials, a recipe as a module, one step of training."""

import importlib.util
import json
import sys
from collections import deque
from pathlib import Path

import yaml

from metarl_agents import Agent, Sampling, run_trial
from metarl_agents.config import Config
from metarl_agents.envs.factory import environment_factory
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.training.demonstrations import play_scripted, scripted_player

ROOT = Path(__file__).parents[2]


def settings(env, preset):
    return yaml.safe_load((ROOT / f"recipes/configs/{env}/{preset}.yaml").read_text(encoding="utf-8"))


def scripted_trial(config, seed, rng, habits):
    """Let the environment's player play a trial; returns (runner, [(messages, answer, whether it reflects)])."""
    make_env = environment_factory(config)
    runner, pages, answers = TrialRunner(make_env, seed, 0, config), [], []

    def read(messages):
        pages.append((messages, runner.reflecting))
        return ()

    def say(text):
        answers.append(text)
        return ()

    deque(play_scripted(runner, scripted_player(make_env(), habits), rng, read, say), maxlen=0)
    assert runner.trial.error is None, runner.trial.error
    return runner, [(page, text, reflects) for (page, reflects), text in zip(pages, answers, strict=True)]


def recipe(name):
    """Load `recipes/<name>.py` under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"{name}_recipe", ROOT / f"recipes/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(monkeypatch, module, flags):
    words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *words])
    return module.main()


def takes_a_step(monkeypatch, env, model, folder, **changes):
    """Train one step by the recipe of an environment: it samples, updates and saves."""
    flags = {"model_name_or_path": model, "output_dir": folder, "max_steps": 1, "eval_tasks": 2, "tasks_per_step": 1}
    flags |= {"group_size": 2, "max_turns": 2, "max_new_tokens_per_turn": 6, "report_to": "none"} | changes
    # All trials of an untrained model fail alike: with matched visits there would be nothing to learn.
    flags.setdefault("anchor_visits", "pooled")
    assert call(monkeypatch, recipe(f"train_{env}"), flags) == 0
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (step,) = [line["metrics"] for line in lines if line["prefix"] == "train"]
    assert step["update/steps"] == 1 and step["sampling/logp_difference/max"] < 1e-3
    assert (folder / "model.safetensors").is_file()
    an_agent_plays(folder)


def an_agent_plays(folder):
    """Load a run as README shows it, and play a trial of its environment under the settings of the run."""
    config = Config.from_flat(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    agent = Agent.from_pretrained(folder)
    trial = run_trial(agent, environment_factory(config.trial)(), seed=0)
    assert trial.error is None and 1 <= len(trial.episodes) <= config.trial.num_episodes
    assert agent.sampling == Sampling.for_evaluation(config)
