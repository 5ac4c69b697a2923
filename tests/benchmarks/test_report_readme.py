"""What a README shows of the benchmark: the numbers of the cells, few lines, and nothing else of the file touched."""

import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from bench.plan import load_plan  # noqa: E402
from bench.summary import summarize  # noqa: E402
from report import readme  # noqa: E402
from report_samples import hostile, row, summary  # noqa: E402

from metarl_agents.errors import ConfigError  # noqa: E402

README = BENCHMARKS.parent / "README.md"
DETAILS = "benchmarks/results/cpu/report.md"


def shown(found):
    return readme.render_lines(found, details=DETAILS)


def complete(**changes):
    """A summary whose table is complete: two trainings of two seeds and a base model."""
    rows = [
        row("base", (0.3, 0.35, 0.4), models=[], training=None, seeds=[], done=[], published=None),
        row("gigpo"),
        row("lamer", (0.31, 0.55, 0.66), best=True),
    ]
    return summary([entry | changes.get(entry["id"], {}) for entry in rows])


def more_blocks(found, count, **changes):
    """Add further tables that are alike but for their titles."""
    (block,) = found["blocks"]
    found["blocks"] += [block | {"name": f"b{i}", "title": f"Table {i}", **changes} for i in range(count)]
    return found


# The README of this repository.


@pytest.fixture(scope="module")
def kept():
    """What the cells that come with the repository give, statistics of the tables that a README may show alone."""
    plan = readme.shown_by(load_plan(readme.PRESET))
    return shown(summarize(readme.PRESET, plan=plan))


def test_the_readme_shows_what_the_committed_cells_give(kept):
    inside = readme.between_marks(README.read_text(encoding="utf-8"))
    assert words(inside) == words(kept), "`make report README=1` writes it anew"
    # Another release of NumPy sums in another order, which may turn a last digit over.
    assert numbers(inside) == pytest.approx(numbers(kept), abs=0.11), "`make report README=1` writes it anew"
    assert len(kept.splitlines()) <= readme.LINES


def words(text):
    """A block without its numbers, however its lines are broken and its columns filled."""
    return re.sub(r"[-\s]+", " ", re.sub(r"\d+\.\d+", "0", text))


def numbers(text):
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+", text)]


def test_a_changed_number_of_the_readme_would_be_noticed(kept):
    number = re.search(r"\d+\.\d \[", kept)[0]
    other = kept.replace(number, f"{float(number[:-2]) + 0.3:.1f} [", 1)
    assert words(other) == words(kept) and numbers(other) != pytest.approx(numbers(kept), abs=0.11)
    assert words(kept.replace("GiGPO", "PPO", 1)) != words(kept)


def test_the_report_that_the_readme_leads_to_has_its_numbers():
    inside = readme.between_marks(README.read_text(encoding="utf-8"))
    whole = (BENCHMARKS.parent / DETAILS).read_text(encoding="utf-8")
    found = re.findall(r"\d+\.\d \[\d+\.\d, \d+\.\d\]", inside)
    assert len(found) > 20 and not [number for number in found if number not in whole], "`make report` writes it"


# What is shown.


def test_every_number_of_a_complete_table_stands_there_with_its_interval_seeds_and_the_papers_beside():
    lines = shown(complete()).splitlines()
    (line,) = [line for line in lines if line.startswith("| **Method lamer**")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:5] == ["2", "31.0 [28.0, 34.0]", "55.0 [52.0, 58.0]", "**66.0 [63.0, 69.0]**"]
    assert cells[5:] == ["0.44 [0.41, 0.47]", "44.1 / 66.4 / 74.4"]
    (line,) = [line for line in lines if line.startswith("| Method base")]
    assert [cell.strip() for cell in line.strip("|").split("|")][1] == "–"
    text = " ".join(lines)
    for told in (
        "+20.0 [+15.0, +25.0] over its own pass@1",
        "+16.0 [+10.0, +22.0] over *Method gigpo*",
        "*Method lamer* 65.0 to 67.0",
        "29,911 episodes",
        "LaMer, arXiv 2512.16848 (Qwen3-4B, 6x6)",
        f"[full report]({DETAILS})",
        "the same 64 test tasks",
    ):
        assert told in text, told
    assert shown(complete()) == shown(complete())


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ((True, True, True), "nats; its brackets: 95 % intervals."),
        ((False, False, False), "nats; its brackets: lowest to highest seed."),
        (
            (True, False, False),
            "nats; its brackets: 95 % intervals, or lowest to highest seed where no entropy of each task was kept.",
        ),
        ((None, False, None), "nats; its brackets: lowest to highest seed."),
        ((None, None, None), "nats."),
    ],
)
def test_what_stands_in_brackets_behind_a_diversity_is_said(kinds, told):
    found = complete()
    for entry, kind in zip(found["blocks"][0]["rows"], kinds, strict=True):
        entry["diversity"] = {"nats": 0.44, "share": 0.2, "samples": 8, "over_tasks": bool(kind)}
        entry["diversity"]["interval"] = None if kind is None else [0.41, 0.47]
    text = " ".join(shown(found).split())
    assert f"Diversity: entropy of 8 first attempts, {told}" in text
    assert "intervals are not adjusted for the number of pairs." in text
    found["blocks"][0]["rows"][0]["diversity"]["samples"] = 4
    assert "entropy of 4 or 8 first attempts" in " ".join(shown(found).split())


def test_rows_without_numbers_and_baselines_that_mean_nothing_are_left_out():
    found = complete()
    found["blocks"][0]["rows"] += [row("none", ()), row("react", meaningful=False, models=[])]
    assert shown(found) == shown(complete())


def test_rows_with_some_of_their_seeds_stand_there_and_say_how_many():
    found = complete()
    found["blocks"][0]["rows"] += [row("part", state="partial", seeds=[0, 1, 2], done=[0])]
    line = next(line for line in shown(found).splitlines() if "part" in line and line.startswith("|"))
    assert "| 1 of 3 |" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"lamer": {"state": "partial"}},
        {"gigpo": {"state": "missing", "pass": {}}},
        {"gigpo": {"models": ["lamer"]}},
        {"gigpo": {"training": None}},
    ],
)
def test_a_table_without_its_reference_or_another_training_is_not_complete(changes):
    text = shown(complete(**changes))
    assert "No table is complete yet." in text and "|" not in text and DETAILS in text


def test_ablations_make_no_difference():
    assert shown(more_blocks(complete(), 2, kind="ablation")) == shown(complete())


def test_complete_tables_that_do_not_fit_are_named_and_the_lines_stay_few():
    text = shown(more_blocks(complete(), 9))
    assert len(text.splitlines()) <= readme.LINES
    held = [title for title in (f"Table {i}" for i in range(9)) if f"**{title}**" in text]
    assert 1 <= len(held) < 9 and "Table 8" in " ".join(text.split("Complete too: ")[1].split())


def test_whatever_a_label_or_a_title_holds_is_inert_and_what_models_or_errors_say_never_enters():
    found = hostile()
    spoken = "what a model said"
    for block in found["blocks"]:
        good, bad = block["rows"]
        block["rows"] = [
            good,
            good | {"id": "c", "models": ["c"], "player": "c"},
            bad | {"problems": [{"cell": "x", "status": "failed", "reason": spoken}]},
        ]
        block |= {"notes": [f"crashed episodes: {spoken}"], "differences": []}
    found |= {"header": [spoken], "failed": [{"cell": "x", "reason": spoken}], "missing": [spoken]}
    text = shown(found)
    assert "alert(1)" in text and spoken not in text
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    assert not [token for token in tokens if token.type in ("html_block", "heading_open", "fence")]
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {"text", "text_special", "softbreak", "strong_open", "strong_close", "em_open", "em_close"}
    assert {child.type for child in inline} <= kinds | {"link_open", "link_close"}
    assert [child.attrs["href"] for child in inline if child.type == "link_open"] == [DETAILS]
    # What stands between the marks can be replaced again.
    once = readme.put_between_marks(f"a\n{readme.BEGIN}\n{readme.END}\nb\n", text, "x")
    assert readme.put_between_marks(once, text, "x") == once and readme.between_marks(once) == text


# Between the marks.


@pytest.mark.parametrize("line", ["\n", "\r\n"])
@pytest.mark.parametrize("opening", [readme.BEGIN, "<!-- bench:begin -->"])
def test_the_readme_keeps_everything_outside_the_marks(line, opening):
    old = f"# Mine{line}{opening}{line}old{line}{readme.END}{line}after"
    once = readme.put_between_marks(old, "new\ncontent\n", "README.md")
    assert once == line.join(["# Mine", readme.BEGIN, "", "new", "content", "", readme.END, "after"])
    assert readme.put_between_marks(once, "new\ncontent\n", "README.md") == once
    assert readme.between_marks(once) == "new\ncontent" and "make report README=1" in readme.BEGIN


@pytest.mark.parametrize(
    "marks",
    ["", "x", readme.BEGIN, readme.END + readme.BEGIN, 2 * (readme.BEGIN + readme.END), readme.BEGIN + 2 * readme.END],
)
def test_a_readme_whose_marks_are_missing_or_doubled_is_refused_and_left_alone(tmp_path, marks):
    file = tmp_path / "README.md"
    file.write_text(marks)
    with pytest.raises(ConfigError, match="once each and in this order"):
        readme.rewrite_readme(file, "new")
    assert file.read_text() == marks and [item.name for item in tmp_path.iterdir()] == ["README.md"]


def test_a_rewrite_is_whole_or_not_at_all_and_one_that_changes_nothing_leaves_the_file_alone(tmp_path, monkeypatch):
    file = tmp_path / "README.md"
    file.write_text(f"{readme.BEGIN}\n{readme.END}\n")
    file.chmod(0o640)

    def broken(source, target):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="full"):
            readme.rewrite_readme(file, "new")
    assert "new" not in file.read_text()
    readme.rewrite_readme(file, "new")
    written = file.stat()
    assert "new" in file.read_text() and stat.S_IMODE(written.st_mode) == 0o640
    readme.rewrite_readme(file, "new")
    assert file.stat().st_mtime_ns == written.st_mtime_ns and file.stat().st_ino == written.st_ino
    with pytest.raises(ConfigError, match="cannot read"):
        readme.rewrite_readme(tmp_path / "nothing.md", "new")


def test_only_main_tables_are_computed_for_a_readme():
    plan = load_plan("smoke")
    blocks = tuple(replace(plan.blocks[0], kind=kind) for kind in ("main", "ablation"))
    assert [block.kind for block in readme.shown_by(replace(plan, blocks=blocks)).blocks] == ["main"]
