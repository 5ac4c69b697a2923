"""The README's MineSweeper table: base model, plain RL and meta-RL at equal allotted episodes, several seeds.

    python benchmarks/minesweeper.py                      # trains what is missing, evaluates, prints the table
    python benchmarks/minesweeper.py --seeds 0 --jobs 1   # one seed, one process at a time

Trains `recipes/configs/minesweeper/tiny.yaml` as it stands (N = 3, G = 8) and with `--num_episodes 1 --group_size 24`
(both may play 384 episodes an update), evaluates every model on the same 512 test tasks with the same sampling, and
writes `benchmarks/results/minesweeper.json` and `docs/minesweeper_training.png`. Each process computes on one thread.
A run that is finished is not repeated: delete its folder to do so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = Path("runs") / "bench-minesweeper"  # relative, because paths stand in the results
PLAIN_RL = ["--num_episodes", "1", "--group_size", "24"]
# Label -> (folder of the trained model or None for the base, flags of its evaluation).
ROWS = {
    "base, no memory": (None, ["--memory", "none"]),
    "base, with memory": (None, ["--memory", "reflection"]),
    "RL (GiGPO, N=1, G=24)": ("rl", ["--num_episodes", "3", "--memory", "none"]),
    "RL given memory at test time": ("rl", ["--num_episodes", "3", "--memory", "reflection"]),
    "meta-RL without its memory": ("meta", ["--memory", "none"]),
    "meta-RL (LaMer, N=3, G=8)": ("meta", []),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--eval_tasks", type=int, default=512)
    chosen = parser.parse_args()
    os.chdir(ROOT)
    RUNS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(lambda job: train(*job), [(kind, seed) for seed in chosen.seeds for kind in ("meta", "rl")]))
        jobs = [(label, seed) for label in ROWS for seed in (chosen.seeds if ROWS[label][0] else [None])]
        files = list(pool.map(lambda job: evaluate(*job, chosen.eval_tasks), jobs))
    groups: dict[str, list[str]] = {}
    for (label, _), file in zip(jobs, files, strict=True):
        groups.setdefault(label, []).append(str(file))
    compare = [
        sys.executable,
        "benchmarks/compare_runs.py",
        "--markdown",
        "--output",
        "benchmarks/results/minesweeper.json",
    ]
    subprocess.run(
        compare + [f"--group={label}={','.join(paths)}" for label, paths in groups.items()], cwd=ROOT, check=True
    )
    plot(chosen.seeds)


def train(kind: str, seed: int) -> None:
    """Train one model, unless its final weights are there."""
    folder = RUNS / f"{kind}-s{seed}"
    if (folder / "model.safetensors").is_file():
        return
    resume = ["--resume_from_checkpoint", "latest"] if list(folder.glob("checkpoint-*")) else []
    flags = ["--seed", str(seed), "--output_dir", str(folder), *resume, *(PLAIN_RL if kind == "rl" else [])]
    run([sys.executable, "recipes/train_minesweeper.py", *flags], RUNS / f"{kind}-s{seed}.log")


def evaluate(label: str, seed: int | None, tasks: int) -> Path:
    """Evaluate one row on the fixed test tasks and return its file."""
    kind, flags = ROWS[label]
    model = "tiny" if kind is None else str(RUNS / f"{kind}-s{seed}")
    name = "".join(letter if letter.isalnum() else "_" for letter in label)
    output = RUNS / f"eval-{name}-s{seed}-{tasks}.json"
    if not output.is_file():
        flags = ["--model_name_or_path", model, "--label", label, "--output", str(output), *flags]
        # Independent attempts and diversity do not depend on memory: one row of each model carries them.
        samples = "0" if "memory" in label and "no memory" not in label else "8"
        sizes = ["--eval_tasks", str(tasks), "--eval_samples", samples]
        run([sys.executable, "recipes/evaluate.py", *flags, *sizes], output.with_suffix(".log"))
    return output


def plot(seeds: list[int]) -> None:
    """Draw pass@k over training."""
    runs = [str(RUNS / f"{kind}-s{seed}") for kind in ("meta", "rl") for seed in seeds]
    labels = ["meta-RL (LaMer, N=3, G=8)"] * len(seeds) + ["RL (GiGPO, N=1, G=24)"] * len(seeds)
    command = [sys.executable, "benchmarks/plot_training.py", *runs, "--output", "docs/minesweeper_training.png"]
    subprocess.run([*command, "--labels", *labels], cwd=ROOT, check=True)


def run(command: list[str], log: Path) -> None:
    """Run a command on one thread, its output in `log`; a failure ends everything and names the log."""
    print(f"{' '.join(command[1:])}  > {log}", flush=True)
    with log.open("w", encoding="utf-8") as output:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        failed = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, env=environment).returncode
    if failed:
        sys.exit(f"failed: {' '.join(command)}; see {log}")


if __name__ == "__main__":
    main()
