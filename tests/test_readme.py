"""What the README shows is run, word for word but for its length."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README_MARGIN = 0.08
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    # Every second fence closes a block: searched for one language alone, a closing fence looks like an opening one.
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [code for spoken, code in fenced if spoken == language]


@pytest.mark.slow  # minutes: 50 updates, as a user would run them
def test_the_custom_environment_of_the_readme_has_at_most_25_lines_and_learns(tmp_path):
    code = next(block for block in blocks("python") if "check_environment(" in block)
    environment = next(node for node in ast.parse(code).body if isinstance(node, ast.ClassDef))
    assert environment.end_lineno - environment.lineno + 1 <= 25
    (tmp_path / "guess.py").write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "guess.py"], cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    (run,) = (tmp_path / "runs").iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    before, after = (line["metrics"] for line in lines if line["prefix"] == "test")
    assert after["pass@3"] > before["pass@3"] + README_MARGIN
    assert "making the tiny model" in done.stderr and "brings" in done.stderr


def test_every_file_and_module_that_the_readme_names_exists():
    named = re.findall(r"(?:recipes|docs|src|environments|benchmarks|tests)/[\w/.-]+\.(?:py|yaml|md|json|png)", README)
    missing = [name for name in set(named) if not (ROOT / name).exists()]
    assert named and not missing


def commands() -> list[str]:
    """Return the recipe commands of the README's shell blocks, comments dropped."""
    lines = [line.split("  #")[0].strip() for block in blocks("") for line in block.splitlines()]
    return [line for line in lines if "recipes/train_" in line]


def test_no_command_of_the_readme_starts_the_launcher_without_a_configuration():
    """Alone, the launcher opens with five lines of warning about the values that it assumes."""
    bare = re.findall(r"^.*accelerate launch (?!--config_file).*$", "\n".join(blocks("")), flags=re.MULTILINE)
    tables = re.findall(r"^\| `accelerate launch (?!--config_file).*$", README, flags=re.MULTILINE)
    assert commands() and not bare and not tables


@pytest.mark.parametrize("command", commands())
def test_the_flags_of_every_command_in_the_readme_are_accepted(command, monkeypatch):
    from metarl_agents.cli import parse_config

    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    recipe = next(word for word in words if word.endswith(".py"))
    flags = words[words.index(recipe) + 1 :]
    preset = ROOT / "recipes/configs" / Path(recipe).stem.removeprefix("train_") / "tiny.yaml"
    if "--help" in flags:
        with pytest.raises(SystemExit) as stopped:
            parse_config(flags, defaults=preset)
        assert stopped.value.code == 0
    else:
        parse_config(flags, defaults=preset)
