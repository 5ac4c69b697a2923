"""On a GPU: what was drawn is what is scored, and the GPU says what the CPU says."""

import copy

import pytest
import torch

from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.value import build_critic

pytestmark = pytest.mark.gpu
FAMILIES = ["qwen3", "gpt2", "llama"]
SHORT = Sampling(max_new_tokens=12)


def on_gpu(policy):
    policy.model.to("cuda")
    return policy


def prompts_of(policy, *lengths):
    start = len(policy.tokenizer) - 300
    return [tuple(start + (7 * index + 3 * place) % 300 for place in range(n)) for index, n in enumerate(lengths)]


def scored(policy, prompts, responses):
    rows = right_pad(prompts, [response.ids for response in responses], policy.pad_id)
    with torch.no_grad():
        logprobs = TokenScorer(policy.model)(*(part.to(policy.model.device) for part in rows)).logprobs.cpu()
    return [row[own].tolist() for row, own in zip(logprobs, rows[2], strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_tokens_have_the_same_logprobs_at_sampling_and_at_learning(make_policy, family):
    policy = on_gpu(make_policy(family))
    prompts = prompts_of(policy, 3, 40, 9)
    responses = policy.generate(prompts, SHORT, seed=1)
    for response, row in zip(responses, scored(policy, prompts, responses), strict=True):
        assert response.logprobs == pytest.approx(row, abs=1e-4)
    assert min(min(response.logprobs) for response in responses) < -0.5


def test_the_same_seed_draws_the_same_and_the_random_states_of_both_devices_stay(make_policy):
    policy = on_gpu(make_policy())
    prompts = prompts_of(policy, 5, 9)
    torch.manual_seed(3)
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    first, again = (policy.generate(prompts, SHORT, seed=7) for _ in range(2))
    other = policy.generate(prompts, SHORT, seed=8)
    assert [r.ids for r in first] == [r.ids for r in again] != [r.ids for r in other]
    assert torch.equal(before[0], torch.get_rng_state()) and torch.equal(before[1], torch.cuda.get_rng_state())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gpu_scores_and_differentiates_as_the_cpu_does(make_policy, family):
    policy = make_policy(family)
    twin = copy.deepcopy(policy.model).to("cuda")
    prompts = prompts_of(policy, 3, 40, 9)
    rows = right_pad(prompts, [response.ids for response in policy.generate(prompts, SHORT, seed=1)], policy.pad_id)
    found = []
    for model, device in ((policy.model, "cpu"), (twin, "cuda")):
        scores = TokenScorer(model, build_critic("head", model).to(device))(*(part.to(device) for part in rows))
        (scores.logprobs.sum() + 0.3 * scores.entropy.sum()).backward()
        gradients = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
        found.append((scores.logprobs.detach().cpu(), scores.entropy.detach().cpu(), gradients))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-4, rtol=1e-4)
    assert found[0][2].keys() == found[1][2].keys()
    for name, gradient in found[0][2].items():
        torch.testing.assert_close(gradient, found[1][2][name], atol=1e-3, rtol=1e-3)


def test_logits_of_a_large_vocabulary_never_exist_whole(make_policy):
    policy = on_gpu(make_policy("llama", vocabulary=150_000))
    tokens = torch.arange(1, 513)
    rows = right_pad([(1,)] * 8, [tuple(tokens.tolist())] * 8, 0)
    scorer = TokenScorer(policy.model)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    scores = scorer(*(part.to("cuda") for part in rows))
    (scores.logprobs.sum() + scores.entropy.sum()).backward()
    whole = 8 * 512 * 150_000 * 4
    assert torch.cuda.max_memory_allocated() - before < 0.3 * whole
