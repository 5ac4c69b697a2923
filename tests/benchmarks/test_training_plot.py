"""The picture of pass@k over training: nothing that explains it lies on anything else, however many panels there are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import plot_training  # noqa: E402

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("panels", [1, 2, 4, 8, 12])
def test_the_explanations_lie_below_all_panels_and_beside_each_other(panels, tmp_path, monkeypatch):
    pyplot, seen = plot_training.load_pyplot(), {}

    def look(figure):
        figure.canvas.draw()
        seen["legends"] = sorted((legend.get_window_extent() for legend in figure.legends), key=lambda box: box.y0)
        seen["panels"] = min(panel.get_tightbbox().y0 for panel in figure.axes if panel.get_visible())

    monkeypatch.setattr(pyplot, "close", look)
    points = {f"pass@{k}": {step: 0.2 * k for step in range(1, 30)} for k in (1, 2, 3)}
    run = {prefix: points for prefix in plot_training._PREFIXES}
    plot_training.draw({f"method {n}": [run, run] for n in range(panels)}, window=10, output=tmp_path / "picture.png")
    lower, upper = seen["legends"]
    assert lower.y0 >= 0 and lower.y1 <= upper.y0 + 2 and upper.y1 <= seen["panels"]
