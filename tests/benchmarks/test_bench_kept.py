"""A fault costs a cell and not the bench, and a model that is trained again never mixes with its earlier self."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.cells import digest, read_cells  # noqa: E402
from bench.kept import is_damaged, read_kept  # noqa: E402
from bench.summary import summarize  # noqa: E402
from bench.table import report  # noqa: E402
from bench_samples import SOLVED, Trainer  # noqa: E402


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


def file_of(results, pattern):
    (file,) = (results / "smoke").glob(pattern)
    return file


def rewritten(file, change):
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))


# Damaged files.


def no_result(values):
    values["result"] = {"solved_at": "x"}


def short(values):
    values["result"]["task_seeds"] = [[1, 2]]


DAMAGES = {
    "no JSON": lambda file: file.write_text("{"),
    "no object": lambda file: file.write_text("[]"),
    "a field less": lambda file: rewritten(file, lambda values: values.pop("seed")),
    "no result": lambda file: rewritten(file, no_result),
    "fewer tasks": lambda file: rewritten(file, short),
    "no model": lambda file: rewritten(file, lambda values: values.update(model=None)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_evaluation_is_reported_with_its_file_and_the_rest_of_the_tables_stays(make, plan, results, damage):
    make().run(plan.jobs_wanted())
    whole = summarize("smoke", results=results, plan=plan)
    file = file_of(results, "evaluate-main-rl-s1-*")
    DAMAGES[damage](file)
    found = summarize("smoke", results=results, plan=plan)
    (entry,) = found["failed"]
    assert entry["cell"] == "evaluate main/rl/s1" and file.name in entry["reason"] and "delete it" in entry["reason"]
    rows = {row["id"]: row for row in found["blocks"][0]["rows"]}
    assert (rows["rl"]["state"], rows["rl"]["done"], rows["rl"]["problems"][0]["status"]) == ("partial", [0], "failed")
    assert file.name in report(found) and "1 failed" in report(found) and found["blocks"][1] == whole["blocks"][1]
    before = {row["id"]: row for row in whole["blocks"][0]["rows"]}
    assert rows["meta"]["pass"] == before["meta"]["pass"] and found["stale"] == []


def test_a_damaged_file_is_not_made_again_before_it_is_deleted_and_nothing_is_written_over_it(make, plan, results):
    make().run(plan.jobs_wanted())
    file = file_of(results, "evaluate-main-rl-s1-*")
    file.write_text("{")
    runner = make()
    assert runner.run(plan.jobs_wanted()) == [] and file.read_text() == "{"
    assert any(file.name in line and "FAILED" in line for line in runner.lines)
    file.unlink()
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["evaluate main/rl/s1"]


@pytest.mark.parametrize("damage", ["{", "training"])
def test_a_damaged_training_leaves_its_evaluations_in_the_table_and_is_reported(make, plan, results, damage):
    make().run(plan.jobs_wanted())
    file = file_of(results, "train-main-meta-s0-*")
    if damage == "{":
        file.write_text("{")
    else:
        rewritten(file, lambda values: values["training"].pop("tokens"))
    found = summarize("smoke", results=results, plan=plan)
    assert [entry["cell"] for entry in found["failed"]] == ["train main/meta/s0"] and file.name in report(found)
    row = found["blocks"][0]["rows"][-1]
    assert (row["state"], row["done"], row["n"]) == ("finished", [0, 1], 80)
    runner = make()
    assert runner.run(plan.jobs_wanted()) == [], "what would play it waits, and what was found stays"


def test_a_damaged_file_of_no_known_cell_is_reported_too(make, plan, results):
    make().run(plan.jobs_wanted())
    (results / "smoke" / "train-x-0123.json").write_text("{")
    found = summarize("smoke", results=results, plan=plan)
    assert [entry["cell"] for entry in found["failed"]] == ["train train-x-0123.json"]
    assert "train-x-0123.json is damaged" in report(found) and found["stale"] == found["missing"] == []
    assert sum(map(is_damaged, read_kept(plan, results).values())) == 1
    assert make().due(plan.jobs_wanted()) == []


def test_runs_of_a_row_that_played_different_tasks_cost_their_row_alone(make, plan, results):
    make().run(plan.jobs_wanted())
    rewritten(file_of(results, "evaluate-main-rl-s1-*"), lambda values: values["result"].update(task_seeds=[[7, 40]]))
    found = summarize("smoke", results=results, plan=plan)
    rows = {row["id"]: row for row in found["blocks"][0]["rows"]}
    assert rows["rl"]["state"] == "failed" and rows["meta"]["state"] == "finished"
    assert all("different tasks" in problem["reason"] for problem in rows["rl"]["problems"])
    assert len(found["failed"]) == 2


def test_rows_with_other_tasks_than_were_asked_for_are_not_compared_and_it_is_said(make, plan, results):
    make().run(plan.jobs_wanted())
    for file in (results / "smoke").glob("evaluate-main-rl-s*"):
        rewritten(file, lambda values: values["result"].update(task_seeds=[[7, 40]]))
    block = summarize("smoke", results=results, plan=plan)["blocks"][0]
    assert "meta-RL and RL cannot be compared: they hold other tasks" in block["verdict"]
    assert "rl" not in {entry["than"] for entry in block["differences"]} and block["rows"][2]["pass"]


# Models that are trained again.


class Drifting(Trainer):
    """A machine on which training ends elsewhere every time."""

    times = 0

    def train(self, job, shop):
        cell = super().train(job, shop)
        Drifting.times += 1
        (ROOT / cell.run / "config.json").write_text(f"{job.key} {Drifting.times}")
        return replace(cell, training=cell.training | {"weights": digest(Path(cell.run))})


def lose(results, runs, *, evaluation="evaluate-main-meta-s0-*", model="main-meta-s0-*"):
    file_of(results, evaluation).unlink()
    (folder,) = (runs / "smoke").glob(model)
    shutil.rmtree(folder)


def weights_in(results):
    """Return {name: weights} of every cell about the model of `meta` with seed 0."""
    cells = read_cells("smoke", results).values()
    known = [cell for cell in cells if cell.name in ("main/meta/s0", "sweep/meta:0.9/s0")]
    return {f"{cell.kind} {cell.name}": (cell.training or cell.model)["weights"] for cell in known}


def test_what_must_be_trained_again_is_said_and_its_time_counts(make, plan, results, tmp_path):
    make().run(plan.jobs_wanted())
    lose(results, tmp_path / "runs")
    found = summarize("smoke", results=results, plan=plan)
    assert found["again"] == ["main/meta/s0"] and found["missing"] == ["evaluate main/meta/s0"]
    assert found["hours_left"] == round((5 + 2 * 2) / 2 / 3600, 3)
    told = "1 model is trained again, since its weights are not on this machine"
    assert told in report(found)
    runner = make()
    runner.run(plan.jobs_wanted())
    assert told in runner.lines[0] and runner.lines[0].startswith("2 cells to make")
    assert summarize("smoke", results=results, plan=plan)["again"] == []


def test_a_model_without_weights_that_nothing_needs_is_not_trained_again(make, plan, results, tmp_path):
    make().run(plan.jobs_wanted())
    shutil.rmtree(tmp_path / "runs" / "smoke")
    assert make().due(plan.jobs_wanted()) == []
    found = summarize("smoke", results=results, plan=plan)
    assert found["again"] == [] and "all cells are there" in report(found)


def test_training_again_to_the_same_weights_leaves_the_cells_as_they_are(make, plan, results, tmp_path):
    make().run(plan.jobs_wanted())
    lose(results, tmp_path / "runs")
    before = {path.name: path.read_bytes() for path in (results / "smoke").glob("*.json")}
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["train main/meta/s0", "evaluate main/meta/s0"]
    after = {path.name: path.read_bytes() for path in (results / "smoke").glob("*.json")}
    assert {name: text for name, text in after.items() if name in before} == before and len(after) == len(before) + 1
    assert not (tmp_path / "runs/smoke/earlier").exists()


def test_training_again_to_other_weights_makes_all_its_evaluations_again_and_loses_nothing(
    make, plan, results, tmp_path
):
    runner = make(Drifting(SOLVED))
    runner.run(plan.jobs_wanted())
    before = read_cells("smoke", results)
    old = weights_in(results)["train main/meta/s0"]
    rl = file_of(results, "evaluate-main-rl-s0-*").read_bytes()
    lose(results, tmp_path / "runs", evaluation="evaluate-main-rl-memory-s1-*", model="main-rl-s1-*")
    runner = make(Drifting(SOLVED))
    runner.run(plan.jobs_wanted())
    # `main/rl/s1` was there, and is made again, as it played the model that is gone.
    assert runner.trainer.made == ["train main/rl/s1", "evaluate main/rl_memory/s1", "evaluate main/rl/s1"]
    after = read_cells("smoke", results)
    played = {cell.model["weights"] for cell in after.values() if cell.kind == "evaluate" and cell.name.endswith("s1")}
    trained = {cell.training["weights"] for cell in after.values() if cell.kind == "train" and cell.seed == 1}
    assert played == trained and len(after) == len(before)
    assert (
        weights_in(results)["train main/meta/s0"] == old
        and rl == file_of(results, "evaluate-main-rl-s0-*").read_bytes()
    )
    (folder,) = (tmp_path / "runs/smoke/earlier").iterdir()
    aside = read_cells(folder.name, folder.parent)
    assert {f"{cell.kind} {cell.name}" for cell in aside.values()} == {"train main/rl/s1", "evaluate main/rl/s1"}
    assert all(cell == before[key] for key, cell in aside.items())
    assert any("is kept in" in line for line in runner.lines)
    assert make(Drifting(SOLVED)).due(plan.jobs_wanted()) == []


def test_between_training_again_and_evaluating_again_no_row_shows_the_earlier_model(make, plan, results, tmp_path):
    make(Drifting(SOLVED)).run(plan.jobs_wanted())
    lose(results, tmp_path / "runs", evaluation="evaluate-main-rl-memory-s1-*", model="main-rl-s1-*")
    runner = make(Drifting(SOLVED, stop_at=["evaluate"]), jobs=1)
    with pytest.raises(KeyboardInterrupt):
        runner.run(plan.jobs_wanted())
    found = summarize("smoke", results=results, plan=plan)
    rows = {row["id"]: row for row in found["blocks"][0]["rows"]}
    assert rows["rl"]["done"] == rows["rl_memory"]["done"] == [0]
    assert set(found["missing"]) == {"evaluate main/rl/s1", "evaluate main/rl_memory/s1"} and found["again"] == []
    assert "left out, since their model was trained again: main/rl/s1" in found["blocks"][0]["notes"]
    runner = make(Drifting(SOLVED))
    runner.run(plan.jobs_wanted())
    assert sorted(runner.trainer.made) == ["evaluate main/rl/s1", "evaluate main/rl_memory/s1"]


def test_other_weights_in_the_folder_of_a_model_are_not_taken_for_it(make, plan, results, tmp_path):
    make().run(plan.jobs_wanted())
    file_of(results, "evaluate-main-meta-s0-*").unlink()
    (folder,) = (tmp_path / "runs/smoke").glob("main-meta-s0-*")
    (folder / "config.json").write_text("of another training")
    assert [f"{job.kind} {job.name}" for job in make().due(plan.jobs_wanted())] == [
        *("train main/meta/s0", "evaluate main/meta/s0")
    ]


def test_a_failure_never_replaces_what_is_finished(make, plan, results, tmp_path):
    make().run(plan.jobs_wanted())
    lose(results, tmp_path / "runs")
    before = file_of(results, "train-main-meta-s0-*").read_bytes()
    runner = make(Trainer(SOLVED, break_at=["train main/meta/s0"]))
    (cell,) = runner.run(plan.jobs_wanted())
    assert not cell.finished and file_of(results, "train-main-meta-s0-*").read_bytes() == before
    assert runner.trainer.made == ["train main/meta/s0"] and any("FAILED train main/meta/s0" in x for x in runner.lines)
