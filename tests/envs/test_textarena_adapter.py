"""TextArena's single-player games behind our contract, tried on the real package."""

import os
import pickle
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from metarl_agents.config import TrialConfig
from metarl_agents.envs import check_environment, make
from metarl_agents.envs.factory import environment_factory
from metarl_agents.errors import ConfigError, UnknownEnvironmentError

textarena = pytest.importorskip("textarena", reason="needs the extra `textarena`: pip install textarena")

GUESS = "textarena:GuessTheNumber-v0"


def has_word_lists():
    try:
        import nltk

        nltk.data.find("corpora/words")
    except LookupError:
        return False
    return True


@pytest.fixture
def own_games(monkeypatch):
    """Register games made here, and forget them afterwards."""
    registry = textarena.envs.registration.ENV_REGISTRY
    monkeypatch.setattr(textarena.envs.registration, "ENV_REGISTRY", dict(registry))
    return textarena.register


class Coin(textarena.Env):
    """Call a coin; keeps what it drew on the object, as some games do."""

    def __init__(self, reward=1.0):
        self.drawn, self.reward = [], reward

    def reset(self, num_players, seed=None):
        import numpy

        self.state = textarena.SinglePlayerState(num_players=num_players, seed=seed, max_turns=3)
        self.drawn.append(random.random())
        self.state.reset(game_state={}, player_prompt_function=self.prompt)
        self.legacy = numpy.random.random()

    def prompt(self, player_id, game_state):
        return f"Call it. Tosses so far: {len(self.drawn)}, weather {self.drawn[-1]:.6f}"

    def step(self, action):
        import numpy

        self.state.add_observation(f"{random.random()} {numpy.random.random()}", textarena.ObservationType.GAME_MESSAGE)
        if action == "heads":
            self.state.set_outcome(self.reward, "It is over.")
        return self.state.step()


@pytest.mark.parametrize("game", ["GuessTheNumber-v0", "FrozenLake-v0-random", "Mastermind-v0", "Countdown-v0"])
def test_games_keep_the_contract(game):
    assert check_environment(partial(make, f"textarena:{game}"), seeds=(0, 5)).episodes_ended == 2


def test_a_game_is_told_in_full_once_and_then_only_what_is_new():
    env = make(GUESS)
    first, info = env.reset(seed=3)
    assert "between 1 and 20 within 10 turns" in first and info == {}
    assert env.step("10").observation == "The target number is lower."
    assert env.step("5").observation == "The target number is higher."


def test_a_solved_game_is_a_success_with_its_reward_and_reason():
    env = make(GUESS)
    env.reset(seed=3)
    results = []
    for number in range(1, 11):
        results.append(env.step(f"[{number}]"))
        if results[-1].terminated:
            break
    *before, last = results
    assert last.info == {"success": True, "invalid": False} and last.reward == 1.0
    assert last.observation == "Congratulations! You guessed the correct number."
    assert before and all(result.reward == 0.0 and result.info["success"] is False for result in before)
    with pytest.raises(RuntimeError, match="Call `reset` or `restart`"):
        env.step("1")


def test_part_of_the_way_is_rewarded_and_no_success_unless_it_is_enough():
    lake, down = "textarena:FrozenLake-v0", ["right", "down", "down"]
    for needed, success in ((1.0, False), (0.5, True)):
        env = make(lake, success_reward=needed)
        env.reset(seed=3)
        last = [env.step(move) for move in down][-1]
        assert "You fell into a hole!" in last.observation
        assert (last.terminated, last.reward, last.info["success"]) == (True, 0.5, success)


def test_a_refused_move_is_forgiven_once_and_then_loses():
    env = make(GUESS)
    env.reset(seed=3)
    steps = [env.step(move) for move in ("99", "10", "99", "100")]
    assert [step.info["invalid"] for step in steps] == [True, False, True, True]
    assert [step.terminated for step in steps] == [False, False, False, True]
    assert steps[0].observation.startswith("You attempted an invalid move.") and not steps[3].info["success"]


@pytest.mark.parametrize("game", ["Countdown-v0", "Slitherlink-v0", "Cryptarithm-v0", "ThreeCardMonte-v0"])
def test_games_that_mix_up_reward_and_reason_of_a_refused_move_give_a_number(game):
    env = make(f"textarena:{game}")
    env.reset(seed=0)
    *_, last = [env.step("nonsense") for _ in range(2)]
    assert last.terminated and last.reward == 0.0 and last.info == {"success": False, "invalid": True}
    assert "Invalid Move: " in last.observation


def test_a_restart_repeats_the_task_and_seeds_differ():
    env = make("textarena:FrozenLake-v0-random")
    boards = {}
    for seed in (1, 2, 2**41 + 1):
        boards[seed] = env.reset(seed=seed)[0]
        env.step("up")
        assert env.restart()[0] == boards[seed] == make("textarena:FrozenLake-v0-random").reset(seed=seed)[0]
    assert len(set(boards.values())) == 3


def test_games_side_by_side_draw_from_generators_of_their_own(own_games):
    own_games("Coin-v0", Coin)
    alone = make("textarena:Coin-v0")
    start = alone.reset(seed=1)
    expected = [alone.step("tails") for _ in range(4)]
    one, other = make("textarena:Coin-v0"), make("textarena:Coin-v0")
    assert one.reset(seed=1) == start and other.reset(seed=2) != start
    seen = []
    for _ in range(4):
        random.seed(7)
        other.step("tails")
        seen.append(one.step("tails"))
    assert seen == expected
    # The object remembers its tosses; a new attempt must not.
    assert one.restart() == start


def test_the_global_generators_are_left_as_they_were():
    import numpy

    states = random.getstate(), numpy.random.get_state()[1].tolist()
    env = make("textarena:FrozenLake-v0-random")
    env.reset(seed=5)
    env.step("right")
    assert states == (random.getstate(), numpy.random.get_state()[1].tolist())


def test_what_a_game_prints_stays_out_of_the_terminal(capsys):
    env = make("textarena:LogicPuzzle-v0")
    env.reset(seed=4)
    env.step("[1 2 3 4]")
    assert capsys.readouterr().out == ""


def test_a_game_that_raises_leaves_the_global_generators_as_they_were(own_games):
    class Broken(Coin):
        def step(self, action):
            raise OSError(random.random())

    own_games("Broken-v0", Broken)
    env = make("textarena:Broken-v0")
    env.reset(seed=5)
    state = random.getstate()
    with pytest.raises(OSError):
        env.step("heads")
    assert state == random.getstate()


def transcript():
    """What some games with sets and shuffles say to one move."""
    said = []
    for game in ("Mastermind-v0", "FrozenLake-v0-random", "LogicPuzzle-v0"):
        env = make(f"textarena:{game}")
        said.append(f"{env.reset(seed=4)[0]} {env.step('[1 2 3 4]')}")
    return "\n".join(said)


def test_the_seed_decides_alike_in_every_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_textarena_adapter as t; print(t.transcript(), end='')"
    )
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
    )
    assert child.stdout == transcript() and len(child.stdout) > 500


@pytest.mark.parametrize(
    ("name", "keywords", "told"),
    [
        ("TicTacToe-v0", {}, "cannot be played by one player alone (The number of players has to be 2, received 1)"),
        ("QuantumTicTacToe-v0", {}, "is a game for several players: choose a single-player game"),
        ("GuessTheNumber-v0", {"foo": 1}, "got an unexpected keyword argument 'foo'"),
        ("GuessTheNumber-v0", {"wording": "long"}, '`wording` is "long", but textarena has paper and compact'),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(name, keywords, told):
    with pytest.raises(ConfigError) as caught:
        make(f"textarena:{name}", **keywords)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_game_gets_a_suggestion():
    with pytest.raises(
        UnknownEnvironmentError, match=r'no game "GuessTheNumbr-v0"\. Did you mean "GuessTheNumber-v0"\?'
    ):
        make("textarena:GuessTheNumbr-v0")


@pytest.mark.skipif(has_word_lists(), reason="the word lists of nltk are on this machine, so nothing is refused")
def test_a_game_whose_word_lists_are_missing_says_how_to_get_them():
    with pytest.raises(ConfigError) as caught:
        make("textarena:Hangman-v0")
    message = str(caught.value)
    assert "python -m nltk.downloader words" in message and "\n" not in message


@pytest.mark.skipif(not has_word_lists(), reason="needs the word lists of nltk, which are fetched by network")
def test_a_game_with_word_lists_plays_where_they_are():
    assert "Hangman" in make("textarena:Hangman-v0").reset(seed=0)[0]


def test_settings_build_it_and_it_travels_to_other_processes():
    build = environment_factory(TrialConfig(env=GUESS, env_kwargs={"max_number": 9}, wording="compact"))
    env = pickle.loads(pickle.dumps(build))()
    assert "between 1 and 9" in env.reset(seed=0)[0] and env.wording.initial == "{observation}"
    assert pickle.loads(pickle.dumps(env.wording)) == env.wording
