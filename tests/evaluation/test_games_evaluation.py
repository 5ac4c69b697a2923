"""Laws of the exam in games: payoffs by episode, floor and ceiling, the exploited share, what is printed and kept."""

import json
import random
from dataclasses import replace
from functools import partial

import pytest
from games_settings import BOARD, KUHN, ROCK

from metarl_agents.environments.matrix_game import MatrixGame
from metarl_agents.envs.factory import environment_factory
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult, format_table
from metarl_agents.evaluation.game_values import Exact, facing
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


def result_of(config, trials, make_env=None):
    facts = {"label": "policy", "env": config.env, "env_kwargs": config.env_kwargs, "num_episodes": config.num_episodes}
    facts |= {"max_turns": config.max_turns, "memory": "reflection", "sampling": "greedy", "split": "test"}
    return EvaluationResult.from_trials(
        trials, meta=games_record(make_env or environment_factory(config), trials, config, 10), **facts
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


class Fragile(MatrixGame):
    """Cannot be dealt in tasks of odd seeds."""

    def deal(self, *, seed=None):
        if (self.seed if seed is None else seed) % 2:
            raise OSError("the table fell over")
        super().deal(seed=seed)


FRAGILE = partial(Fragile, rounds=2, opponent="always_rock", wording="compact")


def begun(make_env, config, seed, say):
    runner = TrialRunner(make_env, seed, 0, config)
    while not runner.done:
        runner.receive((), Response((), "<remark>go on</remark>" if runner.reflecting else say))
    return runner.trial


def test_games_that_crash_before_they_begin_are_failures_and_stay_in_the_denominator():
    trials = [begun(FRAGILE, ROCK, seed, "<action>paper</action>") for seed in range(8)]
    assert [trial.crashed for trial in trials] == [False, True] * 4 and trials[1].opponent is None
    result = result_of(ROCK, trials, FRAGILE)
    assert result.meta["games"]["rows"][5] == {
        "seed": 5,
        "opponent": "always_rock",
        "seat": FRAGILE().seating.of(5)[1],
        "payoffs": [0.0] * 3,
        "endings": ["unfinished"] * 3,
    }
    summary = examine_games(result, ROCK)["summary"]
    shares = [(found["n"], found["won"], found["payoff"].mean) for found in summary[0]["episodes"]]
    assert shares == [(8, 0.5, 0.0)] * 3
    assert [part["n"] for part in summary if part["opponent"]] == [4, 4]


def test_games_that_all_crash_are_all_lost():
    trials = [begun(FRAGILE, ROCK, seed, "") for seed in (1, 3)]
    games = examine_games(result_of(ROCK, trials, FRAGILE), ROCK)
    assert [found["n"] for found in games["summary"][0]["episodes"]] == [2, 2, 2]
    assert games["summary"][0]["episodes"][2]["payoff"].mean == -2.0


def test_a_game_that_crashes_between_episodes_keeps_those_before_and_loses_those_after():
    class Once(MatrixGame):
        def restart(self):
            raise OSError("the table fell over")

    make_env = partial(Once, rounds=2, opponent="always_rock", wording="compact")
    trial = begun(make_env, ROCK, 2, "<action>paper</action>")
    (kept,) = result_of(ROCK, [trial], make_env).meta["games"]["rows"]
    assert kept["endings"] == ["won", "unfinished", "unfinished"] and kept["payoffs"][0] == 2.0


def test_a_trial_that_ended_with_its_success_has_no_further_games():
    config = replace(ROCK, stop_on_success=True)
    (kept,) = result_of(config, [played(config, always("paper"))]).meta["games"]["rows"]
    assert kept["endings"] == ["won"]


def test_crashes_of_what_is_no_game_or_cannot_be_built_leave_no_record():
    def broken():
        raise OSError("no table")

    doors = replace(KUHN, env="two_doors", env_kwargs={})
    crashed = begun(broken, doors, 1, "")
    assert crashed.crashed and games_record(broken, [crashed], doors, 10) == {}
    assert games_record(environment_factory(doors), [crashed], doors, 10) == {}


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


def test_weights_say_how_often_an_opponent_is_met_in_an_examination():
    examined = exam_settings(KUHN, ["aggressive=3", "cfr"])
    assert examined.env_kwargs == {"opponents": ["aggressive", "cfr"], "weights": [3.0, 1.0]}
    assert exam_settings(KUHN, ["aggressive=3"]).env_kwargs == {"opponents": ["aggressive"]}
    with pytest.raises(ConfigError, match="weight 0"):
        exam_settings(KUHN, ["aggressive=0"])


def test_nobody_meets_itself_in_an_examination_and_models_only_where_somebody_seats_them():
    with pytest.raises(ConfigError, match="`self`, but nobody is trained"):
        exam_settings(KUHN, ["self", "cfr"], models=True)
    with pytest.raises(ConfigError, match="seats no models"):
        exam_settings(KUHN, ["model:runs/x"])
    assert exam_settings(KUHN, ["model:runs/x=2", "cfr"], models=True).env_kwargs == {"opponents": ["cfr"]}
    assert exam_settings(KUHN, ["model:runs/x"], models=True).env_kwargs == {}


# Floor and ceiling are those of test_game_values.py.


def test_a_habit_that_remembers_too_much_has_no_frame_and_the_table_says_why(monkeypatch):
    monkeypatch.setattr("metarl_agents.environments.matrix_game.equilibrium._MOST_MEMORIES", 5)
    config = replace(ROCK, env_kwargs={"rounds": 4, "opponent": "beat_frequent"})
    games = examine_games(result_of(config, [played(config, always("paper"), seed) for seed in range(2)]), config)
    assert games["exact"] == [] and "without floor and ceiling: beat_frequent (the game is too large" in (
        format_games(games).replace("\n  ", " ")
    )


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
    assert "episode 3  4" in text and "first seat, against" in text and "second seat, against" in text
    assert "+2.000 [+2.000, +2.000]" in text and "100.0 [100.0, 100.0]" in text and "least that" not in text
    assert format_games(kept, markdown=True).startswith("| all games")
    json.dumps(kept)


def test_ten_episodes_are_shown_when_ten_are_played():
    config = replace(KUHN, num_episodes=10, env_kwargs={"opponent": "aggressive"})
    games = examine_games(result_of(config, [played(config, always("bet"), seed) for seed in range(3)]), config)
    text = format_games(games)
    assert all(f"episode {number} " in text for number in range(1, 11))
    for name in ("first", "second"):
        (table,) = [block for block in text.split("\n\n") if block.startswith(f"{name} seat")]
        assert len(table.splitlines()) == 2 + 2 * 10


def test_each_opponent_and_seat_has_a_line_an_episode_with_draws_and_the_payoffs_interval():
    rows = [row("a_name_of_20_letters", 1, [1.0, 0.0], ["won", "drawn"], seed) for seed in range(99)]
    rows += [row("a_name_of_20_letters", 1, [-1.0, 0.0], ["lost", "drawn"], seed) for seed in range(99, 198)]
    values = {("a_name_of_20_letters", 1): Exact(0.0, 1.0)}
    exact = [{"opponent": "a_name_of_20_letters", "seat": 1, "floor": 0.0, "ceiling": 1.0}]
    games = {"players": ["first", "second"], "exact": exact, "summary": summarise(rows, values)}
    table = format_games(games).split("\n\n")[-2]
    assert max(map(len, table.splitlines())) <= 100
    _, _, *_, first, last = table.splitlines()
    low, high = games["summary"][-1]["episodes"][0]["payoff"][1:]
    share = f"0 [{100 * low:.0f}, {100 * high:.0f}]"
    assert first.split() == (
        f"a_name_of_20_letters 198 1 50.0 0.0 +0.00 [{low:+.2f}, {high:+.2f}] +0.00 +1.00 {share}".split()
    )
    assert low < 0 < high and last.split() == [
        "198",
        "2",
        "0.0",
        "100.0",
        "+0.00",
        "[+0.00,",
        "+0.00]",
        "0",
        "[0,",
        "0]",
    ]


def shown(rows, values, players=("first", "second")):
    exact = [{"opponent": name, "seat": seat, **value._asdict()} for (name, seat), value in values.items()]
    return format_games({"players": list(players), "exact": exact, "summary": summarise(rows, values)}, width=120)


def test_an_exploited_share_is_printed_only_where_its_interval_says_something():
    rows = [row(payoffs=[payoff], seed=seed) for seed, payoff in enumerate([-1.0, 1.0] * 20)]
    wide, narrow = (shown(rows, {("weak", 0): Exact(0.0, gap)}).split("\n\n") for gap in (0.1, 1.0))
    assert all(table.splitlines()[-1].endswith(" -") for table in wide[:2])
    assert all(table.splitlines()[-1].endswith("]") for table in narrow[:2])
    assert "- where that is wider than 200 points" in " ".join(wide[-1].split())


def test_it_is_said_of_how_many_games_a_share_of_several_opponents_is():
    rows = [row("open", seat, [0.5], seed=seed) for seed in range(8) for seat in (0, 1)]
    rows += [row("strong", 1, [5.0], seed=seed) for seed in range(3)] + [row("model", 1, [0.1])]
    values = {("open", 0): Exact(0.0, 1.0), ("open", 1): Exact(0.0, 1.0), ("strong", 1): Exact(0.0, SMALLEST_GAP)}
    text = " ".join(shown(rows, values).split())
    assert "exploited, all opponents together: of 8 of 8 (first seat) and 8 of 12 (second seat) tasks" in text
    assert "all opponents together" not in shown(rows[:16], values)


def test_unfinished_plays_are_said_to_be_so():
    result = result_of(KUHN, [played(KUHN, lambda legal, n: "no idea", seed) for seed in range(3)])
    text = format_games(examine_games(result, KUHN))
    assert "it counts the least" in text and "-2.000" in text


def test_stalling_a_long_game_counts_the_least_that_its_rules_tell():
    config = replace(ROCK, max_turns=9, env_kwargs={"rounds": 6, "opponent": "tit_for_tat"})
    games = examine_games(result_of(config, [played(config, always("nothing"))]), config)
    assert games["summary"][0]["episodes"][0]["payoff"].mean == -6
    assert "it counts the least that the game can pay" in format_games(games)
    config = replace(config, env_kwargs={"rounds": 12, "game": "prisoners_dilemma", "opponent": "always_cooperate"})
    begun = []

    def stalls(legal, episode):
        begun.append(episode)
        return "<action>defect</action>" if begun.count(episode) < 5 else "hm"

    games = examine_games(result_of(config, [played(config, stalls)]), config)
    assert games["rows"][0]["payoffs"] == [20.0] * 3
    assert games["summary"][0]["episodes"][0]["payoff"].mean == 0.0


def test_no_least_is_claimed_where_it_is_not_known(monkeypatch):
    monkeypatch.setattr("metarl_agents.evaluation.game_values._LARGEST_WALK", 50)
    games = examine_games(result_of(BOARD, [played(BOARD, always("nothing"))]), BOARD)
    text = format_games(games)
    assert "least that the game" not in text and "it counts what it had earned" in text


def test_seats_whose_least_is_not_known_are_named_where_that_of_others_is():
    rows = [row("somebody", seat, [1.0], ["unfinished"], seat) for seat in (0, 1)]
    least = {0: -2.0, 1: None}
    games = {"players": ["first", "second"], "exact": [], "summary": summarise(rows, {}, least)}
    games["least"] = [{"seat": seat, "payoff": payoff} for seat, payoff in least.items()]
    assert [part["episodes"][0]["payoff"].mean for part in games["summary"][1:3]] == [-2.0, 1.0]
    text = " ".join(format_games(games).split())
    assert (
        "it counts the least that the game can pay, but what it had earned in the seats where that is not known" in text
    )
    assert "(second)" in text


def test_pass_at_k_of_games_says_what_it_is_where_nothing_stops_and_where_something_does():
    words = ("rock", "paper", "paper")
    say = lambda legal, n: f"<action>{words[n]}</action>"  # noqa: E731
    through, stopped = ROCK, replace(ROCK, stop_on_success=True)
    texts = [" ".join(format_table([result_of(each, [played(each, say)])]).split()) for each in (through, stopped)]
    told = "won at least once within the first k games of one trial, which are played in any case"
    assert told in texts[0] and "tasks solved within" not in texts[0]
    assert told not in texts[1] and "tasks solved within the first k episodes" in texts[1]
    doors = replace(KUHN, env="two_doors", env_kwargs={})
    assert "tasks solved within" in format_table([result_of(doors, [played(doors, always("A"))])])


def test_the_headline_names_the_models_that_were_met_beside_the_scripted_opponents():
    config = replace(KUHN, env_kwargs={"opponents": ["cfr"], "weights": [3.0]})
    result = result_of(config, [played(config, always("bet"))])
    assert "kuhn (opponents ['cfr'], weights [3.0]), test tasks" in format_table([result])
    result.meta["opponents"] = ["cfr=3", "model:runs/kuhn/population/snapshot-50"]
    text = " ".join(format_table([result]).split())
    assert "kuhn (opponents ['cfr=3', 'model:runs/kuhn/population/snapshot-50']), test tasks" in text


def test_results_of_other_environments_have_no_games_block():
    doors = replace(KUHN, env="two_doors", env_kwargs={})
    assert examine_games(result_of(doors, [played(doors, always("A"))]), doors) is None


def test_new_opponents_replace_old_ones_and_their_weights():
    assert facing({"weights": [1], "opponents": ["a"], "rounds": 3}, ["b"]) == {"rounds": 3, "opponents": ["b"]}
