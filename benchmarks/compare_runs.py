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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from metarl_agents import __version__
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import (
    EvaluationResult,
    holm_adjusted,
    paired_bootstrap,
    pooled,
    seed_spread,
    wilson_interval,
)
from metarl_agents.evaluation.results import lay_out, lay_out_notes, percent, table_notes

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
    found = [paired_bootstrap(b.solved_within(largest), a.solved_within(largest), **options) for a, b in pairs]
    adjusted = holm_adjusted([difference.p_value for difference in found])
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
            {"k": largest, "better": b.label, "than": a.label, **difference._asdict(), "p_holm": p_holm}
            for (a, b), difference, p_holm in zip(pairs, found, adjusted, strict=True)
        ],
    }


def describe_group(group: Group, options: dict[str, int]) -> dict[str, Any]:
    """Compute pooled pass@k, its interval and spread, and the gain of later episodes over the first."""
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
            gain = paired_bootstrap(group.solved_within(k), group.solved_within(1), **options)
            # Later episodes can only add to what the first solved, so testing the gain against 0 would mean nothing.
            gains[f"pass@{k}"] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
    runs = [{"path": path, **_run_record(result)} for path, result in zip(group.paths, group.results, strict=True)]
    return {"label": group.label, **table, "gain_over_pass@1": gains, **_sampled(group), "runs": runs}


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
        rows = [[*_head(e), *_cells(e, names, percent), *_cells(e, ["diversity"], _diversity_cell)] for e in sampled]
        sections += ["Independent first episodes: mean over runs.", lay_out(header, rows, markdown)]
    own = [gain_line(entry) for entry in entries if entry["gain_over_pass@1"]]
    between = [difference_line(entry) for entry in comparison["differences"]]
    sections += [lay_out_notes(lines, markdown) for lines in ([*own, *between], _notes(groups, between)) if lines]
    return "\n\n".join(sections)


def gain_line(entry: dict[str, Any]) -> str:
    """Say what the later episodes of a trial add."""
    name, gain = list(entry["gain_over_pass@1"].items())[-1]
    return f"{entry['label']}: {name} minus its own pass@1: {_points(gain)}"


def difference_line(entry: dict[str, Any]) -> str:
    """Say how far two methods lie apart."""
    p = f"p {_p_text(entry['p_value'])} (Holm {_p_text(entry['p_holm'])})"
    return f"pass@{entry['k']}, {entry['better']} minus {entry['than']}: {_points(entry)}, {p}"


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
    return {name: value for name, value in asdict(result).items() if name not in _MUST_AGREE}


def _sampled(group: Group) -> dict[str, Any]:
    """Average independent pass@k and diversity over runs, where all of them sampled first episodes."""
    results = group.results
    most = min(group.num_episodes, *(result.num_samples for result in results))
    ks = range(1, most + 1)
    found = {f"pass@{k}_independent": seed_spread([r.independent(k) for r in results]).mean for k in ks}
    diversities = [result.diversity_nats for result in results]
    if found and None not in diversities:
        shares = [result.diversity_normalised for result in results]
        found["diversity"] = {"nats": seed_spread(diversities).mean, "share": seed_spread(shares).mean}
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


def _diversity_cell(numbers: dict[str, float]) -> str:
    return f"{numbers['nats']:.2f} ({100 * numbers['share']:.0f} %)"


def _points(difference: dict[str, Any]) -> str:
    mean, low, high = (100 * difference[name] for name in ("mean", "low", "high"))
    return f"{mean:+.1f} points [{low:+.1f}, {high:+.1f}]"


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _notes(groups: Sequence[Group], between: Sequence[str]) -> list[str]:
    """Say what the numbers are, then how they were obtained."""
    notes = [
        "pass@k: percent of tasks solved within the first k episodes of one trial, pooled over runs "
        "(n = runs x tasks), Wilson 95 % interval; what training once more may give shows in the spread over runs"
    ]
    text = "differences: paired bootstrap over tasks, runs of a method averaged, 95 % interval"
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
