"""What the README shows is run, word for word but for its length."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    # Every second fence closes a block: searched for one language alone, a closing fence looks like an opening one.
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [code for spoken, code in fenced if spoken == language]


PROGRAM = next(block for block in blocks("python") if "check_environment(" in block)


def test_the_custom_environment_of_the_readme_has_at_most_25_lines():
    environment = next(node for node in ast.parse(PROGRAM).body if isinstance(node, ast.ClassDef))
    assert environment.end_lineno - environment.lineno + 1 <= 25


@pytest.mark.slow  # a minute each
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_custom_environment_of_the_readme_is_learned(seed, tmp_path, monkeypatch):
    code = PROGRAM.replace("max_steps=50", f"max_steps=50, seed={seed}")
    assert code != PROGRAM
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    before, after = names["result"].before, names["result"].after
    assert after.pass_at(3) > 0.9 and after.pass_at(3) - before.pass_at(3) > 0.08
    # One cup of three can be found at once, whatever was learned.
    assert abs(after.pass_at(1) - 1 / 3) < 0.1
    runs = list((tmp_path / "runs").iterdir())
    assert len(runs) == 1 and (runs[0] / "model.safetensors").is_file()


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
