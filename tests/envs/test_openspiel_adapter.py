"""OpenSpiel's games for two behind our contract: move for move as OpenSpiel plays them, secrets kept, deals replayed."""

import pickle
import random
import re
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest

from metarl_agents import play, train
from metarl_agents.cli import parse_config
from metarl_agents.config import TrialConfig
from metarl_agents.envs import check_environment, make
from metarl_agents.envs.adapters.openspiel import find_opponent
from metarl_agents.envs.adapters.openspiel_wording import read_move
from metarl_agents.envs.factory import address_of, environment_factory
from metarl_agents.envs.games import Decision, GameEnvironment
from metarl_agents.envs.games.exact import TooLarge
from metarl_agents.envs.wording import Wording
from metarl_agents.envs.workers import WorkerPool
from metarl_agents.errors import ConfigError, UnknownEnvironmentError
from metarl_agents.evaluation.game_values import role_frames
from metarl_agents.evaluation.games import exam_settings
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.types import Response

pyspiel = pytest.importorskip("pyspiel", reason='OpenSpiel is not installed: pip install -e ".[openspiel]"')

GAMES = {
    "tic_tac_toe": {},
    "kuhn_poker": {},
    "leduc_poker": {},
    "connect_four": {},
    "liars_dice": {},
    "matrix_pd": {},
    "matrix_rps": {"num_repetitions": 3},
    "goofspiel": {"num_cards": 4, "imp_info": True},
    "pig": {"winscore": 12},
    "coin_game": {"rows": 4, "columns": 4, "episode_length": 4},
}
"""Boards, cards, chance in the middle, a large game, dice, choices at the same time, texts of either kind alone."""
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "openspiel.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in re.sub(r"\\\n\s*", "", PAGE.split("```")[1]).splitlines() if line]


def game_of(name):
    return make(f"openspiel:{name}", opponent="random", **GAMES[name]).game


def theirs(name):
    parameters = dict(GAMES[name])
    rounds = parameters.pop("num_repetitions", None)
    game = pyspiel.load_game(name, parameters)
    return game if rounds is None else pyspiel.create_repeated_game(game, {"num_repetitions": rounds})


def random_play(game, rng):
    """Yield every state of a play at random."""
    state = game.deal(rng)
    while game.current_player(state) is not None:
        yield state
        state = game.play(state, rng.choice(game.legal_actions(state)))
    yield state


def moves_of(env, pick):
    """Play the task at hand to its end; return all that was seen."""
    seen = [env.outcome()]
    while not seen[-1].terminated:
        seen.append(env.step(pick(seen[-1].info["admissible_actions"])))
    return seen


# ---- the rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GAMES)
def test_every_play_is_as_openspiel_plays_it(name):
    game, rng = game_of(name), random.Random(5)
    for _ in range(25):
        state, read, pending = theirs(name).new_initial_state(), 0, None
        for mine in random_play(game, rng):
            for number in mine.history[read:]:
                if state.is_simultaneous_node():
                    if pending is None:
                        pending = number
                        continue
                    state.apply_actions([pending, number])
                    pending = None
                else:
                    assert number in state.legal_actions()
                    state.apply_action(number)
            read = len(mine.history)
            turn = game.current_player(mine)
            if state.is_terminal():
                assert turn is None and game.legal_actions(mine) == ()
                assert game.payoffs(mine) == pytest.approx(state.returns())
                continue
            assert turn == (int(pending is not None) if state.is_simultaneous_node() else state.current_player())
            names = tuple(state.action_to_string(turn, number) for number in state.legal_actions(turn))
            assert game.legal_actions(mine) == names and not state.is_chance_node()
            assert game.payoffs(mine) == pytest.approx(state.returns())
        assert state.is_terminal()


@pytest.mark.parametrize("name", GAMES)
def test_states_and_games_are_values_that_can_be_sent(name):
    game = game_of(name)
    again = pickle.loads(pickle.dumps(game))
    assert again == game and hash(again) == hash(game)
    plays = [list(random_play(one, random.Random(3))) for one in (game, again)]
    assert plays[0] == plays[1] and len(set(plays[0])) == len(plays[0])
    again.rules._positions.clear()  # what is forgotten is built again from its history
    assert [game.legal_actions(state) for state in plays[0]] == [again.legal_actions(state) for state in plays[1]]


def test_cards_dealt_at_the_start_are_listed_with_their_chances():
    assert sorted(state.history for _, state in game_of("kuhn_poker").deals()) == [
        (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1),
    ]  # fmt: skip
    assert all(share == pytest.approx(1 / 6) for share, _ in game_of("kuhn_poker").deals())
    assert game_of("connect_four").deals() == [(1.0, ((), 0))]


def test_chance_in_the_middle_belongs_to_the_deal_and_not_to_the_way_there():
    game, cards = game_of("leduc_poker"), []
    with pytest.raises(TooLarge):
        game.deals()
    for seed in range(300):
        start = game.deal(random.Random(seed))
        turned = set()
        for line in (("Call", "Call"), ("Raise", "Call"), ("Call", "Raise", "Call"), ("Raise", "Raise", "Call")):
            state = start
            for action in line:
                state = game.play(state, action)
            turned.add(state.history[-1])
        assert len(turned) == 1
        cards += turned
        assert cards[-1] not in start.history[:2]
    assert all(30 < cards.count(card) < 75 for card in range(6))  # 50 each on average, sd 6.5


def test_choices_at_the_same_time_are_asked_one_after_the_other_and_shown_to_nobody():
    env = make("openspiel:matrix_rps", num_repetitions=3, seat="second", opponent="random")
    start = env.game.deal(random.Random(0))
    after = [env.game.play(start, action) for action in ("Rock", "Paper", "Scissors")]
    assert [env.game.current_player(state) for state in (start, *after)] == [0, 1, 1, 1]
    assert len({env.game.information(state, 1) for state in after}) == 1
    assert len({env.show(state, 1) for state in after}) == 1 and len(set(after)) == 3
    over = {env.game.information(env.game.play(state, "Rock"), 1) for state in after}
    assert len(over) == 3 and len({env.game.information(state, 0) for state in after}) == 3


# ---- what a seat may know ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_no_page_of_kuhn_poker_depends_on_the_card_that_the_other_holds(wording):
    env = make("openspiel:kuhn_poker", opponent="random", wording=wording)
    deals = [state for _, state in env.game.deals()]
    for seat in (0, 1):
        for card in (0, 1, 2):
            pending = [tuple(state for state in deals if state.history[seat] == card)]
            assert len(pending[0]) == 2
            while pending:
                pair = pending.pop()
                # At the end the payoff tells what a showdown tells; before it nothing does.
                if env.game.current_player(pair[0]) is not None:
                    assert len({env.show(state, seat) for state in pair}) == 1
                    assert len({env.game.information(state, seat) for state in pair}) == 1
                    legal = env.game.legal_actions(pair[0])
                    pending += [tuple(env.game.play(state, action) for state in pair) for action in legal]
                elif len({env.game.payoffs(state) for state in pair}) == 1:
                    assert len({env.show(state, seat) for state in pair}) == 1


@pytest.mark.parametrize("name", ["leduc_poker", "liars_dice"])
def test_what_the_other_holds_is_no_part_of_what_a_seat_knows(name):
    game = game_of(name)
    for number in range(20):
        start = game.deal(random.Random(number))
        held = start.history[1]
        others = [card for card in range(6) if card not in start.history[: 2 if name == "leduc_poker" else 0]]
        for other in others:
            changed = start._replace(history=(start.history[0], other, *start.history[2:]))
            assert game.information(changed, 0) == game.information(start, 0)
            assert (game.information(changed, 1) == game.information(start, 1)) == (other == held)


def test_texts_of_observations_are_remembered_where_the_game_tells_no_history():
    game = game_of("coin_game")
    before, after = (list(random_play(game, random.Random(seed)))[-2:] for seed in (1, 2))
    assert game.information(before[0], 0) != game.information(after[0], 0)
    memory, own = game.information(before[1], 0)
    assert own is None and len(memory) == 3 and all(isinstance(action, int) for _, action in memory[:-1])


def test_seat_turn_and_result_are_said_in_words():
    env = make("openspiel:tic_tac_toe", opponent="random", seat="second")
    first, info = env.reset(seed=1)
    assert first.startswith("You are the second player. It is your turn.\n") and first.count("\n") == 3
    assert all(action.startswith("o(") for action in info["admissible_actions"])
    last = moves_of(env, lambda legal: legal[0])[-1]
    assert "The game is over: you have " in last.observation and "It is your turn" not in last.observation
    assert env.observe("first").startswith("You are the first player.\n")


def test_the_rules_name_the_game_and_what_its_numbers_mean():
    rules = make("openspiel:leduc_poker", opponent="random").describe()
    assert 'Leduc Poker against another player. It is the game "leduc_poker()"' in rules
    assert "0 Fold, 1 Call, 2 Raise" in rules and "decided alike in every attempt" in rules
    assert "drawn anew" in make("openspiel:leduc_poker", opponent="random", redraw_deal=True).describe()
    assert "at the same time" in make("openspiel:goofspiel", num_cards=4).describe()
    assert make("openspiel:kuhn_poker", description="Bluff.").describe() == "Bluff."


# ---- the environment -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("name", GAMES)
def test_games_keep_the_contract(name, wording):
    build = partial(make, f"openspiel:{name}", opponent="random", wording=wording, **GAMES[name])
    assert check_environment(build, seeds=(0, 5), max_turns=60).episodes_ended == 2


@pytest.mark.parametrize("name", GAMES)
def test_a_restart_replays_the_deal_the_chance_and_the_opponent(name):
    env = make(f"openspiel:{name}", opponent="random", **GAMES[name])
    for seed in (0, 1, 2**41 + 7):
        env.reset(seed=seed)
        first = moves_of(env, lambda legal: legal[-1])
        for _ in range(2):
            env.restart()
            assert moves_of(env, lambda legal: legal[-1]) == first


def test_a_redrawn_deal_gives_other_cards_to_the_same_seat():
    env = make("openspiel:leduc_poker", opponent="random", redraw_deal=True)
    env.reset(seed=4)
    seen = [moves_of(env, lambda legal: legal[0]) for _ in range(12) if env.restart()]
    assert len({results[0].observation for results in seen}) > 2
    assert len({results[0].info["seat"] for results in seen}) == 1


@pytest.mark.parametrize("name", GAMES)
def test_nothing_that_is_written_raises(name):
    env, rng = make(f"openspiel:{name}", opponent="random", **GAMES[name]), random.Random(9)
    signs = "xo()[],.:0123 RockFoldbid-<>/\n\u0661\ud800"
    for seed in range(10):
        env.reset(seed=seed)
        for _ in range(40):
            text = "".join(rng.choice(signs) for _ in range(rng.randrange(12)))
            action = env.parse_action(f"<action>{text}</action>")
            legal = env.outcome().info["admissible_actions"]
            if action is None:
                action = rng.choice(legal)
            result = env.step(action)
            assert result.info["invalid"] == (action not in legal)
            if result.terminated:
                break


@pytest.mark.parametrize(
    ("answer", "legal", "meant"),
    [
        ("x(0,0)", ("x(0,0)", "x(0,1)"), "x(0,0)"),
        ("0, 1", ("x(0,0)", "x(0,1)"), "x(0,1)"),
        ("(0, 1).", ("x(0,1)",), "x(0,1)"),
        ("1", ("x(0,1)", "x(1,1)"), "1"),
        ("3", ("x0", "x3"), "x3"),
        (" fold ", ("Fold", "Call"), "Fold"),
        ("call", ("player=1 move=Call", "player=1 move=Bet"), "player=1 move=Call"),
        ("bid: 2", ("[P0]Bid: 2", "[P0]Bid: 12"), "[P0]Bid: 2"),
        ("2", ("[P0]Bid: 2", "[P0]Bid: 12"), "[P0]Bid: 2"),
        ("e2", ("Ne2", "Be2"), "e2"),
        ("4", ("a4", "b4"), None),
        ("...", ("a4",), "..."),
        ("9" * 300, ("a4",), None),
        (None, ("a4",), None),
    ],
)
def test_answers_are_read_leniently_but_never_guessed(answer, legal, meant):
    assert read_move(answer, legal) == meant


@pytest.mark.parametrize(
    ("name", "keywords", "scale"),
    [
        ("tic_tac_toe", {}, 10), ("kuhn_poker", {}, 5), ("leduc_poker", {}, 10 / 13),
        ("matrix_rps", {"num_repetitions": 4}, 2.5), ("crazy_eights", {"players": 2}, 10 / 325),
    ],
)  # fmt: skip
def test_the_most_that_can_be_earned_is_a_reward_of_ten(name, keywords, scale):
    env = make(f"openspiel:{name}", opponent="random", **keywords)
    least, most = env.game.rules.utilities
    assert env.reward_scale * (most or -least) == pytest.approx(10)
    if name != "crazy_eights":
        assert env.reward_scale == pytest.approx(scale)
    env.reset(seed=2)
    seen = moves_of(env, lambda legal: legal[0])
    assert sum(result.reward for result in seen) == pytest.approx(env.reward_scale * seen[-1].info["payoff"])
    assert env.game.least_payoff(0) == least <= seen[-1].info["payoff"]


def test_success_is_a_payoff_above_par_and_a_draw_one_at_par():
    def ended(par, own, other):
        env = make("openspiel:matrix_pd", par=par, seat="first", opponent="random")
        env.reset(seed=0)
        env.submit(own)
        env.reply(other)
        return env.outcome()

    both = {par: ended(par, "Cooperate", "Cooperate").info for par in (0, 5, 6)}
    assert [(info["success"], info["draw"]) for info in both.values()] == [(True, False), (False, True), (False, False)]
    assert ended(5, "Cooperate", "Cooperate").observation.endswith("you have drawn. You have earned 5.")
    assert ended(0, "Cooperate", "Defect").info["draw"] and ended(9, "Defect", "Cooperate").info["success"]


def test_rounds_of_a_repeated_game_pay_as_they_are_played():
    env = make("openspiel:matrix_rps", num_repetitions=2, seat="first", opponent="random")
    env.reset(seed=0)
    env.submit("Rock")
    env.reply("Scissors")
    one = env.outcome()
    assert one.reward == 5.0 and one.observation.endswith("You have earned 1 so far.\nRock Scissors")
    env.submit("Rock")
    env.reply("<action>paper</action>")
    two = env.outcome()
    assert two.reward == -5.0 and two.info["draw"] and "\nRock Paper Rock Scissors\n" in two.observation
    assert "the newest first" in env.describe()


# ---- opponents and exact values --------------------------------------------------------------------------------------


def test_a_search_plays_where_nothing_is_hidden_and_only_there():
    env = make("openspiel:connect_four", opponent="mcts_30", seat="first")
    env.reset(seed=1)
    played = [moves_of(env, lambda legal: legal[0])[-1] for _ in range(2) if env.restart()]
    assert played[0] == played[1] and played[0].info["payoff"] == -1.0 and played[0].info["opponent_invalid"] == 0
    for name in ("kuhn_poker", "pig", "oshi_zumo", "coin_game"):
        with pytest.raises(ConfigError, match="knows random, .*human. Name one"):
            make(f"openspiel:{name}", opponent="mcts_30")


def test_whoever_is_met_by_default_answers_in_reasonable_time():
    def met(name):
        return [opponent.name for opponent in make(f"openspiel:{name}").seating.opponents]

    assert met("connect_four") == met("tic_tac_toe") == ["random", "mcts_100"]
    assert met("go") == met("kuhn_poker") == met("matrix_pd") == ["random"]


def frames(env, opponents, **keywords):
    config = TrialConfig(env=env, env_kwargs={"opponents": opponents, **keywords})
    return role_frames(config, [(name, seat) for name in opponents for seat in (0, 1)])


def test_exact_values_of_tic_tac_toe_are_those_of_our_own():
    values, missing = frames("openspiel:tic_tac_toe", ["random"])
    ours, _ = frames("tictactoe", ["random"])
    assert not missing and values.keys() == ours.keys()
    for role, value in values.items():
        assert (value.floor, value.ceiling) == pytest.approx(ours[role])


def test_perfect_play_of_tic_tac_toe_is_that_of_our_own():
    env, own = make("openspiel:tic_tac_toe", opponent="perfect"), make("tictactoe", opponent="perfect")
    rng, game = random.Random(4), env.game
    for _ in range(15):
        ours = "." * 9
        for state in random_play(game, rng):
            seat = game.current_player(state)
            if state.history:
                row, column = divmod(state.history[-1], 3)
                ours = own.game.play(ours, f"({row + 1}, {column + 1})")
            if seat is None:
                break
            mine = env.seating.opponents[0].probabilities(Decision(seat, state, game.legal_actions(state)))
            theirs = own.seating.opponents[0].probabilities(Decision(seat, ours, own.game.legal_actions(ours)))
            cells = {f"({int(name[2]) + 1}, {int(name[4]) + 1})": share for name, share in mine.items()}
            assert cells == pytest.approx(theirs)


@pytest.mark.parametrize("redraw_deal", [False, True])
def test_exact_values_of_kuhn_poker_are_those_of_our_own(redraw_deal):
    values, missing = frames("openspiel:kuhn_poker", ["random", "equilibrium"], redraw_deal=redraw_deal)
    ours, _ = frames("kuhn", ["random", "equilibrium"], redraw_deal=redraw_deal)
    assert not missing
    for seat in (0, 1):
        assert values["random", seat].ceiling == pytest.approx(ours["random", seat].ceiling)
        assert values["equilibrium", seat].floor == pytest.approx(ours["equilibrium", seat].floor, abs=1e-3)
    if redraw_deal:  # nobody gains by answering an equilibrium
        assert all(values["equilibrium", seat].gap < 1e-3 for seat in (0, 1))


def test_what_is_too_large_says_so():
    with pytest.raises(ConfigError, match="at most 10000 positions. Choose another opponent, for example mcts_100"):
        make("openspiel:connect_four", opponent="perfect")
    with pytest.raises(ConfigError, match='equilibrium of "liars_dice.*" takes too long'):
        make("openspiel:liars_dice", opponent="equilibrium")
    assert frames("openspiel:connect_four", ["random"]) == (
        {},
        dict.fromkeys([("random", 0), ("random", 1)], "the game is too large to be walked in reasonable time"),
    )
    values, missing = frames("openspiel:tic_tac_toe", ["mcts_2"])
    assert not values and "too large" in missing["mcts_2", 0]


def test_the_evaluation_seats_whoever_the_game_knows():
    config = exam_settings(TrialConfig(env="openspiel:kuhn_poker"), ["equilibrium", "random"])
    assert [one.name for one in environment_factory(config)().seating.opponents] == ["equilibrium", "random"]


# ---- names, processes, training ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "keywords", "told"),
    [
        ("kuhn_poker", {"players": 3}, "is for 3 here, but only games for two are played: set its parameter `players`"),
        ("blackjack", {}, "is for 1 here, but only games for two are played: choose another."),
        ("negotiation", {}, "draws its chance inside itself"),
        ("kuhn_poker", {"cards": 3}, 'has no parameter "cards". It takes: players.'),
        ("kuhn_poker", {"players": "two"}, "Wrong type for parameter players"),
        ("kuhn_poker(players=2", {}, "Missing closing bracket"),
        ("matrix_rps", {"num_repetitions": 0}, "`num_repetitions` is 0, but a game is repeated 1 to 1000 times"),
        ("tic_tac_toe", {"num_repetitions": 2}, 'has no parameter "num_repetitions"'),
        ("tic_tac_toe", {"wording": "long"}, '`wording` is "long", but openspiel has paper and compact'),
        ("tic_tac_toe", {"opponent": "cfr"}, "knows random, perfect, human and mcts_<simulations>"),
        ("tic_tac_toe", {"seat": "third"}, "`seat`"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused_in_a_sentence(name, keywords, told):
    with pytest.raises(ConfigError) as caught:
        make(f"openspiel:{name}", **keywords)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_game_gets_a_suggestion():
    with pytest.raises(UnknownEnvironmentError, match=r'knows no game "tic_tac_to"\. Did you mean "tic_tac_toe"\?'):
        make("openspiel:tic_tac_to")
    with pytest.raises(UnknownEnvironmentError, match='name one that this library has, as in --env "openspiel:<id>"'):
        make("openspiel:")


def test_a_missing_package_is_one_sentence_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(ConfigError) as caught:
        make("openspiel:kuhn_poker")
    assert str(caught.value) == (
        "`--env openspiel:...` needs the package open-spiel, which is not installed: "
        'pip install -e ".[openspiel]", or pip install open-spiel.'
    )


def test_parameters_may_stand_in_the_name_and_beside_it():
    env = make("openspiel:goofspiel(num_cards=4)", imp_info=True)
    assert env.game == make("openspiel:goofspiel", num_cards=4, imp_info=True).game
    assert env.game.spec == "goofspiel(imp_info=True,num_cards=4)"


def test_a_wording_may_be_given():
    wording = Wording(play_request="Now?")
    env = make("openspiel:kuhn_poker", wording=wording)
    assert env.wording is wording and env.describe()


def test_settings_build_it_in_a_worker_process_that_answers_alike():
    config = TrialConfig(env="openspiel:leduc_poker", wording="compact")
    build = environment_factory(config)
    assert address_of(build) == "openspiel:leduc_poker"
    here = pickle.loads(pickle.dumps(build))()
    with WorkerPool(build, 1) as pool:
        there = pool()
        assert there.wording == here.wording and there.reset(seed=3) == here.reset(seed=3)
        for action in ("Raise", "call", "<", "Call", "Call"):
            parsed = [env.parse_action(f"<action>{action}</action>") for env in (here, there)]
            assert parsed[0] == parsed[1]
            results = [env.step(parsed[0]) for env in (here, there)]
            assert results[0] == results[1]
            if results[0].terminated:
                break
        there.close()


def test_a_whole_trial_is_played_and_its_pages_list_what_is_admissible():
    config = TrialConfig(env="openspiel:connect_four", num_episodes=2, max_turns=30, stop_on_success=False)
    env = environment_factory(config)
    assert isinstance(env(), GameEnvironment)
    runner, pages = TrialRunner(env, 1, 0, config), []
    while not runner.done:
        pages.append("\n".join(message["content"] for message in runner.messages()))
        answer = "<remark>x</remark>" if runner.reflecting else f"<action>{runner.admissible[-1]}</action>"
        runner.receive((), Response((), answer))
    assert runner.trial.error is None and len(runner.trial.episodes) == 2
    assert "Connect Four" in pages[0] and "Admissible actions:" in pages[0] and "You are the " in pages[0]


def test_it_trains(tmp_path, make_policy):
    result = train(
        partial(make, "openspiel:kuhn_poker", wording="compact"),
        policy=make_policy(max_position_embeddings=1024),
        output_dir=str(tmp_path),
        num_episodes=2, max_turns=2, group_size=2, tasks_per_step=1, max_new_tokens_per_turn=3, max_prompt_tokens=300,
        max_steps=1, save_steps=0, eval_steps=0, eval_tasks=1, eval_validation_tasks=1, eval_samples=0, report_to=["none"],
    )  # fmt: skip
    assert result is not None and (tmp_path / "metrics.jsonl").read_text()


def test_the_commands_of_the_page_are_understood():
    kinds = {name: [words for words in COMMANDS if name in " ".join(words)] for name in ("train_", "evaluate", "play")}
    assert [len(kind) for kind in kinds.values()] == [2, 1, 1] and len(COMMANDS) == 4
    for words in kinds["train_"]:
        config = parse_config(words[2:])
        game = environment_factory(config.trial)().game
        for entry in config.population.opponents:
            assert find_opponent(entry.partition("=")[0], game).name == entry.partition("=")[0]
    for words in kinds["evaluate"]:
        options = dict(zip(words[2::2], words[3::2], strict=True))
        config = exam_settings(TrialConfig(env=options["--env"]), shlex.split(options["--opponents"]))
        assert environment_factory(config)().game.spec == "kuhn_poker()"
    for words in kinds["play"]:
        told = play._parser().parse_args(words[3:])
        assert environment_factory(TrialConfig(env=told.env))().game.spec == "connect_four()"
