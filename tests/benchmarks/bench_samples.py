"""A plan of the benchmark at toy size, and a trainer that makes its cells at once."""

import sys
from pathlib import Path
from typing import get_args, get_origin

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.cells import Cell, digest  # noqa: E402
from bench.runner import Runner  # noqa: E402
from bench.work import Interrupted, evaluation_cell, failed  # noqa: E402
from games_samples import write_plan  # noqa: E402

from metarl_agents.evaluation import EvaluationResult  # noqa: E402
from metarl_agents.policy.sampling import Sampling  # noqa: E402
from metarl_agents.rollout.tasks import evaluation_seeds  # noqa: E402

METHODS = """
base: {label: base, evaluate: {memory: none}}
react: {label: ReAct, agent: react, evaluate: {memory: none}}
rl: {label: RL, train: {num_episodes: 1, group_size: 6}, evaluate: {memory: none}}
rl_memory: {label: RL with memory, train_as: rl, evaluate: {memory: reflection, eval_samples: 0}}
meta: {label: meta-RL, train: {num_episodes: 3, group_size: 2}, evaluate: {memory: reflection}}
"""
PLAN = """
title: test
jobs: 2
episodes_per_task: 6
train: {eval_tasks: 1, save_steps: 1}
evaluate: {num_episodes: 3, eval_tasks: 40, eval_samples: 4}
cost: {rl_step: 1, meta_step: 2, evaluation: 5}
blocks:
- name: main
  title: MineSweeper
  recipe: recipes/train_minesweeper.py
  config: recipes/configs/minesweeper/tiny.yaml
  seeds: [0, 1]
  train: {max_steps: 2, tasks_per_step: 2}
  rows: [base, react, rl, rl_memory, meta]
  reference: meta
  figures: [training, gain, diversity]
- name: sweep
  title: gamma_traj
  like: main
  kind: ablation
  seeds: [0]
  rows: [meta]
  reference: "meta:0.9"
  vary: {name: gamma_traj, variants: {"0": {train: {gamma_traj: 0}}, "0.9": {train: {gamma_traj: 0.9}}}}
  figures: [ablation]
"""


def toy_plan(folder, text=PLAN, methods=METHODS):
    """Write a plan as the preset `smoke` of a folder, and load it."""
    return write_plan(folder, text, methods)


class Trainer:
    """Makes cells at once: models are a folder with a file, outcomes follow from the row.

    The base model's evaluations keep the entropy of each task; the others' are as older ones were.
    """

    def __init__(self, solved, *, break_at=(), stop_at=()):
        self.solved, self.break_at, self.stop_at = solved, break_at, stop_at
        self.made = []

    def __call__(self, job, shop, trained):
        self.made.append(f"{job.kind} {job.name}")
        if any(text in self.made[-1] for text in self.stop_at):
            raise Interrupted
        if any(text in self.made[-1] for text in self.break_at):
            return failed(job, "ConfigError: <b>it</b> broke")
        return self.train(job, shop) if job.kind == "train" else self.evaluate(job, trained)

    def train(self, job, shop):
        folder = shop.folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(job.key)
        took = {"steps": 2, "episodes_allotted": 24, "episodes_used": 20, "tokens": 999, "seconds": 12.0}
        curves = {"train": {"pass@1": [[1, 0.1], [2, 0.2]]}, "eval": {"pass@1": [[2, 0.3]]}}
        training = took | {"weights": digest(folder), "curves": curves}
        return Cell("train", job.key, job.name, "finished", job.decides, job.seed, run=str(folder), training=training)

    def evaluate(self, job, trained):
        method = job.name.split("/")[1].split(":")[0]
        tasks = job.config.run.eval_tasks
        rate = self.solved[method] + (job.seed or 0)
        solved = [number % 3 if number < rate else None for number in range(tasks)]
        samples = job.config.run.eval_samples
        result = EvaluationResult(
            label="x", env="minesweeper", env_kwargs=dict(job.config.trial.env_kwargs), num_episodes=3, max_turns=12,
            memory=job.config.trial.memory, sampling=Sampling.for_evaluation(job.config).describe(), split="test",
            task_seeds=evaluation_seeds("test", tasks), solved_at=solved,
            first_episode_successes=[[number % 2 == 0] * samples for number in range(tasks)] if samples else None,
            diversity_nats=0.5 if samples else None, diversity_normalised=0.25 if samples else None,
            diversity_by_task=[number % 2 for number in range(tasks)] if samples and method == "base" else None,
        )  # fmt: skip
        return evaluation_cell(job, result, trained)


SOLVED = {"base": 8, "react": 3, "rl": 12, "rl_memory": 13, "meta": 37}


def runner_of(plan, folder, trainer=None, **changes):
    """Make a runner of the plan with a trainer; everything lies in the folder."""
    trainer = trainer or Trainer(SOLVED)
    lines = []
    places = {"results": folder / "results", "runs": folder / "runs"}
    runner = Runner(plan, work=trainer, say=lines.append, **places, **changes)
    runner.lines, runner.trainer = lines, trainer
    return runner


ALLOWED = {"dual_clip": (2.0, 4.0), "collective_timeout_s": (2.0, 3.0)}


def other_value(kind, item, value):
    """Return a value of a setting that is not the one it has."""
    if names := item.metadata.get("names"):  # short names, beside which an address may stand
        return next(choice for choice in names if choice != value)
    if get_origin(kind) is not None and get_args(kind)[-1] is type(None):
        kind = get_args(kind)[0]
    if get_origin(kind) is not None and all(isinstance(choice, str) for choice in get_args(kind)):
        return next(choice for choice in get_args(kind) if choice != value)
    if kind is bool:
        return not value
    if kind in (int, float):
        return (value or 0) + 1 if kind is int else next(x for x in ALLOWED.get(item.name, (0.5, 0.25)) if x != value)
    return {"size": 4, "mines": 3} if item.name == "env_kwargs" else ["none"] if get_origin(kind) is list else "changed"
