"""Two processes do what one does, however the weights lie on them: one launch a mode."""

import math

import pytest
import torch
from launches import act, alone, modes
from safetensors.torch import load_file

from metarl_agents.policy.tiny import build_tokenizer

KINDS = {"cpu": "whole", "cpu_zero2": "zero2", "cpu_zero3": "zero3", "cpu_fsdp2": "fsdp2"}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    result = alone("walk", folder)
    assert result["num_processes"] == 1
    return folder, result["loss"]


# A launch takes 15 to 30 seconds: the plainest mode and the one that splits most are among the fast tests.
@pytest.mark.parametrize("mode", modes(*KINDS, slow=("cpu_zero2", "cpu_fsdp2")))
def test_two_processes_do_what_one_does(mode, single, tmp_path):
    single, loss = single
    result = act(mode, "walk_and_play", tmp_path)
    assert result["kind"] == KINDS[mode] and result["num_processes"] == 2
    # One process's groups all won in turn 1 and gave it nothing to learn from; the gradient is the other's alone.
    assert result["skipped"] == 0
    # The loss that is logged is that of all processes together, whatever their number.
    assert abs(loss) > 1e-3 and result["loss"] == pytest.approx(loss, rel=1e-4)
    close(tmp_path / "walk", single, "gradient", 1e-5)
    close(tmp_path / "walk", single, "first", 1e-5)
    same(tmp_path / "walk", "weights", "resumed")
    # Three steps of real play, in which the processes stop at different turns and lengths.
    assert result["steps"] == 3 and not result["interrupted"]
    losses = [line["metrics"]["loss"] for line in metrics(tmp_path / "play" / "run")]
    assert len(losses) == 3 and all(math.isfinite(loss) for loss in losses) and any(losses)
    loads_plainly(tmp_path / "play" / "run")


def close(folder, other, name, tolerance):
    one, two = (load_file(place / f"{name}.safetensors") for place in (folder, other))
    assert one.keys() == two.keys() and one
    worst = max((one[key].float() - two[key].float()).abs().max().item() for key in one)
    assert worst <= tolerance, f"{name} differs by {worst}"


def same(folder, name, other):
    one, two = (load_file(folder / f"{place}.safetensors") for place in (name, other))
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def metrics(folder):
    import json

    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["prefix"] == "train"]


def loads_plainly(folder):
    """The folder is an ordinary one: plain transformers loads it, and it holds what the last checkpoint holds."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert len(AutoTokenizer.from_pretrained(folder)) == len(build_tokenizer())
    saved = load_file(folder / "checkpoint-3" / "model.safetensors")
    own = model.state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in saved.items())
    assert all(tensor.numel() for tensor in saved.values())


@pytest.mark.slow
@pytest.mark.parametrize("mode", modes(*KINDS))
def test_processes_agree_to_stop_where_numbers_are_not_finite_and_save_nothing(mode, tmp_path):
    step, *output = act(mode, "ruined", tmp_path)["endings"]
    assert step[:2] == [False, 1] and "weights or outputs are no longer finite" in step[2]
    assert not list((tmp_path / "step").glob("checkpoint-*")) and not (tmp_path / "step" / "model.safetensors").exists()
    assert len(output) == (mode == "cpu")
    for learned, steps, ending in output:
        assert not learned and 1 <= steps < 5 and f"checkpoint-{steps} holds the last weights" in ending
        assert "finite" in ending.partition("No model was saved")[0]
