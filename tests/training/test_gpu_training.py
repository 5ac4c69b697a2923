"""On a GPU: training runs, resumes, adapts, goes on after running out of memory, and is launched as on a laptop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training_helpers import (
    metrics_of,
    one_step,
    open_run,
    play,
    run_training,
    same_weights,
    small_policy,
    weights_of,
)

from metarl_agents.training.update import update_policy

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "recipes" / "accelerate_configs"
pytestmark = pytest.mark.gpu


def test_a_run_computes_on_the_gpu_and_leaves_a_model_that_a_cpu_loads_with_equal_logits(tmp_path):
    from transformers import AutoModelForCausalLM

    policy = small_policy()
    before = {name: value.cpu() for name, value in weights_of(policy.model).items()}
    run_training(tmp_path / "run", policy=policy)
    assert policy.model.device.type == "cuda"
    after = {name: value.cpu() for name, value in weights_of(policy.model).items()}
    assert not same_weights(before, after)
    ids = torch.arange(3, 43).view(1, -1)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "run").eval()
    with torch.no_grad():
        expected = policy.model.eval()(input_ids=ids.to("cuda")).logits.cpu()
        torch.testing.assert_close(loaded(input_ids=ids).logits, expected, atol=1e-4, rtol=1e-4)


def test_a_run_that_resumes_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = run_training(tmp_path / "whole", max_steps=4)
    assert whole is not None
    run_training(tmp_path / "parts", max_steps=2, save_steps=2)
    run_training(tmp_path / "parts", max_steps=4, save_steps=2, resume_from_checkpoint="latest")
    one, other = metrics_of(tmp_path / "whole"), metrics_of(tmp_path / "parts")
    assert one.keys() == other.keys()
    for step in one:
        assert one[step]["num_tokens"] == other[step]["num_tokens"]
        assert one[step]["loss"] == pytest.approx(other[step]["loss"], abs=1e-4)


def test_the_update_is_the_one_of_a_cpu(tmp_path):
    run = open_run(tmp_path / "run", learning_rate=1e-4)
    batch, _ = play(run)
    before = {name: value.cpu() for name, value in weights_of(run.policy.model).items()}
    stats = update_policy(run, batch, 0)
    code = (
        "import sys, torch; sys.path.insert(0, 'tests/training')\n"
        "from training_helpers import *\n"
        "run = open_run(Path(sys.argv[1]), learning_rate=1e-4)\n"
        "batch = torch.load(sys.argv[2], weights_only=False)\n"
        "print(update_policy(run, batch, 0)['grad_norm'][0])\n"
    )
    torch.save(batch, tmp_path / "batch.pt")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "cpu"), str(tmp_path / "batch.pt")],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert stats["grad_norm"][0] == pytest.approx(float(done.stdout.split()[-1]), rel=1e-3)
    assert not same_weights(before, {name: value.cpu() for name, value in weights_of(run.policy.model).items()})


def test_adapters_on_narrow_weights_with_checkpointing_move_and_start_at_a_divergence_of_0(tmp_path):
    pytest.importorskip("peft")
    policy = small_policy()
    policy.model.to(torch.bfloat16)
    settings = {"use_peft": True, "lora_r": 4, "gradient_checkpointing": True, "beta": 0.1, "dtype": "bfloat16"}
    run = open_run(tmp_path / "run", policy=policy, **settings)
    stats = one_step(run)
    assert stats["kl"][0] / stats["kl"][1] == pytest.approx(0.0, abs=1e-4)
    before = weights_of(run.policy.model)
    one_step(run, 1)
    after = weights_of(run.policy.model)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and all("lora_" in name for name in moved)


def test_where_memory_really_runs_out_micro_batches_are_halved_and_the_update_is_the_same(tmp_path, capsys):
    many = {"group_size": 64, "tasks_per_step": 32}
    run = open_run(tmp_path / "run", halve_on_oom=True, **many)
    batch, _ = play(run)
    total = len(batch) * max(len(p) + len(r) for p, r in zip(batch.prompts, batch.responses, strict=True))
    run.config.update.max_tokens_per_micro_batch = total
    twin = open_run(tmp_path / "twin", max_tokens_per_micro_batch=total // 2, **many)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    update_policy(twin, batch, 0)
    needed = torch.cuda.max_memory_reserved() + 2**26
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(needed / torch.cuda.get_device_properties(0).total_memory)
    try:
        update_policy(run, batch, 0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert capsys.readouterr().out.count("Memory ran out: going on with") == 1
    assert run.config.update.max_tokens_per_micro_batch == total // 2
    expected = weights_of(twin.policy.model)
    for name, value in weights_of(run.policy.model).items():
        torch.testing.assert_close(value, expected[name], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("launcher", ["single_gpu", "multi_gpu", "fsdp2", "zero2", "zero3"])
def test_the_launcher_configurations_for_gpus_train_on_one(tmp_path, launcher):
    if launcher.startswith("zero"):
        pytest.importorskip("deepspeed")
    run = tmp_path / "run"
    flags = ["--max_steps", "2", "--output_dir", str(run), "--eval_tasks", "16", "--eval_validation_tasks", "8"]
    chosen = ["--config_file", str(CONFIGS / f"{launcher}.yaml"), "--num_processes", "1", "--main_process_port", "0"]
    done = subprocess.run(
        [
            sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", *chosen,
            "recipes/train_minesweeper.py", *flags, "--tasks_per_step", "2", "--report_to", "none",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert (run / "model.safetensors").is_file()
    for metrics in metrics_of(run).values():
        assert metrics["sampling/logp_difference/mean"] < 0.05  # sampled in bf16, scored in bf16
        assert metrics["update/steps"] == 1
