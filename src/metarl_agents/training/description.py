"""`config.yaml` and `versions.json` of a run: written when it starts, compared with a later start that resumes it."""

from __future__ import annotations

import json
import platform
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metarl_agents._version import __version__
from metarl_agents.config import Config, EvalSamplingConfig, TrialConfig
from metarl_agents.errors import CheckpointError
from metarl_agents.training.checkpoint import CRITIC_FOLDER, checkpoint_folder, read_progress
from metarl_agents.training.credit import needs_values

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

CONFIG_FILE = "config.yaml"
VERSIONS_FILE = "versions.json"

_FREE = {"resume_from_checkpoint", "output_dir", "max_steps", "dry_run", "run_name"}
_WITHOUT_EFFECT = ("model_name_or_path", "gguf_file")
"""The weights of a resumed run are those of its checkpoint."""
_ADAPTERS = ("lora_r", "lora_alpha", "lora_target_modules")
FITTED = {"max_prompt_tokens", "env", "env_kwargs", "lora_target_modules"}
"""What a run fits to its model and environment before it writes its settings."""
_TOTAL = ("max_steps", "updates_per_batch")
"""Their product is the length of the schedules."""
_OF_TRAINING = {"group_size", "tasks_per_step", "penalty_scope", "length_penalty", "env_workers", "env_timeout_s"}
_EVALUATED = {item.name for part in (TrialConfig, EvalSamplingConfig) for item in fields(part)} - _OF_TRAINING | {
    "enable_thinking", "max_prompt_tokens", "max_new_tokens_per_turn", "eval_tasks", "eval_samples",
}  # fmt: skip


def describe_run_folder(run: Run) -> None:
    """Write `config.yaml` and `versions.json`.

    Raises:
        CheckpointError: the disk refuses.
    """
    import yaml

    if not run.accelerator.is_main_process:
        return
    try:
        text = yaml.safe_dump(run.config.flat(), sort_keys=False)
        (run.output_dir / CONFIG_FILE).write_text(text, encoding="utf-8")
        (run.output_dir / VERSIONS_FILE).write_text(json.dumps(_facts(run), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(
            f"cannot write into {run.output_dir} ({error.strerror}): free some space or choose another `--output_dir`."
        ) from None


def _facts(run: Run) -> dict[str, Any]:
    return {
        "seed": run.config.run.seed,
        "versions": versions(),
        "device": str(run.device),
        # Set by the launcher and so in no setting, although they decide draws and sums.
        "num_processes": run.accelerator.num_processes,
        "mixed_precision": run.accelerator.mixed_precision,
    }


def versions() -> dict[str, str]:
    """Return the versions that decide a run's numbers."""
    own = {"metarl_agents": __version__, "python": platform.python_version()}
    return own | {name: metadata.version(name) for name in ("accelerate", "numpy", "torch", "transformers")}


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings that a run was last started with; {} where they cannot be read."""
    import yaml

    try:
        return yaml.safe_load((folder / CONFIG_FILE).read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError):
        return {}


def changed_settings(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return {setting: (before, now)}; a setting that an older version did not have is no difference."""
    names = sorted(name for name in now if name not in _FREE and name in before and before[name] != now[name])
    return {name: (before[name], now[name]) for name in names}


def check_fits(config: Config, resume: Path) -> None:
    """Refuse settings that decide which weights and opponents there are, where they differ from the checkpoint's.

    Raises:
        CheckpointError: with the setting, both values and what to do.
    """
    changed = changed_settings(read_settings(resume.parent), config.flat())
    fixed = ["use_peft"]
    fixed += [name for name in _ADAPTERS if config.model.use_peft and None not in changed.get(name, ())]
    fixed += ["critic"] if needs_values(config.credit) else []
    # Who is in the pool, and what is known of them by period, is the checkpoint's.
    fixed += ["opponents", "snapshot_every"] if read_progress(resume).population and config.population.is_on else []
    for name in fixed:
        if name in changed:
            before, now = changed[name]
            raise CheckpointError(
                f"`{name}` is {now!r}, but {resume} was trained with {before!r}, and what it holds depends on it: "
                f"resume with the earlier value, or start a new run from it with `--model_name_or_path {resume}`."
            )
    has_critic = (resume / CRITIC_FOLDER).is_dir()
    if has_critic != needs_values(config.credit):
        raise CheckpointError(
            f"{resume} does not fit this run: it has {'a' if has_critic else 'no'} critic, and `--advantages "
            f"{config.credit.advantages}` trains {'none' if has_critic else 'one'}; resume with the `--advantages` of "
            f"its run, or start a new run from it with `--model_name_or_path {resume}`."
        )


def explain_changes(run: Run) -> None:
    """Say what differs from the run's last start and what becomes of it; every process must call it."""
    from accelerate.utils import broadcast_object_list

    answer: list[Any] = [None]
    if run.accelerator.is_main_process:
        before = read_settings(run.output_dir)
        lines, answer = _differences(run, before), [_lost_best(run, before)]
        for line in [*lines, *filter(None, answer)]:
            run.logger.message(line)
    if run.accelerator.num_processes > 1:
        broadcast_object_list(answer)
    if answer[0]:
        run.progress.best_step = run.progress.best_metric = None


def _differences(run: Run, before: dict[str, Any]) -> list[str]:
    changed = changed_settings(before, run.config.flat())
    ignored = [name for name in _WITHOUT_EFFECT if changed.pop(name, None) is not None]
    lines = []
    if changed:
        told = ", ".join(f"{name} {now!r} (was {old!r})" for name, (old, now) in changed.items())
        lines.append(
            f"Resuming with other settings than the run was started with, from step {run.progress.step + 1} on: {told}."
        )
    if ignored:
        names = " and ".join(f"`{name}`" for name in ignored)
        lines.append(f"The weights are those of the checkpoint: the new {names} of this start does not change them.")
    measured = [name for name in changed if name in _EVALUATED]
    if measured and (run.output_dir / "eval" / "before.json").is_file():
        lines.append(f"eval/before.json was measured with the earlier {', '.join(measured)}: compare with care.")
    return [*lines, *_schedule(run, before), *_machine(run)]


def _schedule(run: Run, before: dict[str, Any]) -> list[str]:
    """Say that the rate follows the new total, where it depends on it."""
    name, now = run.config.update.lr_scheduler_type, run.config.flat()
    new = [
        f"`{part}` is {now[part]} (was {before[part]})" for part in _TOTAL if before.get(part, now[part]) != now[part]
    ]
    if name.startswith("constant") or not new:
        return []
    return [
        f"{' and '.join(new)}: the {name} schedule follows the new total from here on, and step "
        f"{run.progress.step + 1} has learning rate {run.schedule.rates[0]:g}."
    ]


def _machine(run: Run) -> list[str]:
    """Say that sums and draws may differ, where versions or processes are others."""
    try:
        facts = json.loads((run.output_dir / VERSIONS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []

    def flat(values: dict[str, Any]) -> dict[str, Any]:
        return {**values, **values.get("versions", {})}

    old, new = flat(facts), flat(_facts(run))
    told = [
        f"{name} {new[name]} (was {old[name]})"
        for name in new
        if name not in ("versions", "seed", "metarl_agents") and name in old and old[name] != new[name]
    ]
    return [f"The run goes on, but not bit for bit as before: {', '.join(told)}."] if told else []


def _lost_best(run: Run, before: dict[str, Any]) -> str | None:
    """Return why the best validation so far cannot be the final model; None where it can, or is not asked for."""
    config, step = run.config.run, run.progress.best_step
    if not config.load_best_model_at_end or step is None:
        return None
    if before.get("metric_for_best_model", config.metric_for_best_model) != config.metric_for_best_model:
        return f"The best model is looked for anew: `metric_for_best_model` was {before['metric_for_best_model']}."
    if not checkpoint_folder(run.output_dir, step).is_dir():
        return f"The best model is looked for anew: the checkpoint of step {step}, the best so far, was not kept."
    return None
