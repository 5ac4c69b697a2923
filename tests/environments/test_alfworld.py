"""ALFWorld as an environment: the contract, rewards, settings, the pages around it, the player."""

import doctest
import importlib
import random
import re

import pytest

from metarl_agents.environments.alfworld import ALFWorld
from metarl_agents.environments.alfworld.beliefs import Beliefs, Wish, read_wish
from metarl_agents.environments.alfworld.game import NOTHING_HAPPENS
from metarl_agents.environments.alfworld.player import AlfworldPlayer, read_remarks, reread
from metarl_agents.environments.alfworld.tables import TASKS
from metarl_agents.envs import check_environment
from metarl_agents.errors import ConfigError
from metarl_agents.types import Episode, Phase, Response, Turn


def make(**kwargs):
    return ALFWorld(**{"source": "generated", **kwargs})


def attempt(env, player, rng, remarks=(), seed=None, max_turns=30):
    """Play once; return (won, episode)."""
    observation, _ = env.restart() if seed is None else env.reset(seed=seed)
    episode = Episode(observation, final_observation=observation)
    player.start_episode(list(remarks), rng)
    for _ in range(max_turns):
        action = env.parse_action(player.act(observation, rng))
        episode.turns.append(Turn(Phase.PLAY, observation, (), Response((), ""), action, action, 0.0))
        observation, _, won, _, _ = env.step(action)
        episode.final_observation = observation
        if won:
            return True, episode
    return False, episode


@pytest.mark.parametrize("module", ["beliefs", "game", "player", "tables"])
def test_examples_in_docstrings_are_true(module):
    results = doctest.testmod(importlib.import_module(f"metarl_agents.environments.alfworld.{module}"))
    assert results.attempted > 0 and results.failed == 0


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"size": "small", "wording": "compact", "tasks": "all"}, {"split": "valid_unseen", "tasks": ["cool", "pick_two"]}],
)  # fmt: skip
def test_it_keeps_the_contract(kwargs):
    report = check_environment(lambda: make(**kwargs), seeds=range(3), max_turns=25)
    assert [warning for warning in report.warnings if "No episode ended" not in warning] == []


def test_ends_keep_the_contract_as_well():
    class Guided(ALFWorld):
        """Lists the next command of the walkthrough alone, so that every episode ends."""

        def _info(self, play):
            self.turn = 0 if play is not getattr(self, "seen", None) else self.turn + 1
            self.seen = play
            return {}

        def restart(self):
            self.seen = None
            return super().restart()

        def player(self):
            env = self

            class Player(AlfworldPlayer):
                def act(self, observation, rng):
                    steps = env.walkthrough()
                    return f"<action>{steps[min(env.turn, len(steps) - 1)]}</action>"

            return Player()

    report = check_environment(lambda: Guided(source="generated", size="small", tasks="all"), seeds=range(4))
    assert report.warnings == () and report.episodes_ended == 4


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", ["full", "small"])
def test_every_task_type_is_won_by_its_walkthrough(task, size):
    env = make(tasks=task, size=size)
    for seed in range(5):
        observation, info = env.reset(seed=seed)
        steps = env.walkthrough()
        assert 3 <= len(steps) <= 11
        for number, step in enumerate(steps, start=1):
            assert step in info["admissible_actions"] and step not in observation
            observation, reward, won, truncated, info = env.step(step)
            assert (won, reward) == ((True, 10.0) if number == len(steps) else (False, 0.0))
            assert observation != NOTHING_HAPPENS and info["success"] is won and truncated is False
        with pytest.raises(RuntimeError, match="Call `reset` or `restart`"):
            env.step("look")


def test_inadmissible_commands_answer_nothing_happens_and_change_nothing():
    env = make()
    _, info = env.reset(seed=1)
    listed = info["admissible_actions"]
    assert "help" not in listed and {"look", "inventory"} <= set(listed)
    for command in ("dance", "go to moon 1", "take mug 1 from fridge 1", "open", listed[-1] + "x", "\x00"):
        observation, reward, won, _, info = env.step(command)
        assert (observation, reward, won) == ("Nothing happens.", 0.0, False) and info["admissible_actions"] == listed
    assert env.step("help").observation != NOTHING_HAPPENS


def test_every_listed_action_does_something():
    env = make(tasks="all", size="small")
    for seed in range(6):
        _, info = env.reset(seed=seed)
        for action in info["admissible_actions"]:
            env.restart()
            assert env.step(env.parse_action(f"<action>{action}</action>")).observation != NOTHING_HAPPENS


def test_a_restart_is_identical_to_the_letter():
    env = make(tasks="all")
    for seed in range(6):
        first = env.reset(seed=seed)
        answers = [env.step(step) for step in env.walkthrough()]
        assert env.restart() == first
        assert [env.step(step) for step in env.walkthrough()] == answers
        env.reset(seed=seed + 1)
        assert env.reset(seed=seed) == first


def test_two_environments_of_one_game_do_not_touch_each_other():
    one, other = make(), make()
    start = one.reset(seed=3)
    other.reset(seed=3)
    for step in one.walkthrough():
        one.step(step)
    assert other.restart() == start
    assert not other.step("look").info["success"]


def test_where_things_are_is_hidden_until_one_looks():
    env = make(tasks="pick")
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        assert "holds" not in observation
        thing = next(step for step in env.walkthrough() if step.startswith("take"))
        assert re.search(r"take (\w+ \d+) from", thing)[1] not in observation


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>go to desk 1</action>", "go to desk 1"),
        ("I reason <action> Go  To\nDesk 1 </action>", "go to desk 1"),
        ("<action>look</action> no <action>inventory</action>", "inventory"),
        ("go to desk 1", None),
        ("<action>   </action>", None),
        ("<think><action>look</action>", None),
    ],
)
def test_parse_action(text, action):
    assert make().parse_action(text) == action


def test_parse_action_never_raises_and_step_takes_what_it_gives():
    env, rng = make(size="small"), random.Random(0)
    env.reset(seed=0)
    pieces = [
        "<action>",
        "</action>",
        "go to",
        " ",
        "\n",
        "desk 1",
        "{r}",
        "#look#",
        "\u0661",
        "\ud800",
        "[",
        "|",
        "x" * 99,
    ]
    for _ in range(2000):
        action = env.parse_action("".join(rng.choices(pieces, k=rng.randrange(12))))
        assert action is None or isinstance(env.step(action).observation, str)


def test_stepping_before_reset_says_what_to_do():
    for call in (lambda env: env.step("look"), lambda env: env.restart(), lambda env: env.walkthrough()):
        with pytest.raises(RuntimeError, match="Call `reset"):
            call(make())


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"split": "test"}, '`split` is "test", but ALFWorld has train, valid_seen, valid_unseen'),
        ({"size": "big"}, '`size` is "big", but ALFWorld has full, small'),
        ({"source": "web"}, '`source` is "web", but ALFWorld has auto, generated, data'),
        ({"rules": "other"}, '`rules` is "other"'),
        ({"wording": "long"}, '`wording` is "long", but ALFWorld has paper and compact'),
        ({"tasks": "cook"}, '`tasks` is "cook", but ALFWorld has the lists in_distribution'),
        ({"tasks": ["pick", "cook"]}, '`tasks` is "cook"'),
        ({"tasks": []}, '`tasks` is ""'),
        ({"data_dir": "/nowhere"}, '`source` is "generated", but `data_dir` is "/nowhere"'),
        ({"data_dir": "/nowhere", "source": "data"}, '`data_dir` is "/nowhere", but it holds no ALFWorld games'),
    ],
)
def test_wrong_settings_are_refused_with_the_way_out(kwargs, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make(**kwargs)


def test_the_package_is_named_with_its_make_target_where_it_is_missing(monkeypatch):
    import importlib.util

    from metarl_agents.environments.alfworld import rules

    rules._installed.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="make alfworld-files"):
        make(rules="alfworld")
    rules._installed.cache_clear()


def test_task_lists_and_long_names_are_understood():
    assert make().tasks == ("pick", "look", "clean", "heat")
    assert make(tasks="out_of_distribution").tasks == ("cool", "pick_two")
    assert make(tasks=["pick_heat_then_place_in_recep", "heat", "look"]).tasks == ("heat", "look")


def test_wordings_tell_all_or_next_to_nothing():
    paper, compact = make(), make(wording="compact")
    assert "word for word" in paper.describe() and "same in every attempt" in paper.describe()
    assert "<action>" in paper.wording.play_request and "<remark>" in paper.wording.reflect_request
    assert paper.wording.history_turns == 15 and paper.wording.full_observations >= 15  # answers are never elided
    assert compact.describe() == "" and compact.wording.admissible == "" and len(compact.wording.play_request) < 20


# The player.


@pytest.mark.parametrize(
    ("sentence", "wish"),
    [
        ("bring an apple to a fridge.", Wish("apple", "fridge", None, 1)),
        ("clean a mug and bring it to a desk.", Wish("mug", "desk", "clean", 1)),
        ("put one hot egg on a diningtable", Wish("egg", "diningtable", "heat", 1)),
        ("cool a potato, then put it in a microwave", Wish("potato", "microwave", "cool", 1)),
        ("bring a pen and another pen to a shelf.", Wish("pen", "shelf", None, 2)),
        ("put two glassbottle on a desk.", Wish("glassbottle", "desk", None, 2)),
        ("hold a book next to a desklamp that is lit.", Wish("book", "desklamp", None, 1)),
        ("look at a cd with that floorlamp", Wish("cd", "floorlamp", None, 1)),
        ("put it in the fridge", None),
    ],
)
def test_task_sentences_are_understood(sentence, wish):
    assert read_wish(sentence, {"fridge", "desk", "diningtable", "microwave", "shelf"}) == wish


def test_beliefs_follow_what_the_game_says_in_either_wording():
    for arrives, opened in (
        ("You walk to cabinet 2. cabinet 2 is shut.", "cabinet 2 is open and holds a mug 1 and a cup 3."),
        ("Here is cabinet 2, and it is closed.", "Open now. Inside are a mug 1, and a cup 3."),
    ):
        beliefs = Beliefs()
        beliefs.begin("In a room you see a cabinet 2, and a desk 1.\n\nThe task is this: put one mug on a desk.")
        assert beliefs.receptacles == ["cabinet 2", "desk 1"] and beliefs.wish == Wish("mug", "desk", None, 1)
        beliefs.hear("go to cabinet 2", arrives)
        assert beliefs.is_shut("cabinet 2") and not beliefs.searched
        beliefs.hear("open cabinet 2", opened)
        assert beliefs.lies == {"mug 1": "cabinet 2", "cup 3": "cabinet 2"} and beliefs.searched == {"cabinet 2"}
        beliefs.hear("take mug 1 from cabinet 2", "You take it.")
        assert beliefs.held == "mug 1" and beliefs.known("mug") == []
        beliefs.hear("go to desk 1", NOTHING_HAPPENS)
        assert beliefs.here == "desk 1"  # it shares its standing place
        beliefs.hear("move mug 1 to desk 1", "Done.")
        assert beliefs.held is None and beliefs.delivered == {"mug 1"} and beliefs.first["mug 1"] == "cabinet 2"


@pytest.mark.parametrize("tasks", TASKS)
def test_the_player_wins_small_rooms_by_searching(tasks):
    env, rng = make(tasks=tasks, size="small"), random.Random(1)
    wins = [attempt(env, AlfworldPlayer(blunder=0), rng, seed=seed)[0] for seed in range(12)]
    assert sum(wins) >= 11


def test_remarks_make_the_second_attempt_better():
    env = make(tasks="out_of_distribution", size="small")

    def second_attempts(heed):
        rng, wins = random.Random(2), []
        for seed in range(30):
            player = AlfworldPlayer(heed=heed, blunder=0)
            won, episode = attempt(env, player, rng, seed=seed, max_turns=8)
            if not won:
                remark = player.reflect(episode, rng).removeprefix("<remark>").removesuffix("</remark>")
                wins.append(attempt(env, player, rng, [remark], max_turns=8)[0])
        return sum(wins) / len(wins)

    heeding, deaf = second_attempts(1), second_attempts(0)
    print(f"second attempts won: {heeding:.2f} when heeding remarks, {deaf:.2f} when not")
    assert heeding > deaf + 0.1


def test_common_sense_finds_things_sooner_and_is_drawn_once_an_attempt():
    env = make(size="small")

    def won(sense):
        player, rng = AlfworldPlayer(heed=0, blunder=0, sense=sense), random.Random(4)
        return sum(attempt(env, player, rng, seed=seed, max_turns=7)[0] for seed in range(60)) / 60

    assert won(1) > won(0) + 0.1

    class Counted(random.Random):
        draws = 0

        def random(self):
            self.draws += 1
            return super().random()

    drawn = {}
    for sense in (1, 0.5):
        player, rng = AlfworldPlayer(sense=sense), Counted(0)
        player.start_episode([], rng)
        drawn[sense] = rng.draws
    assert drawn == {1: 1, 0.5: 2}, "whoever always has it plays as before"


def test_remarks_say_where_things_were_or_were_not_and_can_be_read_back():
    opening = "You see a desk 1, a bed 1, and a shelf 1.\n\nTask: bring a pen to a desk."
    turns = [("go to bed 1", opening), ("go to shelf 1", "bed 1 holds nothing.")]
    played = [Turn(Phase.PLAY, seen, (), Response((), ""), action, action, 0.0) for action, seen in turns]
    player, rng = AlfworldPlayer(), random.Random(0)
    found = Episode(opening, played, "shelf 1 holds a pen 2.")
    assert player.reflect(found, rng) == "<remark>pen 2 at shelf 1.</remark>"
    missed = Episode(opening, played, "shelf 1 holds a book 2.")
    assert player.reflect(missed, rng) == "<remark>no pen at bed 1, shelf 1.</remark>"
    assert player.reflect(Episode("", final_observation=""), rng) == "<remark>look around first.</remark>"
    assert reread(found).lies == {"pen 2": "shelf 1"}
    hints, barren = read_remarks(["pen 2 at shelf 1. no book at bed 1, desk 1."])
    assert hints == {"pen 2": "shelf 1"} and barren == {"book/bed 1", "book/desk 1"}


def test_the_player_draws_from_the_generator_it_is_given_alone():
    env = make(tasks="all", size="small")
    random.seed(1)
    first = attempt(env, AlfworldPlayer(), random.Random(5), seed=4)[1]
    random.seed(2)
    second = attempt(env, AlfworldPlayer(), random.Random(5), seed=4)[1]
    assert [turn.action for turn in first.turns] == [turn.action for turn in second.turns]


def test_strange_texts_do_not_upset_the_player():
    rng = random.Random(0)
    for texts in (
        ["", "", ""],
        ["Task: .", NOTHING_HAPPENS],
        ["a desk 1\nTask: put mug in desk", *[NOTHING_HAPPENS] * 9],
    ):
        player = AlfworldPlayer()
        player.start_episode(["garbage at all 1", "no at", ""], rng)
        for text in texts:
            assert re.fullmatch(r"<action>[a-z0-9 ]+</action>", player.act(text, rng))
