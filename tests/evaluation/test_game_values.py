"""Floor and ceiling of games: by the game's own reckoning, by walking it, or not at all and why."""

from dataclasses import replace
from random import Random
from statistics import mean

import pytest
from games_settings import BOARD, KUHN, ROCK

from metarl_agents.environments.matrix_game import MatrixGame
from metarl_agents.environments.matrix_game.opponents import makers
from metarl_agents.environments.tictactoe.opponents import value_after
from metarl_agents.environments.tictactoe.player import read_board
from metarl_agents.envs.factory import environment_factory
from metarl_agents.envs.games import HumanOpponent, PolicyOpponent, uniform
from metarl_agents.evaluation.game_values import (
    Exact,
    NoFrame,
    exact_values,
    least_payoff,
    role_frames,
    role_values,
    safe_player,
)
from metarl_agents.evaluation.games import SMALLEST_GAP


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


def test_the_floor_of_a_search_is_what_perfect_play_earns_in_the_tasks_that_were_met():
    config = replace(BOARD, env_kwargs={"opponent": "mcts_5", "seat": "second"})
    tasks = range(100, 164)
    (value,) = role_values(config, {("mcts_5", 1): tasks}).values()
    env, rng, earned = environment_factory(config)(), Random(0), []
    for task in tasks:
        for _ in range(6):
            observation, info = env.reset(seed=task)
            payoff = 0.0
            while legal := info["admissible_actions"]:
                state = read_board(observation).translate(str.maketrans("XO", "ox"))
                worth = {cell: -value_after(state, cell) for cell in legal}
                result = env.step(rng.choice([cell for cell in legal if worth[cell] == max(worth.values())]))
                observation, info, payoff = result.observation, result.info, payoff + result.reward / 10
            earned.append(payoff)
    assert mean(earned) == pytest.approx(value.floor, abs=0.04)


def test_whoever_does_not_tell_its_probabilities_has_no_frame():
    env = environment_factory(KUHN)()
    with pytest.raises(NoFrame, match="does not tell"):
        exact_values(env, HumanOpponent(), 0, safe_player(KUHN))
    values, missing = role_frames(KUHN, [("snapshot-50", 0), ("aggressive", 0)])
    assert set(values) == {("aggressive", 0)} and "does not tell" in missing["snapshot-50", 0]
    assert role_values(replace(KUHN, env="two_doors", env_kwargs={}), [("somebody", 0)]) == {}


def test_a_game_too_large_to_be_walked_has_no_frame(monkeypatch):
    monkeypatch.setattr("metarl_agents.evaluation.game_values._LARGEST_WALK", 50)
    env = environment_factory(BOARD)()
    anybody = PolicyOpponent("any", lambda decision: uniform(decision.legal))
    with pytest.raises(NoFrame, match="too large"):
        exact_values(env, anybody, 0, safe_player(BOARD))
    assert least_payoff(env.game, 0) is None


def test_a_game_without_a_player_that_cannot_be_exploited_has_no_frame():
    env = environment_factory(BOARD)()
    with pytest.raises(NoFrame, match="no player"):
        exact_values(env, env.seating.opponents[0], 0, None)


@pytest.mark.parametrize("game", ["rock_paper_scissors", "prisoners_dilemma", "matching_pennies"])
def test_what_a_matrix_game_tells_by_itself_is_what_walking_it_finds(game):
    class Walked(MatrixGame):
        def exact_values(self, opponent, seat):
            return None

    for rounds in (1, 3):
        env, walked = MatrixGame(game=game, rounds=rounds), Walked(game=game, rounds=rounds)
        known = makers(env.rules)
        safe = known["equilibrium"]()
        for name in set(known) - {"human"}:
            for seat in (0, 1):
                told = exact_values(env, known[name](), seat, safe)
                assert told == pytest.approx(exact_values(walked, known[name](), seat, safe)), (name, seat, rounds)
        assert [least_payoff(env.game, seat) for seat in (0, 1)] == [
            rounds * min(pair[seat] for row in env.rules.table for pair in row) for seat in (0, 1)
        ]


def test_long_matrix_games_have_frames_that_are_told_at_once(monkeypatch):
    def walk(*_, **__):
        raise AssertionError("the game was walked")

    for name in ("best_response", "deal_ceiling", "policy_values"):
        monkeypatch.setattr(f"metarl_agents.evaluation.game_values.{name}", walk)
    config = replace(ROCK, env_kwargs={"rounds": 30, "opponents": ["mostly_rock", "beat_frequent"]})
    values = role_values(config, [("mostly_rock", 0), ("mostly_rock", 1), ("beat_frequent", 0)])
    assert values["mostly_rock", 1] == values["mostly_rock", 0] == pytest.approx((0.0, 30 * 0.55))
    assert values["beat_frequent", 0] == pytest.approx((0.0, 30))
    assert [least_payoff(environment_factory(config)().game, seat) for seat in (0, 1)] == [-30, -30]


def test_the_least_payoff_is_the_worst_end_of_a_play():
    for config, least in ((KUHN, -2), (ROCK, -2), (BOARD, -1)):
        assert [least_payoff(environment_factory(config)().game, seat) for seat in (0, 1)] == [least, least]
