r"""Measure a model on fixed tasks: pass@k within a trial, pass@k over independent attempts, diversity.

    python recipes/evaluate.py --model_name_or_path runs/minesweeper-20260101-120000
    python recipes/evaluate.py --model_name_or_path Qwen/Qwen3-4B --env minesweeper --agent reflexion
    python recipes/evaluate.py --model_name_or_path runs/my_run --env_kwargs '{size: 6, mines: 4}'
    python recipes/evaluate.py --model_name_or_path runs/kuhn --opponents "cfr equilibrium=2" --num_episodes 10
    python recipes/evaluate.py --model_name_or_path runs/kuhn --opponents "model:runs/kuhn/population/snapshot-50 cfr"
    accelerate launch --config_file recipes/accelerate_configs/multi_gpu.yaml recipes/evaluate.py \
        --model_name_or_path runs/my_run

A run's folder brings its environment, trial settings and token limits along, the built-in model `tiny` those of
`recipes/configs/<env>/tiny.yaml`; flags win. The result goes to
`eval/evaluate-<label>.json` inside a local model folder, or to `--output`. The tasks are the same whatever `--seed`
says, and so are the draws; the seed decides how the built-in model is taught where none is shipped. Of games all
episodes are played, and tables by episode, opponent and seat follow; `--opponents` names others than the run's own,
models among them, each met as often as its weight says.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

from metarl_agents.cli import build_parser, model_settings, parse_with_extras, run_cli, trial_defaults
from metarl_agents.config import Config, ModelConfig


def main() -> int:
    config, extras = parse_with_extras(None, _parser(), _defaults)
    from metarl_agents.evaluation.games import exam_settings
    from metarl_agents.policy.loading import check_model_name

    check_model_name(config.model)
    config.trial = exam_settings(config.trial, config.population.opponents, models=True)
    result, is_main = _evaluate(config, extras)
    if config.population.opponents:
        result.meta["opponents"] = config.population.opponents
    if is_main:
        from metarl_agents.evaluation.games import examine_games, format_games
        from metarl_agents.evaluation.results import format_table

        print(f"\n{format_table([result])}")
        if (games := examine_games(result, config.trial)) is not None:
            print(f"\n{format_games(games)}")
        output = _output(config, extras["output"], result.label)
        if output is not None:
            result.dated().to_json(output)
            print(f"\nSaved to {output}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = build_parser(__doc__, hidden=("credit", "update"))  # they shape training only
    agents = ("policy", "zero_shot", "react", "reflexion")
    parser.add_argument("--agent", choices=agents, default="policy", help="the trained policy, or an untrained request")
    parser.add_argument("--label", metavar="X", help="name in the table and of the file [the agent's name]")
    parser.add_argument("--output", metavar="FILE.json", help="where the result goes [the model's folder]")
    parser.add_argument("--split", choices=("test", "validation"), default="test", help="which fixed tasks [test]")
    return parser


def _defaults(flags: dict[str, Any]) -> dict[str, Any]:
    """Return what the model's own run used, or the preset of the tiny model; the agent decides the memory."""
    from metarl_agents.evaluation.agents import AGENTS

    model = flags.get("model_name_or_path", ModelConfig().model_name_or_path)
    memory = AGENTS[flags["agent"]].memory
    return trial_defaults(model_settings(model, flags.get("env")), flags) | ({"memory": memory} if memory else {})


def _evaluate(config: Config, extras: dict[str, Any]) -> tuple[Any, bool]:
    """Return (result, whether this process writes)."""
    from metarl_agents.envs.factory import environment_factory
    from metarl_agents.evaluation.agents import AGENTS, agent_label
    from metarl_agents.evaluation.evaluate import evaluate
    from metarl_agents.policy.processes import check_whole_weights, start_processes
    from metarl_agents.rollout.tasks import load_task_list
    from metarl_agents.training.setup import fit_context
    from metarl_agents.training.start import build_policy

    check_whole_weights()
    make_env = environment_factory(config.trial)
    accelerator = start_processes(config.run.collective_timeout_s)
    policy = build_policy(config, make_env)
    fit_context(config, policy)
    policy.model.to(accelerator.device)
    result = evaluate(
        policy,
        _dealt(config, make_env, accelerator.device),
        config,
        split=extras["split"],
        num_tasks=config.run.eval_tasks,
        samples=config.run.eval_samples,
        label=agent_label(extras["agent"], config.model.model_name_or_path, extras["label"]),
        listed=load_task_list(config.trial.tasks)[extras["split"]],
        accelerator=accelerator,
        play_request=AGENTS[extras["agent"]].play_request,
    )
    return result, accelerator.is_main_process


def _dealt(config: Config, make_env: Any, device: Any) -> Any:
    """Return what builds the environments, with the models that `--opponents` names in the opponent's seat."""
    from metarl_agents.envs.factory import opened, tiny_model_name
    from metarl_agents.evaluation.games import exam_opponents
    from metarl_agents.policy.sampling import Sampling
    from metarl_agents.rollout.opponent_lists import load_opponent
    from metarl_agents.rollout.opponents import DealtEnvironments, ModelOpponent

    listed = exam_opponents(config.population.opponents, models=True)
    if all(entry.source is None for entry in listed):
        return make_env
    with opened(make_env) as env:
        scripted, tiny_name = iter(env.seating.opponents), tiny_model_name(env)
    limit = config.sampling.max_prompt_tokens
    opponents = []
    for entry in listed:
        if entry.source is None:  # they stand in the environment in the order in which they were named
            opponents.append(next(scripted))
            continue
        policy = load_opponent(config.model, entry.source, tiny_name, device)
        opponents.append(ModelOpponent(entry.name, policy, Sampling.for_evaluation(config), max_prompt_tokens=limit))
    return DealtEnvironments(make_env, opponents, [entry.weight for entry in listed], config.trial.env_timeout_s)


def _output(config: Config, asked: str | None, label: str) -> Path | None:
    """Return where the result goes, or None where there is no place for it."""
    if asked:
        return Path(asked)
    folder = Path(config.model.model_name_or_path).expanduser()
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return None
    return folder / "eval" / f"evaluate-{re.sub(r'[^A-Za-z0-9._-]+', '_', label).strip('_')}.json"


if __name__ == "__main__":
    run_cli(main)
