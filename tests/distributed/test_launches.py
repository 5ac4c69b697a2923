"""What a launch needs before its processes meet."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from metarl_agents.errors import ConfigError
from metarl_agents.policy.processes import start_processes

HERE = Path(__file__).parent
# The tests of this folder that launch DeepSpeed, where it is not installed.
WITHOUT = """
import sys
sys.modules["deepspeed"] = None
import pytest
chosen = "zero or shards_are_refused or full_of_auto or other_processes"
sys.exit(pytest.main([sys.argv[1], "-rs", "-m", "slow or not slow", "-k", chosen, "-p", "no:cacheprovider"]))
"""


def test_where_deepspeed_is_not_installed_its_tests_are_skipped_with_a_sentence():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(HERE)], capture_output=True, text=True, timeout=160, cwd=HERE.parents[1]
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "DeepSpeed is not installed" in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    assert "skipped" in last and "passed" not in last and "failed" not in last, last


def test_processes_that_did_not_find_each_other_are_one_sentence(monkeypatch):
    """Else each of them would train alone, and all would write to one folder."""
    for name in ("RANK", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true", "DS_ACCELERATOR": "cpu"}.items():
        monkeypatch.setenv(name, value)
    lone = SimpleNamespace(num_processes=1, state=SimpleNamespace(deepspeed_plugin=None))
    monkeypatch.setattr("accelerate.Accelerator", lambda **options: lone)
    with pytest.raises(ConfigError, match="2 processes were launched, but 1 found each other: start them with") as said:
        start_processes(60)
    assert "\n" not in str(said.value)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert start_processes(60) is lone
