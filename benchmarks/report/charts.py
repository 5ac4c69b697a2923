"""Charts as SVG: lines with bands over training steps, and dots with intervals, one line a method.

Colours are CSS variables, so that a page's light and dark style reach into the picture; `standalone` gives a file
that brings its own. Shapes repeat what colours say. The same chart always gives the same text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from report.model import Chart, Number, Series

Point = tuple[float, float]
Place = Callable[[float], float]
"""From a value to its place across the picture."""

# Okabe and Ito's palette, which colour-blind readers can tell apart; lighter where the ground is dark.
STYLE = """
.chart { --ink: #22242a; --soft: #5f6269; --line: #dedbd1; --ground: #fffefb;
  --hue-0: #0072b2; --hue-1: #c77700; --hue-2: #00805f; --hue-3: #b3568a; --hue-4: #6a6f78; --hue-5: #8a6d00; }
@media (prefers-color-scheme: dark) { .chart { --ink: #e7e5df; --soft: #a3a6ad; --line: #3a3d44; --ground: #1e2024;
  --hue-0: #6cb6ec; --hue-1: #f0a53c; --hue-2: #4fc7a1; --hue-3: #e29ac4; --hue-4: #b4b8c0; --hue-5: #d8bf4f; } }
@media print { .chart { --ink: #22242a; --soft: #5f6269; --line: #dedbd1; --ground: #ffffff;
  --hue-0: #0072b2; --hue-1: #c77700; --hue-2: #00805f; --hue-3: #b3568a; --hue-4: #6a6f78; --hue-5: #8a6d00; } }
.chart text { font: 13px system-ui, "Segoe UI", sans-serif; fill: var(--soft); }
.chart .name { fill: var(--ink); }
"""
_HUES = 6
_WIDTH = 440
_LEFT, _RIGHT, _TOP = 36, 16, 12
_PLOT_HEIGHT = 200
_LINE = 11.0
_LONGEST = 58
"""Characters of a name that fit; the tables have all of it."""
_MARKER = 5.0


def draw(chart: Chart, identity: str) -> str:
    """Return the chart as an `<svg>` element.

    Args:
        chart: what to draw.
        identity: unique in the page; names the parts that describe the picture.
    """
    body, height = _lines(chart) if chart.kind == "lines" else _dots(chart)
    title, words = escape(chart.title), escape(chart.summary())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {_WIDTH} {_n(height)}" role="img" '
        f'aria-labelledby="{identity}-title {identity}-words">'
    )
    return f'{head}<title id="{identity}-title">{title}</title><desc id="{identity}-words">{words}</desc>{body}</svg>'


def standalone(chart: Chart, identity: str) -> str:
    """Return the chart as an SVG file that is readable on light and dark pages."""
    ground = '<rect width="100%" height="100%" rx="8" fill="var(--ground)"/>'
    opening, _, rest = draw(chart, identity).partition("</desc>")
    return f"{opening}</desc><style>{STYLE}</style>{ground}{rest}\n"


def _lines(chart: Chart) -> tuple[str, float]:
    """Draw series over steps; y runs from 0 to a round number above the highest value."""
    points = [point for series in chart.series for point in series.points]
    bands = [edge for series in chart.series for pair in series.band for edge in pair]
    first, last = min((x for x, _ in points), default=0.0), max((x for x, _ in points), default=1.0)
    top = max(10.0, 10.0 * math.ceil(max([y for _, y in points] + bands, default=10.0) / 10.0))
    across, down = _WIDTH - _LEFT - _RIGHT, _PLOT_HEIGHT

    def place(x: float, y: float) -> Point:
        return _LEFT + across * (x - first) / (last - first or 1.0), _TOP + down * (1.0 - y / top)

    parts = []
    for tick in _ticks(0.0, top):
        _, y = place(first, tick)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_n(y)}" y2="{_n(y)}" stroke="var(--line)"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{_n(y + 4)}" text-anchor="end">{tick:g}</text>')
    for tick in _ticks(first, last):
        x, _ = place(tick, 0.0)
        parts.append(f'<text x="{_n(x)}" y="{_TOP + down + 19}" text-anchor="middle">{tick:g}</text>')
    # Bands first, so that no line lies under another one's band.
    parts += [_band(series, place) for series in chart.series if series.band]
    parts += [_curve(series, [place(*point) for point in series.points]) for series in chart.series]
    parts.append(
        f'<text x="{_n(_LEFT + across / 2)}" y="{_TOP + down + 38}" text-anchor="middle">{escape(chart.x_label)}</text>'
    )
    legend, height = _legend(chart.series, _TOP + down + 60.0)
    return "".join(parts) + legend, height


def _band(series: Series, place: Callable[[float, float], Point]) -> str:
    """Draw from the lowest to the highest run: an area along a line, a bar at a marker."""
    ends = [(x, *pair) for (x, _), pair in zip(series.points, series.band, strict=True)]
    low, high = [place(x, least) for x, least, _ in ends], [place(x, most) for x, _, most in ends]
    if series.dots:
        return "".join(_whisker(a, b, _hue(series.hue)) for a, b in zip(low, high, strict=True))
    outline = " ".join(f"{_n(x)},{_n(y)}" for x, y in [*high, *reversed(low)])
    return f'<polygon points="{outline}" fill="{_hue(series.hue)}" opacity=".18"/>'


def _curve(series: Series, placed: Sequence[Point]) -> str:
    if series.dots:
        return "".join(_marker(series.hue, x, y) for x, y in placed)
    path = " ".join(f"{_n(x)},{_n(y)}" for x, y in placed)
    dash = ' stroke-dasharray="6 4"' if series.hue % 2 else ""
    return f'<polyline points="{path}" fill="none" stroke="{_hue(series.hue)}" stroke-width="2"{dash}/>'


def _legend(series: Sequence[Series], top: float) -> tuple[str, float]:
    """Explain each colour on a line of its own, so that long names fit; return the height below them too."""
    parts, y = [], top
    for hue in dict.fromkeys(one.hue for one in series):
        drawn = [one for one in series if one.hue == hue]
        ends = [(_LEFT, y - 4.0), (_LEFT + 24.0, y - 4.0)]
        if not all(one.dots for one in drawn):
            parts.append(_curve(Series("", (), hue=hue), ends))
        if any(one.dots for one in drawn):
            parts.append(_marker(hue, _LEFT + 12.0, y - 4.0))
        parts.append(_name(drawn[0].name, _LEFT + 32.0, y))
        y += 20.0
    return "".join(parts), y - 6.0


def _name(text: str, x: float, y: float) -> str:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f'<text class="name" x="{_n(x)}" y="{_n(y)}">{escape(shown)}</text>'


def _dots(chart: Chart) -> tuple[str, float]:
    """Draw a group of dots for each row: its label, below it a line for each value with its interval."""
    numbers = [number for _, values in chart.rows for number in values]
    scale = 100.0 if chart.is_share else 1.0
    top = _round_up(max((scale * _highest(number) for number in numbers), default=1.0))
    low = min((scale * _lowest(number) for number in numbers), default=0.0)
    bottom = -_round_up(-low) if low < 0 else 0.0
    left, across = 14.0, _WIDTH - 14.0 - 58.0

    def place(value: float) -> float:
        return left + across * (scale * value - bottom) / (top - bottom)

    parts, y = [], 16.0
    for label, values in chart.rows:
        parts.append(_name(label, left - 6.0, y))
        for index, number in enumerate(values):
            is_last = index == len(values) - 1
            parts.append(_dot(chart, number, y + 12.0 + _LINE * index, place, _fullness(index, len(values)), is_last))
        y += 30.0 + _LINE * len(values)
    ticks = _ticks(bottom, top)
    lines = [f'<path d="M{_n(place(t / scale))} 4V{_n(y - 10)}" stroke="var(--line)"/>' for t in ticks]
    parts += [f'<text x="{_n(place(t / scale))}" y="{_n(y + 4)}" text-anchor="middle">{t:g}</text>' for t in ticks]
    y += 23.0
    parts.append(f'<text x="{_n(left + across / 2)}" y="{_n(y)}" text-anchor="middle">{escape(chart.x_label)}</text>')
    for index, name in enumerate(chart.names if len(chart.names) > 1 else ()):
        y += 20.0
        parts.append(_marker(0, left + 2.0, y - 4.0, _fullness(index, len(chart.names))))
        parts.append(_name(name, left + 16.0, y))
    return "".join([*lines, *parts]), y + 10.0


def _dot(chart: Chart, number: Number, y: float, place: Place, fullness: float, is_told: bool) -> str:
    """Draw one value on its line; the last one of a row is told in figures too."""
    parts = []
    if number.low is not None and number.high is not None:
        parts.append(_whisker((place(number.low), y), (place(number.high), y), _hue(0)))
    parts.append(_marker(0, place(number.value), y, fullness))
    if is_told:
        parts.append(
            f'<text x="{_n(place(_highest(number)) + 9)}" y="{_n(y + 4.5)}">{chart.shown(number.value)}</text>'
        )
    return "".join(parts)


def _highest(number: Number) -> float:
    return number.value if number.high is None else number.high


def _lowest(number: Number) -> float:
    return number.value if number.low is None else number.low


def _fullness(index: int, count: int) -> float:
    """Return how full a marker is: hollow for the first of several values, full for the last."""
    return 1.0 if count == 1 else index / (count - 1)


def _whisker(start: Point, end: Point, colour: str) -> str:
    """Draw an interval: a thin line with a cap at either end."""
    across, down = (0.0, 3.5) if start[1] == end[1] else (3.5, 0.0)
    lines = [(start, end)] + [((x - across, y - down), (x + across, y + down)) for x, y in (start, end)]
    drawn = "".join(f"M{_n(a)} {_n(b)}L{_n(c)} {_n(d)}" for (a, b), (c, d) in lines)
    return f'<path d="{drawn}" stroke="{colour}" stroke-width="1.3" fill="none"/>'


def _marker(hue: int, x: float, y: float, fullness: float = 1.0) -> str:
    """Draw a marker whose shape goes with its colour; where it is not full, the ground shines through."""
    near, far = _n(_MARKER), _n(2 * _MARKER)
    paths = (
        f"m-{near} 0a{near} {near} 0 1 0 {far} 0a{near} {near} 0 1 0 -{far} 0z",
        f"m-{near} -{near}h{far}v{far}h-{far}z",
        f"m0 -{near}l{near} {far}h-{far}z",
        f"m0 -{near}l{near} {near}l-{near} {near}l-{near} -{near}z",
    )
    path, colour = f"M{_n(x)} {_n(y)}{paths[hue % len(paths)]}", _hue(hue)
    ground = f'<path d="{path}" fill="var(--ground)"/>' if fullness < 1 else ""
    return (
        f'{ground}<path d="{path}" fill="{colour}" fill-opacity="{_n(fullness)}" stroke="{colour}" stroke-width="1.5"/>'
    )


def _hue(index: int) -> str:
    return f"var(--hue-{index % _HUES})"


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two ends."""
    span = (high - low) or 1.0
    rough = span / 5.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= rough)
    count = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [round(step * index, 10) for index in count]


def _round_up(value: float) -> float:
    """Return a round number a little above `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0) if power * factor >= value)


def _n(value: float) -> str:
    """Write a coordinate shortly."""
    return f"{value:.1f}".removesuffix(".0")
