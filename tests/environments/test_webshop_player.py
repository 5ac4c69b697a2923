"""WebShop's scripted player and its oracle: pages are read, looking and heeding help, goals take the turns it says."""

import random

import pytest

pytest.importorskip("bm25s", reason="needs the webshop extra")
pytest.importorskip("rapidfuzz", reason="needs the webshop extra")

from webshop_visits import SHOWN, play

from metarl_agents.environments.webshop import WebShop
from metarl_agents.environments.webshop.player import WebShopPlayer, names_to_avoid
from metarl_agents.environments.webshop.reading import read_view, read_wish
from metarl_agents.rollout.tasks import evaluation_seeds
from metarl_agents.types import Episode


def mean_score(env, player, goals):
    """Return (share of full marks, mean score) over first attempts at the goals."""
    rng = random.Random(0)
    scores = [play(env, player, env.seed_of_goal(index), rng)[0] for index in goals]
    return sum(score == 1.0 for score in scores) / len(scores), sum(scores) / len(scores)


def test_pages_read_back_alike_in_every_mode():
    envs = [
        WebShop(num_products=100, preset="medium", observation_mode=mode) for mode in ("text", "text_rich", "compact")
    ]
    for seed in range(8):
        for env in envs:
            env.reset(seed=seed)
        title = envs[0]._visit.goal.product.title
        views = [read_view(env.step(f"search[{title.lower()}]").observation) for env in envs]
        rows = [[(item.title, round(item.price)) for item in view.listings] for view in views]
        assert rows[0] == rows[1] == rows[2] and len(rows[0]) == 10
        texts = []
        for env, view in zip(envs, views, strict=True):
            texts.append(read_view(env.step(f"click[{view.listings[0].link}]").observation))
        product = envs[0]._visit.product
        values = {value for listed in product.options.values() for value in listed}
        for view in texts:
            assert view.page == "item" and view.text == product.title and values <= set(view.options)
        pages = [read_view(env.step("click[features]").observation) for env in envs]
        assert {page.page for page in pages} == {"sub"} and all(
            b in page.text for page in pages for b in product.bullets
        )


def test_wishes_are_read_from_instructions():
    wish = read_wish(
        "find me a pair of shoes with arch support and rubber outsole with color: light grey, and shoe size: 8, "
        "and price lower than 50.00 dollars"
    )
    assert wish.words == ("shoes", "arch", "support", "rubber", "outsole")
    assert (wish.options, wish.bound) == (("light grey", "8"), 50.0)
    assert read_wish("i need soap").options == () and read_wish("").words == ()


def test_the_baseline_scores_fall_from_easy_to_hard():
    shares = [
        mean_score(WebShop(preset=preset), WebShopPlayer(heed=0, wander=0), range(60))[0]
        for preset in ("easy", "medium", "hard")
    ]
    assert shares[0] > 0.85 and 0.25 < shares[1] < 0.65 and shares[2] < 0.45


def test_looking_closer_is_better_than_the_first_result():
    env = WebShop(wording="compact")
    hasty = mean_score(env, WebShopPlayer(patience=1, heed=0, wander=0), range(80))[0]
    careful = mean_score(env, WebShopPlayer(heed=0, wander=0), range(80))[0]
    assert careful > hasty + 0.15 and hasty < 0.7


def test_heeding_remarks_helps_in_later_attempts():
    def solved(heed):
        env, rng, count = WebShop(preset="medium"), random.Random(3), 0
        player = WebShopPlayer(heed=heed, wander=0)
        for index in range(60):
            remarks = []
            for _ in range(3):
                score, seen = play(env, player, env.seed_of_goal(index), rng, remarks)
                if score == 1.0:
                    count += 1
                    break
                text = player.reflect(Episode(seen[0], final_observation=seen[-1]), rng)
                remarks.append(text.removeprefix("<remark>").removesuffix("</remark>"))
        return count / 60

    assert solved(1) > solved(0) + 0.1


def test_remarks_name_what_was_bought_or_that_time_ran_out():
    player, rng = WebShopPlayer(), random.Random(0)
    player.start_episode([], rng)
    bought = Episode("", final_observation="You bought B0ABCDEFGH, 'Lamp', for $5.0.")
    assert player.reflect(bought, rng) == "<remark>not b0abcdefgh</remark>"
    little = Episode("", final_observation="soft lamp\nbought nova lamp")
    assert player.reflect(little, rng) == "<remark>not nova lamp</remark>"
    slow = Episode("", final_observation="soft lamp\nsearch")
    assert player.reflect(slow, rng) == "<remark>buy sooner</remark>"
    assert names_to_avoid("not nova lamp, kilo lamp. buy sooner") == ["nova lamp", "kilo lamp"]
    assert names_to_avoid("buy sooner") == []


def test_heeded_products_are_not_opened_while_there_are_others():
    page = "soft lamp, and price lower than 40.00 dollars\npage 1\n1 nova lamp 20\n2 kilo lamp 25\n3 luna lamp 50"
    player, rng = WebShopPlayer(heed=1, wander=0), random.Random(0)
    player.start_episode(["not nova lamp"], rng)
    player.act("soft lamp, and price lower than 40.00 dollars\nsearch", rng)
    assert player.act(page, rng) == "<action>click[2]</action>", "3 is too dear"


def test_the_player_buys_in_time_and_its_answers_are_always_readable():
    for settings in SHOWN:
        env, rng = WebShop(num_products=100, **settings), random.Random(5)
        bought = 0
        for seed in range(20):
            _, seen = play(env, env.player(), seed, rng)
            bought += read_view(seen[-1]).page == "over"
        assert bought >= 19


@pytest.mark.parametrize(
    ("settings", "turns"),
    [
        ({"preset": "tiny", "num_products": 768, "wording": "compact"}, 6),
        ({"preset": "easy"}, 12),
        ({"preset": "medium"}, 12),
        ({"preset": "hard", "max_pieces": 15}, 12),
    ],
    ids=lambda value: value["preset"] if isinstance(value, dict) else "",
)
def test_test_goals_are_fulfilled_by_playing_as_many_turns_as_the_environment_says(settings, turns):
    env = WebShop(**settings)
    for seed in evaluation_seeds("test", 40):
        env.reset(seed=seed)
        goal, needed = env._visit.goal, env.min_turns()
        found = [env._shop.products[place] for place in env._shop.search.find(goal.product.title.lower())]
        page, place = divmod(found.index(goal.product), 10)
        name = str(place + 1) if env._mode == "compact" else goal.product.asin.lower()
        plan = [f"search[{goal.product.title}]", *["click[next >]"] * page, f"click[{name}]"]
        plan += [f"click[{value}]" for _, value in goal.options] + ["click[buy now]"]
        played = [env.step(env.parse_action(f"<action>{action}</action>")) for action in plan]
        assert len(played) == needed <= turns
        assert [step.terminated for step in played] == [False] * (needed - 1) + [True]
        assert [step.reward for step in played] == [0.0] * (needed - 1) + [10.0]
