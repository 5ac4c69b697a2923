"""Games for several players: who sits where, whose chance comes from where, what an opponent may know and answer."""

import pickle
import random
import re

import pytest
from coin_game import Coins

from metarl_agents.environments.kuhn import Kuhn
from metarl_agents.environments.matrix_game import MatrixGame
from metarl_agents.environments.tictactoe import TicTacToe
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs import Environment, check_environment
from metarl_agents.envs.games import (
    Decision,
    HumanOpponent,
    Opponent,
    PolicyOpponent,
    TableOpponent,
    choose,
)
from metarl_agents.errors import ConfigError

ALL = [TicTacToe, Kuhn, MatrixGame]


class Says(Opponent):
    """Answers with one text, and remembers what it was asked."""

    def __init__(self, text, name="says"):
        self.text, self.name, self.asked = text, name, []

    def act(self, decision, rng):
        self.asked.append(decision)
        return self.text


def play(env, seed=None, choose_action=lambda actions: actions[0]):
    """Play one episode (a restart without a seed); return everything that was seen."""
    observation, info = env.restart() if seed is None else env.reset(seed=seed)
    seen = [(observation, info)]
    while info["admissible_actions"]:
        result = env.step(choose_action(info["admissible_actions"]))
        info = result.info
        seen.append(result)
    return seen


def last_choice(actions):
    return actions[-1]


# Seats and opponents.


@pytest.mark.parametrize("make", ALL)
def test_opponent_and_seat_never_change_inside_a_group(make):
    met = set()
    for seed in range(24):
        roles = set()
        for rng in (random.Random(1), random.Random(2)):
            env = make()
            for episode in range(2):
                seen = play(env, None if episode else seed, rng.choice)
                roles |= {(step[-1]["opponent"], step[-1]["seat"]) for step in seen}
        assert len(roles) == 1
        met |= roles
    assert {seat for _, seat in met} == {0, 1} and len({name for name, _ in met}) > 2


@pytest.mark.parametrize("make", ALL)
def test_the_role_has_the_form_that_a_trial_keeps(make):
    _, info = make().reset(seed=3)
    assert type(info["opponent"]) is str and type(info["seat"]) is int


def test_consecutive_tasks_take_seats_in_turn_and_opponents_by_weight():
    env = Kuhn(opponents=["conservative", "aggressive", "intermediate"], weights=[0.3, 0.3, 0.4])
    first = 2 * 2**40  # where the test tasks begin
    roles = [(role[0].name, role[1]) for role in (env.seating.of(first + number) for number in range(512))]
    assert sum(seat for _, seat in roles) == 256
    for name, share in (("conservative", 0.3), ("aggressive", 0.3), ("intermediate", 0.4)):
        for seat in (0, 1):
            assert abs(roles.count((name, seat)) - 256 * share) < 4


def test_tasks_drawn_at_random_meet_seats_and_opponents_in_their_shares():
    env, rng = Kuhn(opponents=["conservative", "equilibrium"], weights=[1, 3]), random.Random(0)
    roles = [(role[0].name, role[1]) for role in (env.seating.of(rng.randrange(2**40)) for _ in range(4000))]
    for role, share in {("conservative", 0): 0.125, ("conservative", 1): 0.125, ("equilibrium", 1): 0.375}.items():
        assert abs(roles.count(role) / 4000 - share) < 0.03


@pytest.mark.parametrize(("seat", "number"), [("first", 0), ("second", 1)])
def test_a_named_seat_is_kept(seat, number):
    env = TicTacToe(seat=seat, opponent="random")
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        assert info["seat"] == number and observation.count("O") == number
        assert env.current_player() == env.players()[number] == seat


def test_a_game_names_its_seats_and_whatever_is_no_game_has_one():
    assert TwoDoors().players() == Environment().players() == ("agent",)
    assert [make().players() for make in ALL] == [("first", "second")] * 3
    assert Coins().players() == ("left", "middle", "right")


def test_a_game_for_three_seats_everybody():
    env, roles = Coins(), set()
    for seed in range(30):
        seen = play(env, seed)
        roles.add(seen[0][1]["seat"])
        assert len(seen) == 2  # one call for the agent, whoever else calls before and after it
        payoff, others = seen[-1].info["payoff"], seen[-1].info["rewards"]
        assert len(others) == 2 and payoff + sum(others.values()) == 0
        assert seen[-1].info["success"] == (payoff > 0) and seen[-1].info["draw"] == (payoff == 0)
    assert roles == {0, 1, 2}
    assert check_environment(Coins, seeds=range(6)).warnings == ()


# Chance.


@pytest.mark.parametrize(
    "make",
    [
        lambda: Kuhn(opponent="equilibrium"),
        lambda: TicTacToe(opponent="random"),
        lambda: TicTacToe(opponent="mcts_20"),
        lambda: MatrixGame(opponent="mostly_rock"),
        lambda: Coins(),
    ],
)
def test_a_restart_replays_the_deal_and_the_opponents_chance(make):
    for seed in range(15):
        env = make()
        first = play(env, seed)
        assert play(env) == first
        play(env, choose_action=last_choice)  # other moves in between leave nothing behind
        assert play(env) == first == play(make(), seed)


def test_another_seed_gives_other_deals_and_other_chance():
    hands = {Kuhn(opponent="random", seat="second").reset(seed=seed)[0] for seed in range(60)}
    assert len(hands) == 6  # three cards, two first actions
    openings = {TicTacToe(opponent="random", seat="second").reset(seed=seed)[0] for seed in range(100)}
    assert len(openings) == 9


def test_a_redrawn_deal_is_a_function_of_seed_and_episode():
    def cards(env, seed, action):
        seen = [env.reset(seed=seed)[0]]
        for _ in range(11):
            env.step(action)
            seen.append(env.restart()[0])
        return [re.search(r"card is (.)", text)[1] for text in seen]

    env = Kuhn(opponent="equilibrium", seat="first", redraw_deal=True)
    dealt = cards(env, 5, "pass")
    assert set(dealt) == set("JQK")
    assert dealt == cards(env, 5, "bet") == cards(Kuhn(opponent="random", seat="first", redraw_deal=True), 5, "bet")
    assert dealt != cards(env, 6, "pass")
    assert len(set(cards(Kuhn(seat="first"), 5, "pass"))) == 1


def test_a_redrawn_game_changes_the_opponents_chance_and_not_its_role():
    env = TicTacToe(opponents=["random", "mcts_5"], seat="second", redraw_deal=True)
    _, info = env.reset(seed=9)
    starts = [env.restart() for _ in range(30)]
    assert len({observation for observation, _ in starts}) > 3
    assert {other["opponent"] for _, other in starts} == {info["opponent"]}


def test_chance_is_uniform_enough():
    env = Kuhn(opponent="random", seat="second")
    firsts = [env.reset(seed=seed)[0] for seed in range(1500)]
    assert abs(sum("passes" in text for text in firsts) / 1500 - 0.5) < 0.04
    for card in "JQK":
        assert abs(sum(f"card is {card}" in text for text in firsts) / 1500 - 1 / 3) < 0.04


def test_choose_follows_weights_and_never_takes_what_has_none():
    rng = random.Random(0)
    drawn = [choose([(0.0, "never"), (1.0, "one"), (3.0, "three"), (0.0, "last")], rng) for _ in range(4000)]
    assert set(drawn) == {"one", "three"} and abs(drawn.count("three") / 4000 - 0.75) < 0.03


# Moves.


@pytest.mark.parametrize("make", [*ALL, Coins])
def test_a_move_that_is_not_legal_changes_nothing_and_is_marked(make):
    env, clean = make(), make()
    env.reset(seed=4)
    before = clean.reset(seed=4)
    for nonsense in (None, "", "fold", "(9, 9)", 3, (1, 1), ("a",), object(), "\ud800", b"bet", 1e300, frozenset()):
        result = env.step(nonsense)
        assert result.info["invalid"] and not result.terminated and result.reward == 0
        assert result.observation == before[0] + env.refusal
        assert result.info["admissible_actions"] == before[1]["admissible_actions"]
    action = before[1]["admissible_actions"][-1]
    assert env.step(action) == clean.step(action)


@pytest.mark.parametrize("make", ALL)
def test_fuzzed_answers_never_raise_and_every_game_ends(make):
    rng = random.Random(0)
    pieces = ["<action>", "</action>", "bet", "pass", "rock", "(1, 2)", "(4, 4)", "paper", " ", "\n", "3", "\u0661"]
    for seed in range(40):
        env = make(wording=rng.choice(["paper", "compact"]))
        _, info = env.reset(seed=seed)
        for _ in range(40):
            action = env.parse_action("".join(rng.choices(pieces, k=rng.randrange(9))))
            if action is None:
                continue
            result = env.step(action if rng.random() < 0.5 else rng.choice(info["admissible_actions"]))
            info = result.info
            assert result.info["success"] in (True, False)
            if result.terminated:
                break


def test_what_is_done_at_the_wrong_time_is_refused_with_the_way_out():
    env = Kuhn()
    for call in (lambda: env.step("bet"), env.restart, env.awaited, lambda: env.observe("first")):
        with pytest.raises(RuntimeError, match=r"Call `reset\(seed=...\)` first"):
            call()
    play(env, 0)
    with pytest.raises(RuntimeError, match="Call `reset` or `restart` before the next `step`"):
        env.step("bet")
    with pytest.raises(RuntimeError, match="only while `awaited`"):
        env.reply("bet")
    late = Kuhn(seat="second")
    late.deal(seed=0)
    with pytest.raises(RuntimeError, match="opponent's turn"):
        late.submit("bet")


# Opponents.


def test_an_opponent_may_answer_with_a_whole_text():
    env = Kuhn(opponent=Says("Strong card, so <action>Bet</action>"), seat="second")
    observation, info = env.reset(seed=0)
    assert (
        observation.endswith("the other player bets.") and info["opponent_invalid"] == 0 and info["opponent"] == "says"
    )


@pytest.mark.parametrize("answer", ["fold", "", None, 7, "<action>raise</action>"])
def test_an_opponents_unusable_answer_becomes_a_seeded_legal_move_and_is_counted(answer):
    moves = []
    for _ in range(2):
        env = TicTacToe(opponent=Says(answer), seat="second")
        moves.append([env.reset(seed=seed)[0] for seed in range(30)])
        assert env.step("(2, 2)").info["opponent_invalid"] in (1, 2)
    assert moves[0] == moves[1] and len(set(moves[0])) > 5


def test_an_opponent_reads_its_own_side_and_nothing_hidden():
    for seed in range(40):
        spy = Says("pass")
        env = Kuhn(opponent=spy, seat="second")
        env.reset(seed=seed)
        (decision,) = spy.asked
        assert decision.seat == 0 and decision.legal == ("pass", "bet") and decision.rules == env.describe()
        card = decision.information.card
        assert decision.observation == f"You act first. Your card is {card}. Actions so far: none."
        own = re.search(r"card is (.)", env.observe("second"))[1]
        assert own != card and env._state.cards == (card, own)
    rps = Says("rock")
    env = MatrixGame(opponent=rps, seat="first")
    texts = set()
    for action in ("rock", "paper", "scissors"):
        env.reset(seed=0)
        env.step(action)
        texts.add((rps.asked[-1].observation, rps.asked[-1].information))
    assert len(texts) == 1  # what the agent has just chosen is not shown


def test_the_parts_of_a_step_do_what_a_step_does():
    for seed in range(20):
        whole = play(TicTacToe(opponent="prefers_centre"), seed)
        env = TicTacToe(opponent=Says("never asked", name="prefers_centre"))
        env.deal(seed=seed)
        script = TicTacToe(opponent="prefers_centre").seating.opponents[0]

        def answer_all(env=env, script=script):
            while (decision := env.awaited()) is not None:
                env.reply(script.act(decision, random.Random(0)))
            return env.outcome()

        seen = [answer_all()]
        while not seen[-1].terminated:
            env.submit(seen[-1].info["admissible_actions"][0])
            seen.append(answer_all())
        assert (seen[0].observation, seen[0].info) == whole[0] and seen[1:] == whole[1:]


def test_players_see_their_own_side_and_may_move_in_their_turn_only():
    env = TicTacToe(opponent="prefers_centre", seat="first")
    env.reset(seed=0)
    env.step("(1, 1)")
    assert env.observe("first") == "X . .\n. O .\n. . ." and env.observe("second") == "O . .\n. X .\n. . ."
    assert len(env.legal_actions("first")) == 7 and env.legal_actions("second") == []


def test_a_human_is_asked_until_the_answer_is_legal():
    answers, pages = iter(["raise", " bet "]), []
    human = HumanOpponent(lambda page: (pages.append(page), next(answers))[1])
    observation, info = Kuhn(opponent=human, seat="second").reset(seed=0)
    assert observation.endswith("the other player bets.") and info["opponent"] == "human"
    assert (
        "[pass | bet], for example pass: " in pages[0]
        and '"raise" cannot be played' in pages[1]
        and "Your card is" in pages[1]
    )
    assert {make(opponent="human").seating.opponents[0].name for make in ALL} == {"human"}


@pytest.mark.parametrize(
    ("make", "typed", "meant"),
    [
        (TicTacToe, ["(2, 2)", "2,2", "(2,2)", "2 2", " (2 , 2)", "<action>(2, 2)</action>"], "(2, 2)"),
        (Kuhn, ["bet", "Bet", " BET. ", "<action>bet</action>"], "bet"),
        (MatrixGame, ["paper", "Paper", "PAPER!"], "paper"),
    ],
)
@pytest.mark.parametrize("knows_the_game", [True, False])
def test_a_human_may_answer_as_a_model_may_or_in_plain_words_and_numbers(make, typed, meant, knows_the_game):
    env = make(opponent="random", seat="first")
    env.deal(seed=0)
    state = env.game.deals()[0][1]
    decision = Decision(0, env.game.information(state, 0), env.game.legal_actions(state))
    for text in typed:
        answers = iter([text, "cannot be asked again"])
        human = HumanOpponent(lambda page, left=answers: next(left), parse=env.parse_action if knows_the_game else None)
        assert human.act(decision, random.Random(0)) == meant


def test_what_a_human_is_told_to_type_for_example_is_accepted():
    class Odd(Kuhn):
        def parse_action(self, text):
            return None  # reads nothing, as for a game with a form of its own

    for legal, example in ((("(1, 2)", "(1, 3)"), "1 2"), (("-1", "1"), "-1"), (("A", "a"), "A"), (("Up",), "up")):
        pages, answers = [], iter(["", "???", example])
        human = HumanOpponent(lambda page, p=pages, a=answers: (p.append(page), next(a))[1], parse=Odd().parse_action)
        assert human.act(Decision(0, "", legal), random.Random(0)) == legal[0]
        assert pages[0].endswith(f"for example {example}: ") and len(pages) == 3


def test_a_table_fills_its_gaps_with_uniform_play():
    table = TableOpponent("table", {"here": {"bet": 1.0}})
    assert table.probabilities(Decision(0, "here", ("pass", "bet"))) == {"bet": 1.0}
    assert table.probabilities(Decision(0, "there", ("pass", "bet"))) == {"pass": 0.5, "bet": 0.5}
    assert PolicyOpponent("x", lambda d: {d.legal[1]: 1.0}).act(Decision(0, "", ("a", "b")), random.Random(0)) == "b"


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_what_goes_to_another_process_can_be_sent(make, wording):
    env = make(wording=wording)
    result = env.reset(seed=1)
    assert pickle.loads(pickle.dumps((env.wording, env.game, result))) == (env.wording, env.game, result)


@pytest.mark.parametrize("make", ALL)
def test_wrong_settings_are_refused_with_the_way_out(make):
    for keywords, message in [
        ({"opponent": "nobody"}, '`opponent` is "nobody", but .* knows .*Name one of them'),
        ({"opponent": 5}, "5 was given as an opponent in .*a method `act`"),
        ({"opponents": ["random", print]}, "was given as an opponent"),
        ({"opponents": []}, "`opponents` is empty.*Name at least one"),
        ({"opponents": "random"}, "a list of names is expected. Name one as `opponent`"),
        ({"opponents": ["random", "random"]}, "one of them twice. Use `weights`"),
        ({"opponents": ["random"], "weights": [1, 2]}, r"`weights` is \[1, 2\], but 1 positive numbers"),
        ({"opponents": ["random"], "weights": [0]}, "positive numbers"),
        ({"opponents": ["random"], "weights": [float("nan")]}, "positive numbers"),
        ({"opponent": "random", "weights": [1]}, "were both given"),
        ({"opponent": "random", "opponents": ["random"]}, "were both given"),
        ({"weights": [1]}, "`opponents` is None, but a list"),
        ({"seat": "third"}, '`seat` is "third", but .* has first, second and mixed'),
        ({"wording": "long"}, '`wording` is "long"'),
    ]:
        with pytest.raises(ConfigError, match=message):
            make(**keywords)
