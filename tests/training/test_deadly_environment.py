"""A run goes on although its environment kills the worker processes it lives in."""

import os
from functools import partial

import pytest
from deadly_worlds import Trapdoor
from training_helpers import metrics_of, read_lines, run_training


@pytest.mark.slow
def test_a_run_ends_and_counts_the_trials_of_workers_that_died(tmp_path):
    result = run_training(
        tmp_path / "run",
        partial(Trapdoor, os.getpid()),
        env_workers=2,
        max_steps=2,
        tasks_per_step=3,
        group_size=2,
        eval_tasks=3,
        eval_validation_tasks=3,
        eval_steps=1,
    )
    assert result.steps == 2 and not result.interrupted
    records = read_lines(result.output_dir / "trajectories" / "train.jsonl")
    died = [record for record in records if record["error"]]
    assert died and all("died (exit code 5)" in r["error"] or "lived in has ended" in r["error"] for r in died)
    steps = metrics_of(result.output_dir)
    assert sum(m["env/failure_rate"] for m in steps.values()) == pytest.approx(len(died) / 6)
    # One of the three test tasks kills; at least its own trial is counted as crashed, before and after.
    for found in (result.before, result.after):
        assert found.num_tasks == 3 and any("died (exit code 5)" in crash["error"] for crash in found.crashed)
    assert set(metrics_of(result.output_dir, "eval")) == {1, 2}
    assert (result.output_dir / "model.safetensors").is_file()
