"""Start scenarios in several processes, as a user starts a recipe."""

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "recipes" / "accelerate_configs"
SCENARIOS = Path(__file__).with_name("scenarios.py")
# On a CPU nothing of DeepSpeed is compiled (`compile_nothing` in `policy/zero.py`): a compiler is not asked for.
needs_deepspeed = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="DeepSpeed is not installed; setup.cfg wants it on Linux alone."
)


def modes(*names, slow=()):
    """Launcher configurations as parameters of a test, some of them marked `slow`.

    Those of DeepSpeed are left out where it is not installed.
    """
    marks = {name: [needs_deepspeed] * ("zero" in name) + [pytest.mark.slow] * (name in slow) for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


MODES = modes("cpu", "cpu_zero2", "cpu_zero3", "cpu_fsdp2")


def launch(config, *command, limit_s=300, **environment):
    """Run `accelerate launch` to its end, or kill it with all its processes; returns (status, output).

    `config` names one of the repository's configurations, or is the path of another.
    """
    file = config if isinstance(config, Path) else CONFIGS / f"{config}.yaml"
    chosen = ["--config_file", str(file), "--main_process_port", str(free_port())]
    hidden = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "ACCELERATE_USE_CPU", "ACCELERATE_MIXED_PRECISION"}
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", *chosen, *map(str, command)],
        cwd=ROOT,
        env=variables | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"the processes hang after {limit_s} s:\n{output[-4000:]}") from None
    return process.returncode, output


def act(config, scenario, folder, **environment):
    """Run a scenario and return its findings."""
    folder.mkdir(parents=True, exist_ok=True)
    status, output = launch(config, SCENARIOS, scenario, folder, **environment)
    assert status == 0, output[-6000:]
    return json.loads((folder / "result.json").read_text()) | {"output": output}


def alone(scenario, folder):
    """Run a scenario in one process without a launcher."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = {"RANK", "WORLD_SIZE", "LOCAL_RANK"}
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    subprocess.run(
        [sys.executable, str(SCENARIOS), scenario, str(folder)],
        check=True,
        cwd=ROOT,
        env=variables | {"OMP_NUM_THREADS": "1"},
        timeout=300,
        capture_output=True,
    )
    return json.loads((folder / "result.json").read_text())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
