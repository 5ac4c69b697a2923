"""What stands above all tables of a preset: under which conditions the rows were made.

What does not live here: anything that differs from table to table (`summary.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.cells import Cell
from bench.plan import Plan
from metarl_agents.policy.sampling import Sampling


def header(plan: Plan, cells: Sequence[Cell]) -> list[str]:
    """Say under which conditions all rows were made."""
    lines = [
        f"every trained row may play {plan.episodes_per_task} episodes of each training task per update "
        "(N episodes x G trials)",
        "rows of a table: the same evaluation tasks and the same sampling, whatever they were trained with",
        *_sampling_lines(plan),
    ]
    for what, kind in (("trained", "train"), ("evaluated", "evaluate")):
        made = Counter(_machine_line(cell) for cell in cells if cell.kind == kind)
        lines += [f"{what} on {machine}: {count} cells" for machine, count in made.items()]
    dates = sorted(cell.date for cell in cells if cell.date)
    undated = f"date not recorded: {len(cells) - len(dates)} cells" if len(dates) < len(cells) else ""
    made = f"made {dates[0][:10]} to {dates[-1][:10]}" if dates else ""
    lines += ["; ".join(part for part in (made, undated) if part)] if cells else []
    adopted = [cell for cell in cells if cell.adopted]
    if adopted:
        unstated = sorted({name for cell in adopted for name in cell.adopted["not_recorded"]})
        lines.append(
            f"{len(adopted)} of {len(cells)} cells were taken from earlier runs with the same settings; what their "
            f"files do not state and is assumed: {', '.join(unstated)}"
        )
    return lines


def _sampling_lines(plan: Plan) -> list[str]:
    """Say how evaluations sample: once where all do alike, else for each table."""
    tables: dict[str, list[str]] = {}
    for block, row in plan.rows():
        told = _sampling(Sampling.for_evaluation(row.jobs[0].config))
        tables[told] = [*tables.get(told, ()), block.name]
    if len(tables) == 1:
        return [f"every evaluation samples with {told}" for told in tables]
    return [f"evaluations of {', '.join(dict.fromkeys(names))} sample with {told}" for told, names in tables.items()]


def _sampling(sampling: Sampling) -> str:
    if sampling.temperature == 0:
        return "temperature 0, which is greedy"
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    return ", ".join(f"{name} {getattr(sampling, name):g}" for name in names)


def _machine_line(cell: Cell) -> str:
    place = cell.machine
    if place is None:
        return "a machine that was not recorded"
    versions = place["versions"]
    shown = ", ".join(
        f"{name} {versions[name]}" for name in ("metarl_agents", "torch", "transformers") if name in versions
    )
    processor = place["processor"] or "processor not recorded"
    threads = "threads not recorded" if place["threads"] is None else f"{place['threads']} thread(s) each"
    return f"{_devices(place)} ({processor}, {threads}; {shown or 'versions not recorded'})"


def _devices(place: dict[str, Any]) -> str:
    """Name the device, with the number of processes and their precision where they are not one and full."""
    processes, precision = place.get("num_processes"), place.get("mixed_precision")
    told = f"{processes} x {place['device']}" if (processes or 1) > 1 else place["device"]
    return f"{told} in {precision}" if precision not in (None, "no") else told
