"""The KL's reference is the policy that starts the run, also after a resume, and what it takes to bring it back."""

import shutil

import pytest
import torch
from training_helpers import SMALL, Coin, metrics_of, run_training, small_config, small_policy

from metarl_agents.cli import read_yaml
from metarl_agents.config import ModelConfig
from metarl_agents.policy.adapters import add_adapters
from metarl_agents.policy.loading import load_policy
from metarl_agents.policy.processes import start_processes
from metarl_agents.presets import CONFIGS
from metarl_agents.training import start
from metarl_agents.training.trainer import train

LORA = {"use_peft": True, "lora_r": 4, "learning_rate": 5e-2}
QUIET = SMALL | {"eval_tasks": 1, "eval_validation_tasks": 0, "beta": 0.1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A saved model, and adapters on it that are far from fresh."""
    place = tmp_path_factory.mktemp("start")
    small_policy().save(place / "model")
    policy = load_policy(ModelConfig(model_name_or_path=str(place / "model")))
    add_adapters(policy, ModelConfig(use_peft=True, lora_r=4))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
    policy.save(place / "adapters")
    return place


STARTS = {
    "weights": ("model", {}),
    "fresh adapters": ("model", LORA),
    "adapters": ("adapters", LORA),
    "given weights": (None, {}),
    "given adapters": ("given", LORA),
}


QUICK = ("adapters", "given weights")


def played(place, folder, kind, max_steps, **settings):
    name, own = STARTS[kind]
    values = QUIET | own | {"max_steps": max_steps, "output_dir": str(folder)} | settings
    if kind.startswith("given"):
        policy = load_policy(ModelConfig(model_name_or_path=str(place / "adapters"))) if name else small_policy()
        return train(Coin, policy=policy, **values)
    return train(Coin, model_name_or_path=str(place / name), **values)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in STARTS]
)
def test_kl_begins_at_0_and_a_resumed_run_measures_to_the_same_policy(folders, tmp_path, capsys, kind):
    played(folders, tmp_path / "straight", kind, 3)
    played(folders, tmp_path / "halves", kind, 2)
    assert capsys.readouterr().out.count("The KL's reference is") == 2
    played(folders, tmp_path / "halves", kind, 3, resume_from_checkpoint="latest")
    assert capsys.readouterr().out.count("The KL's reference is") == 1
    straight, halves = metrics_of(tmp_path / "straight"), metrics_of(tmp_path / "halves")
    assert abs(straight[1]["kl"]) < 1e-6 < straight[3]["kl"]
    assert halves[3]["kl"] == pytest.approx(straight[3]["kl"], rel=1e-4)


@pytest.mark.slow
def test_a_policy_that_was_trained_in_place_does_not_become_its_own_reference(tmp_path):
    straight = run_training(tmp_path / "straight", beta=0.1, max_steps=3)
    policy = small_policy()
    run_training(tmp_path / "run", policy=policy, beta=0.1, max_steps=2)
    run_training(tmp_path / "run", policy=policy, beta=0.1, max_steps=3, resume_from_checkpoint="latest")
    assert metrics_of(straight.output_dir)[3]["kl"] == metrics_of(tmp_path / "run")[3]["kl"]


@pytest.mark.slow
def test_the_base_may_be_the_reference_of_adapters_that_were_trained_before(folders, tmp_path):
    played(folders, tmp_path / "run", "adapters", 1, reference="base")
    assert metrics_of(tmp_path / "run")[1]["kl"] > 1e-3


@pytest.mark.slow
def test_checkpoints_hold_the_trained_adapters_alone(folders, tmp_path):
    from safetensors.torch import load_file

    played(folders, tmp_path / "run", "adapters", 2)
    saved, begun = (load_file(f / "adapter_model.safetensors") for f in (tmp_path / "run", folders / "adapters"))
    assert saved.keys() == begun.keys() and any(not torch.equal(saved[name], begun[name]) for name in saved)


@pytest.mark.parametrize("settings", [{}, pytest.param(LORA, marks=pytest.mark.slow)], ids=["weights", "adapters"])
def test_a_model_made_on_the_spot_is_read_from_the_run_when_it_is_resumed(tmp_path, monkeypatch, capsys, settings):
    made = []
    monkeypatch.setattr(start, "tiny_policy_on_the_fly", lambda *args: made.append(args) or small_policy())
    values = QUIET | settings
    train(Coin, output_dir=str(tmp_path / "straight"), **(values | {"max_steps": 3}))
    train(Coin, output_dir=str(tmp_path / "run"), **(values | {"max_steps": 2}))
    assert len(made) == 2
    goes_on = values | {"max_steps": 3, "resume_from_checkpoint": "latest"}
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "run", old)
    train(Coin, output_dir=str(tmp_path / "run"), **goes_on)
    assert len(made) == 2 and "made again" not in capsys.readouterr().out
    assert metrics_of(tmp_path / "run")[3]["kl"] == metrics_of(tmp_path / "straight")[3]["kl"]
    if settings:
        return
    # A run of an earlier version has no such folder.
    shutil.rmtree(old / "base")
    train(Coin, output_dir=str(old), **goes_on)
    assert len(made) == 3 and "it is made again" in capsys.readouterr().out
    assert metrics_of(old)[3]["kl"] == metrics_of(tmp_path / "straight")[3]["kl"]
    assert (old / "base" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "settings, warns",
    [(LORA | {"learning_rate": 1e-6}, True), (LORA | {"learning_rate": 1e-5}, False), ({"learning_rate": 1e-6}, False)],
)
def test_adapters_at_a_rate_for_all_weights_are_warned_about(tmp_path, settings, warns):
    begun = start.start_run(small_config(**settings), Coin, small_policy(), tmp_path, None, start_processes(60))
    assert any("try `--learning_rate 1e-05`" in note for note in begun.notes) == warns


def test_presets_of_adapters_differ_from_those_of_all_weights_in_rate_and_adapters_alone():
    found = sorted(CONFIGS.glob("*/*_lora.yaml"))
    assert len(found) >= 2
    for file in found:
        own, whole = read_yaml(file), read_yaml(file.with_name(file.name.replace("_lora", "")))
        assert own == whole | {"use_peft": True, "learning_rate": pytest.approx(10 * whole["learning_rate"])}
