"""The command of the report: what it writes, and that a README keeps what is not the report's."""

import importlib.util
import json
import re

import pytest
from report_samples import BENCHMARKS, curves, row, summary, text

from metarl_agents.errors import ConfigError

SPEC = importlib.util.spec_from_file_location("report_script", BENCHMARKS / "report.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_the_readme_keeps_everything_outside_the_marks(line):
    old = f"# Mine{line}{text.START}{line}old{line}{text.END}{line}after"
    once = text.put_between_marks(old, "new\ncontent\n", "README.md")
    assert once == line.join(["# Mine", text.START, "", "new", "content", "", text.END, "after"])
    assert text.put_between_marks(once, "new\ncontent\n", "README.md") == once


@pytest.mark.parametrize("readme", ["", "x", text.START, text.END + text.START, 2 * (text.START + text.END)])
def test_a_readme_without_its_marks_is_refused_and_left_alone(tmp_path, readme):
    file = tmp_path / "README.md"
    file.write_text(readme)
    with pytest.raises(ConfigError, match="once each and in this order"):
        text.rewrite_readme(file, "new")
    assert file.read_text() == readme and [item.name for item in tmp_path.iterdir()] == ["README.md"]


def test_the_command_writes_page_markdown_pictures_and_readme(tmp_path, capsys):
    found = summary([row("lamer", curves=[curves(0)])])
    (tmp_path / "summary.json").write_text(json.dumps(found))
    (tmp_path / "README.md").write_text(f"# Project\n{text.START}\n{text.END}\nend\n")
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
    assert readme.startswith("# Project\n") and readme.endswith("\nend\n") and "### Benchmark" in readme
    assert all((tmp_path / address).is_file() for address in re.findall(r"\]\((\S+\.svg)\)", readme))


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


def test_an_unreadable_summary_is_one_sentence(tmp_path, capsys):
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(SystemExit):
        script.main(["--summary", str(tmp_path / "broken.json"), "--output", str(tmp_path / "out")])
    assert "cannot read the summary" in capsys.readouterr().err and not (tmp_path / "out").exists()
