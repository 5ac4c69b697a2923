"""Adapters: what they may be put on, and how they come back from disk."""

import pytest
import torch
from torch import nn

from metarl_agents.config import ModelConfig
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.policy.adapters import (
    add_adapters,
    load_saved_weights,
    read_saved_weights,
)
from metarl_agents.policy.loading import load_policy
from metarl_agents.policy.lora_targets import check_lora_targets
from metarl_agents.policy.merging import merge_adapters


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


STATE = {"state_size": 8, "head_dim": None, "num_key_value_heads": None, "num_attention_heads": None}
MAMBA2 = STATE | {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}
JAMBA = {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1}
JAMBA |= {"num_experts": 2, "num_experts_per_tok": 1, "mamba_d_state": 8, "mamba_dt_rank": 4}
LLAMA4 = {"num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 48, "attention_chunk_size": 32}
# Families in which an adapter on some linear layer is refused by peft, passed over by the network, or breaks it.
ODD_TARGETS = {
    "mamba2": (MAMBA2, {"out_proj"}),
    "jamba": (JAMBA, {"dt_proj"}),
    "llama4_text": (LLAMA4, {"router"}),
}


@pytest.mark.parametrize("family", ODD_TARGETS)
def test_the_default_targets_are_those_that_learn(make_policy, family):
    settings, odd = ODD_TARGETS[family]
    policy = make_policy(family, **settings)
    linear = {name.rpartition(".")[2] for name, part in policy.model.named_modules() if isinstance(part, nn.Linear)}
    add_adapters(policy, lora())
    ids = torch.arange(10, 30)[None]
    policy.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits.logsumexp(
        -1
    ).sum().backward()
    trained = {name: part for name, part in policy.model.named_parameters() if part.requires_grad}
    assert all(part.grad is not None for part in trained.values())
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trained} == linear - odd - {"lm_head"}


@pytest.mark.parametrize("family, target", [("mamba2", "out_proj"), ("jamba", "dt_proj"), ("llama", "norm")])
def test_a_target_that_cannot_be_adapted_is_named_beside_those_that_can(make_policy, family, target):
    policy = make_policy(family, **ODD_TARGETS.get(family, ({},))[0])
    targets = lora(lora_target_modules=["in_proj" if family != "llama" else "q_proj", target])
    with pytest.raises(ConfigError, match=rf"names {target}, but .* name any of .*{targets.lora_target_modules[0]}"):
        add_adapters(policy, targets)
    assert not hasattr(policy.model, "peft_config")


def test_a_target_that_peft_refuses_is_named_before_a_weight_is_read(tmp_path, make_policy):
    make_policy("mamba2", **MAMBA2).save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="names out_proj, but .* name any of in_proj, or leave the setting out"):
        check_lora_targets(lora(model_name_or_path=str(tmp_path), lora_target_modules=["out_proj", "in_proj"]))
    check_lora_targets(lora(model_name_or_path=str(tmp_path), lora_target_modules=["all-linear"]))


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
    assert merge_adapters(folder, lora(), tmp_path / "merged") == []
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert not hasattr(merged, "peft_config")
    assert torch.allclose(logits(merged), logits(policy.model), atol=1e-4)


QWEN3_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
TIED = {"tie_word_embeddings": True}


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "family, settings, targets",
    [
        ("qwen3", TIED, ["q_proj", "lm_head"]),
        ("qwen3", TIED, ["embed_tokens"]),
        ("qwen3", TIED, ["embed_tokens", "lm_head", "o_proj"]),
        ("gpt2", {}, ["lm_head", "c_attn"]),
        ("gpt2", {}, ["wte", "c_fc"]),
        ("gemma2", TIED | {"sliding_window": 64, "query_pre_attn_scalar": 8}, ["lm_head"]),
        ("qwen3_moe", TIED | QWEN3_MOE, None),
        ("qwen3", {"tie_word_embeddings": False}, ["embed_tokens", "lm_head"]),
    ],
)
def test_a_merged_model_scores_as_its_base_with_adapters(tmp_path, make_policy, family, settings, targets, dtype):
    """Also where the base shares one weight between embedding and head, and the adapters change one of the two."""
    make_policy(family, **settings).save(tmp_path / "base")
    config = lora(model_name_or_path=str(tmp_path / "base"), lora_target_modules=targets, dtype=dtype)
    policy = load_policy(config)
    add_adapters(policy, config)
    stir(policy)
    policy.save(tmp_path / "adapter")
    expected, base = logits(policy.model), logits(load_policy(config).model)
    notes = merge_adapters(tmp_path / "adapter", config, tmp_path / "merged")
    touched = {"lm_head", "embed_tokens", "wte"} & set(targets or ())
    is_tied = policy.model.config.tie_word_embeddings
    assert len(notes) == bool(touched and is_tied) and all("tie_word_embeddings: false" in note for note in notes)
    merged = load_policy(lora(model_name_or_path=str(tmp_path / "merged"), dtype="auto")).model
    assert merged.config.tie_word_embeddings == (is_tied and not touched) and str(merged.dtype) == f"torch.{dtype}"
    scale = max(1.0, float(expected.abs().max()))
    limit = (1e-4 if dtype == "float32" else 0.15) * scale  # these random models make much of bf16's rounding
    assert float((logits(merged) - expected).abs().max()) < limit < float((base - expected).abs().max())


def stir(policy):
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if parameter.requires_grad and ("lora_B" in name or "embedding_A" in name):
                parameter.normal_(std=0.5, generator=torch.Generator().manual_seed(len(name)))


def test_adapters_and_a_head_that_is_trained_whole_return_from_their_file(tmp_path, make_policy):
    """Peft's `modules_to_save`, which an adapter folder from elsewhere may bring."""
    from peft import LoraConfig, get_peft_model

    make_policy(tie_word_embeddings=True).save(tmp_path / "base")
    policy = load_policy(ModelConfig(model_name_or_path=str(tmp_path / "base")))
    policy.model = get_peft_model(policy.model, LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"]))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    policy.save(tmp_path / "adapter")
    saved = read_saved_weights(policy.model, tmp_path / "adapter")
    own = {name: p for name, p in policy.model.named_parameters() if p.requires_grad}
    assert saved.keys() == own.keys() and all(torch.equal(saved[name], own[name]) for name in own)
    merge_adapters(tmp_path / "adapter", lora(), tmp_path / "merged")
    merged = load_policy(ModelConfig(model_name_or_path=str(tmp_path / "merged"))).model
    assert torch.allclose(logits(merged), logits(policy.model), atol=1e-4)
