"""`make bench PRESET=smoke`, for real: every cell is made by the recipes, and the second call makes nothing."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(folder, *flags):
    """Run the benchmark on a copy of what it reads, so that its results and runs stay out of the repository."""
    command = [sys.executable, "benchmarks/run.py", "--preset", "smoke", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1500, env=os.environ)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_smoke_preset_makes_every_cell_once(tmp_path):
    for name in ("benchmarks", "recipes"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("results", "__pycache__"))
    started = time.perf_counter()
    text = bench(tmp_path, "--json", str(tmp_path / "summary.json"))
    taken = time.perf_counter() - started
    found = json.loads((tmp_path / "summary.json").read_text())
    assert found["missing"] == [] and found["failed"] == []
    assert "all cells are there" in text and "n too small: 8 tasks" in text
    rows = {row["id"]: row for block in found["blocks"] for row in block["rows"]}
    assert rows["lamer"]["training"]["episodes_allotted"] == 2 * 2 * 6
    assert 0 < rows["gigpo"]["training"]["episodes_used"] <= 24 and rows["lamer"]["n"] == 8
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "benchmarks/results/smoke").glob("*.json")}
    assert "begins" not in bench(tmp_path)
    assert cells == {path: path.stat().st_mtime_ns for path in cells}
    # Last, so that a busy machine hides none of the above. Starts of processes count: it is what one waits for.
    said = f"{taken:.0f} s on {os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f}"
    assert taken < 300, f"five minutes on two cores with nothing else to do, but it took {said}"
