"""One user, one request at a time: `Policy.generate`, made for whole batches, beside the model's own `generate`."""

from __future__ import annotations

import json
import time
from typing import Any

import torch

from side_by_side.job import Job
from side_by_side.lockstep import load
from side_by_side.meter import ForcedLengths, Meter, watch
from side_by_side.protocol import order, speed_ratio

PROMPTS = 8
"""Requests of a repeat, asked one after the other."""
ROUNDS = 3
"""Times A B B A, each of which gives both two repeats."""


def measure(job: Job) -> dict[str, Any]:
    """Return how many times as fast the library answers single requests, after a round that warms up."""
    from metarl_agents.policy.sampling import Sampling

    work, policy = job.sizes.workloads["single"], load(job.folder)
    meter = Meter(ForcedLengths(work.response_tokens, work.response_sigma, work.max_response_tokens))
    watch(policy.model, meter, policy.end_ids[0])
    messages = json.loads(job.prompts.read_text(encoding="utf-8"))[0][:PROMPTS]
    prompts = [policy.encode(message) for message in messages]
    sampling = Sampling(max_new_tokens=work.max_response_tokens)
    settings = sampling.generation_config(policy.pad_id, policy.end_ids)

    def library(prompt: tuple[int, ...]) -> None:
        policy.generate([prompt], sampling, seed=0)

    @torch.inference_mode()
    def plain(prompt: tuple[int, ...]) -> None:
        ids = torch.tensor([prompt], device=policy.model.device)
        row = policy.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        policy.decode(row[0, len(prompt) :].tolist())

    def ask(answer: Any) -> dict[str, Any]:
        meter.begin()
        started = time.perf_counter()
        with torch.autocast(policy.model.device.type, dtype=torch.bfloat16, enabled=job.sizes.bf16):
            for prompt in prompts:
                answer(prompt)
        found = meter.finish()
        return found | {"seconds": {"rollout": time.perf_counter() - started}}

    answers = {"ours": library, "plain": plain}
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in answers}
    for name in order(tuple(answers)) * (1 + ROUNDS):
        taken[name].append(ask(answers[name]))
    timed = {name: found[2:] for name, found in taken.items()}
    return timed | {"ratio": speed_ratio(timed["ours"], timed["plain"], "rollout")}
