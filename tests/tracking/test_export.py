"""Trials become a flat table whose columns are the same for every run."""

import sys

import pytest

from metarl_agents.tracking.export import COLUMNS, flatten, main
from metarl_agents.tracking.records import trial_record, write_records
from metarl_agents.types import Episode, Outcome, Phase, Response, Trial, Turn


def turn(phase, text):
    return Turn(phase, "board", (1, 2), Response((3,), text), text, text, 1.0)


def record(**changes):
    first = Episode("start", [turn(Phase.PLAY, "up"), turn(Phase.PLAY, "down \ud800")], "end", Outcome.FAILURE)
    first.reflection = turn(Phase.REFLECT, "go left")
    second = Episode("start", [turn(Phase.PLAY, "left")], "end", Outcome.SUCCESS)
    trial = Trial(seed=4, group=1, episodes=[first, second])
    return trial_record(trial, lambda ids: "prompt", step=2, split="train", **changes)


def test_every_turn_is_a_row_in_time_order():
    rows = list(flatten([record(returns=[1, 2, 3, 4]), record()]))
    assert [(r["trial"], r["episode"], r["turn"], r["phase"]) for r in rows[:5]] == [
        (0, 0, 0, "play"),
        (0, 0, 1, "play"),
        (0, 0, 2, "reflect"),
        (0, 1, 0, "play"),
        (1, 0, 0, "play"),
    ]
    assert [r["return"] for r in rows] == [1, 2, 3, 4, None, None, None, None]
    assert {tuple(row) for row in rows} == {tuple(COLUMNS)}
    assert (rows[2]["outcome"], rows[3]["outcome"], rows[0]["solved_at"]) == ("failure", "success", 1)
    assert (rows[0]["episode_reward"], rows[0]["reward"]) == (2.0, 1.0)


def test_the_command_writes_parquet_with_stable_types(tmp_path, capsys):
    pytest.importorskip("datasets")
    import pyarrow.parquet

    write_records(tmp_path / "trajectories" / "train.jsonl", [record()])
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "trajectories.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "trajectories.parquet")
    assert table.column_names == list(COLUMNS)
    assert {name: str(table.schema.field(name).type) for name in ("advantage", "error", "invalid", "solved_at")} == {
        "advantage": "double",
        "error": "string",
        "invalid": "bool",
        "solved_at": "int64",
    }
    assert table.column("response").to_pylist() == ["up", "down ?", "go left", "left"]


def test_missing_datasets_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    write_records(tmp_path / "trajectories" / "train.jsonl", [record()])
    assert main([str(tmp_path)]) == 1
    assert "`pip install datasets`" in capsys.readouterr().err


def test_a_run_without_trajectories_is_one_sentence(tmp_path, capsys):
    pytest.importorskip("datasets")
    assert main([str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "recorded trials" in err and err.count("\n") == 1
