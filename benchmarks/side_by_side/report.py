"""From what the processes found to ratios, and from both to a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from side_by_side.protocol import COUNTS, is_busy, penalty, share_of, speed_ratio, spread, start_share

RIVALS = (
    ("ours/meta", "lockstep/meta"),
    ("ours/rl", "lockstep/rl"),
    ("ours/single", "lockstep/single"),
    ("ours/single", "trl/single"),
    ("ours/single", "trl_continuous/single"),
)
"""Who is compared with whom: the same workload, the library first."""
MAKERS = ("ours", "lockstep")
"""Whose meta-RL is compared with its own plain RL."""
NAMES = {
    "ours": "metarl_agents",
    "lockstep": "lock-step loop",
    "trl": "TRL GRPOTrainer",
    "trl_continuous": "TRL GRPOTrainer with continuous batching",
}
UNITS = {"ours": "tokens", "lockstep": "rows", "trl": "rows", "trl_continuous": "rows"}
"""What a maker counts a micro-batch in."""
EXTRAS = {
    "request": "one request at a time, times as fast as plain `generate`",
    "waiting": "throughput with an environment of 100 ms a step, as a share of that with none",
}
"""What else is measured of the library, each in a process of its own (`request.py`, `waiting.py`)."""
WORK = {"meta": "meta-RL", "rl": "plain RL", "single": "single turn"}

_OURS = ("tasks_per_step", "group_size", "num_episodes", "max_turns", "max_new_tokens_per_turn", "advantages", "beta")
_OURS += ("updates_per_batch", "gradient_checkpointing", "attn_implementation")
_TRL = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations", "max_completion_length")
_TRL += ("steps_per_generation", "num_iterations", "loss_type", "beta", "bf16", "gradient_checkpointing", "optim")
_TRL += ("use_vllm", "use_transformers_continuous_batching")
DECIDING = {
    "ours": ("max_tokens_per_micro_batch", "mixed_precision", *_OURS),
    "lockstep": ("rows_per_micro_batch", "bf16_autocast", *_OURS),
    "trl": _TRL,
    "trl_continuous": _TRL,
}
"""Settings that decide how fast a maker is; a result holds all of them."""

Runs = dict[str, list[dict[str, Any]]]
"""{contender: what its processes found}; one that failed found an `error`."""


def timed(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the timed iterations of a contender's processes; none where one of them failed."""
    if any("error" in run for run in runs):
        return []
    return [iteration for run in runs for iteration in run["iterations"]]


def peak(run: dict[str, Any]) -> float:
    """Return the most memory of a process after its first iteration, in GiB."""
    return max(size for iteration in run["iterations"] for size in iteration["peak_gib"].values())


def update_peak(run: dict[str, Any]) -> float:
    """Return the most memory of a process's updates, in GiB; only a GPU's is known apart from the rest."""
    return max(iteration["peak_gib"]["update"] for iteration in run["iterations"])


def compare(runs: Runs, extras: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return every ratio that may be given, with the reason where one may not.

    Args:
        runs: what the contenders' processes found.
        extras: what was found beside them, by the names of `EXTRAS`.
    """
    found: dict[str, Any] = {"speed": {}, "penalty": {}, "cost": {}}
    for one, other in RIVALS:
        if one in runs and other in runs:
            sides = timed(runs[one]), timed(runs[other])
            found["speed"][f"{one} : {other}"] = {part: speed_ratio(*sides, part) for part in COUNTS}
            found["cost"][f"{one} : {other}"] = _costs(runs[one], runs[other], sides)
            if one in start_rivals(tuple(runs)):
                found["cost"][f"{one} : {other}"] |= {"first update": _starts(runs[one], runs[other], sides)}
    for maker in MAKERS:
        meta, plain = f"{maker}/meta", f"{maker}/rl"
        if meta in runs and plain in runs:
            sides = timed(runs[meta]), timed(runs[plain])
            found["penalty"][maker] = {part: penalty(*sides, part) for part in COUNTS}
    return found | {"extra": {name: {"rollout": extra["ratio"]} for name, extra in (extras or {}).items()}}


def start_rivals(contenders: Sequence[str]) -> list[str]:
    """Return those whose starts are compared: a process starts alike for all workloads, and TRL has single turns."""
    pairs = [pair for pair in RIVALS if set(pair) <= set(contenders) and pair[0].endswith("/single")]
    return [name for name in contenders if any(name in pair for pair in pairs)]


Processes = list[dict[str, Any]]
Sides = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def _costs(first: Processes, second: Processes, sides: Sides) -> dict[str, Any]:
    """Return the shares of memory, which is not timed, so that two processes of each are enough."""
    measures = {"peak memory": peak}
    noted = [iteration["peak_gib"] for side in sides for iteration in side]
    if noted and all("update" in peaks for peaks in noted):
        measures["peak memory of the update"] = update_peak
    found = {}
    for name, measure in measures.items():
        peaks = [[measure(run) for run in side if run.get("iterations")] for side in (first, second)]
        found[name] = share_of(*peaks, sides)
    return found


def _starts(first: Processes, second: Processes, sides: Sides) -> dict[str, Any]:
    """Return the share of the time from the start of the process to the end of its first update."""
    seconds = [[run["first_update_s"] for run in side if "first_update_s" in run] for side in (first, second)]
    return start_share(*seconds, sides)


def refusals(compared: dict[str, Any]) -> list[str]:
    """Return a line for every ratio that was refused."""
    return [
        f"{kind} {pair} {part}: {ratio['refused']}"
        for kind, pairs in compared.items()
        for pair, parts in pairs.items()
        for part, ratio in parts.items()
        if "refused" in ratio
    ]


# ---- text --------------------------------------------------------------------------------------------------------


def text(result: dict[str, Any]) -> str:
    """Return the whole report: machine, figures of each contender, ratios, environments, what was left out."""
    parts = [
        _machine(result),
        "\n".join(_busy_lines(result)),
        _table(_contender_rows(result["contenders"])) if result["contenders"] else "",
        "\n".join(_setting_lines(result["contenders"])),
        "\n".join(_exactness_lines(result["contenders"])),
        "\n".join(_ratio_lines(result["compared"])),
        _table(_goal_rows(result["goals"])) if result["goals"] else "",
        _table(_environment_rows(result["environments"])) if result["environments"] else "",
        "\n".join(f"left out: {name}, {reason}" for name, reason in result["left_out"].items()),
    ]
    return "\n\n".join(part for part in parts if part)


def _machine(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    tuned = "; ".join(
        f"{NAMES[maker]} {found['chosen']} {UNITS[maker]} a micro-batch, the fastest of {_tried(found)}"
        for maker, found in result["tuning"].items()
    )
    lines = [
        f"{result['card']}, {result['cpu']}, {result['threads']} threads, preset {result['preset']}, "
        f"{result['parameters'] / 1e6:.1f}M parameters",
        versions,
        f"tuned: {tuned}" if tuned else "",
        "Medians [ranges] over the timed iterations of both passes. Tokens: prompts and responses, without padding.",
    ]
    return "\n".join(line for line in lines if line)


def _busy_lines(result: dict[str, Any]) -> list[str]:
    """Name what was measured while the machine had more to do than this bench."""
    threads = result["threads"]
    loads = [
        (f"process {run['place'] + 1} ({title(name)})", run)
        for name, runs in result["contenders"].items()
        for run in runs
    ]
    loads = [(where, run["load"]) for where, run in sorted(loads, key=lambda item: item[1]["place"])]
    loads += result["loads"].items()
    busy = [f"{where} {load:.1f}" for where, load in loads if is_busy(load, threads)]
    if not busy:
        return []
    used = f"{threads} thread{'s' if threads > 1 else ''} in use"
    return [f"WARNING: another job was running: measure again. Load before each, with {used}: {', '.join(busy)}."]


def _exactness_lines(contenders: Runs) -> list[str]:
    """Say how far log-probabilities as sampled are from those of the update, where a contender notes both."""
    lines = []
    for name, runs in contenders.items():
        noted = [iteration for iteration in timed(runs) if "logp_difference" in iteration]
        if noted:
            mean = spread([iteration["logp_difference"] for iteration in noted])["median"]
            largest = max(iteration["largest_logp_difference"] for iteration in noted)
            limit = noted[0]["logp_limit"]
            asked = "no limit under bf16" if limit is None else f"limit {limit:g}"
            lines.append(
                f"{title(name)}: a token's log-probability as sampled and as scored differs by {mean:.1e}, at most "
                f"{largest:.1e} ({asked})"
            )
    return lines


def _tried(found: dict[str, Any]) -> str:
    return ", ".join(f"{size} ({seconds:.2f} s)" if seconds else f"{size} (failed)" for size, seconds in found["tried"])


def _contender_rows(contenders: Runs) -> list[list[str]]:
    heads = ["", "sampled tok/s", "rollout tok/s", "update tok/s", "iteration tok/s", "generate s", "rollout s"]
    rows = [[*heads, "update s", "iteration s", "first update s", "peak GiB", "padding"]]
    for name, runs in contenders.items():
        iterations = timed(runs)
        if not iterations:
            rows.append([title(name), "failed: " + next(run["error"] for run in runs if "error" in run)])
            continue
        sampled = [item["tokens"]["responses"] / item["seconds"]["rollout"] for item in iterations]
        rates = [[item["tokens"][COUNTS[part][0]] / item["seconds"][part] for item in iterations] for part in COUNTS]
        seconds = [[i["seconds"][part] for i in iterations] for part in ("generate", "rollout", "update", "iteration")]
        rows.append(
            [
                title(name),
                *(_spread(values, 0) for values in (sampled, *rates)),
                *(_spread(values, 2) for values in (*seconds, [run["first_update_s"] for run in runs])),
                _memory(runs),
                _padding(iterations),
            ]
        )
    return rows


def _setting_lines(contenders: Runs) -> list[str]:
    """Say with which settings each contender ran; those of a failed one are not known."""
    lines = []
    for name, runs in contenders.items():
        settings = next((run["settings"] for run in runs if "settings" in run), {})
        told = [f"{key} {settings[key]}" for key in DECIDING[name.split("/")[0]] if key in settings]
        lines += [f"{title(name)}: {', '.join(told)}"] if told else []
    return lines


def title(contender: str) -> str:
    """Return a contender's name in words.

    >>> title("ours/meta")
    'metarl_agents, meta-RL'
    """
    maker, work = contender.split("/")
    return f"{NAMES[maker]}, {WORK[work]}"


def _memory(runs: list[dict[str, Any]]) -> str:
    loaded = [run["loaded_gib"] for run in runs if run.get("loaded_gib")]
    most = max(peak(run) for run in runs if run["iterations"])
    return f"{most:.2f}" + (f" ({most - min(loaded):+.2f} since loaded)" if loaded else "")


def _padding(iterations: list[dict[str, Any]]) -> str:
    shares = [spread([item["padding"][part] for item in iterations])["median"] for part in ("rollout", "update")]
    return " / ".join(f"{100 * share:.0f} %" for share in shares)


def _ratio_lines(compared: dict[str, Any]) -> list[str]:
    heads = {
        "speed": "times as fast, by tokens/s",
        "penalty": "cost of a meta-RL token, as a multiple of a plain RL token's",
        "cost": "cost, as a multiple of the other's",
    }
    lines = []
    for kind, pairs in compared.items():
        for pair, parts in pairs.items():
            said = ", ".join(f"{part} {_ratio(ratio, part)}" for part, ratio in parts.items())
            if kind == "extra":
                lines.append(f"{NAMES['ours']} ({EXTRAS[pair]}): {said}")
                continue
            who = " : ".join(map(title, pair.split(" : "))) if ":" in pair else NAMES[pair]
            lines.append(f"{who} ({heads[kind]}): {said}")
    return lines


def _ratio(ratio: dict[str, Any], part: str = "") -> str:
    if "refused" in ratio:
        return f"refused, because {ratio['refused']}"
    counted = "starts" if part == "first update" else "processes" if "memory" in part else "timed repeats"
    return f"{ratio['ratio']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] of {ratio['repeats']} {counted}"


def _goal_rows(goals: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["goal", "asked", "measured", ""]]
    for found in goals:
        measured = _ratio(found["measured"], found["part"])
        rows.append([f"{found['number']}: {found['goal']}", found["asked"], measured, found["verdict"]])
    return rows


def _environment_rows(environments: dict[str, Any]) -> list[list[str]]:
    rows = [["environment", "steps/s", "reset ms", "first reset ms", "build s"]]
    for name, found in environments.items():
        if "left_out" not in found:
            speeds, resets = _spread(found["steps_per_second"], 0), _spread(found["reset_ms"], 3)
            rows.append([name, speeds, resets, f"{found['first_reset_ms']:.3f}", f"{found['build_s']:.2f}"])
    return rows


def _spread(values: Sequence[float] | dict[str, float], digits: int) -> str:
    found = values if isinstance(values, dict) else spread(values)
    return f"{found['median']:.{digits}f} [{found['min']:.{digits}f}, {found['max']:.{digits}f}]"


def _table(rows: list[list[str]]) -> str:
    """Return rows as a Markdown table, the first one its head."""
    lines = ["| " + " | ".join(row + [""] * (len(rows[0]) - len(row))) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])
