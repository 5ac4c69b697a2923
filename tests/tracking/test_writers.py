"""A run leaves readable logs behind, survives broken ones, and continues them after a resume."""

import json
import sys
import warnings

import pytest

from metarl_agents.errors import ConfigError
from metarl_agents.tracking.records import read_records
from metarl_agents.tracking.writers import RunLogger


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def logger(folder, **changes):
    return RunLogger(folder, **{"report_to": "none", "total_steps": 10, "is_main": True, "progress": False} | changes)


def test_metrics_become_one_line_per_call(tmp_path):
    with logger(tmp_path / "run") as log:
        log.log(1, {"pass@1": 0.5, "loss": float("nan")})
        log.log(1, {"pass@1": 0.25}, prefix="eval")
    assert lines(tmp_path / "run") == [
        {"step": 1, "prefix": "train", "metrics": {"pass@1": 0.5, "loss": None}},
        {"step": 1, "prefix": "eval", "metrics": {"pass@1": 0.25}},
    ]


def test_nothing_is_written_off_the_main_process(tmp_path, capsys):
    log = logger(tmp_path / "run", is_main=False, progress=True, report_to=("tensorboard",))
    log.log(1, {"loss": 1.0})
    log.trials([{"step": 1}], "train")
    log.message("hello")
    log.truncate(0)
    log.close()
    assert not (tmp_path / "run").exists()
    assert capsys.readouterr() == ("", "")


def test_trials_are_appended_to_the_file_of_their_split(tmp_path):
    log = logger(tmp_path)
    log.trials([{"step": 1}], "train")
    log.trials([{"step": 2}], "train")
    log.trials([{"step": 2, "split": "eval"}], "eval")
    assert read_records(tmp_path / "trajectories" / "train.jsonl") == [{"step": 1}, {"step": 2}]
    assert len(read_records(tmp_path)) == 3


def test_resuming_drops_what_lies_beyond_the_checkpoint(tmp_path):
    log = logger(tmp_path)
    for step in (1, 2, 3):
        log.log(step, {"loss": step})
        log.trials([{"step": step}], "train")
    log.close()
    resumed = logger(tmp_path)
    resumed.truncate(2)
    resumed.log(3, {"loss": 33.0})
    assert [(line["step"], line["metrics"]["loss"]) for line in lines(tmp_path)] == [(1, 1.0), (2, 2.0), (3, 33.0)]
    assert [record["step"] for record in read_records(tmp_path)] == [1, 2]


def test_tensorboard_shows_both_prefixes_over_optimizer_steps(tmp_path):
    pytest.importorskip("torch.utils.tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = logger(tmp_path, report_to=("tensorboard",))
    for step in (1, 2, 3):
        log.log(step, {"pass@1": step / 10, "rollout_step": step, "episode_0/success": 1.0})
    log.truncate(2)
    log.log(3, {"pass@1": 0.9})
    log.log(3, {"pass@1": 0.5}, prefix="eval")
    log.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {"train/pass@1", "train/rollout_step", "train/episode_0/success", "eval/pass@1"} <= set(
        events.Tags()["scalars"]
    )
    points = [(event.step, pytest.approx(event.value)) for event in events.Scalars("train/pass@1")]
    assert points == [(1, 0.1), (2, 0.2), (3, 0.9)]


def test_a_broken_tensorboard_is_one_warning(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    log = logger(tmp_path, report_to=("tensorboard",))
    with pytest.warns(RuntimeWarning, match="TensorBoard cannot be written") as caught:
        log.log(1, {"loss": 1.0})
        log.log(2, {"loss": 1.0})
    log.close()
    assert len(caught) == 1 and len(lines(tmp_path)) == 2


def test_an_unwritable_folder_is_one_warning_per_kind_and_never_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    log = logger(tmp_path / "file" / "run")
    with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
        for step in (1, 2):
            log.log(step, {"loss": 1.0})
            log.trials([{"step": step}], "train")
        log.truncate(1)
        log.close()
    assert len(caught) == 2


def test_the_bar_shows_recent_success_and_messages_pass_it(tmp_path, capsys):
    log = logger(tmp_path, progress=True, total_steps=12)
    for step in range(1, 13):
        log.log(step, {"pass@1": 0.0 if step <= 2 else 1.0, "pass@2": 1.0})
    log.log(12, {"pass@1": 0.0}, prefix="eval")
    log.message("a word in between")
    log.close()
    log.close()
    out, err = capsys.readouterr()
    assert "a word in between" in out
    assert "pass@1=1.00, pass@2=1.00" in err and "12/12" in err


def test_the_bar_continues_where_a_resumed_run_stands(tmp_path, capsys):
    log = logger(tmp_path, progress=True)
    log.truncate(6)
    log.log(7, {"pass@1": 1.0})
    log.close()
    assert "7/10" in capsys.readouterr().err


def test_an_unknown_target_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="`report_to` is 'tensorbord'.*did you mean 'tensorboard'"):
        logger(tmp_path, report_to="tensorbord")


def test_a_healthy_run_warns_of_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with logger(tmp_path) as log:
            log.log(1, {"loss": 1.0})
            log.truncate(1)
