"""One training step into metrics, on all processes, and into the run's files, on the main one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from metarl_agents.policy.agreement import agreement_bound
from metarl_agents.tracking import finish, group_statistics, summarize, trial_record
from metarl_agents.tracking.metrics import MAX_METRICS, count_seats
from metarl_agents.training.ending import EQUAL, NON_FINITE, PATIENCE, count_step, prompt_advice
from metarl_agents.training.loss import Stats
from metarl_agents.types import Trial

_MANY_ALONE = 0.25
"""Beyond this share of lone trials the user is told."""

if TYPE_CHECKING:
    from metarl_agents.training.credit import Credit
    from metarl_agents.training.setup import Run


def log_step(run: Run, trials: list[Trial], credit: Credit, stats: Stats, seconds: dict[str, float]) -> None:
    """Reduce, log and keep what a step showed; `run.progress.step` counts it already."""
    config, progress = run.config, run.progress
    seats = int(run.max_over_ranks(torch.tensor(float(count_seats(trials)))))
    sums = summarize(trials, num_episodes=config.trial.num_episodes, seats=seats) | group_statistics(trials)
    sums["num_rows"] = (float(len(credit.table)), 1.0)
    metrics = finish(reduce_stats(run, sums | _complete(stats, run)))
    progress.num_tokens += int(metrics.get("num_tokens", 0))
    progress.num_episodes += int(metrics.get("num_episodes", 0))
    progress.baseline = run.baseline.state_dict()
    if run.population is not None:
        metrics |= run.population.record(trials, progress.step, run.sum_over_ranks)
    _explain(run, metrics, count_step(run, metrics))
    if progress.step % config.run.logging_steps == 0:
        run.logger.log(progress.step, metrics | _speed(run, metrics, seconds))
    every = config.run.save_trajectories_steps
    if every and (progress.step % every == 0 or progress.step == 1):
        _record(run, trials, credit)


def reduce_stats(run: Run, stats: Stats) -> Stats:
    """Combine (sum, count) pairs over processes: sums and counts add up, maxima stay maxima."""
    names = sorted(stats)
    if run.accelerator.num_processes == 1:
        return {name: stats[name] for name in names}
    pairs = torch.tensor([stats[name] for name in names], dtype=torch.float64)
    added, highest = run.sum_over_ranks(pairs), run.max_over_ranks(pairs).reshape(-1, 2)
    largest = [name in MAX_METRICS or name.endswith("/max") for name in names]
    rows = [highest[i] if largest[i] else added[i] for i in range(len(names))]
    return {name: (row[0].item(), row[1].item()) for name, row in zip(names, rows, strict=True)}


def _complete(stats: Stats, run: Run) -> Stats:
    """Give every process the same names, whatever it did in this step."""
    names = ["loss", "grad_norm", "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean"]
    names += ["sampling/logp_difference/mean", "sampling/logp_difference/max"]
    names += ["kl"] if run.reference is not None else []
    names += ["value_loss"] if run.uses_critic else []
    return {name: (0.0, 0.0) for name in names} | stats


def _speed(run: Run, metrics: dict[str, float], seconds: dict[str, float]) -> dict[str, float]:
    tokens = metrics.get("num_tokens", 0.0)
    return {
        "learning_rate": run.schedule.rates[0],
        "time/generate": seconds["generate"],
        # While games wait for a model in the opponent's seat, it is that model's time and not the environments'.
        "time/env": max(0.0, seconds["env"] - metrics.get("time/opponents", 0.0)),
        "time/train": seconds["train"],
        "step_time": sum(seconds.values()),
        "tokens_per_second/generate": tokens / max(seconds["generate"], 1e-9),
        "tokens_per_second/update": tokens / max(seconds["train"], 1e-9),
        "rollout_step": run.progress.step,
        "optimizer_step": run.progress.optimizer_steps,
        "total_tokens": run.progress.num_tokens,
        "total_episodes": run.progress.num_episodes,
    }


def _explain(run: Run, metrics: dict[str, float], idle: str | None) -> None:
    """Say once what a reader of the curves would otherwise wonder about; `idle` is why the step took no update."""
    said = run.explained
    _explain_length(run, metrics)
    _explain_gap(run, metrics)
    if idle == NON_FINITE and "non_finite" not in said:
        said.add("non_finite")
        run.logger.message(
            f"Step {run.progress.step}: the gradient is not finite, so the optimizer step was skipped "
            f"(`update/non_finite`); after {PATIENCE} such steps in a row the run stops. Lower `--learning_rate`, or "
            "compute in fp32."
        )
    if idle == EQUAL and "equal" not in said:
        said.add("equal")
        run.logger.message(
            f"Step {run.progress.step}: all groups have equal reward, so there is nothing to learn from and the "
            "optimizer step was skipped (`update/skipped`). Easier or harder tasks give groups that differ."
        )
    if metrics.get("env/failure_rate", 0) > 0 and "crash" not in said:
        said.add("crash")
        run.logger.message(
            f"Step {run.progress.step}: the environment failed in {metrics['env/failure_rate']:.1%} of trials; their "
            "groups are left out (`env/failure_rate`; the errors stand in trajectories/*.jsonl)."
        )
    if metrics.get("population/failure_rate", 0) > 0 and "opponent" not in said:
        said.add("opponent")
        run.logger.message(
            f"Step {run.progress.step}: a model in the opponent's seat could not answer in "
            f"{metrics['population/failure_rate']:.1%} of trials; their groups are left out "
            "(`population/failure_rate`; the errors stand in trajectories/*.jsonl)."
        )
    is_split = run.config.population.opponent_grouping == "mixed" and run.config.credit.normalise_by_role
    alone = metrics.get("advantages/lone_frac", 0)
    if run.population is not None and is_split and alone > _MANY_ALONE and "alone" not in said:
        said.add("alone")
        run.logger.message(
            f"Step {run.progress.step}: {alone:.0%} of what trials did had nothing to be compared with "
            "(`advantages/lone_frac`): `opponent_grouping: mixed` gives the trials of a group different opponents, and "
            "`normalise_by_role` compares only those that met the same one. Larger groups help, or `stationary`."
        )


def _explain_length(run: Run, metrics: dict[str, float]) -> None:
    """Say once that prompts do not fit, and how long they are."""
    names = {
        "prompt/too_long_ratio": "of episodes ended because a prompt did not fit",
        "reflection/too_long_ratio": "of reflections were left out because their prompt did not fit",
    }
    lost = {name: text for name, text in names.items() if metrics.get(name, 0) > 0 and name not in run.explained}
    if not lost:
        return
    run.explained.update(lost)
    shares = " and ".join(f"{metrics[name]:.1%} {text} (`{name}`)" for name, text in lost.items())
    longest = int(metrics["prompt/max_length"])
    run.logger.message(
        f"Step {run.progress.step}: {shares}: `max_prompt_tokens` is {run.config.sampling.max_prompt_tokens}, and the "
        f"longest prompt has {longest} tokens even without history; {prompt_advice(run, longest)}."
    )


def _explain_gap(run: Run, metrics: dict[str, float]) -> None:
    """Say once that sampler and scorer disagree by more than rounding."""
    bound = agreement_bound(run.sharding.compute_dtype or run.policy.model.dtype)
    gap = metrics.get("sampling/logp_difference/mean", 0)
    if gap > bound and "gap" not in run.explained:
        run.explained.add("gap")
        run.logger.message(
            f"Step {run.progress.step}: sampled tokens and their scores differ by {gap:.2g} nats a token on average "
            f"(`sampling/logp_difference/mean`; at most {bound:g} is rounding), so updates are not on-policy. Likely "
            "causes: an attention kernel that treats padding differently (try `--attn_implementation eager` or sdpa), "
            "randomness in the model, or a mixture of experts in a narrow precision."
        )


def _record(run: Run, trials: list[Trial], credit: Credit) -> None:
    """Write this process's trials with returns and advantages; only the main process has a writer."""
    if not run.accelerator.is_main_process:
        return
    returns, advantages = credit.table.returns.tolist(), credit.advantages.tolist()
    crashed = {trial.group for trial in trials if trial.crashed}
    records, place = [], 0
    for trial in trials:
        rows = sum(1 for _ in trial.rows())
        kept = trial.group not in crashed
        span = slice(place, place + rows)
        records.append(
            trial_record(
                trial,
                run.policy.decode_raw,
                step=run.progress.step,
                split="train",
                returns=returns[span] if kept else None,
                advantages=advantages[span] if kept else None,
            )
        )
        place += rows if kept else 0
    run.logger.trials(records, "train")
