"""A small world that random text can win, a policy small enough to train in a blink, and runs of both."""

import json
from dataclasses import replace
from pathlib import Path

import torch

from metarl_agents.config import Config, UpdateConfig
from metarl_agents.envs import Environment, Wording
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.processes import start_processes
from metarl_agents.policy.scoring import Scores
from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.training.batch import MicroBatch
from metarl_agents.training.setup import build_run
from metarl_agents.training.trainer import make_batch, sample_trials, train
from metarl_agents.training.update import update_policy
from metarl_agents.types import StepResult

torch.set_num_threads(1)

TOKENIZER = build_tokenizer()
SHORT = Wording(play_request="Choose.", reflect_request="What to remember?", memory_heading="", reflect_heading="")
SMALL = {
    "env": "two_doors",
    "num_episodes": 2,
    "max_turns": 2,
    "group_size": 4,
    "tasks_per_step": 2,
    "max_new_tokens_per_turn": 3,
    "max_prompt_tokens": 200,
    "learning_rate": 1e-2,
    "max_steps": 2,
    "save_steps": 0,
    "eval_steps": 0,
    "eval_tasks": 2,
    "eval_validation_tasks": 2,
    "eval_samples": 0,
    "save_trajectories_steps": 1,
    "report_to": ["none"],
}
CLOCKS = ("time/", "step_time", "tokens_per_second/")


class Coin(Environment):
    """Heads or tails, read off any text at all, so that an untrained model wins half of the time."""

    wording = SHORT

    def reset(self, *, seed):
        self.seed = seed
        return "Choose one.", {}

    def parse_action(self, text):
        return sum(text.encode()) % 2

    def step(self, action):
        won = action == self.seed % 2
        return StepResult("prize" if won else "empty", 10.0 if won else 0.0, won, False, {"success": won})


class AlwaysOne(Coin):
    """The same reward whatever is done."""

    def step(self, action):
        return StepResult("so", 1.0, True, False, {"success": False})


def small_policy(seed=0, model=None):
    return Policy(model or build_model(TOKENIZER, layers=1, hidden=32, seed=seed, max_length=256), TOKENIZER)


def untied_model(seed=0):
    """The small policy's network with an output head of its own."""
    from transformers import AutoModelForCausalLM

    config = build_model(TOKENIZER, layers=1, hidden=32, max_length=256).config
    config.tie_word_embeddings = False
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config)


def small_config(**settings):
    return Config.from_flat(SMALL | settings)


def open_run(folder, make_env=Coin, policy=None, **settings):
    """A run with everything built and nothing played."""
    folder.mkdir(parents=True, exist_ok=True)
    accelerator = start_processes(timeout_s=60)
    return build_run(small_config(**settings), make_env, policy or small_policy(), folder, None, accelerator)


def play(run, step=0):
    """The batch of one training step, and its credit."""
    return make_batch(run, sample_trials(run, step)[0])


def one_step(run, step=0):
    batch, credit = play(run, step)
    return credit.stats | update_policy(run, batch, step)


def run_training(folder, make_env=Coin, policy=None, **settings):
    return train(make_env, policy=policy or small_policy(), output_dir=str(folder), **(SMALL | settings))


def read_lines(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def metrics_of(folder, prefix="train"):
    """{step: metrics} without what a clock measured."""
    lines = [line for line in read_lines(Path(folder) / "metrics.jsonl") if line["prefix"] == prefix]
    return {
        line["step"]: {name: value for name, value in line["metrics"].items() if not name.startswith(CLOCKS)}
        for line in lines
    }


def weights_of(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same_weights(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class GradientRecorder:
    """Stands in for the optimizer: keeps the gradient of every step and moves nothing."""

    def __init__(self, run):
        self.run, self.gradients = run, []
        self.param_groups = run.sharding.optimizer.param_groups
        run.sharding.optimizer = self

    def step(self):
        named = self.run.plain_scorer.named_parameters()
        self.gradients.append({name: p.grad.clone() for name, p in named if p.grad is not None})

    def zero_grad(self):
        for parameter in self.run.plain_scorer.parameters():
            parameter.grad = None

    def state_dict(self):
        return {}


def micro(mask, advantages=None, **columns):
    """A micro-batch by hand: `mask` is a list of 0/1 rows."""
    mask = torch.tensor(mask, dtype=torch.bool)
    rows = len(mask)
    columns = {name: torch.as_tensor(value, dtype=torch.float32) for name, value in columns.items()}
    blank = MicroBatch(
        rows=torch.arange(rows),
        input_ids=torch.zeros(mask.shape, dtype=torch.long),
        attention_mask=torch.ones_like(mask),
        response_mask=mask,
        advantages=torch.ones(rows) if advantages is None else torch.tensor(advantages, dtype=torch.float32),
        returns=torch.zeros(rows),
        entropy_weight=torch.ones(rows),
        sampled_logprobs=torch.zeros(mask.shape),
    )
    return replace(blank, **columns)


def scores(logprobs, entropy=None):
    logprobs = torch.as_tensor(logprobs, dtype=torch.float32).clone().requires_grad_(True)
    entropy = torch.zeros_like(logprobs) if entropy is None else torch.as_tensor(entropy, dtype=torch.float32)
    return Scores(logprobs, entropy, None)


def plain(**settings):
    """Update settings without entropy bonus or dual clip."""
    return UpdateConfig(**({"entropy_coef": 0.0, "dual_clip": None} | settings))
