"""Sokoban as an environment: the contract, turns, rewards, answers, texts, and the scripted player."""

import random
import re

import pytest

from metarl_agents.environments.sokoban import Sokoban
from metarl_agents.environments.sokoban.game import DIRECTIONS
from metarl_agents.environments.sokoban.player import SokobanPlayer, moves_to_avoid
from metarl_agents.environments.sokoban.solver import solver_of
from metarl_agents.environments.sokoban.text import XSB, compact_text, paper_text, room_of
from metarl_agents.envs import check_environment
from metarl_agents.errors import ConfigError
from metarl_agents.types import Episode, Phase, Response, Turn


def position(*lines):
    """A position in XSB signs, with walls laid around it."""
    return room_of([list(line) for line in lines], XSB)


def playing(room, **settings):
    """An environment in the middle of a given room."""
    env = Sokoban(**settings)
    env._start = room
    env.restart()
    return env


def attempt(env, player, observation, rng, remarks=(), max_turns=7):
    """Play one attempt as the rollout does; return the finished episode and whether it was won."""
    episode = Episode(observation, final_observation=observation)
    player.start_episode(list(remarks), rng)
    for _ in range(max_turns):
        text = player.act(episode.final_observation, rng)
        action = env.parse_action(text)
        result = env.step(action)
        episode.turns.append(
            Turn(Phase.PLAY, episode.final_observation, (), Response((), text), action, text, result.reward)
        )
        episode.final_observation = result.observation
        if result.terminated:
            return episode, result.info["success"]
    return episode, False


def pass_rates(player, tasks, attempts=2, remember=True):
    """Sequential success within 1, 2, ... attempts."""
    env, rng, wins = Sokoban(), random.Random(0), [0] * attempts
    for seed in range(tasks):
        remarks = []
        observation, _ = env.reset(seed=seed)
        for number in range(attempts):
            episode, won = attempt(env, player, observation, rng, remarks)
            if won:
                wins[number:] = [count + 1 for count in wins[number:]]
                break
            if remember:
                remarks.append(env_remark(player.reflect(episode, rng)))
            env.restart()
    return [count / tasks for count in wins]


def env_remark(text):
    return re.fullmatch(r"<remark>(.*)</remark>", text)[1]


# The contract.


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"wording": "compact"},
        {"reward_preset": "shaped", "boxes": 3},
        {"end_when_stuck": False, "max_actions": 1},
        {"wording": "compact", "boxes": 1, "size": 5, "max_actions": 5, "reward_preset": "shaped"},
        {"size": 7, "boxes": 3, "max_actions": 2},
    ],
)
def test_it_keeps_the_contract(settings):
    report = check_environment(lambda: Sokoban(**settings), seeds=range(6), max_turns=60)
    # Only an attempt that may go on when it is stuck need not end.
    assert report.warnings == () and report.episodes_ended >= (6 if settings.get("end_when_stuck", True) else 3)


def test_restarts_return_the_identical_text():
    env, rng = Sokoban(), random.Random(0)
    for seed in range(300):
        first, info = env.reset(seed=seed)
        assert info == {}
        for _ in range(2):
            attempt(env, env.player(), first, rng, max_turns=2)
            assert env.restart() == (first, {})
        assert env.reset(seed=seed) == (first, {})


def test_restarting_or_stepping_before_reset_says_what_to_do():
    for call in (Sokoban().restart, lambda: Sokoban().step(("up",)), Sokoban().min_turns):
        with pytest.raises(RuntimeError, match="Call `reset"):
            call()


# Turns and rewards.


def test_a_turn_stops_at_the_move_that_solves_the_room():
    # A second push to the right would take the box off its target again.
    room = position("@$.  ")
    for preset, reward in (("sparse", 10.0), ("shaped", 10.9)):
        env = playing(room, reward_preset=preset)
        result = env.step(("right", "right", "right"))
        assert result == (paper_text(position(" @*  ")), reward, True, False, {"success": True})
        with pytest.raises(RuntimeError, match="attempt is over"):
            env.step(("left",))


def test_a_box_that_comes_onto_its_target_and_leaves_it_within_a_turn_wins_nothing():
    room = position("@$.   ", "    $.")
    env = playing(room, reward_preset="shaped", end_when_stuck=False)
    result = env.step(("right", "right", "right"))
    assert result == (paper_text(position("  .@$ ", "    $.")), -0.3, False, False, {"success": False})


@pytest.mark.parametrize(("preset", "values"), [("sparse", (10, 0, 0, 0)), ("shaped", (10, 1, -1, -0.1))])
def test_reward_table(preset, values):
    solved, comes, leaves, cost = values
    for before, moves, after, expected in (
        ("@ $.  ", ("right",), " @$.  ", cost),
        ("@ $.  ", ("right", "left", "right"), " @$.  ", 3 * cost),
        ("@ $.  ", ("left", "up", "down"), "@ $.  ", 3 * cost),
        ("@ $.  ", ("right", "right"), "  @*  ", 2 * cost + comes + solved),
        ("@$. $.", ("right",), " @* $.", cost + comes),
        ("@*  $.", ("right",), " +$ $.", cost + leaves),
    ):
        env = playing(position(before), reward_preset=preset, end_when_stuck=False)
        observation, reward, terminated, truncated, info = env.step(moves)
        assert observation == paper_text(position(after))
        assert reward == pytest.approx(expected) and len(str(reward)) < 6
        assert (terminated, truncated, info) == (observation.count("X") == 0, False, {"success": terminated})


def test_a_blocked_turn_costs_but_is_not_called_invalid():
    env = playing(position("@ ", "$ ", ". "), reward_preset="shaped")
    before = paper_text(env._room)
    assert env.step(("left", "up")) == (before, -0.2, False, False, {"success": False})


def test_being_stuck_ends_the_attempt_only_if_asked_to():
    # Against the right wall, where the target is, all is well; against the upper wall it is not.
    before, after = position("    ", " $  ", "@   ", "   ."), position("    ", "  @$", "    ", "   .")
    assert not solver_of(before.layout).is_stuck(after)
    lost = position(" $  ", " @  ", "    ", "   .")
    for ends in (True, False):
        env = playing(before, end_when_stuck=ends)
        assert env.step(("up", "right", "right"))[:4] == (paper_text(after), 0.0, False, False)
        env.restart()
        result = env.step(("right", "up"))
        assert result == (paper_text(lost), 0.0, ends, False, {"success": False})
        if ends:
            with pytest.raises(RuntimeError, match="attempt is over"):
                env.step(("down",))
        else:
            assert env.step(("down",)).terminated is False


def test_the_oracle_wins_every_attempt_within_seven_turns():
    for settings in ({}, {"boxes": 1}, {"boxes": 3, "wording": "compact"}):
        env = Sokoban(**settings)
        player = SokobanPlayer(plan=1, heed=0, blunder=0, consistent=0)
        rng = random.Random(0)
        for seed in range(60):
            observation, _ = env.reset(seed=seed)
            episode, won = attempt(env, player, observation, rng, max_turns=7)
            assert won and len(episode.turns) == env.min_turns() <= 7
            assert episode.reward == 10


def test_min_turns_is_that_of_the_start_all_along():
    env = Sokoban(max_actions=2)
    env.reset(seed=5)
    length = len(solver_of(env._start.layout).shortest(env._start))
    assert env.min_turns() == (length + 1) // 2
    env.step(env.parse_action(env.player().act(env.restart()[0], random.Random(0))))
    assert env.min_turns() == (length + 1) // 2


# Answers.


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>up</action>", ("up",)),
        ("first up, then <action>down, left,right</action>", ("down", "left", "right")),
        ("<action> Up , DOWN </action>", ("up", "down")),
        ("<action>up up left</action>", ("up", "up", "left")),
        ("<action>up\nleft</action>", ("up", "left")),
        ("<action>up</action> no, <action>down</action>", ("down",)),
        ("<think><action>up</action></think><action>left</action>", ("left",)),
        ("up", None),
        ("<action></action>", None),
        ("<action>up, up, up, up</action>", None),  # more than a turn holds
        ("<action>update</action>", None),
        ("<action>upleft</action>", None),
        ("<action>up, still</action>", None),
        ("<action>go up</action>", None),
        ("<action>up,,left</action>", None),
        ("<action>up,</action>", None),
        ("<action>up; left</action>", None),
        ("<action>['up', 'left']</action>", None),
        ("<action>up or left</action>", None),
        ("<action>u</action>", None),
    ],
)
def test_parse_action(text, action):
    assert Sokoban().parse_action(text) == action


def test_a_turn_holds_as_many_moves_as_was_set():
    for most in (1, 2, 5):
        env = Sokoban(max_actions=most)
        for count in range(1, 8):
            action = env.parse_action(f"<action>{', '.join(['up'] * count)}</action>")
            assert action == (("up",) * count if count <= most else None)


def test_parse_action_never_raises_and_lets_only_moves_through():
    env, rng = Sokoban(), random.Random(0)
    pieces = ["<action>", "</action>", ",", " ", "\n", "\u2028", "\x00", "\ud800", "x", "<think>", "</think>", "[", "'"]
    pieces += [*DIRECTIONS, "UP", "Left", "\u0130", "st\u0131ll"]
    accepted = 0
    for _ in range(6000):
        inside = "".join(rng.choices(pieces, k=rng.randrange(7)))
        text = inside if rng.random() < 0.3 else f"<action>{inside}</action>"
        action = env.parse_action(text)
        accepted += action is not None
        assert action is None or (1 <= len(action) <= 3 and set(action) <= set(DIRECTIONS))
        assert action is None or "".join(action) in re.sub(r"[\s,]", "", text.lower())
    assert accepted > 100


def test_what_pages_print_reads_back():
    for wording in ("paper", "compact"):
        env = Sokoban(wording=wording)
        for action in (("up",), ("left", "down"), ("right", "right", "up")):
            assert env.parse_action(f"<action>{env.wording.show_action(action)}</action>") == action


@pytest.mark.parametrize("action", ["up", ("jump",), ("up", "Left")])
def test_a_step_that_is_no_action_is_refused(action):
    env = Sokoban()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="a tuple of up, down, left, right is expected"):
        env.step(action)


# Settings and texts.


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"size": 4}, "`size` is 4, but Sokoban takes 5 to 20"),
        ({"size": 21}, "`size` is 21"),
        ({"boxes": 0}, "`boxes` is 0, but Sokoban takes 1 to 4"),
        ({"boxes": 5}, "`boxes` is 5"),
        ({"max_actions": 0}, "`max_actions` is 0, but Sokoban takes 1 to 100"),
        ({"min_moves": 0}, "`min_moves` is 0 and `max_moves` 21"),
        ({"min_moves": 9, "max_moves": 8}, "`min_moves` is 9 and `max_moves` 8"),
        ({"reward_preset": "dense"}, '`reward_preset` is "dense", but Sokoban has sparse and shaped'),
        ({"wording": "long"}, '`wording` is "long", but Sokoban has paper and compact'),
    ],
)
def test_wrong_settings_are_refused_with_the_way_out(kwargs, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Sokoban(**kwargs)


def test_wordings_say_the_rules_or_next_to_nothing():
    paper, compact = Sokoban(max_actions=4), Sokoban(max_actions=4, wording="compact")
    for part in ("# is", "_ is", "O is", "X is", "√ is", "P is", "S is", "1 to 4 moves", "lost as soon as"):
        assert part in paper.describe()
    assert "lost as soon as" not in Sokoban(end_when_stuck=False).describe()
    assert "exactly one move" in Sokoban(max_actions=1).describe()
    assert "<action>" in paper.wording.play_request and "<remark>" in paper.wording.reflect_request
    assert compact.describe() == "" and len(compact.wording.play_request) < 20
    assert (paper.wording.show_action(("up", "left")), compact.wording.show_action(("up", "left"))) == (
        "up, left",
        "up left",
    )


def test_every_sign_of_a_room_is_in_the_legend():
    env, rng = Sokoban(), random.Random(0)
    signs = set()
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        episode, _ = attempt(env, env.player(), observation, rng)
        signs |= {sign for turn in episode.turns for sign in re.sub(r"(?m)^\d+:", "", turn.observation).split()}
    assert signs == set(re.findall(r"(?m)^- (\S) is", env.describe()))


def test_the_compact_language_is_whole_words_of_the_tiny_model(tiny_tokenizer):
    env, rng = Sokoban(wording="compact"), random.Random(0)
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        player = SokobanPlayer(plan=0.3, between=" ")
        episode, _ = attempt(env, player, observation, rng)
        texts = [observation, env.wording.play_request, env.wording.reflect_request, player.reflect(episode, rng)]
        texts += [turn.shown_action for turn in episode.turns]
        counts = [len(tiny_tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
        # 4 rows of a number and 4 signs; a short question; a word and three moves, or two words, in tags; three moves in tags.
        assert counts[0] == 20 and counts[1] == 2 and counts[2] <= 5 and counts[3] in (4, 5, 6) and max(counts[4:]) <= 5


# The scripted player.


def test_it_plays_better_the_more_it_plans():
    rates = [pass_rates(SokobanPlayer(plan, heed=0, blunder=0), 80, attempts=1)[0] for plan in (0, 0.5, 1)]
    assert rates[0] < 0.3 < rates[1] < 0.8 < rates[2] == 1.0


def test_the_default_player_is_good_but_not_perfect():
    assert 0.6 < pass_rates(Sokoban().player(), 150, attempts=1)[0] < 0.9


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize(
    ("turns", "remark"),
    [
        ([("down", "left", "up")], "avoid down, left, up"),  # to the wall above
        ([("up",), ("up",), ("down", "down", "left"), ("up",)], "avoid up"),
        ([("left",)], "be faster"),  # along the wall of the target
        ([("up",), ("down",)], "be faster"),
    ],
)
def test_its_remark_names_the_turn_that_trapped_a_box(wording, ends, turns, remark):
    room = position("    ", " $@ ", "    ", ".   ")
    env = playing(room, wording=wording, end_when_stuck=ends)
    observation, _ = env.restart()
    episode = Episode(observation, final_observation=observation)
    for action in turns:
        seen, result = episode.final_observation, env.step(action)
        episode.turns.append(Turn(Phase.PLAY, seen, (), Response((), ""), action, "", 0.0))
        episode.final_observation = result.observation
    assert SokobanPlayer().reflect(episode, random.Random(0)) == f"<remark>{remark}</remark>"


def test_remarks_are_read_back_and_heeded():
    assert moves_to_avoid("up was fine, avoid left, down") == ("left", "down")
    assert moves_to_avoid("be faster, up") == moves_to_avoid("avoid upstairs") == ()
    rng = random.Random(0)
    for show in (paper_text, compact_text):
        room = position("  $@", "   .", "    ")  # only `left` pushes
        for remarks, heed, pushed in (([], 1, True), (["avoid left"], 1, False), (["avoid left"], 0, True)):
            player = SokobanPlayer(plan=0, heed=heed, blunder=0, max_actions=1)
            answers = set()
            for _ in range(60):
                player.start_episode(remarks, rng)
                answers.add(player.act(show(room), rng))
            assert ("<action>left</action>" in answers) is pushed
            assert "<action>down</action>" in answers


def test_heeding_remarks_pays():
    deaf, heeding = (pass_rates(SokobanPlayer(0.4, heed=heed, blunder=0, hasty=1), 120)[1] for heed in (0, 1))
    assert heeding > deaf


def test_a_consistent_planner_ignores_its_generator():
    env = Sokoban()
    player = SokobanPlayer(plan=1, blunder=0, consistent=1)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        first = attempt(env, player, observation, random.Random(1))[0].turns
        env.restart()
        assert [turn.action for turn in first] == [
            turn.action for turn in attempt(env, player, observation, random.Random(2))[0].turns
        ]


@pytest.mark.parametrize("text", ["", "nothing to see", "0: # # #", "Row 1: P", "0: X P O X"])
def test_it_answers_any_text(text):
    env, player, rng = Sokoban(), SokobanPlayer(), random.Random(0)
    for _ in range(50):
        player.start_episode(["avoid everything", "avoid up, up, up, up"], rng)
        assert env.parse_action(player.act(text, rng)) is not None
    assert player.reflect(Episode(text, final_observation=text), rng) == "<remark>be faster</remark>"
