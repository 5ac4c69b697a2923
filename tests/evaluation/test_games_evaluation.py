"""Laws of the exam in games: payoffs by episode, floor and ceiling, the exploited share, what is printed and kept."""

import json
import random
from dataclasses import replace

import pytest

from metarl_agents.config import TrialConfig
from metarl_agents.envs.factory import environment_factory
from metarl_agents.envs.games import HumanOpponent, PolicyOpponent, uniform
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.evaluation.game_values import Exact, exact_values, facing, least_payoff, role_values, safe_player
from metarl_agents.evaluation.games import (
    SMALLEST_GAP,
    exam_settings,
    examine_games,
    format_games,
    game_row,
    games_record,
    summarise,
)
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.types import Response

KUHN = TrialConfig(env="kuhn", wording="compact", max_turns=4, num_episodes=3, stop_on_success=False)
ROCK = replace(KUHN, env="matrix_game", max_turns=5, env_kwargs={"rounds": 2, "opponent": "always_rock"})
BOARD = replace(KUHN, env="tictactoe", max_turns=6, env_kwargs={"opponent": "prefers_edges"})


def played(config, say, seed=0, ids=()):
    """Play a trial; `say` is told (legal actions, episode) and answers."""
    runner = TrialRunner(environment_factory(config), seed, 0, config, max_new_tokens=10)
    while not runner.done:
        text = "<remark>go on</remark>"
        if not runner.reflecting:
            text = say(runner.admissible, len(runner.trial.episodes) - 1)
        runner.receive((), Response(tuple(ids), text))
    assert runner.trial.error is None
    return runner.trial


def always(action):
    return lambda legal, episode: f"<action>{action}</action>"


def row(opponent="weak", seat=0, payoffs=(0.0,), endings=("drawn",), seed=0):
    return {"seed": seed, "opponent": opponent, "seat": seat, "payoffs": list(payoffs), "endings": list(endings)}


def result_of(config, trials):
    facts = {"label": "policy", "env": config.env, "env_kwargs": config.env_kwargs, "num_episodes": config.num_episodes}
    facts |= {"max_turns": config.max_turns, "memory": "reflection", "sampling": "greedy", "split": "test"}
    return EvaluationResult.from_trials(
        trials, meta=games_record(environment_factory(config), trials, config, 10), **facts
    )


# Rows.


def test_a_row_keeps_opponent_seat_and_the_payoff_of_each_episode():
    words = ("paper", "rock", "scissors")
    trial = played(ROCK, lambda legal, episode: f"<action>{words[episode]}</action>", seed=7)
    assert game_row(trial, ROCK, scale=10 / 2) == {
        "seed": 7,
        "opponent": "always_rock",
        "seat": 1,
        "payoffs": [2.0, 0.0, -2.0],
        "endings": ["won", "drawn", "lost"],
    }


@pytest.mark.parametrize("scope", ["return", "row"])
def test_penalties_for_invalid_and_for_long_answers_leave_payoffs_as_they_are(scope):
    asked = []

    def fumbles(legal, episode):
        asked.append(legal)
        return "what?" if len(asked) % 3 == 0 else "<action>paper</action>"

    config = replace(ROCK, invalid_action_penalty=2.0, penalty_scope=scope, length_penalty=3.0)
    trial = played(config, fumbles, ids=range(9))
    assert any(turn.invalid for _, _, turn in trial.rows()) and trial.episodes[0].reward != 10.0
    assert game_row(trial, config, 5.0, 10)["payoffs"] == [2.0, 2.0, 2.0]


def test_a_play_out_of_turns_keeps_what_it_had_earned_and_is_called_unfinished():
    begun = set()

    def stalls(legal, episode):
        fresh = episode not in begun
        begun.add(episode)
        return "<action>scissors</action>" if fresh else "hm"

    found = game_row(played(ROCK, stalls), ROCK, 5.0)
    assert (found["payoffs"], found["endings"]) == ([-1.0] * 3, ["unfinished"] * 3)


def test_only_games_leave_a_record():
    doors = replace(KUHN, env="two_doors", env_kwargs={})
    assert games_record(environment_factory(doors), [played(doors, always("A"))], doors, 10) == {}


# Settings.


def test_a_game_is_examined_in_all_its_episodes_and_against_whom_one_likes():
    config = replace(KUHN, stop_on_success=True, env_kwargs={"seat": "first", "opponent": "random"})
    examined = exam_settings(config, ["aggressive", "equilibrium"])
    assert examined.stop_on_success is False and exam_settings(config).env_kwargs == config.env_kwargs
    assert examined.env_kwargs == {"seat": "first", "opponents": ["aggressive", "equilibrium"]}
    other = replace(config, env="two_doors", env_kwargs={})
    assert exam_settings(other) is other
    with pytest.raises(ConfigError, match="two_doors is no game"):
        exam_settings(other, ["aggressive"])
    with pytest.raises(ConfigError, match="agressive"):
        exam_settings(config, ["agressive"])


# Floor and ceiling.


def test_with_a_replayed_deal_the_ceiling_knows_the_deal_and_with_new_deals_it_does_not():
    roles = [("conservative", 0), ("aggressive", 1)]
    replayed = role_values(KUHN, roles)
    redrawn = role_values(replace(KUHN, env_kwargs={"redraw_deal": True}), roles)
    # Who bets with K alone gives up J and Q to a bet: of six deals four win a chip, and two lose one to the K.
    assert replayed["conservative", 0].ceiling == pytest.approx(1 / 3)
    assert redrawn["conservative", 0].ceiling == pytest.approx(1 / 6)
    for role in roles:
        assert replayed[role].floor == redrawn[role].floor < redrawn[role].ceiling < replayed[role].ceiling


def test_equilibrium_play_never_earns_less_than_its_value_and_nothing_is_to_be_had_from_it():
    names = ["random", "conservative", "aggressive", "intermediate", "equilibrium"]
    config = replace(KUHN, env_kwargs={"redraw_deal": True, "opponents": names})
    values = role_values(config, [(name, seat) for name in names for seat in (0, 1)])
    for (name, seat), value in values.items():
        worth = (-1 / 18, 1 / 18)[seat]
        assert value.floor > worth - 1e-9
        assert value.gap > SMALLEST_GAP or name in ("equilibrium", "intermediate")
        if name == "equilibrium":
            assert value == pytest.approx((worth, worth))


def test_every_habit_of_rock_paper_scissors_is_framed_by_nothing_and_a_win_in_every_round():
    config = replace(ROCK, env_kwargs={"rounds": 3})
    roles = [(opponent.name, seat) for opponent in environment_factory(config)().seating.opponents for seat in (0, 1)]
    values = role_values(config, roles)
    assert set(values) == set(roles) and set(values.values()) == {Exact(0.0, 3.0)}


def test_perfect_play_leaves_nothing_of_a_preference_to_exploit():
    (value,) = role_values(BOARD, [("prefers_edges", 0)]).values()
    assert value == Exact(1.0, 1.0)


def test_a_search_is_framed_by_the_average_of_several_searches():
    config = replace(BOARD, env_kwargs={"opponent": "mcts_2"})
    (value,) = role_values(config, [("mcts_2", 1)]).values()
    assert 0 < value.floor < value.ceiling <= 1


def test_whoever_does_not_tell_its_probabilities_has_no_frame():
    env = environment_factory(KUHN)()
    assert exact_values(env, HumanOpponent(), 0, safe_player(KUHN)) is None
    assert role_values(replace(KUHN, env="two_doors", env_kwargs={}), [("somebody", 0)]) == {}


def test_a_game_too_large_to_be_walked_has_no_frame(monkeypatch):
    monkeypatch.setattr("metarl_agents.evaluation.game_values._LARGEST_WALK", 50)
    env = environment_factory(BOARD)()
    assert (
        exact_values(env, PolicyOpponent("any", lambda decision: uniform(decision.legal)), 0, safe_player(BOARD))
        is None
    )
    assert least_payoff(env.game, 0) is None


def test_the_least_payoff_is_the_worst_end_of_a_play():
    for config, least in ((KUHN, -2), (ROCK, -2), (BOARD, -1)):
        assert [least_payoff(environment_factory(config)().game, seat) for seat in (0, 1)] == [least, least]


# Statistics.


def test_the_exploited_share_is_0_for_the_floor_and_1_for_the_ceiling():
    values = {("weak", 0): Exact(-0.5, 1.5), ("weak", 1): Exact(0.0, 0.5)}
    at_floor = [row(payoffs=[-0.5, 1.5]), row(seat=1, payoffs=[0.0, 0.5])]
    both = [{**one, "endings": ["drawn", "won"]} for one in at_floor]
    first, last = summarise(both, values)[0]["episodes"]
    assert (first["exploited"].mean, last["exploited"].mean) == pytest.approx((0, 1))


def test_the_exploited_share_weighs_roles_by_what_there_is_to_exploit():
    values = {("weak", 0): Exact(0.0, 3.0), ("weak", 1): Exact(0.0, 1.0)}
    (episode,) = summarise([row(payoffs=[3.0]), row(seat=1, payoffs=[0.0])], values)[0]["episodes"]
    assert episode["exploited"].mean == pytest.approx(0.75)


def test_where_nothing_is_to_exploit_the_payoff_stands_alone():
    values = {("weak", 0): Exact(0.0, SMALLEST_GAP), ("open", 0): Exact(0.0, 1.0)}
    everything, _, strong, weak = summarise([row(payoffs=[5.0]), row("open", payoffs=[0.5])], values)
    assert weak["opponent"] == "weak" and weak["episodes"][0]["exploited"] is None
    assert strong["episodes"][0]["exploited"].mean == everything["episodes"][0]["exploited"].mean == 0.5
    assert everything["episodes"][0]["payoff"].mean == 2.75


def test_draws_are_counted_apart_from_losses_and_seats_and_opponents_apart_from_each_other():
    rows = [row(seat=seat, endings=[ending]) for seat, ending in enumerate(["won", "lost"])]
    rows += [row("other", 1, endings=[ending]) for ending in ("drawn", "unfinished")]
    found = {(part["opponent"], part["seat"]): part["episodes"][0] for part in summarise(rows, {})}
    shares = {key: [value[name] for name in ("won", "drawn", "lost", "unfinished")] for key, value in found.items()}
    assert shares[None, None] == [0.25] * 4 and shares[None, 0] == [1, 0, 0, 0]
    assert shares["other", 1] == [0, 0.5, 0, 0.5] and ("other", 0) not in shares


def test_stalling_counts_the_least_so_that_it_never_beats_losing():
    rows = [row(payoffs=[0.0], endings=["unfinished"]), row(payoffs=[-1.0], endings=["lost"])]
    payoffs = [summarise([one], {}, {0: -2.0})[0]["episodes"][0]["payoff"].mean for one in rows]
    assert payoffs == [-2.0, -1.0]
    assert summarise(rows[:1], {}, {0: None})[0]["episodes"][0]["payoff"].mean == 0.0


def test_an_episode_is_averaged_over_the_trials_that_reached_it():
    rows = [row(payoffs=[1.0, 3.0], endings=["won", "won"]), row(payoffs=[0.0], endings=["unfinished"])]
    first, second = summarise(rows, {})[0]["episodes"]
    assert (first["n"], first["won"], second["n"], second["won"], second["payoff"].mean) == (2, 0.5, 1, 1.0, 3.0)


def test_intervals_hold_the_mean_and_shrink_with_the_number_of_tasks():
    rng = random.Random(0)
    rows = [row(payoffs=[rng.choice([-1.0, 1.0])]) for _ in range(400)]
    few, many = (summarise(rows[:count], {})[0]["episodes"][0]["payoff"] for count in (25, 400))
    assert few.low <= few.mean <= few.high and many.low <= many.mean <= many.high
    assert many.high - many.low < 0.4 * (few.high - few.low)


# The whole way.


def test_a_player_who_learns_the_habit_goes_from_floor_to_ceiling_in_the_table_and_in_the_file(tmp_path):
    words = ("rock", "scissors", "paper")
    trials = [played(ROCK, lambda legal, n: f"<action>{words[n]}</action>", seed) for seed in range(4)]
    result = result_of(ROCK, trials)
    games = examine_games(result, ROCK)
    shares = [found["exploited"][0] for found in games["summary"][0]["episodes"]]
    assert shares == pytest.approx([0, -1, 1])
    result.to_json(tmp_path / "result.json")
    kept = EvaluationResult.from_json(tmp_path / "result.json").meta["games"]
    assert [one["payoffs"] for one in kept["rows"]] == [[0, -2, 2]] * 4
    assert {(one["opponent"], one["seat"]) for one in kept["rows"]} == {("always_rock", 0), ("always_rock", 1)}
    assert format_games(kept) == format_games(games), "what is read from a file prints the same"
    text = format_games(kept)
    assert "episode 3  4" in text and "always_rock, first" in text and "all, second" in text
    assert "+2.000 [+2.000, +2.000]" in text and "100.0 [100.0, 100.0]" in text and "least that" not in text
    assert format_games(kept, markdown=True).startswith("| all games")
    json.dumps(kept)


def test_ten_episodes_are_shown_when_ten_are_played():
    config = replace(KUHN, num_episodes=10, env_kwargs={"opponent": "aggressive"})
    games = examine_games(result_of(config, [played(config, always("bet"), seed) for seed in range(3)]), config)
    text = format_games(games)
    assert all(f"episode {number} " in text for number in range(1, 11)) and "won % ep. 10" in text


def test_unfinished_plays_are_said_to_be_so():
    result = result_of(KUHN, [played(KUHN, lambda legal, n: "no idea", seed) for seed in range(3)])
    text = format_games(examine_games(result, KUHN))
    assert "it counts the least" in text and "-2.000" in text


def test_results_of_other_environments_have_no_games_block():
    doors = replace(KUHN, env="two_doors", env_kwargs={})
    assert examine_games(result_of(doors, [played(doors, always("A"))]), doors) is None


def test_new_opponents_replace_old_ones_and_their_weights():
    assert facing({"weights": [1], "opponents": ["a"], "rounds": 3}, ["b"]) == {"rounds": 3, "opponents": ["b"]}
