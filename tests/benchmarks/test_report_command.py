"""The command of the report: what it writes, and that a README keeps what is not the report's."""

import importlib.util
import json
import re
import shutil
import subprocess

import pytest
from report_samples import BENCHMARKS, curves, row, summary

SPEC = importlib.util.spec_from_file_location("report_script", BENCHMARKS / "report.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


def test_the_command_writes_page_markdown_pictures_and_readme(tmp_path, capsys):
    found = summary([row("lamer", curves=[curves(0)])])
    (tmp_path / "summary.json").write_text(json.dumps(found))
    (tmp_path / "README.md").write_text("# Project\n<!-- bench:begin -->\n<!-- bench:end -->\nend\n")
    output = tmp_path / "results"
    (output / "pictures").mkdir(parents=True)
    (output / "pictures" / "stale.svg").write_text("old")
    arguments = ["--summary", str(tmp_path / "summary.json"), "--output", str(output)]
    assert script.main([*arguments, "--readme", str(tmp_path / "README.md")]) == 0
    assert str(output / "report.html") in capsys.readouterr().out
    written = (output / "report.md").read_text(encoding="utf-8")
    pictures = {item.name for item in (output / "pictures").iterdir()}
    assert {f"pictures/{name}" for name in pictures} == set(re.findall(r"\]\((\S+\.svg)\)", written))
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# Project\n") and readme.endswith("\nend\n")
    (address,) = re.findall(r"\[full report\]\((\S+)\)", readme)
    assert (tmp_path / address).is_file()


def test_a_readme_shows_the_cells_of_one_preset_only(tmp_path, capsys):
    (tmp_path / "README.md").write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    with pytest.raises(SystemExit):
        script.main(["--preset", "smoke", "--readme", str(tmp_path / "README.md"), "--output", str(tmp_path / "out")])
    assert "a README shows the cells of the preset cpu" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_report_without_the_readme_says_where_that_is_behind_and_does_not_touch_it(tmp_path, monkeypatch, capsys):
    readme = tmp_path / "README.md"
    monkeypatch.setattr(script, "README", readme)
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(script, "read_summary", lambda *given: summary())
    told = {}
    for name, text in {
        "none": None,
        "unmarked": "# x\n",
        "behind": "<!-- bench:begin -->\nold\n<!-- bench:end -->\n",
    }.items():
        if text is not None:
            readme.write_text(text)
        assert script.main([]) == 0
        told[name] = "make report README=1" in capsys.readouterr().out
        assert text is None or readme.read_text() == text
    assert script.main(["--readme", str(readme)]) == 0 and "old" not in readme.read_text()
    capsys.readouterr()
    assert script.main([]) == 0
    told["fresh"] = "make report README=1" in capsys.readouterr().out
    assert told == {"none": False, "unmarked": False, "behind": True, "fresh": False}


def test_without_being_asked_the_command_leaves_the_readme_and_the_runs_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "ROOT", tmp_path)
    run = tmp_path / "runs" / "bench" / "lamer"
    (run / "trajectories").mkdir(parents=True)
    (run / "trajectories" / "train.jsonl").write_text(json.dumps({"step": 1, "split": "train", "episodes": []}) + "\n")
    (tmp_path / "summary.json").write_text(json.dumps(summary([row("lamer")])))
    arguments = ["--summary", str(tmp_path / "summary.json"), "--output", str(tmp_path / "out")]
    script.main(arguments)
    assert not (run / "trajectories.html").exists()
    script.main([*arguments, "--trajectories"])
    assert "../runs/bench/lamer/trajectories.html" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert (run / "trajectories.html").is_file()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(("asked", "rewrites"), [(["README=1"], True), (["README=0"], False), ([], False)])
def test_only_readme_1_makes_the_target_rewrite_the_readme(asked, rewrites):
    words = ["make", "--dry-run", "report", *asked]
    done = subprocess.run(words, cwd=BENCHMARKS.parent, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if "benchmarks/report.py" in line]
    assert ("--readme README.md" in line) == rewrites


def test_an_unreadable_summary_is_one_sentence(tmp_path, capsys):
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(SystemExit):
        script.main(["--summary", str(tmp_path / "broken.json"), "--output", str(tmp_path / "out")])
    assert "cannot read the summary" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_picture_is_the_same_whatever_blocks_stand_before_its_own(tmp_path):
    def written(found, folder):
        script.write_report(script.read_report(found, root=tmp_path, page_folder=folder), folder)
        return {item.name: item.read_text() for item in (folder / "pictures").iterdir()}

    found = summary([row("lamer", curves=[curves(0)])])
    first = {**found["blocks"][0], "name": "an_earlier_one"}
    alone = written(found, tmp_path / "alone")
    behind = written({**found, "blocks": [first, *found["blocks"]]}, tmp_path / "behind")
    assert alone and alone.items() <= behind.items() and len(behind) == 2 * len(alone)
