"""The check of a machine: forced lengths, what it reports, and what it leaves out."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def device_check():
    """The script `benchmarks/device_check.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("device_check")
    for name in ("device_check", "memory", "memory_check"):
        sys.modules.pop(name, None)


@pytest.fixture
def preset(device_check):
    """An iteration of a blink."""
    shape = device_check.Shape(hidden=32, layers=1, heads=4, kv_heads=2, intermediate=48, head_dim=8, vocabulary=2000)
    return device_check.Preset(
        shape, False, tasks=2, group_size=2, response_tokens=5, prompt_words=7, micro_batch_tokens=512
    )


@pytest.fixture
def launched_in_bf16(monkeypatch):
    """The environment that the script sets, undone afterwards."""
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    AcceleratorState._reset_state()
    yield
    AcceleratorState._reset_state()


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_an_iteration_has_the_lengths_it_was_told_and_says_what_it_measured(
    device_check, preset, launched_in_bf16, without_gpu
):
    found = json.loads(json.dumps(device_check.measure(preset)))
    # 4 trials of two episodes with two turns each and a reflection between them, 5 tokens a response.
    assert found["responses"] == preset.responses == 4 * 5
    assert found["rollout"]["response_tokens"] == 4 * 5 * 5
    assert found["prompt_tokens"]["max"] >= preset.prompt_words
    prompts = found["prompt_tokens"]["mean"] * found["responses"]
    assert found["update"]["tokens"] == pytest.approx(prompts + 100)
    for part in (found["rollout"], found["update"]):
        assert part["tokens_per_second"] > 0
    gap = found["logp_difference"]
    assert 0 < gap["mean"] <= gap["max"] < 0.5  # bf16 sampling against bf16 autocast: close, not equal
    assert found["peak_gib"]["process"] > 0
    assert found["grad_norm"] > 0


def test_its_environment_keeps_the_contract_and_pays_each_instance_differently(device_check):
    pays = []
    for _ in range(8):
        env = device_check.Endless()
        env.reset(seed=0)
        result = env.step(env.parse_action("nothing readable"))
        assert not (result.terminated or result.truncated or result.info["success"])
        pays.append(result.reward)
        env.restart()
    assert len(set(pays)) == 5


def test_the_models_of_a_gpu_run_in_its_memory_by_formula(device_check):
    for preset in device_check.PRESETS["cuda"].values():
        expected = device_check.formula(preset, prompt_tokens=1000)
        assert max(expected.values()) < 70


def test_adapters_are_left_out_without_peft(device_check, preset, monkeypatch, capsys):
    from dataclasses import replace

    monkeypatch.setattr(device_check.util, "find_spec", lambda name: None)
    found = device_check.run_part("4B, LoRA", replace(preset, lora=True))
    assert found == {"left_out": "peft is not installed"}
    assert capsys.readouterr().out == "4B, LoRA: left out, because peft is not installed.\n"


def test_a_part_that_fails_is_reported_and_leaves_the_others(device_check, preset, monkeypatch, capsys):
    done = SimpleNamespace(returncode=1, stderr="Traceback\nRuntimeError: no kernel\n", stdout="")
    monkeypatch.setattr(device_check.subprocess, "run", lambda *args, **options: done)
    assert device_check.run_part("0.6B", preset) == {"error": "RuntimeError: no kernel"}
    assert "failed" in capsys.readouterr().out


def test_gpu_tests_are_not_run_without_a_gpu(device_check, without_gpu):
    assert device_check.run_tests() == "not run: they need a GPU"


@pytest.mark.parametrize(
    ("code", "output", "said"),
    [
        (0, "....\n4 passed in 3.2s", "4 passed in 3.2s"),
        (1, "F\n1 failed in 3.2s", "failed (exit status 1): 1 failed in 3.2s"),
        (5, "12 deselected", "none: no test is marked `gpu`"),
    ],
)
def test_what_pytest_said_of_the_gpu_tests_is_kept(device_check, monkeypatch, code, output, said):
    asked = []

    def run(command, **options):
        asked.append(command)
        return SimpleNamespace(returncode=code, stdout=output, stderr="")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device_check.subprocess, "run", run)
    assert device_check.run_tests() == said
    assert asked[0][1:5] == ["-m", "pytest", "-m", "gpu"]


def test_the_kept_result_of_a_cpu_is_of_this_script(device_check):
    kept = json.loads((BENCHMARKS / "results" / "device_check_cpu.json").read_text(encoding="utf-8"))
    assert kept["card"] == "cpu"
    assert set(kept["parts"]) == set(device_check.PRESETS["cpu"])
    for name, part in kept["parts"].items():
        preset = device_check.PRESETS["cpu"][name]
        assert part["responses"] == preset.responses
        assert part["rollout"]["response_tokens"] == preset.responses * preset.response_tokens
        assert part["logp_difference"]["mean"] < 0.05


def test_a_card_names_its_file(device_check):
    assert device_check.slug("NVIDIA H100 80GB HBM3") == "nvidia_h100_80gb_hbm3"
