r"""The success tables: every method on every environment, from cells that are made once and kept.

    python benchmarks/run.py                                   # prints the table, then makes what is missing
    python benchmarks/run.py --table                           # prints only, makes nothing
    python benchmarks/run.py --list                            # every cell, and whether it is there
    python benchmarks/run.py --preset smoke                    # five minutes on two cores: does it all work?
    python benchmarks/run.py --only "minesweeper/lamer*" sokoban --seeds 0 --jobs 1
    python benchmarks/run.py --table --markdown --figures docs --only minesweeper
    python benchmarks/run.py --adopt runs/my_run runs/my_evaluation.json

Plans: `benchmarks/plans/`. Cells: `benchmarks/results/<preset>/*.json`, under a hash of all that decides a result; logs
and models: `runs/bench/<preset>/`. A run that is stopped (Ctrl-C) goes on from its last checkpoint the next time.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.adopt import Adopter
from bench.cells import RESULTS, ROOT
from bench.figures import draw_all
from bench.kept import is_damaged, put_aside, read_kept
from bench.plan import PRESETS, Job, Plan, load_plan
from bench.runner import Runner
from bench.summary import summarize
from bench.table import duration, report
from bench.work import RUNS, CellFailed, Workshop

from metarl_agents.cli import run_cli
from metarl_agents.errors import ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do what it asks for; return the exit status: 1 where cells failed."""
    chosen = _parser().parse_args(arguments)
    plan = load_plan(chosen.preset)
    check_choice(plan, chosen)
    if chosen.list:
        print(listing(plan, chosen))
        return 0
    if chosen.adopt:
        return adopt(plan, chosen.adopt)
    show(plan, chosen)
    if chosen.table:
        return 0
    runner = Runner(plan, jobs=chosen.jobs)
    wanted = chosen_jobs(plan, chosen)
    damaged = any(is_damaged(runner.cells.get(job.key)) for job in wanted)
    if not runner.due(wanted):
        return int(damaged)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        made = runner.run(wanted)
    except KeyboardInterrupt:
        print("stopped; the same command goes on where this one ended")
        return 130
    show(plan, chosen)
    return int(damaged or any(not cell.finished for cell in made))


def chosen_jobs(plan: Plan, chosen: argparse.Namespace) -> list[Job]:
    """Return the cells that are asked for; those on demand only where a pattern names them."""
    return [job for job in plan.jobs_wanted(*chosen.only, seeds=chosen.seeds) if chosen.only or not job.on_demand]


def check_choice(plan: Plan, chosen: argparse.Namespace) -> None:
    """Refuse a choice that leaves nothing, or less than it says.

    Raises:
        ConfigError: no row has the name or a seed, or no process would work.
    """
    if chosen.jobs is not None and chosen.jobs < 1:
        raise ConfigError(f"`--jobs` is {chosen.jobs}, but at least one process must work: give 1 or more.")
    plan.jobs_wanted(*chosen.only)  # refuses a pattern that names nothing
    there = {job.seed for _, row in plan.rows(*chosen.only) for job in row.jobs if job.seed is not None}
    strange = sorted(set(chosen.seeds or ()) - there)
    if strange:
        has = f"have the seeds {', '.join(map(str, sorted(there)))}" if there else "are not trained, and have no seeds"
        raise ConfigError(f"no row that is asked for has the training seed {strange[0]}: they {has}.")


def show(plan: Plan, chosen: argparse.Namespace) -> None:
    """Print the tables, and write what else is asked for."""
    summary = summarize(plan.preset, plan=plan, seeds=chosen.seeds)
    only = {block.name for block, _ in plan.rows(*chosen.only)} if chosen.only else None
    print(report(summary, markdown=chosen.markdown, only=only), flush=True)
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    folder = Path(chosen.figures) if chosen.figures else RESULTS / plan.preset / "figures"
    try:
        drawn = draw_all(summary, folder, only)
    except ConfigError as error:  # a table is worth having without pictures
        print(f"no figures: {error}")
    else:
        print(f"{len(drawn)} figures in {folder}\n" if drawn else "")


def listing(plan: Plan, chosen: argparse.Namespace) -> str:
    """List the cells of a plan with their state and cost."""
    cells = read_kept(plan)
    lines = []
    wanted = plan.jobs_wanted(*chosen.only, seeds=chosen.seeds)
    for job in wanted:
        state = cells[job.key].status if job.key in cells else "missing"
        lines.append(f"{state:9} {job.kind:9} {job.name:48} {duration(job.cost_s):>10}  {job.key[:10]}")
    lines += [f"skipped   {entry['block']}: {entry['reason']}" for entry in plan.skipped]
    counted = chosen_jobs(plan, chosen)
    whole = duration(3600 * plan.hours_needed(counted))
    if later := len(wanted) - len(counted):
        lines.append(f"{later} of these cells are on demand: made only where `--only` names them, and not counted")
    lines.append(f"{len(counted)} cells; all of them take about {whole}, {plan.jobs} at a time")
    return "\n".join(lines)


def adopt(plan: Plan, paths: Sequence[str]) -> int:
    """Adopt run folders, then evaluation files; return 1 where one is refused."""
    shop = Workshop(RUNS / plan.preset, plan.launch)
    adopter = Adopter(plan, read_kept(plan), shop)
    refused = 0
    for path in sorted(map(Path, paths), key=lambda path: path.is_file()):
        before = dict(adopter.cells)
        try:
            cell = adopter.evaluation(path) if path.is_file() else adopter.run(path.resolve())
            if cell.key in before and before[cell.key].finished:
                put_aside(before[cell.key], before, shop.runs)
            file = cell.write(RESULTS / plan.preset)
            print(f"adopted {path} as {cell.kind} {cell.name}: {file.relative_to(ROOT)}")
        except (ConfigError, CellFailed, OSError) as error:
            refused += 1
            print(f"refused {path}: {error}")
    return int(refused > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="cpu", help="which plan [cpu]")
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        nargs="+",
        default=[],
        help="blocks, rows, or block/row, what any of them names; * stands for anything",
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="these training seeds only, in tables too")
    parser.add_argument("--jobs", type=int, help="processes at a time [the plan's]")
    parser.add_argument("--list", action="store_true", help="list cells, make nothing")
    parser.add_argument(
        "--table", action="store_true", help="print the table from the cells that are there, make nothing"
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", metavar="FILE", help="also write every number of the tables")
    parser.add_argument("--figures", metavar="FOLDER", help="where pictures go [results/<preset>/figures]")
    parser.add_argument("--adopt", nargs="+", metavar="PATH", help="take finished runs and evaluation files as cells")
    return parser


def _main() -> Any:
    return main(sys.argv[1:])


if __name__ == "__main__":
    run_cli(_main)
