"""Looking ahead in games: tree search, exact values, best responses, what knowing the deal is worth."""

import random

import pytest
from coin_game import Coin

from metarl_agents.environments.kuhn import Kuhn
from metarl_agents.environments.tictactoe.game import EMPTY, TicTacToeGame
from metarl_agents.envs.games import SearchOpponent, uniform
from metarl_agents.envs.games.exact import best_response, deal_ceiling, minimax, policy_values
from metarl_agents.envs.games.search import searched
from metarl_agents.errors import ConfigError


def winner_of_a_duel(strong, weak, seed):
    """Return the first seat's payoff."""
    game, state = TicTacToeGame(), EMPTY
    while (seat := game.current_player(state)) is not None:
        state = game.play(state, searched(game, state, seed, (strong, weak)[seat], 1.4))
    return game.payoffs(state)[0]


def test_a_search_is_a_function_of_seed_and_state_and_is_done_once():
    game = TicTacToeGame()
    searched.cache_clear()
    first = [searched(game, EMPTY, seed, 5, 1.4) for seed in range(40)]
    assert searched.cache_info().misses == 40
    assert [searched(TicTacToeGame(), EMPTY, seed, 5, 1.4) for seed in range(40)] == first
    assert searched.cache_info().misses == 40 and len(set(first)) > 3
    searched.cache_clear()
    assert [searched(game, EMPTY, seed, 5, 1.4) for seed in range(40)] == first


@pytest.mark.parametrize("seed", range(5))
def test_a_search_wins_where_it_can_and_blocks_where_it_must(seed):
    game = TicTacToeGame()
    assert searched(game, "xx.oo....", seed, 30, 1.4) == "(1, 3)"
    assert searched(game, "oo.xx...x", seed, 30, 1.4) == "(1, 3)"
    assert searched(game, "xx..o....", seed, 200, 1.4) == "(1, 3)"


def test_more_simulations_play_better():
    strong_first = sum(winner_of_a_duel(100, 2, seed) for seed in range(12))
    strong_last = -sum(winner_of_a_duel(2, 100, seed) for seed in range(12))
    assert strong_first > 5 and strong_last > 1


def test_a_search_needs_a_game_without_secrets():
    with pytest.raises(ConfigError, match="nothing is hidden"):
        SearchOpponent(Kuhn().game)
    with pytest.raises(ConfigError, match="`simulations` is 0"):
        SearchOpponent(TicTacToeGame(), 0)


def test_values_of_the_toy_are_as_computed_by_hand():
    game = Coin()
    blind = lambda decision: uniform(decision.legal)  # noqa: E731
    tails = lambda decision: {"tails": 1.0}  # noqa: E731
    assert policy_values(game, [blind, blind, blind]) == pytest.approx((0, 0, 0))
    assert policy_values(game, [tails, tails, tails]) == pytest.approx((0, 0, 0))
    # Both others call heads and are wrong with 3/4: tails earns 2 * 3/4 - 2 * 1/4.
    answer = best_response(game, lambda decision: {"heads": 1.0}, 0)
    assert answer.value == pytest.approx(1.0) and answer.choices == {(): "tails"}
    assert deal_ceiling(game, lambda decision: {"heads": 1.0}, 0) == pytest.approx(0.75 * 2)
    assert best_response(game, lambda decision: {"heads": 1.0}, 0, worth=lambda p: p > 0).value == pytest.approx(0.75)


def test_no_policy_earns_more_than_the_best_response():
    game, rng = Kuhn().game, random.Random(0)
    for _ in range(20):
        mixes = [{}, {}]

        def policy(decision, mixes=mixes):
            share = mixes[decision.seat].setdefault(decision.information, rng.random())
            return {"pass": 1 - share, "bet": share}

        values = policy_values(game, [policy, policy])
        assert values[0] + values[1] == pytest.approx(0)
        for seat in (0, 1):
            best = best_response(game, policy, seat)
            assert best.value >= values[seat] - 1e-12
            assert deal_ceiling(game, policy, seat) >= best.value - 1e-12
            played = [policy, policy]
            played[seat] = lambda decision, best=best: {best.choices[decision.information]: 1.0}
            assert policy_values(game, played)[seat] == pytest.approx(best.value)


def test_tic_tac_toe_is_a_draw():
    known = {}
    assert minimax(TicTacToeGame(), EMPTY, known) == 0 and len(known) == 5478


def test_knowing_everything_wins_in_as_few_turns_as_told():
    env = Kuhn()
    for seed in range(40):
        env.reset(seed=seed)
        turns = env.fewest_turns_to_win()
        wins = []
        for plan in (["bet"], ["pass"], ["pass", "bet"], ["pass", "pass"]):
            observation, info = env.restart()
            for number, action in enumerate(plan, start=1):
                result = env.step(action)
                if result.terminated:
                    wins += [number] * result.info["success"]
                    break
        assert turns == min(wins, default=float("inf"))
        env.restart()
        env.step("bet")
        assert env.fewest_turns_to_win() == turns  # of the play from its start, wherever it stands
