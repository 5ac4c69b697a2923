"""What is refused before processes meet, and the watchdog that names who is waited for."""

import time

import pytest
import torch

from metarl_agents.errors import ConfigError
from metarl_agents.policy.processes import Watchdog, check_launch
from metarl_agents.policy.zero import settle_config

LAUNCHER = ("WORLD_SIZE", "RANK", "ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU", "ACCELERATE_USE_DEEPSPEED")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


def test_more_processes_than_groups_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ConfigError, match="8 processes were launched.*--tasks_per_step 8"):
        check_launch(4)
    with pytest.raises(ConfigError, match="multiple of the 8 processes"):
        check_launch(12)
    check_launch(16)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_a_configuration_for_gpus_is_refused_on_a_machine_without_one(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with pytest.raises(ConfigError, match="this machine has none.*cpu_zero3.yaml"):
        check_launch(4)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    check_launch(4)


@pytest.mark.parametrize("precision", ["fp16", "fp8"])
def test_narrower_precisions_are_refused(monkeypatch, precision):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", precision)
    with pytest.raises(ConfigError, match=f"`mixed_precision` is {precision}.*no and bf16"):
        check_launch(4)


def test_halving_is_for_one_process(monkeypatch):
    check_launch(4, halve_on_oom=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="`halve_on_oom` is for one process, but 2 were launched"):
        check_launch(4, halve_on_oom=True)


def test_halving_is_not_for_deepspeed(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    check_launch(4)
    with pytest.raises(ConfigError, match="`halve_on_oom` does not work under DeepSpeed"):
        check_launch(4, halve_on_oom=True)


def zero(**values):
    return {"zero_optimization": {"stage": values.pop("stage", 3)}, **values}


def test_auto_becomes_an_integer():
    """Known bug A3."""
    config = zero(train_micro_batch_size_per_gpu="auto", gradient_accumulation_steps="auto", gradient_clipping="auto")
    settle_config(config, 0.7)
    assert config["train_micro_batch_size_per_gpu"] == 1 and config["gradient_accumulation_steps"] == 1
    assert config["gradient_clipping"] == 0.7
    assert config["data_types"]["grad_accum_dtype"] == "fp32"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (zero(stage=0), "stages 2 and 3 are supported"),
        (zero(stage="auto"), "stages 2 and 3 are supported"),
        (zero(gradient_accumulation_steps=4), "--max_tokens_per_micro_batch"),
        (zero(train_micro_batch_size_per_gpu="many"), "DeepSpeed wants an integer"),
    ],
)
def test_what_deepspeed_cannot_use_is_one_sentence(config, message):
    with pytest.raises(ConfigError, match=message) as caught:
        settle_config(config, 1.0)
    assert "\n" not in str(caught.value)


class Board(dict):
    """A store in this process."""

    def set(self, key, value):
        self[key] = value.encode()

    get = dict.__getitem__


class Two:
    """The first of two processes."""

    process_index, num_processes = 0, 2

    def wait_for_everyone(self):
        """The other one is only on the board."""


@pytest.fixture
def watchdog():
    board = Board({"1": b"0 start"})
    with Watchdog(Two(), 0.2, board=board) as dog:
        dog.board = board
        yield dog


def test_the_watchdog_names_rank_and_phase_once(watchdog, capfd):
    watchdog.enter("sampling of step 1")
    watchdog.board.set("1", "1 sampling of step 1")
    watchdog.enter("update of step 1")
    time.sleep(0.6)
    assert watchdog.late() is None, "its thread has said it already"
    said = capfd.readouterr().err
    assert said.count("Process 0 has waited") == 1
    assert "in `update of step 1` for process 1, which is still in `sampling of step 1`" in said


def test_nobody_is_late_while_all_are_in_one_phase(watchdog):
    watchdog.enter("sampling of step 1")
    watchdog.board.set("1", "1 sampling of step 1")
    time.sleep(0.4)
    assert watchdog.late() is None
    watchdog.board.set("1", "2 update of step 1")
    assert watchdog.late() is None, "who is ahead is not waited for"
