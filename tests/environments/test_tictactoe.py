"""Tic-Tac-Toe: all positions, OpenSpiel move for move, opponents keep to their orders, texts, a scripted player."""

import random
from functools import partial

import pytest

from metarl_agents.config import TrialConfig
from metarl_agents.environments.tictactoe import TicTacToe
from metarl_agents.environments.tictactoe.game import CELLS, EMPTY, LINES, TicTacToeGame, positions, winner
from metarl_agents.environments.tictactoe.opponents import DEFAULT_POOL, ORDERS, find_opponent
from metarl_agents.environments.tictactoe.player import TicTacToePlayer, read_board
from metarl_agents.envs import check_environment
from metarl_agents.envs.games import Decision
from metarl_agents.envs.games.exact import best_response, policy_values
from metarl_agents.envs.parsing import last_tag
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.types import Episode, Phase, Response, Turn

GAME = TicTacToeGame()


@pytest.fixture(scope="module")
def pyspiel():
    return pytest.importorskip("pyspiel", reason='OpenSpiel is not installed: pip install -e ".[openspiel]"')


# Rules.


def test_legal_play_reaches_5478_positions_of_which_958_are_ends():
    found = positions()
    ends = [state for state in found if GAME.current_player(state) is None]
    assert len(found) == 5478 and len(ends) == 958
    results = [winner(state) for state in ends]
    assert (results.count(0), results.count(1), results.count(None)) == (626, 316, 16)


def test_in_every_position_counts_turns_and_payoffs_agree():
    for state in positions():
        x, o = state.count("x"), state.count("o")
        assert x - o in (0, 1)
        over = GAME.current_player(state) is None
        assert over or GAME.current_player(state) == x - o
        assert len(GAME.legal_actions(state)) == (0 if over else state.count("."))
        lines = {state[a] for a, b, c in LINES if state[a] == state[b] == state[c] != "."}
        assert len(lines) <= 1
        assert GAME.payoffs(state) == {"x": (1.0, -1.0), "o": (-1.0, 1.0)}.get("".join(lines), (0.0, 0.0))
        assert over == bool(lines or "." not in state)


def test_every_position_is_as_in_openspiel(pyspiel):
    pending, met = [(EMPTY, pyspiel.load_game("tic_tac_toe").new_initial_state())], {EMPTY}
    while pending:
        state, theirs = pending.pop()
        assert str(theirs).replace("\n", "") == state
        assert theirs.is_terminal() == (GAME.current_player(state) is None)
        assert theirs.is_terminal() or theirs.current_player() == GAME.current_player(state)
        assert [CELLS[action] for action in theirs.legal_actions()] == list(GAME.legal_actions(state))
        assert tuple(theirs.returns()) == GAME.payoffs(state)
        for action in theirs.legal_actions():
            after = GAME.play(state, CELLS[action])
            if after not in met:
                met.add(after)
                pending.append((after, theirs.child(action)))
    assert len(met) == 5478


# The environment.


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("keywords", [{}, {"opponent": "perfect"}, {"opponent": "random", "seat": "second"}])
def test_it_keeps_the_contract(wording, keywords):
    report = check_environment(lambda: TicTacToe(wording=wording, **keywords), seeds=range(6))
    assert report.warnings == () and report.episodes_ended == 6


def test_a_win_pays_10_a_loss_costs_10_and_a_draw_nothing():
    env, endings = TicTacToe(opponents=["random", "perfect", *ORDERS]), set()
    rng = random.Random(0)
    for seed in range(200):
        observation, info = env.reset(seed=seed)
        while info["admissible_actions"]:
            observation, reward, terminated, truncated, info = env.step(rng.choice(info["admissible_actions"]))
            assert terminated or reward == 0
        assert terminated and not truncated
        ending = (reward, info["success"], info["draw"], observation.splitlines()[-1])
        assert info["payoff"] == reward / 10 and sum(info["rewards"].values()) == -reward
        endings.add(ending)
    assert endings == {
        (10.0, True, False, "You have won."),
        (-10.0, False, False, "You have lost."),
        (0.0, False, True, "The game is a draw."),
    }


def test_a_taken_cell_is_invalid_and_not_the_end():
    env = TicTacToe(opponent="prefers_centre", seat="second")
    env.reset(seed=0)
    result = env.step("(2, 2)")
    assert result.info["invalid"] and not result.terminated and result.reward == 0
    assert result.observation == ". . .\n. O .\n. . .\nThat cell cannot be played. Nothing has changed."
    assert env.step("(1, 2)").observation == "O X .\n. O .\n. . ."


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>(2, 3)</action>", "(2, 3)"),
        ("<action>2,3</action>", "(2, 3)"),
        ("<action>(4, 0)</action>", "(4, 0)"),
        ("<action>(1, 1) (2, 2)</action>", None),
        ("(2, 3)", None),
        ("<action>centre</action>", None),
    ],
)
def test_parse_action(text, action):
    assert TicTacToe().parse_action(text) == action


@pytest.mark.parametrize(
    ("wording", "unfinished", "lost"),
    [
        ("paper", "The game was lost or not finished.", "You have lost."),
        ("compact", "Attempt failed.", "lost"),
    ],
)
def test_pages_after_a_game_that_ran_out_of_turns_do_not_call_it_lost(wording, unfinished, lost):
    cells = ["(1, 1)", "(2, 1)", "(3, 2)"]
    for max_turns, opponent, ends_lost in ((1, "prefers_centre", False), (6, "perfect", True)):
        config = TrialConfig(max_turns=max_turns, num_episodes=2, stop_on_success=False)
        make = partial(TicTacToe, opponent=opponent, seat="first", wording=wording)
        runner, pages = TrialRunner(make, 3, 0, config), []
        while not runner.done:
            pages.append((runner.reflecting, runner.messages()[0]["content"]))
            played = len(runner.trial.episodes[-1].turns)
            say = "<remark>so</remark>" if runner.reflecting else f"<action>{(cells * 2)[played]}</action>"
            runner.receive((), Response((), say))
        (reflection,) = [page for is_reflection, page in pages if is_reflection]
        assert unfinished in reflection and "The game was lost." not in reflection
        assert (lost in reflection.replace(unfinished, "").splitlines()) == ends_lost
        told = {"paper": "Game 1 was lost or not finished. Your remark", "compact": "Attempt 1 failed: so"}[wording]
        assert told in pages[-1][1]


def test_both_seats_see_their_own_signs_as_x():
    for seed, seat in ((0, "first"), (0, "second")):
        env = TicTacToe(opponent="random", seat=seat, wording="compact")
        env.reset(seed=seed)
        board = read_board(env.step(env.legal_actions(seat)[0]).observation)
        assert board.count("X") == 1 and board.count("O") == 1 + (seat == "second")


def test_the_texts_say_what_is_played_and_never_against_whom():
    paper, compact = TicTacToe(), TicTacToe(wording="compact")
    for part in ("Tic-Tac-Toe", "X", "O", "(1, 1)", "(2, 2)", "draw", "diagonal"):
        assert part in paper.describe()
    assert compact.describe() == "" and len(compact.wording.play_request) < 20
    for env in (paper, compact):
        texts = [env.describe(), *map(str, vars(env.wording).values())]
        for seed in range(40):
            texts.append(env.reset(seed=seed)[0])
            texts += [env.step(action).observation for action in env.legal_actions(env.current_player())[:1]]
        assert not any(name in text for name in DEFAULT_POOL for text in texts)


# Opponents.


def test_orders_name_every_cell_once_and_differ():
    assert len(ORDERS) == 6 == len(set(ORDERS.values()))
    assert all(sorted(order) == list(range(9)) for order in ORDERS.values())


@pytest.mark.parametrize("name", ORDERS)
def test_a_fixed_order_takes_its_first_free_cell(name):
    opponent, rng = find_opponent(name), random.Random(0)
    for state in random.Random(1).sample(sorted(positions()), 300):
        seat = GAME.current_player(state)
        if seat is not None:
            taken = opponent.act(Decision(seat, state, GAME.legal_actions(state)), rng)
            assert taken == next(CELLS[cell] for cell in ORDERS[name] if state[cell] == ".")


def test_the_default_pool_is_half_search():
    env = TicTacToe()
    met = [env.seating.of(seed)[0].name for seed in range(1600)]
    assert abs(met.count("mcts_100") - 800) < 8 and abs(met.count("random") - 200) < 8
    assert all(abs(met.count(name) - 100) < 8 for name in ORDERS)


def test_perfect_play_never_loses_and_draws_against_itself():
    perfect = find_opponent("perfect").probabilities
    assert policy_values(GAME, [perfect, perfect]) == (0.0, 0.0)
    for seat in (0, 1):
        assert best_response(GAME, perfect, seat).value == 0.0
        for name in (*ORDERS, "random"):
            policies = [find_opponent(name).probabilities] * 2
            policies[seat] = perfect
            assert policy_values(GAME, policies)[seat] > 0


def test_every_habit_can_be_beaten_every_time_and_random_play_nearly():
    for seat in (0, 1):
        assert all(best_response(GAME, find_opponent(name).probabilities, seat).value == 1.0 for name in ORDERS)
    random_play = find_opponent("random").probabilities
    assert best_response(GAME, random_play, 0).value == pytest.approx(191 / 192)
    assert 0.92 < best_response(GAME, random_play, 1).value < 0.93


def test_random_play_of_both_wins_as_often_as_is_known():
    random_play = find_opponent("random").probabilities
    # Of plays at random the first player wins 737/1260, the second 121/420; so the first earns 737/1260 - 363/1260.
    assert policy_values(GAME, [random_play, random_play])[0] == pytest.approx(374 / 1260)


def test_search_is_seeded_by_the_task_and_stronger_with_more_simulations():
    perfect = find_opponent("perfect").probabilities

    def loses(simulations):
        search = find_opponent(f"mcts_{simulations}").probabilities
        return sum(policy_values(GAME, [perfect, search], seed=seed)[0] for seed in range(2)) / 2

    assert loses(3) > loses(100) + 0.2
    decision = Decision(0, EMPTY, GAME.legal_actions(EMPTY), seed=3)
    shallow = find_opponent("mcts_5")
    assert len({shallow.act(decision, random.Random(number)) for number in range(5)}) == 1
    assert shallow.name == "mcts_5" and find_opponent("mcts_1000").name == "mcts_1000"


@pytest.mark.slow
def test_a_thousand_simulations_are_hardly_ever_beaten():
    for seat in (0, 1):
        values = [best_response(GAME, find_opponent("mcts_1000").probabilities, seat, seed=s).value for s in range(8)]
        assert sum(values) <= 1


# The scripted player.


def played(env, player, seed, rng, remarks=()):
    """Play one episode with the player; return it as an `Episode`, and whether it was won."""
    observation, info = env.reset(seed=seed)
    episode = Episode(observation, final_observation=observation)
    player.start_episode(list(remarks), rng)
    while info["admissible_actions"]:
        text = player.act(observation, rng)
        action = env.parse_action(text)
        result = env.step(action)
        assert not result.info["invalid"]
        episode.turns.append(Turn(Phase.PLAY, observation, (), Response((), text), action, action, result.reward))
        observation, info = result.observation, result.info
        episode.final_observation = observation
    return episode, info["success"]


@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_the_player_plays_legal_cells_and_remarks_on_what_they_came_to(wording):
    env, rng = TicTacToe(opponents=["random", *ORDERS], wording=wording), random.Random(0)
    for seed in range(60):
        player = env.player()
        episode, won = played(env, player, seed, rng)
        remark = last_tag(player.reflect(episode, rng), "remark")
        cells, _, result = remark.rpartition(" ")
        assert cells == " ".join(turn.action for turn in episode.turns)
        assert result in ("won", "lost", "drawn") and (result == "won") == won


def test_a_game_without_an_end_is_remarked_on_as_unfinished():
    turn = Turn(Phase.PLAY, ". . .\n. . .\n. . .", (), Response((), ""), "(3, 1)", "(3, 1)", 0.0)
    left = Episode(". . .\n. . .\n. . .", [turn], "O . .\n. . .\nX . .")
    assert TicTacToePlayer().reflect(left, random.Random(0)) == "<remark>(3, 1) unfinished</remark>"


def test_who_heeds_plays_a_won_game_again_and_leaves_one_that_was_not_won():
    env, player = TicTacToe(opponent="mcts_10", seat="first"), TicTacToePlayer(skill=0.5, heed=1)
    again = left = 0
    for seed in range(40):
        first, won = played(env, player, seed, random.Random(seed))
        remark = last_tag(player.reflect(first, random.Random(0)), "remark")
        second, _ = played(env, player, seed, random.Random(seed + 1000), [remark])
        same = [turn.action for turn in second.turns] == [turn.action for turn in first.turns]
        assert same == won
        again, left = again + same, left + (not same)
    assert again > 5 and left > 5


def test_skill_and_heeding_help():
    def share_won(player, attempts):
        env, rng, won = TicTacToe(opponents=["mcts_5", "mcts_10", *ORDERS]), random.Random(1), 0
        for seed in range(80):
            remarks, success = [], False
            for _ in range(attempts):
                episode, success = played(env, player, seed, rng, remarks)
                remarks.append(last_tag(player.reflect(episode, rng), "remark"))
            won += success
        return won / 80

    blind, seeing = share_won(TicTacToePlayer(skill=0, heed=0), 1), share_won(TicTacToePlayer(skill=1, heed=0), 1)
    assert seeing > blind + 0.2
    third, heeding = share_won(TicTacToePlayer(heed=0), 3), share_won(TicTacToePlayer(heed=1), 3)
    assert heeding > third + 0.03
