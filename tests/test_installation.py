"""The editable installation that README and Makefile name works, and prints nothing that alarms."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
ROOT = Path(__file__).parents[1]
HOOK = """
import sys, tomllib, warnings
system = tomllib.load(open("pyproject.toml", "rb"))["build-system"]
sys.path[:0] = system.get("backend-path", [])
with warnings.catch_warnings(record=True) as caught:  # as pip does, which prints them
    backend = __import__(system["build-backend"], fromlist=["build_editable"])
    name = backend.build_editable(sys.argv[1])
print([name, [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]])
"""


def test_an_editable_installation_warns_of_nothing(tmp_path):
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE", "MANIFEST.in", "build_backend"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for name in ("src", "environments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.safetensors", "*.egg-info"))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", HOOK, str(wheels)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = wheels.glob("*.whl")
    assert done.stdout.splitlines()[-1] == str([wheel.name, []])
