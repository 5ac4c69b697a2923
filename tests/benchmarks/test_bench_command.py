"""The command line of the benchmark refuses what leaves nothing, and shows what it was asked for."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import run  # noqa: E402
from bench import summary  # noqa: E402
from bench.kept import read_kept  # noqa: E402

from metarl_agents.errors import ConfigError  # noqa: E402


@pytest.fixture
def command(plan, make, tmp_path, monkeypatch, capsys):
    """Run the command on the toy plan, all of whose cells are there, and return what it printed."""
    make().run(plan.jobs_wanted())
    results = tmp_path / "results"
    monkeypatch.setattr(run, "load_plan", lambda preset: plan)
    monkeypatch.setattr(run, "read_kept", lambda plan: read_kept(plan, results))
    monkeypatch.setattr(summary, "read_kept", lambda plan, _: read_kept(plan, results))
    monkeypatch.setattr(run, "Runner", lambda plan, **changes: make(plan=plan, **changes))

    def call(*arguments):
        capsys.readouterr()
        status = run.main([*arguments, "--figures", str(tmp_path / "figures")])
        return status, capsys.readouterr().out

    return call


@pytest.mark.parametrize("more", [["--table"], ["--list"], []], ids=["table", "list", "run"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nosuch"], "`nosuch` names nothing in this plan; its blocks are main, sweep"),
        (["--only", "main", "nosuch"], "`nosuch` names nothing"),
        (["--seeds", "7"], "no row that is asked for has the training seed 7: they have the seeds 0, 1"),
        (["--seeds", "0", "7"], "training seed 7"),
        (["--only", "sweep", "--seeds", "1"], "training seed 1: they have the seeds 0"),
        (["--only", "main/base", "--seeds", "0"], "training seed 0: they are not trained, and have no seeds"),
        (["--jobs", "0"], "`--jobs` is 0"),
        (["--jobs", "-1"], "`--jobs` is -1"),
    ],
)
def test_a_choice_that_leaves_nothing_is_refused_whatever_is_asked_for(command, more, arguments, message):
    with pytest.raises(ConfigError, match=message):
        command(*more, *arguments)


def test_a_table_of_some_seeds_shows_these_alone(command):
    status, text = command("--table", "--markdown", "--seeds", "1", "--only", "main")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    rows = {row[0]: row for row in reversed(cells)}  # of the first table
    assert status == 0 and rows["meta-RL"][1:3] == ["1/1", "40"] and rows["base"][1] == "-"
    assert rows["meta-RL"][5] == "95.0 [83.5, 98.6]", "38 of 40, the outcome of seed 1"
    assert "stale" not in text and "with one seed" in text


def test_the_command_fails_while_a_file_is_damaged(command, tmp_path):
    assert command()[0] == 0
    (file,) = (tmp_path / "results/smoke").glob("evaluate-main-rl-s1-*")
    file.write_text("{")
    status, text = command()
    assert status == 1 and file.name in text


def test_no_runner_works_with_no_process(make):
    with pytest.raises(ConfigError, match="at least one process"):
        make(jobs=0)
