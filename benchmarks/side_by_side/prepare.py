"""What contenders share: a random model in a folder, and the single-turn prompts of every step."""

from __future__ import annotations

import json
from typing import Any

import torch
from device_check import SPREAD, machine, slug
from memory_check import random_model

from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.rollout.tasks import TaskStream
from side_by_side.job import Job
from side_by_side.world import World, build_config


def measure(job: Job) -> dict[str, Any]:
    """Write model, tokenizer and prompts; return what machine this is."""
    tokenizer = build_tokenizer()
    preset = job.sizes
    if preset.shape is None:
        model = build_model(tokenizer)
    else:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = random_model(preset.shape, torch.float32, device, max_position_embeddings=4096)
        # Logits as wide as a trained model's, where random ones are nearly uniform.
        torch.nn.init.constant_(model.model.norm.weight, SPREAD)
    for settings in (model.config, model.generation_config):
        settings.eos_token_id, settings.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.save_pretrained(job.folder)
    tokenizer.save_pretrained(job.folder)
    job.prompts.write_text(json.dumps(single_turn_prompts(job)), encoding="utf-8")
    found = machine()
    count = sum(parameter.numel() for parameter in model.parameters())
    return found | {"slug": slug(found["card"]), "parameters": count}


def single_turn_prompts(job: Job) -> list[list[Any]]:
    """Return for each step the messages of each task, as a trial's first turn puts them."""
    work = job.sizes.workloads["single"]
    config = build_config(work, job.steps)
    world, tasks = World(work), TaskStream(config.run.seed, work.tasks)
    return [
        [TrialRunner(world.make_env, seed, group, config.trial).messages() for group, seed in enumerate(seeds)]
        for seeds in map(tasks.take, range(job.steps))
    ]
