"""Laws of `Agent` and `run_trial`, with a policy that answers from a script and with a tiny random model."""

import threading

import pytest

from metarl_agents.agent import Agent, run_trial
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.errors import ConfigError
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.types import Episode, Outcome, Phase, Response


class Scripted:
    """A policy that gives listed answers, one character a prompt token, and remembers what it was asked."""

    def __init__(self, *answers, context_length=None):
        self.answers, self.context_length = list(answers), context_length
        self.pages, self.seeds = [], []

    def encode(self, messages):
        self.page = messages[0]["content"]
        return tuple(range(len(self.page)))

    def generate(self, prompts, sampling, *, seed):
        self.pages.append(self.page)
        self.seeds.append(seed)
        return [Response(ids=(1,), text=self.answers.pop(0))]


class Recorded(TwoDoors):
    """Counts how often it was made and closed."""

    made = closed = 0

    def __init__(self):
        type(self).made += 1

    def close(self):
        type(self).closed += 1


def tiny_policy():
    tokenizer = build_tokenizer()
    return Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer)


def wrong_and_right(seed):
    env = TwoDoors()
    env.reset(seed=seed)
    right = "A" if env.step("A").info["success"] else "B"
    return {"A": "B", "B": "A"}[right], right


def test_a_trial_reflects_after_a_failure_and_stops_at_the_first_success():
    wrong, right = wrong_and_right(7)
    policy = Scripted(f"<action>{wrong}</action>", "<remark>other door</remark>", f"<action>{right}</action>")
    trial = run_trial(Agent(policy), TwoDoors(), 7)
    assert [episode.outcome for episode in trial.episodes] == [Outcome.FAILURE, Outcome.SUCCESS]
    assert "other door" in policy.pages[-1]
    assert not policy.answers


def test_on_turn_sees_every_row_once_in_time_order():
    wrong, right = wrong_and_right(7)
    policy = Scripted("?", f"<action>{wrong}</action>", "<remark>no</remark>", f"<action>{right}</action>")
    seen = []
    trial = run_trial(Agent(policy), TwoDoors(), 7, on_turn=lambda trial, turn: seen.append(turn))
    assert seen == [row for _, _, row in trial.rows()]
    assert [turn.phase for turn in seen] == [Phase.PLAY, Phase.PLAY, Phase.REFLECT, Phase.PLAY]


def test_the_environment_object_is_neither_rebuilt_nor_closed():
    Recorded.made = Recorded.closed = 0
    env = Recorded()
    for _ in range(2):
        run_trial(Agent(Scripted(*["?"] * 9)), env, 1, num_episodes=2, max_turns=2)
    assert (Recorded.made, Recorded.closed) == (1, 0)


def test_a_trial_also_runs_outside_the_main_thread():
    found = []
    env = TwoDoors()
    worker = threading.Thread(
        target=lambda: found.append(run_trial(Agent(Scripted("?")), env, 1, num_episodes=1, max_turns=1))
    )
    worker.start()
    worker.join()
    assert not found[0].crashed and env.seed == 1


def test_an_environment_that_fails_ends_the_trial_with_its_error():
    class Broken(TwoDoors):
        def step(self, action):
            raise ZeroDivisionError("a bug")

    trial = run_trial(Agent(Scripted("<action>A</action>")), Broken(), 1)
    assert trial.error == "ZeroDivisionError: a bug"


def test_two_agents_of_the_same_seed_play_the_same_trial_and_another_seed_another():
    sampling = Sampling(max_new_tokens=6)
    policy = tiny_policy()

    def play(seed):
        trial = run_trial(Agent(policy, sampling, seed), TwoDoors(), 3, num_episodes=1, max_turns=2)
        return [turn.response.ids for _, _, turn in trial.rows()]

    assert play(0) == play(0) != play(1)


def test_each_answer_has_a_seed_of_its_own():
    policy = Scripted("a", "b")
    agent = Agent(policy, seed=4)
    agent.act("x")
    agent.act("x")
    assert len(set(policy.seeds)) == 2


def test_a_trial_whose_prompts_do_not_fit_fails_without_an_answer():
    policy = Scripted(context_length=40)
    agent = Agent(policy, Sampling(max_new_tokens=30))
    trial = run_trial(agent, TwoDoors(), 1, num_episodes=2)
    assert [episode.outcome for episode in trial.episodes] == [Outcome.OUT_OF_CONTEXT] * 2


def test_acting_adds_the_turn_to_the_episode_and_the_next_page_shows_it():
    policy = Scripted("so <action>left</action>", "<action>right</action>")
    agent = Agent(policy)
    episode = Episode("a wall")
    assert agent.act("a wall", rules="Find out.", episode=episode).text == "so <action>left</action>"
    agent.act("a ditch", rules="Find out.", episode=episode)
    assert [turn.shown_action for turn in episode.turns] == ["left", "right"]
    assert "Action: left\nObservation: a ditch" in policy.pages[1]


def test_acting_without_an_episode_keeps_no_history():
    policy = Scripted("<action>left</action>", "<action>left</action>")
    agent = Agent(policy)
    agent.act("a wall")
    agent.act("a wall")
    assert policy.pages[0] == policy.pages[1]


def test_reflecting_returns_the_remark_and_the_next_attempt_reads_it():
    policy = Scripted("<action>left</action>", "hm <remark>go right</remark>", "<action>right</action>")
    agent = Agent(policy)
    episode = Episode("a wall")
    agent.act("a wall", episode=episode)
    assert agent.reflect(episode, observation="a ditch") == "go right"
    assert "a ditch" in policy.pages[1]
    agent.act("a wall", past=[episode])
    assert "go right" in policy.pages[2]


def test_a_reflection_without_a_remark_is_empty():
    assert Agent(Scripted("no tags")).reflect(Episode("a wall")) == ""


def test_a_long_history_is_dropped_oldest_first_and_the_turn_says_so():
    policy = Scripted(*["<action>go</action>"] * 6, context_length=420)
    agent = Agent(policy, Sampling(max_new_tokens=10))
    episode = Episode("start")
    for number in range(6):
        agent.act(f"place {number} " + "." * 40, episode=episode)
    assert episode.turns[-1].prompt_shortened and not episode.turns[0].prompt_shortened
    assert "place 5" in policy.pages[-1] and "Step 1 " not in policy.pages[-1]


def test_a_page_that_cannot_fit_says_how_long_it_is():
    agent = Agent(Scripted(context_length=300), Sampling(max_new_tokens=10))
    with pytest.raises(ConfigError, match="tokens even without history, but 290 fit"):
        agent.act("x" * 400)


def test_a_context_shorter_than_an_answer_is_refused():
    with pytest.raises(ConfigError, match="whole context is 8"):
        Agent(Scripted(context_length=8), Sampling(max_new_tokens=8))


def test_evaluation_sampling_is_the_default():
    sampling = Agent(Scripted()).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.8, 20)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"wording": "compact"}, "environment object decides it"),
        ({"learning_rate": 1.0}, "no effect here"),
        ({"max_turn": 3}, "Did you mean `max_turns`"),
        ({"max_turns": 0}, "at least 1"),
    ],
)
def test_a_setting_that_does_not_belong_to_a_trial_is_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        run_trial(Agent(Scripted()), TwoDoors(), 1, **setting)


def test_a_saved_model_comes_back_as_an_agent(tmp_path):
    tiny_policy().save(tmp_path)
    agent = Agent.from_pretrained(tmp_path, sampling=Sampling(max_new_tokens=4), dtype="float32")
    assert isinstance(agent.act("Both doors are closed.").text, str)
    with pytest.raises(ConfigError, match="no effect here"):
        Agent.from_pretrained(tmp_path, max_turns=3)
