"""One parser for all: the last complete pair after any thinking block, exact, and never an exception."""

import random

import pytest

from metarl_agents.envs.parsing import last_tag, parse_cell


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("<action>up</action>", "up"),
        ("so <action>\n up \n</action> done", "up"),
        ("<action>up</action> rather <action>down</action>", "down"),
        ("<action>up</action> rather <action>down", "up"),
        ("<action><action>up</action></action>", "up"),
        ("<action>up <action>down</action>", "down"),
        ("<think><action>up</action></think><action>down</action>", "down"),
        ("<think>a</think><action>up</action><think>b</think>", None),
        ("<think>still <action>up</action>", None),
        ("</think><action>up</action>", "up"),
        ("<action></action>", None),
        ("<action> \n </action>", None),
        ("<action>up</action> <action></action>", None),
        ("<ACTION>up</ACTION>", None),
        ("</action>up<action>", None),
        ("up", None),
        ("", None),
        ("<actions>up</actions>", None),
        ("<action>a < b > c</action>", "a < b > c"),
    ],
)
def test_last_tag(text, inner):
    assert last_tag(text, "action") == inner


def test_other_tags_and_odd_names():
    assert last_tag("<remark>be careful</remark><action>up</action>", "remark") == "be careful"
    assert last_tag("<a.b>x</a.b>", "a.b") == "x"
    assert last_tag("<aXb>x</aXb>", "a.b") is None


def test_last_tag_takes_no_time_on_hostile_text():
    assert last_tag("<action>" * 3000, "action") is None
    assert last_tag("<action>" + "x" * 200_000, "action") is None
    assert last_tag("<action>up</action>" * 5000, "action") == "up"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("(2, 3)", (2, 3)),
        (" ( 2 ,3 ) ", (2, 3)),
        ("2,3", (2, 3)),
        ("(02, 3)", (2, 3)),
        ("(2, 3", None),
        ("2, 3)", None),
        ("(2 3)", None),
        ("(2, 3, 4)", None),
        ("(2, 3) (4, 5)", None),
        ("(-2, 3)", None),
        ("(2.0, 3)", None),
        ("(1234, 3)", None),
        ("(\u0662, 3)", None),
        ("cell (2, 3)", None),
        ("", None),
        (None, None),
    ],
)
def test_parse_cell(text, cell):
    assert parse_cell(text) == cell


def test_random_text_never_raises():
    rng = random.Random(0)
    pieces = [
        "<action>",
        "</action>",
        "<think>",
        "</think>",
        "(",
        ")",
        ",",
        "1",
        "22",
        " ",
        "\n",
        "up",
        "\ud800",
        "\x00",
    ]
    for _ in range(5000):
        text = "".join(rng.choices(pieces, k=rng.randrange(16)))
        inner = last_tag(text, "action")
        assert inner is None or (inner and inner == inner.strip() and inner in text and "action>" not in inner)
        cell = parse_cell(inner)
        assert cell is None or all(0 <= number <= 999 for number in cell)
