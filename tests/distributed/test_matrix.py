"""What `test_modes.py` does in one launch a mode, in all its combinations; minutes, so `make test-slow`."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
import torch
import yaml
from launches import CONFIGS, MODES, ROOT, SCENARIOS, act, alone, free_port, launch, modes, needs_deepspeed
from safetensors.torch import load_file
from test_modes import close, metrics, same

from metarl_agents.training.checkpoint import list_checkpoints

pytestmark = pytest.mark.slow

RECIPE = ROOT / "recipes" / "train_two_doors.py"
QUICK = ["--max_steps", 6, "--save_steps", 1, "--eval_tasks", 4, "--eval_samples", 0, "--eval_steps", 0]
QUICK += ["--tasks_per_step", 4, "--group_size", 4, "--learning_rate", 1e-3]
QUICK += ["--lr_scheduler_type", "cosine", "--warmup_steps", 1]


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


@pytest.mark.parametrize("scenario", ["lora", "lora_kl", "lora_checkpointing", "lora_head"])
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
def test_every_split_of_a_run_ends_as_one_go(mode, tmp_path):
    """Schedules x warm-up x what is trained x where it is cut, bit for bit."""
    result = act(mode, "resumes", tmp_path)
    assert len(result["exact"]) == 10 and all(result["exact"].values()), result["exact"]
    critic = torch.tensor(result["rates"]["critic linear 2"])
    assert torch.allclose(critic, torch.tensor([0.0, 0.5, 1.0, 0.5])[:, None] * torch.tensor([1e-3, 3e-3]))


@pytest.mark.parametrize("mode", MODES)
def test_the_best_model_comes_back(mode, tmp_path):
    act(mode, "best", tmp_path)
    run = tmp_path / "run"
    best = json.loads((list_checkpoints(run)[-1] / "trainer_state.json").read_text())["best_step"]
    final, checkpoint = (load_file(f / "model.safetensors") for f in (run, run / f"checkpoint-{best}"))
    assert all(torch.equal(final[name], checkpoint[name]) for name in final)


@pytest.mark.parametrize("mode", MODES)
def test_adapters_learn_in_play_and_are_merged(mode, tmp_path):
    """Three real steps of unequal work; the two folders that remain are one model."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    result = act(mode, "lora_play", tmp_path)
    assert result["steps"] == 3 and not result["interrupted"]
    kl = [line["metrics"]["kl"] for line in metrics(tmp_path / "run")]
    assert len(kl) == 3 and abs(kl[0]) < 1e-6 < max(kl), "adapters begin as the reference, and leave it"
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    ids = torch.arange(20, 60).view(2, 20)
    with torch.no_grad():
        before = base(input_ids=ids).logits
        adapted = PeftModel.from_pretrained(base, tmp_path / "run").eval()(input_ids=ids).logits
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "merged")(input_ids=ids).logits
    assert torch.allclose(merged, adapted, atol=1e-4) and not torch.allclose(adapted, before, atol=1e-3)


@pytest.mark.parametrize("mode", modes("cpu_zero2", "cpu_zero3", "cpu_fsdp2"))
def test_bf16_keeps_weights_that_a_step_of_1e_6_moves(mode, tmp_path):
    result = masters(mode, tmp_path, "--mixed_precision=bf16")
    assert result["dtype"] == "torch.float32" and 0 < result["moved"] < 3e-6
    assert result["weights"] == (["torch.bfloat16"] if "zero" in mode else ["torch.float32"])
    assert result["gradients"] == ["torch.float32"]


def masters(config, folder, *flags):
    status, output = launch(config, *flags, SCENARIOS, "masters", folder, ACCELERATE_USE_CPU="true")
    assert status == 0, output[-4000:]
    return json.loads((folder / "result.json").read_text())


AUTO = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
}


@needs_deepspeed
@pytest.mark.parametrize("stage", [2, 3])
def test_a_deepspeed_file_full_of_auto_is_settled(stage, tmp_path):
    """What people bring from elsewhere; gradients add up in fp32 even so, though the file does not ask for it."""
    zero = {"stage": stage, "offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}}
    sizes = ["reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"]
    zero |= dict.fromkeys(sizes[: 1 if stage == 2 else 3], "auto")
    (tmp_path / "zero.json").write_text(json.dumps(AUTO | {"zero_optimization": zero}))
    settings = yaml.safe_load((CONFIGS / f"cpu_zero{stage}.yaml").read_text())
    # Beside such a file accelerate allows no word of what it may settle.
    settings["deepspeed_config"] = {"deepspeed_config_file": str(tmp_path / "zero.json"), "zero3_init_flag": False}
    settings.pop("mixed_precision")
    (tmp_path / "launch.yaml").write_text(yaml.safe_dump(settings))
    result = masters(tmp_path / "launch.yaml", tmp_path, "--mixed_precision=bf16")
    assert result["dtype"] == "torch.float32" and 0 < result["moved"] < 3e-6
    assert result["weights"] == ["torch.bfloat16"] and result["gradients"] == ["torch.float32"]


@pytest.mark.parametrize("mode", MODES)
def test_a_population_is_one_pool_for_all_processes(mode, tmp_path):
    """Every game of every process is in its record, its snapshots are whole models, and a resumed run meets the same."""
    from transformers import AutoModelForCausalLM

    games = act(mode, "population", tmp_path)["games"]
    states = []
    for name in ("straight", "halves"):
        state = json.loads((tmp_path / name / "checkpoint-4" / "trainer_state.json").read_text())["population"]
        assert sum(sum(counts) for _, _, _, *counts in state["results"]) == games
        assert [member["name"] for member in state["members"]] == ["heads", "snapshot-4"]
        states.append(state)
    assert states[0] == states[1]
    snapshot = AutoModelForCausalLM.from_pretrained(tmp_path / "straight" / "population" / "snapshot-4")
    last = load_file(tmp_path / "straight" / "model.safetensors")
    for key, tensor in snapshot.state_dict().items():
        assert key not in last or torch.equal(tensor, last[key]), key


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


@needs_deepspeed
def test_a_checkpoint_of_other_processes_is_one_sentence(tmp_path):
    run = tmp_path / "run"
    quick = [*QUICK, "--max_steps", 1, "--output_dir", run]
    assert launch("cpu_zero2", RECIPE, *quick)[0] == 0
    for mode in ("cpu_zero3", "cpu"):
        command = [*quick, "--max_steps", 2, "--resume_from_checkpoint", "latest"]
        status, output = launch(mode, RECIPE, *command)
        assert status != 0 and output.count("CheckpointError: ") == 1, output[-3000:]
        assert "resume with the" in output


@pytest.mark.parametrize("mode", modes("cpu", "cpu_zero3"))
def test_two_machines_meet_by_the_command_of_the_scaling_guide(mode, tmp_path):
    """Two launchers on one machine, each with the number of its own; neither of them needs ssh or a hostfile."""
    meeting = ["--num_machines", 2, "--main_process_ip", "127.0.0.1", "--main_process_port", free_port()]
    meeting += ["--deepspeed_multinode_launcher", "standard"]
    recipe = [RECIPE, *QUICK, "--max_steps", 1, "--output_dir", tmp_path / "run"]
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda rank: launch(mode, *meeting, "--machine_rank", rank, *recipe), (0, 1)))
    for status, output in ends:
        assert status == 0, output[-4000:]
    assert ["pass@1" in output for _, output in ends] == [True, False], "the first process of all speaks"
    loaded = load_file(tmp_path / "run" / "model.safetensors")
    assert loaded and (tmp_path / "run" / "checkpoint-1").is_dir()


def test_the_watchdog_names_the_process_that_is_waited_for(tmp_path):
    output = act("cpu", "late", tmp_path)["output"]
    assert (
        "Process 0 has waited" in output and "for process 1, which is still in `evaluation before training`" in output
    )
