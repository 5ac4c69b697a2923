"""Which rows of a table are compared, and when one of them may be said to lead."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.comparing import trained_otherwise  # noqa: E402
from bench.summary import summary  # noqa: E402
from bench.table import report  # noqa: E402
from bench_samples import PLAN, SOLVED, Trainer  # noqa: E402
from report.page import render_page  # noqa: E402
from report.reading import read_report  # noqa: E402
from report.text import render_text  # noqa: E402

SWEEP = """
- name: other
  title: Other boards
  like: main
  kind: ablation
  rows: [meta]
  reference: "meta:easy"
  vary: {name: boards, variants: {easy: {EASY}, hard: {HARD}}}
"""
BOARD = "evaluate: {env_kwargs: {size: 4, mines: %d}}"


def sweep(easy, hard, rows="[meta]"):
    text = SWEEP.replace("EASY", easy).replace("HARD", hard).replace("[meta]", rows)
    return PLAN + text


class Boards(Trainer):
    """Solves much more on one variant's boards than on the other's."""

    def evaluate(self, job, trained):
        hard = ":hard" in job.name
        return Trainer(self.solved | {"meta": 5 if hard else 37}).evaluate(job, trained)


def block_of(plan, runner, name="other"):
    runner.run(plan.jobs_wanted())
    return next(block for block in summary(plan, runner.cells)["blocks"] if block["name"] == name)


@pytest.mark.parametrize(
    ("hard", "told"),
    [
        (BOARD % 6, "`env_kwargs` differs"),
        ("evaluate: {env_kwargs: {size: 4, mines: 3}, max_turns: 5}", "`max_turns` differs"),
        ("evaluate: {env_kwargs: {size: 4, mines: 3}, eval_tasks: 30}", "`eval_tasks` differs"),
        (
            "evaluate: {env_kwargs: {size: 4, mines: 6}, eval_temperature: 0.1}",
            "`eval_temperature`, `env_kwargs` differ",
        ),
    ],
)
def test_rows_that_played_other_tasks_or_otherwise_are_not_compared(write, make, hard, told):
    plan = write(sweep(BOARD % 3, hard))
    block = block_of(plan, make(Boards(SOLVED), plan=plan))
    assert block["differences"] == [] and not any(row["best"] for row in block["rows"])
    assert block["verdict"] == f"each variant plays tasks of its own ({told}): no row is best over all"
    assert [row["state"] for row in block["rows"]] == ["finished"] * 2 and block["rows"][0]["pass"]
    assert not any("Holm" in note for note in block["notes"])


def test_the_other_tables_are_what_they_are_beside_one_that_cannot_be_compared(write, make):
    plan = write(sweep(BOARD % 3, "evaluate: {env_kwargs: {size: 4, mines: 3}, eval_tasks: 30}"))
    runner = make(plan=plan)
    runner.run(plan.jobs_wanted())
    found = summary(plan, runner.cells)
    alone = summary(replace(plan, blocks=plan.blocks[:2]), runner.cells)
    assert found["blocks"][:2] == alone["blocks"] and found["blocks"][0]["rows"][-1]["best"]
    assert "no row is best over all" in report(found)


def test_variants_of_training_play_the_same_tasks_and_are_compared(write, make):
    plan = write(sweep("train: {gamma_traj: 0.9}", "train: {gamma_traj: 0.1}"))
    block = block_of(plan, make(Boards(SOLVED), plan=plan))
    (entry,) = block["differences"]
    assert (entry["better"], entry["than"]) == ("meta:easy", "meta:hard") and entry["p_value"] < 0.01
    assert [row["id"] for row in block["rows"] if row["best"]] == ["meta:easy"]


def test_within_a_variant_rows_are_compared_with_its_reference_though_variants_are_not(write, make):
    text = sweep(BOARD % 3, BOARD % 6, "[rl, meta]").replace('reference: "meta:easy"', "reference: meta")
    plan = write(text)
    block = block_of(plan, make(plan=plan))
    pairs = {(entry["better"], entry["than"]) for entry in block["differences"]}
    assert pairs == {("meta:easy", "rl:easy"), ("meta:hard", "rl:hard")}
    assert "no row is best over all" in block["verdict"]


def test_first_episodes_are_not_borrowed_from_a_row_that_was_evaluated_otherwise(write, make):
    plan = write(
        sweep(BOARD % 3, "evaluate: {env_kwargs: {size: 4, mines: 3}, eval_temperature: 0.1, eval_samples: 0}")
    )
    easy, hard = block_of(plan, make(plan=plan))["rows"]
    assert easy["independent"] and hard["independent"] == {} and hard["diversity"] is None


def test_nobody_wins_while_no_row_of_other_models_is_finished(make, plan):
    runner = make()
    runner.run([job for job in plan.jobs_wanted("main") if "/rl" not in job.name])
    found = summary(plan, runner.cells)["blocks"][0]
    assert {row["id"] for row in found["rows"] if row["state"] == "finished"} == {"base", "react", "meta"}
    assert not any(row["best"] for row in found["rows"]) and "significantly" not in found["verdict"]
    told = "no finished row of otherwise trained models is there to compare with; not finished: RL, RL with memory"
    assert found["verdict"] == f"no winner: meta-RL leads at pass@3, but {told}"
    assert [entry["than"] for entry in found["differences"]] == ["base"], "how far they lie apart is told all the same"
    # One seed of two is not a finished row yet.
    runner.run([job for job in plan.jobs_wanted("main") if job.name.endswith("rl/s0")])
    assert "not finished: RL, RL with memory" in summary(plan, runner.cells)["blocks"][0]["verdict"]
    runner.run(plan.jobs_wanted())
    assert re.search("leads at pass@3, significantly", summary(plan, runner.cells)["blocks"][0]["verdict"])


def test_rows_of_the_same_models_and_of_the_base_model_are_not_trained_otherwise():
    rows = [{"id": "a", "models": ["x"]}, {"id": "b", "models": ["x"]}, {"id": "c", "models": ["y"]}]
    base = {"id": "base", "models": []}
    assert trained_otherwise([*rows, base], rows[0]) == [rows[2]]
    assert trained_otherwise([*rows, base], base) == rows


# What is said beside the numbers.


def test_page_markdown_and_terminal_count_the_same_tasks_and_seeds(make, plan):
    runner = make()
    runner.run(plan.jobs_wanted())
    found = summary(plan, runner.cells)
    shown = read_report(found, root=ROOT, page_folder=ROOT)
    terminal, text, page = report(found, markdown=True), render_text(shown, pictures="p"), render_page(shown)
    rows = [next(line for line in told.splitlines() if line.startswith("| meta-RL ")) for told in (terminal,)]
    rows += [next(line for line in text.splitlines() if line.startswith("| **meta-RL** "))]
    heads = [next(line for line in told.splitlines() if "| seeds" in line) for told in (terminal, text)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (*heads, *rows)]
    for head, row in zip(cells[:2], cells[2:], strict=True):
        assert row[head.index("tasks")] == "40" and row[head.index("seeds")] in ("2", "2/2") and "n" not in head
    for told in (terminal, text.replace("\\", ""), page):
        assert "tasks x seeds" in told and "; seeds: 2 and 2" in told and "; seeds: 2 and 1" in told
        assert "the verdict is stricter: it corrects for all pairs of rows" in told
        assert "temperature 0.7, top_p 0.8, top_k 20, min_p 0, repetition_penalty 1" in told


def test_a_row_that_shows_another_ones_first_episodes_is_marked(make, plan):
    runner = make()
    runner.run(plan.jobs_wanted())
    main = summary(plan, runner.cells)["blocks"][0]
    (note,) = [note for note in main["notes"] if "another row" in note]
    assert note.endswith("first episodes: RL with memory (those of RL)")


def test_how_evaluations_sample_is_told_once_or_for_each_table(write):
    (line,) = [line for line in summary(write(), {})["header"] if "temperature" in line]
    assert line.startswith("every evaluation samples with temperature 0.7, top_p 0.8, top_k 20")
    other = write(
        sweep(BOARD % 3, BOARD % 6).replace("Other boards", "Other boards\n  evaluate: {eval_temperature: 0}")
    )
    lines = [line for line in summary(other, {})["header"] if "temperature" in line]
    assert [line.split(" sample with ")[0] for line in lines] == ["evaluations of main, sweep", "evaluations of other"]
    assert lines[1].endswith(" sample with temperature 0, which is greedy")


def test_page_and_markdown_name_the_cells_that_are_stale(make, plan):
    runner = make()
    runner.run(plan.jobs_wanted("main/base"))
    (cell,) = runner.cells.values()
    found = summary(plan, runner.cells | {"another key": replace(cell, name="old/base")})
    shown = read_report(found, root=ROOT, page_folder=ROOT)
    assert found["stale"] == ["old/base"]
    assert "Stale" in render_page(shown) and "old/base" in render_page(shown)
    assert "old/base" in render_text(shown, pictures="p")


def test_what_training_took_is_a_table_of_its_own_with_a_row_for_each_training(make, plan):
    runner = make()
    runner.run(plan.jobs_wanted())
    shown = read_report(summary(plan, runner.cells), root=ROOT, page_folder=ROOT)
    text, page = render_text(shown, pictures="p"), render_page(shown)
    table = text.split("Training: mean of the seeds.")[1].split("\n\n")[1].splitlines()
    assert [line.split("|")[1].strip() for line in table] == ["method", table[1].split("|")[1].strip(), "RL", "meta-RL"]
    assert "indep. pass@1/2/3" not in table[0] and "tokens" in table[0]
    assert page.count("Training: mean of the seeds.") == 2  # one for each block
