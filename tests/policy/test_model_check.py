"""What is refused when a model is loaded: one broken model of each kind, through every way that loads one."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from metarl_agents import Agent, play, train
from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.policy.loading import load_policy
from metarl_agents.policy.tiny import build_tokenizer

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = {
    "env": "two_doors", "wording": "compact", "num_episodes": 1, "max_turns": 1, "group_size": 2, "tasks_per_step": 1,
    "max_new_tokens_per_turn": 2, "max_prompt_tokens": 200, "max_steps": 1, "eval_tasks": 1, "eval_samples": 0,
    "eval_steps": 0, "report_to": ["none"],
}  # fmt: skip


def saved(folder, model, tokenizer=None):
    model.save_pretrained(folder)
    (tokenizer or build_tokenizer()).save_pretrained(folder)
    return str(folder)


def load(folder, **settings):
    return load_policy(ModelConfig(model_name_or_path=str(folder), **settings))


def with_nan(model):
    with torch.no_grad():
        list(model.parameters())[3].view(-1)[5] = float("nan")
    return model


# ---- each kind --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_not_finite_is_named(tmp_path, make_model, number):
    model = make_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[7, 3] = number
    with pytest.raises(ConfigError, match=r"layers\.1\.mlp\.up_proj\.weight holds NaN or infinite numbers.*fetch it"):
        load(saved(tmp_path, model))


def test_a_token_without_an_embedding_is_named_with_both_sizes(tmp_path, make_model):
    tokenizer = build_tokenizer()
    rows = len(tokenizer)
    tokenizer.add_tokens(["north-by-northwest"])
    folder = saved(tmp_path, make_model("qwen3", vocabulary=rows), tokenizer)
    with pytest.raises(
        ConfigError, match=f"'north-by-northwest' of the tokenizer has id {rows}, .* {rows} rows .* {rows + 1} tok"
    ):
        load(folder)


def test_a_pad_token_without_an_embedding_is_named(tmp_path, make_model):
    tokenizer = build_tokenizer()
    rows = len(tokenizer)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    with pytest.raises(ConfigError, match=rf"'\[PAD\]' of the tokenizer has id {rows}"):
        load(saved(tmp_path, make_model("gpt2", vocabulary=rows), tokenizer))


def test_tokens_that_no_text_can_bring_and_padded_embeddings_are_no_matter(tmp_path, make_model):
    tokenizer = build_tokenizer()
    rows = len(tokenizer)
    padded = load(saved(tmp_path / "padded", make_model("qwen3", vocabulary=rows + 37), tokenizer))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>", "<audio>"]})
    above = load(saved(tmp_path / "above", make_model("qwen3", vocabulary=rows), tokenizer))
    message = [{"role": "user", "content": "What is <image>?"}]
    assert max(above.encode(message)) < rows and padded.encode(message)


def xlnet(vocabulary):
    from transformers import XLNetConfig, XLNetLMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return XLNetLMHeadModel(XLNetConfig(vocab_size=vocabulary, d_model=32, n_layer=2, n_head=4, d_inner=48))


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_a_model_that_reads_ahead_is_refused(tmp_path, make_model, tiny_tokenizer, family):
    # One says so in its configuration, the other shows it.
    model = make_model(family) if family == "bert" else xlnet(len(tiny_tokenizer))
    with pytest.raises(ConfigError, match="is not causal: .*; choose a decoder"):
        load(saved(tmp_path, model))


def test_an_encoder_that_is_configured_as_a_decoder_passes(tmp_path, make_model):
    assert load(saved(tmp_path, make_model("bert", is_decoder=True))).context_length == 512


class Halves:
    """A hook that changes logits of full batches beyond `rows` rows where the cache is used, as while sampling."""

    def __init__(self, rows):
        self.rows = rows

    def __call__(self, module, arguments, options, output):
        if options.get("use_cache") and len(output.logits) > self.rows:
            output.logits = output.logits * 0.5
        return output


def test_a_model_that_samples_otherwise_than_it_scores_is_refused(tmp_path, make_policy):
    policy = make_policy()
    policy.model.register_forward_hook(Halves(0), with_kwargs=True)
    with pytest.raises(ConfigError, match=r"disagree by up to .* nats .*--attn_implementation eager"):
        train(policy=policy, output_dir=str(tmp_path / "run"), **SMALL)


def test_a_gap_that_shows_in_training_only_is_warned_about_once(tmp_path, make_policy, capsys):
    policy = make_policy()
    policy.model.register_forward_hook(Halves(3), with_kwargs=True)
    more = SMALL | {"group_size": 4, "max_steps": 2, "invalid_action_penalty": 0.0, "beta": 0.1}
    train(policy=policy, output_dir=str(tmp_path / "run"), **more)
    told = capsys.readouterr().out
    assert told.count("nats a token on average (`sampling/logp_difference/mean`; at most 0.01") == 1


def test_a_model_that_fails_on_a_prompt_is_told_in_a_sentence(make_policy, tmp_path):
    policy = make_policy()

    def fail(*_):
        raise IndexError("index out of range\nin self")

    policy.model.model.layers[0].register_forward_hook(fail)
    with pytest.raises(ConfigError, match=r"fails on a short prompt \(IndexError: index out of range in self\): try"):
        train(policy=policy, output_dir=str(tmp_path / "run"), **SMALL)


# ---- every way that loads a model -------------------------------------------------------------------------------


def recipe(name, arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main()


WAYS = {
    "train": lambda folder, out, patch: train(model_name_or_path=folder, output_dir=out, **SMALL),
    "adapters": lambda folder, out, patch: train(model_name_or_path=folder, output_dir=out, use_peft=True, **SMALL),
    "agent": lambda folder, out, patch: Agent.from_pretrained(folder),
    "play": lambda folder, out, patch: play.main(["two_doors", "--model", folder, "--max_new_tokens_per_turn", "2"]),
    "evaluate": lambda folder, out, patch: recipe(
        "evaluate", ["--model_name_or_path", folder, "--env", "two_doors", "--max_new_tokens_per_turn", "2"], patch
    ),
    "warm_start": lambda folder, out, patch: recipe("warm_start", ["--init", folder, "--trials", "1"], patch),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_load_a_model_checks_it(tmp_path, make_model, monkeypatch, way):
    folder = saved(tmp_path / "model", with_nan(make_model("qwen3")))
    with pytest.raises(ConfigError, match="holds NaN"):
        WAYS[way](folder, str(tmp_path / "run"), monkeypatch)


# ---- what a check leaves ----------------------------------------------------------------------------------------


def test_a_check_leaves_weights_modes_and_random_state_as_they_were(make_policy):
    from metarl_agents.policy.model_check import check_model

    policy = make_policy("gpt2")
    policy.model.transformer.h[1].train()
    weights = {name: value.clone() for name, value in policy.model.state_dict().items()}
    modes = [module.training for module in policy.model.modules()]
    config, state = policy.model.generation_config, torch.get_rng_state()
    check_model(policy)
    assert torch.equal(torch.get_rng_state(), state) and policy.model.generation_config is config
    assert modes == [module.training for module in policy.model.modules()] and True in modes
    assert all(torch.equal(value, weights[name]) for name, value in policy.model.state_dict().items())
    assert all(parameter.grad is None for parameter in policy.model.parameters())
