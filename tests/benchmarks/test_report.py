"""The report of a benchmark: what it shows is what was computed, and nothing foreign is ever markup."""

import copy
import json
import re
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from report_samples import (
    Page,
    charts,
    curves,
    hostile,
    html_of,
    markdown_of,
    model,
    page,
    report_of,
    row,
    summary,
    text,
)

from metarl_agents.errors import ConfigError


def test_whatever_a_label_an_error_or_a_title_holds_is_inert_in_the_page():
    calm = summary([row("a", curves=[curves(0)]), row("b", (), state="failed")])
    calm["blocks"].append(copy.deepcopy(calm["blocks"][0]) | {"kind": "ablation"})
    seen = Page(html_of(hostile()))
    assert set(seen.tags()) <= set(Page(html_of(calm)).tags()) | {"div", "h3"}
    assert not {"script", "img", "iframe", "object", "base", "form"} & set(seen.tags())
    names = {name for _, attributes in seen.elements for name in attributes}
    assert not [name for name in names if name.startswith("on")] and not {"src", "srcdoc", "style"} & names
    assert "<script>alert(1)</script><img src=x onerror=alert(1)>" in seen.text and "@@BODY@@" in seen.text


def test_whatever_a_label_an_error_or_a_title_holds_is_inert_in_the_markdown():
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown_of(hostile()))
    blocks = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert all(re.fullmatch(r"<details><summary>[^<>]*</summary>|</details>", block) for block in blocks) and blocks
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "text_special", "strong_open", "strong_close", "image"}
    rows = [token.type for token in tokens].count("tr_open")
    assert rows == 2 * (3 + 2 + 2), "two blocks: a head and two rows, twice a head and one row"
    sources = [child.attrs["src"] for child in inline if child.type == "image"]
    assert sources and all(re.fullmatch(r"pictures/[a-z0-9_-]+\.svg", source) for source in sources)


def test_the_pictures_are_inert_files():
    for block in report_of(hostile()).blocks:
        for chart in block.charts:
            root = ElementTree.fromstring(charts.standalone(chart, "c"))
            tags = {element.tag.rpartition("}")[2] for element in root.iter()}
            assert tags <= {"svg", "title", "desc", "style", "rect", "path", "text", "line", "polyline", "polygon"}
            assert not [name for element in root.iter() for name in element.attrib if name.startswith(("on", "href"))]


def test_the_page_loads_nothing():
    source = html_of(summary([row("lamer", curves=[curves(0), curves(1)])]))
    assert "default-src 'none'" in source and "url(" not in source and "@import" not in source
    attributes = [(name, value) for _, found in Page(source).elements for name, value in found.items()]
    assert not [value for name, value in attributes if name in ("src", "srcset", "data", "action")]
    assert {value[0] for name, value in attributes if name == "href"} == {"#"}
    assert set(re.findall(r"https?://[^\s\"'<]+", source)) == {"http://www.w3.org/2000/svg"}


def test_the_same_cells_give_the_same_bytes():
    found = summary([row("lamer", curves=[curves(0), curves(1)])])
    again = json.loads(json.dumps(found))
    assert html_of(found) == html_of(again) and markdown_of(found) == markdown_of(again)


def test_the_page_follows_the_reader():
    template = page.TEMPLATE.read_text(encoding="utf-8") + charts.STYLE
    for promise in ("prefers-color-scheme: dark", "max-width: 640px", "@media print", "overflow-x: auto"):
        assert promise in template
    assert 'name="viewport"' in template and 'lang="en"' in template


def test_tables_and_pictures_can_be_heard():
    source = html_of(summary([row("lamer", curves=[curves(0)]), row("ppo", ())]))
    elements = Page(source).elements
    assert all(found.get("scope") in ("col", "row") for tag, found in elements if tag == "th")
    identities = [found["id"] for _, found in elements if "id" in found]
    assert len(identities) == len(set(identities))
    named = [name for _, found in elements for name in found.get("aria-labelledby", "").split()]
    assert set(named) <= set(identities)
    assert all(found.get("aria-labelledby") for tag, found in elements if tag in ("svg", "table"))
    assert all(found["role"] == "img" for tag, found in elements if tag == "svg")
    described = re.findall(r"<desc[^>]*>([^<]+)</desc>", source)
    assert len(described) == [tag for tag, _ in elements].count("svg") > 2
    assert "Method lamer: 30.0 % to 40.0 % to 50.0 %" in described[0]
    scrolling = [found for _, found in elements if found.get("class") == "scroll"]
    assert all(found["tabindex"] == "0" and found["role"] == "region" for found in scrolling)


def test_links_inside_the_page_lead_somewhere():
    found = summary(missing=["evaluate minesweeper/ppo"])
    found["blocks"].append(copy.deepcopy(found["blocks"][0]) | {"kind": "ablation", "name": "sweep"})
    elements = Page(html_of(found)).elements
    anchors = [attributes["href"][1:] for tag, attributes in elements if tag == "a"]
    assert set(anchors) <= {attributes.get("id") for _, attributes in elements} and len(anchors) == 4


def test_page_and_markdown_tell_every_number_with_its_interval():
    found = summary()
    shown, written = Page(html_of(found)).text, markdown_of(found).replace("\\", "")
    for entry in found["blocks"][0]["rows"]:
        for numbers in entry["pass"].values():
            low, high = (100 * edge for edge in numbers["interval"])
            assert f"{100 * numbers['share']:.1f}[{low:.1f}, {high:.1f}]" in shown
            assert f"{100 * numbers['share']:.1f} [{low:.1f}, {high:.1f}]" in written
    for told in (
        "44.1 / 66.4 / 74.4",
        "31.0 [28.0, 34.0] / 38.0 [35.0, 41.0]",
        "0.44 [0.41, 0.47]",
        "38,400",
        "29,911",
        "5.3M",
        "13.5 min",
        "+20.0",
    ):
        assert told in shown and told in written
    assert "99.0" not in shown and "99.0" not in written, "eight attempts stand beside no trial of three"
    for told in ("LaMer, arXiv 2512.16848, Qwen3-4B, 6x6", "Method lamer leads.", "torch 2.13.0", "sampling: "):
        assert told in shown and told in written
    assert "Method lamer minus Method gigpo: +16.0 points [+10.0, +22.0], p < 0.001 (Holm < 0.001)" in shown


def test_only_what_was_found_best_is_emphasised():
    seen = Page(html_of(summary()))
    assert [found.get("class") for tag, found in seen.elements if tag == "tr"].count("best") == 2  # in both tables
    nobody = summary([row("gigpo"), row("lamer")])
    assert "best" not in [found.get("class") for _, found in Page(html_of(nobody)).elements]
    assert "**" in markdown_of(summary()) and "**" not in markdown_of(nobody)


def test_rows_without_numbers_say_why():
    problem = {"cell": "train minesweeper/ppo/s0", "status": "failed", "reason": "out of memory"}
    rows = [
        row("zero_shot", (), meaningful=False),
        row("ppo", (), state="failed", problems=[problem]),
        row("rloo", (0.2, 0.3, 0.4), state="partial", done=[0]),
    ]
    found = summary(rows, missing=["evaluate minesweeper/zero_shot"])
    found |= {"failed": [{"cell": "train minesweeper/ppo/s0", "reason": "out of memory"}]}
    found |= {"skipped": [{"block": "sokoban", "reason": "its recipe is not there"}]}
    for shown in (Page(html_of(found)).text, markdown_of(found).replace("\\_", "_")):
        for told in ("not meaningful for this model", "not run", "out of memory", "1 of 2 seeds"):
            assert told in shown
        for told in ("evaluate minesweeper/zero_shot", "sokoban: its recipe is not there", "Failed: 1"):
            assert told in shown


def test_long_lists_are_folded_away():
    found = summary()
    (difference,) = found["blocks"][0]["differences"]
    assert "details" not in Page(html_of(found)).tags()
    found["blocks"][0]["differences"] = [difference] * (page.LONG_LIST + 1)
    assert "details" in Page(html_of(found)).tags() and "<details>" in markdown_of(found)


def test_a_table_without_anything_is_still_a_page():
    empty = summary([row("ppo", (), published=None)])
    assert "Method ppo not run" in Page(html_of(empty)).text.replace("pponot", "ppo not")
    assert "No row has numbers yet (planned: 1)." in markdown_of(empty) and "|" not in markdown_of(empty)
    nothing = summary()
    nothing["blocks"] = []
    assert Page(html_of(nothing)).text.startswith("Benchmark") and markdown_of(nothing).startswith("# Benchmark")


def test_a_row_may_have_fewer_episodes_than_the_others():
    found = summary([row("gigpo", (0.3,), gain=None, published=None), row("lamer")])
    block = report_of(found).blocks[0]
    assert block.num_episodes == 3
    line = next(line for line in text.render_text(report_of(found), pictures="p").splitlines() if "gigpo" in line)
    assert line.count("|") == 8 and line.count(page.NOTHING) == 3


def test_a_paper_may_give_the_last_attempt_alone():
    found = summary([row("lamer", published=[None, None, 69.5])])
    assert "– / – / 69.5" in Page(html_of(found)).text and "– / – / 69.5" in markdown_of(found)


def test_links_lead_to_pages_of_trials_or_say_why_not(tmp_path):
    runs = {
        "runs/with a page": "trajectories.html",
        "runs/played": "trajectories/train.jsonl",
        "runs/bare": "config.yaml",
    }
    for run, file in runs.items():
        (tmp_path / run / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / run / file).write_text("{}")
    found = summary([row("lamer", runs=[*runs, "runs/gone"])])
    links = report_of(found, tmp_path, tmp_path / "benchmarks" / "results").blocks[0].rows[0].links
    assert [link.target for link in links] == ["../../runs/with%20a%20page/trajectories.html", None, None, None]
    assert "viewer runs/played" in links[1].note and links[2].note == "has no trajectories"
    assert links[3].note == "not on this machine"
    seen = Page(html_of(found, root=tmp_path, folder=tmp_path / "benchmarks" / "results"))
    targets = [attributes["href"] for tag, attributes in seen.elements if tag == "a" and attributes["href"][0] != "#"]
    assert targets == [links[0].target] and "runs/gone (not on this machine)" in seen.text


def test_no_name_of_a_run_becomes_an_address_that_runs_code(tmp_path):
    run = "javascript:alert(1)//x"
    (tmp_path / run).mkdir(parents=True)
    (tmp_path / run / "trajectories.html").write_text("")
    (link,) = report_of(summary([row("lamer", runs=[run])]), tmp_path, tmp_path).blocks[0].rows[0].links
    assert link.target.startswith("javascript%3Aalert")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [([], "no summary"), ({"blocks": []}, "no summary"), ({"blocks": [{}], "header": []}, "an entry without 'rows'")],
)
def test_what_is_no_summary_is_refused(found, sentence):
    with pytest.raises(ConfigError, match=sentence):
        report_of(found)


@pytest.mark.parametrize(
    ("over_tasks", "brackets"), [(True, "95 % intervals"), (False, "lowest to highest seed")], ids=["tasks", "seeds"]
)
def test_page_markdown_and_picture_say_what_stands_in_brackets_behind_a_diversity(over_tasks, brackets):
    rows = [row("gigpo"), row("lamer")]
    for entry in rows:
        entry["diversity"] |= {"over_tasks": over_tasks}
    found = summary(rows)
    told = f"Diversity: entropy of 8 first attempts, nats; its brackets: {brackets}."
    assert told in Page(html_of(found)).text and told in markdown_of(found)
    (chart,) = [chart for chart in report_of(found).blocks[0].charts if chart.title == "Diversity of first attempts"]
    assert chart.caption.endswith(f"; bars: {brackets}.")
    without = summary([row("gigpo", diversity=None), row("lamer", diversity=None)])
    assert "Diversity" not in markdown_of(without) and "Training: mean of the seeds." in markdown_of(without)


def test_different_blocks_never_share_a_picture():
    names = ["a b", "a-b", "A b", "a_b", "ä", "ö", ""]
    found = {text.picture_name(model.Block(name, "t", ()), 0) for name in names}
    assert len(found) == len(names) and all(re.fullmatch(r"[a-z0-9_-]+\.svg", name) for name in found)
    assert text.picture_name(model.Block("minesweeper", "t", ()), 1) == "minesweeper-2.svg"
