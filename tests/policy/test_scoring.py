"""Scores of given tokens: only what was chosen counts, and no more memory than a chunk of logits is taken.

In the pictures p is a prompt token, r a response token, a dot padding. Entry j speaks of token j:

    ids            p p p r r .
    response_mask  0 0 0 1 1 0
    logprobs       0 0 0 x x 0      token j is predicted from position j - 1
"""

import math
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from metarl_agents.policy import scoring
from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.value import build_critic

PROMPTS = [(11, 12, 13), (21, 22, 23, 24, 25), (31,)]
RESPONSES = [(41, 42, 43, 44), (51,), (61, 62)]
# Families that change their logits after the head: a factor, a divisor, a cap.
ODD_HEADS = {
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 4.0},
    "gemma2": {"final_logit_softcapping": 2.0, "sliding_window": 64, "query_pre_attn_scalar": 8},
}


def rows(prompts=PROMPTS, responses=RESPONSES, pad=0):
    return right_pad(prompts, responses, pad)


def expected(model, temperature=1.0):
    """(logprobs, entropies) of each row, from the model's own logits, one row at a time."""
    found = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        logits = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0].float() / temperature
        table = logits[len(prompt) - 1 : -1].log_softmax(dim=-1)
        chosen = table.gather(-1, torch.tensor(response)[:, None]).squeeze(-1)
        found.append((chosen, -(table.exp() * table).sum(dim=-1)))
    return found


def assert_scores_match(model, temperature=1.0):
    ids, attention, mask = rows()
    scores = TokenScorer(model)(ids, attention, mask, temperature)
    for index, (logprobs, entropy) in enumerate(expected(model, temperature)):
        assert scores.logprobs[index][mask[index]].tolist() == pytest.approx(logprobs.tolist(), abs=2e-5)
        assert scores.entropy[index][mask[index]].tolist() == pytest.approx(entropy.tolist(), abs=2e-4)


def gradients(model, loss):
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: part.grad.clone() for name, part in model.named_parameters() if part.grad is not None}


# ---- which tokens count -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "llama", "qwen2"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_scores_are_those_of_the_models_own_logits(make_policy, family, temperature):
    assert_scores_match(make_policy(family).model, temperature)


def test_masked_positions_are_exactly_zero(make_policy):
    ids, attention, mask = rows()
    scores = TokenScorer(make_policy().model)(ids, attention, mask)
    assert scores.logprobs.shape == scores.entropy.shape == ids.shape
    assert (scores.logprobs[~mask] == 0).all() and (scores.entropy[~mask] == 0).all()
    assert (scores.logprobs[mask] < 0).all() and (scores.entropy[mask] > 0).all()
    assert scores.values is None


def test_what_stands_in_padding_changes_nothing(make_policy):
    scorer = TokenScorer(make_policy().model)
    one, other = (scorer(*rows(pad=pad)) for pad in (0, 77))
    assert torch.equal(one.logprobs, other.logprobs) and torch.equal(one.entropy, other.entropy)


def test_observations_carry_no_loss_only_positions_before_a_response_token_have_a_gradient(make_policy):
    model = make_policy().model
    kept = []

    def keep(module, inputs, output):
        output.last_hidden_state.retain_grad()
        kept.append(output.last_hidden_state)

    scorer = TokenScorer(model)
    model.base_model.register_forward_hook(keep)
    ids, attention, mask = rows()
    scores = scorer(ids, attention, mask)
    (scores.logprobs + 0.1 * scores.entropy).sum().backward()
    touched = kept[0].grad.abs().sum(dim=-1) > 0
    before_a_response = torch.zeros_like(mask)
    before_a_response[:, :-1] = mask[:, 1:]
    assert torch.equal(touched, before_a_response)


def test_the_gradient_is_that_of_the_response_tokens_alone(make_policy):
    model = make_policy("llama").model
    ours = gradients(model, TokenScorer(model)(*rows()).logprobs.sum())
    theirs = gradients(model, sum(logprobs.sum() for logprobs, _ in expected(model)))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=2e-4, rtol=1e-3)


def test_other_words_in_the_prompt_that_are_given_too_give_another_score_but_no_other_mask(make_policy):
    scorer = TokenScorer(make_policy().model)
    changed = [(11, 99, 13), *PROMPTS[1:]]
    _, _, mask = rows()
    ids, attention, other_mask = rows(changed)
    assert torch.equal(mask, other_mask)
    one, other = scorer(*rows()).logprobs, scorer(ids, attention, other_mask).logprobs
    assert not torch.allclose(one[0], other[0]) and torch.allclose(one[1:], other[1:], atol=1e-6)


# ---- memory -------------------------------------------------------------------------------------------------


def test_chunks_change_neither_values_nor_gradients(make_policy, monkeypatch):
    model = make_policy("llama").model
    found = []
    for elements in (2**24, 2 * model.config.vocab_size, 1):
        monkeypatch.setattr(scoring, "_CHUNK_ELEMENTS", elements)
        scores = TokenScorer(model)(*rows())
        found.append((scores.logprobs, scores.entropy))
        found[-1] += (gradients(model, scores.logprobs.sum() + 0.3 * scores.entropy.sum()),)
    for logprobs, entropy, gradient in found[1:]:
        torch.testing.assert_close(logprobs, found[0][0], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(entropy, found[0][1], atol=1e-5, rtol=1e-5)
        assert gradient.keys() == found[0][2].keys()
        for name, value in gradient.items():
            torch.testing.assert_close(value, found[0][2][name], atol=1e-4, rtol=1e-3)


def test_the_head_sees_one_chunk_at_a_time_and_response_positions_only(make_policy, monkeypatch):
    model = make_policy("llama").model
    monkeypatch.setattr(scoring, "_CHUNK_ELEMENTS", 3 * model.config.vocab_size)
    scorer = TokenScorer(model)
    seen = []
    model.get_output_embeddings().register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    scorer(*rows())
    assert max(seen) <= 3 and sum(seen) == sum(map(len, RESPONSES))


PEAK = """
    import resource, torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from metarl_agents.policy.padding import right_pad
    from metarl_agents.policy import scoring
    from metarl_agents.policy.scoring import TokenScorer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=150_000, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, tie_word_embeddings=True,
    ))
    scorer = TokenScorer(model)

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    def update(rows, tokens):
        batch = right_pad([(1,)] * rows, [tuple(range(1, tokens))] * rows, 0)
        scores = scorer(*batch)
        (scores.logprobs.sum() + scores.entropy.sum()).backward()
        model.zero_grad()

    update(1, 4)
    chunk, scoring._CHUNK_ELEMENTS = scoring._CHUNK_ELEMENTS, 1
    update(1, 4)  # what the first chunks load is not a matter of the batch
    scoring._CHUNK_ELEMENTS = {chunk} or chunk
    before = peak()
    update({rows}, {tokens})
    print(peak() - before)
"""


def peak_growth(rows, tokens, chunk=None):
    """Gigabytes that one forward and backward pass adds to the largest memory of a fresh process."""
    code = textwrap.dedent(PEAK).format(rows=rows, tokens=tokens, chunk=chunk)
    # Freed memory goes back at once, so that what is measured is what was held and not how it was cut up.
    settings = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **settings}
    )
    return float(done.stdout)


def test_memory_grows_with_a_chunk_and_not_with_the_vocabulary_times_the_tokens():
    whole = 160 * 150_000 * 4 / 2**30
    assert whole > 0.08
    assert peak_growth(1, 160, chunk=2**20) < 0.4 * whole  # and a naive pass holds several copies of the whole


@pytest.mark.slow
def test_memory_of_a_batch_of_8_times_512_tokens_stays_far_below_its_logits():
    whole = 8 * 512 * 150_000 * 4 / 2**30
    assert whole > 2.28
    assert peak_growth(8, 512) < 0.3 * whole


# ---- values that are known ----------------------------------------------------------------------------------


def test_a_uniform_head_has_the_entropy_of_its_vocabulary(make_policy):
    model = make_policy("llama", tie_word_embeddings=False).model
    with torch.no_grad():
        model.lm_head.weight.zero_()
    ids, attention, mask = rows()
    scores = TokenScorer(model)(ids, attention, mask)
    nats = math.log(model.config.vocab_size)
    assert scores.entropy[mask].tolist() == pytest.approx([nats] * 7, rel=1e-6)
    assert scores.logprobs[mask].tolist() == pytest.approx([-nats] * 7, rel=1e-6)


@pytest.mark.parametrize("family", ODD_HEADS)
@pytest.mark.parametrize("width", [0.02, 0.3])
def test_families_that_change_their_logits_after_the_head_are_scored_right(make_policy, family, width):
    model = make_policy(family, initializer_range=width, **ODD_HEADS[family]).model
    scorer = TokenScorer(model)
    ids, attention, mask = rows()
    for grown in (False, True):  # also after training has made the logits large
        if grown:
            with torch.no_grad():
                model.get_output_embeddings().weight.mul_(10)
        scores = scorer(ids, attention, mask)
        for index, (logprobs, entropy) in enumerate(expected(model)):
            assert scores.logprobs[index][mask[index]].tolist() == pytest.approx(logprobs.tolist(), abs=1e-4)
            assert scores.entropy[index][mask[index]].tolist() == pytest.approx(entropy.tolist(), abs=1e-3)


@pytest.mark.parametrize("family", ["llama", *ODD_HEADS])
def test_a_critic_predicts_one_value_a_row_from_the_last_prompt_token(make_policy, family):
    model = make_policy(family, **ODD_HEADS.get(family, {})).model
    critic = build_critic("head", model)
    with torch.no_grad():
        critic.linear.weight.normal_()
    ids, attention, mask = rows()
    values = TokenScorer(model, critic)(ids, attention, mask).values
    for value, prompt in zip(values, PROMPTS, strict=True):
        hidden = model.base_model(input_ids=torch.tensor([prompt])).last_hidden_state[0, -1]
        assert value.item() == pytest.approx(critic.linear(hidden).item(), abs=1e-4)


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_the_critic_never_moves_the_policy(make_policy, kind):
    model = make_policy("llama").model
    scorer = TokenScorer(model, build_critic(kind, model))
    with torch.no_grad():
        head = scorer.critic.head if kind == "separate" else scorer.critic
        head.linear.weight.normal_()
    scorer(*rows()).values.sum().backward()
    assert all(part.grad is None or not part.grad.any() for part in model.parameters())
    assert any(part.grad is not None and part.grad.any() for part in scorer.critic.parameters())


# ---- empty micro-batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "cohere"])
def test_an_empty_micro_batch_gives_finite_zeros_attached_to_the_graph(make_policy, family):
    model = make_policy(family, **ODD_HEADS.get(family, {})).model
    scores = TokenScorer(model)(*rows([], []))
    assert scores.logprobs.shape == (1, 1)
    assert not scores.logprobs.any() and not scores.entropy.any()
    assert scores.logprobs.requires_grad and scores.entropy.requires_grad
    found = gradients(model, scores.logprobs.sum() + scores.entropy.sum())
    assert found and all((value == 0).all() for value in found.values())


def test_a_row_that_answers_nothing_is_scored_zero(make_policy):
    scores = TokenScorer(make_policy().model)(*rows([(5, 6), (7,)], [(), (8,)]))
    assert not scores.logprobs[0].any() and scores.logprobs[1, 1] < 0
