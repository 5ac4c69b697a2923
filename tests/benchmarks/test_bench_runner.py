"""The benchmark's runner with a trainer that costs nothing, and runs that were made elsewhere."""

import json
import os
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench import work  # noqa: E402
from bench.adopt import UNTOLD, Adopter  # noqa: E402
from bench.cells import read_cells  # noqa: E402
from bench.summary import summarize  # noqa: E402
from bench.table import report  # noqa: E402
from bench.work import CellFailed, Interrupted, Workshop  # noqa: E402
from bench_samples import SOLVED, Trainer  # noqa: E402

from metarl_agents.errors import ConfigError  # noqa: E402
from metarl_agents.evaluation import EvaluationResult  # noqa: E402


def test_every_cell_is_made_once_models_before_what_plays_them(make, plan):
    runner = make()
    wanted = plan.jobs_wanted()
    made = runner.run(wanted)
    assert len(made) == len(wanted) == len(set(runner.trainer.made)) and all(cell.finished for cell in made)
    place = {name: index for index, name in enumerate(runner.trainer.made)}
    assert place["train main/meta/s1"] < place["evaluate main/meta/s1"]
    again = make()
    assert again.due(wanted) == [] and again.run(wanted) == [] and again.trainer.made == []
    assert "left" in runner.lines[0] and any(line.startswith(f"[{len(wanted)}/{len(wanted)}]") for line in runner.lines)


def test_time_left_follows_what_cells_took_and_is_not_led_astray_by_a_short_one(make, plan):
    runner, job = make(jobs=2), replace(plan.jobs_wanted()[0], cost_s=14_400)
    assert "about 2 h 00 min left" in runner._left([job])
    runner._expected_s, runner._taken_s = 10, 100  # a first cell, of which most was start-up
    assert "about 2 h 06 min left" in runner._left([job])
    runner._expected_s, runner._taken_s = 180_000, 360_000  # a machine that is half as fast
    assert "about 3 h 59 min left" in runner._left([job])


def test_only_what_is_missing_is_made_again_with_its_model_where_that_is_gone(make, plan, tmp_path):
    make().run(plan.jobs_wanted())
    (tmp_path / "results/smoke").joinpath(
        next(path.name for path in (tmp_path / "results/smoke").glob("evaluate-main-rl-memory-s1-*"))
    ).unlink()
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["evaluate main/rl_memory/s1"]
    next((tmp_path / "results/smoke").glob("evaluate-main-meta-s0-*")).unlink()
    shutil.rmtree(next((tmp_path / "runs/smoke").glob("main-meta-s0-*")))
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["train main/meta/s0", "evaluate main/meta/s0"]


def test_a_failed_cell_is_reported_and_the_rest_goes_on(make, plan, tmp_path):
    runner = make(Trainer(SOLVED, break_at=["train main/rl/s1"]))
    made = runner.run(plan.jobs_wanted())
    assert [cell.name for cell in made if not cell.finished] == ["main/rl/s1"]
    assert "evaluate main/rl/s1" not in runner.trainer.made and "evaluate main/meta/s1" in runner.trainer.made
    found = summarize("smoke", results=tmp_path / "results", plan=plan)
    rows = {row["id"]: row for row in found["blocks"][0]["rows"]}
    assert rows["rl"]["state"] == "partial" and rows["rl"]["done"] == [0]
    assert rows["rl"]["problems"] == [
        {"cell": "main/rl/s1", "status": "failed", "reason": "ConfigError: <b>it</b> broke"}
    ]
    assert "FAILED main/rl/s1: ConfigError: <b>it</b> broke" in report(found)
    # The next time it is tried again.
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["train main/rl/s1", "evaluate main/rl/s1", "evaluate main/rl_memory/s1"]
    assert not summarize("smoke", results=tmp_path / "results", plan=plan)["failed"]


def test_a_stopped_runner_keeps_what_is_finished_and_goes_on_there(make, plan):
    runner = make(Trainer(SOLVED, stop_at=["train main/meta/s0"]), jobs=1)
    with pytest.raises(KeyboardInterrupt):
        runner.run(plan.jobs_wanted())
    before = set(runner.trainer.made) - {"train main/meta/s0"}
    assert before and runner.shop.stopping
    again = make()
    again.run(plan.jobs_wanted())
    assert not before & set(again.trainer.made) and "train main/meta/s0" in again.trainer.made


def test_two_runners_of_one_preset_do_not_work_at_once(make, plan):
    outer = make()

    class Second(Trainer):
        def __call__(self, job, shop, trained):
            with pytest.raises(ConfigError, match="another process makes cells"):
                make().run(plan.jobs_wanted())
            return super().__call__(job, shop, trained)

    outer.work = Second(SOLVED)
    assert outer.run(plan.jobs_wanted("base"))


def test_a_command_that_fails_leaves_its_last_words(tmp_path):
    shop = Workshop(tmp_path)
    with pytest.raises(CellFailed, match="ConfigError: no such thing"):
        shop.call(["-c", "import sys; print('hello'); sys.exit('ConfigError: no such thing')"], tmp_path / "a.log")
    assert "hello" in (tmp_path / "a.log").read_text()


def test_a_stopped_shop_stops_its_processes_and_starts_none(tmp_path):
    import threading

    shop = Workshop(tmp_path)
    threading.Timer(1.0, shop.stop).start()
    with pytest.raises(Interrupted):
        shop.call(["-c", "import time; time.sleep(60)"], tmp_path / "a.log")
    with pytest.raises(Interrupted):
        shop.call(["-c", "print('too late')"], tmp_path / "b.log")


@pytest.fixture
def run_folder(plan, tmp_path):
    """Write the folder of a finished run as training leaves it."""

    def write(job, name="run", last=2, **settings):
        folder = tmp_path / name
        (folder / "eval").mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(job.config.flat() | settings))
        (folder / "config.json").write_text("{}")
        (folder / "versions.json").write_text(json.dumps({"device": "cpu", "versions": {"torch": "2"}}))
        lines = [{"step": 0, "prefix": "test", "metrics": {"pass@1": 0.5}}]
        for step in range(1, last + 1):
            metrics = {
                "pass@1": step / 10,
                "pass@3": None,
                "step_time": 1.5,
                "total_tokens": 100 * step,
                "total_episodes": 7 * step,
            }
            lines.append({"step": step, "prefix": "train", "metrics": metrics})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        start(job).to_json(folder / "eval" / "before.json")
        return folder

    return write


def start(job, **changes):
    trial = job.config.trial
    values = {
        "label": "before", "env": trial.env, "env_kwargs": dict(trial.env_kwargs), "num_episodes": 3, "max_turns": 12,
        "memory": "reflection", "sampling": "s", "split": "test", "task_seeds": [7, 8], "solved_at": [0, None], "step": 0,
    }  # fmt: skip
    return EvaluationResult(**(values | changes))


class OneResult(Workshop):
    """A workshop whose every evaluation finds the same."""

    result: EvaluationResult

    def call(self, command, log):
        self.result.to_json(command[command.index("--output") + 1])


def adopter(plan, tmp_path, result):
    shop = OneResult(tmp_path / "shop")
    shop.result = result
    return Adopter(plan, {}, shop)


def test_a_run_that_the_plan_asks_for_is_adopted_with_what_it_took(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train" and "meta" in job.name)
    cell = adopter(plan, tmp_path, start(job)).run(run_folder(job, save_steps=7, report_to=["none"]))
    assert (cell.key, cell.name, cell.finished) == (job.key, job.name, True)
    took = {name: cell.training[name] for name in ("steps", "episodes_allotted", "episodes_used", "tokens", "seconds")}
    assert took == {"steps": 2, "episodes_allotted": 24, "episodes_used": 14, "tokens": 200, "seconds": 3.0}
    assert cell.training["curves"] == {"train": {"pass@1": [[1, 0.1], [2, 0.2]]}, "eval": {}}


def test_an_adopted_cell_has_the_machine_and_the_date_of_the_runs_own_records_and_nothing_of_this_machine(
    plan, tmp_path, run_folder, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    jobs = {(job.kind, job.name): job for job in plan.jobs_wanted()}
    train, played = jobs["train", "main/meta/s0"], jobs["evaluate", "main/meta/s0"]
    folder = run_folder(train)
    one = adopter(plan, tmp_path, start(train))
    result = replace(Trainer(SOLVED).evaluate(played, None).evaluation(), meta={"model": "tiny"}, step=2)
    own, other = folder / "eval" / "after.json", folder.parent / "elsewhere.json"
    result.to_json(own)
    replace(result, step=None, meta={"model": "run"}).to_json(other)
    for file, seconds in ((folder / "metrics.jsonl", 86_400), (own, 2 * 86_400), (other, 3 * 86_400)):
        os.utime(file, (seconds, seconds))
    noted = {"device": "cpu", "processor": None, "threads": None, "versions": {"torch": "2"}}
    trained = one.run(folder)
    assert (trained.machine, trained.date) == (noted, "1970-01-02T00:00:00+00:00")
    assert trained.adopted["not_recorded"] == ["processor", "threads"]
    inside, outside = one.evaluation(own), one.evaluation(other)
    assert (inside.machine, inside.date) == (noted, "1970-01-03T00:00:00+00:00")
    assert {"processor", "threads", "wording"} <= set(inside.adopted["not_recorded"]) ^ {"device"}
    assert (outside.machine, outside.date) == (None, "1970-01-04T00:00:00+00:00")
    assert "device" in outside.adopted["not_recorded"] and "device" not in inside.adopted["not_recorded"]
    result.dated().to_json(own)
    os.utime(own, (0, 0))
    again = one.evaluation(own)
    written = datetime.fromisoformat(again.date)
    assert again.key == inside.key and timedelta(0) <= datetime.now(UTC) - written < timedelta(hours=1)
    (folder / "versions.json").write_text("{")
    with pytest.raises(ConfigError, match="versions.json"):
        one.evaluation(own)
    (folder / "versions.json").unlink()
    bare = one.run(folder)
    assert bare.machine is None and bare.adopted["not_recorded"] == ["machine", "start weights"]


def test_no_committed_cell_that_was_adopted_states_what_its_run_did_not_record():
    cells = [cell for preset in ("smoke", "cpu", "gpu") for cell in read_cells(preset).values()]
    placed = [cell for cell in cells if cell.adopted and cell.machine]
    assert {cell.kind for cell in placed} == {"train", "evaluate"}
    for cell in placed:
        assert [cell.machine[name] for name in UNTOLD] == [None] * len(UNTOLD), cell.name
        assert set(UNTOLD) <= set(cell.adopted["not_recorded"]), cell.name


def test_a_run_with_other_settings_is_refused_and_told_which(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    with pytest.raises(ConfigError, match="`learning_rate` is 0.5, not 0.0003"):
        adopter(plan, tmp_path, start(job)).run(run_folder(job, learning_rate=0.5))


def test_a_run_that_started_from_other_weights_is_refused(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    with pytest.raises(ConfigError, match="differs on 1 of 2 tasks"):
        adopter(plan, tmp_path, start(job, solved_at=[1, None])).run(run_folder(job))


def test_an_unfinished_run_is_no_cell(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    with pytest.raises(ConfigError, match="ends at step 1 of 2"):
        work.training_cell(job, run_folder(job, last=1))


def test_an_evaluation_is_adopted_only_where_all_that_it_states_agrees(plan, tmp_path):
    job = next(job for job in plan.jobs_wanted() if job.name == "main/base")
    result = Trainer(SOLVED).evaluate(job, None).evaluation()
    result.meta = {"model": "tiny"}
    result.to_json(tmp_path / "a.json")
    cell = adopter(plan, tmp_path, result).evaluation(tmp_path / "a.json")
    assert cell.key == job.key and "wording" in cell.adopted["not_recorded"]
    replace(result, max_turns=11).to_json(tmp_path / "b.json")
    with pytest.raises(ConfigError, match="max_turns differ"):
        adopter(plan, tmp_path, result).evaluation(tmp_path / "b.json")
    replace(result, meta={"model": "runs/strange"}).to_json(tmp_path / "c.json")
    with pytest.raises(ConfigError, match="adopt its run first"):
        adopter(plan, tmp_path, result).evaluation(tmp_path / "c.json")
