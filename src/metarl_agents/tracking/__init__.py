"""The notebook: trials become numbers, files and a page to read. Nothing here influences training.

Read first: `metrics.py` (trials to sums and counts), then `writers.py` (what a run leaves behind). The two
commands are `python -m metarl_agents.tracking.viewer RUN` and `python -m metarl_agents.tracking.export RUN`.
"""

from metarl_agents.tracking.metrics import combine, finish, group_statistics, summarize
from metarl_agents.tracking.records import read_records, trial_record, write_records
from metarl_agents.tracking.writers import RunLogger

__all__ = [
    "RunLogger",
    "combine",
    "finish",
    "group_statistics",
    "read_records",
    "summarize",
    "trial_record",
    "write_records",
]
