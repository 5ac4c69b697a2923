"""What `test_modes.py` does in one launch a mode, in all its combinations; minutes, so `make test-slow`."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache

import pytest
import torch
from launches import CONFIGS, MODES, ROOT, act, alone, free_port, launch
from safetensors.torch import load_file
from test_modes import close, same

from metarl_agents.training.checkpoint import list_checkpoints

pytestmark = pytest.mark.slow

RECIPE = ROOT / "recipes" / "train_two_doors.py"
QUICK = ["--max_steps", 6, "--save_steps", 1, "--eval_tasks", 4, "--eval_samples", 0, "--eval_steps", 0]
QUICK += ["--tasks_per_step", 4, "--group_size", 4, "--learning_rate", 1e-3]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The folder of a scenario that one process has run, once for all modes."""

    @cache
    def run(scenario):
        folder = tmp_path_factory.mktemp(scenario)
        alone(scenario, folder)
        return folder

    return run


@pytest.mark.parametrize("scenario", ["kl", "critic", "checkpointing"])
@pytest.mark.parametrize("mode", MODES)
def test_all_weights(mode, scenario, single, tmp_path):
    result = act(mode, scenario, tmp_path / "two")
    close(tmp_path / "two", single(scenario), "gradient", 1e-5)
    if scenario != "critic":  # ZeRO clips policy and critic by one norm, so their steps differ a little
        close(tmp_path / "two", single(scenario), "first", 1e-5)
    same(tmp_path / "two", "weights", "resumed")
    assert abs(result["kl"]) < 1e-5


@pytest.mark.parametrize("scenario", ["lora", "lora_kl", "lora_checkpointing"])
@pytest.mark.parametrize("mode", MODES)
def test_adapters(mode, scenario, single, tmp_path):
    """Known bug A14: the adapter's file is whole, and plain peft gives the same log-probs with it."""
    result = act(mode, scenario, tmp_path / "two")
    assert abs(result["kl"]) < 1e-5
    close(tmp_path / "two", single(scenario), "weights", 1e-5)
    same(tmp_path / "two", "weights", "resumed")
    saved = load_file(tmp_path / "two" / "run" / "checkpoint-2" / "adapter_model.safetensors")
    assert saved and all(tensor.numel() for tensor in saved.values())
    expected = load_file(tmp_path / "two" / "logprobs.safetensors")["logprobs"]
    assert torch.allclose(logprobs_with_peft(tmp_path / "two"), expected, atol=1e-5)


def logprobs_with_peft(folder):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder / "base")
    model = PeftModel.from_pretrained(base, folder / "run" / "checkpoint-2").eval()
    ids = torch.arange(20, 60).view(2, 20)
    with torch.no_grad():
        logprobs = model(input_ids=ids).logits.log_softmax(-1)
    chosen = logprobs[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
    return torch.cat([torch.zeros(2, 5), chosen[:, 4:]], dim=1)


@pytest.mark.parametrize("mode", MODES)
def test_the_best_model_comes_back(mode, tmp_path):
    act(mode, "best", tmp_path)
    run = tmp_path / "run"
    best = json.loads((list_checkpoints(run)[-1] / "trainer_state.json").read_text())["best_step"]
    final, checkpoint = (load_file(f / "model.safetensors") for f in (run, run / f"checkpoint-{best}"))
    assert all(torch.equal(final[name], checkpoint[name]) for name in final)


@pytest.mark.parametrize("mode", ["cpu_zero2", "cpu_zero3", "cpu_fsdp2"])
def test_bf16_keeps_weights_that_a_step_of_1e_6_moves(mode, tmp_path):
    bf16 = {"ACCELERATE_USE_CPU": "true"}
    tmp_path.mkdir(exist_ok=True)
    status, output = launch(
        mode, "--mixed_precision=bf16", ROOT / "tests/distributed/scenarios.py", "masters", tmp_path, **bf16
    )
    assert status == 0, output[-4000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["dtype"] == "torch.float32" and 0 < result["moved"] < 3e-6
    assert result["weights"] == (["torch.bfloat16"] if "zero" in mode else ["torch.float32"])


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_run_resumes_exactly(mode, tmp_path):
    """Known bugs A18 and A19, on two processes: straight through, and killed on the way, end alike."""
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    status, output = launch(mode, RECIPE, *QUICK, "--output_dir", straight)
    assert status == 0, output[-4000:]
    kill_after_step(2, mode, broken)
    command = [*QUICK, "--output_dir", broken, "--resume_from_checkpoint", "latest"]
    status, output = launch(mode, RECIPE, *command)
    assert status == 0, output[-4000:]
    one, two = (load_file(folder / "model.safetensors") for folder in (straight, broken))
    assert all(torch.equal(one[name], two[name]) for name in one)


def kill_after_step(step, mode, folder):
    command = ["launch", "--config_file", CONFIGS / f"{mode}.yaml", "--main_process_port", free_port(), RECIPE, *QUICK]
    process = subprocess.Popen(
        [sys.executable, "-m", "accelerate.commands.accelerate_cli", *map(str, [*command, "--output_dir", folder])],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.time() + 240
    while not (folder / f"checkpoint-{step}").exists() and time.time() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list_checkpoints(folder), "the run never saved"


def test_a_checkpoint_of_other_processes_is_one_sentence(tmp_path):
    run = tmp_path / "run"
    quick = [*QUICK, "--max_steps", 1, "--output_dir", run]
    assert launch("cpu_zero2", RECIPE, *quick)[0] == 0
    for mode in ("cpu_zero3", "cpu"):
        command = [*quick, "--max_steps", 2, "--resume_from_checkpoint", "latest"]
        status, output = launch(mode, RECIPE, *command)
        assert status != 0 and output.count("CheckpointError: ") == 1, output[-3000:]
        assert "resume with the" in output


def test_the_watchdog_names_the_process_that_is_waited_for(tmp_path):
    output = act("cpu", "late", tmp_path)["output"]
    assert (
        "Process 0 has waited" in output and "for process 1, which is still in `evaluation before training`" in output
    )
