"""Iterated matrix games: OpenSpiel move for move, equilibria and best responses in closed form, habits, texts."""

import itertools
import random
import re

import pytest

from metarl_agents.environments.matrix_game import MatrixGame
from metarl_agents.environments.matrix_game.equilibrium import (
    best_response,
    equilibrium,
    equilibrium_value,
    mix_value,
)
from metarl_agents.environments.matrix_game.game import PRESETS, Play, rules_of
from metarl_agents.environments.matrix_game.opponents import default_pool, find_opponent, makers
from metarl_agents.environments.matrix_game.player import MatrixPlayer
from metarl_agents.envs import check_environment
from metarl_agents.envs.games import Decision, Opponent
from metarl_agents.envs.games.exact import best_response as walked_best_response
from metarl_agents.envs.parsing import last_tag
from metarl_agents.errors import ConfigError
from metarl_agents.types import Episode

RPS, PD = rules_of("rock_paper_scissors", 5), rules_of("prisoners_dilemma", 5)
OWN = {"actions": ["up", "down"], "payoffs": [[2, 0], [1, 3]], "other_payoffs": [[1, 0], [0, 2]]}


@pytest.fixture(scope="module")
def pyspiel():
    return pytest.importorskip("pyspiel", reason='OpenSpiel is not installed: pip install -e ".[openspiel]"')


def habits(rules):
    """Every opponent that can be evaluated exactly."""
    return [find_opponent(name, rules) for name in makers(rules) if name != "human"]


# Rules.


@pytest.mark.parametrize("game", [*PRESETS, "own"])
def test_every_round_is_as_in_openspiel(pyspiel, game):
    rules, rng = rules_of(OWN if game == "own" else game, 4), random.Random(0)
    size = range(len(rules.actions))
    tables = [[[rules.table[a][b][seat] for b in size] for a in size] for seat in (0, 1)]
    names = list(rules.actions)
    stage = pyspiel.create_matrix_game("ours", "Ours", names, names, *tables)
    repeated = pyspiel.create_repeated_game(stage, {"num_repetitions": 4})
    for _ in range(40):
        state, theirs = Play(), repeated.new_initial_state()
        while not theirs.is_terminal():
            assert theirs.is_simultaneous_node() and rules.current_player(state) == 0
            assert [theirs.action_to_string(0, a) for a in theirs.legal_actions(0)] == list(rules.legal_actions(state))
            chosen = [rng.choice(size), rng.choice(size)]
            before = rules.payoffs(state)
            for action in chosen:
                state = rules.play(state, names[action])
            theirs.apply_actions(chosen)
            paid = [new - old for new, old in zip(rules.payoffs(state), before, strict=True)]
            assert paid == pytest.approx(theirs.rewards())
            assert rules.payoffs(state) == pytest.approx(theirs.returns())
        assert rules.current_player(state) is None and rules.legal_actions(state) == ()


def test_a_pending_choice_is_seen_by_nobody():
    for action in RPS.actions:
        state = Play((("rock", "paper"),), action)
        assert RPS.information(state, 0) == (("rock", "paper"),) and RPS.information(state, 1) == (("paper", "rock"),)
        assert RPS.payoffs(state) == (-1.0, 1.0)
    env = MatrixGame()
    assert len({env.show(Play((), action), 1) for action in RPS.actions}) == 1


def test_presets_are_what_their_names_say():
    assert RPS.zero_sum and RPS.symmetric and not PD.zero_sum and PD.symmetric
    pennies = rules_of("matching_pennies", 1)
    assert pennies.zero_sum and not pennies.symmetric
    temptation, reward, punishment, sucker = (
        PD.earns(0, *pair)
        for pair in (("defect", "cooperate"), ("cooperate",) * 2, ("defect",) * 2, ("cooperate", "defect"))
    )
    assert temptation > reward > punishment > sucker and 2 * reward > temptation + sucker


@pytest.mark.parametrize(
    ("game", "rounds", "message"),
    [
        ("chess", 5, '`game` is "chess", but the matrix game knows rock_paper_scissors'),
        ("chicken", 0, "`rounds` is 0"),
        ("chicken", 101, "`rounds` is 101"),
        ("chicken", 2.0, "`rounds` is 2.0"),
        ({"actions": ["a", "b"]}, 5, "a mapping with actions, payoffs, other_payoffs"),
        ({**OWN, "colour": 1}, 5, "a mapping with"),
        (None, 5, "a mapping with"),
        ({**OWN, "actions": ["up"]}, 5, "2 to 8 different words"),
        ({**OWN, "actions": "up"}, 5, "2 to 8 different words"),
        ({**OWN, "actions": ["up", "up"]}, 5, "2 to 8 different words"),
        ({**OWN, "actions": ["up", "Go on"]}, 5, "2 to 8 different words"),
        ({**OWN, "payoffs": [[1, 2]]}, 5, "`payoffs` is"),
        ({**OWN, "payoffs": [[1, 2], [3, "x"]]}, 5, "2 rows of 2 numbers"),
        ({**OWN, "other_payoffs": [[1, 2], [3, float("nan")]]}, 5, "`other_payoffs` is"),
    ],
)
def test_wrong_games_are_refused_with_the_way_out(game, rounds, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        rules_of(game, rounds)


# Exact play.


def test_equilibria_of_one_round_in_closed_form():
    third = pytest.approx({"rock": 1 / 3, "paper": 1 / 3, "scissors": 1 / 3})
    assert equilibrium(RPS) == (third, third)
    assert equilibrium(PD) == ({"defect": 1.0}, {"defect": 1.0})
    assert equilibrium(rules_of("stag_hunt", 1)) == ({"stag": 1.0}, {"stag": 1.0})
    half = pytest.approx({"swerve": 0.5, "straight": 0.5})
    assert equilibrium(rules_of("chicken", 1)) == (half, half)
    even = pytest.approx({"heads": 0.5, "tails": 0.5})
    assert equilibrium(rules_of("matching_pennies", 1)) == (even, even)
    assert [equilibrium_value(rules, 0) for rules in (RPS, PD)] == [0.0, 5.0]
    # Three actions, the last of which is never worth taking.
    dull = rules_of({"actions": ["a", "b", "c"], "payoffs": [[0, 2, 1], [1, 0, 1], [-1, -1, 0]]}, 1)
    assert equilibrium(dull)[0] == pytest.approx({"a": 2 / 3, "b": 1 / 3})


def test_no_action_gains_against_an_equilibrium():
    rng = random.Random(0)
    for _ in range(60):
        size = rng.choice([2, 3, 4])
        tables = [[[rng.randint(-9, 9) for _ in range(size)] for _ in range(size)] for _ in (0, 1)]
        game = {"actions": list("abcd"[:size]), "payoffs": tables[0], "other_payoffs": tables[1]}
        rules = rules_of(game, 1)
        try:
            mixes = equilibrium(rules)
        except ConfigError:
            continue  # a degenerate table; the next test sees that this is rare
        for seat in (0, 1):
            other = mixes[1 - seat]
            value = equilibrium_value(rules, seat)
            for own in rules.actions:
                assert sum(share * rules.earns(seat, own, b) for b, share in other.items()) <= value + 1e-9


def test_an_equilibrium_is_found_in_nearly_every_table():
    rng, found = random.Random(1), 0
    for _ in range(60):
        rows = [[[rng.uniform(-1, 1) for _ in range(3)] for _ in range(3)] for _ in (0, 1)]
        rules = rules_of({"actions": ["a", "b", "c"], "payoffs": rows[0], "other_payoffs": rows[1]}, 1)
        found += len(equilibrium(rules)) == 2
    assert found == 60


@pytest.mark.parametrize(
    ("rules", "name", "value"),
    [
        (RPS, "always_rock", 5.0),
        (RPS, "cycle", 5.0),
        (RPS, "tit_for_tat", 5.0),
        (RPS, "beat_last", 5.0),
        (RPS, "beat_frequent", 5.0),
        (RPS, "mostly_paper", 5 * (0.7 - 0.15)),
        (RPS, "random", 0.0),
        (RPS, "equilibrium", 0.0),
        (PD, "always_cooperate", 25.0),
        (PD, "always_defect", 5.0),
        (PD, "tit_for_tat", 4 * 3 + 5.0),  # defect in the last round only
        (PD, "grim", 4 * 3 + 5.0),
        (PD, "win_stay_lose_shift", 3 * 5 + 2 * 1.0),  # it goes back to cooperating after each punished round
        (PD, "cycle", 3 * 5 + 2 * 1.0),
    ],
)
def test_best_responses_in_closed_form(rules, name, value):
    for seat in (0, 1):
        assert best_response(rules, find_opponent(name, rules), seat).value == pytest.approx(value)


@pytest.mark.parametrize("game", [*PRESETS, "own"])
def test_best_responses_equal_those_found_by_walking_the_whole_game(game):
    rules = rules_of(OWN if game == "own" else game, 3)
    for habit in habits(rules):
        for seat in (0, 1):
            walked = walked_best_response(rules, habit.probabilities, seat)
            assert best_response(rules, habit, seat).value == pytest.approx(walked.value), habit.name


def test_exploiting_beats_equilibrium_play_where_there_is_a_habit_to_exploit():
    for name in default_pool(RPS):
        habit = find_opponent(name, RPS)
        assert mix_value(RPS, equilibrium(RPS)[0], habit, 0) == pytest.approx(0)
        assert best_response(RPS, habit, 0).value > 2
    gains = {}
    for name in default_pool(PD):
        habit = find_opponent(name, PD)
        gains[name] = best_response(PD, habit, 0).value - mix_value(PD, equilibrium(PD)[0], habit, 0)
    assert gains["tit_for_tat"] == gains["grim"] == pytest.approx(8)
    assert min(gains.values()) >= 0


def test_the_best_response_earns_what_it_promises_when_it_is_played():
    for rules in (RPS, PD):
        for habit in habits(rules):
            answer, rng, total = best_response(rules, habit, 0), random.Random(0), 0.0
            repeats = 1 if all(len(habit.mix(memory, 1)) == 1 for _, memory in answer.choices) else 250
            for _ in range(repeats):
                state, memory = Play(), habit.start(1)
                for number in range(rules.rounds):
                    own = answer.choices[number, memory]
                    decision = Decision(1, rules.information(state, 1), rules.actions)
                    other = habit.act(decision, rng)
                    state = rules.play(rules.play(state, own), other)
                    memory = habit.advance(memory, other, own, 1)
                total += rules.payoffs(state)[0]
            assert total / repeats == pytest.approx(answer.value, abs=1e-9 if repeats == 1 else 0.9), habit.name


# Habits.


@pytest.mark.parametrize(
    ("name", "rules", "agent", "expected"),
    [
        ("tit_for_tat", PD, "DCDDC", "CDCDD"),
        ("grim", PD, "CDCCC", "CCDDD"),
        ("cycle", PD, "CCCCC", "CDCDC"),
        ("win_stay_lose_shift", PD, "DDCCC", "CDCCC"),
        ("beat_last", RPS, "RSPPR", "RPRSS"),
        ("beat_frequent", RPS, "PPSSS", "RSSSS"),
        ("win_stay_lose_shift", RPS, "PRSRP", "RPPSR"),
        ("cycle", RPS, "RRRRR", "RPSRP"),
    ],
)
def test_habits_do_what_they_are_called(name, rules, agent, expected):
    words = {action[0].upper(): action for action in rules.actions}
    env = MatrixGame(game=next(g for g in PRESETS if PRESETS[g][0] == rules.actions), opponent=name, seat="first")
    env.reset(seed=0)
    for letter in agent:
        env.step(words[letter])
    assert "".join(other[0].upper() for _, other in env.game.information(env._state, 0)) == expected


def test_forgiveness_and_bias_come_in_their_shares():
    generous = find_opponent("generous_tit_for_tat", PD)
    assert generous.mix("defect", 0) == pytest.approx({"cooperate": 1 / 3, "defect": 2 / 3})
    assert generous.mix("cooperate", 0) == {"cooperate": 1.0}
    assert find_opponent("mostly_rock", RPS).mix(None, 0) == pytest.approx(
        {"rock": 0.7, "paper": 0.15, "scissors": 0.15}
    )


def test_every_habit_gives_probabilities_after_any_history():
    for rules in (RPS, PD, rules_of(OWN, 5)):
        for habit, length in itertools.product(habits(rules), range(4)):
            for history in itertools.product(itertools.product(rules.actions, repeat=2), repeat=length):
                mix = habit.probabilities(Decision(0, history, rules.actions))
                assert set(mix) <= set(rules.actions) and sum(mix.values()) == pytest.approx(1)
            if length == 2 and len(rules.actions) == 3:
                break


# The environment.


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("game", [*PRESETS, OWN], ids=str)
def test_it_keeps_the_contract(wording, game):
    report = check_environment(lambda: MatrixGame(game=game, wording=wording, rounds=4), seeds=range(8))
    assert report.warnings == () and report.episodes_ended == 8


@pytest.mark.parametrize("game", [*PRESETS, OWN], ids=str)
def test_rewards_add_up_to_the_points_in_units_of_the_most_there_can_be(game):
    env, rng = MatrixGame(game=game, opponents=["random", "tit_for_tat"]), random.Random(0)
    for seed in range(20):
        _, info = env.reset(seed=seed)
        total = 0.0
        while info["admissible_actions"]:
            _, reward, _, _, info = env.step(rng.choice(info["admissible_actions"]))
            total += reward
        assert total == pytest.approx(10 * info["payoff"] / (5 * env.rules.largest)) and abs(total) <= 10 + 1e-9


def outcome(env, actions, seed=0):
    env.reset(seed=seed)
    for action in actions:
        result = env.step(action)
    return result.info["success"], result.info["draw"], result.info["payoff"]


def test_a_zero_sum_game_is_won_above_and_drawn_at_zero():
    env = MatrixGame(opponent="always_rock", rounds=2)
    assert outcome(env, ["paper", "paper"]) == (True, False, 2.0)
    assert outcome(env, ["paper", "scissors"]) == (False, True, 0.0)
    assert outcome(env, ["rock", "scissors"]) == (False, False, -1.0)


def test_another_game_is_won_halfway_between_equilibrium_play_and_the_best_response():
    env = MatrixGame(game="prisoners_dilemma", opponent="tit_for_tat")
    (opponent,) = env.seating.opponents
    assert env.bar(opponent, 0) == pytest.approx((9 + 17) / 2)
    assert outcome(env, ["defect"] * 5) == (False, False, 9.0)
    assert outcome(env, ["cooperate"] * 5) == (True, False, 15.0)
    assert outcome(env, ["cooperate"] * 4 + ["defect"]) == (True, False, 17.0)
    hard = MatrixGame(game="prisoners_dilemma", opponent="always_defect")
    assert outcome(hard, ["defect"] * 5)[0] and not outcome(hard, ["defect"] * 4 + ["cooperate"])[0]


def test_against_who_is_no_habit_the_bar_is_equilibrium_play():
    class Stranger(Opponent):
        name = "stranger"

        def act(self, decision, rng):
            return "cooperate"

    env = MatrixGame(game="prisoners_dilemma", opponent=Stranger())
    assert env.bar(env.seating.opponents[0], 1) == 5.0 and outcome(env, ["cooperate"] * 5)[0]


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>Rock</action>", "rock"),
        ("<action> paper </action>", "paper"),
        ("<action>rock, paper</action>", None),
        ("rock", None),
    ],
)
def test_parse_action(text, action):
    assert MatrixGame().parse_action(text) == action


def test_the_rules_print_the_table_of_each_seat_that_differs():
    same, differ = MatrixGame(game="prisoners_dilemma").describe(), MatrixGame(game="matching_pennies").describe()
    assert "- You choose defect and the other player cooperate: you get 5, the other player 0." in same
    assert "second player" not in same and "If you are the second player:" in differ
    assert differ.count("- You choose heads and the other player heads") == 2
    assert "1 round against" in MatrixGame(rounds=1).describe()


def test_an_observation_tells_all_rounds_and_where_it_matters_the_seat():
    env = MatrixGame(game="matching_pennies", opponent="always_heads", rounds=2, seat="second")
    assert env.reset(seed=0)[0].startswith("You are the second player. Round 1 of 2.")
    assert "heads against heads (-1). Your points: -1." in env.step("heads").observation
    assert env.step("tails").observation.endswith("heads against heads (-1), tails against heads (+1). Your points: 0.")
    compact = MatrixGame(opponent="always_rock", rounds=2, wording="compact")
    assert compact.reset(seed=0)[0] == "start" and compact.step("rock").observation == "rock against rock"
    assert compact.step("paper").observation == "rock against rock, paper against rock over 1"


# The scripted player.


@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_the_player_names_the_best_reply_to_what_it_saw(wording):
    env, rng = MatrixGame(opponent="always_paper", wording=wording), random.Random(0)
    observation, info = env.reset(seed=0)
    player = env.player()
    player.start_episode([], rng)
    while info["admissible_actions"]:
        observation, *_, info = env.step(env.parse_action(player.act(observation, rng)))
    assert last_tag(player.reflect(Episode("", [], observation), rng), "remark") == "choose scissors"
    sharp = MatrixPlayer(env.rules, skill=1, heed=0)
    sharp.start_episode([], rng)
    assert sharp.act(observation, rng) == "<action>scissors</action>"


def test_the_player_knows_its_seat_where_the_seats_differ():
    for wording in ("paper", "compact"):
        for seat, reply in (("first", "heads"), ("second", "tails")):
            env = MatrixGame(game="matching_pennies", opponent="always_heads", seat=seat, wording=wording)
            env.reset(seed=0)
            player = MatrixPlayer(env.rules, skill=1, heed=0)
            player.start_episode([], random.Random(0))
            assert player.act(env.step("tails").observation, random.Random(0)) == f"<action>{reply}</action>"


def test_heeding_wins_more_games():
    def share_won(heed):
        env, rng, won = MatrixGame(opponents=["always_rock", "always_paper", "mostly_scissors"]), random.Random(1), 0
        player = MatrixPlayer(env.rules, skill=0, heed=heed)
        for seed in range(60):
            remarks = []
            for _ in range(2):
                observation, info = env.reset(seed=seed)
                player.start_episode(remarks, rng)
                while info["admissible_actions"]:
                    observation, *_, info = env.step(env.parse_action(player.act(observation, rng)))
                remarks.append(last_tag(player.reflect(Episode("", [], observation), rng), "remark"))
            won += info["success"]
        return won / 60

    assert share_won(1) > share_won(0) + 0.3
