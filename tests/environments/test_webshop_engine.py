"""WebShop's machine: pages and rewards equal those of an independent engine, and hand-made cases of the reward."""

import gzip
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("bm25s", reason="needs the webshop extra")
pytest.importorskip("rapidfuzz", reason="needs the webshop extra")

from metarl_agents.environments.webshop.catalogue import Product, Records, read_products
from metarl_agents.environments.webshop.files import read_records
from metarl_agents.environments.webshop.goals import NO_BOUND, Goal, GoalList
from metarl_agents.environments.webshop.pages import page_text, page_text_rich
from metarl_agents.environments.webshop.scoring import Scorer, plain_nouns
from metarl_agents.environments.webshop.search import Search
from metarl_agents.environments.webshop.shop import Action, Shop, Visit

# A second engine of the project, written apart from this one, was played at random over 60 products, both kinds of
# goals and both modes; every page, its clickables and every reward were written down. That engine in turn had been
# compared with WebShop's own. Its search was a table of queries, its prices within ranges are part of the record.
RECORD = Path(__file__).parent / "webshop_recorded.json.gz"


class RecordedSearch:
    def __init__(self, table):
        self.table = table

    def find(self, query):
        return self.table[query]


@pytest.fixture(scope="module")
def record():
    return json.loads(gzip.decompress(RECORD.read_bytes()))


@pytest.fixture(scope="module")
def recorded_shops(record, tmp_path_factory):
    """The shops of the record, read from the three files."""
    folder = tmp_path_factory.mktemp("webshop")
    for name, key in (("shuffle", "products"), ("ins_v2", "attributes"), ("human_ins", "requests")):
        (folder / f"items_{name}.json").write_text(json.dumps(record[key]), encoding="utf-8")
    shops, reports = {}, []
    for kind in ("human", "synthetic"):
        records = read_records(folder, limit=None, goals=kind, report=reports.append)
        products = read_products(records, limit=None, seed=0, report=reports.append)
        products = [replace(product, price=record["prices"][product.asin]) for product in products]
        shops[kind] = Shop(products, GoalList(products, kind, 0), RecordedSearch(record["searches"]), Scorer())
    assert not reports
    return shops


def recorded_goal(shops, record, episode):
    """The goal as this code makes it, with the price bound that the other engine drew."""
    kind, index = episode["goals"], episode["goal"]
    text, bound = record["goals"][kind]["used"][str(index)]
    goal = shops[kind].goals[index]
    assert goal.text.partition(", and price lower")[0] == text.partition(", and price lower")[0]
    return replace(goal, text=text, bound=bound)


def test_pages_clickables_and_rewards_equal_those_of_an_independent_engine(record, recorded_shops):
    for kind, shop in recorded_shops.items():
        assert len(shop.goals) == record["goals"][kind]["count"]
    pages, played = record["pages"], Counter()
    for episode in record["episodes"]:
        visit = Visit(recorded_shops[episode["goals"]], recorded_goal(recorded_shops, record, episode))

        def seen(visit=visit, rich=episode["rich"]):
            parts = visit.parts()
            text = page_text_rich(parts, seen=visit.seen, chosen=visit.chosen.values()) if rich else page_text(parts)
            return text, "\n".join(visit.clickables())

        assert seen() == tuple(pages[number] for number in episode["first"])
        for verb, argument, page, clickables, reward in episode["steps"]:
            visit.do(Action(verb, argument))
            played["steps"] += 1
            assert visit.over == (page is None)
            if visit.over:
                played["purchases"] += 1
                played["full"] += visit.verdict.reward == 1.0
                assert visit.verdict.reward == pytest.approx(reward, abs=1e-12) and visit.clickables() == []
            else:
                assert seen() == (pages[page], pages[clickables])
    assert played["steps"] > 2000 and played["purchases"] > 200 and played["full"] > 20


# Pages by hand.


def product(asin="B000000001", **changes):
    values = {
        "asin": asin,
        "title": "Brass Lamp",
        "description": "It shines.",
        "bullets": ("DIMMABLE: turn it down",),
        "price": 20.0,
        "price_tag": "$20.0",
        "options": {"color": ("red", "blue"), "size": ("small", "big")},
        "attributes": ("dimmable", "touch switch"),
        "query": "lamps",
        "path": frozenset({"Home", "Lighting", "Lamps"}),
        "instruction": "find me a lamp with touch switch",
        "instruction_attributes": ("touch switch",),
    }
    return Product(**(values | changes))


def goal(for_product=None, **changes):
    values = {
        "index": 0,
        "product": for_product or product(),
        "text": "find me a lamp",
        "attributes": ("touch switch",),
        "options": ((None, "red"),),
        "bound": 30.0,
    }
    return Goal(**(values | changes))


def visit_of(count=12, **search):
    products = [product(f"B{number:09}", title=f"Brass Lamp {number}") for number in range(count)]
    table = {"lamp": list(range(count)), "nothing": [], **search}
    return Visit(Shop(products, [], RecordedSearch(table), Scorer()), goal())


def click(visit, *names):
    for name in names:
        visit.do(Action("click", name))


def test_the_pages_follow_one_another():
    visit = visit_of()
    assert page_text(visit.parts()) == "WebShop [SEP] Instruction: [SEP] find me a lamp [SEP] Search"
    assert visit.clickables() == ["search"]
    visit.do(Action("search", "lamp"))
    assert visit.page == "results" and len(visit.listed) == 10
    assert visit.clickables()[:3] == ["back to search", "next >", "b000000000"]
    click(visit, "next >")
    assert visit.clickables() == ["back to search", "< prev", "next >", "b000000010", "b000000011"]
    click(visit, "next >")
    assert visit.number == 3 and visit.listed == []
    click(visit, "< prev", "b000000011")
    assert visit.page == "item" and visit.product.asin == "B000000011"
    click(visit, "red", "features")
    assert page_text(visit.parts()).endswith("< Prev [SEP] DIMMABLE: turn it down")
    assert visit.clickables() == ["back to search", "< prev"]
    click(visit, "< prev")
    assert visit.chosen == {"color": "red"}, "options stay while a sub-page is read"
    click(visit, "blue")
    assert visit.chosen == {"color": "blue"}, "one axis has one value"
    click(visit, "< prev")
    assert (visit.page, visit.number, visit.chosen, visit.seen) == ("results", 2, {}, {"B000000011"})
    click(visit, "back to search")
    assert (visit.page, visit.seen) == ("search", set())


def test_what_is_not_on_the_page_changes_nothing():
    visit = visit_of()
    click(visit, "buy now", "search", "b000000000", "red", "")
    assert (visit.page, visit.product, visit.chosen, visit.over) == ("search", None, {}, False)
    visit.do(Action("search", "nothing"))
    assert "Page 1 (Total results: 0)" in page_text(visit.parts()) and visit.listed == []
    click(visit, "< prev", "b000000000")
    assert visit.page == "results" and visit.product is None


def test_a_value_that_two_axes_share_goes_to_the_last_one():
    visit = visit_of(1)
    visit.shop.products[0].options.update({"trim": ("red", "gold")})
    visit.do(Action("search", "lamp"))
    click(visit, "b000000000", "red")
    assert visit.chosen == {"trim": "red"}


def test_marked_up_pages_tell_what_was_opened_and_chosen():
    visit = visit_of(2)
    visit.do(Action("search", "lamp"))
    click(visit, "b000000001", "big")
    lines = page_text_rich(visit.parts(), seen=visit.seen, chosen=visit.chosen.values()).split("\n")
    assert lines[0] == "You have clicked big."
    assert "  [clicked button] big [clicked button_]" in lines and "  [button] small [button_]" in lines
    click(visit, "< prev")
    text = page_text_rich(visit.parts(), seen=visit.seen, chosen=visit.chosen.values())
    assert "\n\n[button] B000000000 [button_]\nBrass Lamp 0\n$20.0\n" in text
    assert "\n\n[clicked button] B000000001 [clicked button_]\n" in text


# The reward by hand.


@pytest.mark.parametrize(
    ("bought", "chosen", "kind", "reward"),
    [
        (product(), {"color": "red"}, 1.0, 1.0),
        (product(), {"color": "blue"}, 1.0, 2 / 3),
        (product(), {}, 1.0, 2 / 3),
        (product(), {"color": "red", "size": "big"}, 1.0, 1.0),
        (product(price=30.0), {"color": "red"}, 1.0, 1.0),
        (product(price=30.01), {"color": "red"}, 1.0, 2 / 3),
        (product(attributes=("dimmable",)), {"color": "red"}, 1.0, 2 / 3),
        (product(attributes=("dimmable",), description="With a Touch Switch."), {"color": "red"}, 1.0, 1.0),
        (product(attributes=("dimmable",), bullets=("a touch", "switch")), {"color": "red"}, 1.0, 1.0),
        (product(attributes=("dimmable",), price=99.0), {}, 1.0, 0.0),
        (product(title="Other Brass"), {"color": "red"}, 1.0, 1.0),
        (product(title="Sofa"), {"color": "red"}, 0.0, 0.0),
    ],
)
def test_misses_cost_their_share(bought, chosen, kind, reward):
    verdict = Scorer().judge(bought, goal(), chosen)
    assert verdict.kind == kind and verdict.reward == pytest.approx(reward, abs=1e-15)
    assert (verdict.reward == 1.0) == (reward == 1.0)


@pytest.mark.parametrize(
    ("title", "query", "path", "kind"),
    [
        # 20 nouns are wanted: two in common are a share of 0.1, one is 0.05, five are 0.25.
        (" ".join(f"noun{chr(97 + i)}" for i in range(5)), "sofas", {"Garden"}, 1.0),
        ("nouna nounb", "sofas", {"Garden"}, 0.5),
        ("nouna nounb nounc nound", "sofas", {"Garden"}, 0.5),
        ("nouna nounb", "lamps", {"Garden"}, 1.0),
        ("nouna nounb", "sofas", {"Home", "Lamps"}, 1.0),
        ("nouna nounb", "sofas", {"Home", "Sofas"}, 0.5),
        ("nouna sofa", "lamps", {"Home", "Lighting", "Lamps"}, 0.1),
        ("sofa", "lamps", {"Home", "Lighting", "Lamps"}, 0.0),
    ],
)
def test_the_type_factor_follows_shelf_and_title(title, query, path, kind):
    wanted = product(title=" ".join(f"noun{chr(97 + i)}" for i in range(20)))
    bought = product(title=title, query=query, path=frozenset(path))
    verdict = Scorer().judge(bought, goal(wanted), {"color": "red"})
    assert verdict.kind == kind and verdict.reward == pytest.approx(kind)


def test_a_title_without_nouns_counts_as_a_fifth_in_common():
    wanted = product(title="The 2 for 1")
    same_shelf = Scorer().judge(product(), goal(wanted), {"color": "red"})
    other_shelf = Scorer().judge(product(query="sofas", path=frozenset()), goal(wanted), {"color": "red"})
    assert (same_shelf.kind, other_shelf.kind) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("wanted", "chosen", "webshop", "exact"),
    [
        ((None, "red"), {"color": "red"}, 1, 1),
        ((None, "red"), {"color": "blue"}, 0, 0),
        ((None, "x-large"), {"size": "xx-large"}, 1, 0),
        ((None, "8 ounce (pack of 1)"), {"size": "8 ounce (pack of 2)"}, 1, 0),
        ((None, "navy"), {"color": "light navy"}, 0, 0),  # the chosen one counts as "light"
        ((None, "navy"), {"color": "navy white"}, 1, 0),
        ((None, "RED/White"), {"color": "red | white"}, 1, 1),
        (("color", "red"), {"color": "red"}, 1, 1),
        (("color", "red"), {"trim": "red"}, 1, 0),
        (("color", "light navy"), {"color": "light"}, 1, 0),
        (("color", "plain"), {"color": "plain"}, 1, 1),
        (("color", "plain"), {"color": "bumpy"}, 0, 0),
    ],
)
def test_options_are_compared_loosely_or_exactly(wanted, chosen, webshop, exact):
    asked = goal(options=(wanted,))
    assert Scorer("webshop").judge(product(), asked, chosen).options == webshop
    assert Scorer("exact").judge(product(), asked, chosen).options == exact


def test_nouns_are_the_words_of_a_title_that_tell_its_kind():
    assert plain_nouns("Zelba A20 Table-Lamp for the Home, Gift Set, 2 Pack, Décor") == (
        "zelba",
        "table",
        "lamp",
        "décor",
    )
    assert plain_nouns("2 x 4 (Pack of 3)") == ()


def test_a_goal_without_a_bound_takes_any_price():
    assert Scorer().judge(product(price=5000.0), goal(bound=NO_BOUND), {"color": "red"}).reward == 1.0


def test_another_product_that_fits_earns_full_marks():
    other = product("B000000009", title="Steel Lamp", attributes=("touch switch",), query="lights")
    assert Scorer().judge(other, goal(), {"color": "red"}).reward == 1.0


# Search.


def test_search_equals_a_second_formula_and_keeps_catalogue_order_among_equals():
    rng = random.Random(0)
    words = [f"w{number}x" for number in range(30)]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(60)]
    texts[10] = texts[3]
    products = [
        product(f"B{number:09}", title=text, description="", bullets=(), options={})
        for number, text in enumerate(texts)
    ]
    search = Search(products)
    for _ in range(25):
        query = rng.sample(words, 3)
        scores = [round(plain_bm25(query, text.split(), texts), 4) for text in texts]
        expected = sorted((place for place, score in enumerate(scores) if score > 0), key=lambda p: (-scores[p], p))
        found = search.find(" ".join(query))
        assert [scores[place] for place in found] == [scores[place] for place in expected[:50]]
        assert len(found) == min(50, len(expected))
        if 3 in found and 10 in found:
            assert found.index(10) == found.index(3) + 1


def plain_bm25(query, words, texts, k1=0.9, b=0.4):
    """The textbook formula, with the logarithm that is never negative."""
    from math import log

    mean = sum(len(text.split()) for text in texts) / len(texts)
    total = 0.0
    for word in query:
        holding = sum(word in text.split() for text in texts)
        weight = log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        times = words.count(word)
        total += weight * times / (times + k1 * (1 - b + b * len(words) / mean))
    return total


def test_search_knows_stems_and_nothing_without_a_common_word():
    search = Search([product(title="Running Shoes for women's feet"), product("B1", title="Sofa", options={})])
    assert search.find("run shoe") == (0,) and search.find("WOMAN'S") == () and search.find("women") == (0,)
    assert search.find("") == search.find("the of") == search.find("zebra") == search.find("?? s's") == ()
    assert search.find("color: blue") == (0,) and search.find("shines") == (1, 0), "the shorter page first"


def test_a_catalogue_of_nothing_searchable_is_searched_in_vain():
    bare = product(title="the", description="", bullets=(), options={})
    assert Search([bare]).find("lamp") == ()
    assert read_products(Records([]), limit=None, seed=0, report=pytest.fail) == []
