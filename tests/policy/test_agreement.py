"""A model's sampler and its scorer give a sampled token the same log-probability, and a gap is seen where there is one."""

import torch

from metarl_agents.policy.agreement import sampling_gap

PROMPTS = [(300, 301, 302, 303, 304, 305), (310, 311), (320,)]


def test_a_causal_model_agrees_with_itself_and_is_left_as_it_was(make_policy):
    policy = make_policy()
    own, state = policy.model.generation_config, torch.random.get_rng_state()
    assert sampling_gap(policy, PROMPTS) < 1e-4
    assert policy.model.generation_config is own and torch.equal(torch.random.get_rng_state(), state)


def test_a_model_that_looks_ahead_is_seen(make_policy):
    policy = make_policy("llama", attn_implementation="eager")
    for layer in policy.model.model.layers:
        # Attention without its mask: the scorer sees the whole row, the sampler only what it has said so far.
        layer.self_attn.register_forward_pre_hook(
            lambda module, args, kwargs: (args, kwargs | {"attention_mask": None}), with_kwargs=True
        )
    assert sampling_gap(policy, PROMPTS) > 0.1
