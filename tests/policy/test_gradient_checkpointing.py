"""Recomputing activations in an update saves memory and changes nothing else: neither text, nor cache, nor gradient.

Everything is measured through the project's own update: what autograd keeps, and how often layers run.
"""

import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.policy.loading import load_policy
from metarl_agents.policy.mode import recompute_activations, refuse_noise, repeated_layers
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from training_helpers import TOKENIZER, GradientRecorder, open_run, play

from metarl_agents.training.update import update_policy

PROMPTS = [(300, 301, 302, 303), (310, 311)]
GREEDY = Sampling(temperature=0, max_new_tokens=6)
CASES = {
    "all weights": {},
    "adapters": {"use_peft": True, "lora_r": 4},
    "critic": {"advantages": "ppo", "critic": "separate"},
    "reference": {"beta": 0.1, "updates_per_batch": 2},
}


def deep_model(family="llama", **settings):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 2}
    ends = {"pad_token_id": TOKENIZER.pad_token_id, "eos_token_id": TOKENIZER.eos_token_id, "bos_token_id": None}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes |= {"num_key_value_heads": 2, "vocab_size": len(TOKENIZER), "max_position_embeddings": 256}
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes, **ends, **settings))


class Kept:
    """Sums the bytes of all tensors that autograd keeps for the backward pass, each storage once."""

    def __init__(self):
        self.storages = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._note, lambda tensor: tensor)

    def _note(self, tensor):
        storage = tensor.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    def __enter__(self):
        self._hooks.__enter__()
        return self

    def __exit__(self, *details):
        self._hooks.__exit__(*details)

    @property
    def total(self):
        return sum(self.storages.values())


def measured_update(folder, **settings):
    """(bytes that autograd keeps in the forward passes of one update, layers run with gradients, gradients)."""
    deep_model().save_pretrained(folder / "model")
    TOKENIZER.save_pretrained(folder / "model")
    policy = load_policy(ModelConfig(model_name_or_path=str(folder / "model")))
    run = open_run(folder, policy=policy, max_tokens_per_micro_batch=10_000, **settings)
    batch, _ = play(run)
    recorder, kept, backward = GradientRecorder(run), Kept(), run.sharding.backward
    runs = [0]

    def count(module, args, output):
        runs[0] += torch.is_grad_enabled()

    for layer in repeated_layers(run.plain_scorer):
        layer.input_layernorm.register_forward_hook(count)

    def unwatched(loss):
        # What the backward pass makes again is freed layer by layer; here is what waits for it.
        kept._hooks.__exit__(None, None, None)
        backward(loss)
        kept._hooks.__enter__()

    run.sharding.backward = unwatched
    with kept:
        stats = update_policy(run, batch, 0)
    assert stats["update/steps"][0] == settings.get("updates_per_batch", 1)
    assert not any(part.training for part in run.plain_scorer.modules())
    return kept.total, runs[0], recorder.gradients


@pytest.mark.parametrize("case", CASES)
def test_the_flag_saves_memory_and_leaves_the_gradient(tmp_path, case):
    settings = CASES[case]
    kept, runs, gradients = measured_update(tmp_path / "plain", **settings)
    less, more_runs, same = measured_update(tmp_path / "thrifty", gradient_checkpointing=True, **settings)
    assert more_runs == 2 * runs, "every layer, the separate critic's too, runs once more in the backward pass"
    assert less < kept / 3
    assert all(one.keys() == other.keys() for one, other in zip(gradients, same, strict=True))
    assert any(value.any() for value in gradients[0].values())
    for one, other in zip(gradients, same, strict=True):
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)


def test_generation_keeps_its_cache_and_its_text():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = Policy(deep_model(), TOKENIZER).generate(PROMPTS, GREEDY, seed=0)
        saving = Policy(deep_model(), TOKENIZER)
        recompute_activations(saving.model)
        widths = []
        saving.model.model.register_forward_pre_hook(
            lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
        answers = saving.generate(PROMPTS, GREEDY, seed=0)
    assert answers == plain
    assert widths[0] > 1 and set(widths[1:]) == {1}  # after the prompt, one token a step: the cache is on


def test_a_network_without_a_list_of_layers_is_refused_in_one_sentence(tmp_path):
    class Flat(type(deep_model())):
        """The same network with its layers under names of their own."""

        def __init__(self, config):
            super().__init__(config)
            self.model.layers = nn.ModuleDict({str(place): layer for place, layer in enumerate(self.model.layers)})

    policy = Policy(Flat(deep_model().config), TOKENIZER)
    with pytest.raises(ConfigError, match=r"^`gradient_checkpointing` .* Flat keeps no list of layers: [^\n]*$"):
        recompute_activations(policy.model)


def test_a_model_that_is_random_in_eval_mode_is_refused_before_it_plays(tmp_path):
    model = deep_model()
    refuse_noise(model, "fine")
    model.model.layers[1].mlp.register_forward_hook(lambda module, args, output: nn.functional.dropout(output, 0.3))
    with pytest.raises(ConfigError, match=r"^the model LlamaForCausalLM is random although it is in eval mode [^\n]*$"):
        open_run(tmp_path / "run", policy=Policy(model, TOKENIZER))
