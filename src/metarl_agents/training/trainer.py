"""train(): the loop. Sample, credit, update, log; evaluation and checkpoints are visible lines in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from metarl_agents.config import Config
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import environment_factory, environment_workers
from metarl_agents.errors import ConfigError, NonFiniteError
from metarl_agents.evaluation.evaluate import evaluate
from metarl_agents.evaluation.games import examine_games
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.expect import expect, expect_builder, wrong
from metarl_agents.policy.adapters import add_adapters, load_saved_weights
from metarl_agents.policy.loading import check_model_name
from metarl_agents.policy.lora_targets import check_lora_targets
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.processes import check_launch, start_processes
from metarl_agents.policy.sampling import Sampling
from metarl_agents.rollout import PolicySpeaker, collect_trials
from metarl_agents.tracking import trial_record
from metarl_agents.training.batch import TrialBatch, collate
from metarl_agents.training.checkpoint import read_progress
from metarl_agents.training.credit import Credit, assign_credit, check_functions, drop_crashed_groups, tabulate
from metarl_agents.training.ending import agree_on_finite, broken_off, goes_on, has_learned, verdict
from metarl_agents.training.interrupt import StopRequest
from metarl_agents.training.logbook import log_step
from metarl_agents.training.populating import meet_listed
from metarl_agents.training.run_folder import agree_on_output_dir, saved_result
from metarl_agents.training.saving import finish_run, save_checkpoint, save_model_card
from metarl_agents.training.settling import settle
from metarl_agents.training.setup import Run, build_run
from metarl_agents.training.snapshots import tend_population
from metarl_agents.training.update import score_values, update_policy
from metarl_agents.types import Response, Trial


@dataclass
class TrainResult:
    """What a training run leaves."""

    output_dir: Path
    before: EvaluationResult | None
    """On the fixed test tasks, before training; None where `eval_tasks` was skipped."""
    after: EvaluationResult | None
    """The same after training; None where the run was interrupted."""
    interrupted: bool
    steps: int
    learned: bool = True
    """False where nothing was learned: no step took an update, or none did from some step on because trials crashed,
    prompts did not fit or numbers were not finite. A recipe's exit status is then 3."""
    ending: str = ""
    """On the steps that taught nothing, and why; "" where all took an update."""


def train(
    make_env: MakeEnv | None = None, config: Config | None = None, *, policy: Policy | None = None, **settings: Any
) -> TrainResult:
    """Train a language-model agent by (meta) reinforcement learning.

    One step: play G trials of each task (`rollout/`), turn rewards into one advantage per turn (`advantages/`),
    take a policy-gradient step on exactly the tokens that were sampled (`training/update.py`).

    Args:
        make_env: builds one environment, for example the class itself; default: what `env` names.
        config: all settings; or give them by name, as in `train(MyEnv, max_steps=50, num_episodes=3)`.
        policy: a loaded policy, trained in place; default: what `model_name_or_path` names.
        settings: any field of `config.py`, by name; they win over `config`.

    Returns:
        Where the run is, the evaluations before and after, and whether anything was learned.

    Raises:
        ConfigError: a setting is wrong.
        CheckpointError: a checkpoint cannot be written or read.

    Source: LaMer, arXiv 2512.16848, Algorithm 1.
    """
    _check_arguments(make_env, config, policy)
    config = settle(config, settings, make_env, policy)
    config.check()
    check_functions(config.credit)
    draws = Sampling.for_training(config).describe()
    check_launch(config.trial.tasks_per_step, halve_on_oom=config.update.halve_on_oom)
    if policy is None:
        check_model_name(config.model)
        check_lora_targets(config.model)
    if make_env is None:
        make_env = environment_factory(config.trial)
    make_env = meet_listed(config, make_env)
    accelerator = start_processes(config.run.collective_timeout_s)
    output_dir, resume, is_over = agree_on_output_dir(config, accelerator)
    if is_over:
        return _already_over(config, policy, output_dir, resume)
    run = build_run(config, make_env, policy, output_dir, resume, accelerator)
    workers = environment_workers(run.make_env, config.trial)
    with StopRequest() as stop, run.logger, run.watchdog, workers as run.make_env:
        run.logger.message(f"Training draws: {draws}")
        before = _before(run) if resume is None else saved_result(output_dir, "before")
        try:
            while run.progress.step < config.run.max_steps:
                step = run.progress.step
                started = time.perf_counter()
                trials, generating = sample_trials(run, step)
                sampled = time.perf_counter()
                batch, credit = make_batch(run, trials)
                stats = credit.stats | update_policy(run, batch, step)
                updated = time.perf_counter()
                run.progress.step += 1
                seconds = {"generate": generating, "env": sampled - started - generating, "train": updated - sampled}
                log_step(run, trials, credit, stats, seconds)
                if not goes_on(run, batch):
                    break
                tend_population(run)
                _validate_if_due(run)
                # Processes agree, so that none waits for another that has left.
                if float(run.max_over_ranks(torch.tensor(float(stop.asked)))):
                    return _interrupted(run, before, stop.resume_command(run.output_dir))
                if _due(run.progress.step, config.run.save_steps):
                    save_checkpoint(run)
        except NonFiniteError as error:
            return _broken_off(run, before, error)
        return _finished(run, before)


def _check_arguments(make_env: Any, config: Any, policy: Any) -> None:
    if make_env is not None:
        expect_builder("make_env", make_env)
    if config is not None:
        expect(
            "config", config, Config, "a `Config`; settings are also taken by name, as in `train(MyEnv, max_steps=50)`"
        )
    if isinstance(policy, str):
        raise wrong("policy", policy, "a loaded `Policy`; a model is named by `model_name_or_path`")


class _TimedSpeaker(PolicySpeaker):
    """Counts the seconds that the policy speaks; the rest of a rollout is environments and prompts."""

    seconds = 0.0

    def generate(self, prompts: Sequence[tuple[int, ...]], call: int) -> list[Response]:
        started = time.perf_counter()
        responses = super().generate(prompts, call)
        self.seconds += time.perf_counter() - started
        return responses


def sample_trials(run: Run, step: int) -> tuple[list[Trial], float]:
    """Play this process's groups of a training step; also return the seconds that were spent on generation.

    Raises:
        NonFiniteError: the policy's outputs are no finite numbers, on this process or another.
    """
    accelerator, config = run.accelerator, run.config
    # A group never crosses processes, so advantages need no communication.
    seeds = run.tasks.take(step)[accelerator.process_index :: accelerator.num_processes]
    sampling = Sampling.for_training(config)
    make_env = run.make_env
    if run.population is not None:
        rank, world = accelerator.process_index, accelerator.num_processes
        make_env = run.population.seat(
            make_env, step, config.trial.tasks_per_step, rank, world, config.trial.env_timeout_s
        )
    speaker = _TimedSpeaker(run.policy, sampling, config.run.seed, step, accelerator.process_index)
    run.watchdog.enter(f"sampling of step {step + 1}")
    trials, fault = [], None
    with run.sharding.sampling(run.policy):
        try:
            trials = collect_trials(
                speaker,
                make_env,
                seeds,
                config.trial,
                group_size=config.trial.group_size,
                max_prompt_tokens=config.sampling.max_prompt_tokens,
                max_new_tokens=sampling.max_new_tokens,
            )
        except NonFiniteError as error:
            fault = str(error)
    agree_on_finite(run, fault is None, fault or "the outputs of another process are no finite numbers.")
    return trials, speaker.seconds


def make_batch(run: Run, trials: list[Trial]) -> tuple[TrialBatch, Credit]:
    """Turn trials into rows with advantages; groups with a crashed trial are left out."""
    run.watchdog.enter(f"update of step {run.progress.step + 1}")
    whole = drop_crashed_groups(trials)
    table = tabulate(whole, run.config.credit)
    values = None
    if run.uses_critic:
        blank = torch.zeros(len(table))
        values = score_values(run, collate(whole, blank, blank, blank.bool(), run.policy.pad_id))
        table = table.with_values(values)
    credit = assign_credit(table, run.config.credit, run.baseline, run.sum_over_ranks)
    batch = collate(whole, credit.advantages, table.returns, credit.has_signal, run.policy.pad_id)
    if values is not None:
        batch = replace(batch, old_values=values)
    return batch, credit


def _evaluate(run: Run, name: str) -> EvaluationResult | None:
    """Measure the policy on the fixed test tasks."""
    config = run.config.run
    result = _examine(run, "test", config.eval_tasks, f"evaluation {name} training", name, samples=config.eval_samples)
    run.results[name] = result
    run.logger.log(run.progress.step, result.metrics(), prefix="test")
    return result


def _before(run: Run) -> EvaluationResult | None:
    result = _evaluate(run, "before")
    _keep(run, "before")
    return result


def _keep(run: Run, name: str) -> None:
    """Write a result to `eval/<name>.json`."""
    if not run.accelerator.is_main_process:
        return
    file = run.output_dir / "eval" / f"{name}.json"
    try:
        run.results[name].dated().to_json(file)
    except OSError as error:  # a full disk; the result is logged and printed all the same
        run.logger.message(f"Cannot write {file} ({error.strerror}): going on without it.")


def _frame_games(run: Run, result: EvaluationResult) -> None:
    """Add floor, ceiling and statistics to the result of games: seconds to minutes, on the main process."""
    if not (run.accelerator.is_main_process and result.meta.get("games")):
        return
    try:
        examine_games(result, run.config.trial)
    except (Exception, SystemExit) as error:  # a user's game may fail at any time; the model is trained
        run.logger.message(f"What was won in games is not summed up ({type(error).__name__}: {error}).")


def _examine(
    run: Run,
    split: str,
    num_tasks: int,
    phase: str,
    label: str,
    *,
    samples: int = 0,
    on_trials: Callable[[list[Trial]], None] | None = None,
) -> EvaluationResult:
    """Play a split's fixed tasks with the weights as they are; `phase` is what the watchdog calls it."""
    run.watchdog.enter(phase)
    with run.sharding.sampling(run.policy):
        result = evaluate(
            run.policy,
            run.make_env,
            run.config,
            split=split,
            num_tasks=num_tasks,
            samples=samples,
            label=label,
            listed=run.task_lists[split],
            accelerator=run.accelerator,
            step=run.progress.step,
            on_trials=on_trials,
            on_played=lambda: run.watchdog.enter(f"result of the {phase}"),
        )
    note = result.meta.get("fewer_tasks")
    if note and note not in run.explained:
        run.explained.add(note)
        run.logger.message(note)
    return result


def _validate_if_due(run: Run) -> None:
    """Evaluate on validation tasks every `eval_steps`; a best result so far is saved at once."""
    config, progress = run.config.run, run.progress
    if not (config.eval_validation_tasks and _due(progress.step, config.eval_steps)):
        return
    started = time.perf_counter()
    result = _examine(
        run,
        "validation",
        config.eval_validation_tasks,
        f"validation after step {progress.step}",
        "validation",
        on_trials=lambda trials: _record_trials(run, trials, "validation"),
    )
    metrics = result.metrics()
    run.logger.log(progress.step, metrics | {"time/eval": time.perf_counter() - started}, prefix="eval")
    value = metrics.get(config.metric_for_best_model)
    if value is not None and (progress.best_metric is None or value > progress.best_metric):
        progress.best_metric, progress.best_step = value, progress.step
        if config.load_best_model_at_end:
            save_checkpoint(run)


def _record_trials(run: Run, trials: list[Trial], split: str) -> None:
    records = [trial_record(t, run.policy.decode_raw, step=run.progress.step, split=split) for t in trials]
    run.logger.trials(records, split)


def _interrupted(run: Run, before: EvaluationResult | None, command: str) -> TrainResult:
    save_checkpoint(run)
    run.logger.message(f"Stopped after step {run.progress.step} and saved. Resume with: {command}")
    return TrainResult(run.output_dir, before, None, True, run.progress.step)


def _broken_off(run: Run, before: EvaluationResult | None, error: NonFiniteError) -> TrainResult:
    """End a run whose numbers are no longer finite: what has been saved stays, nothing is saved over it."""
    if error.of_one_process and run.accelerator.num_processes > 1:
        raise error  # the others do not know of it
    sentence = broken_off(run, error)
    run.logger.message(sentence)
    return TrainResult(run.output_dir, before, None, False, run.progress.step, learned=False, ending=sentence)


def _finished(run: Run, before: EvaluationResult | None) -> TrainResult:
    finish_run(run)
    after = _evaluate(run, "after")
    _frame_games(run, after)
    save_model_card(run)  # now with both results
    # The last file of a run: whoever resumes it later knows by it that nothing is left to do.
    _keep(run, "after")
    learned, ending = verdict(run)
    if ending:
        run.logger.message(ending)
    if run.unmerged:
        raise ConfigError(run.unmerged)
    return TrainResult(run.output_dir, before, after, False, run.progress.step, learned, ending)


def _already_over(config: Config, policy: Policy | None, output_dir: Path, resume: Path) -> TrainResult:
    """Return the result of a run that has taken all its steps; a policy that was given gets its final weights."""
    after = saved_result(output_dir, "after")
    progress = read_progress(resume)
    is_finished = after is not None and after.step == progress.step
    if policy is not None:
        if config.model.use_peft:
            add_adapters(policy, config.model, config.run.seed)
        load_saved_weights(policy, output_dir if is_finished else resume)
    before = saved_result(output_dir, "before")
    after = after if is_finished else None
    return TrainResult(output_dir, before, after, False, progress.step, has_learned(progress))


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
