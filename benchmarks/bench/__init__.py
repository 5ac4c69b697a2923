"""The parts of `benchmarks/run.py`: plans, cells, the work on a cell, the runner, tables and figures.

Read first: `cells.py` (what is stored, and what decides a result), then `plan.py` (which cells a table needs), then
`summary.py` (what the cells say; of games, `games.py`, and which number leads a table, `measures.py`).
"""
