"""Sampling: what was drawn is what is scored, nothing of the model's own settings leaks in, nothing global moves.

In the pictures p is a prompt token, r a response token, E an end token, a dot padding:

    sampled together   . . . p p r r E .      alone, for learning   p p r r E . .
                       p p p p p r E . .                            p p p p p r E
"""

import json
import random

import numpy
import pytest
import torch
from torch import nn

from metarl_agents.config import Config, TrialConfig
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.errors import ConfigError
from metarl_agents.policy.padding import left_pad, right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.tiny import build_tokenizer
from metarl_agents.rollout import PolicySpeaker, collect_trials
from metarl_agents.types import Response

FAMILIES = ["qwen3", "gpt2", "llama", "qwen2"]
SHORT = Sampling(max_new_tokens=6)
GREEDY = Sampling(temperature=0, max_new_tokens=6)


def prompts_of(policy, *lengths):
    """Prompts of the given lengths, with different tokens in each."""
    start = len(policy.tokenizer) - 300
    return [tuple(start + (7 * index + 3 * place) % 300 for place in range(n)) for index, n in enumerate(lengths)]


def scored(policy, prompts, responses, temperature=1.0):
    """Log-probabilities of the response tokens, one list per row, from the learning side."""
    ids, attention, mask = right_pad(prompts, [response.ids for response in responses], policy.pad_id)
    with torch.no_grad():
        logprobs = TokenScorer(policy.model)(ids, attention, mask, temperature).logprobs
    return [row[own].tolist() for row, own in zip(logprobs, mask, strict=True)]


def fond_of(model, token, bias=8.0):
    """Give the model a head with a bias, so that it likes to say `token`."""
    old = model.get_output_embeddings()
    head = nn.Linear(old.in_features, old.out_features, bias=True)
    with torch.no_grad():
        head.weight.copy_(old.weight)
        head.bias.zero_()
        head.bias[token] = bias
    model.config.tie_word_embeddings = False
    model.set_output_embeddings(head)
    return model


# ---- the same numbers at sampling and at learning ------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_tokens_have_the_same_logprobs_at_sampling_and_at_learning(make_policy, family, temperature):
    policy = make_policy(family)
    prompts = prompts_of(policy, 3, 40, 9)
    responses = policy.generate(prompts, Sampling(temperature=temperature, max_new_tokens=6), seed=1)
    for response, row in zip(responses, scored(policy, prompts, responses, temperature), strict=True):
        assert len(response.logprobs) == len(response.ids) == len(row)
        assert response.logprobs == pytest.approx(row, abs=1e-4)
    assert min(min(response.logprobs) for response in responses) < -0.5  # the law is not about certain tokens


@pytest.mark.parametrize(
    "filters", [{"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.3}, {"top_k": 9, "top_p": 0.8, "min_p": 0.01}]
)
def test_filters_are_in_the_distribution_that_is_recorded_and_scored(make_policy, filters):
    policy = make_policy()
    prompts = prompts_of(policy, 3, 40, 9)
    sampling = Sampling(temperature=1.5, max_new_tokens=6, **filters)
    responses = policy.generate(prompts, sampling, seed=1)
    ids, attention, mask = right_pad(prompts, [response.ids for response in responses], policy.pad_id)
    with torch.no_grad():
        scores = TokenScorer(policy.model)(ids, attention, mask, 1.5, filters=sampling.filters)
        logits = policy.model(ids, attention_mask=attention.long()).logits.float() / 1.5
    for row, response in enumerate(responses):
        assert response.logprobs == pytest.approx(scores.logprobs[row][mask[row]].tolist(), abs=1e-4)
        # The share of what the filters keep, by their definitions.
        place = len(prompts[row]) - 1
        shares, order = logits[row, place].softmax(-1).sort(descending=True)
        kept = torch.ones_like(shares, dtype=torch.bool)
        kept[filters.get("top_k", len(shares)) :] = False
        left = shares * kept / (shares * kept).sum()
        kept &= left.cumsum(0) - left < filters.get("top_p", 1.0)
        kept &= shares >= filters.get("min_p", 0.0) * shares[0]
        left = shares * kept / (shares * kept).sum()
        chosen = (order == response.ids[0]).nonzero().item()
        assert response.logprobs[0] == pytest.approx(left[chosen].log().item(), abs=1e-4)
        entropy = torch.special.entr(left).sum().item()
        assert scores.entropy[row, place + 1].item() == pytest.approx(entropy, abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padding_by_37_tokens_changes_neither_the_choice_nor_its_logprobs(make_policy, family):
    policy = make_policy(family)
    short, long = prompts_of(policy, 5, 42)
    (alone,) = policy.generate([short], GREEDY, seed=0)
    padded, _ = policy.generate([short, long], GREEDY, seed=0)
    assert padded.ids == alone.ids
    assert padded.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_right_padding_and_neighbours_change_no_logprob(make_policy, family):
    policy = make_policy(family)
    prompts = prompts_of(policy, 3, 40, 9)
    responses = policy.generate(prompts, SHORT, seed=2)
    together = scored(policy, prompts, responses)
    for prompt, response, row in zip(prompts, responses, together, strict=True):
        assert scored(policy, [prompt], [response])[0] == pytest.approx(row, abs=1e-5)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gpt2", {}),
        ("llama", {"attention_dropout": 0.3}),
        ("bloom", {"hidden_dropout": 0.3, "attention_dropout": 0.3}),
        ("opt", {"dropout": 0.3, "layerdrop": 0.3}),
        ("mixtral", {"router_jitter_noise": 0.3}),
    ],
)
def test_the_first_ratio_is_one_although_the_config_asks_for_noise(make_model, tiny_tokenizer, family, settings):
    policy = Policy(make_model(family, **settings).train(), tiny_tokenizer)
    prompts = prompts_of(policy, 4, 11)
    policy.model.train()  # whoever switches it on later, too
    responses = policy.generate(prompts, SHORT, seed=3)
    policy.model.train()
    for response, row in zip(responses, scored(policy, prompts, responses), strict=True):
        assert response.logprobs == pytest.approx(row, abs=1e-4)


def test_the_trap_is_armed_a_model_with_dropout_answers_differently_each_time(make_model):
    model = make_model("gpt2").train()
    ids = torch.arange(40).view(1, -1)
    assert not torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)


# ---- where an answer ends -----------------------------------------------------------------------------------


def test_the_end_token_of_each_turn_is_kept_and_learned_even_where_it_is_the_padding_token(make_model):
    tokenizer = build_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    end = tokenizer.eos_token_id
    policy = Policy(fond_of(make_model("llama"), end, bias=4.0).eval(), tokenizer)
    assert policy.pad_id == end
    prompts = prompts_of(policy, *[4] * 12, 9)
    responses = policy.generate(prompts, Sampling(max_new_tokens=12), seed=0)
    lengths = [len(response.ids) for response in responses]
    assert len(set(lengths)) > 2  # some rows were padded after their end
    for response in responses:
        assert response.truncated == (end not in response.ids)
        assert end not in response.ids[:-1]  # exactly one end token, the last
    assert sum(not response.truncated for response in responses) >= 6

    ids, attention, mask = right_pad(prompts, [response.ids for response in responses], policy.pad_id)
    assert mask.sum(dim=1).tolist() == lengths
    assert attention.sum(dim=1).tolist() == [len(p) + n for p, n in zip(prompts, lengths, strict=True)]
    ended = [row for row, response in enumerate(responses) if not response.truncated]
    for row in ended:
        last = len(prompts[row]) + lengths[row] - 1
        assert ids[row, last] == end and mask[row, last] and not mask[row, last + 1 :].any()
    for response, row in zip(responses, scored(policy, prompts, responses), strict=True):
        assert response.logprobs == pytest.approx(row, abs=1e-4)


def test_an_answer_stops_at_the_first_of_several_end_tokens(make_model, tiny_tokenizer):
    stop, other = 300, 301
    model = fond_of(make_model("llama"), stop, bias=4.0)
    with torch.no_grad():
        model.get_output_embeddings().bias[other] = 4.0
    model.generation_config.eos_token_id = [stop, other]
    policy = Policy(model.eval(), tiny_tokenizer)
    ends = {stop, other, tiny_tokenizer.eos_token_id}
    assert set(policy.end_ids) == ends and policy.end_ids[0] == tiny_tokenizer.eos_token_id
    responses = policy.generate(prompts_of(policy, *[5] * 16), Sampling(max_new_tokens=12), seed=0)
    last = {response.ids[-1] for response in responses if not response.truncated}
    assert {stop, other} <= last <= ends
    assert not any(ends & set(response.ids[:-1]) for response in responses)


def test_an_answer_at_the_limit_of_its_turn_is_flagged_as_truncated(make_model, tiny_tokenizer):
    tokens = [tiny_tokenizer.eos_token_id, 300]
    ends, goes_on = (Policy(fond_of(make_model("llama"), token, 50.0).eval(), tiny_tokenizer) for token in tokens)
    (ended,) = ends.generate(prompts_of(ends, 4), Sampling(max_new_tokens=1), seed=0)
    (cut,) = goes_on.generate(prompts_of(goes_on, 4), Sampling(max_new_tokens=4), seed=0)
    assert ended.ids == (tiny_tokenizer.eos_token_id,) and ended.text == "" and not ended.truncated
    assert cut.ids == (300,) * 4 and cut.truncated


def test_the_limit_is_one_of_each_turn_and_not_of_prompt_and_answer(make_model, tiny_tokenizer):
    policy = Policy(fond_of(make_model("llama"), 300, 50.0).eval(), tiny_tokenizer)
    for response in policy.generate(prompts_of(policy, 2, 90), Sampling(max_new_tokens=5), seed=0):
        assert len(response.ids) == 5


def test_a_model_without_any_end_token_is_refused(make_model):
    tokenizer = build_tokenizer()
    tokenizer.eos_token = None
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] + '\n' }}{% endfor %}"
    model = make_model("llama", eos_token_id=None)
    model.generation_config.eos_token_id = None
    with pytest.raises(ConfigError, match="end-of-turn"):
        Policy(model, tokenizer)


# ---- one complete distribution ------------------------------------------------------------------------------

LEAKS = {
    "do_sample": True,
    "top_k": 1,
    "top_p": 0.1,
    "min_p": 0.9,
    "typical_p": 0.5,
    "temperature": 0.1,
    "repetition_penalty": 1.3,
    "no_repeat_ngram_size": 1,
    "min_new_tokens": 5,
    "max_length": 3,
    "suppress_tokens": list(range(250, 400)),
    "begin_suppress_tokens": list(range(100, 200)),
    "forced_eos_token_id": 7,
    "bad_words_ids": [[index] for index in range(400, 450)],
    "renormalize_logits": True,
    "output_scores": True,
    "return_dict_in_generate": True,
}


@pytest.mark.parametrize("sampling", [SHORT, GREEDY, Sampling(temperature=0.9, top_k=5, max_new_tokens=6)])
def test_nothing_of_the_models_generation_config_leaks_into_the_draws(make_policy, sampling):
    from transformers import GenerationConfig

    clean, other = make_policy("llama"), make_policy("llama")
    prompts = prompts_of(clean, 4, 4, 9, 9)
    own = GenerationConfig(eos_token_id=clean.tokenizer.eos_token_id, **LEAKS)
    other.model.generation_config = own
    wanted = own.to_dict()
    assert other.generate(prompts, sampling, seed=5) == clean.generate(prompts, sampling, seed=5)
    assert other.model.generation_config is own and own.to_dict() == wanted


def test_a_top_k_of_one_in_the_models_config_leaves_draws_diverse(make_policy):
    policy = make_policy("qwen3")
    policy.model.generation_config.top_k = 1
    policy.model.generation_config.repetition_penalty = 1.3
    responses = policy.generate(prompts_of(policy, 4) * 16, SHORT, seed=0)
    assert len({response.ids for response in responses}) >= 14


def test_the_models_generation_config_is_saved_as_it_came(make_policy, tmp_path):
    policy = make_policy("llama")
    policy.model.generation_config.update(do_sample=True, top_k=1, repetition_penalty=1.3)
    policy.generate(prompts_of(policy, 4), Sampling(top_k=7, max_new_tokens=2), seed=0)
    policy.save(tmp_path)
    saved = json.loads((tmp_path / "generation_config.json").read_text())
    assert (saved["top_k"], saved["repetition_penalty"], saved["do_sample"]) == (1, 1.3, True)
    assert "max_new_tokens" not in saved


def test_the_config_comes_back_after_a_failure(make_policy):
    policy = make_policy("llama")
    own = policy.model.generation_config
    with pytest.raises(IndexError):
        policy.generate([(10**6,)], SHORT, seed=0)
    assert policy.model.generation_config is own


def test_adapters_do_not_let_our_settings_stay_in_the_base_model(make_policy):
    from metarl_agents.config import ModelConfig
    from metarl_agents.policy.adapters import add_adapters

    policy = make_policy("llama")
    base = policy.model
    base.generation_config.update(do_sample=True, top_k=1)
    own, wanted = base.generation_config, base.generation_config.to_dict()
    prompts = prompts_of(policy, 4, 9)
    plain = policy.generate(prompts, SHORT, seed=0)
    add_adapters(policy, ModelConfig(use_peft=True, lora_r=2))
    assert policy.generate(prompts, SHORT, seed=0) == plain  # fresh adapters add nothing
    assert base.generation_config is own and own.to_dict() == wanted
    assert policy.model.generation_config.to_dict() == wanted


def test_greedy_takes_the_likeliest_token(make_policy):
    policy = make_policy("llama")
    (prompt,) = prompts_of(policy, 6)
    (response,) = policy.generate([prompt], GREEDY, seed=0)
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *response.ids]])).logits[0]
    assert response.ids == tuple(logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist())


def test_a_top_k_of_one_that_we_ask_for_is_greedy(make_policy):
    policy = make_policy("llama")
    prompts = prompts_of(policy, 4, 7)
    chosen = [response.ids for response in policy.generate(prompts, Sampling(top_k=1, max_new_tokens=6), seed=9)]
    assert chosen == [response.ids for response in policy.generate(prompts, GREEDY, seed=0)]


def test_training_and_evaluation_sample_from_their_own_settings():
    config = Config.from_flat({"temperature": 1.3, "top_k": 3, "max_new_tokens_per_turn": 9, "eval_top_p": 0.5})
    training, evaluation = Sampling.for_training(config), Sampling.for_evaluation(config)
    assert (training.temperature, training.top_k, training.top_p, training.max_new_tokens) == (1.3, 3, 1.0, 9)
    assert (evaluation.temperature, evaluation.top_k, evaluation.top_p, evaluation.max_new_tokens) == (0.7, 20, 0.5, 9)
    assert "temperature 0.7, top_p 0.5, top_k 20" in evaluation.describe()
    assert Sampling(temperature=0).describe().startswith("greedy")


# ---- randomness ---------------------------------------------------------------------------------------------


def test_sampling_moves_no_global_random_state(make_policy):
    policy = make_policy("llama")
    states = [torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()]
    policy.generate(prompts_of(policy, 4, 9), SHORT, seed=0)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (numpy.random.get_state()[1] == states[2]).all()


def test_the_seed_alone_decides_the_draws(make_policy):
    policy = make_policy("llama")
    prompts = prompts_of(policy, 4, 9)
    torch.manual_seed(1)
    first = policy.generate(prompts, SHORT, seed=7)
    torch.manual_seed(2)
    assert policy.generate(prompts, SHORT, seed=7) == first
    others = [policy.generate(prompts, SHORT, seed=seed) for seed in range(8, 12)]
    assert len({tuple(response.ids for response in draw) for draw in [first, *others]}) == 5


def test_five_equal_prompts_get_five_different_answers(make_policy):
    policy = make_policy("llama")
    responses = policy.generate(prompts_of(policy, 4) * 5, SHORT, seed=0)
    assert len({response.ids for response in responses}) == 5


def test_a_speakers_draws_follow_its_seed_and_the_number_of_the_call(make_policy):
    policy = make_policy("llama")
    prompts = prompts_of(policy, 4)

    def answer(*parts, call):
        return PolicySpeaker(policy, SHORT, *parts).generate(prompts, call)[0].ids

    assert answer(1, 2, call=0) == answer(1, 2, call=0)
    different = {answer(1, 2, call=0), answer(1, 2, call=1), answer(1, 3, call=0), answer(2, 2, call=0)}
    assert len(different) == 4


# ---- batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 60, 10**6])
def test_answers_come_in_the_order_asked_whatever_the_budget(make_policy, budget):
    policy = make_policy("llama")
    prompts = prompts_of(policy, 20, 3, 11, 3, 30, 7)
    single = [policy.generate([prompt], GREEDY, seed=0)[0].ids for prompt in prompts]
    sampling = Sampling(temperature=0, max_new_tokens=6, max_batch_tokens=budget)
    assert [response.ids for response in policy.generate(prompts, sampling, seed=0)] == single
    assert len(set(single)) > 1


def test_no_batch_exceeds_its_budget_of_padded_tokens(make_policy, monkeypatch):
    policy = make_policy("llama")
    shapes = []
    whole = policy.model.generate

    def spy(**settings):
        shapes.append(tuple(settings["input_ids"].shape))
        return whole(**settings)

    monkeypatch.setattr(policy.model, "generate", spy)
    policy.generate(prompts_of(policy, 20, 3, 11, 3, 30, 7), Sampling(max_new_tokens=4, max_batch_tokens=70), seed=0)
    assert sum(rows for rows, _ in shapes) == 6
    assert all(rows == 1 or rows * (width + 4) <= 70 for rows, width in shapes)
    assert max(rows for rows, _ in shapes) > 1


def test_nothing_asked_is_nothing_answered(make_policy):
    assert make_policy("llama").generate([], SHORT, seed=0) == []


def test_padding_goes_before_prompts_and_after_responses():
    ids, mask = left_pad([(5, 6), (7, 8, 9)], 0)
    assert ids.tolist() == [[0, 5, 6], [7, 8, 9]] and mask.tolist() == [[0, 1, 1], [1, 1, 1]]
    ids, attention, response = right_pad([(5, 6), (7, 8, 9)], [(1, 2), (3,)], 0)
    assert ids.tolist() == [[5, 6, 1, 2], [7, 8, 9, 3]] and attention.all()
    assert response.int().tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]
    ids, attention, response = right_pad([(5,), (7, 8, 9)], [(1,), (3,)], 0)
    assert ids.tolist() == [[5, 1, 0, 0], [7, 8, 9, 3]]
    assert attention.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert response.int().tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]


# ---- chat templates -----------------------------------------------------------------------------------------

PLAIN = [{"role": "user", "content": "Open a cell."}]

LLAMA3 = (
    "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "{{ '<|start|>' + message['role'] + '<|stop|>\\n\\n' + message['content'] | trim + '<|eot|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant<|stop|>\\n\\n' }}{% endif %}"
)
QWEN3 = (
    "{%- for message in messages %}{{- '<|start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' %}{{- message.content.split('</think>')[-1].lstrip('\\n') }}"
    "{%- else %}{{- message.content }}{%- endif %}{{- '<|eot|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)


def chat_tokenizer(template, bos=None):
    """A tokenizer with its own chat template; with `bos`, plain `encode` puts one in front, as Llama's does."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = build_tokenizer()
    extra = [token for token in ("<|start|>", "<|stop|>", "<|eot|>", bos) if token]
    tokenizer.add_special_tokens({"additional_special_tokens": extra})
    tokenizer.eos_token = "<|eot|>"
    tokenizer.chat_template = template
    if bos:
        tokenizer.bos_token = bos
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.bos_token_id)]
        )
        assert tokenizer.encode("x")[0] == tokenizer.bos_token_id  # the trap is armed
    return tokenizer


def chat_policy(make_model, tokenizer, **options):
    return Policy(make_model("llama", vocabulary=len(tokenizer)).eval(), tokenizer, **options)


def test_a_template_that_opens_with_bos_gives_exactly_one(make_model):
    policy = chat_policy(make_model, chat_tokenizer(LLAMA3, bos="<|bos|>"))
    ids = policy.encode(PLAIN)
    bos = policy.tokenizer.bos_token_id
    assert ids[0] == bos and ids.count(bos) == 1
    text = policy.decode(ids, skip_special_tokens=False)
    assert text == "<|bos|><|start|>user<|stop|>\n\nOpen a cell.<|eot|><|start|>assistant<|stop|>\n\n"
    assert bos not in policy.answer_ids("x")


def test_a_template_without_bos_gets_none_although_the_tokenizer_knows_one(make_model):
    policy = chat_policy(make_model, chat_tokenizer(QWEN3, bos="<|bos|>"))
    assert policy.tokenizer.bos_token_id not in policy.encode(PLAIN)


@pytest.mark.parametrize("thinking", [False, True])
def test_thinking_is_opened_or_closed_as_asked(make_model, thinking):
    policy = chat_policy(make_model, chat_tokenizer(QWEN3), enable_thinking=thinking)
    text = policy.decode(policy.encode(PLAIN), skip_special_tokens=False)
    closed = "" if thinking else "<think>\n\n</think>\n\n"
    assert text == f"<|start|>user\nOpen a cell.<|eot|>\n<|start|>assistant\n{closed}"


def test_thinking_is_off_unless_asked_for(make_model):
    tokenizer = chat_tokenizer(QWEN3)
    assert chat_policy(make_model, tokenizer).encode(PLAIN) == chat_policy(
        make_model, tokenizer, enable_thinking=False
    ).encode(PLAIN)


def test_what_was_thought_in_earlier_turns_is_neither_shown_nor_stripped_after_the_fact(make_model):
    policy = chat_policy(make_model, chat_tokenizer(QWEN3), enable_thinking=True)
    texts = iter(["<think>perhaps nothing</think>hm", "<think>surely B</think><action>B</action>"] * 2)
    asked = []

    class Thinker:
        encode = policy.encode

        def generate(self, prompts, call):
            asked.extend(prompts)
            answers = [next(texts) for _ in prompts]
            return [Response(ids=policy.answer_ids(text), text=text) for text in answers]

    config = TrialConfig(num_episodes=2, max_turns=2, memory="trajectory", env_timeout_s=None)
    lost = next(seed for seed in range(9) if not wins(seed, "B"))
    (trial,) = collect_trials(Thinker(), TwoDoors, [lost], config, group_size=1, max_prompt_tokens=10**4)
    turns = [turn for _, _, turn in trial.rows()]
    assert len(turns) == 4 and [turn.prompt_ids for turn in turns] == asked
    for turn in turns:
        page = policy.decode(turn.prompt_ids, skip_special_tokens=False)
        assert "perhaps" not in page and "surely" not in page and page.count("<|start|>") == 2
    assert "You chose no valid action" in policy.decode(turns[1].prompt_ids)
    assert turns[1].action == "B"


def wins(seed, door):
    env = TwoDoors()
    env.reset(seed=seed)
    return env.step(door).info["success"]


def test_a_tokenizer_without_chat_template_is_refused_in_one_sentence(make_model):
    tokenizer = build_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        Policy(make_model("llama"), tokenizer)


def test_a_taught_answer_ends_as_a_sampled_one_does(make_model, tiny_policy):
    assert tiny_policy.answer_ids("<action>(1, 2)</action>")[-1] == tiny_policy.tokenizer.eos_token_id
    policy = chat_policy(make_model, chat_tokenizer(LLAMA3, bos="<|bos|>"))
    ids = policy.answer_ids("x")
    assert ids[-1] == policy.tokenizer.convert_tokens_to_ids("<|eot|>") and policy.decode(ids) == "x"


def test_the_context_length_is_the_models_own(make_policy):
    assert make_policy("gpt2").context_length == 512
    assert make_policy("qwen3", max_position_embeddings=96).context_length == 96
