"""Laws of `Agent` and `run_trial`, with a policy that answers from a script and with a tiny random model."""

import threading

import numpy
import pytest

import metarl_agents
from metarl_agents.agent import Agent, run_trial
from metarl_agents.config import Config
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs import make
from metarl_agents.envs.wording import COMPACT, Wording
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
        ({"wording": "compact"}, "no meaning in `run_trial`"),
        ({"env_workers": 2}, "no meaning in `run_trial`"),
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


# ---- what is handed to `act` is what the model reads --------------------------------------------------------------

SHIPPED = {
    "default": Wording(),
    "compact": COMPACT,
    "no history": Wording(history_turns=0),
    "all shortened": Wording(full_observations=0),
    "no initial": Wording(initial=""),
    "bare initial": Wording(initial="A new attempt."),
    "actions only": Wording(history_entry="{action}"),
    **{
        f"{name} {style}": make(name, wording=style).wording
        for name in ("minesweeper", "sokoban", "two_doors", "tictactoe")
        for style in ("paper", "compact")
        if name != "two_doors"
    },
}


@pytest.mark.parametrize("wording", SHIPPED.values(), ids=SHIPPED)
@pytest.mark.parametrize("first", ["", "THE HALL", "another text"])
def test_the_observation_handed_to_act_is_in_the_prompt_whatever_the_wording(wording, first):
    policy = Scripted(*["<action>go</action>"] * 4)
    agent, episode = Agent(policy), Episode(first)
    for observation in ("THE HALL", "THE DOOR IS RED", "THE DOOR IS RED", "THE ROOF"):
        agent.act(observation, episode=episode, wording=wording)
        assert observation in policy.pages[-1]
    assert episode.initial_observation == (first or "THE HALL")


@pytest.mark.parametrize("ending", [None, "a river"])
def test_each_entry_of_a_history_shows_the_observation_that_followed_its_action(ending):
    policy = Scripted("<action>left</action>", "<action>right</action>", "<remark>?</remark>", "<action>up</action>")
    agent, episode = Agent(policy), Episode("")
    agent.act("a wall", episode=episode)
    agent.act("a ditch", episode=episode)
    agent.reflect(episode, observation=ending)
    followed = "a river" if ending else "(not seen)"
    for memory in ("both", "trajectory"):
        policy.answers = ["<action>up</action>"]
        agent.act("a wall", past=[episode], memory=memory)
        assert f"Action: left\nObservation: a ditch\nAction: right\nObservation: {followed}" in policy.pages[-1]
    review = policy.pages[2]
    assert f"Action: left\nObservation: a ditch\nStep 2 - Action: right\nObservation: {followed}" in review
    assert episode.final_observation == (ending or "a ditch")


def test_a_compact_reflection_shows_what_was_seen_last_by_hand():
    policy = Scripted("<action>left</action>", "<remark>?</remark>")
    agent, episode = Agent(policy), Episode("")
    agent.act("a wall", episode=episode, wording=COMPACT)
    agent.reflect(episode, wording=COMPACT)
    assert "a wall" in policy.pages[-1]


def test_a_wording_that_shows_the_observation_nowhere_is_refused():
    with pytest.raises(ConfigError, match="shows the newest observation nowhere"):
        Agent(Scripted("?")).act("a wall", wording=Wording(initial="", current="", history_turns=0))


# ---- wrong arguments ----------------------------------------------------------------------------------------------


def acting(*args, **keywords):
    return lambda: Agent(Scripted("<action>left</action>")).act(*args, **keywords)


def playing(env, seed=0, **settings):
    return lambda: run_trial(Agent(Scripted("?")), env, seed, **settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (acting("a wall", admissible="left"), "`admissible` is 'left', but must be a list of texts"),
        (acting("a wall", admissible=["left", 2]), r"`admissible\[1\]` is 2"),
        (acting("a wall", memory="all"), "`memory` is 'all', but must be one of reflection, trajectory, both, none"),
        (acting("a wall", memory=None), "`memory` is None"),
        (acting("a wall", past=["text"]), r"`past\[0\]` is 'text', but must be one of `Episode`s"),
        (acting("a wall", past=Episode("a wall")), "`past` is of type Episode, but must be a list of `Episode`s"),
        (acting("a wall", past=[Episode("", outcome="success")]), "`episode.outcome` is 'success'.*`Outcome.SUCCESS`"),
        (acting("a wall", episode=Episode("", outcome="success")), "`episode.outcome` is 'success'"),
        (acting("a wall", episode="a wall"), "`episode` is 'a wall', but must be an `Episode`"),
        (acting(None), "`observation` is None, but must be a text"),
        (acting("a wall", rules=None), "`rules` is None"),
        (acting("a wall", wording="compact"), "`wording` is 'compact', but must be a `Wording`"),
        (acting("a wall", parse_action="left"), "`parse_action` is 'left', but must be a function"),
        (lambda: Agent(Scripted("?")).reflect("a wall"), "`episode` is 'a wall'"),
        (lambda: Agent(Scripted("?")).reflect(Episode(""), observation=3), "`observation` is 3"),
        (lambda: Agent(Scripted("?")).reflect(Episode("", outcome=True)), "`episode.outcome` is True"),
        (lambda: Agent("tiny"), r"`policy` is 'tiny'.*from_pretrained"),
        (lambda: Agent(Scripted(), sampling={"top_p": 1}), "`sampling` is of type dict"),
        (lambda: Agent(Scripted(), seed=None), "`seed` is None"),
        (lambda: Agent(Scripted(), max_prompt_tokens=0), "`max_prompt_tokens` is 0"),
        (playing(TwoDoors), r"`env` is the class TwoDoors, but must be an environment object.*`TwoDoors\(\)`"),
        (playing("two_doors"), "`env` is 'two_doors', but must be an environment object"),
        (playing(TwoDoors(), None), "`seed` is None, but must be a whole number of at least 0"),
        (playing(TwoDoors(), 1.5), "`seed` is 1.5"),
        (playing(TwoDoors(), on_turn=3), "`on_turn` is 3"),
        (lambda: run_trial("tiny", TwoDoors(), 0), "`agent` is 'tiny', but must be an `Agent`"),
        (lambda: metarl_agents.train(TwoDoors()), "`make_env` is of type TwoDoors, but must be what builds"),
        (lambda: metarl_agents.train("two_doors"), "`make_env` is 'two_doors', but must be what builds"),
        (lambda: metarl_agents.train(TwoDoors, {"max_steps": 1}), "`config` is of type dict, but must be a `Config`"),
        (lambda: metarl_agents.train(TwoDoors, policy="tiny"), "`policy` is 'tiny'.*`model_name_or_path`"),
        (lambda: metarl_agents.evaluate("tiny", TwoDoors, Config()), "`policy` is 'tiny'"),
        (lambda: metarl_agents.evaluate(Scripted(), TwoDoors(), Config()), "`make_env` is of type TwoDoors"),
        (lambda: metarl_agents.evaluate(Scripted(), TwoDoors, {}), "`config` is of type dict"),
        (lambda: metarl_agents.evaluate(Scripted(), TwoDoors, Config(), num_tasks=0), "`num_tasks` is 0"),
        (lambda: metarl_agents.load_policy("tiny"), "`config` is 'tiny', but must be a `ModelConfig`"),
        (lambda: metarl_agents.make(TwoDoors), "`name` is the class TwoDoors, but must be a text"),
        (lambda: metarl_agents.register("doors", TwoDoors), "`address` is the class TwoDoors, but must be a text"),
        (lambda: metarl_agents.check_environment(TwoDoors()), "`make_env` is of type TwoDoors"),
        (lambda: metarl_agents.check_environment(TwoDoors, seeds=3), "`seeds` is 3, but must be a list"),
        (lambda: metarl_agents.check_environment(TwoDoors, max_turns=0), "`max_turns` is 0"),
        (lambda: Sampling(top_p=0), "`top_p` is 0, but must be between 1e-06 and 1"),
        (lambda: Sampling(temperature=-1), "`temperature` is -1"),
        (lambda: Sampling(max_new_tokens=0), "`max_new_tokens` is 0"),
        (lambda: Sampling(top_k=2.5), "`top_k` is 2.5"),
        (lambda: Sampling(min_p="0.1"), "`min_p` is '0.1', but must be a number"),
    ],
)
def test_a_wrong_argument_gets_one_sentence(call, message):
    with pytest.raises(ConfigError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["success", "draw", "invalid", "terminated", "truncated"])
def test_a_text_in_place_of_true_or_false_ends_the_trial_and_is_named(key):
    class Texts(TwoDoors):
        def step(self, action):
            observation, reward, *ends, info = super().step(action)
            if key in ("terminated", "truncated"):
                ends[key == "truncated"] = "False"
            return observation, reward, *ends, info if key in ("terminated", "truncated") else {**info, key: "False"}

    trial = run_trial(Agent(Scripted("<action>A</action>")), Texts(), 1)
    assert key in trial.error and "'False'" in trial.error and trial.episodes[-1].outcome is Outcome.CRASHED


def test_what_is_right_passes_whatever_kind_of_list_it_is():
    past = Episode("a wall", outcome=Outcome.FAILURE)
    assert acting("a wall", admissible=("left", "right"), past=(past,), memory="none")().text
    assert not playing(TwoDoors(), numpy.int64(3), num_episodes=1, max_turns=1)().crashed
    Sampling(temperature=numpy.float64(0.5), top_k=numpy.int64(3), top_p=1)
