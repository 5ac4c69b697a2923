r"""Compare evaluated methods on the same tasks: pooled pass@k, spread over seeds, paired differences.

    python benchmarks/compare_runs.py \
        --group "base=runs/base/eval/final.json" \
        --group "GiGPO (N=1, G=24)=runs/gigpo-0/eval/final.json,runs/gigpo-1/eval/final.json" \
        --group "LaMer=runs/lamer-0/eval/final.json,runs/lamer-1/eval/final.json" \
        --output runs/comparison.json --markdown

A group is one method: its files are evaluations of runs that differ in their seed alone. All files must have played
the same tasks under the same limits and sampling; memory may differ. Results lie in `metarl_agents.evaluation`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from bench.measures import PASS, measure_of

from metarl_agents import __version__
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import (
    EvaluationResult,
    PairedDifference,
    entropy_interval,
    holm_adjusted,
    independent_per_task,
    paired_bootstrap,
    pooled,
    seed_spread,
    wilson_interval,
)
from metarl_agents.evaluation.layout import lay_out, lay_out_notes, percent
from metarl_agents.evaluation.results import table_notes

_MUST_AGREE = ("env", "env_kwargs", "split", "max_turns", "sampling", "task_seeds")
_MUST_AGREE_IN_GROUP = ("memory", "num_episodes")


@dataclass
class Group:
    """One method: the evaluations of its runs."""

    label: str
    paths: list[str]
    results: list[EvaluationResult]

    @property
    def num_episodes(self) -> int:
        """Episodes that all runs of the method could play."""
        return min(result.num_episodes for result in self.results)

    def solved_within(self, k: int) -> np.ndarray:
        """(runs, tasks) whether the task was solved within the first k episodes."""
        rows = [[first is not None and first < k for first in result.solved_at] for result in self.results]
        return np.array(rows)

    def counts(self, k: int) -> tuple[int, int]:
        """Pool (solved, n) over runs."""
        return pooled((int(row.sum()), len(row)) for row in self.solved_within(k))


def read_group(text: str) -> Group:
    """Read `label=file,file,...`; label and paths may hold further "=" signs.

    Raises:
        ConfigError: there is no label or no file, a file is named twice, or it holds no evaluation result.
    """
    cuts = [index for index, letter in enumerate(text) if letter == "="]
    choices = [(text[:cut].strip(), [path.strip() for path in text[cut + 1 :].split(",")]) for cut in cuts]
    choices = [(label, paths) for label, paths in choices if label and all(paths)]
    if not choices:
        raise ConfigError(f'`--group` is "{text}", but must be a label and files: --group "LaMer=a.json,b.json".')
    existing = (choice for choice in choices if all(Path(path).is_file() for path in choice[1]))
    label, paths = next(existing, choices[-1])
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise ConfigError(f'group "{label}" names a file twice, which would count its tasks twice: name each run once.')
    return Group(label, paths, [EvaluationResult.from_json(path) for path in paths])


def check_comparable(groups: Sequence[Group]) -> None:
    """Refuse results that were not obtained under the same conditions.

    Raises:
        ConfigError: naming the first setting that differs, the two files and their values.
    """
    labels = [group.label for group in groups]
    if len(set(labels)) < len(labels):
        raise ConfigError("two groups have the same label: give each method its own.")
    runs = [run for group in groups for run in zip(group.paths, group.results, strict=True)]
    _check_equal(runs, _MUST_AGREE, "Methods are compared on the same tasks under the same conditions only")
    for group in groups:
        runs = list(zip(group.paths, group.results, strict=True))
        _check_equal(runs, _MUST_AGREE_IN_GROUP, f'Runs of one method ("{group.label}") differ in their seed alone')


def compare(groups: Sequence[Group], *, resamples: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """Compute everything the tables show, as plain JSON values.

    Args:
        groups: at least one method.
        resamples: bootstrap samples.
        seed: of the bootstrap.

    Returns:
        `groups` (pooled pass@k with interval and spread, gains over the own pass@1), `differences` (pass@N between
        all pairs of groups, N the largest k that all of them played) and `settings` (what all files share).
    """
    check_comparable(groups)
    largest = min(group.num_episodes for group in groups)
    options = {"resamples": resamples, "seed": seed}
    pairs = list(itertools.combinations(groups, 2))
    found = [difference(b, a, largest, options) for a, b in pairs]
    adjusted = holm_adjusted([apart.p_value for apart in found])
    first = groups[0].results[0]
    return {
        "metarl_agents": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {name: getattr(first, name) for name in _MUST_AGREE},
        "bootstrap": options,
        "groups": [describe_group(group, options) for group in groups],
        "differences": [
            {"k": largest, "better": b.label, "than": a.label, **apart._asdict(), "p_holm": p_holm}
            for (a, b), apart, p_holm in zip(pairs, found, adjusted, strict=True)
        ],
    }


def difference(better: Group, than: Group, k: int, options: Mapping[str, int]) -> PairedDifference:
    """Compare pass@k of two methods on the same tasks; of a method with several runs, over them too."""
    return paired_bootstrap(better.solved_within(k), than.solved_within(k), over_runs=True, **options)


def gain(group: Group, k: int, options: Mapping[str, int]) -> dict[str, float]:
    """Return what the episodes after the first add by pass@k, within the same trials: over tasks, and over runs.

    Later episodes can only add to what the first solved, so testing the gain against 0 would mean nothing.
    """
    added = group.solved_within(k) & ~group.solved_within(1)
    found = paired_bootstrap(added, np.zeros_like(added), over_runs=True, **options)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def independent(results: Sequence[EvaluationResult], k: int, options: Mapping[str, int]) -> dict[str, Any]:
    """Average independent pass@k over runs; the interval is over tasks and, where there are several, over runs."""
    share = seed_spread([result.independent(k) for result in results]).mean
    if len(results) == 1:
        return {"share": share, "interval": list(results[0].independent_interval(k))}
    values = np.array([independent_per_task(result.first_episode_successes, k) for result in results])
    if np.all(values == 0) or np.all(values == 1):
        # Resampling would claim certainty.
        tasks = values.shape[1]
        return {"share": share, "interval": list(wilson_interval(round(share * tasks), tasks))}
    found = paired_bootstrap(values, np.zeros_like(values), over_runs=True, **options)
    return {"share": share, "interval": [found.low, found.high]}


def diversity(results: Sequence[EvaluationResult], options: Mapping[str, int]) -> dict[str, Any] | None:
    """Average the entropy of first episodes over runs; None where a run has none.

    The interval is over tasks and, where there are several, over runs. Older results kept no entropy of each task: with
    one of them it is the lowest and the highest run, and None where there is a single one. `over_tasks` says which.
    `samples` are the first episodes of a task that the entropy is of, the fewest of any run.
    """
    nats = [result.diversity_nats for result in results]
    if None in nats:
        return None
    values = _entropies(results)
    shares = seed_spread([result.diversity_normalised for result in results])
    samples = min(result.num_samples for result in results)
    told = {"nats": seed_spread(nats).mean, "share": shares.mean, "samples": samples, "over_tasks": values is not None}
    if values is None:
        return told | {"interval": [min(nats), max(nats)] if len(nats) > 1 else None}
    if len(nats) == 1 or np.ptp(values) == 0:  # resampling would claim certainty
        return told | {"interval": list(entropy_interval(values[0], results[0].num_samples, **options))}
    found = paired_bootstrap(values, np.zeros_like(values), over_runs=True, **options)
    return told | {"interval": [found.low, found.high]}


def _entropies(results: Sequence[EvaluationResult]) -> np.ndarray | None:
    """Return (runs, tasks') entropies of the tasks that have one in every run; None where there is no such task."""
    if any(result.diversity_by_task is None for result in results):
        return None
    values = np.array([result.diversity_by_task for result in results], dtype=float)  # NaN: left out after a crash
    kept = values[:, ~np.isnan(values).any(axis=0)]
    return kept if kept.size else None


def describe_group(group: Group, options: dict[str, int], *, whole: bool = True) -> dict[str, Any]:
    """Compute pooled pass@k, its interval and spread, and the gain of later episodes over the first.

    Args:
        group: the method.
        options: of the bootstrap.
        whole: also what independent first episodes tell, and the record of every run.
    """
    table: dict[str, Any] = {}
    gains: dict[str, Any] = {}
    for k in range(1, group.num_episodes + 1):
        solved, n = group.counts(k)
        per_run = [result.pass_at(k) for result in group.results]
        table[f"pass@{k}"] = {
            "solved": solved,
            "n": n,
            "share": solved / n,
            "interval": wilson_interval(solved, n),
            "per_run": per_run,
            "spread": seed_spread(per_run)._asdict(),
        }
        if k > 1:
            gains[f"pass@{k}"] = gain(group, k, options)
    described = {"label": group.label, **table, "gain_over_pass@1": gains}
    if not whole:
        return described
    runs = [{"path": path, **_run_record(result)} for path, result in zip(group.paths, group.results, strict=True)]
    return {**described, **_sampled(group, options), "runs": runs}


def report(groups: Sequence[Group], comparison: dict[str, Any], *, markdown: bool) -> str:
    """Write the tables, the differences and what must be known to read them."""
    entries = comparison["groups"]
    ks = range(1, max(group.num_episodes for group in groups) + 1)
    passes = [f"pass@{k}" for k in ks]
    header = ["method", "runs", "n", *passes]
    rows = [[*_head(entry), str(entry["pass@1"]["n"]), *_cells(entry, passes, _pooled_cell)] for entry in entries]
    sections = [lay_out(header, rows, markdown)]
    if several := [entry for entry in entries if len(entry["runs"]) > 1]:
        rows = [[*_head(entry), *_cells(entry, passes, _spread_cell)] for entry in several]
        sections += [
            "Over runs: lowest to highest, and standard deviation.",
            lay_out(["method", "runs", *passes], rows, markdown),
        ]
    names = [f"{name}_independent" for name in passes]
    if sampled := [entry for entry in entries if names[0] in entry]:
        header = ["method", "runs", *(f"indep. {name}" for name in passes), "diversity"]
        rows = [
            [*_head(e), *_cells(e, names, _pooled_cell), *_cells(e, ["diversity"], diversity_cell)] for e in sampled
        ]
        sections += [
            "Independent first episodes: mean over runs; intervals over tasks and runs, of diversity lowest to highest "
            "run where results did not keep it task by task.",
            lay_out(header, rows, markdown),
        ]
    own = [gain_line(entry) for entry in entries if entry["gain_over_pass@1"]]
    between = [difference_line(entry) for entry in comparison["differences"]]
    sections += [lay_out_notes(lines, markdown) for lines in ([*own, *between], _notes(groups, between)) if lines]
    return "\n\n".join(sections)


def gain_line(entry: dict[str, Any]) -> str:
    """Say what the later episodes of a trial add."""
    name, gain = list(entry["gain_over_pass@1"].items())[-1]
    return f"{entry['label']}: {name} minus its own pass@1: {PASS.apart(gain)}"


def difference_line(entry: dict[str, Any]) -> str:
    """Say how far two methods lie apart, and how many seeds of each say so, where that is known."""
    p = f"p {_p_text(entry['p_value'])} (Holm {_p_text(entry['p_holm'])})"
    measure = measure_of(entry)
    spoken = measure.spoken.format(k=entry["k"])
    seeds = "; seeds: {} and {}".format(*entry["seeds"]) if "seeds" in entry else ""
    return f"{spoken}, {entry['better']} minus {entry['than']}: {measure.apart(entry)}, {p}{seeds}"


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Read the command line, print the comparison, write it where asked, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", action="append", required=True, metavar="LABEL=FILE,...", help="one method")
    parser.add_argument("--output", help="JSON file for everything, runs and outcomes included")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of plain columns")
    parser.add_argument("--resamples", type=int, default=10_000, help="bootstrap samples")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    args = parser.parse_args(arguments)
    try:
        groups = [read_group(text) for text in args.group]
        comparison = compare(groups, resamples=args.resamples, seed=args.seed)
    except ConfigError as error:
        parser.error(str(error))
    print(report(groups, comparison, markdown=args.markdown))
    if args.output:
        path = Path(args.output)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_to_text(comparison) + "\n", encoding="utf-8")
    return comparison


def _run_record(result: EvaluationResult) -> dict[str, Any]:
    """Keep all of a run's result but what every run shares."""
    kept = (item.name for item in fields(result) if item.name not in _MUST_AGREE)
    return {name: getattr(result, name) for name in kept}


def _sampled(group: Group, options: Mapping[str, int]) -> dict[str, Any]:
    """Average independent pass@k and diversity over runs, where all of them sampled first episodes."""
    results = group.results
    most = min(group.num_episodes, *(result.num_samples for result in results))
    found: dict[str, Any] = {f"pass@{k}_independent": independent(results, k, options) for k in range(1, most + 1)}
    if found and (entropy := diversity(results, options)):
        found["diversity"] = entropy
    return found


def _check_equal(runs: Sequence[tuple[str, EvaluationResult]], names: Sequence[str], why: str) -> None:
    """Refuse (file, result) pairs whose settings `names` differ."""
    first_path, first = runs[0]
    for (path, result), name in itertools.product(runs[1:], names):
        ours, theirs = getattr(first, name), getattr(result, name)
        if ours != theirs:
            raise ConfigError(
                f"`{name}` differs: {first_path} has {_shown(ours, theirs)}, {path} has {_shown(theirs, ours)}. "
                f"{why}: evaluate one of them again."
            )


def _head(entry: dict[str, Any]) -> list[str]:
    return [entry["label"], str(len(entry["runs"]))]


def _cells(entry: dict[str, Any], names: Sequence[str], show: Callable[[Any], str]) -> list[str]:
    return [show(entry[name]) if name in entry else "-" for name in names]


def _pooled_cell(numbers: dict[str, Any]) -> str:
    return percent(numbers["share"], numbers["interval"])


def _spread_cell(numbers: dict[str, Any]) -> str:
    spread = numbers["spread"]
    return f"{percent(spread['min'])} to {percent(spread['max'])}, sd {percent(spread['std'])}"


def diversity_cell(numbers: Mapping[str, Any]) -> str:
    """Write an entropy in nats with its interval, and its share of the largest."""
    interval = numbers.get("interval")
    bounds = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""
    return f"{numbers['nats']:.2f}{bounds} ({100 * numbers['share']:.0f} %)"


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _notes(groups: Sequence[Group], between: Sequence[str]) -> list[str]:
    """Say what the numbers are, then how they were obtained."""
    notes = [
        "pass@k: percent of tasks solved within the first k episodes of one trial, pooled over runs "
        "(n = runs x tasks), Wilson 95 % interval; what training once more may give shows in the spread over runs"
    ]
    text = "gains and differences: paired bootstrap over tasks and, where there are several, over runs; 95 % interval"
    notes.append(f"{text}; Holm: p corrected for {len(between)} comparison(s)" if between else text)
    methods = []
    for group in groups:
        crashed = [crash for result in group.results for crash in result.crashed]
        shares = {result.winnable_share for result in group.results}
        share = shares.pop() if len(shares) == 1 else None
        methods.append(replace(group.results[0], label=group.label, crashed=crashed, winnable_share=share))
    return notes + table_notes(methods)


def _shown(value: Any, other: Any) -> str:
    """Show a value in a sentence; a list of seeds by its length and what is not in the other one."""
    if not isinstance(value, list):
        return repr(value)
    return f"{len(value)} tasks ({len(set(value) - set(other))} of them not in the other, or in another order)"


def _to_text(value: Any, indent: str = "") -> str:
    """Write JSON with a line for each key and each object of a list; other lists stay on one line."""
    inner = indent + " "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{json.dumps(key)}: {_to_text(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "[\n" + ",\n".join(inner + _to_text(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
