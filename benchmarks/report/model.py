"""What a report shows, as values: blocks of rows, differences, charts. It knows neither cell files nor markup.

All texts are plain text; whoever writes markup escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.measures import PASS, Measure


@dataclass(frozen=True)
class Number:
    """A share between 0 and 1, or a payoff, with its 95 % interval."""

    value: float
    low: float | None = None
    high: float | None = None
    spread: tuple[float, float] | None = None
    """Lowest and highest run, where there are several."""


@dataclass(frozen=True)
class Link:
    """A run's trajectories."""

    text: str
    target: str | None
    """Relative address of the page; None where it is not there."""
    note: str = ""
    """What to do or know where there is no page."""


@dataclass(frozen=True)
class Row:
    """One method, all its seeds together."""

    label: str
    pass_at: tuple[Number, ...] = ()
    """(N,) the measure of each episode: pass@1..N, or what the games of each brought; empty where there is nothing."""
    seeds: int | None = None
    """Runs that were pooled; None for what is not trained."""
    tasks: int = 0
    """Tasks of each run."""
    independent: tuple[Number, ...] = ()
    diversity: Number | None = None
    """Nats."""
    gain: Number | None = None
    """Last of `pass_at` minus the first."""
    published: tuple[float | None, ...] = ()
    """(N,) the paper's numbers, as shares; None where it gives none."""
    endings: tuple[tuple[str, str], ...] = ()
    """(what, how much): how games ended and what they paid."""
    effort: tuple[tuple[str, str], ...] = ()
    """(what, how much) training took: episodes, tokens, time; empty too where an earlier row shows the same models."""
    remark: str = ""
    """What is special about the row's numbers, or went wrong."""
    absence: str = "not run"
    """What stands where numbers would."""
    is_best: bool = False
    """Better than every other row beyond chance."""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Series:
    """One line of a chart, drawn in the order of its points."""

    name: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...] = ()
    """(points,) lowest and highest, or empty."""
    dots: bool = False
    """Markers without a line."""
    hue: int = 0
    """Which colour and marker; series of one method share it."""


@dataclass(frozen=True)
class Chart:
    """A picture: lines over steps, or one line of dots for each row."""

    kind: Literal["lines", "dots"]
    title: str
    caption: str
    x_label: str = ""
    series: tuple[Series, ...] = ()
    """For "lines"; y is in percent."""
    rows: tuple[tuple[str, tuple[Number, ...]], ...] = ()
    """For "dots": (label, values), the last value drawn full, earlier ones hollow."""
    names: tuple[str, ...] = ()
    """For "dots": what each value is called."""
    is_share: bool = True
    """Whether values are shares, shown in percent, or plain numbers."""

    def summary(self) -> str:
        """Say the picture in words, for those who do not see it."""
        if self.kind == "lines":
            ends = [(s.name, s.points[0], s.points[-1]) for s in self.series if s.points and not s.dots]
            ends = ends or [(s.name, s.points[0], s.points[-1]) for s in self.series if s.points]
            told = [f"{name}: {a[1]:.1f} at {a[0]:g}, {b[1]:.1f} at {b[0]:g}" for name, a, b in ends]
        else:
            told = [f"{label}: {' to '.join(self.shown(n.value) for n in numbers)}" for label, numbers in self.rows]
        return f"{self.caption} {'; '.join(told)}." if told else self.caption

    def shown(self, value: float) -> str:
        """Write a value as the axis does."""
        return f"{100 * value:.1f} %" if self.is_share else f"{value:.2f}"


@dataclass(frozen=True)
class Block:
    """One table with its charts: the methods on one environment, or the settings of one ablation."""

    name: str
    """Short name, also the anchor."""
    title: str
    rows: tuple[Row, ...]
    num_episodes: int = 1
    """Columns of the measure."""
    measure: Measure = PASS
    """What the columns show."""
    more: str = ""
    """What the columns of the second table show."""
    is_ablation: bool = False
    about: str = ""
    """A sentence on what is compared."""
    source: str = ""
    """Where the published numbers come from."""
    conditions: tuple[str, ...] = ()
    """How the numbers were obtained."""
    differences: tuple[str, ...] = ()
    """Differences between methods, one sentence each."""
    charts: tuple[Chart, ...] = ()

    @property
    def ending_names(self) -> tuple[str, ...]:
        """Columns of how games ended, in the order they are first named."""
        return tuple(dict.fromkeys(name for row in self.rows for name, _ in row.endings))

    @property
    def effort_names(self) -> tuple[str, ...]:
        """Columns of what the rows cost, in the order they are first named."""
        return tuple(dict.fromkeys(name for row in self.rows for name, _ in row.effort))


@dataclass(frozen=True)
class Report:
    """Everything that is shown."""

    title: str
    header: tuple[str, ...]
    """Evaluation settings, machines, versions, dates, one line each."""
    blocks: tuple[Block, ...]
    missing: tuple[str, ...] = ()
    """Cells that have not been run."""
    failed: tuple[str, ...] = ()
    """Cells that were run and failed, with the reason."""
    skipped: tuple[str, ...] = ()
    """Blocks that are planned and cannot be run here, with the reason."""
    stale: tuple[str, ...] = ()
    """Cells that are kept, but were made with other settings or code than now."""

    @property
    def open_parts(self) -> list[tuple[str, tuple[str, ...]]]:
        """What is not there, by kind; kinds of which there is nothing are left out."""
        kinds = [("Failed", self.failed), ("Not run yet", self.missing), ("Left out", self.skipped)]
        kinds += [("Stale, since settings or code have changed", self.stale)]
        return [(title, lines) for title, lines in kinds if lines]

    @property
    def main(self) -> Sequence[Block]:
        """The blocks of methods."""
        return [block for block in self.blocks if not block.is_ablation]

    @property
    def ablations(self) -> Sequence[Block]:
        """The blocks of settings."""
        return [block for block in self.blocks if block.is_ablation]
