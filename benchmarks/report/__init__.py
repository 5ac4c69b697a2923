"""The report of a benchmark: cell files in, one HTML page and the same content as Markdown out.

Read `model.py` first (what a report is), then `reading.py` (from cell files to that), then `page.py` and `text.py`
(from that to HTML and Markdown) with `charts.py` (pictures as SVG). `readme.py` makes the few lines that a README
shows. `benchmarks/report.py` is the command.
"""
