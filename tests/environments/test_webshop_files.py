"""WebShop's data files: read as WebShop does, as far as they are whole, and each fault told with its file."""

import json
import warnings

import pytest

pytest.importorskip("bm25s", reason="needs the webshop extra")
pytest.importorskip("rapidfuzz", reason="needs the webshop extra")

from metarl_agents.environments.webshop import WebShop
from metarl_agents.environments.webshop.catalogue import Records, read_price, read_products
from metarl_agents.environments.webshop.chance import Chance
from metarl_agents.environments.webshop.files import stream_array
from metarl_agents.errors import ConfigError


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
    said = []
    products = {p.asin: p for p in read_products(Records(raw), limit=None, seed=0, report=said.append)}
    assert said == ["1 product of the generated catalogue is without a price and sold for $100, as in WebShop."]
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


def test_products_without_a_price_are_counted_once_and_an_empty_price_is_none_to_speak_of(tmp_path):
    raw = [record("B1", pricing=None), record("B2"), record("B3", pricing=None), record("B4", pricing="")]
    folder = folder_of(tmp_path, items_shuffle=raw, items_ins_v2=known("B1", "B2", "B3", "B4"))
    env, said = warned(lambda: WebShop(data_dir=folder))
    assert [product.price for product in env._shop.products] == [100.0, 5.0, 100.0, 100.0]
    file = tmp_path / "items_shuffle.json"
    assert said == [f"2 products of {file} are without a price and sold for $100, as in WebShop."]
    folder_of(tmp_path, items_shuffle=raw[1:2] + raw[3:])
    assert warned(lambda: WebShop(data_dir=folder, num_products=2))[1] == []


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("soft", "is malformed"),
        ({"attributes": "soft"}, "'soft' stands where a list of texts is expected"),
        ({"attributes": [1]}, "1 stands where a text is expected"),
        ({"attributes": ["soft"], "instruction": 5}, "5 stands where a text is expected"),
        ({"attributes": 7}, "is malformed"),
    ],
)
def test_a_broken_entry_about_a_product_is_named_with_its_file_and_the_product_stays(tmp_path, entry, complaint):
    table = known("B2", "B3") | {"B1": entry}
    folder = folder_of(tmp_path, items_shuffle=[record(f"B{n}") for n in (1, 2, 3)], items_ins_v2=table)
    env, said = warned(lambda: WebShop(data_dir=folder))
    assert [product.asin for product in env._shop.products] == ["B1", "B2", "B3"]
    assert env._shop.products[0].attributes == ("DUMMY_ATTR",) and env.num_goals == 2
    assert len(said) == 1 and complaint in said[0] and "items_shuffle" not in said[0]
    assert said[0].startswith(f"1 entry of {tmp_path / 'items_ins_v2.json'} is left out: the one of B1 ")


def test_a_broken_request_is_named_with_its_file_and_costs_itself_alone(tmp_path):
    good = {"instruction": "a lamp", "instruction_attributes": ["soft"], "instruction_options": []}
    asked = {"B1": [{"instruction": "a lamp"}, good, "text"], "B2": [good], "B3": "text", "B4": 7}
    raw = [record(f"B{n}") for n in (1, 2, 3, 4)]
    folder = folder_of(tmp_path, items_shuffle=raw, items_ins_v2=known("B1", "B2"), items_human_ins=asked)
    env, said = warned(lambda: WebShop(data_dir=folder, goals="human"))
    assert len(env._shop.products) == 4 and env.num_goals == 2
    file = tmp_path / "items_human_ins.json"
    assert said == [f"4 entries of {file} are left out: one of B1 has no key 'instruction_attributes', ...."]


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


def test_a_byte_order_mark_does_no_harm_to_any_file(tmp_path):
    asked = {"B1": [{"instruction": "a lamp", "instruction_attributes": ["soft"], "instruction_options": []}]}
    files = {"items_shuffle": [record("B1")], "items_ins_v2": known("B1"), "items_human_ins": asked}
    folder = folder_of(tmp_path, **{name: "\ufeff" + json.dumps(content) for name, content in files.items()})
    for kind in ("synthetic", "human"):
        env, said = warned(lambda kind=kind: WebShop(data_dir=folder, goals=kind))
        assert env.num_goals == 1 and said == []


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', "nonsense", "[}", "\x00", "[" * 200_000])
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


def test_products_in_front_of_one_that_is_nested_too_deeply_are_used(tmp_path):
    whole = json.dumps([record("B1"), record("B2")])
    folder = folder_of(tmp_path, items_shuffle=whole[:-1] + "," + "[" * 200_000, items_ins_v2=known("B1", "B2"))
    env, said = warned(lambda: WebShop(data_dir=folder))
    assert len(env._shop.products) == 2
    assert len(said) == 1 and "items_shuffle.json is nested too deeply after 2 products" in said[0]


@pytest.mark.parametrize("content", ["", "[1]", '{"B1": ', "null", "[" * 200_000, '{"B1":' * 100_000])
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
