"""One short check of a machine: does a meta-RL iteration run there, how fast, in how much memory, how exactly?

    python benchmarks/device_check.py                  # meant for five minutes on one GPU with 78 GiB
    python benchmarks/device_check.py --skip_tests     # without the test suite's `gpu` marks

Random weights in the shapes of Qwen3, nothing is downloaded: 0.6B with all weights trained (fp32 under bf16 autocast,
sampled from a bf16 copy) and 4B with LoRA (on bf16 weights, with gradient checkpointing). Each plays one iteration
through the library's own parts, with every response of exactly the same length, after a short one that warms up.
Without a GPU a small network takes both parts. Writes `benchmarks/results/device_check_<card>.json`; each part is a
process of its own, so that one failure leaves the others. Works without deepspeed, datasets and (LoRA left out) peft.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch
from memory import GIB, MODELS, Setup, Shape, rollout_peak, update_peak
from memory_check import random_model

from metarl_agents import Environment, StepResult
from metarl_agents.config import Config

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SPREAD = 4.0
"""Weight of the last norm: logits spread as widely as a trained model's, where random ones are nearly uniform."""


@dataclass(frozen=True)
class Preset:
    """One iteration: what is trained, and how much is played."""

    shape: Shape
    lora: bool
    tasks: int
    group_size: int
    response_tokens: int
    prompt_words: int
    """Words of the rules, one token each, in every prompt."""
    micro_batch_tokens: int = 16_384
    num_episodes: int = 2
    max_turns: int = 2

    @property
    def responses(self) -> int:
        """Responses of the iteration: no episode succeeds, and each but the last is reflected on."""
        return self.tasks * self.group_size * (self.num_episodes * self.max_turns + self.num_episodes - 1)


TOY = Shape(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=96, head_dim=8)
TOY_SIZES = {"tasks": 1, "group_size": 4, "response_tokens": 6, "prompt_words": 20, "max_turns": 1}
WARM_UP = 2
"""Response tokens of the iteration that warms up."""
PRESETS = {
    "cuda": {
        "0.6B, all weights": Preset(MODELS["0.6B"], False, 8, 8, response_tokens=64, prompt_words=800),
        "4B, LoRA": Preset(MODELS["4B"], True, 2, 8, response_tokens=48, prompt_words=800),
    },
    "cpu": {
        "small, all weights": Preset(TOY, False, micro_batch_tokens=512, **TOY_SIZES),
        "small, LoRA": Preset(TOY, True, micro_batch_tokens=512, **TOY_SIZES),
    },
}


class Endless(Environment):
    """Takes whatever is said for an action and never ends; every instance pays differently, so each row is trained."""

    instances = itertools.count()
    words = 0

    def describe(self) -> str:
        """Return rules of `words` tokens."""
        return " move" * self.words

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start; the reward is the instance's own."""
        self.seed, self._pay = seed, float(next(self.instances) % 5)
        return "Choose.", {}

    def parse_action(self, text: str) -> str:
        """Understand anything: random weights say nothing readable."""
        return "move"

    def step(self, action: str) -> StepResult:
        """Pay and go on."""
        return StepResult("nothing", self._pay, False, False, {"success": False})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skip_tests", action="store_true", help="leave the test suite's gpu marks out")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/device_check_<card>.json")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    presets = PRESETS["cuda" if torch.cuda.is_available() else "cpu"]
    if chosen.part:
        chosen.output.write_text(json.dumps(measure(presets[chosen.part])), encoding="utf-8")
        return
    if not torch.cuda.is_available():
        print("No GPU here: a small network on the CPU shows that the check runs, not how fast a GPU is.")
    started = time.perf_counter()
    result: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), **machine()}
    result["parts"] = {name: run_part(name, preset) for name, preset in presets.items()}
    result["gpu_tests"] = "left out by --skip_tests" if chosen.skip_tests else run_tests()
    result["seconds"] = round(time.perf_counter() - started, 1)
    output = chosen.output or RESULTS / f"device_check_{slug(result['card'])}.json"
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"gpu tests: {result['gpu_tests']}\n{result['seconds']} s in all; written to {os.path.relpath(output)}")
    sys.exit(any("error" in part for part in result["parts"].values()) or "failed" in result["gpu_tests"])


def machine() -> dict[str, Any]:
    """Return the card and the versions that decide the figures."""
    has_gpu = torch.cuda.is_available()
    names = ("torch", "transformers", "accelerate", "peft", "deepspeed", "datasets", "triton")
    return {
        "card": torch.cuda.get_device_name() if has_gpu else "cpu",
        "memory_gib": round(torch.cuda.get_device_properties(0).total_memory / GIB, 1) if has_gpu else None,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "python": sys.version.split()[0],
        "versions": {name: metadata.version(name) if util.find_spec(name) else None for name in names},
    }


def slug(card: str) -> str:
    """Return a card's name as part of a file name.

    >>> slug("NVIDIA H100 80GB HBM3")
    'nvidia_h100_80gb_hbm3'
    """
    return re.sub(r"[^a-z0-9]+", "_", card.lower()).strip("_")


def run_part(name: str, preset: Preset) -> dict[str, Any]:
    """Measure one part in a process of its own and print what it found."""
    if preset.lora and util.find_spec("peft") is None:
        print(f"{name}: left out, because peft is not installed.")
        return {"left_out": "peft is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "part.json"
        command = [sys.executable, __file__, "--part", name, "--output", str(output)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: failed\n{done.stderr[-3000:]}")
            return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
        found = json.loads(output.read_text(encoding="utf-8"))
    print(f"{name}: {describe(found)}", flush=True)
    return found


def describe(found: dict[str, Any]) -> str:
    """Return a part's figures in one line."""
    rollout, update, gap = found["rollout"], found["update"], found["logp_difference"]
    memory = ", ".join(f"{stage} {size:.2f} GiB" for stage, size in found["peak_gib"].items())
    return (
        f"rollout {rollout['response_tokens_per_second']:.0f} sampled tokens/s ({rollout['seconds']:.1f} s), "
        f"update {update['tokens_per_second']:.0f} tokens/s ({update['seconds']:.1f} s), peak memory: {memory}, "
        f"log-prob gap mean {gap['mean']:.2g} max {gap['max']:.2g}"
    )


def run_tests() -> str:
    """Run the tests that need an accelerator and return the last line that pytest prints."""
    if not torch.cuda.is_available():
        return "not run: they need a GPU"
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 5:  # pytest's word for an empty selection
        return "none: no test is marked `gpu`"
    lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
    if done.returncode:
        print("\n".join(lines[-40:]))
        return f"failed (exit status {done.returncode}): {lines[-1]}"
    return lines[-1]


# ---- one part, in its own process --------------------------------------------------------------------------------


def measure(preset: Preset) -> dict[str, Any]:
    """Play a short iteration and one of full length, and return the figures of the second."""
    from metarl_agents.policy.processes import start_processes
    from metarl_agents.training.setup import build_run

    # What `accelerate launch --config_file recipes/accelerate_configs/single_gpu.yaml` sets.
    os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"
    accelerator = start_processes(timeout_s=600)
    Endless.words = preset.prompt_words
    config = build_config(preset)
    policy = random_policy(preset, accelerator.device)
    with tempfile.TemporaryDirectory() as folder:
        run = build_run(config, Endless, policy, Path(folder), None, accelerator)
        with run.logger, run.watchdog:
            config.sampling.max_new_tokens_per_turn = WARM_UP  # kernels are chosen and moments made
            iteration(run, preset, WARM_UP)
            config.sampling.max_new_tokens_per_turn = preset.response_tokens
            return iteration(run, preset, preset.response_tokens)


def build_config(preset: Preset) -> Config:
    """Return the settings of a part."""
    return Config.from_flat(
        {
            "num_episodes": preset.num_episodes,
            "max_turns": preset.max_turns,
            "tasks_per_step": preset.tasks,
            "group_size": preset.group_size,
            "max_new_tokens_per_turn": preset.response_tokens,
            "max_tokens_per_micro_batch": preset.micro_batch_tokens,
            "gradient_checkpointing": preset.lora,
            "use_peft": preset.lora,
            "dtype": "bfloat16" if preset.lora else "float32",
            "env_timeout_s": None,
            "max_steps": 2,
            "report_to": ["none"],
        }
    )


def random_policy(preset: Preset, device: torch.device) -> Any:
    """Return a policy with random weights that no token ends, so that responses are as long as they may be."""
    from metarl_agents.policy.policy import Policy
    from metarl_agents.policy.tiny import build_tokenizer

    dtype = torch.bfloat16 if preset.lora else torch.float32
    model = random_model(preset.shape, dtype, device, max_position_embeddings=4096)
    torch.nn.init.constant_(model.model.norm.weight, SPREAD)
    policy = Policy(model.eval(), build_tokenizer())
    policy.end_ids = [preset.shape.vocabulary]  # beyond what can be sampled
    return policy


def iteration(run: Any, preset: Preset, response_tokens: int) -> dict[str, Any]:
    """Sample, credit, update; return speeds, peaks and the gap between sampling and scoring."""
    from metarl_agents.training.trainer import make_batch, sample_trials
    from metarl_agents.training.update import update_policy

    step, peaks = run.progress.step, {}
    reset_peak()
    trials, generating = sample_trials(run, step)
    peaks["rollout"] = peak_gib()
    reset_peak()
    batch, _ = make_batch(run, trials)
    started = time.perf_counter()
    stats = update_policy(run, batch, step)
    synchronize()
    updating = time.perf_counter() - started
    peaks["update"] = peak_gib()
    run.progress.step += 1
    lengths = {len(response) for response in batch.responses}
    assert lengths == {response_tokens} and len(batch) == preset.responses, (lengths, len(batch))
    assert batch.has_signal.all() and stats["update/steps"][0] == 1, stats
    prompts = [len(prompt) for prompt in batch.prompts]
    sampled, everything = response_tokens * len(batch), sum(prompts) + response_tokens * len(batch)
    differences = {name: stats[f"sampling/logp_difference/{name}"] for name in ("mean", "max")}
    return {
        "parameters": preset.shape.parameters,
        "preset": {name: value for name, value in asdict(preset).items() if name != "shape"},
        "responses": len(batch),
        "prompt_tokens": {"mean": sum(prompts) / len(prompts), "max": max(prompts)},
        "rollout": speed(generating, response_tokens=sampled, tokens=everything),
        "update": speed(updating, tokens=everything),
        "peak_gib": peaks if torch.cuda.is_available() else {"process": peaks["update"]},
        "formula_gib": formula(preset, max(prompts)),
        "logp_difference": {name: total / max(count, 1) for name, (total, count) in differences.items()},
        "entropy": stats["entropy"][0] / stats["entropy"][1],
        "grad_norm": stats["grad_norm"][0],
    }


def speed(seconds: float, **tokens: int) -> dict[str, float]:
    """Return counts and counts per second."""
    rates = {f"{name}_per_second": round(count / seconds, 1) for name, count in tokens.items()}
    return {"seconds": round(seconds, 2), **tokens, **rates}


def formula(preset: Preset, prompt_tokens: int) -> dict[str, float]:
    """Return what `memory.py` expects, in GiB."""
    setup = Setup(
        preset.shape,
        lora_rank=16 if preset.lora else 0,
        checkpointing=preset.lora,
        micro_batch_tokens=preset.micro_batch_tokens,
        rows=preset.tasks * preset.group_size,
        prompt_tokens=prompt_tokens,
        response_tokens=preset.response_tokens,
    )
    return {"rollout": round(rollout_peak(setup) / GIB, 3), "update": round(update_peak(setup) / GIB, 3)}


def synchronize() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def reset_peak() -> None:
    """Begin to measure the most memory anew; a CPU's process keeps its own."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib() -> float:
    """Return the most memory: of torch's allocator on a GPU, of the whole process so far on a CPU."""
    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / GIB, 3)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB, 3)


if __name__ == "__main__":
    main()
