"""One process of the comparison: `python -m side_by_side.child <job.json>`, started by `benchmarks/speed.py`."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from side_by_side.job import Job

MODULES = {
    "ours": "side_by_side.ours",
    "lockstep": "side_by_side.lockstep",
    "trl": "side_by_side.trl_grpo",
    "trl_continuous": "side_by_side.trl_grpo",
    "environments": "side_by_side.environments",
    "prepare": "side_by_side.prepare",
    "request": "side_by_side.request",
    "waiting": "side_by_side.waiting",
}


def run(job: Job) -> dict[str, Any]:
    """Do the job and return what it found."""
    # A contender's own start-up counts, so nothing is imported that it does not need.
    return importlib.import_module(MODULES[job.kind]).measure(job)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", category=FutureWarning)
    given = Job.read(Path(sys.argv[1]))
    Path(given.output).write_text(json.dumps(run(given), default=str), encoding="utf-8")
