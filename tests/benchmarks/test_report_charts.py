"""The pictures of a report lie where their values are, and each training is drawn once."""

import re
from xml.etree import ElementTree

import pytest
from report_samples import charts, curves, model, report_of, row, summary


def test_a_training_that_rows_share_is_drawn_once_under_the_name_of_the_reference():
    shared = [curves(0), curves(1)]
    rows = [
        row("lamer_none", curves=shared, models=["a", "b"]),
        row("gigpo", curves=[curves(0, 0.4)], models=["c"]),
        row("lamer", curves=shared, models=["a", "b"]),
    ]
    drawn = [chart for chart in report_of(summary(rows)).blocks[0].charts if chart.kind == "lines"]
    assert [chart.title for chart in drawn] == ["pass@1 over training", "pass@3 over training"]
    lines = [series for series in drawn[1].series if not series.dots]
    assert [series.name for series in lines] == ["Method lamer", "Method gigpo"]
    steps, values = zip(*lines[0].points, strict=True)
    assert steps == tuple(range(1, 21)) and values[0] == pytest.approx(22.5)  # the mean of both seeds, in percent
    assert lines[0].band[0] == pytest.approx((22.0, 23.0)) and lines[1].band == ()
    dots = [series for series in drawn[1].series if series.dots]
    assert dots[0].points == ((10, pytest.approx(51.0)), (20, pytest.approx(60.0))) and dots[0].hue == lines[0].hue


def test_two_trainings_that_happened_to_go_alike_are_both_drawn():
    rows = [row("ppo", curves=[curves(0)], models=["a"]), row("lamer", curves=[curves(0)], models=["b"])]
    drawn = [chart for chart in report_of(summary(rows)).blocks[0].charts if chart.kind == "lines"]
    assert {series.name for series in drawn[0].series} == {"Method ppo", "Method lamer"}


def test_many_trainings_are_drawn_without_bands():
    rows = [row(name, curves=[curves(0, 0.3 + i / 20), curves(1, 0.5)]) for i, name in enumerate("abcdef")]
    series = [s for chart in report_of(summary(rows)).blocks[0].charts if chart.kind == "lines" for s in chart.series]
    assert len(series) == 12 and not any(one.band or one.dots for one in series)


def places(drawn):
    """Where markers lie, in the order drawn."""
    found = re.findall(r'<path d="M([\d.]+) ([\d.]+)m[^"]*" fill="var\(--hue', drawn)
    return [(float(x), float(y)) for x, y in found]


def test_dots_lie_where_their_values_are():
    numbers = (model.Number(0.1), model.Number(0.2), model.Number(0.4, 0.3, 0.5))
    chart = model.Chart("dots", "t", "c", rows=(("a", numbers),), names=("one", "two", "three"))
    (x1, _), (x2, _), (x3, _) = places(charts.draw(chart, "c"))[:3]
    assert (x3 - x2) / (x2 - x1) == pytest.approx(2.0, abs=0.02)
    assert ">40.0 %<" in charts.draw(chart, "c")


def test_every_part_of_a_chart_lies_inside_it():
    series = (
        model.Series("a", ((0, 3.0), (50, 99.0)), ((1.0, 5.0), (90.0, 100.0))),
        model.Series("b", ((0, 0.0),), dots=True, hue=1),
    )
    flat = model.Chart("lines", "t", "c", series=(model.Series("one point", ((7, 0.0),)),))
    dots = model.Chart("dots", "t", "c", rows=(("a", (model.Number(1.0, 0.9, 1.0),)), ("none", ())), names=("x", "y"))
    for chart in (
        model.Chart("lines", "t", "c", series=series),
        flat,
        dots,
        model.Chart("lines", "t", "c"),
        model.Chart("dots", "t", "c"),
    ):
        root = ElementTree.fromstring(charts.draw(chart, "c"))
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        assert "nan" not in charts.draw(chart, "c")
        for element in root.iter():
            x, y = float(element.get("x", 0)), float(element.get("y", 0))
            assert 0 <= x <= width and 0 <= y <= height
        for points in [element.get("points") for element in root.iter() if element.get("points")]:
            for x, y in (pair.split(",") for pair in points.split()):
                assert 0 <= float(x) <= width and 0 <= float(y) <= height


def test_colours_are_defined_for_both_grounds():
    used = {name for hue in range(12) for name in re.findall(r"--hue-\d", charts._hue(hue))}
    for name in used:
        assert charts.STYLE.count(f"{name}:") == 3  # light, dark, print
