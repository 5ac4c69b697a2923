"""What a model thinks is never played and never shown again, whoever opened the thought and however it is marked."""

import pytest
from thinking_models import FINAL, THINKERS, small_policy, small_tokenizer, thinking_policy

from metarl_agents.agent import Agent, run_trial
from metarl_agents.config import TrialConfig
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs import Environment
from metarl_agents.envs.parsing import last_tag
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.seeded import generate_seeded
from metarl_agents.policy.tiny import build_tokenizer
from metarl_agents.rollout import PolicySpeaker, collect_trials
from metarl_agents.thoughts import final_text
from metarl_agents.tracking.records import trial_record
from metarl_agents.types import Episode

FAST = {"qwen3 registered", "qwen3 thinking", "gpt-oss", "marks of its own"}
NAMES = [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in sorted(THINKERS)]
LONG = Sampling(temperature=0, max_new_tokens=150)
MUSING = "numbat <action>A</action><remark>A</remark>"


class Steps(Environment):
    """Goes on whatever is played, and notes it; reads answers by a parser of its own."""

    def __init__(self):
        self.read, self.played = [], []

    def describe(self):
        return "Choose A or B."

    def reset(self, *, seed):
        self.seed = seed
        return "a door", {}

    def parse_action(self, text):
        self.read.append(text)
        return last_tag(text, "action")

    def step(self, action):
        self.played.append(action)
        return "another door", 0.0, False, False, {}


def answers(name, *says):
    """What a model of a family writes for each (thought, what it says after it, or None where it is cut off)."""
    family, opening, between = THINKERS[name]
    return [opening + thought + ("" if said is None else between + said + family.end) for thought, said in says]


@pytest.mark.parametrize("name", NAMES)
def test_a_thought_is_not_played_nor_remarked_nor_shown_again(name):
    said = [(MUSING, "I take <action>B</action>"), (MUSING, "no idea"), (MUSING, "<remark>mind the step</remark>")]
    env = Steps()
    policy = thinking_policy(name, answers(name, *said, *said))
    trial = run_trial(Agent(policy, LONG), env, 0, num_episodes=2, max_turns=2, memory="both")
    assert env.played == ["B", "B"] and trial.error is None
    assert env.read == ["I take <action>B</action>", "no idea"] * 2
    rows = [turn for _, _, turn in trial.rows()]
    assert [turn.action for turn in rows] == ["B", None, "mind the step", "B", None]
    assert not any(turn.response.truncated for turn in rows)
    pages = [policy.decode_raw(turn.prompt_ids) for turn in rows]
    assert not any("numbat" in page for page in pages) and "mind the step" in pages[3]


@pytest.mark.parametrize("name", NAMES)
def test_a_thought_that_the_limit_cuts_off_says_nothing(name):
    policy = thinking_policy(name, answers(name, (MUSING, None)))
    whole = len(policy.tokenizer.encode(answers(name, (MUSING, None))[0], add_special_tokens=False))
    env = Steps()
    short = Sampling(temperature=0, max_new_tokens=whole)
    trial = run_trial(Agent(policy, short), env, 0, num_episodes=2, max_turns=1)
    assert env.played == [] and set(env.read) == {""} and trial.episodes[0].reflection.action is None
    turns = [turn for _, _, turn in trial.rows()]
    assert all(turn.response.truncated and turn.invalid for turn in turns)
    assert all(turn.response.written.endswith(MUSING) for turn in turns)


def test_an_agent_driven_by_hand_neither_plays_nor_keeps_a_thought():
    name = "qwen3 thinking registered"
    agent = Agent(thinking_policy(name, answers(name, (MUSING, None))), Sampling(temperature=0, max_new_tokens=25))
    episode = Episode("a door")
    assert agent.act("a door", episode=episode).text == "" and episode.turns[0].action is None
    assert agent.reflect(episode) == "" and episode.reflection.action is None


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3 thinking registered"])
def test_records_and_screens_keep_the_thought_beside_what_was_said(name):
    policy = thinking_policy(name, answers(name, (MUSING, "<action>B</action>")))
    config = TrialConfig(num_episodes=1, max_turns=1, env_timeout_s=None)
    speaker = PolicySpeaker(policy, LONG, 0)
    (trial,) = collect_trials(speaker, Steps, [0], config, group_size=1, max_prompt_tokens=4000)
    (turn,) = trial_record(trial, policy.decode_raw, step=0, split="train")["episodes"][0]["turns"]
    assert "numbat" in turn["response"] and turn["response"].rstrip().endswith(
        "<action>B</action>" + "<|return|>" * (name == "gpt-oss")
    )
    assert turn["action"] == "B" and turn["response_tokens"] == len(trial.episodes[0].turns[0].response.ids)


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3 thinking registered"])
def test_a_model_in_the_opponents_seat_plays_what_it_says(name):
    policy = thinking_policy(name, answers(name, (MUSING, "<action>B</action>")))
    prompt = policy.encode([{"role": "user", "content": "Choose."}])
    assert generate_seeded(policy, [prompt], LONG, [3]) == ["<action>B</action>"]


@pytest.mark.parametrize("name", sorted(THINKERS))
def test_a_taught_answer_is_read_as_what_it_says(name):
    policy = thinking_policy(name)
    for thought in ("", "".join(answers(name, (MUSING, "")))):
        family = THINKERS[name][0]
        ids = policy.answer_ids(thought.removesuffix(family.end) + "<action>B</action>")
        assert policy.template.read(ids)[0] == "<action>B</action>"
        end = policy.tokenizer.convert_tokens_to_ids(family.end)
        assert ids[-1] == end and ids.count(end) == 1


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3 thinking", "smollm3", "brackets"])
def test_a_taught_answer_stands_where_the_template_would_write_it(name):
    policy = thinking_policy(name)
    asked = {"role": "user", "content": "Choose."}
    talk = [asked, {"role": "assistant", "content": "<action>B</action>"}]
    text = policy.decode_raw((*policy.encode([asked]), *policy.answer_ids("<action>B</action>")))
    written = policy.tokenizer.apply_chat_template(talk, tokenize=False, enable_thinking=True)
    if name == "qwen3 thinking":  # its template drops thoughts, so that the taught answer closes the one of the prompt
        written = written.replace("<action>", "<think>\n\n</think>\n\n<action>")
    assert text == written.removesuffix("\n")


# ---- channels -----------------------------------------------------------------------------------------------


def test_in_channels_the_end_of_a_thought_is_no_end_of_the_answer():
    policy = thinking_policy("gpt-oss")
    number = policy.tokenizer.convert_tokens_to_ids
    assert policy.end_ids == [number("<|return|>")]


def test_in_channels_the_first_final_message_is_what_is_said():
    end = "<|end|><|start|>user<|message|>next<|end|><|start|>assistant<|channel|>final<|message|>"
    assert final_text(f"<|channel|>analysis<|message|>a{FINAL}<action>B</action>{end}<action>C</action>") == (
        "<action>B</action>"
    )
    assert final_text("<|channel|>commentary to=functions.f <|constrain|>json<|message|><action>A</action>") == ""
    assert final_text("<|channel|>analysis") == ""
    assert final_text("I say <action>A</action>", begun="<|channel|>analysis<|message|>") == ""
    assert final_text("<action>A</action>", begun="<|channel|>final<|message|>") == "<action>A</action>"


@pytest.mark.parametrize("channel", ["analysis", "final"])
def test_a_channel_that_the_template_opens_is_gone_on_with(channel):
    tokenizer = small_tokenizer(THINKERS["gpt-oss"][0])
    tokenizer.chat_template += (
        f"{{% if add_generation_prompt %}}{{{{ '<|channel|>{channel}<|message|>' }}}}{{% endif %}}"
    )
    policy = small_policy(tokenizer, ["<action>A</action>" + FINAL + "<action>B</action><|return|>"])
    assert policy.template.read(policy.answer_ids("<action>B</action>"))[0] == "<action>B</action>"
    said = {"analysis": "<action>B</action>", "final": "<action>A</action>"}[channel]
    assert Agent(policy, LONG).act("a door").text == said


def test_an_end_token_that_also_ends_thoughts_is_kept_where_there_is_no_other():
    family = THINKERS["gpt-oss"][0]
    tokenizer = small_tokenizer(family)
    tokenizer.chat_template = family.template.replace("<|return|>", "<|end|>")
    policy = small_policy(tokenizer)
    number = tokenizer.convert_tokens_to_ids
    assert policy.end_ids == [number("<|return|>")] and policy.answer_ids("x")[-1] == number("<|return|>")
    tokenizer.eos_token = "<|end|>"
    assert small_policy(tokenizer).end_ids == [number("<|end|>")]


# ---- one parser ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("B", "B"),
        (" <action>B</action>\n", " <action>B</action>\n"),
        ("<think>A</think>\n\nB", "B"),
        ("<THINK>A</THINK>B", "B"),
        ("<thinking>A</thinking> B", "B"),
        ("[THINK]A[/THINK]B", "B"),
        ("<seed:think>A</seed:think>B", "B"),
        ("<|START_THINKING|>A<|END_THINKING|>B", "B"),
        ("<|channel>thought\nA<channel|>B", "B"),
        ("A</think>B", "B"),
        ("B <think>A", ""),
        ("<think>A</think>B<think>C", ""),
        ("<think>A [/THINK] still A", ""),
        ("<think>A <thinking> A </think>B", "B"),
        ("<think><think>A</think>B", "B"),
        ("<thin>A</thin>", "<thin>A</thin>"),
        ("", ""),
    ],
)
def test_final_text(text, said):
    assert final_text(text) == said == final_text(final_text(text))


def test_final_text_takes_no_time_on_hostile_text():
    for piece in ("<think>", "</think>", "<|channel|>", "<|channel|>final<|message|>", "<|"):
        final_text(piece * 20_000)


def test_a_thought_in_plain_text_is_left_out_by_the_default_parser():
    for opening, closing in (("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷")):
        assert TwoDoors().parse_action(f"{opening}<action>A</action>") is None
        assert Environment().parse_action(f"{opening}<action>A</action>{closing} <action>B</action>") == "B"


def test_registered_tags_of_an_answer_are_read():
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<action>", "</action>", "<|odd|>"]})
    policy = small_policy(tokenizer, ["so<|odd|> <action>A</action><|end|>"])
    assert Agent(policy, LONG).act("a door").text == "so <action>A</action>"
    tags = tokenizer.convert_tokens_to_ids(["<action>", "</action>"])
    for ids in (
        policy.answer_ids("<action>A</action>"),
        policy.encode([{"role": "user", "content": "<action></action>"}]),
    ):
        assert [number for number in ids if number in tags] == tags
