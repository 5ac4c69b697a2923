"""What the benchmark's tables and figures say of the cells that are there."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.summary import header, summarize, summary  # noqa: E402
from bench.table import report  # noqa: E402
from bench_samples import PLAN, SOLVED, Trainer  # noqa: E402

from metarl_agents.evaluation import paired_bootstrap  # noqa: E402


def test_the_summary_is_the_same_for_the_same_cells_and_plain_json(make, plan, tmp_path):
    make().run(plan.jobs_wanted())
    first, second = (summarize("smoke", results=tmp_path / "results", plan=plan) for _ in range(2))
    assert json.dumps(first) == json.dumps(second) and first["missing"] == first["failed"] == []
    rows = {row["id"]: row for row in first["blocks"][0]["rows"]}
    assert rows["meta"]["pass"]["3"]["share"] == (37 + 38) / 80 and rows["meta"]["n"] == 80
    shared = {"nats": 0.5, "share": 0.25, "samples": 4, "over_tasks": False, "interval": [0.5, 0.5]}
    assert rows["rl_memory"]["diversity"] == rows["rl"]["diversity"] == shared
    assert rows["react"]["diversity"]["interval"] is None, "one run, and no entropy of its tasks"
    found = rows["base"]["diversity"]
    low, high = found["interval"]
    assert found["over_tasks"] and found["nats"] == 0.5 and 0.25 < low < 0.4 and 0.6 < high < 0.75
    assert rows["base"]["training"] is None and rows["meta"]["training"]["episodes_used"] == 20
    assert all(entry["better"] == "meta" for entry in first["blocks"][0]["differences"])
    assert "react" not in {entry["than"] for entry in first["blocks"][0]["differences"]}


@pytest.mark.parametrize(
    ("solved", "tasks", "seeds", "best", "verdict"),
    [
        (
            SOLVED,
            40,
            "[0, 1]",
            "meta",
            "leads at pass@3, significantly .* \\(p times the 6 pairs of rows is below 0.05",
        ),
        (SOLVED | {"meta": 14}, 40, "[0, 1]", None, "^no winner: .* \\(p times the 6 pairs of rows is not below 0.05"),
        (SOLVED, 40, "[0]", None, "with one seed"),
        (SOLVED | {"meta": 20}, 20, "[0, 1]", None, "n too small: 20 tasks"),
    ],
)
def test_a_winner_is_named_only_where_tasks_and_seeds_allow_it(write, make, solved, tasks, seeds, best, verdict):
    solved = solved if tasks == 40 else {name: min(value, tasks - 1) for name, value in solved.items()}
    plan = write(PLAN.replace("eval_tasks: 40", f"eval_tasks: {tasks}").replace("seeds: [0, 1]", f"seeds: {seeds}"))
    runner = make(Trainer(solved), plan=plan)
    runner.run(plan.jobs_wanted())
    block = summary(plan, runner.cells)["blocks"][0]
    assert re.search(verdict, block["verdict"]) and [row["id"] for row in block["rows"] if row["best"]] == [
        best
    ] * bool(best)


def test_a_table_can_be_printed_from_nothing_and_from_part_of_the_cells(make, plan):
    runner = make()
    empty = report(summary(plan, {}))
    assert "missing: main/base" in empty and "12 cells are missing" in empty.replace(str(len(plan.jobs_wanted())), "12")
    runner.run(plan.jobs_wanted("main/base"))
    text = report(summary(plan, runner.cells), markdown=True)
    assert "| base " in text and "ReAct (not meaningful)" in text and "the same sampling" in text


def test_what_is_not_recorded_of_machines_and_dates_is_said_and_never_left_out(make, plan):
    runner = make()
    runner.run(plan.jobs_wanted())
    place = {"device": "cpu", "processor": None, "threads": None, "versions": {}}
    for cell in runner.cells.values():
        cell.machine, cell.date = None, None
    evaluated = [cell for cell in runner.cells.values() if cell.kind == "evaluate"]
    evaluated[0].machine, evaluated[0].date = place, "2026-11-28T01:05:36+00:00"
    alone = {"num_processes": 1, "mixed_precision": "no"}
    evaluated[1].machine = place | alone | {"processor": "Fast", "threads": 2, "versions": {"torch": "2"}}
    evaluated[2].machine = evaluated[1].machine | {"device": "cuda", "num_processes": 4, "mixed_precision": "bf16"}
    lines = header(plan, list(runner.cells.values()))
    trained = len(runner.cells) - len(evaluated)
    assert f"trained on a machine that was not recorded: {trained} cells" in lines
    assert f"evaluated on a machine that was not recorded: {len(evaluated) - 3} cells" in lines
    assert "evaluated on 4 x cuda in bf16 (Fast, 2 thread(s) each; torch 2): 1 cells" in lines
    cpu = "cpu (processor not recorded, threads not recorded; versions not recorded)"
    assert (
        f"evaluated on {cpu}: 1 cells" in lines
        and "evaluated on cpu (Fast, 2 thread(s) each; torch 2): 1 cells" in lines
    )
    undated = len(runner.cells) - 1
    assert f"made 2026-11-28 to 2026-11-28; date not recorded: {undated} cells" in lines
    assert all(line in " ".join(report(summary(plan, runner.cells), markdown=True).split("\n")) for line in lines)


def test_figures_are_drawn_for_what_is_there(make, plan, tmp_path):
    pytest.importorskip("matplotlib")
    from bench.figures import draw_all

    runner = make()
    assert draw_all(summary(plan, {}), tmp_path / "pictures") == []
    runner.run(plan.jobs_wanted())
    made = draw_all(summary(plan, runner.cells), tmp_path / "pictures")
    names = ["main_training", "main_gain", "main_diversity", "sweep_ablation"]
    assert [path.stem for path in made] == names and all(path.stat().st_size > 5000 for path in made)


def test_two_models_that_found_the_same_are_two_rows_and_one_model_played_twice_is_one(make, plan, monkeypatch):
    pytest.importorskip("matplotlib")
    from bench import figures, table

    class Axes:
        def __getattr__(self, name):
            return lambda *given, **more: drawn.append(given[1]) if name == "barh" else None

    runner = make()
    runner.run(plan.jobs_wanted())
    main = summary(plan, runner.cells)["blocks"][0]
    assert len({json.dumps([row["independent"], row["diversity"]]) for row in main["rows"] if row["seeds"]}) == 1
    rows = table._sampled(main, ["1", "2", "3"])[1]
    assert [row[0] for row in rows] == ["base", "ReAct", "RL", "meta-RL"]
    assert [row[0] for row in table._training(main)[1]] == ["RL", "meta-RL"]
    drawn, told = [], []
    monkeypatch.setattr(figures, "_picture", lambda path, size, fill, **more: fill(Axes()))
    monkeypatch.setattr(figures, "draw", lambda methods, **more: told.extend(methods))
    figures.diversity(main, Path("unused"))
    figures.training(main, Path("unused"))
    assert drawn == [[0.5] * 3] and told == ["RL", "meta-RL"]


def test_every_number_of_a_table_has_its_interval(make, plan):
    from bench import table
    from bench.measures import PASS

    runner = make()
    runner.run(plan.jobs_wanted())
    main = summary(plan, runner.cells)["blocks"][0]
    ks = ["1", "2", "3"]
    for row in main["rows"]:
        cells = table._row(row, ks, PASS, markdown=True)[3:]
        assert len(cells) == 4 and all(cell.count("[") == cell.count(",") == 1 for cell in cells), cells
    for row, *cells in table._sampled(main, ks)[1]:
        # Of a single run that kept no entropy of its tasks, nothing says how far its diversity reaches.
        assert all("[" in cell for cell in cells[: 3 if row == "ReAct" else 4]), (row, cells)


def test_seeds_that_differ_widen_the_interval_and_equal_ones_do_not():
    tasks = [[number % 2 == 0 for number in range(200)]]
    steady = paired_bootstrap(tasks * 3, [[False] * 200] * 3, over_runs=True)
    plain = paired_bootstrap(tasks * 3, [[False] * 200] * 3)
    assert abs(steady.low - plain.low) < 0.02 and abs(steady.high - plain.high) < 0.02
    uneven = [[True] * 200, tasks[0], [False] * 200]
    wide = paired_bootstrap(uneven, [[False] * 200] * 3, over_runs=True)
    narrow = paired_bootstrap(uneven, [[False] * 200] * 3)
    assert wide.mean == narrow.mean == 0.5 and wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert paired_bootstrap(uneven, uneven, over_runs=True).p_value > 0.5
