"""Gymnasium's text environments behind our contract, tried on the real package and on small ones made here."""

import pickle
import string
import sys
from functools import partial

import pytest

from metarl_agents.config import TrialConfig
from metarl_agents.envs import check_environment, make
from metarl_agents.envs.adapters.gymnasium import plain_drawing
from metarl_agents.envs.factory import environment_factory
from metarl_agents.envs.wording import Wording
from metarl_agents.errors import ConfigError, EnvironmentContractError, UnknownEnvironmentError

gymnasium = pytest.importorskip("gymnasium", reason="needs the extra `gymnasium`: pip install gymnasium")
numpy = pytest.importorskip("numpy")
spaces = gymnasium.spaces

LAKE = {"render_mode": "ansi", "action_names": ["left", "down", "right", "up"]}


class Digit(gymnasium.Env):
    """Guess a digit, in words; two guesses."""

    observation_space = spaces.Text(200)
    action_space = spaces.Text(20)

    def __init__(self, told="success", listed="admissible_actions", reward=1.0):
        self.told, self.listed, self.gain = told, listed, reward

    def info(self, won):
        return {self.told: won, self.listed: ["guess 1", "guess 2"], "big": numpy.zeros(9), "invalid": numpy.False_}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.digit, self.left = int(self.np_random.integers(1, 3)), 2
        return f"Task {self.np_random.integers(1000)}: guess 1 or 2{(options or {}).get('mark', '.')}", self.info(False)

    def step(self, action):
        self.left -= 1
        won = action == f"guess {self.digit}"
        return "yes" if won else "no", self.gain, won or self.left == 0, False, self.info(won)


class Odd(gymnasium.Env):
    """Whatever spaces are asked of it; ends at once."""

    def __init__(self, observation_space, action_space, info=None, reward=1.0, ends="terminated", seen="text"):
        self.observation_space, self.action_space = observation_space, action_space
        self.info, self.reward, self.ends, self.seen, self.played = info or {}, reward, ends, seen, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.seen, dict(self.info)

    def step(self, action):
        self.played.append(action)
        ended = self.ends == "terminated", self.ends == "truncated"
        return self.seen, self.reward, *ended, dict(self.info)


TEXT = spaces.Text(100)


@pytest.fixture(autouse=True)
def registered_here(monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    gymnasium.register("Digit-v0", Digit)
    gymnasium.register("Odd-v0", Odd)


def odd(observation=TEXT, action=TEXT, action_names=None, success_reward=None, **made):
    return make(
        "gymnasium:Odd-v0",
        observation_space=observation,
        action_space=action,
        action_names=action_names,
        success_reward=success_reward,
        **made,
    )


@pytest.mark.parametrize(
    ("name", "keywords", "ended"),
    [
        ("FrozenLake-v1", LAKE, 3),
        ("FrozenLake-v1", {"render_mode": "ansi"}, 3),
        ("Taxi-v4", {"render_mode": "ansi", "max_episode_steps": 8}, 3),
        ("Digit-v0", {}, 3),
    ],
)
def test_real_and_toy_environments_keep_the_contract(name, keywords, ended):
    if name not in gymnasium.envs.registration.registry:
        pytest.skip(f"this Gymnasium has no {name}")
    report = check_environment(partial(make, f"gymnasium:{name}", **keywords))
    assert report.episodes_ended == ended and report.warnings == ()


def test_the_seed_decides_where_the_ice_slips_and_a_restart_repeats_it():
    one, other = make("gymnasium:FrozenLake-v1", **LAKE), make("gymnasium:FrozenLake-v1", **LAKE)
    walk = ["right", "down", "down", "right", "down"]

    def played(env):
        seen = []
        for action in walk:
            seen.append(env.step(action))
            if seen[-1].terminated:
                break
        return seen

    walks = {}
    for seed in range(6):
        start = one.reset(seed=seed)
        walks[seed] = played(one)
        assert one.restart() == start and played(one) == walks[seed]
        assert other.reset(seed=seed) == start and played(other) == walks[seed]
    assert len({repr(steps) for steps in walks.values()}) > 1, "the ice slips differently under different seeds"


def test_seeds_of_every_split_are_taken():
    env = make("gymnasium:FrozenLake-v1", **LAKE)
    assert env.reset(seed=3 * 2**40 - 1)[0] == env.restart()[0]


def test_a_goal_reached_is_a_success_and_a_hole_is_none():
    env = make("gymnasium:FrozenLake-v1", is_slippery=False, **LAKE)
    env.reset(seed=0)
    *_, last = [env.step(action) for action in ("down", "down", "right", "right", "down", "right")]
    assert last.terminated and last.reward == 1.0 and last.info["success"] is True
    env.restart()
    *before, hole = [env.step(action) for action in ("right", "down")]
    assert hole.terminated and hole.info["success"] is False and before[0].info["success"] is False


def test_a_step_after_the_end_raises():
    env = make("gymnasium:Digit-v0")
    with pytest.raises(RuntimeError, match=r"Call `reset` or `restart`"):
        env.step("guess 1")
    env.reset(seed=0)
    while not env.step("guess 3").terminated:
        pass
    with pytest.raises(RuntimeError, match=r"Call `reset` or `restart`"):
        env.step("guess 1")


@pytest.mark.parametrize("key", ["success", "won", "is_success"])
def test_success_is_read_from_the_customary_keys_whatever_the_reward(key):
    env = make("gymnasium:Digit-v0", told=key, reward=1.0)
    env.reset(seed=0)
    outcomes = {}
    for guess in ("guess 1", "guess 2"):
        env.restart()
        outcomes[guess] = env.step(guess).info["success"]
    assert sorted(outcomes.values()) == [False, True]


@pytest.mark.parametrize(
    ("ends", "reward", "success_reward", "info", "success"),
    [
        ("terminated", 1.0, None, {}, True),
        ("terminated", 0.0, None, {}, False),
        ("terminated", -1.0, None, {}, False),
        ("truncated", 1.0, None, {}, False),
        ("", 1.0, None, {}, False),
        ("terminated", -1.0, -1.0, {}, True),
        ("terminated", 0.5, 1.0, {}, False),
        ("terminated", 0.5, 1.0, {"success": True}, False),
        ("", 0.0, None, {"success": True}, True),
    ],
)
def test_without_such_a_key_the_reward_at_the_end_decides(ends, reward, success_reward, info, success):
    env = odd(success_reward=success_reward, ends=ends, reward=reward, info=info)
    env.reset(seed=0)
    result = env.step("go")
    assert result.info["success"] is success
    assert (result.terminated, result.truncated) == (ends == "terminated", ends == "truncated")


def test_info_is_reduced_to_plain_values_that_our_contract_knows():
    env = make("gymnasium:Digit-v0")
    _, info = env.reset(seed=1)
    assert info == {"admissible_actions": ["guess 1", "guess 2"], "invalid": False}
    assert set(env.step("guess 1").info) == {"admissible_actions", "invalid", "success"}


@pytest.mark.parametrize("key", ["admissible_commands", "available_actions", "valid_actions", "legal_actions"])
def test_admissible_texts_are_found_under_other_names(key):
    assert make("gymnasium:Digit-v0", listed=key).reset(seed=1)[1]["admissible_actions"] == ["guess 1", "guess 2"]


def test_numbers_are_read_with_their_start_and_listed():
    env = odd(action=spaces.Discrete(3, start=5))
    assert env.reset(seed=0)[1] == {"admissible_actions": ["5", "6", "7"]}
    assert env.describe() == "The actions are: 5, 6, 7."
    assert [env.parse_action(f"<action>{text}</action>") for text in ("6", " 7 ", "4", "8", "06", "six", "٦")] == [
        "6", "7", None, None, None, None, None,
    ]  # fmt: skip
    env.step("6")
    assert env._game.unwrapped.played == [6]


def test_names_stand_for_numbers_in_their_order_and_are_shown_as_given():
    env = odd(action=spaces.Discrete(2, start=1), action_names=["Turn left", "turn right"])
    assert env.describe() == "The actions are: Turn left, turn right."
    assert env.parse_action("<action>TURN  LEFT</action>") == "Turn left"
    assert env.parse_action("<action>1</action>") is None and env.parse_action("left") is None
    env.reset(seed=0)
    env.step("turn right")
    assert env._game.unwrapped.played == [2]


@pytest.mark.parametrize(
    ("info", "listed"),
    [
        ({"action_mask": numpy.array([1, 0, 1], dtype=numpy.int8)}, ["a", "c"]),
        ({"legal_actions": [2, numpy.int64(1), 9]}, ["c", "b"]),
        ({"admissible_actions": ["B", "x"]}, ["b"]),
        ({}, ["a", "b", "c"]),
    ],
)
def test_a_mask_or_a_list_of_numbers_becomes_a_list_of_names(info, listed):
    env = odd(action=spaces.Discrete(3), action_names=["a", "b", "c"], info=info)
    assert env.reset(seed=0)[1]["admissible_actions"] == listed


def test_hundreds_of_numbers_are_described_by_their_range_and_not_listed():
    env = odd(action=spaces.Discrete(500))
    assert env.describe() == "The actions are the numbers 0 to 499." and env.reset(seed=0)[1] == {}
    assert env.parse_action("<action>499</action>") == "499"


def test_texts_that_the_action_space_excludes_are_unreadable():
    digits = odd(action=spaces.Text(3, charset=string.digits))
    assert [digits.parse_action(f"<action>{text}</action>") for text in ("12", "1234", "up")] == ["12", None, None]
    sloppy = odd(action=spaces.Text(8, min_length=2))  # the default characters lack the blank
    assert [sloppy.parse_action(f"<action>{text}</action>") for text in ("go north", "go", "x", "go northwest")] == [
        "go north", "go", None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("action", "names", "told"),
    [
        (spaces.Discrete(2), ["left"], "holds 1 names, but \"Odd-v0\" has 2 actions"),
        (spaces.Discrete(2), ["left", "LEFT "], "names two actions alike"),
        (spaces.Discrete(2), "ab", "a list of texts"),
        (spaces.Discrete(2), [True, False], "a list of texts"),
        (spaces.Discrete(2), ["", "b"], "a list of texts"),
        (TEXT, ["left"], "names the actions of a Discrete space"),
        (spaces.Box(-1, 1, (2,)), None, 'takes actions of Box, but a language model writes texts'),
        (spaces.MultiDiscrete([2, 2]), None, "takes actions of MultiDiscrete"),
    ],
)  # fmt: skip
def test_actions_that_cannot_be_written_or_named_are_refused(action, names, told):
    with pytest.raises(ConfigError) as caught:
        odd(action=action, action_names=names)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("name", "keywords", "told"),
    [
        ("FrozenLake-v1", {}, 'It can draw itself as text: set `--env_kwargs "{render_mode: ansi}"`'),
        ("CartPole-v1", {}, "It draws no text either"),
        ("FrozenLake-v1", {"foo": 1}, "got an unexpected keyword argument 'foo'"),
        ("no_such_module_here:Env-v0", {}, "No module named 'no_such_module_here'"),
        ("", {"wording": "long"}, "alone is no environment"),
        ("FrozenLake-v1", {"wording": "long"}, '`wording` is "long", but gymnasium has paper and compact'),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(name, keywords, told):
    with pytest.raises((ConfigError, UnknownEnvironmentError)) as caught:
        make(f"gymnasium:{name}", **keywords)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_drawing_mode_that_an_environment_lacks_is_refused():
    with pytest.warns(UserWarning), pytest.raises(ConfigError, match="observes Box.*draws no text either"):
        make("gymnasium:CartPole-v1", render_mode="ansi")


def test_an_unknown_id_says_what_gymnasium_suggests_and_how_to_name_another_package_s():
    with pytest.raises(UnknownEnvironmentError) as caught:
        make("gymnasium:FrozenLak-v1")
    message = str(caught.value)
    assert "Did you mean: `FrozenLake`?" in message and '"gymnasium:package.module:FrozenLak-v1"' in message


def test_environments_of_another_module_are_found_through_it(tmp_path, monkeypatch):
    (tmp_path / "gym_guest_for_tests.py").write_text(
        "import gymnasium\n"
        "class World(gymnasium.Env):\n"
        "    observation_space = action_space = gymnasium.spaces.Text(50)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return f'hello {self.np_random.integers(9)}', {}\n"
        "    def step(self, action):\n"
        "        return 'over', 1.0, True, False, {}\n"
        "gymnasium.register('Guest-v0', World)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        env = make("gymnasium:gym_guest_for_tests:Guest-v0")
        assert env.reset(seed=1)[0].startswith("hello ")
        with pytest.raises(UnknownEnvironmentError, match="Guest-v1"):
            make("gymnasium:gym_guest_for_tests:Guest-v1")
    finally:
        sys.modules.pop("gym_guest_for_tests", None)


def test_observations_that_turn_out_to_be_no_texts_raise_when_they_come():
    class Anything(spaces.Space):
        """A space of somebody else's, which says nothing about texts."""

    Anything.__module__ = "elsewhere"
    assert odd(observation=Anything()).reset(seed=0)[0] == "text"
    with pytest.raises(TypeError, match="observation of type ndarray, but a text is expected"):
        odd(observation=Anything(), seen=numpy.zeros(2)).reset(seed=0)


def test_a_task_that_is_drawn_when_the_object_is_built_breaks_the_contract():
    build = partial(make, "gymnasium:FrozenLake-v1", desc=None, map_name=None, **LAKE)
    with pytest.raises(EnvironmentContractError, match="two different first observations"):
        check_environment(build)


def test_reset_options_reach_every_reset():
    env = make("gymnasium:Digit-v0", reset_options={"mark": "!"})
    assert env.reset(seed=0)[0].endswith("!") and env.restart()[0].endswith("!")


def test_a_description_of_one_s_own_replaces_the_list_of_actions():
    assert make("gymnasium:FrozenLake-v1", description="Cross the lake.", **LAKE).describe() == "Cross the lake."
    assert make("gymnasium:FrozenLake-v1", **LAKE).describe() == "The actions are: left, down, right, up."


@pytest.mark.parametrize("wording", ["paper", "compact", Wording(play_request="Now?")])
def test_wordings_are_chosen_by_name_or_given(wording):
    chosen = make("gymnasium:Digit-v0", wording=wording).wording
    assert "<action>" in chosen.play_request or chosen is wording


def test_settings_build_it_and_it_travels_to_other_processes():
    build = environment_factory(TrialConfig(env="gymnasium:FrozenLake-v1", env_kwargs=LAKE, wording="compact"))
    env = pickle.loads(pickle.dumps(build))()
    assert env.wording.initial == "" and env.reset(seed=0)[0].startswith("[red:S]FFF")


@pytest.mark.parametrize(
    ("drawing", "plain"),
    [
        ("\n\x1b[41mS\x1b[0mFF\n", "[red:S]FF"),
        ("a\x1b[34;1mR\x1b[0mb", "a[blue:R]b"),
        ("\x1b[35m\x1b[34;1m\x1b[43mY\x1b[0m\x1b[0m\x1b[0m:", "[magenta,blue,yellow:Y]:"),
        ("\x1b[1mbold\x1b[0m", "bold"),
        ("\x1b[2J\x1b[Hplain", "plain"),
        ("  kept  \nas it is", "  kept  \nas it is"),
    ],
)
def test_colours_of_a_drawing_become_words(drawing, plain):
    assert plain_drawing(drawing) == plain
