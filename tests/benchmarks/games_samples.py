"""Cells of a game with outcomes made by hand, for a plan of a base model, plain RL and meta-RL at two seeds.

Of every four tasks, two meet `weak` in seat 0 (floor 0, ceiling 2), one meets it in seat 1 (floor -1, ceiling 1), and
one meets `safe`, from whom nothing is to be had.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.cells import Cell  # noqa: E402
from bench.plan import load_plan  # noqa: E402
from bench.summary import summary  # noqa: E402
from bench.work import evaluation_cell  # noqa: E402

from metarl_agents.evaluation import EvaluationResult  # noqa: E402
from metarl_agents.policy.sampling import Sampling  # noqa: E402
from metarl_agents.rollout.tasks import evaluation_seeds  # noqa: E402

METHODS = """
base: {label: base, evaluate: {memory: none}}
rl: {label: RL, train: {num_episodes: 1, group_size: 6}, evaluate: {memory: none}}
meta: {label: meta-RL, train: {num_episodes: 3, group_size: 2}, evaluate: {memory: reflection}}
"""
PLAN = """
title: test
episodes_per_task: 6
evaluate: {num_episodes: 3, eval_tasks: 40, eval_samples: 0}
cost: {rl_step: 1, meta_step: 2, evaluation: 5}
blocks:
- name: rocks
  title: Rock, paper, scissors
  recipe: recipes/train_matrix_game.py
  config: recipes/configs/matrix_game/tiny.yaml
  measure: exploited
  seeds: [0, 1]
  train: {max_steps: 2}
  rows: [base, rl, meta]
  reference: meta
  figures: [episodes]
- name: others
  title: Others
  like: rocks
  kind: ablation
  rows: [meta]
  reference: meta
  vary:
    name: opponents
    variants: {trained: {}, others: {evaluate: {env_kwargs: {rounds: 3, opponents: [beat_frequent]}}}}
  figures: [ablation]
"""
ROLES = [("weak", 0), ("weak", 0), ("weak", 1), ("safe", 0)]
EXACT = [
    {"opponent": "weak", "seat": 0, "floor": 0.0, "ceiling": 2.0},
    {"opponent": "weak", "seat": 1, "floor": -1.0, "ceiling": 1.0},
    {"opponent": "safe", "seat": 0, "floor": 0.0, "ceiling": 0.04},
]
LEAST = [{"seat": seat, "payoff": -3.0} for seat in (0, 1)]
"""Three rounds lost."""
EARNED = {
    "base": {None: [[-1.0] * 3, [-2.0] * 3, [0.0] * 3]},
    "rl": dict.fromkeys((0, 1), [[0.0] * 3, [0.0] * 3, [1.0] * 3]),
    "meta": {
        0: [[0.0, 1.0, 2.0], [-1.0, 0.0, 0.0], [1.0] * 3],
        1: [[0.0, 1.0, 1.0], [-1.0, 0.0, 0.0], [1.0] * 3],
    },
}
"""Method -> training seed -> payoffs by episode in each role."""


def write_plan(folder, text=PLAN, methods=METHODS):
    folder.mkdir(exist_ok=True)
    (folder / "methods.yaml").write_text(methods)
    (folder / "smoke.yaml").write_text(text)
    return load_plan("smoke", folder)


def games(seeds, earned):
    """Return the record of games: payoffs by role and episode, endings by their signs."""
    rows = []
    for number, seed in enumerate(seeds):
        opponent, seat = ROLES[number % 4]
        payoffs = list(earned[max(0, number % 4 - 1)])
        endings = ["won" if paid > 0 else "drawn" if paid == 0 else "lost" for paid in payoffs]
        rows.append({"seed": seed, "opponent": opponent, "seat": seat, "payoffs": payoffs, "endings": endings})
    exact = [dict(one) for one in EXACT]
    return {"players": ["first", "second"], "rows": rows, "exact": exact, "least": LEAST, "summary": []}


def result_of(job, earned=None):
    """Return what the evaluation of a job found."""
    earned = earned or EARNED[job.name.split("/")[1].split(":")[0]][job.seed]
    trial, tasks = job.config.trial, job.config.run.eval_tasks
    seeds = evaluation_seeds("test", tasks)
    record = games(seeds, earned)
    return EvaluationResult(
        label="x", env=trial.env, env_kwargs=dict(trial.env_kwargs), num_episodes=3, max_turns=trial.max_turns,
        memory=trial.memory, sampling=Sampling.for_evaluation(job.config).describe(), split="test", task_seeds=seeds,
        solved_at=[next((n for n, e in enumerate(row["endings"]) if e == "won"), None) for row in record["rows"]],
        meta={"model": "/somewhere/else", "games": record},
    )  # fmt: skip


def training(job):
    took = {"steps": 2, "episodes_allotted": 24, "episodes_used": 24, "tokens": 999, "seconds": 12.0}
    trained = took | {"weights": f"weights of {job.key}", "curves": {"train": {"pass@1": [[1, 0.1]]}, "eval": {}}}
    return Cell("train", job.key, job.name, "finished", job.decides, job.seed, run="runs/x", training=trained)


def cells_of(plan, change=lambda job, result: None, wanted=lambda job: True):
    """Make a cell of each job; `change` may alter the record of an evaluation."""
    made = {}
    for job in plan.jobs_wanted():
        if job.kind == "train":
            made[job.key] = training(job)
        elif wanted(job):
            result = result_of(job)
            change(job, result)
            made[job.key] = evaluation_cell(job, result, made.get(job.train.key) if job.train else None)
    return made


def block_of(plan, cells, index=0):
    return summary(plan, cells)["blocks"][index]
