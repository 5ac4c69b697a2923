"""Which tasks are played: disjoint splits, a pure function of seed and step, lists of one's own."""

import json
import random
import subprocess
import sys

import pytest
import torch

from metarl_agents.errors import ConfigError
from metarl_agents.rollout import TaskStream, evaluation_seeds
from metarl_agents.rollout.tasks import load_task_list, mix

SIZE = 2**40


@pytest.fixture
def write(tmp_path):
    """Write rows as a JSONL file; return its name."""

    def save(*rows):
        path = tmp_path / "tasks.jsonl"
        path.write_text("".join(f"{json.dumps(row) if isinstance(row, dict) else row}\n" for row in rows))
        return str(path)

    return save


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep converted files out of the home folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


# ---- the library's own tasks ---------------------------------------------------------------------------------


def test_splits_are_disjoint_ranges():
    train = [seed for run in range(5) for step in range(40) for seed in TaskStream(run, 16).take(step)]
    validation, test = evaluation_seeds("validation", 512), evaluation_seeds("test", 512)
    assert all(0 <= seed < SIZE for seed in train)
    assert all(SIZE <= seed < 2 * SIZE for seed in validation)
    assert all(2 * SIZE <= seed < 3 * SIZE for seed in test)
    assert len(set(train)) == len(train) and len(set(validation)) == len(set(test)) == 512


def test_training_tasks_are_a_function_of_seed_and_step_alone():
    straight = TaskStream(3, 4)
    tasks = [straight.take(step) for step in range(6)]
    random.seed(1)
    torch.manual_seed(1)
    resumed = TaskStream(3, 4)
    assert [resumed.take(step) for step in (5, 0, 3)] == [tasks[5], tasks[0], tasks[3]]
    assert len({tuple(task) for task in tasks}) == 6 and all(len(task) == 4 for task in tasks)
    assert TaskStream(4, 4).take(0) != tasks[0]


def test_training_tasks_do_not_depend_on_how_many_are_dealt_at_once():
    assert TaskStream(3, 8).take(0) == TaskStream(3, 4).take(0) + TaskStream(3, 4).take(1)


def test_training_tasks_are_the_same_in_another_process():
    code = "from metarl_agents.rollout.tasks import TaskStream; print(TaskStream(7, 5).take(2))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == TaskStream(7, 5).take(2)


def test_evaluation_tasks_are_the_same_every_time_and_a_smaller_set_is_a_prefix():
    state, torch_state = random.getstate(), torch.get_rng_state()
    whole = evaluation_seeds("test", 512)
    assert evaluation_seeds("test", 512) == whole and evaluation_seeds("test", 100) == whole[:100]
    assert random.getstate() == state and torch.equal(torch.get_rng_state(), torch_state)


def test_an_evaluation_split_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="validation"):
        evaluation_seeds("tets", 4)


def test_mixing_spreads_and_keeps_order_and_number_of_parts_apart():
    values = {mix(a, b) for a in range(40) for b in range(40)}
    assert len(values) == 1600 and all(0 <= value < 2**63 for value in values)
    assert len({mix(), mix(0), mix(0, 0), mix(1, 0), mix(0, 1)}) == 5
    assert abs(sum(value % 2 for value in values) - 800) < 120


# ---- lists of one's own --------------------------------------------------------------------------------------


def test_a_listed_split_is_dealt_in_a_fresh_order_each_pass_without_leaving_any_out():
    stream = TaskStream(0, 4, listed=[11, 12, 13, 14, 15, 16])
    dealt = [seed for step in range(9) for seed in stream.take(step)]
    passes = [dealt[start : start + 6] for start in range(0, 36, 6)]
    assert all(sorted(part) == [11, 12, 13, 14, 15, 16] for part in passes)
    assert len({tuple(part) for part in passes}) > 3
    assert TaskStream(0, 4, listed=[11, 12, 13, 14, 15, 16]).take(7) == stream.take(7)


def test_a_list_that_is_shorter_than_a_step_is_dealt_again():
    assert sorted(TaskStream(0, 4, listed=[5, 6]).take(0)) == [5, 5, 6, 6]


def test_listed_evaluation_tasks_keep_their_order_and_number():
    assert evaluation_seeds("test", 3, [9, 8, 7, 6]) == [9, 8, 7]
    assert evaluation_seeds("test", 512, [9, 8]) == [9, 8]


def test_without_a_list_the_library_owns_all_splits():
    assert load_task_list(None) == {"train": None, "validation": None, "test": None}


def test_a_file_of_seeds_is_a_list_of_training_tasks(write):
    assert load_task_list(write({"seed": 3}, {"seed": 1})) == {"train": [3, 1], "validation": None, "test": None}


def test_rows_go_to_the_split_they_name(write):
    rows = [{"seed": 1, "split": "train"}, {"seed": 2, "split": "test"}, {"seed": 3, "split": "validation"}]
    assert load_task_list(write(*rows)) == {"train": [1], "validation": [3], "test": [2]}


def test_rows_without_a_split_are_training_tasks_also_beside_rows_that_name_one(write):
    rows = [{"seed": 1}, {"seed": 2, "split": "test"}, {"seed": 3}]
    assert load_task_list(write(*rows)) == {"train": [1, 3], "validation": None, "test": [2]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"task": 1}], "no column `seed`, only task"),
        ([{"seed": 1, "split": "test"}], "no training rows"),
        ([{"seed": -1}], "whole numbers >= 0"),
        ([{"seed": 1.5}], "whole numbers >= 0"),
        ([{"seed": "one"}], "whole numbers >= 0"),
        ([{"seed": True}], "whole numbers >= 0"),
        ([{"seed": 1}, {"seed": None}], "whole numbers >= 0"),
        ([{"seed": 4}, {"seed": 4, "split": "test"}], "same seed 4"),
        ([{"seed": 4}, {"seed": 5, "split": "val"}], '"val"'),
        (["{not json"], "cannot read the task list"),
        ([], "task"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_in_one_sentence(write, rows, message):
    name = write(*rows)
    with pytest.raises(ConfigError, match=message) as error:
        load_task_list(name)
    assert name in str(error.value) and "\n" not in str(error.value)


def test_a_list_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the task list"):
        load_task_list(str(tmp_path / "nowhere.jsonl"))
