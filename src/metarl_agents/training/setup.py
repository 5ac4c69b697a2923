"""Everything a training step needs, built once: `Run`.

What lives here: the order in which a run comes to life (check, accelerator, policy, critic, reference, optimizer,
resume). What does not: the loop (`trainer.py`) and the update (`update.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metarl_agents.advantages import RunningMean
from metarl_agents.config import Config
from metarl_agents.envs.base import MakeEnv
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.policy.mode import recompute_activations
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.processes import Watchdog
from metarl_agents.policy.reference import Reference
from metarl_agents.policy.schedules import Schedule
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.sharding import Sharding, build_sharding
from metarl_agents.policy.value import SeparateCritic, build_critic
from metarl_agents.rollout.tasks import TaskStream, load_task_list
from metarl_agents.tracking import RunLogger
from metarl_agents.training.checkpoint import Progress, load_optimizer, read_critic, read_progress
from metarl_agents.training.credit import needs_values
from metarl_agents.training.description import describe_run_folder, explain_changes
from metarl_agents.training.population import Population
from metarl_agents.training.snapshots import open_population
from metarl_agents.training.start import start_run


@dataclass
class Run:
    """The living parts of a training run."""

    config: Config
    make_env: MakeEnv
    accelerator: Any
    policy: Policy
    sharding: Sharding
    schedule: Schedule
    reference: Reference | None
    tasks: TaskStream
    task_lists: dict[str, list[int] | None]
    output_dir: Path
    logger: RunLogger
    progress: Progress
    watchdog: Watchdog
    baseline: RunningMean = field(default_factory=RunningMean)
    population: Population | None = None
    """Whom the agent trains against, where that is not left to the environment."""
    unmerged: str | None = None
    """Why `merge_and_save` left no merged model."""
    results: dict[str, EvaluationResult] = field(default_factory=dict)
    """Of the evaluations `before` and `after` training, as far as this process made them."""
    explained: set[str] = field(default_factory=set)
    """What the user has been told once."""

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self.accelerator.device

    @property
    def uses_critic(self) -> bool:
        """Whether the estimator reads a critic."""
        return needs_values(self.config.credit)

    @property
    def scorer(self) -> nn.Module:
        """The scorer as training calls it."""
        return self.sharding.scorer

    @property
    def plain_scorer(self) -> TokenScorer:
        """The scorer without data-parallel wrappers."""
        return self.sharding.plain_scorer

    def sum_over_ranks(self, values: Tensor) -> Tensor:
        """Add a tensor over all processes."""
        return self.accelerator.reduce(values.to(self.device, _wide(self.device)), reduction="sum").cpu()

    def max_over_ranks(self, values: Tensor) -> Tensor:
        """Return the elementwise maximum over all processes."""
        gathered = self.accelerator.gather(values.to(self.device, _wide(self.device)).flatten()[None])
        return gathered.reshape(-1, values.numel()).max(dim=0).values.cpu()


def build_run(
    config: Config, make_env: MakeEnv, policy: Policy | None, output_dir: Path, resume: Path | None, accelerator: Any
) -> Run:
    """Bring a run to life, from a checkpoint where `resume` names one.

    Raises:
        ConfigError: the settings do not fit the machine, the model or the environment.
        CheckpointError: the checkpoint cannot be read.
    """
    task_lists = load_task_list(config.trial.tasks)
    sharding = build_sharding(accelerator, config.update.max_grad_norm)
    start = start_run(config, make_env, policy, output_dir, resume, accelerator)
    policy, reference = start.policy, start.reference
    _check_fits(config, policy)
    critic = build_critic(config.update.critic, policy.model) if needs_values(config.credit) else None
    if resume is not None and critic is not None:
        read_critic(critic, resume)
    if config.model.gradient_checkpointing:
        recompute_activations(policy.model)
        if isinstance(critic, SeparateCritic):
            recompute_activations(critic.backbone)
    sharding.prepare(TokenScorer(policy.model, critic), partial(_optimizer, config))
    schedule = Schedule(
        config.update.lr_scheduler_type,
        sharding.optimizer,
        warmup_steps=config.update.warmup_steps,
        total_steps=config.run.max_steps * config.update.updates_per_batch,
    )
    progress, baseline = Progress(), RunningMean()
    if resume is not None:
        progress = read_progress(resume)
        load_optimizer(resume, sharding)
        schedule.go_to(progress.optimizer_steps)
        baseline.load_state_dict(progress.baseline or {"mean": None})
    if reference is not None:
        reference.lay_out(sharding)
    logger = RunLogger(
        output_dir,
        report_to=tuple(config.run.report_to),
        total_steps=config.run.max_steps,
        is_main=accelerator.is_main_process,
    )
    for note in start.notes:
        logger.message(note)
    run = Run(
        config=config,
        make_env=make_env,
        accelerator=accelerator,
        policy=policy,
        sharding=sharding,
        schedule=schedule,
        reference=reference,
        tasks=TaskStream(config.run.seed, config.trial.tasks_per_step, task_lists["train"]),
        task_lists=task_lists,
        output_dir=output_dir,
        logger=logger,
        progress=progress,
        watchdog=Watchdog(accelerator, config.run.collective_timeout_s),
        baseline=baseline,
    )
    _open_folder(run, resumed=resume is not None)
    run.population = open_population(run, resume)
    return run


def _open_folder(run: Run, *, resumed: bool) -> None:
    """Describe the run in its folder; a resumed one forgets what was logged after its checkpoint."""
    if resumed:
        run.logger.truncate(run.progress.step, run.progress.log_sizes)
        explain_changes(run)
    describe_run_folder(run)


def _check_fits(config: Config, policy: Policy) -> None:
    trainable = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ConfigError("the model has no trainable weights: a loaded adapter must be trainable.")
    narrow = {str(p.dtype).removeprefix("torch.") for p in trainable if p.dtype in (torch.bfloat16, torch.float16)}
    if narrow:
        raise ConfigError(
            f"`dtype` is {narrow.pop()}, in which a step of {config.update.learning_rate:g} rounds away and the model "
            "would not learn: keep `--dtype float32` and let the launcher compute in bf16 (`mixed_precision: bf16`), "
            "or add `--use_peft`."
        )
    fit_context(config, policy)


def fit_context(config: Config, policy: Policy) -> None:
    """Lower `max_prompt_tokens` to what the model's context leaves beside a response.

    Raises:
        ConfigError: the context leaves nothing.
    """
    sampling, context = config.sampling, policy.context_length
    if context is not None and sampling.max_new_tokens_per_turn >= context:
        raise ConfigError(
            f"`max_new_tokens_per_turn` is {sampling.max_new_tokens_per_turn}, but this model's whole context is "
            f"{context} tokens: lower it."
        )
    # What the model cannot attend to does not fit, whatever the flag says.
    if context is not None:
        sampling.max_prompt_tokens = min(sampling.max_prompt_tokens, context - sampling.max_new_tokens_per_turn)


def _optimizer(config: Config, scorer: TokenScorer) -> torch.optim.Optimizer:
    update = config.update
    groups: list[dict[str, Any]] = [
        {"params": [p for p in scorer.model.parameters() if p.requires_grad], "lr": update.learning_rate}
    ]
    if scorer.critic is not None:
        groups.append({"params": list(scorer.critic.parameters()), "lr": update.critic_learning_rate})
    betas = (update.adam_beta1, update.adam_beta2)
    return torch.optim.AdamW(groups, betas=betas, weight_decay=update.weight_decay)


def _wide(device: torch.device) -> torch.dtype:
    """Counts are summed in fp64; Apple's GPUs know fp32 only."""
    return torch.float32 if device.type == "mps" else torch.float64
