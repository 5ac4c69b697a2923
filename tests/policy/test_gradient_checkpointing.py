"""Recomputing activations saves memory and changes nothing else: neither text, nor cache, nor gradient."""

import warnings

import torch

from metarl_agents.policy.loading import enable_gradient_checkpointing
from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.tiny import build_model, build_tokenizer

PROMPTS = [(300, 301, 302, 303), (310, 311)]
GREEDY = Sampling(temperature=0, max_new_tokens=6)


def policy(checkpointing):
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, layers=2, hidden=32)
    if checkpointing:
        enable_gradient_checkpointing(model)
    model.train()
    return Policy(model, tokenizer)


def test_generation_keeps_its_cache_and_its_text():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = policy(False).generate(PROMPTS, GREEDY, seed=0)
        saving = policy(True)
        widths = []
        saving.model.model.register_forward_pre_hook(
            lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
        answers = saving.generate(PROMPTS, GREEDY, seed=0)
    assert answers == plain
    assert widths[0] > 1 and set(widths[1:]) == {1}  # after the prompt, one token a step: the cache is on
    assert saving.model.training and saving.model.model.layers[0].gradient_checkpointing


def test_the_gradient_is_the_same():
    gradients = []
    for checkpointing in (False, True):
        model = policy(checkpointing).model
        scores = TokenScorer(model)(*right_pad([(300, 301)], [(302, 3)], 0))
        scores.logprobs.sum().backward()
        gradients.append(model.model.layers[0].mlp.up_proj.weight.grad)
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(gradients[0], gradients[1])
