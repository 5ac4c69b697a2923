"""What docs/custom_credit.md shows is run: its functions judge trials, its commands are read, its laws hold."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from metarl_agents import advantages
from metarl_agents.advantages import RunningMean, table
from metarl_agents.cli import parse_config
from metarl_agents.config import Config, CreditConfig
from metarl_agents.training.credit import assign_credit, check_functions, tabulate
from metarl_agents.types import Episode, Phase, Response, Trial, Turn

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "custom_credit.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
CODE = [code for language, code in BLOCKS if language == "python"]
COMMANDS = [code.strip() for language, code in BLOCKS if not language]


@pytest.fixture
def my_credit(tmp_path, monkeypatch):
    """The page's functions as `my_credit`, in the current folder."""
    (tmp_path / "my_credit.py").write_text("\n\n".join(CODE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    importlib.invalidate_caches()
    yield
    sys.modules.pop("my_credit", None)


def trial(*rewards, group=0):
    turns = [Turn(Phase.PLAY, "o", (1,), Response((2,), "x"), "x", "x", float(reward)) for reward in rewards]
    return Trial(seed=0, group=group, episodes=[Episode("start", turns, "end")])


def judge(trials, config):
    return assign_credit(tabulate(trials, config), config, RunningMean(), lambda values: values)


def test_the_complete_example_is_short_and_every_block_is_of_a_kind_that_is_tested():
    functions = [node for node in ast.parse(CODE[0]).body if isinstance(node, ast.FunctionDef)]
    assert sum(node.end_lineno - node.lineno + 1 for node in functions) <= 10
    assert {language for language, _ in BLOCKS} == {"", "python"} and len(CODE) == len(COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_name_functions_that_can_be_called(command, my_credit):
    words = shlex.split(command)
    assert words[0] == "python" and (ROOT / words[1]).is_file()
    config = parse_config(words[2:])
    assert "my_credit:" in config.credit.advantages + config.credit.return_mode
    check_functions(config.credit)


def test_the_estimator_obeys_the_laws_of_the_page(my_credit):
    config = CreditConfig(advantages="my_credit:median_advantages", gamma_step=1.0)
    one = [trial(1), trial(4), trial(10)]
    assert judge(one, config).advantages.tolist() == [-3, 0, 6]
    assert judge(one[::-1], config).advantages.tolist() == [6, 0, -3]
    assert judge([trial(reward + 5) for reward in (1, 4, 10)], config).advantages.tolist() == [-3, 0, 6]
    assert judge([trial(0, 0, 0, 1), trial(4), trial(10)], config).advantages.tolist() == [-3, -3, -3, -3, 0, 6]
    assert not judge([trial(3), trial(3), trial(0, 3)], config).advantages.any()
    with pytest.raises(ValueError, match="`my_credit:median_advantages` compares a trial"):
        Config.from_flat({"advantages": "my_credit:median_advantages", "group_size": 1}).check()


def test_the_return_mode_knows_no_episodes(my_credit):
    config = CreditConfig(return_mode="my_credit:plain_returns", gamma_step=0.5)
    assert tabulate([trial(0, 0, 8)], config).returns.tolist() == [2, 4, 8]
    two = Trial(seed=0, group=0, episodes=[trial(0).episodes[0], trial(0, 8).episodes[0]])
    assert tabulate([two], config).returns.tolist() == [2, 4, 8]
    assert tabulate([two], config).returns.dtype is torch.float32


def test_a_function_of_a_notebook_is_found_by_the_address_that_the_page_gives():
    (address,) = re.findall(r'`advantages="(__main__:\w+)"`', PAGE)
    name = address.partition(":")[2]
    code = (
        "from metarl_agents.config import CreditConfig\n"
        "from metarl_agents.training.credit import check_functions\n"
        f"def {name}(table, *, no_setting): ...\n"
        f"check_functions(CreditConfig(advantages={address!r}))\n"
    )
    words = [sys.executable, "-c", code.replace(", *, no_setting", "")]
    assert subprocess.run(words, capture_output=True, text=True).returncode == 0
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"`{address}` has a parameter `no_setting` that nothing fills" in done.stderr


def test_all_that_the_page_names_exists():
    settings = set(Config().flat())
    flags = set(re.findall(r"`?--(\w+)", PAGE)) - {"help"}
    assert {"advantages", "return_mode", "critic"} <= flags <= settings
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| a setting of credit")]
    assert set(re.findall(r"`(\w+)`", row)) <= set(CreditConfig.__dataclass_fields__)
    (columns,) = re.findall(r"of\nwhich (.*?) are those", PAGE, flags=re.DOTALL)
    assert set(re.findall(r"`(\w+)`", columns)) <= set(table.TurnTable.__dataclass_fields__)
    marks = re.findall(r"^\| `@(\w+)`", PAGE, flags=re.MULTILINE)
    assert len(marks) == 2 and all(inspect.isfunction(getattr(advantages, mark)) for mark in marks)


def test_links_lead_to_files():
    links = re.findall(r"\]\((?!http)([^)#]+)", PAGE)
    assert links and all((ROOT / "docs" / link).is_file() for link in links)
