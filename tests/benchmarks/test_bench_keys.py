"""Cells are found by what decided them: whatever their file is called, under whichever rules it was written."""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench import deciding, work  # noqa: E402
from bench.adopt import Adopter  # noqa: E402
from bench.cells import key_of, read_cell, read_cells  # noqa: E402
from bench.work import Workshop, describe_machine, failed, perform  # noqa: E402
from bench_samples import SOLVED, Trainer  # noqa: E402

from metarl_agents.errors import ConfigError  # noqa: E402


def jobs_of(plan, name="main/meta/s0"):
    """Return a row's training and evaluation."""
    wanted = {job.kind: job for job in plan.jobs_wanted() if job.name == name}
    return wanted["train"], wanted["evaluate"]


def made(plan, tmp_path):
    """Make both cells of a row, without keeping them."""
    shop, trainer = Workshop(tmp_path / "runs"), Trainer(SOLVED)
    training, evaluation = jobs_of(plan)
    trained = trainer.train(training, shop)
    return trained, trainer.evaluate(evaluation, trained)


def raw(decides):
    """The key as it used to be: the hash of all settings, those that cannot matter too."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def kept_as_before(cells, folder):
    """Write a training and its evaluation as older code did: keys of all settings, the training named by its key."""
    trained, evaluated = cells
    old = replace(trained, key=raw(trained.decides))
    decides = {name: value for name, value in evaluated.decides.items() if name != "train"} | {"train_key": old.key}
    model = evaluated.model | {"train_key": old.key}
    newer = replace(evaluated, key=raw(decides), decides=decides, model=model)
    return old.write(folder), newer.write(folder)


def keys(plan):
    return [job.key for job in jobs_of(plan)]


def test_cells_of_older_code_are_found_under_the_keys_of_today(plan, tmp_path):
    files = kept_as_before(made(plan, tmp_path), tmp_path / "smoke")
    assert not {read_cell(file).key for file in files} & set(keys(plan))
    cells = read_cells("smoke", tmp_path)
    training, evaluation = (cells[key] for key in keys(plan))
    assert (training.kind, evaluation.kind) == ("train", "evaluate") and len(cells) == 2
    assert evaluation.model["train_key"] == evaluation.decides["train_key"] == training.key
    assert (training.path, evaluation.path) == files and training.file_name == files[0].name


def test_a_cell_that_is_made_again_takes_the_place_of_the_older_file(plan, tmp_path):
    cells = made(plan, tmp_path)
    kept_as_before(cells, tmp_path / "smoke")
    for cell in cells:
        cell.write(tmp_path / "smoke")
    assert {cell.path for cell in cells} == set((tmp_path / "smoke").iterdir())
    assert set(read_cells("smoke", tmp_path)) == set(keys(plan))


def test_a_training_in_a_new_file_keeps_the_older_evaluations_of_it(plan, tmp_path):
    cells = made(plan, tmp_path)
    kept_as_before(cells, tmp_path / "smoke")
    cells[0].write(tmp_path / "smoke")
    assert set(read_cells("smoke", tmp_path)) == set(keys(plan))


@pytest.mark.parametrize("older", [True, False])
def test_a_new_rule_leaves_kept_cells_valid(plan, write, tmp_path, monkeypatch, older):
    cells = made(plan, tmp_path)
    if older:
        kept_as_before(cells, tmp_path / "smoke")
    else:
        for cell in cells:
            cell.write(tmp_path / "smoke")
    before = keys(plan)
    monkeypatch.setitem(deciding.TRAINING, "weight_decay", lambda s: s.learning_rate > 1)
    after = keys(write())
    assert not set(before) & set(after) and set(read_cells("smoke", tmp_path)) == set(after)


def test_an_evaluation_is_found_though_the_cell_of_its_training_is_gone(plan, tmp_path):
    made(plan, tmp_path)[1].write(tmp_path / "smoke")
    assert set(read_cells("smoke", tmp_path)) == {keys(plan)[1]}
    lost = failed(jobs_of(plan)[1], "it broke")
    assert lost.key == key_of(lost.decides) == keys(plan)[1]


def test_of_several_files_with_one_key_the_finished_one_counts_and_then_the_one_of_the_same_weights(plan, tmp_path):
    trained, evaluated = made(plan, tmp_path)
    folder = tmp_path / "smoke"
    _, other = kept_as_before((trained, replace(evaluated, date="2026-01-01")), folder)
    copies = {
        "evaluate-a.json": replace(evaluated, date="2027-01-01", model=evaluated.model | {"weights": "others"}),
        "evaluate-b.json": failed(jobs_of(plan)[1], "it broke"),
    }
    for name, cell in copies.items():
        replace(cell).write(tmp_path / "copies").rename(folder / name)
    assert read_cells("smoke", tmp_path)[evaluated.key].path == other
    text = (folder / "evaluate-a.json").read_text()
    (folder / "evaluate-c.json").write_text(text.replace('"others"', json.dumps(trained.training["weights"])))
    assert read_cells("smoke", tmp_path)[evaluated.key].path.name == "evaluate-c.json", "the latest"
    other.unlink()
    (folder / "evaluate-c.json").unlink()
    assert read_cells("smoke", tmp_path)[evaluated.key].path.name == "evaluate-a.json", "better than a failed one"


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "metarl_agents.bench_cell"}'])
def test_damaged_files_can_be_passed_over(plan, tmp_path, text):
    for cell in made(plan, tmp_path):
        cell.write(tmp_path / "smoke")
    (tmp_path / "smoke" / "train-x-0123.json").write_text(text)
    with pytest.raises(ConfigError, match="train-x-0123.json"):
        read_cells("smoke", tmp_path)
    assert set(read_cells("smoke", tmp_path, damaged="skip")) == set(keys(plan))


# ---- what a run notes of its launch --------------------------------------------------------------------------------


def test_a_cell_tells_by_how_many_processes_and_in_what_precision_it_was_made():
    noted = {"device": "cuda:0", "versions": {"torch": "2"}, "num_processes": 8, "mixed_precision": "bf16", "seed": 3}
    place = describe_machine(noted)
    assert (place["num_processes"], place["mixed_precision"], place["device"]) == (8, "bf16", "cuda:0")
    assert set(describe_machine({"device": "cpu", "versions": {}})) == {"device", "processor", "threads", "versions"}
    here = work.machine()
    assert (here["num_processes"], here["mixed_precision"]) == (1, "no"), "evaluations are never launched"


@pytest.mark.parametrize(
    ("launch", "noted", "refused"),
    [
        ((), {}, None),  # an older run, which does not tell
        ((), {"num_processes": 1, "mixed_precision": "no"}, None),
        ((), {"num_processes": 2, "mixed_precision": "no"}, "num_processes 2, but the plan's runs have 1"),
        ((), {"num_processes": 1, "mixed_precision": "bf16"}, "mixed_precision 'bf16', but the plan's runs have 'no'"),
        (("accelerate", "launch", "--mixed_precision", "bf16"), {"num_processes": 4, "mixed_precision": "bf16"}, None),
        (("accelerate", "launch", "--num_processes", "8"), {"num_processes": 4}, "have 8"),
    ],
)
def test_a_run_that_was_launched_otherwise_than_the_plan_says_is_not_adopted(plan, tmp_path, launch, noted, refused):
    adopter = Adopter(replace(plan, launch=launch), {}, Workshop(tmp_path))
    if refused is None:
        adopter._check_launch(tmp_path, noted)
    else:
        with pytest.raises(ConfigError, match=refused):
            adopter._check_launch(tmp_path, noted)


def test_weights_that_do_not_belong_to_their_cell_are_refused_with_folder_and_file(plan, tmp_path):
    trained, _ = made(plan, tmp_path)
    file = trained.write(tmp_path / "smoke")
    (Path(trained.run) / "config.json").write_text("other weights")
    shop = Workshop(tmp_path / "runs")
    reason = perform(jobs_of(plan)[1], shop, trained).reason
    assert f"the folder {trained.run} " in reason and f"the cell {file} " in reason and "delete both" in reason
    assert not list(shop.runs.glob("*.eval.log")), "nothing was played"
