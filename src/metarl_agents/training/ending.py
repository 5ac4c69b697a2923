"""How a run ends: which steps taught nothing and why, when it must stop, and whether it learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from metarl_agents.errors import NonFiniteError
from metarl_agents.training.batch import TrialBatch
from metarl_agents.training.checkpoint import Progress, list_checkpoints
from metarl_agents.training.update import outputs_are_finite

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

EQUAL, TOO_LONG, CRASHED, NON_FINITE = "equal", "too_long", "crashed", "non_finite"
PATIENCE = 10
"""Steps in a row without a finite gradient after which a run stops."""
_FEW = 3
"""Such steps at the end of a run that may be an accident are fewer."""
_PROBED_ROWS = 8
_MUCH = 0.5
"""Beyond this share of lost episodes or crashed trials, equal rewards are their consequence."""


def count_step(run: Run, metrics: dict[str, float]) -> str | None:
    """Note what a step taught; return why it took no update, or None where it took one."""
    progress, cause = run.progress, _cause(metrics)
    progress.longest_prompt = max(progress.longest_prompt, int(metrics.get("prompt/max_length", 0)))
    if cause is None:
        progress.idle_since_update = {}
        return None
    for counts in (progress.idle, progress.idle_since_update):
        counts[cause] = counts.get(cause, 0) + 1
    return cause


def _cause(metrics: dict[str, float]) -> str | None:
    if metrics.get("update/steps"):
        return None
    if metrics.get("update/non_finite"):
        return NON_FINITE
    needed = _MUCH if metrics.get("num_rows") else 1e-9  # without a row, whatever has happened at all explains it
    if metrics.get("prompt/too_long_ratio", 0) >= needed:
        return TOO_LONG
    failures = max(metrics.get("env/failure_rate", 0), metrics.get("population/failure_rate", 0))
    return CRASHED if failures >= needed else EQUAL


def goes_on(run: Run, batch: TrialBatch) -> bool:
    """Return whether another step makes sense; every process must call it after each step.

    Raises:
        NonFiniteError: the policy's weights, or its outputs, are no finite numbers. Nothing of it may be saved.
    """
    counts = run.progress.idle_since_update
    if counts and NON_FINITE not in counts:
        return True  # nothing has moved
    rows = range(0, len(batch), max(1, len(batch) // _PROBED_ROWS))[:_PROBED_ROWS]
    finite = outputs_are_finite(run, batch, rows)
    agree_on_finite(run, finite and run.sharding.is_finite(), "the policy's weights or outputs are no longer finite.")
    return counts.get(NON_FINITE, 0) < PATIENCE


def agree_on_finite(run: Run, finite: bool, fault: str) -> None:
    """Raise NonFiniteError on all processes where `finite` is False on one of them."""
    if float(run.max_over_ranks(torch.tensor(float(not finite)))):
        error = NonFiniteError(fault)
        error.of_one_process = False
        raise error


def broken_off(run: Run, error: NonFiniteError) -> str:
    """Return the sentence on a run that stopped because of numbers that are not finite."""
    kept = list_checkpoints(run.output_dir)
    rate = run.config.update.learning_rate
    lower = f"a lower `--learning_rate` than {rate:g}"
    if kept:
        way = (
            f"{kept[-1]} holds the last weights that were saved while they were finite: go on from there with {lower} "
            f"(`--output_dir {run.output_dir} --resume_from_checkpoint latest`)."
        )
    else:
        way = f"No checkpoint was written before: start again with {lower}."
    return f"Training stopped after step {run.progress.step}: {error} No model was saved from then on. {way}"


def verdict(run: Run) -> tuple[bool, str]:
    """Return whether the run learned until its end, and a sentence on the steps that taught nothing; "" where none."""
    progress, last = run.progress, run.progress.idle_since_update
    idle = sum(progress.idle.values())
    if not idle:
        return True, ""
    if has_learned(progress):
        return True, f"{idle} of {progress.step} steps took no update. {_reasons(run, progress.idle)}"
    if not progress.optimizer_steps:
        return False, f"Nothing was trained: none of {idle} steps took an update. {_reasons(run, progress.idle)}"
    return False, f"Nothing was learned after step {progress.step - sum(last.values())}. {_reasons(run, last)}"


def has_learned(progress: Progress) -> bool:
    """Return whether a run learned until where it is."""
    if not sum(progress.idle.values()):
        return True
    last = progress.idle_since_update
    lost, half = sum(last.values()), (progress.step + 1) // 2
    equal, broken = last.get(EQUAL, 0), last.get(NON_FINITE, 0)
    gave_up = broken >= min(_FEW, half) or lost - equal >= max(equal + 1, min(PATIENCE, half))
    return progress.optimizer_steps > 0 and not gave_up


def _reasons(run: Run, counts: dict[str, int]) -> str:
    """Return what kept steps from an update, the commonest cause first, and what to do about that one."""
    longest, limit = run.progress.longest_prompt, run.config.sampling.max_prompt_tokens
    facts = {
        EQUAL: "all groups had equal reward",
        TOO_LONG: f"prompts did not fit `max_prompt_tokens` {limit} (the longest has {longest})",
        CRASHED: "the environment or an opponent failed",
        NON_FINITE: "the gradient was not finite",
    }
    advice = {
        EQUAL: "easier or harder tasks, or larger groups, give groups that differ",
        TOO_LONG: prompt_advice(run, longest),
        CRASHED: "the errors stand in trajectories/train.jsonl, and `check_environment` shows what is wrong",
        NON_FINITE: "lower `--learning_rate`",
    }
    causes = sorted(counts, key=counts.__getitem__, reverse=True)
    listed = ", ".join(f"{facts[cause]} ({counts[cause]} step{'s' * (counts[cause] > 1)})" for cause in causes)
    return f"Reason: {listed}; {advice[causes[0]]}."


def prompt_advice(run: Run, longest: int) -> str:
    """Return what to do about prompts of `longest` tokens that do not fit."""
    return advice_on_length(longest, run.policy.context_length, run.config.sampling.max_new_tokens_per_turn)


def advice_on_length(longest: int, context: int | None, answer: int) -> str:
    """Return what to do about prompts of `longest` tokens that do not fit.

    >>> advice_on_length(900, None, 100)
    'raise `--max_prompt_tokens` to at least 900, or shorten what the environment writes'
    """
    if context is None or longest + answer <= context:
        return f"raise `--max_prompt_tokens` to at least {longest}, or shorten what the environment writes"
    return (
        f"the model's context of {context} tokens leaves {context - answer} beside an answer, so choose a model with a "
        "longer one, or shorten what the environment writes"
    )
