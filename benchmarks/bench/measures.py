"""What a table leads with: sequential pass@k, or in games the exploited share or the payoff of each episode.

What lives here: names, units and where a row of a summary keeps the numbers. What does not: the numbers themselves
(`summary.py`, `games.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metarl_agents.evaluation.layout import percent


@dataclass(frozen=True)
class Measure:
    """One kind of number, for each episode of a trial. `{k}` in a text stands for the number of the episode."""

    name: str
    """How summaries and plans call it."""
    column: str
    spoken: str
    """In a sentence."""
    lead: str
    """How somebody leads by it."""
    corner: str
    """Heads the column of labels."""
    axis: str
    caption: str
    more: str
    """Explains the columns that stand in a second table."""
    gain: str
    """Heads the difference between last and first episode."""
    is_share: bool = True
    """Whether numbers are shares, shown in percent, or plain ones."""

    def told(self, value: float, interval: tuple[float, float] | None = None) -> str:
        """Write a number with its interval."""
        if self.is_share:
            return percent(value, interval)
        return f"{value:+.3f}" + ("" if interval is None else f" [{interval[0]:+.3f}, {interval[1]:+.3f}]")

    def difference(self, mean: float, low: float | None = None, high: float | None = None) -> str:
        """Write a difference between two numbers, with its sign."""
        scale, digits = (100, 1) if self.is_share else (1, 3)
        bounds = "" if low is None or high is None else f" [{scale * low:+.{digits}f}, {scale * high:+.{digits}f}]"
        return f"{scale * mean:+.{digits}f}{bounds}"

    def apart(self, found: dict[str, Any]) -> str:
        """Write a comparison (`mean`, `low`, `high`) as a sentence does."""
        whole = self.difference(found["mean"], found["low"], found["high"])
        return whole.replace(" [", " points [", 1) if self.is_share else whole


_GAMES = (
    "The last episode minus the first. Won, drawn, lost and unfinished games of the last episode in percent, and their "
    "payoff."
)

PASS = Measure(
    "pass",
    column="pass@{k}",
    spoken="pass@{k}",
    lead="at pass@{k}",
    corner="percent solved",
    axis="tasks solved (%)",
    caption="Percent of tasks solved within the first k attempts of a trial; brackets: 95 % intervals.",
    more="Gain: points over its own first attempt. Indep. pass@k: one of k unconnected first attempts.",
    gain="gain by {k}",
)
EXPLOITED = Measure(
    "exploited",
    column="episode {k}",
    spoken="exploited share of episode {k}",
    lead="in the exploited share of episode {k}",
    corner="exploited %",
    axis="exploited share (%)",
    caption="Percent of what there is to exploit in an opponent that is taken in each episode of a trial: 0 is "
    "equilibrium play, 100 the best response; brackets: 95 % intervals.",
    more=_GAMES,
    gain="episode {k} - 1",
)
PAYOFF = Measure(
    "payoff",
    column="episode {k}",
    spoken="payoff of episode {k}",
    lead="in the payoff of episode {k}",
    corner="payoff",
    axis="payoff",
    caption="Payoff in each episode of a trial, mean over tasks; brackets: 95 % intervals.",
    more=_GAMES,
    gain="episode {k} - 1",
    is_share=False,
)
MEASURES = {measure.name: measure for measure in (PASS, EXPLOITED, PAYOFF)}


def measure_of(entry: dict[str, Any]) -> Measure:
    """Return the measure of a block or a difference of a summary; pass@k where it names none."""
    return MEASURES[entry.get("measure", PASS.name)]


def scores(row: dict[str, Any], measure: Measure) -> dict[str, dict[str, Any]]:
    """Return {episode: {"share", "interval", "per_run", "spread"}} of a summary's row; {} where it has none.

    "share" is the number itself, also where it is a payoff.
    """
    if measure is PASS:
        return row.get("pass") or {}
    return (row.get("games") or {}).get(measure.name) or {}


def diversity_explained(rows: Sequence[dict[str, Any]]) -> str:
    """Say what the diversities of a summary's rows are of, and what stands in brackets behind them; "" without any."""
    found = [row["diversity"] for row in rows if row.get("diversity")]
    if not found:
        return ""
    samples = " or ".join(str(count) for count in sorted({entry["samples"] for entry in found}))
    brackets = diversity_brackets(rows)
    return f"Diversity: entropy of {samples} first attempts, nats{f'; its brackets: {brackets}' if brackets else ''}."


def diversity_brackets(rows: Sequence[dict[str, Any]]) -> str:
    """Say which intervals the diversities of a summary's rows have; "" where none has one."""
    found = [row["diversity"] for row in rows if row.get("diversity")]
    kinds = {entry["over_tasks"] for entry in found if entry["interval"]}
    if kinds == {True, False}:
        return "95 % intervals, or lowest to highest seed where no entropy of each task was kept"
    return "95 % intervals" if kinds == {True} else "lowest to highest seed" if kinds else ""
