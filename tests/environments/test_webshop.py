"""WebShop as an environment: the seed is the task, nothing hidden is shown, answers are read."""

import json
import os
import random
import re
import subprocess
import sys
import time

import pytest

pytest.importorskip("bm25s", reason="needs the webshop extra")
pytest.importorskip("rapidfuzz", reason="needs the webshop extra")

from webshop_visits import SHOWN, play

from metarl_agents.environments.webshop import WebShop
from metarl_agents.environments.webshop.pages import shorten
from metarl_agents.environments.webshop.player import WebShopPlayer
from metarl_agents.envs import check_environment
from metarl_agents.errors import ConfigError
from metarl_agents.rollout.tasks import evaluation_seeds

# Preset -> (goals, product and text of goal 0) with 100 products; part of the promise that old results stay comparable.
GOLDEN = {
    "tiny": (400, "B0BPMY295L", "quiet bed with color: black, and size: big, and price lower than 40.00 dollars"),
    "easy": (
        633,
        "B0PR2KCX2M",
        "find me a bag of ground coffee with decaffeinated and single origin with roaster: old mill, and size: 3 pound, and price lower than 60.00 dollars",
    ),
    "medium": (
        708,
        "B0H8CRP3LL",
        "find me a television with matte screen that draws little power with screen size: 32 inch kitchen, and style: industrial, and price lower than 630.00 dollars",
    ),
    "hard": (
        475,
        "B0BPMY295L",
        "find me a pair of running shoes that props up the middle of the foot, moulds to my feet and grips wet pavement with color: teal, and shoe size: 11, and price lower than 90.00 dollars",
    ),
}


# Contract and tasks.


class Unlisted(WebShop):
    """The same shop with no listed actions, so that the checker plays with the scripted player."""

    def reset(self, *, seed):
        return super().reset(seed=seed)[0], {}

    def step(self, action):
        result = super().step(action)
        return result._replace(info={"success": result.info["success"]})


@pytest.mark.parametrize("settings", SHOWN, ids=lambda settings: "-".join(settings.values()))
def test_it_keeps_the_contract(settings):
    played = check_environment(lambda: Unlisted(num_products=100, **settings), seeds=(0, 1, 2), max_turns=12)
    assert played.warnings == () and played.episodes_ended == 3
    # Whoever draws from the list searches for its placeholder and never comes to an end; the player does.
    listed = check_environment(lambda: WebShop(num_products=100, **settings), seeds=(0, 1), max_turns=12)
    assert listed.warnings == () and listed.episodes_ended == 1


SHOP_PRINT = """
from metarl_agents.environments.webshop.env import open_shop
for kind in ("synthetic", "human"):
    shop = open_shop(None, 120, "hard", 3, kind, "webshop", "words")
    for goal in (shop.goals[index] for index in range(60)):
        print((goal.text, goal.product.asin, goal.product.price, goal.bound, shop.search.find(goal.text)[:5]))
"""


def test_goals_prices_and_results_are_the_same_in_another_process(capsys):
    env = {**os.environ, "PYTHONHASHSEED": "4242"}
    out = subprocess.run([sys.executable, "-c", SHOP_PRINT], env=env, capture_output=True, text=True, check=True).stdout
    exec(SHOP_PRINT, {})
    assert out == capsys.readouterr().out and len(out.splitlines()) == 120


def test_golden_goals():
    found = {}
    for preset in ("tiny", "easy", "medium", "hard"):
        goals = WebShop(num_products=100, preset=preset)._shop.goals
        found[preset] = (len(goals), goals[0].product.asin, goals[0].text)
    assert found == GOLDEN


def test_the_same_goal_comes_back_after_a_purchase_and_in_the_middle():
    env = WebShop(num_products=100)
    first, _ = env.reset(seed=9)
    for _ in range(2):
        score, seen = play(env, WebShopPlayer(), 9, random.Random(0))
        assert seen[-1].startswith("You bought ") and seen[0] == first
        assert env.restart()[0] == first
        env.step("search[lamp]")
        assert env.restart()[0] == first


def test_after_the_end_a_step_raises_and_before_the_start_too():
    env = WebShop(num_products=100)
    with pytest.raises(RuntimeError, match=r"Call `reset\(seed=...\)` first"):
        env.step("search[lamp]")
    play(env, WebShopPlayer(), 0, random.Random(0))
    with pytest.raises(RuntimeError, match="Call `reset` or `restart`"):
        env.step("search[lamp]")


def test_two_objects_share_the_shop_and_nothing_else():
    one, two = WebShop(num_products=100), WebShop(num_products=100)
    one.reset(seed=0), two.reset(seed=1)
    assert one._shop is two._shop
    before = two.step("search[lamp]").observation
    one.step("search[sofa]")
    two.restart()
    assert two.step("search[lamp]").observation == before


# Text in and out.


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>search[red shoes]</action>", "search[red shoes]"),
        ("<action> Click[Buy Now] </action>", "click[buy now]"),
        ("<action>click[size [us]]</action>", "click[size [us]]"),
        ("<action>search[a]</action> no <action>click[b]</action>", "click[b]"),
        ("<action>click[  two\n  words ]</action>", "click[two words]"),
        ("<action>click[4 [pack]</action>", "click[4 [pack]"),
        ("<action>click[4] pack]</action>", "click[4] pack]"),
        ("<action>click[a] click[b]</action>", None),
        ("<action>search[a] and then [b]</action>", None),
        ("<action>click[]</action>", None),
        ("<action>click[ ]</action>", None),
        ("<action>click[a</action>", None),
        ("<action>buy[a]</action>", None),
        ("<action>please click[a]</action>", None),
        ("click[a]", None),
        ("<action>[a]</action>", None),
    ],
)
def test_parse_action(text, action):
    assert WebShop(num_products=100).parse_action(text) == action


def test_parse_action_never_raises_and_step_takes_whatever_it_lets_through():
    env, rng = WebShop(num_products=100), random.Random(0)
    env.reset(seed=0)
    pieces = ["<action>", "</action>", "search", "click", "[", "]", "[[", "red", " ", "\n", "<think>", "</think>"]
    pieces += ["buy now", "< prev", "\u0130", "\ud800", "\x00", "{", "%s", "back to search"]
    read = 0
    for _ in range(3000):
        text = "".join(rng.choices(pieces, k=rng.randrange(8)))
        text = f"<action>{rng.choice(['search[', 'click[', ''])}{text}]</action>" if rng.random() < 0.7 else text
        action = env.parse_action(text)
        if action is not None:
            read += 1
            assert re.fullmatch(r"(search|click)\[.+\]", action, flags=re.DOTALL)
            if env.step(action).terminated:
                env.restart()
    assert read > 200


def test_what_is_listed_is_what_can_be_done():
    env, rng = WebShop(num_products=100), random.Random(1)
    for seed in range(15):
        observation, info = env.reset(seed=seed)
        assert info["admissible_actions"] == ["search[<your query>]"]
        for turn in range(20):
            listed = info["admissible_actions"]
            action = rng.choice(listed[1:] or listed) if turn else f"search[{env._visit.goal.product.title.lower()}]"
            before = (env._visit.page, env._visit.number, env._visit.product, dict(env._visit.chosen))
            observation, _, over, _, info = env.step(env.parse_action(f"<action>{action}</action>"))
            after = (env._visit.page, env._visit.number, env._visit.product, dict(env._visit.chosen))
            assert over or before != after or before[3], f"{action} did nothing"
            if over:
                assert info["admissible_actions"] == []
                break


def lamp_found(folder, name, *values):
    """A shop with one lamp, whose option `name` has these values, after a search for it."""
    record = {
        "asin": "B1", "name": "Lamp", "query": "lamp", "product_category": "a › b", "pricing": "$5",
        "customization_options": {name: [{"value": value} for value in values]},
    }  # fmt: skip
    (folder / "items_shuffle.json").write_text(json.dumps([record]))
    (folder / "items_ins_v2.json").write_text(
        json.dumps({"B1": {"attributes": ["x"], "instruction": "a lamp", "instruction_attributes": ["x"]}})
    )
    env = WebShop(data_dir=str(folder), split="test")
    env.reset(seed=0)
    env.step("search[lamp]")
    return env


def test_values_with_a_slash_can_be_clicked_as_shown(tmp_path):
    env = lamp_found(tmp_path, "Color", "Red / White")
    info = env.step("click[b1]").info
    assert "click[red | white]" in info["admissible_actions"]
    env.step(env.parse_action("<action>click[Red | White]</action>"))
    assert env.step("click[buy now]")[1:4] == (10.0, True, False)


def test_values_with_half_a_bracket_can_be_clicked_as_listed(tmp_path):
    env = lamp_found(tmp_path, "Count", "4 [Pack", "4] pack", "a] click[b")
    listed = env.step("click[b1]").info["admissible_actions"]
    assert listed[-2:] == ["click[4 [pack]", "click[4] pack]"], "what no answer can name is not listed"
    for action in listed[-2:]:
        env.step(env.parse_action(f"<action>{action}</action>"))
        assert f"click[{env._visit.chosen['count']}]" == action


def test_only_searches_and_clicks_do_anything():
    env = WebShop(num_products=100)
    env.reset(seed=0)
    env.step("search[for home]")
    env.step(f"click[{env._visit.listed[0].asin.lower()}]")
    page = env._page()
    for action in ("foo[buy now]", "buy now", "[buy now]", "buy[buy now]", "CLICK[buy now]"):
        observation, reward, over, _, info = env.step(action)
        assert (observation, reward, over, info["success"]) == (page, 0.0, False, False)
    assert env.step("click[buy now]").terminated


def test_nearly_full_marks_are_no_success(tmp_path):
    wanted = [letter * 6 for letter in "abcdefghijklmnopqrst"]
    records = [
        {"asin": asin, "name": f"Lamp {asin}", "query": "lamp", "product_category": "a › b", "pricing": "$5"}
        for asin in ("B1", "B2")
    ]
    about = {"attributes": wanted, "instruction": "a lamp", "instruction_attributes": wanted}
    lacking = {"attributes": [*wanted[:-1], "other"]}
    (tmp_path / "items_shuffle.json").write_text(json.dumps(records))
    (tmp_path / "items_ins_v2.json").write_text(json.dumps({"B1": about, "B2": lacking}))
    env = WebShop(data_dir=str(tmp_path), split="test")
    for asin, score in (("b1", 1.0), ("b2", 20 / 21)):
        env.reset(seed=0)
        env.step("search[lamp]")
        env.step(f"click[{asin}]")
        _, reward, over, _, info = env.step("click[buy now]")
        assert over and info["score"] == pytest.approx(score) and info["success"] == (asin == "b1")
        assert reward == (10.0 if asin == "b1" else 0.0)


def test_rewards_are_paid_for_full_marks_only_unless_shaped():
    sparse, shaped = WebShop(num_products=100), WebShop(num_products=100, reward_preset="shaped")
    paid = set()
    for seed in range(25):
        for env in (sparse, shaped):
            env.reset(seed=seed)
            env.step("search[" + env._visit.goal.product.title.lower() + "]")
            asin = env._visit.goal.product.asin if seed % 2 else env._visit.listed[-1].asin
            env.step(f"click[{asin.lower()}]")
            for _, value in env._visit.goal.options:
                env.step(f"click[{value}]")
            _, reward, over, truncated, info = env.step("click[buy now]")
            assert over and not truncated and info["success"] == (info["score"] == 1.0)
            assert reward == (10.0 * info["score"] if env is shaped else 10.0 * info["success"])
            if seed % 2:
                assert info["success"], "the goal's own product with its options always earns full marks"
        paid.add(info["score"])
    assert len(paid) > 3


def test_the_instruction_stands_on_the_first_page_and_on_every_compact_one():
    for settings in SHOWN:
        env = WebShop(num_products=100, **settings)
        first, _ = env.reset(seed=4)
        text = env._visit.goal.text
        later = env.step("search[lamp]").observation
        assert text in first and (text in later) == (env._mode == "compact")
        assert env.wording.initial == (
            "" if env.wording.admissible == "" and env._mode == "compact" else "{observation}"
        )


def test_nothing_hidden_is_shown():
    """What no page of WebShop shows: hidden attributes, the goal's product, drawn prices, scores."""
    for settings in SHOWN[:4]:
        env, rng = WebShop(num_products=100, **settings), random.Random(2)
        for seed in range(12):
            observation, info = env.reset(seed=seed)
            assert env._visit.goal.product.asin not in observation
            for _ in range(12):
                action = rng.choice(info["admissible_actions"])
                action = "search[for home lamp]" if action.startswith("search") else action
                observation, _, over, _, info = env.step(action)
                product = env._visit.product
                if product is not None and env._visit.page in ("item", "reviews"):
                    named = f"{product.title} {env._visit.goal.text}".lower()
                    hidden = [name for name in product.attributes if name not in named]
                    assert not any(name in observation.lower() for name in hidden)
                assert "score" not in observation and "reward" not in observation
                if over:
                    break


def test_long_pages_are_cut_with_a_note():
    cut, whole = WebShop(num_products=100, max_pieces=15), WebShop(num_products=100)
    rich = WebShop(num_products=100, max_pieces=15, observation_mode="text_rich")
    for env in (cut, whole, rich):
        env.reset(seed=0)
        env.step("search[for home]")
    short, full = cut._page(), whole._page()
    assert full.count("[SEP]") == 32 and short.endswith("[SEP] ... (18 more)")
    assert short.startswith(full[: len(short) - len(" [SEP] ... (18 more)")])
    assert rich._page().endswith("... (18 more)")
    assert shorten(full, 6).count("[SEP]") == 6 and shorten("'a' [SEP] 'b'", 6) == "'a' [SEP] 'b'"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"wording": "long"}, '`wording` is "long", but WebShop has paper and compact'),
        ({"observation_mode": "html"}, '`observation_mode` is "html", but WebShop has text, text_rich and compact'),
        ({"preset": "huge"}, '`preset` is "huge", but WebShop has tiny, easy, medium and hard'),
        ({"goals": "all"}, '`goals` is "all", but WebShop has synthetic and human'),
        ({"split": "dev"}, '`split` is "dev", but WebShop has train, validation and test'),
        ({"scoring": "strict"}, '`scoring` is "strict"'),
        ({"nouns": "nltk"}, '`nouns` is "nltk"'),
        ({"reward_preset": "dense"}, '`reward_preset` is "dense"'),
        ({"num_products": 0}, "`num_products` is 0, but must be at least 1"),
        ({"max_pieces": 0}, "`max_pieces` is 0"),
        ({"data_dir": "/nowhere/at/all"}, "`data_dir` is /nowhere/at/all, but there is no such folder"),
    ],
)
def test_wrong_settings_are_refused_with_the_way_out(kwargs, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        WebShop(**kwargs)


def test_wordings_say_how_to_answer_or_next_to_nothing():
    paper, compact = WebShop(num_products=100), WebShop(wording="compact")
    for part in ("search[words]", "click[name]", "Buy Now", "[SEP]"):
        assert part in paper.describe()
    assert "<action>" in paper.wording.play_request and "<remark>" in paper.wording.reflect_request
    assert compact.describe() == "" and len(compact.wording.play_request) < 10
    longest = 0
    for seed in range(20):
        _, seen = play(compact, compact.player(), seed, random.Random(0))
        longest = max(longest, *(len(text.split()) for text in seen))
    assert longest < 70


def test_steps_are_fast(capsys):
    env, rng, steps, started = WebShop(), random.Random(0), 0, time.perf_counter()
    for seed in range(40):
        _, info = env.reset(seed=seed)
        for _ in range(12):
            action = rng.choice(info["admissible_actions"])
            result = env.step("search[a lamp for home]" if action.startswith("search") else action)
            info, steps = result.info, steps + 1
            if result.terminated:
                break
    rate = steps / (time.perf_counter() - started)
    with capsys.disabled():
        print(f"\nWebShop: {rate:.0f} steps per second")
    assert rate > 100


@pytest.mark.slow
def test_a_hundred_thousand_products_make_a_shop():
    env = WebShop(num_products=100_000)
    assert env.num_goals > 500_000
    for seed in evaluation_seeds("test", 20):
        env.reset(seed=seed)
        assert env.min_turns() is not None
