"""Kuhn poker: rules, OpenSpiel move for move, closed forms of exact play, nothing hidden in any text, the player."""

import random
import re
from dataclasses import dataclass
from itertools import product

import pytest

from metarl_agents.config import Config, TrialConfig
from metarl_agents.environments.kuhn import Kuhn
from metarl_agents.environments.kuhn.equilibrium import (
    VALUE,
    best_response_table,
    cfr,
    equilibrium,
    likeliest,
    policy_of,
)
from metarl_agents.environments.kuhn.game import BET, CARDS, PASS, Hand, Known, KuhnGame, information_sets
from metarl_agents.environments.kuhn.opponents import CHARACTERS, find_opponent
from metarl_agents.environments.kuhn.player import KuhnPlayer, read_hand
from metarl_agents.envs import check_environment
from metarl_agents.envs.games import Decision, PolicyOpponent
from metarl_agents.envs.games.exact import best_response, deal_ceiling, policy_values
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.evaluate import evaluate
from metarl_agents.rollout.collect import collect_trials
from metarl_agents.rollout.opponents import SeatedEnvironments
from metarl_agents.types import Episode, Phase, Response, Turn

GAME = KuhnGame()
ALPHAS = [0, 0.05, 1 / 6, 0.3, 1 / 3]


@pytest.fixture(scope="module")
def pyspiel():
    return pytest.importorskip("pyspiel", reason='OpenSpiel is not installed: pip install -e ".[openspiel]"')


def hands():
    """Every state of the game."""
    pending = [state for _, state in GAME.deals()]
    for state in pending:
        pending += [GAME.play(state, action) for action in GAME.legal_actions(state)]
    return pending


def policy(name):
    return find_opponent(name).probabilities


# Rules.


def test_there_are_six_deals_54_states_and_12_information_sets():
    states = hands()
    assert len(GAME.deals()) == 6 and sum(share for share, _ in GAME.deals()) == pytest.approx(1)
    assert len(states) == 6 * 9
    turns = [(GAME.current_player(state), state) for state in states]
    known = {GAME.information(state, seat) for seat, state in turns if seat is not None}
    assert len(known) == 12 and known == {*information_sets(0), *information_sets(1)}


@pytest.mark.parametrize(
    ("actions", "high", "low"),
    [
        ((PASS, PASS), (1, -1), (-1, 1)),
        ((BET, PASS), (1, -1), (1, -1)),
        ((BET, BET), (2, -2), (-2, 2)),
        ((PASS, BET, PASS), (-1, 1), (-1, 1)),
        ((PASS, BET, BET), (2, -2), (-2, 2)),
    ],
)
def test_payoffs_of_the_five_endings(actions, high, low):
    for first in CARDS:
        for second in set(CARDS) - {first}:
            hand = Hand((first, second), actions)
            assert GAME.current_player(hand) is None and GAME.legal_actions(hand) == ()
            assert GAME.payoffs(hand) == (high if CARDS.index(first) > CARDS.index(second) else low)


def test_every_hand_is_as_in_openspiel(pyspiel):
    game, checked = pyspiel.load_game("kuhn_poker"), 0
    for _, deal in GAME.deals():
        theirs = game.new_initial_state()
        for card in deal.cards:
            assert theirs.is_chance_node()
            theirs.apply_action(CARDS.index(card))
        pending = [(deal, theirs)]
        while pending:
            state, theirs = pending.pop()
            checked += 1
            seat = GAME.current_player(state)
            assert theirs.is_terminal() == (seat is None)
            assert tuple(theirs.returns()) == GAME.payoffs(state)
            names = [theirs.action_to_string(action).lower() for action in theirs.legal_actions()]
            assert names == list(GAME.legal_actions(state))
            for own in (0, 1):
                known = GAME.information(state, own)
                short = "".join(action[0] for action in known.actions)
                assert theirs.information_state_string(own) == f"{CARDS.index(known.card)}{short}"
            if seat is not None:
                assert theirs.current_player() == seat
                pending += [(GAME.play(state, name), theirs.child(number)) for number, name in enumerate(names)]
    assert checked == 54


# Exact play.


@pytest.mark.parametrize("alpha", ALPHAS)
def test_an_equilibrium_is_worth_minus_an_eighteenth_and_cannot_be_exploited(alpha):
    mix = policy_of(equilibrium(alpha))
    assert policy_values(GAME, [mix, mix]) == pytest.approx((VALUE, -VALUE)) and pytest.approx(-1 / 18) == VALUE
    assert best_response(GAME, mix, 0).value == pytest.approx(VALUE)
    assert best_response(GAME, mix, 1).value == pytest.approx(-VALUE)
    assert sorted(equilibrium(alpha)) == sorted([*information_sets(0), *information_sets(1)])


def test_whatever_is_no_equilibrium_can_be_exploited():
    table = equilibrium(1 / 6)
    for known in table:
        for chance in (0.0, 0.5, 1.0):
            changed = {**table, known: {PASS: 1 - chance, BET: chance}}
            gains = [best_response(GAME, policy_of(changed), seat).value for seat in (0, 1)]
            assert gains[0] >= VALUE - 1e-12 and gains[1] >= -VALUE - 1e-12
    folds_the_king = {**table, Known("K", (PASS, BET)): {PASS: 1.0}}
    assert best_response(GAME, policy_of(folds_the_king), 1).value > -VALUE + 0.1
    for wrong in (-0.01, 0.34):
        with pytest.raises(ConfigError, match="0 to 1/3"):
            equilibrium(wrong)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # By hand, first seat against whoever bets with K alone, in chips over two deals for each card: J bets and
        # earns 1 - 2, Q passes, folds to a bet, and earns 1 - 1, K earns 1 + 1. Together 1 in six deals.
        ("conservative", (1 / 6, 1 / 3)),
        ("aggressive", (1 / 3, 1 / 3)),
        ("intermediate", (1 / 3, 1 / 6)),
        ("random", (1 / 2, 5 / 12)),
    ],
)
def test_best_responses_to_the_characters(name, values):
    assert tuple(best_response(GAME, policy(name), seat).value for seat in (0, 1)) == pytest.approx(values)


def brute_force(opponent, seat, deals):
    """Return the value of the best of all 64 pure plans of a seat."""
    best = -9.0
    for plan in range(64):
        table = {known: {(PASS, BET)[plan >> number & 1]: 1.0} for number, known in enumerate(information_sets(seat))}
        policies = [opponent, opponent]
        policies[seat] = policy_of(table)

        class Dealt(KuhnGame):
            def deals(self):
                return deals

        best = max(best, policy_values(Dealt(), policies)[seat])
    return best


@pytest.mark.parametrize("name", ["conservative", "intermediate", "cfr"])
def test_best_responses_equal_the_best_of_all_plans(name):
    opponent = policy(name)
    for seat in (0, 1):
        assert best_response(GAME, opponent, seat).value == pytest.approx(brute_force(opponent, seat, GAME.deals()))
        known_deals = [brute_force(opponent, seat, [(1.0, state)]) for _, state in GAME.deals()]
        assert deal_ceiling(GAME, opponent, seat) == pytest.approx(sum(known_deals) / 6)


@pytest.mark.parametrize(
    ("name", "deals"), [("conservative", (4, 4)), ("aggressive", (3, 3)), ("intermediate", (4, 3))]
)
def test_so_many_of_six_deals_can_be_won_by_who_knows_them(name, deals):
    shares = [deal_ceiling(GAME, policy(name), seat, worth=lambda payoff: payoff > 0) for seat in (0, 1)]
    assert [6 * share for share in shares] == pytest.approx(deals)


def test_the_environment_counts_the_same_deals():
    for name, seat, deals in (("conservative", "first", 4), ("aggressive", "second", 3), ("intermediate", "second", 3)):
        env, winnable = Kuhn(opponent=name, seat=seat), {}
        for seed in range(80):
            env.reset(seed=seed)
            winnable[env._state.cards] = env.min_turns() <= 2
        assert len(winnable) == 6 and sum(winnable.values()) == deals
    env = Kuhn(redraw_deal=True)
    env.reset(seed=0)
    assert env.min_turns() is None


def test_cfr_comes_close_to_an_equilibrium_and_closer_with_time():
    def exploitability(table):
        return sum(best_response(GAME, policy_of(table), seat).value for seat in (0, 1))

    few, many = exploitability(cfr(10)), exploitability(cfr(1000))
    assert 0 <= many < 0.02 and many < few / 3
    mix = policy_of(cfr(1000))
    assert policy_values(GAME, [mix, mix])[0] == pytest.approx(VALUE, abs=0.01)
    assert set(likeliest(cfr(1000))) == set(cfr(1000))
    with pytest.raises(ConfigError, match="`iterations` is 0"):
        cfr(0)


def test_exploitability_is_as_openspiel_computes_it(pyspiel):
    openspiel_policy = pytest.importorskip("open_spiel.python.policy")
    exploitability = pytest.importorskip("open_spiel.python.algorithms.exploitability")
    game = pyspiel.load_game("kuhn_poker")
    for table in (cfr(100), equilibrium(0.2), CHARACTERS["aggressive"]):
        theirs = openspiel_policy.TabularPolicy(game)
        for known, row in table.items():
            key = f"{CARDS.index(known.card)}{''.join(action[0] for action in known.actions)}"
            theirs.policy_for_key(key)[:] = [row.get(PASS, 0.0), row.get(BET, 0.0)]
        ours = sum(best_response(GAME, policy_of(table), seat).value for seat in (0, 1))
        assert ours == pytest.approx(exploitability.nash_conv(game, theirs), abs=1e-9)


def test_a_best_response_opponent_earns_the_best_response():
    for name in ("random", "conservative", "cfr"):
        answer = policy(f"best_response_to_{name}")
        for seat in (0, 1):
            policies = [policy(name)] * 2
            policies[seat] = answer
            assert policy_values(GAME, policies)[seat] == pytest.approx(best_response(GAME, policy(name), seat).value, abs=1e-6)  # fmt: skip
    assert set(best_response_table(policy("conservative"))) == {*information_sets(0), *information_sets(1)}
    assert find_opponent("best_response_to_random").name == "best_response_to_random"


@pytest.mark.parametrize("name", ["best_response_to_human", "best_response_to_nobody", "best_response_to_"])
def test_a_best_response_to_whom_nobody_can_compute_is_refused(name):
    with pytest.raises(ConfigError, match="Kuhn poker knows"):
        find_opponent(name)


def test_characters_do_what_they_are_called():
    def does(name, card, *actions):
        seat = len(actions) % 2
        return find_opponent(name).act(Decision(seat, Known(card, actions), (PASS, BET)), random.Random(0))

    for actions in ((), (PASS,), (BET,), (PASS, BET)):
        assert [does("conservative", card, *actions) for card in CARDS] == [PASS, PASS, BET]
        faces = BET in actions
        assert [does("aggressive", card, *actions) for card in CARDS] == ([PASS, BET, BET] if faces else [BET] * 3)
        assert [does("intermediate", card, *actions) for card in CARDS] == [PASS, PASS if faces else BET, BET]


# The environment.


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("keywords", [{}, {"opponent": "cfr"}, {"opponent": "equilibrium", "seat": "first"}])
def test_it_keeps_the_contract(wording, keywords):
    report = check_environment(lambda: Kuhn(wording=wording, **keywords), seeds=range(8))
    assert report.warnings == () and report.episodes_ended == 8


def test_rewards_are_five_for_a_chip():
    endings, env, rng = set(), Kuhn(opponent="random"), random.Random(0)
    for seed in range(150):
        _, info = env.reset(seed=seed)
        while info["admissible_actions"]:
            _, reward, terminated, _, info = env.step(rng.choice(info["admissible_actions"]))
            assert terminated or reward == 0
        assert reward == 5 * info["payoff"] and info["success"] == (reward > 0) and not info["draw"]
        endings.add(reward)
    assert endings == {-10.0, -5.0, 5.0, 10.0}


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>BET</action>", "bet"),
        ("<action> pass </action>", "pass"),
        ("<action>I bet</action>", None),
        ("<action>call</action>", None),
        ("bet", None),
    ],
)
def test_parse_action(text, action):
    assert Kuhn().parse_action(text) == action


@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_no_text_depends_on_the_other_players_card(wording):
    env, seen = Kuhn(wording=wording), {}
    for state in hands():
        for seat in (0, 1):
            text = env.show(state, seat)
            assert set(re.findall(r"\b[JQK]\b", text)) == {state.cards[seat]}
            over = GAME.current_player(state) is None
            key = (seat, GAME.information(state, seat), GAME.payoffs(state) if over else None)
            assert seen.setdefault(key, text) == text
    assert len(set(seen.values())) == len(seen)  # and it tells all that the player knows


def says(action):
    """Answer a page of either wording: with one action, or with a remark."""
    return lambda page: "<remark>hm</remark>" if re.search("remember|<remark>", page) else f"<action>{action}</action>"


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("opponent", ["aggressive", "random"])
def test_pages_of_play_and_reflection_show_what_the_player_knew(scripted_speaker, opponent, wording):
    config = TrialConfig(num_episodes=3, stop_on_success=False, max_turns=6, memory="both")
    hidden, rules = set(), Kuhn(wording=wording).describe()
    for seed in range(12):
        made = []

        def make_env(made=made):
            made.append(Kuhn(opponent=opponent, wording=wording))
            return made[-1]

        speaker = scripted_speaker(says("bet"))
        (trial,) = collect_trials(speaker, make_env, [seed], config, group_size=1, max_prompt_tokens=9999)
        assert len(trial.episodes) == 3 and trial.episodes[0].reflection is not None
        own = made[0]._state.cards[made[0]._seat]
        assert all(set(re.findall(r"\b[JQK]\b", page.removeprefix(rules))) == {own} for page in speaker.pages)
        hidden.add(made[0]._state.cards)
    assert len(hidden) > 3


@dataclass(frozen=True)
class Dealt(KuhnGame):
    """Kuhn poker in which one deal is certain."""

    cards: tuple[str, str] = ("J", "Q")

    def deals(self):
        return ((1.0, Hand(self.cards)),)


class Reader:
    """A policy that gives one answer and remembers every page."""

    context_length = None

    def __init__(self, action):
        self.answer, self.pages = says(action), []

    def encode(self, messages):
        return tuple(messages[0]["content"].encode())

    def generate(self, prompts, *_, **__):
        pages = [bytes(prompt).decode() for prompt in prompts]
        self.pages += pages
        return [Response((1,), self.answer(page)) for page in pages]


def pages_of(cards, seat, answers, action, wording, path):
    """Return all pages that the agent reads in one trial of a deal, and its payoffs, against who sees no card."""

    def make_env():
        blind = PolicyOpponent("blind", lambda decision: answers)
        env = Kuhn(opponent=blind, seat=("first", "second")[seat], wording=wording)
        env.game = Dealt(cards)
        return env

    settings = {"env": "kuhn", "num_episodes": 3, "stop_on_success": False, "max_turns": 6, "memory": "both"}
    config, reader = Config.from_flat(settings | {"max_prompt_tokens": 9999}), Reader(action)
    if path == "evaluation":
        result = evaluate(reader, make_env, config, num_tasks=1)
        return reader.pages, result.meta["games"]["rows"][0]["payoffs"]
    build = SeatedEnvironments(make_env, [(make_env().seating.opponents[0], seat)])
    (trial,) = collect_trials(reader, build, [5], config.trial, group_size=1, max_prompt_tokens=9999)
    return reader.pages, [episode.reward / 5 for episode in trial.episodes]


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("path", ["training", "evaluation"])
def test_whole_pages_are_alike_whichever_card_the_other_player_holds(wording, path):
    alike = 0
    for own, seat, action in product(CARDS, (0, 1), (PASS, BET)):
        for answers in ({PASS: 1.0}, {BET: 1.0}, {PASS: 0.5, BET: 0.5}):
            others = [card for card in CARDS if card != own]
            deals = [(own, card) if seat == 0 else (card, own) for card in others]
            told = [pages_of(cards, seat, answers, action, wording, path) for cards in deals]
            assert all(len(payoffs) == 3 for _, payoffs in told) and len(told[0][0]) >= 5
            assert told[0][0][0] == told[1][0][0], "before the hand is over nothing can tell them apart"
            if told[0][1] == told[1][1]:
                alike += 1
                assert told[0][0] == told[1][0], "play, reflection, and what later hands read"
            else:  # shown by what was won, and by nothing else
                assert own == "Q"
    assert alike >= 24, "with the lowest and the highest card the other one never matters"


def test_the_rules_tell_whether_the_deal_comes_again():
    assert "same cards are dealt again" in Kuhn().describe() and "new cards" in Kuhn(redraw_deal=True).describe()
    assert Kuhn(wording="compact").describe() == ""


def test_one_chip_is_not_chips():
    env = Kuhn(opponent="aggressive", seat="second")
    assert "1 chip." in env.show(Hand(("K", "J"), (BET, PASS)), 1)
    assert "you lose 2 chips." in env.show(Hand(("K", "J"), (BET, BET)), 1)
    assert env.show(Hand(("K", "J"), (PASS, BET)), 0) == (
        "You act first. Your card is K. Actions so far: you pass, the other player bets."
    )
    assert Kuhn(wording="compact").show(Hand(("K", "J"), (PASS, BET, BET)), 0) == "first K: pass bet bet won 2"


# The scripted player.


@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_the_player_reads_every_hand(wording):
    env, player, rng = Kuhn(wording=wording), KuhnPlayer(), random.Random(0)
    for state in hands():
        seat = GAME.current_player(state)
        if seat is not None:
            card, faces = read_hand(env.show(state, seat))
            assert (card, faces) == (state.cards[seat], BET in state.actions)
            player.start_episode([], rng)
            assert env.parse_action(player.act(env.show(state, seat), rng)) in (PASS, BET)


def played(*actions):
    return [Turn(Phase.PLAY, "", (), Response((), ""), action, action, 0.0) for action in actions]


def test_the_players_remark_tells_its_card_its_actions_and_what_they_earned():
    rng, player = random.Random(0), KuhnPlayer()
    for final, actions, remark in (
        ("first Q: bet bet lost 2", [BET], "Q bet lost 2"),
        ("first K: pass bet bet won 2", [PASS, BET], "K pass bet won 2"),
        (
            "You act second. Your card is J. Actions so far: the other player bets, you pass. The hand is over: you lose 1.",
            [PASS],
            "J pass lost 1",
        ),
        ("first Q:", [], "Q"),  # nothing readable was answered
    ):
        assert player.reflect(Episode("", played(*actions), final), rng) == f"<remark>{remark}</remark>"


@pytest.mark.parametrize(
    ("remarks", "page", "expected"),
    [
        (["Q bet won 1"], "first Q:", BET),  # repeats what has won
        (["Q bet lost 2"], "first Q:", PASS),  # not what has lost
        (["Q pass pass lost 1", "Q bet lost 2"], "first Q:", PASS),  # of two that lost, the smaller loss
        (["Q pass pass lost 1", "Q bet lost 2"], "first Q: pass bet", PASS),  # to its end
        (["Q pass bet won 2", "Q pass pass lost 1"], "first Q: pass bet", BET),
        (["J bet won 1", "J pass lost 1"], "last J: bet", BET),
        (["J pass lost 1"], "You act second. Your card is J. Actions so far: the other player bets.", BET),
    ],
)
def test_the_player_that_heeds_repeats_its_best_line_and_leaves_one_that_lost(remarks, page, expected):
    rng, player = random.Random(0), KuhnPlayer(heed=1)
    player.start_episode(remarks, rng)
    assert {player.act(page, rng) for _ in range(20)} == {f"<action>{expected}</action>"}


def test_a_remark_about_another_card_or_another_line_says_nothing():
    rng, player = random.Random(0), KuhnPlayer(heed=1)
    for remarks, page in ((["K pass lost 1"], "first Q:"), (["Q bet lost 2"], "first Q: pass bet")):
        player.start_episode(remarks, rng)
        assert len({player.act(page, rng) for _ in range(60)}) == 2


def test_heeding_wins_more_hands():
    def share_won(player):
        env, rng, won = Kuhn(), random.Random(1), 0
        for seed in range(200):
            remarks, success = [], False
            for _ in range(3):
                observation, info = env.reset(seed=seed)
                player.start_episode(remarks, rng)
                turns = []
                while info["admissible_actions"]:
                    text = player.act(observation, rng)
                    action = env.parse_action(text)
                    turns.append(Turn(Phase.PLAY, observation, (), Response((), text), action, action, 0.0))
                    observation, *_, info = env.step(action)
                success = info["success"]
                remarks.append(player.reflect(Episode("", turns, observation), rng))
            won += success
        return won / 200

    assert share_won(KuhnPlayer(heed=1)) > share_won(KuhnPlayer(heed=0)) + 0.05
