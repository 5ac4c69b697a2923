"""`recipes/evaluate.py` in two processes says what it says in one."""

import json

import pytest
from launches import launch, needs_deepspeed

from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model, build_tokenizer

FLAGS = ["--env", "two_doors", "--eval_tasks", "7", "--eval_samples", "2", "--max_turns", "1", "--num_episodes", "2"]
GREEDY = ["--eval_temperature", "0", "--max_new_tokens_per_turn", "4"]


@pytest.fixture
def model(tmp_path):
    tokenizer = build_tokenizer()
    Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.slow
def test_two_processes_share_the_tasks_and_say_what_one_says(model, tmp_path):
    found = []
    for processes in (1, 2):
        output = tmp_path / f"{processes}.json"
        flags = ["--model_name_or_path", model, *FLAGS, *GREEDY, "--output", output]
        status, text = launch("cpu", "--num_processes", str(processes), "recipes/evaluate.py", *flags)
        assert status == 0 and text.count("Wilson") == 1, text[-3000:]
        found.append(json.loads(output.read_text()))
    for name in ("task_seeds", "solved_at", "first_episode_successes", "tokens"):
        assert found[0][name] == found[1][name]
    assert len(found[0]["solved_at"]) == 7


@needs_deepspeed
@pytest.mark.slow
def test_weights_that_the_launcher_shards_are_refused_in_one_sentence(model):
    status, text = launch("cpu_zero3", "recipes/evaluate.py", "--model_name_or_path", model, *FLAGS)
    assert status != 0 and text.count("ConfigError: evaluation keeps the whole model") == 1


LATE = """
import os, time
from metarl_agents.cli import run_cli
from metarl_agents.errors import ConfigError

def main():
    time.sleep(4 if os.environ["RANK"] == "0" else 0)
    raise ConfigError("both of us.")

run_cli(main)
"""


@pytest.mark.slow
def test_a_mistake_of_all_is_told_once_however_late_the_first_process_is(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    status, text = launch("cpu", "--num_processes", "2", tmp_path / "late.py")
    assert status != 0 and text.count("ConfigError: both of us.") == 1, text[-3000:]
