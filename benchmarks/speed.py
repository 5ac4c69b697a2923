"""How fast is it? The library beside a lock-step loop and TRL's GRPOTrainer, on the same tokens, in one run.

    make bench-speed                                                    # everything; a machine with nothing else to do
    python benchmarks/speed.py --contenders ours/meta lockstep/meta     # some of it
    python benchmarks/speed.py --repeats 1 --tasks_factor 0.3 --rows 8  # does it run? (too few repeats for any ratio)

Every contender runs in processes of its own, forwards and then backwards (A B B A), with the micro-batch that is
fastest for it, and with response lengths and trials forced by seeded tables. No ratio is given from fewer than five
timed repeats, where token counts differ by more than 1 %, or where the library's sampler and its update disagree about
log-probabilities (`side_by_side/protocol.py`); a refusal makes the exit status 1. Ratios are held against the project's
goals (`side_by_side/goals.py`), and what was measured beside another job is named.

Contenders are `<maker>/<workload>`: `ours`, `lockstep` (`side_by_side/lockstep.py`), `trl` and `trl_continuous` (TRL
sampling with continuous batching, where that works), each on `meta` (meta-RL), `rl` (plain RL) or `single` (one turn,
the only one that TRL plays). All settings of each are kept. Random weights, nothing is downloaded. What is not
installed is named and left out. Also: the library answering one request at a time and with a slow environment, and
steps per second of the shipped environments. Writes `benchmarks/results/speed_<machine>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata, util
from pathlib import Path
from typing import Any

from side_by_side.goals import judge
from side_by_side.job import Job
from side_by_side.presets import PRESETS
from side_by_side.protocol import load, order
from side_by_side.report import EXTRAS, NAMES, UNITS, WORK, compare, refusals, start_rivals, text

BENCHMARKS = Path(__file__).resolve().parent
RESULTS = BENCHMARKS / "results"
CONTENDERS = ("ours/meta", "lockstep/meta", "ours/rl", "lockstep/rl", "ours/single", "trl/single")
CONTENDERS += ("trl_continuous/single",)
POSSIBLE = tuple(f"{maker}/{work}" for maker in NAMES for work in WORK if "trl" not in maker or work == "single")
NEEDS = {"trl": ("trl", "datasets"), "trl_continuous": ("trl", "datasets")}
OPTIONAL = ("trl_continuous",)
"""Makers that not every machine and version can run: where all they try fails, they are left out with the reason."""

OPTIONAL_LIMIT_S = 300.0
"""Seconds that a process of theirs may take: what is not supported may also wait for ever."""

PASSES = 2
"""Processes of every contender: forwards and backwards."""

STARTS = 6
"""Processes of those whose start is compared; the further ones end with the first update."""

TUNING_REPEATS = 2
"""Timed iterations of each micro-batch that is tried; the faster one counts, because disturbances only slow down."""

Launch = Callable[..., dict[str, Any]]
"""Runs a job of a kind, with fields of `Job`, and returns what it found."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, help="default: gpu where there is one, else cpu")
    parser.add_argument("--contenders", nargs="*", choices=POSSIBLE, default=list(CONTENDERS), metavar="MAKER/WORKLOAD")
    parser.add_argument("--repeats", type=int, help="timed iterations a process; default: the preset's")
    parser.add_argument("--starts", type=int, default=STARTS, help="processes a contender whose start is compared")
    parser.add_argument("--tasks_factor", type=float, default=1.0, help="fewer (below 1) or more tasks an iteration")
    parser.add_argument(
        "--rows", type=int, help="micro-batch of the other contenders, ours being the largest; default: tried out"
    )
    parser.add_argument("--threads", type=int, help="CPU threads of every process; default: torch's")
    parser.add_argument("--skip_environments", action="store_true", help="leave the environments out")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/speed_<machine>.json")
    chosen = parser.parse_args()
    counts = (chosen.repeats, chosen.rows, chosen.threads)
    if any(count is not None and count < 1 for count in counts) or chosen.tasks_factor <= 0:
        parser.error("--repeats, --rows and --threads must be at least 1, and --tasks_factor above 0")
    if chosen.starts < PASSES:
        parser.error(f"--starts must be at least {PASSES}, the processes that every contender has anyway")
    started = time.perf_counter()
    result = measure(chosen)
    result["seconds"] = round(time.perf_counter() - started, 1)
    output = chosen.output or RESULTS / f"speed_{result['slug']}.json"
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"\n{text(result)}\n\n{result['seconds']} s in all; written to {os.path.relpath(output)}")
    refused = refusals(result["compared"])
    if refused:
        print("\n".join(["", "Refused:", *refused]), file=sys.stderr)
    sys.exit(bool(refused))


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run all processes and return the whole result."""
    preset = chosen.preset or default_preset()
    sizes = PRESETS[preset].resized(chosen.tasks_factor, chosen.repeats)
    left_out = missing(chosen.contenders)
    contenders = [name for name in chosen.contenders if name not in left_out]
    with tempfile.TemporaryDirectory() as folder:
        launch = launcher(folder, preset, chosen.tasks_factor, sizes.repeats, chosen.threads)
        machine = launch("prepare")
        if "error" in machine:
            raise SystemExit(f"The model cannot be made: {machine['error']}")
        if chosen.rows:
            tuning, micro_batches = {}, {maker: chosen.rows for maker in NAMES} | {"ours": sizes.tokens[-1]}
        else:
            tuning = tune(contenders, {maker: sizes.candidates(maker) for maker in NAMES}, launch)
            errors = {name: tuning[name.split("/")[0]].get("error") for name in contenders}
            left_out |= not_supported(errors)
            contenders = [name for name in contenders if name not in left_out]
            micro_batches = {maker: found["chosen"] for maker, found in tuning.items()}
        runs = run_all(contenders, micro_batches, launch, chosen.starts)
        left_out |= not_supported({name: found[-1].get("error") for name, found in runs.items()})
        runs = {name: found for name, found in runs.items() if name not in left_out}
        extras = {name: launch(name) for name in EXTRAS} if any(name.startswith("ours/") for name in runs) else {}
        loads = {"the environments": load()}
        environments = {} if chosen.skip_environments else launch("environments")
        loads["the end"] = load()
    if "error" in environments:
        left_out["environments"], environments = f"which failed: {environments['error']}", {}
    left_out |= {EXTRAS[name]: f"which failed: {extra['error']}" for name, extra in extras.items() if "error" in extra}
    extras = {name: extra for name, extra in extras.items() if "error" not in extra}
    left_out |= {name: found["left_out"] for name, found in environments.items() if "left_out" in found}
    compared = compare(runs, extras)
    goals, unjudged = judge(compared, preset)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        **machine,
        "versions": machine["versions"] | {"trl": metadata.version("trl") if util.find_spec("trl") else None},
        "cpu": processor(),
        "cores": os.cpu_count(),
        "preset": preset,
        "sizes": sizes.described(),
        "order": order(contenders),
        "tuning": {maker: found for maker, found in tuning.items() if "error" not in found or maker not in OPTIONAL},
        "contenders": runs,
        "extras": extras,
        "compared": compared,
        "goals": goals,
        "environments": environments,
        "loads": loads,
        "left_out": left_out | unjudged,
    }


def default_preset() -> str:
    """Return the preset that fits this machine."""
    import torch

    return "gpu" if torch.cuda.is_available() else "cpu"


def missing(contenders: list[str]) -> dict[str, str]:
    """Return the contenders that cannot run here, with the reason."""
    found = {}
    for name in contenders:
        absent = [package for package in NEEDS.get(name.split("/")[0], ()) if util.find_spec(package) is None]
        if absent:
            found[name] = f"because {' and '.join(absent)} {'are' if len(absent) > 1 else 'is'} not installed"
    return found


def processor() -> str:
    """Return the name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def launcher(folder: str, preset: str, tasks_factor: float, repeats: int, threads: int | None) -> Launch:
    """Return what runs a job in a process of its own."""
    path = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path} | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    files = Path(folder) / "job.json", Path(folder) / "found.json"

    def launch(kind: str, **settings: Any) -> dict[str, Any]:
        values = {"preset": preset, "tasks_factor": tasks_factor, "repeats": repeats} | settings
        job = Job(kind=kind, folder=folder, output=str(files[1]), started=time.monotonic(), **values)
        job.write(files[0])
        files[1].unlink(missing_ok=True)
        command = [sys.executable, "-m", "side_by_side.child", str(files[0])]
        limit = OPTIONAL_LIMIT_S if kind in OPTIONAL else None
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"error": f"it did not end within {limit:g} s"}
        if done.returncode or not files[1].exists():
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            print("\n".join(lines[-20:]), file=sys.stderr)
            return {"error": lines[-1]}
        return json.loads(files[1].read_text(encoding="utf-8"))

    return launch


def tune(contenders: list[str], sizes: dict[str, tuple[int, ...]], launch: Launch) -> dict[str, Any]:
    """Return for each maker the micro-batch with which its first workload is fastest, and what was tried."""
    found: dict[str, Any] = {}
    for maker, candidates in sizes.items():
        works = [name.split("/")[1] for name in contenders if name.startswith(f"{maker}/")]
        run: dict[str, Any] = {}
        if not works:
            continue
        tried: list[tuple[int, float | None]] = []
        for size in candidates:
            run = launch(maker, workload=works[0], micro_batch=size, repeats=TUNING_REPEATS)
            seconds = None if "error" in run else min(item["seconds"]["iteration"] for item in run["iterations"])
            tried.append((size, seconds))
            said = "failed" if seconds is None else f"{seconds:.2f} s"
            print(f"tuning {maker}, {size} {UNITS[maker]}: {said}", flush=True)
            if seconds is None and maker in OPTIONAL:
                break
        # Where all fail, the smallest is run all the same, so that the report says why.
        error = {"error": run["error"]} if "error" in run else {}
        best = min((item for item in tried if item[1] is not None), key=lambda item: item[1], default=tried[0])
        found[maker] = {"chosen": best[0], "tried": tried} | (error if best[1] is None else {})
    return found


def not_supported(errors: dict[str, str | None]) -> dict[str, str]:
    """Return the contenders of `OPTIONAL` makers that failed, with the reason."""
    failed = {name: error for name, error in errors.items() if error and name.split("/")[0] in OPTIONAL}
    return {name: f"which is not supported here: {error}" for name, error in failed.items()}


def run_all(
    contenders: list[str], micro_batches: dict[str, int], launch: Launch, starts: int = PASSES
) -> dict[str, list[dict[str, Any]]]:
    """Run every contender forwards and backwards, and return what its processes found.

    Those whose start is compared go on, forwards and backwards in turn, until each has started `starts` times.
    """
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    rivals = start_rivals(contenders)
    further = [rivals[:: 1 if number % 2 == 0 else -1] for number in range(starts - PASSES)]
    plan = [(name, {}) for name in order(contenders)] + [(name, {"repeats": 0}) for names in further for name in names]
    for place, (name, settings) in enumerate(plan):
        if settings and any("error" in run for run in runs[name]):
            continue
        maker, work = name.split("/")
        before = load()
        found = launch(maker, workload=work, micro_batch=micro_batches[maker], **settings)
        runs[name].append(found | {"place": place, "load": before})
        said = found.get("error") or _seconds(found)
        print(f"{place + 1}/{len(plan)} {name}: {said}", flush=True)
    return runs


def _seconds(found: dict[str, Any]) -> str:
    times = ", ".join(f"{iteration['seconds']['iteration']:.2f}" for iteration in found["iterations"])
    return f"{times} s" if times else f"{found['first_update_s']:.2f} s to the end of the first update"


if __name__ == "__main__":
    main()
