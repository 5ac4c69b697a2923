"""Contender `trl`: TRL's `GRPOTrainer` on single-turn prompts, set up to do the same work as fast as it can.

One optimizer step for each batch of samples (so that it needs no pass for old log-probabilities), token-mean loss, no
KL, no gradient checkpointing, no logging and no saving; its micro-batch is tuned by `benchmarks/speed.py`. Everything
else is TRL's default, but that the contender `trl_continuous` samples with the continuous batching of transformers.
Prompts are those that the other contenders read, from a file.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import fields
from typing import Any

import torch

from side_by_side.job import Job
from side_by_side.meter import ForcedLengths, Meter, watch


def measure(job: Job) -> dict[str, Any]:
    """Train all steps and return what each took."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    work = job.work
    tokenizer = AutoTokenizer.from_pretrained(job.folder)
    model = AutoModelForCausalLM.from_pretrained(job.folder, dtype=torch.float32)
    meter = Meter(ForcedLengths(work.response_tokens, work.response_sigma, work.max_response_tokens))
    watch(model, meter, tokenizer.eos_token_id)
    with tempfile.TemporaryDirectory() as folder:
        trainer, clock = build_trainer(job, model, tokenizer, meter, folder)
        loaded = meter.finish()["peak_gib"]
        trainer.train()
    return {
        "settings": {name: value for name, value in trainer.args.to_sanitized_dict().items() if "_dir" not in name},
        "loaded_gib": loaded.get("process"),
        "first_update_s": clock.first_update - job.started,
        "warm_up": clock.iterations[0],
        "iterations": clock.iterations[1:],
    }


def build_trainer(job: Job, model: Any, tokenizer: Any, meter: Meter, folder: str) -> tuple[Any, Any]:
    """Return the trainer and the callback that holds its figures."""
    import datasets
    import transformers
    import trl

    class Clock(transformers.TrainerCallback):
        """Ends an iteration where the optimizer has stepped and begins the next one there."""

        def __init__(self) -> None:
            self.iterations: list[dict[str, Any]] = []
            self.first_update = 0.0

        def on_train_begin(self, *arguments: Any, **options: Any) -> None:
            meter.begin()

        def on_step_end(self, *arguments: Any, **options: Any) -> None:
            found = meter.finish()
            # What is not sampling is the update: tokens are only scored there.
            found["seconds"]["update"] = found["seconds"]["iteration"] - found["seconds"]["rollout"]
            if torch.cuda.is_available():
                found["peak_gib"]["update"] = torch.cuda.max_memory_allocated() / 2**30
            self.iterations.append(found)
            self.first_update = self.first_update or time.monotonic()
            meter.begin()

    class Trainer(trl.GRPOTrainer):
        """Tells the meter when it samples."""

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            with meter.phase("rollout"):
                found = super()._generate_and_score_completions(inputs)
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            return found

        def _generate_single_turn(self, *arguments: Any, **options: Any) -> Any:
            with meter.phase("generate"):
                return super()._generate_single_turn(*arguments, **options)

    clock = Clock()
    steps = json.loads(job.prompts.read_text(encoding="utf-8"))[: job.steps]
    rows = [{"prompt": messages} for step in steps for messages in step]
    trainer = Trainer(
        model=model,
        reward_funcs=pay,
        args=build_arguments(job, folder),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[clock],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, clock


def build_arguments(job: Job, folder: str) -> Any:
    """Return the settings, those of TRL that are not named here being left as they are."""
    import trl

    work, gpu = job.work, torch.cuda.is_available()
    samples = work.tasks * work.group_size
    if samples % job.micro_batch:
        raise SystemExit(f"{samples} samples cannot be split into micro-batches of {job.micro_batch} rows")
    if job.kind == "trl_continuous" and not gpu:
        # Measured with transformers 5.24: on a CPU it takes its buffers from the whole memory, for minutes a call.
        raise SystemExit("the continuous batching of transformers sizes its buffers by a GPU's memory")
    continuous = {"use_transformers_continuous_batching": True} if job.kind == "trl_continuous" else {}
    if absent := set(continuous) - {item.name for item in fields(trl.GRPOConfig)}:
        raise SystemExit(f"TRL {trl.__version__} has no {absent.pop()}")
    return trl.GRPOConfig(
        output_dir=folder,
        max_steps=job.steps,
        per_device_train_batch_size=job.micro_batch,
        gradient_accumulation_steps=samples // job.micro_batch,
        num_generations=work.group_size,
        max_completion_length=work.max_response_tokens,
        shuffle_dataset=False,
        loss_type="dapo",
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        weight_decay=0.01,
        bf16=job.sizes.bf16,
        use_cpu=not gpu,
        gradient_checkpointing=False,
        dataloader_pin_memory=gpu,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **continuous,
    )


def pay(completions: list[Any], **columns: Any) -> list[float]:
    """Return rewards that differ inside every group, as those of the other contenders' trials do."""
    return [float(row % 5) for row in range(len(completions))]
