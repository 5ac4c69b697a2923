"""WebShop's generated catalogues are as hard as they say, and what is not installed is named."""

import builtins
import itertools
import re
import subprocess
import sys
import types
from collections import Counter

import pytest

pytest.importorskip("bm25s", reason="needs the webshop extra")
pytest.importorskip("rapidfuzz", reason="needs the webshop extra")

from metarl_agents.environments.webshop import WebShop, vocabulary
from metarl_agents.environments.webshop.catalogue import read_products
from metarl_agents.environments.webshop.generate import PRESETS, generate, write_catalogue
from metarl_agents.environments.webshop.goals import GoalList
from metarl_agents.environments.webshop.scoring import Scorer
from metarl_agents.errors import ConfigError


def products_of(preset, count, seed=0):
    return read_products(generate(PRESETS[preset], count, seed), limit=None, seed=seed, report=pytest.fail)


def best_verdict(product, goal, scorer):
    """How a product bought with every wanted option that it has fulfils a goal."""
    wanted = {axis: value for axis, value in goal.options if value in product.options.get(axis, ())}
    return scorer.judge(product, goal, wanted)


# Generated catalogues.


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_goal_can_be_fulfilled_by_its_own_product(preset):
    products, scorers = products_of(preset, 96), (Scorer("exact"), Scorer("webshop"))
    for kind in ("synthetic", "human"):
        goals = GoalList(products, kind, 0)
        for index in range(0, len(goals), 7):
            goal = goals[index]
            chosen = {axis: value for axis, value in goal.options if axis}
            for _, value in goal.options:
                chosen |= {axis: value for axis, values in goal.product.options.items() if value in values}
            assert [scorer.judge(goal.product, goal, chosen).reward for scorer in scorers] == [1.0, 1.0]


def test_many_siblings_miss_exactly_one_thing_each_kind_of_miss_among_them():
    products, scorer = products_of("hard", 240), Scorer()
    places = {product.asin: place for place, product in enumerate(products)}
    goals, misses = GoalList(products, "synthetic", 0), Counter()
    for index in range(0, len(goals), 15):
        goal = goals[index]
        family = places[goal.product.asin] // PRESETS["hard"].family
        for sibling in products[family * 8 : family * 8 + 8]:
            if sibling is not goal.product and len(sibling.attributes) > 1:
                verdict = best_verdict(sibling, goal, scorer)
                missed = Counter(attribute=len(goal.attributes) - verdict.attributes)
                missed += Counter(option=len(goal.options) - verdict.options, price=not verdict.price)
                misses["+".join(sorted(missed.elements()))] += 1
    total = sum(misses.values())
    assert all(misses[kind] / total > 0.03 for kind in ("attribute", "option", "price")), misses
    assert sum(misses[kind] for kind in ("attribute", "option", "price")) / total > 0.35
    assert misses[""] / total < 0.3


def test_few_products_of_a_hard_shop_fulfil_a_goal():
    products, scorer = products_of("hard", 240), Scorer()
    goals = GoalList(products, "synthetic", 0)
    fitting = [
        sum(best_verdict(product, goals[index], scorer).reward == 1.0 for product in products)
        for index in range(0, len(goals), len(goals) // 12)
    ]
    assert min(fitting) >= 1 and sum(fitting) / len(fitting) < 5


def test_hard_titles_and_instructions_name_no_attribute_and_easy_ones_name_all():
    for product in products_of("hard", 160):
        if product.instruction:
            for name in product.instruction_attributes:
                assert name not in product.title.lower() and name not in product.instruction
                assert vocabulary.CLAUSES[name] in product.instruction
                pages = [product.description.lower(), " ".join(product.bullets).lower()]
                assert sum(name in page for page in pages) == 1, "told on one sub-page"
    for product in products_of("easy", 100):
        for name in product.instruction_attributes:
            assert name in product.title.lower() and name in product.instruction


def test_prices_show_ranges_as_often_as_the_preset_says():
    shares = {
        preset: sum(" to " in product.price_tag for product in products_of(preset, 200)) / 200 for preset in PRESETS
    }
    for preset, share in shares.items():
        assert share == pytest.approx(PRESETS[preset].ranges, abs=0.09)


def test_a_catalogue_follows_from_its_seed_and_a_larger_one_begins_with_it():
    small, large, other = products_of("hard", 40), products_of("hard", 80), products_of("hard", 40, seed=1)
    assert small == large[:40] and not {p.asin for p in small} & {p.asin for p in other}
    with_requests = list(generate(PRESETS["hard"], 40, 0, requests=True).products)
    assert with_requests == list(generate(PRESETS["hard"], 40, 0, requests=False).products)
    assert len({product.asin for product in products_of("easy", 1000)}) == 1000


def test_little_products_have_short_titles_of_their_own():
    products = products_of("tiny", 400)
    assert len({product.title for product in products}) == 400
    assert max(len(product.title.split()) for product in products) <= 3


def test_a_generated_catalogue_written_to_files_is_the_same_shop(tmp_path):
    write_catalogue(tmp_path, preset="medium", num_products=60, seed=4)
    for kind in ("synthetic", "human"):
        read = WebShop(data_dir=str(tmp_path), goals=kind, catalogue_seed=4)
        made = WebShop(preset="medium", num_products=60, goals=kind, catalogue_seed=4)
        assert list(read._shop.goals) == list(made._shop.goals)


def test_two_written_instructions_of_a_product_differ_and_name_their_options():
    records = generate(PRESETS["hard"], 64, 0)
    list(records.products)
    assert len(records.requests) > 50
    for requests in records.requests.values():
        texts = [request["instruction"] for request in requests]
        assert len(set(texts)) == len(texts)
        assert all(value in request["instruction"] for request in requests for value in request["instruction_options"])


# The vocabulary.


def test_a_clause_shares_no_telling_word_with_its_attribute():
    small = {"the", "a", "of", "in", "to", "for", "is", "up", "by", "on"}
    for name, clause in vocabulary.CLAUSES.items():
        stems = [{word[:5] for word in text.split() if word not in small} for text in (name, clause)]
        assert not stems[0] & stems[1], name


def test_attributes_of_one_kind_are_not_taken_for_one_another():
    scorer = Scorer()
    for kind in vocabulary.KINDS:
        assert set(kind.attributes) <= set(vocabulary.CLAUSES) and len(set(kind.attributes)) == len(kind.attributes)
        for left, right in itertools.combinations(kind.attributes, 2):
            assert scorer._ratio(left, right) <= 85 and left not in right and right not in left
        empty_talk = " ".join(vocabulary.FILLERS + vocabulary.TAILS + vocabulary.ACCESSORIES).lower()
        assert not any(name in empty_talk or name in kind.name.lower() for name in kind.attributes)
    used = {name for kind in vocabulary.KINDS for name in kind.attributes}
    assert used == set(vocabulary.CLAUSES)


def test_option_values_are_distinct_even_to_the_loose_comparison_save_for_sizes_of_clothes():
    scorer = Scorer()
    product = products_of("easy", 1)[0]
    goal = GoalList([product], "synthetic", 0)[0]
    confused = set()
    for axis, listed in vocabulary.VALUES.items():
        for wanted, chosen in itertools.permutations([value.strip() for value in listed.split(",")], 2):
            pair = (axis.partition("/")[0], wanted)
            for option in (pair, (None, wanted)):
                asked = type(goal)(0, product, "", (), (option,), 1.0)
                assert scorer.judge(product, asked, {axis: wanted}).options == 1
                if scorer.judge(product, asked, {axis: chosen}).options:
                    confused.add((axis, *sorted((wanted, chosen))))
    assert {axis for axis, *_ in confused} == {"size/clothes"} and len(confused) <= 3


# The extra.


@pytest.mark.parametrize("package", ["bm25s", "rapidfuzz", "Stemmer", "numpy"])
def test_a_missing_package_is_one_sentence_with_the_way_to_get_it(monkeypatch, package):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    importing = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr("importlib.import_module", lambda name: refuse(name, fromlist=["x"]))
    with pytest.raises(ConfigError) as raised:
        WebShop(num_products=100)
    assert str(raised.value) == f'WebShop needs the package {package}: pip install -e ".[webshop]".'


def test_importing_the_environment_imports_nothing_of_the_extra():
    code = (
        "import sys, metarl_agents.environments.webshop\n"
        "print([n for n in ('bm25s', 'rapidfuzz', 'Stemmer', 'numpy', 'torch') if n in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_spacy_tags_nouns_where_it_is_asked_for(monkeypatch):
    def load(name):
        assert name == "en_core_web_sm"
        tags = {"lamp": "NOUN", "zelba": "PROPN", "shines": "VERB"}
        return lambda title: [types.SimpleNamespace(text=w, pos_=tags.get(w.lower(), "X")) for w in title.split()]

    monkeypatch.setitem(sys.modules, "spacy", types.SimpleNamespace(load=load))
    assert Scorer(nouns="spacy")._nouns("Zelba Lamp shines brightly") == ("zelba", "lamp")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ConfigError, match=re.escape('`nouns="spacy"` needs the package spacy')):
        Scorer(nouns="spacy")


def test_spacy_without_its_model_is_one_sentence_with_the_way_to_get_it(monkeypatch):
    def load(name):
        raise OSError(f"[E050] Can't find model '{name}'.")

    monkeypatch.setitem(sys.modules, "spacy", types.SimpleNamespace(load=load))
    with pytest.raises(ConfigError, match=r"pip install spacy, then python -m spacy download en_core_web_sm\.$"):
        WebShop(num_products=100, nouns="spacy")
