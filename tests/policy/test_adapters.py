"""Adapters: what they may be put on, and how they come back from disk."""

import pytest
import torch

from metarl_agents.config import ModelConfig
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.policy.adapters import (
    add_adapters,
    check_lora_targets,
    load_saved_weights,
    merge_adapters,
    read_saved_weights,
)
from metarl_agents.policy.loading import load_policy


def lora(**settings):
    return ModelConfig(use_peft=True, lora_r=4, **settings)


def test_an_unknown_target_is_named_before_a_weight_is_read(tmp_path, make_policy):
    make_policy("llama").save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    for name in ("tiny", str(tmp_path)):
        check_lora_targets(lora(model_name_or_path=name, lora_target_modules=["q_proj", "mlp.up_proj"]))
        with pytest.raises(ConfigError, match="names q_porj, but .* Did you mean q_proj?"):
            check_lora_targets(lora(model_name_or_path=name, lora_target_modules=["v_proj", "q_porj"]))
    with pytest.raises(ConfigError, match="Leave the setting out"):
        check_lora_targets(lora(lora_target_modules=["xyzzy"]))


def test_an_unknown_target_of_a_model_that_could_not_be_asked_before_loading_is_named_then(make_policy):
    """A GGUF file's modules are known once it is read; peft passes over a name of which another one fits."""
    targets = lora(model_name_or_path="some/folder/model.gguf", lora_target_modules=["v_proj", "q_porj"])
    check_lora_targets(targets)
    policy = make_policy()
    with pytest.raises(ConfigError, match="names q_porj, but .* Did you mean q_proj?"):
        add_adapters(policy, targets)
    assert not hasattr(policy.model, "peft_config")
    add_adapters(policy, lora(lora_target_modules=["v_proj", "self_attn.q_proj"]))
    adapted = {
        name.split(".lora_")[0].rpartition(".")[2] for name, p in policy.model.named_parameters() if p.requires_grad
    }
    assert adapted == {"v_proj", "q_proj"}


@pytest.fixture
def adapted(tmp_path, make_policy):
    """A policy with trained adapters on a base that was saved, and its folder."""
    make_policy().save(tmp_path / "base")
    policy = load_policy(ModelConfig(model_name_or_path=str(tmp_path / "base")))
    add_adapters(policy, lora())
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(len(name)))
    policy.save(tmp_path / "adapter")
    return policy, tmp_path / "adapter"


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(10, 30)[None]).logits


def test_saved_adapters_bear_the_names_of_the_models_parameters(adapted):
    policy, folder = adapted
    saved = read_saved_weights(policy.model, folder)
    own = {name: p for name, p in policy.model.named_parameters() if p.requires_grad}
    assert saved.keys() == own.keys()
    assert all(torch.equal(saved[name], own[name]) for name in own)


def test_adapters_return_to_a_policy(adapted):
    policy, folder = adapted
    expected = logits(policy.model)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.zero_()
    assert not torch.allclose(logits(policy.model), expected)
    load_saved_weights(policy, folder)
    assert torch.equal(logits(policy.model), expected)


def test_weights_of_another_shape_do_not_fit(adapted, tmp_path, make_policy):
    _, folder = adapted
    other = make_policy()
    add_adapters(other, lora(lora_target_modules=["q_proj"]))
    with pytest.raises(CheckpointError, match="do not fit this policy"):
        load_saved_weights(other, folder)


def test_the_merged_model_is_an_ordinary_one(adapted, tmp_path):
    from transformers import AutoModelForCausalLM

    policy, folder = adapted
    merge_adapters(folder, lora(), tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert not hasattr(merged, "peft_config")
    assert torch.allclose(logits(merged), logits(policy.model), atol=1e-4)
