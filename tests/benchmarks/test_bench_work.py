"""The work on cells: which command makes one, who is stopped with it, and that finished work is kept."""

import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench import runner as runner_module  # noqa: E402
from bench import work  # noqa: E402
from bench.cells import Cell, read_cells  # noqa: E402
from bench.plan import load_plan  # noqa: E402
from bench.runner import Runner  # noqa: E402
from bench.work import CellFailed, Interrupted, Workshop, perform  # noqa: E402
from games_samples import write_plan  # noqa: E402


@pytest.fixture
def plan(tmp_path):
    return write_plan(tmp_path / "plans")


class Listener(Workshop):
    """A workshop that writes down its command lines and runs nothing."""

    def call(self, command, log, **how):
        self.heard, self.log = self.words(command, **how), log
        raise CellFailed("nothing was run")


def heard(job, tmp_path, trained=None):
    shop = Listener(tmp_path / "shop", load_plan("gpu").launch)
    perform(job, shop, trained)
    return shop.heard


def a_job(plan, kind):
    return next(job for job in plan.jobs_wanted() if job.kind == kind)


def test_a_training_is_launched_by_the_launcher_beside_this_python(plan, tmp_path):
    words = heard(a_job(plan, "train"), tmp_path)
    launcher = Path(sys.executable).parent / "accelerate"
    assert launcher.is_file() and words[:3] == [str(launcher), "launch", "--config_file"]
    assert words[3].endswith("zero2.yaml") and words[4] == "recipes/train_matrix_game.py"


def test_an_evaluation_is_not_launched_since_it_refuses_sharded_weights(plan, tmp_path):
    words = heard(a_job(plan, "evaluate"), tmp_path)
    assert words[:2] == [sys.executable, "recipes/evaluate.py"]


def test_every_job_has_a_log_of_its_own_also_where_a_variant_is_called_0_point_3(tmp_path):
    logs = []
    for job in load_plan("cpu").jobs_wanted("gamma_traj"):
        shop = Listener(tmp_path)
        perform(job, shop, None)
        logs.append(shop.log.name)
    assert len(logs) == len(set(logs)) > 1 and any("0.3" in name for name in logs)


def test_a_launcher_that_lies_elsewhere_is_looked_for_in_path(tmp_path):
    shop = Workshop(tmp_path, ("some-launcher", "-n", "2"))
    assert shop.words(["a.py"], launched=True) == ["some-launcher", "-n", "2", "a.py"]


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_an_interrupted_training_goes_on_from_its_checkpoint(plan, tmp_path, has_checkpoint):
    job = a_job(plan, "train")
    folder = tmp_path / "shop" / job.stem
    (folder / "checkpoint-1" if has_checkpoint else folder).mkdir(parents=True)
    words = heard(job, tmp_path)
    assert ("--resume_from_checkpoint" in words) == has_checkpoint
    assert not has_checkpoint or words[words.index("--resume_from_checkpoint") + 1] == "latest"
    assert folder.exists() == has_checkpoint, "what was stopped before its first checkpoint begins anew"


# Stopping.

LAUNCHER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}])
open({note!r}, "w").write(str(child.pid))
child.wait()
"""
OBEDIENT = "import time; time.sleep(60)"
SAVING = """
import signal, sys, time
def save(*_):
    time.sleep(1.0)
    open({saved!r}, "a").write("saved ")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open({ready!r}, "w").close()
time.sleep(60)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({ready!r}, 'w').close(); time.sleep(60)"
)


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stopped(tmp_path, child, is_ready=lambda: True):
    """Run a launcher with a child in a shop, stop the shop, and return the child's number."""
    note = tmp_path / "child"
    shop = Workshop(tmp_path)

    def stop():
        while not (note.is_file() and note.read_text() and is_ready()):
            time.sleep(0.05)
        shop.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted):
        shop.call(["-c", LAUNCHER.format(child=child, note=str(note))], tmp_path / "a.log")
    thread.join()
    return int(note.read_text())


def test_what_a_launcher_started_does_not_survive_it(tmp_path):
    assert not lives(stopped(tmp_path, OBEDIENT))


def test_what_a_launcher_started_may_save_first_and_is_asked_once(tmp_path):
    saved, ready = tmp_path / "saved", tmp_path / "ready"
    child = stopped(tmp_path, SAVING.format(saved=str(saved), ready=str(ready)), ready.is_file)
    assert saved.read_text() == "saved " and not lives(child)


def test_what_does_not_leave_in_time_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "_GRACE_S", 0.5)
    ready = tmp_path / "ready"
    child = stopped(tmp_path, STUBBORN.format(ready=str(ready)), ready.is_file)
    end = time.monotonic() + 5
    while lives(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not lives(child)


def test_what_a_crashed_launcher_leaves_behind_is_ended(tmp_path):
    note = tmp_path / "child"
    text = LAUNCHER.format(child=OBEDIENT, note=str(note)).replace("child.wait()", "sys.exit('it broke')")
    with pytest.raises(CellFailed, match="it broke"):
        Workshop(tmp_path).call(["-c", text], tmp_path / "a.log")
    assert not lives(int(note.read_text()))


# What an interrupt leaves.


def cell_of(job):
    return Cell(job.kind, job.key, job.name, "finished", job.decides, job.seed, training={"weights": "w"})


def run_all(plan, tmp_path, make):
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    runner = Runner(plan, work=make, say=lambda line: None, jobs=2, **places)
    with pytest.raises(KeyboardInterrupt):
        runner.run([job for job in plan.jobs_wanted() if job.kind == "train"][:2])
    return [cell.name for cell in read_cells(plan.preset, tmp_path / "results").values()]


def stopping(first, ends):
    """Work of which the job `first` is interrupted, and the one beside it ends well as soon as `ends(shop)`."""
    both = threading.Barrier(2, timeout=10)

    def make(job, shop, trained):
        both.wait()
        if job.name == first:
            raise Interrupted
        while not ends(shop):
            time.sleep(0.01)
        return cell_of(job)

    return make


def test_work_that_ends_well_while_others_are_stopped_is_kept(plan, tmp_path):
    first, second = [job.name for job in plan.jobs_wanted() if job.kind == "train"][:2]
    assert run_all(plan, tmp_path, stopping(first, ends=lambda shop: shop.stopping)) == [second]


def test_work_that_ends_at_the_same_moment_as_what_was_stopped_is_kept(plan, tmp_path, monkeypatch):
    first, second = [job.name for job in plan.jobs_wanted() if job.kind == "train"][:2]

    def wait_for_all(running, **how):
        while not all(future.done() for future in running):
            time.sleep(0.01)
        # The interrupted one is looked at first.
        return sorted(running, key=lambda future: future.exception() is None), set()

    monkeypatch.setattr(runner_module, "wait", wait_for_all)
    assert run_all(plan, tmp_path, stopping(first, ends=lambda shop: True)) == [second]


def test_an_interrupt_while_a_cell_is_written_loses_it_not(plan, tmp_path, monkeypatch):
    write, times = Cell.write, []

    def interrupted_once(cell, folder):
        times.append(cell.name)
        if len(times) == 1:
            raise KeyboardInterrupt
        return write(cell, folder)

    monkeypatch.setattr(Cell, "write", interrupted_once)
    kept = run_all(plan, tmp_path, lambda job, shop, trained: cell_of(job))
    assert times[0] in kept


def test_a_run_is_named_relative_to_the_repository_also_where_a_link_leads_elsewhere(tmp_path, monkeypatch):
    repository, disk = tmp_path / "repository", tmp_path / "disk"
    (disk / "run").mkdir(parents=True)
    repository.mkdir()
    (repository / "runs").symlink_to(disk)
    monkeypatch.setattr(work, "ROOT", repository)
    assert work.shown(repository / "runs" / "run") == "runs/run"
    monkeypatch.chdir(repository)
    assert work.shown(Path("runs") / "run") == "runs/run" and work.shown(disk / "run") == str(disk / "run")


def test_committed_cells_name_no_folder_of_the_machine_that_made_them():
    assert {cell.run for cell in read_cells("cpu").values() if cell.run and Path(cell.run).is_absolute()} == set()
