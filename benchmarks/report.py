"""Write the report of a benchmark: one HTML page, the same content as Markdown, and the pictures of the latter.

    python benchmarks/report.py                       # from benchmarks/results/cpu/, into the same folder
    python benchmarks/report.py --preset smoke
    python benchmarks/report.py --readme README.md    # also the main tables, between the marks of the README
    python benchmarks/report.py --trajectories        # also a page of trials in each run folder, and links to it

Nothing is trained, evaluated or fetched: what has not been run is named as missing. The same cells give the same
files. The page loads nothing and has no script, so it can be sent as it is; the links to trajectories lead to the run
folders beside it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from report.charts import standalone
from report.model import Report
from report.page import render_page
from report.reading import VIEWER_PAGE, has_trajectories, read_report, run_folders
from report.readme import PRESET, between_marks, render_lines, rewrite_readme
from report.text import picture_name, render_text

from metarl_agents.errors import ConfigError
from metarl_agents.tracking.viewer import write_page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE, TEXT, PICTURES = "report.html", "report.md", "pictures"
README = ROOT / "README.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default=PRESET, help=f"whose cells: smoke, cpu or gpu [{PRESET}]")
    parser.add_argument("--summary", metavar="FILE.json", help="read this summary instead of the preset's cells")
    parser.add_argument("--output", metavar="FOLDER", help="where to [benchmarks/results/<preset>]")
    parser.add_argument("--readme", metavar="FILE.md", help="also put the main tables between the marks of this file")
    parser.add_argument("--trajectories", action="store_true", help="also write the page of trials of each run")
    chosen = parser.parse_args(arguments)
    folder = Path(chosen.output) if chosen.output else RESULTS / chosen.preset
    try:
        if chosen.readme and chosen.preset != PRESET:
            raise ConfigError(f"a README shows the cells of the preset {PRESET}: leave `--preset {chosen.preset}` out.")
        summary = read_summary(chosen.summary, chosen.preset)
        if chosen.trajectories:
            write_viewer_pages(summary)
        report = read_report(summary, root=ROOT, page_folder=folder)
        written = write_report(report, folder)
        if chosen.readme:
            rewrite_readme(Path(chosen.readme), readme_lines(summary, folder, Path(chosen.readme)))
            written.append(Path(chosen.readme))
    except (ConfigError, OSError) as error:
        parser.error(str(error))
    print("\n".join(f"wrote {path}" for path in written))
    if not (chosen.readme or chosen.summary or chosen.output or chosen.preset != PRESET) and is_stale(summary, README):
        print(f"{README.name} shows other numbers than these cells give: `make report README=1` rewrites them")
    return 0


def read_summary(file: str | None, preset: str) -> dict[str, Any]:
    """Return what was computed of the cells: from a file, or now.

    Raises:
        ConfigError: the file cannot be read.
    """
    if file is None:
        from bench.summary import summarize

        return summarize(preset)
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the summary {file} ({error}): write it with `--table --json FILE`.") from None


def readme_lines(summary: dict[str, Any], folder: Path, readme: Path) -> str:
    """Return what a README shows of a summary, with the way to the full report in `folder`."""
    details = os.path.relpath((folder / TEXT).resolve(), readme.resolve().parent).replace(os.sep, "/")
    return render_lines(summary, details=quote(details))


def is_stale(summary: dict[str, Any], readme: Path) -> bool:
    """Whether a README has marks, and between them something else than the summary gives."""
    shown = between_marks(readme.read_text(encoding="utf-8")) if readme.is_file() else None
    return shown is not None and shown != readme_lines(summary, RESULTS / PRESET, readme)


def write_viewer_pages(summary: dict[str, Any]) -> None:
    """Write the page of trials into each run folder that holds some and has no page yet."""
    for run in run_folders(summary):
        if not (ROOT / run / VIEWER_PAGE).is_file() and has_trajectories(ROOT / run):
            write_page(ROOT / run)


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write page, Markdown and pictures, and return where they lie; pictures of an earlier report are removed."""
    pictures = folder / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    for block in (*report.main, *report.ablations):
        for number, chart in enumerate(block.charts):
            text = standalone(chart, "chart")  # a document of its own, and the same whatever blocks stand before it
            (pictures / picture_name(block, number)).write_text(text, encoding="utf-8")
    texts = {PAGE: render_page(report), TEXT: render_text(report, pictures=PICTURES)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
    return [folder / name for name in texts]


if __name__ == "__main__":
    raise SystemExit(main())
