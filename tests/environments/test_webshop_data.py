"""WebShop's catalogues: generated ones are as hard as they say, files are read as far as they are whole."""

import builtins
import itertools
import json
import re
import subprocess
import sys
import types
import warnings
from collections import Counter

import pytest

pytest.importorskip("bm25s", reason="needs the webshop extra")
pytest.importorskip("rapidfuzz", reason="needs the webshop extra")

from metarl_agents.environments.webshop import WebShop, vocabulary
from metarl_agents.environments.webshop.catalogue import Records, read_price, read_products
from metarl_agents.environments.webshop.chance import Chance
from metarl_agents.environments.webshop.files import stream_array
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


# Files.


def folder_of(tmp_path, **files):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    return str(tmp_path)


def record(asin, **changes):
    values = {
        "asin": asin,
        "name": f"Lamp {asin}",
        "query": "lamp",
        "product_category": "Home › Lamps",
        "pricing": "$5",
    }
    return {key: value for key, value in (values | changes).items() if value is not None}


def known(*asins):
    about = {"attributes": ["soft"], "instruction": "find me a lamp", "instruction_attributes": ["soft"]}
    return dict.fromkeys(asins, about)


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    return result, [str(warning.message) for warning in caught]


def test_records_are_normalised_as_webshop_does_it():
    raw = [
        record("B1", pricing="$1,012.50", small_description="one text", customization_options="", unknown_key=[{}]),
        record("B1", name="a repeated asin"),
        record(
            "B2", pricing="", customization_options={"Color": [{"value": " Red/White "}, {"value": "X"}], "Size": None}
        ),
        record("nan"),
        record("B00000000000", name="too long"),
        record("B3", pricing="$10.00 - $20.00", query=" Table LAMP "),
        record("B4", pricing=None, full_description=None),
    ]
    products = {p.asin: p for p in read_products(Records(raw), limit=None, seed=0, report=pytest.fail)}
    assert list(products) == ["B1", "B2", "B3", "B4"]
    one, two, three, four = products.values()
    assert (one.price, one.price_tag, one.bullets, one.attributes) == (
        1012.5,
        "$1012.5",
        ("one text",),
        ("DUMMY_ATTR",),
    )
    assert (two.price, two.price_tag) == (100.0, "$100.0") == (four.price, four.price_tag)
    assert two.options == {"color": ("red | white", "x")} and one.options == {}
    assert 10 <= three.price < 20 and three.price_tag == "$10.0 to $20.0" and three.query == "table lamp"
    assert three.path == {"Home", "Lamps"} and four.description == ""
    assert (
        read_price("$10 - $20", Chance(1)) == read_price("$10 - $20", Chance(1)) != read_price("$10 - $20", Chance(2))
    )


def test_only_the_first_records_are_read_and_skipped_ones_count():
    raw = [record("B1"), record("B1"), record("B2"), record("B3")]
    assert [p.asin for p in read_products(Records(raw), limit=3, seed=0, report=pytest.fail)] == ["B1", "B2"]


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (record("B1", name=None), "record 0 has no key 'name'"),
        (record("B1", query=None), "record 0 has no key 'query'"),
        (record("B1", pricing="ask us"), 'its price "ask us" holds no amount'),
        (record("B1", pricing="$1.2.3"), "record 0 is malformed"),
        (record("B1", pricing=7), "record 0 is malformed"),
        (record("B1", customization_options=["red"]), "record 0 is malformed"),
        (record("B1", customization_options={"Color": [{}]}), "record 0 has no key 'value'"),
        (record("B1", small_description=[1]), "1 stands where a text is expected"),
        ({}, "record 0 has no key 'asin'"),
        ("text", "record 0 is malformed"),
        (None, "record 0 is malformed"),
    ],
)
def test_a_malformed_product_costs_itself_and_is_reported_with_its_file(tmp_path, bad, complaint):
    folder = folder_of(tmp_path, items_shuffle=[bad, record("B2")], items_ins_v2=known("B1", "B2"))
    env, said = warned(lambda: WebShop(data_dir=folder))
    assert [product.asin for product in env._shop.products] == ["B2"]
    assert len(said) == 1 and complaint in said[0] and "items_shuffle.json" in said[0] and "\n" not in said[0]


@pytest.mark.parametrize("cut", [1, 30, 200, 301])
def test_a_truncated_products_file_gives_what_is_whole(tmp_path, cut):
    whole = json.dumps([record(f"B{number}") for number in range(6)])
    folder = folder_of(tmp_path, items_shuffle=whole[:-cut], items_ins_v2=known(*(f"B{number}" for number in range(6))))
    env, said = warned(lambda: WebShop(data_dir=folder))
    count = whole[:-cut].count("}")
    assert len(env._shop.products) == count
    assert len(said) == 1 and f"breaks off or is damaged after {count} products" in said[0]


def test_a_long_list_is_read_piece_by_piece(tmp_path):
    values = [{"text": "x" * (number % 977), "number": number} for number in range(6000)]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(values, indent=1), encoding="utf-8")
    assert path.stat().st_size > 2**21
    assert list(stream_array(path, pytest.fail)) == values
    path.write_text(" [ ] ", encoding="utf-8")
    assert list(stream_array(path, pytest.fail)) == []


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', "nonsense", "[}", "\x00"])
def test_an_unreadable_products_file_is_named(tmp_path, content):
    folder = folder_of(tmp_path, items_shuffle=content, items_ins_v2=known("B1"))
    with pytest.raises(ConfigError, match=r"No product could be read from .*items_shuffle\.json"):
        warned(lambda: WebShop(data_dir=folder))


def test_a_broken_products_file_is_replaced_by_a_whole_one(tmp_path):
    folder = folder_of(tmp_path, items_shuffle_1000="oops", items_shuffle=[record("B1")], items_ins_v2=known("B1"))
    env, said = warned(lambda: WebShop(data_dir=folder))
    assert len(env._shop.products) == 1 and len(said) == 1 and "items_shuffle_1000.json" in said[0]


def test_bytes_that_are_no_text_are_reported(tmp_path):
    folder = folder_of(tmp_path, items_ins_v2=known("B1"))
    (tmp_path / "items_shuffle.json").write_bytes(b"\xff\xfe[")
    with pytest.raises(ConfigError, match="No product could be read"):
        warned(lambda: WebShop(data_dir=folder))


def test_missing_files_cost_what_they_are_needed_for(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no items_shuffle\*\.json"):
        WebShop(data_dir=str(tmp_path))
    asked = {"B1": [{"instruction": "a lamp.", "instruction_attributes": ["soft"], "instruction_options": []}]}
    folder = folder_of(tmp_path, items_shuffle=[record("B1")], items_human_ins=asked)
    with pytest.raises(ConfigError, match=r"items_ins_v2\*\.json, but the goals come from it"):
        WebShop(data_dir=folder)
    env, said = warned(lambda: WebShop(data_dir=folder, goals="human", split="test"))
    assert env.num_goals == 1 and env.reset(seed=0)[0].startswith("Instruction: a lamp, and price lower than ")
    assert len(said) == 1 and "items_ins_v2" in said[0] and "scored by their pages alone" in said[0]


@pytest.mark.parametrize("content", ["", "[1]", '{"B1": ', "null"])
def test_broken_instructions_are_named_or_replaced_by_whole_ones(tmp_path, content):
    folder = folder_of(tmp_path, items_shuffle=[record("B1")], items_ins_v2_1000=content)
    with pytest.raises(ConfigError, match=r"items_ins_v2_1000\.json .*but the goals come from it"):
        WebShop(data_dir=folder)
    folder_of(tmp_path, items_ins_v2=known("B1"))
    env, said = warned(lambda: WebShop(data_dir=folder))
    assert env.num_goals == 1 and len(said) == 1 and "items_ins_v2_1000.json" in said[0]


def test_products_without_any_instruction_are_no_shop(tmp_path):
    folder = folder_of(tmp_path, items_shuffle=[record("B1")], items_ins_v2={})
    with pytest.raises(ConfigError, match="give no goal of the kind `synthetic`"):
        WebShop(data_dir=folder)


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
