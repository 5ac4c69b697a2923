"""Prompts of three chat families: framed as the model knows them, encoded once, and scored as they were asked.

In the pictures B begins a text, S and E frame a turn, p is a prompt token, r a response token, a dot padding:

    Qwen3     S user ... E S assistant think /think | r r E . .      pads with another of its end tokens
    Llama 3   B S system ... E S user ... E S assistant | r r E      has no padding token
    SmolLM2   S system ... E S user ... E S assistant | r r E E E    pads with its end token
"""

import random

import pytest
import torch
from small_chat_models import FAMILIES, small_tokenizer
from torch import nn

from metarl_agents.config import TrialConfig
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.rollout import PolicySpeaker, collect_trials

ALL = sorted(FAMILIES)
USER = [{"role": "user", "content": "Open a cell."}]
SYSTEM = [{"role": "system", "content": "Be brief."}, *USER]


@pytest.fixture
def policies(make_model):
    """Policies on small random models of each family, with the family's tokenizer and end tokens."""

    def build(name, likes_to_end=0.0, **options):
        family = FAMILIES[name]
        tokenizer = small_tokenizer(family)
        ends = tokenizer.convert_tokens_to_ids(list(family.ends))
        model = make_model(family.model, vocabulary=len(tokenizer), eos_token_id=ends, pad_token_id=None)
        head = nn.Linear(model.config.hidden_size, len(tokenizer))
        with torch.no_grad():
            head.weight.copy_(model.get_output_embeddings().weight)
            head.bias.zero_()
            head.bias[ends] = likes_to_end
        model.config.tie_word_embeddings = False
        model.set_output_embeddings(head)
        return Policy(model.eval(), tokenizer, **options)

    return build


def page(policy, messages):
    return policy.decode(policy.encode(messages), skip_special_tokens=False)


# ---- what the model reads -----------------------------------------------------------------------------------


def test_qwen3_gets_no_system_prompt_unasked_and_an_empty_thought(policies):
    policy = policies("qwen3")
    asked = "<|im_start|>user\nOpen a cell.<|im_end|>\n<|im_start|>assistant\n"
    assert page(policy, USER) == asked + "<think>\n\n</think>\n\n"
    assert page(policies("qwen3", enable_thinking=True), USER) == asked
    assert page(policy, SYSTEM).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")


def test_llama3_begins_once_and_frames_turns_by_headers(policies):
    policy = policies("llama3")
    header = "<|start_header_id|>{}<|end_header_id|>\n\n".format
    text = page(policy, USER)
    assert text.startswith("<|begin_of_text|>" + header("system") + "Today is ")
    assert text.endswith(header("user") + "Open a cell.<|eot_id|>" + header("assistant"))
    assert "Be brief.<|eot_id|>" + header("user") in page(policy, SYSTEM)
    assert policy.tokenizer.encode("x")[0] == policy.tokenizer.bos_token_id  # plain encoding would begin it again


def test_smollm2_gets_its_own_system_prompt_where_none_is_given(policies):
    policy = policies("smollm2")
    frame = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\nOpen a cell.<|im_end|>\n<|im_start|>assistant\n".format
    assert page(policy, USER) == frame("You are a patient player.")
    assert page(policy, SYSTEM) == frame("Be brief.")


@pytest.mark.parametrize("name", ALL)
def test_control_tokens_are_one_id_each_and_a_text_begins_once(policies, name):
    policy, family = policies(name), FAMILIES[name]
    ids = policy.encode(USER)
    text = policy.decode(ids, skip_special_tokens=False)
    control = policy.tokenizer.convert_tokens_to_ids(list(family.special))
    assert control == list(range(len(family.special)))
    for token, number in zip(family.special, control, strict=True):
        assert ids.count(number) == text.count(token), token
    if family.begin == "<|begin_of_text|>":
        assert ids[0] == policy.tokenizer.bos_token_id and ids.count(ids[0]) == 1
    assert "Open a cell." in policy.decode(ids) and "<|" not in policy.decode(ids)


@pytest.mark.parametrize("name", ALL)
def test_a_taught_answer_is_text_and_one_end_token_with_nothing_in_front(policies, name):
    policy = policies(name)
    ids = policy.answer_ids("Open (1, 2)")
    assert policy.decode(ids, skip_special_tokens=False) == "Open (1, 2)" + FAMILIES[name].end


# ---- where an answer ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_end_tokens_are_the_tokenizers_first_and_then_the_models(policies, name):
    policy, family = policies(name), FAMILIES[name]
    ids = policy.tokenizer.convert_tokens_to_ids
    assert policy.end_ids[0] == policy.tokenizer.eos_token_id == ids(family.end)
    assert sorted(policy.end_ids) == sorted(ids(list(family.ends)))
    assert policy.pad_id == (ids(family.pad) if family.pad else policy.end_ids[0])


@pytest.mark.parametrize("name", ALL)
def test_the_token_that_ended_an_answer_is_kept_once_whatever_pads_after_it(policies, name):
    policy = policies(name, likes_to_end=5.0)
    prompt = policy.encode(USER)
    responses = policy.generate([prompt] * 24, Sampling(max_new_tokens=10), seed=0)
    ended = [response for response in responses if not response.truncated]
    assert len(ended) >= 8 and len({len(response.ids) for response in responses}) > 2
    assert {response.ids[-1] for response in ended} == set(policy.end_ids)  # each of them ends some answer
    for response in responses:
        assert not set(policy.end_ids) & set(response.ids[:-1]) and len(response.logprobs) == len(response.ids)
        assert response.truncated == (response.ids[-1] not in policy.end_ids)
        assert policy.decode(response.ids[-1:]) == "" or response.truncated


# ---- asked once, scored as asked ----------------------------------------------------------------------------


class Recorder(PolicySpeaker):
    """Notes what it encodes and what it is asked."""

    def __init__(self, policy):
        super().__init__(policy, Sampling(max_new_tokens=6), 0)
        self.encoded, self.asked = [], []

    def encode(self, messages):
        self.encoded.append(super().encode(messages))
        return self.encoded[-1]

    def generate(self, prompts, call):
        self.asked += prompts
        return super().generate(prompts, call)


def check_that_trials_are_scored_as_asked(policy):
    speaker = Recorder(policy)
    config = TrialConfig(num_episodes=2, max_turns=2, memory="both", env_timeout_s=None)
    trials = collect_trials(speaker, TwoDoors, [0, 1], config, group_size=2, max_prompt_tokens=10**4)
    turns = [turn for trial in trials for _, _, turn in trial.rows()]
    prompts = [turn.prompt_ids for turn in turns]
    assert len(turns) > 12 and sorted(prompts) == sorted(speaker.asked) == sorted(speaker.encoded)
    ids, attention, mask = right_pad(prompts, [turn.response.ids for turn in turns], policy.pad_id)
    with torch.no_grad():
        scored = TokenScorer(policy.model)(ids, attention, mask).logprobs
    for turn, row, own in zip(turns, scored, mask, strict=True):
        assert own.sum() == len(turn.response.ids)
        assert turn.response.logprobs == pytest.approx(row[own].tolist(), abs=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_recorded_prompts_are_those_asked_and_score_as_they_were_sampled(policies, name):
    check_that_trials_are_scored_as_asked(policies(name, likes_to_end=3.0))


def test_that_holds_for_a_template_that_changes_as_one_that_reads_the_clock_does(policies):
    policy = policies("llama3", likes_to_end=3.0)
    template = policy.tokenizer.chat_template
    policy.tokenizer.chat_template = template.replace("+ today", "~ (range(10**4 + (messages | length)) | random)")
    random.seed(0)
    assert policy.encode(USER) != policy.encode(USER)  # the trap is armed: encoded again, a prompt is another
    check_that_trials_are_scored_as_asked(policy)
