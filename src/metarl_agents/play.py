"""Watch an agent play one trial in the terminal.

    python -m metarl_agents.play --model runs/minesweeper-20260101-120000
    python -m metarl_agents.play minesweeper --model tiny --seed 3
    python -m metarl_agents.play my_package.my_env:MyEnv --model Qwen/Qwen3-4B --num_episodes 2

A run's folder brings its own environment and trial settings along; flags win. `--seed N` shows the N-th test task.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from metarl_agents.cli import build_parser, parse_with_extras, run_cli, run_settings, trial_defaults
from metarl_agents.config import Config
from metarl_agents.errors import ConfigError

SETTINGS = (
    "env_kwargs",
    "num_episodes",
    "max_turns",
    "memory",
    "wording",
    "max_new_tokens_per_turn",
    "max_prompt_tokens",
    "eval_top_p",
    "eval_top_k",
    "dtype",
    "gguf_file",
    "trust_remote_code",
    "enable_thinking",
)
TINY_SETTINGS: dict[str, Any] = {
    "env": "minesweeper",
    "env_kwargs": {"size": 4, "mines": 4},
    "wording": "compact",
    "max_turns": 12,
    "max_new_tokens_per_turn": 24,
}
"""What the built-in tiny model knows."""


def main(argv: list[str] | None = None) -> int:
    """Load a model, play one trial while showing it, and return the exit status."""
    config, extras = parse_with_extras(argv, _parser(), _defaults)
    if config.model.model_name_or_path == "":
        raise ConfigError("there is nobody to play: name a model with `--model FOLDER`, or try `--model tiny`.")
    if extras["task"] < 0 or (extras["delay"] or 0) < 0:
        raise ConfigError("`seed` and `delay` must be at least 0: set them accordingly.")
    try:
        return _play(config, extras["task"], extras["delay"])
    except KeyboardInterrupt:
        sys.stdout.write("\nStopped.\n")
        return 130
    except BrokenPipeError:
        # Whoever read the output has left (`| head`); Python must not complain about it when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = build_parser(__doc__ or "", only=SETTINGS)
    parser.prog = "python -m metarl_agents.play"
    parser.add_argument("env", nargs="?", metavar="ENV", help="registered name or address `package.module:Class`")
    parser.add_argument("--model", dest="model_name_or_path", metavar="X", help="run folder, hub name, or `tiny`")
    parser.add_argument("--temperature", dest="eval_temperature", metavar="X", help="0 = greedy [0.7]")
    parser.add_argument("--seed", dest="task", type=int, default=0, metavar="N", help="which test task [0]")
    parser.add_argument("--delay", type=float, metavar="S", help="seconds after each turn [0.3 in a terminal]")
    return parser


def _defaults(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the model's own run, or those that the tiny model knows."""
    model = flags.get("model_name_or_path", "")
    preset = TINY_SETTINGS if model == "tiny" else run_settings(model) if model else {}
    return {"model_name_or_path": model, **trial_defaults(preset, flags)}


def _play(config: Config, task: int, delay: float | None) -> int:
    from metarl_agents.envs.factory import environment_factory, tiny_model_name

    make_env = environment_factory(config.trial)
    env = make_env()
    # torch is imported from here on, after everything that can be checked without it.
    from metarl_agents.agent import Agent, run_trial
    from metarl_agents.policy.loading import needs_warm_start
    from metarl_agents.policy.sampling import Sampling
    from metarl_agents.rollout.tasks import evaluation_seeds
    from metarl_agents.tracking.screen import Screen
    from metarl_agents.training.setup import build_policy, fit_context

    if needs_warm_start(config.model, tiny_model_name(env)):
        sys.stderr.write("Teaching the tiny model this environment first; that takes a few minutes ...\n")
    policy = build_policy(config, make_env)
    fit_context(config, policy)
    agent = Agent(policy, Sampling.for_evaluation(config), max_prompt_tokens=config.sampling.max_prompt_tokens)
    agent.to_accelerator()
    seed = evaluation_seeds("test", 1)[0] + task
    screen = Screen(sys.stdout, num_episodes=config.trial.num_episodes)
    pause = (0.3 if sys.stdout.isatty() else 0.0) if delay is None else delay
    screen.header(_headline(config, task), _facts(config, agent.sampling.describe()))

    def on_turn(trial: Any, turn: Any) -> None:
        screen.turn(trial, turn)
        time.sleep(pause)

    trial = run_trial(
        agent,
        env,
        seed,
        num_episodes=config.trial.num_episodes,
        max_turns=config.trial.max_turns,
        memory=config.trial.memory,
        on_turn=on_turn,
    )
    screen.verdict(trial)
    env.close()
    return 0


def _headline(config: Config, task: int) -> str:
    keywords = ", ".join(f"{name} {value}" for name, value in config.trial.env_kwargs.items())
    return f"{config.trial.env}{f' ({keywords})' if keywords else ''}, test task {task}"


def _facts(config: Config, sampling: str) -> list[str]:
    trial = config.trial
    attempts = "1 attempt" if trial.num_episodes == 1 else f"up to {trial.num_episodes} attempts"
    memory = f", memory: {trial.memory}" if trial.num_episodes > 1 else ""
    return [
        f"model {config.model.model_name_or_path}",
        f"{attempts} of at most {trial.max_turns} turns{memory}",
        sampling,
    ]


if __name__ == "__main__":
    run_cli(main)
