"""Contender `lockstep`: the loop that one writes first, with plain transformers and torch.

Rollout: every trial of the batch takes its n-th turn together, prompts left-padded into one `generate`; the next turn
begins when all are back, and reflections are a phase of their own. Update: rows in the order of play, padded to the
batch's longest prompt and longest response, the same number of rows in every micro-batch, and logits of all response
places at once. It has the library's trials and its credit, so that both train on the same rows in the same way; it
makes the same gradient (`tests/benchmarks/test_speed.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from metarl_agents.advantages import RunningMean
from metarl_agents.config import Config
from metarl_agents.policy.padding import left_pad, right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.rollout.collect import fit_prompt
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.rollout.tasks import TaskStream
from metarl_agents.training.batch import TrialBatch, collate
from metarl_agents.training.credit import assign_credit, drop_crashed_groups, tabulate
from metarl_agents.types import Response, Trial
from side_by_side.job import Job
from side_by_side.meter import ForcedLengths, Meter, watch
from side_by_side.world import World, build_config


@dataclass
class Loop:
    """A policy, its optimizer, and the settings."""

    policy: Policy
    config: Config
    optimizer: torch.optim.Optimizer
    rows: int
    """Rows of a micro-batch."""
    bf16: bool = False
    baseline: RunningMean = field(default_factory=RunningMean)

    @property
    def model(self) -> Any:
        """The network."""
        return self.policy.model

    def autocast(self) -> torch.autocast:
        """Compute in bf16, where that is asked for."""
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16, enabled=self.bf16)


def measure(job: Job) -> dict[str, Any]:
    """Play all iterations and return what each took."""
    work = job.work
    config = build_config(work, job.steps)
    policy = load(job.folder)
    meter = Meter(ForcedLengths(work.response_tokens, work.response_sigma, work.max_response_tokens))
    watch(policy.model, meter, policy.end_ids[0])
    loop = Loop(policy, config, build_optimizer(policy.model, config), job.micro_batch, job.sizes.bf16)
    world = World(work)
    tasks = TaskStream(config.run.seed, work.tasks)
    loaded = meter.finish()["peak_gib"]
    warm_up = iterate(loop, world, meter, tasks.take(0))
    first_update = time.monotonic() - job.started
    iterations = [iterate(loop, world, meter, tasks.take(step)) for step in range(1, job.steps)]
    return {
        "settings": config.flat() | {"rows_per_micro_batch": job.micro_batch, "bf16_autocast": job.sizes.bf16},
        "loaded_gib": loaded.get("process"),
        "first_update_s": first_update,
        "warm_up": warm_up,
        "iterations": iterations,
    }


def load(folder: str) -> Policy:
    """Load model and tokenizer in fp32, onto the GPU where there is one."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)
    return Policy(model.eval(), AutoTokenizer.from_pretrained(folder))


def build_optimizer(model: Any, config: Config) -> torch.optim.Optimizer:
    """Return AdamW with the settings of the library's."""
    update = config.update
    betas = (update.adam_beta1, update.adam_beta2)
    return torch.optim.AdamW(model.parameters(), lr=update.learning_rate, betas=betas, weight_decay=update.weight_decay)


def iterate(loop: Loop, world: World, meter: Meter, seeds: Sequence[int]) -> dict[str, Any]:
    """Play, credit and learn once."""
    world.begin()
    meter.begin()
    with meter.phase("rollout"):
        trials = play(loop, world, meter, seeds)
    batch = credit(loop, trials)
    with meter.phase("update"):
        accumulate(loop, batch)
        torch.nn.utils.clip_grad_norm_(loop.model.parameters(), loop.config.update.max_grad_norm)
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    return meter.finish()


# ---- rollout -----------------------------------------------------------------------------------------------------


def play(loop: Loop, world: World, meter: Meter, seeds: Sequence[int]) -> list[Trial]:
    """Play `group_size` trials of each task, all of them turn by turn, and return them in order (group, trial)."""
    config = loop.config.trial
    runners = [
        TrialRunner(world.make_env, seed, group, config)
        for group, seed in enumerate(seeds)
        for _ in range(config.group_size)
    ]
    for episode in range(1, config.num_episodes + 1):
        for _ in range(config.max_turns):
            playing = [r for r in runners if not r.done and not r.reflecting and len(r.trial.episodes) == episode]
            _answer(loop, meter, playing)
        _answer(loop, meter, [runner for runner in runners if not runner.done and runner.reflecting])
    assert all(runner.done for runner in runners), "a trial outlasted the phases"
    return [runner.trial for runner in runners]


@torch.inference_mode()
def _answer(loop: Loop, meter: Meter, runners: list[TrialRunner]) -> None:
    """Give each trial its next response; none goes on before the last is there."""
    limit = loop.config.sampling.max_prompt_tokens
    asked = []
    for runner in runners:
        fitted = fit_prompt(loop.policy.encode, runner.messages, runner.max_drop, limit)
        if fitted is None:
            runner.prompt_does_not_fit()
        else:
            asked.append((runner, fitted[0]))
    if not asked:
        return
    started = time.perf_counter()
    responses = _generate(loop, [prompt for _, prompt in asked])
    meter.seconds["generate"] = meter.seconds.get("generate", 0.0) + time.perf_counter() - started
    for (runner, prompt), response in zip(asked, responses, strict=True):
        runner.receive(prompt, response)


def _generate(loop: Loop, prompts: list[tuple[int, ...]]) -> list[Response]:
    policy, device = loop.policy, loop.model.device
    settings = Sampling.for_training(loop.config).generation_config(policy.pad_id, policy.end_ids)
    ids, mask = left_pad(prompts, policy.pad_id)
    with loop.autocast():
        output = loop.model.generate(
            input_ids=ids.to(device), attention_mask=mask.to(device), generation_config=settings
        )  # (b, P + R)
    responses = []
    for row in output[:, ids.shape[1] :].tolist():
        end = next((place + 1 for place, token in enumerate(row) if token in policy.end_ids), len(row))
        responses.append(Response(tuple(row[:end]), policy.template.read(row[:end])[0]))
    return responses


# ---- update ------------------------------------------------------------------------------------------------------


def credit(loop: Loop, trials: list[Trial]) -> TrialBatch:
    """Turn trials into rows with advantages, by the library's own rules."""
    whole = drop_crashed_groups(trials)
    table = tabulate(whole, loop.config.credit)
    earned = assign_credit(table, loop.config.credit, loop.baseline, lambda sums: sums)
    return collate(whole, earned.advantages, table.returns, earned.has_signal, loop.policy.pad_id)


def accumulate(loop: Loop, batch: TrialBatch) -> None:
    """Add the gradient of the mean loss over all response tokens, one micro-batch after the other.

    loss = Σ (−min(Aρ, A·clip(ρ)) − entropy_coef·H) / tokens,   ρ = π / π_old, π_old being π itself
    """
    device, pad = loop.model.device, batch.pad_id
    prompts, prompt_mask = left_pad(batch.prompts, pad)  # (B, P)
    responses, response_mask, _ = right_pad([()] * len(batch), batch.responses, pad)  # (B, R)
    ids, mask = torch.cat([prompts, responses], 1), torch.cat([prompt_mask.bool(), response_mask], 1)  # (B, P + R)
    tokens = response_mask.sum().item()
    for start in range(0, len(batch), loop.rows):
        part = slice(start, start + loop.rows)
        with loop.autocast():
            logprobs, entropy = _score(loop, ids[part].to(device), mask[part].to(device), responses.shape[1])
        loss = _loss(loop, logprobs, entropy, batch.advantages[part].to(device), batch.has_signal[part].to(device))
        chosen = response_mask[part].to(device)
        (torch.where(chosen, loss, 0.0).sum() / tokens).backward()


def _score(loop: Loop, ids: Tensor, mask: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies (b, R) of the last `width` tokens of each row."""
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    output = loop.model(
        input_ids=ids, attention_mask=mask.long(), position_ids=positions, use_cache=False, logits_to_keep=width + 1
    )
    logits = output.logits[:, :-1].float() / loop.config.sampling.temperature  # (b, R, V)
    distribution = logits.log_softmax(-1)
    logprobs = distribution.gather(-1, ids[:, -width:, None]).squeeze(-1)
    return logprobs, -(distribution.exp() * distribution).sum(-1)


def _loss(loop: Loop, logprobs: Tensor, entropy: Tensor, advantages: Tensor, has_signal: Tensor) -> Tensor:
    """Return the loss (b, R) of each response token."""
    config = loop.config.update
    ratio = (logprobs - logprobs.detach()).exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    gain = torch.minimum(advantages[:, None] * ratio, advantages[:, None] * clipped)
    return -gain - config.entropy_coef * entropy * has_signal[:, None]
