"""One batch of trials into optimizer steps.

Each optimizer step: split its rows by a token budget, let processes agree on the number of micro-batches (one with
fewer adds empty ones, never copies), divide by the global number of response tokens, clip, step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from metarl_agents.errors import ConfigError
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import Scores
from metarl_agents.training.batch import MicroBatch, TrialBatch
from metarl_agents.training.loss import Stats, policy_gradient_loss, value_loss

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

T = TypeVar("T")


def update_policy(run: Run, batch: TrialBatch, step: int) -> Stats:
    """Take `updates_per_batch` optimizer steps on `batch` and return summed statistics of this process.

    A step without a response token, or (at beta 0) without any non-zero advantage in the global batch, is skipped
    whole and counted in `update/skipped`; so is one whose gradient is not finite.
    """
    config = run.config.update
    parts = batch.parts(config.updates_per_batch, seed=run.config.run.seed + step)
    batch = _or_by_halves(run, lambda: _with_references(run, batch, need_old=len(parts) > 1))
    stats: Stats = {"update/skipped": (0, 1), "update/steps": (0, 1), "update/non_finite": (0, 1)}
    for part in parts:
        for name, (total, count) in _or_by_halves(run, partial(_optimizer_step, run, batch, part)).items():
            before = stats.get(name, (0.0, 0.0))
            counted = (before[0] + total, before[1] if name.startswith("update/") else before[1] + count)
            worst = (max(before[0], total), 1.0)
            stats[name] = worst if name.endswith("/max") else counted
    return stats


def _or_by_halves(run: Run, action: Callable[[], T]) -> T:
    """Return `action()`; where memory runs out and `halve_on_oom` is set, once more with micro-batches half as large.

    Raises:
        ConfigError: memory runs out, and halving is off or has been done.
    """
    try:
        return action()
    except torch.OutOfMemoryError:
        limit = run.config.update.max_tokens_per_micro_batch
        if not run.config.update.halve_on_oom or "memory" in run.explained:
            raise ConfigError(
                f"memory ran out in the update, with micro-batches of {limit} tokens: lower "
                "`--max_tokens_per_micro_batch`, or add `--gradient_checkpointing`, `--use_peft` or more GPUs; "
                "`--resume_from_checkpoint latest` goes on from the last checkpoint."
            ) from None
    # Out of the handler, whose traceback would keep the tensors of the failed pass alive.
    run.explained.add("memory")
    run.sharding.forget_gradients()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    run.config.update.max_tokens_per_micro_batch = max(1, limit // 2)
    run.logger.message(f"Memory ran out: going on with `max_tokens_per_micro_batch` {max(1, limit // 2)}, half of it.")
    return action()


def score_values(run: Run, batch: TrialBatch) -> Tensor:
    """Return the critic's prediction for every row, (B,) on the CPU."""
    values = torch.zeros(len(batch))
    for micro, scores in _score(run, batch, run.scorer):
        if len(micro.rows):
            values[micro.rows] = scores.values[: len(micro.rows)].cpu()
    return values


def outputs_are_finite(run: Run, batch: TrialBatch, rows: Sequence[int]) -> bool:
    """Whether the policy, and the critic where there is one, computes finite numbers for these rows of this process."""
    finite = True
    for micro, scores in _score(run, batch, run.scorer, rows):
        finite &= bool(scores.logprobs[micro.response_mask].isfinite().all())
        if scores.values is not None:
            finite &= bool(scores.values.isfinite().all())
    return finite


def _with_references(run: Run, batch: TrialBatch, *, need_old: bool) -> TrialBatch:
    """Add the log-probs of the policy that starts the batch and of the frozen reference, where they are used."""
    if need_old:
        batch = replace(batch, old_logprobs=_row_logprobs(run, batch, run.scorer))
    if run.reference is not None:
        with run.reference.scorer(run.scorer) as scorer:
            batch = replace(batch, reference_logprobs=_row_logprobs(run, batch, scorer))
    return batch


def _row_logprobs(run: Run, batch: TrialBatch, scorer: torch.nn.Module) -> list[Tensor]:
    rows: list[Tensor] = [torch.zeros(0)] * len(batch)
    for micro, scores in _score(run, batch, scorer):
        for index, row in enumerate(micro.rows.tolist()):
            rows[row] = scores.logprobs[index][micro.response_mask[index]].cpu()
    return rows


@torch.no_grad()
def _score(run: Run, batch: TrialBatch, scorer: torch.nn.Module, rows: Sequence[int] | None = None):  # noqa: ANN202
    """Yield (micro-batch, scores) over all rows, or over those given, without gradients."""
    for chosen, num_chunks in _agreed_split(run, batch, range(len(batch)) if rows is None else rows):
        micro = batch.micro_batch(chosen, run.device)
        with run.accelerator.autocast():
            yield micro, _forward(run, scorer, micro, num_chunks)


def _forward(run: Run, scorer: torch.nn.Module, micro: MicroBatch, num_chunks: int) -> Scores:
    draws = Sampling.for_training(run.config)
    rows = (micro.input_ids, micro.attention_mask, micro.response_mask)
    return scorer(*rows, draws.temperature, num_chunks, draws.filters)


def _agreed_split(run: Run, batch: TrialBatch, rows: Sequence[int]) -> list[tuple[list[int], int]]:
    """Split rows into micro-batches, as many as the process that needs most; the surplus is empty.

    With each goes the number of pieces its logits are made in, also that of the process that needs most: where
    weights are sharded, every use of the head is a meeting of all processes.
    """
    split = batch.split(rows, run.config.update.max_tokens_per_micro_batch)
    most = max(1, int(run.max_over_ranks(torch.tensor(float(len(split))))))
    split += [[]] * (most - len(split))
    chunks = torch.tensor([float(run.plain_scorer.num_chunks(batch.num_response_tokens(part))) for part in split])
    return [(part, int(agreed)) for part, agreed in zip(split, run.max_over_ranks(chunks).tolist(), strict=True)]


def _optimizer_step(run: Run, batch: TrialBatch, part: list[int]) -> Stats:
    config = run.config.update
    use_all = run.reference is not None or run.uses_critic
    # Rows of equal-return groups have no gradient: they count in the normaliser and cost no forward pass.
    active = part if use_all else [row for row in part if batch.has_signal[row]]
    by_token = config.loss_aggregation == "token_mean"
    units = batch.num_response_tokens(part) if by_token else len(part)
    signal = float(batch.advantages[part].count_nonzero()) + _critic_errors(batch, part)
    tokens, units, signal = run.sum_over_ranks(torch.tensor([batch.num_response_tokens(part), units, signal])).tolist()
    # The divergence from a reference has a gradient of its own.
    if tokens == 0 or (signal == 0 and run.reference is None):
        return {"update/skipped": (1, 0)}
    stats = _backward(run, batch, active, units, float(len(part)))
    return stats | _step_optimizer(run)


def _critic_errors(batch: TrialBatch, part: list[int]) -> float:
    """Return how many rows of `part` the critic predicts wrongly; 0 where there is none."""
    if batch.old_values is None:
        return 0.0
    return float((batch.old_values[part] != batch.returns[part]).sum())


def _backward(run: Run, batch: TrialBatch, rows: list[int], units: float, num_rows: float) -> Stats:
    """Accumulate the gradient of the global mean loss over `rows`; `units` is the global normaliser."""
    config, world = run.config.update, run.accelerator.num_processes
    global_rows = float(run.sum_over_ranks(torch.tensor(num_rows)))
    totals: Stats = {}
    splits = _agreed_split(run, batch, rows)
    for index, (chosen, num_chunks) in enumerate(splits):
        micro = batch.micro_batch(chosen, run.device)
        with run.sharding.micro_batch(last=index == len(splits) - 1):
            scores = _forward(run, run.scorer, micro, num_chunks)
            loss, stats = policy_gradient_loss(scores, micro, config)
            # Data-parallel training averages gradients over processes; the factor undoes that.
            loss = loss * (world / units)
            if scores.values is not None:
                row_weights = micro.response_mask.any(dim=1).float()
                old = scores.values.detach() if micro.old_values is None else micro.old_values
                critic = value_loss(scores.values, old, micro.returns, row_weights, config.value_clip)
                loss = loss + critic * (world / global_rows)
                stats["value_loss"] = (critic.item(), row_weights.sum().item())
            stats["loss"] = (loss.item() / world, 0.0)
            run.sharding.backward(loss)
        for name, (total, count) in stats.items():
            before = totals.get(name, (0.0, 0.0))
            worst = name.endswith("/max")
            totals[name] = (max(before[0], total), 1.0) if worst else (before[0] + total, before[1] + count)
    # Each process holds its share of one sum, so all of them together count as one.
    totals["loss"] = (totals["loss"][0], 1.0 / world)
    return totals


def _step_optimizer(run: Run) -> Stats:
    """Clip and step, unless the gradient is not finite."""
    norm = run.sharding.step()
    if not math.isfinite(norm):
        return {"update/non_finite": (1, 0), "update/skipped": (1, 0)}
    run.progress.optimizer_steps += 1
    run.schedule.go_to(run.progress.optimizer_steps)
    return {"grad_norm": (norm, 1.0), "update/steps": (1, 0)}
