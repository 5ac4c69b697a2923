"""From trials to a result, to a file and back, and to the table people read."""

import json
import math
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult, format_table, wilson_interval
from metarl_agents.evaluation.layout import lay_out
from metarl_agents.types import Episode, Outcome, Phase, Response, Trial, Turn

WIN, LOSS, CRASH = Outcome.SUCCESS, Outcome.FAILURE, Outcome.CRASHED
FACTS = {
    "label": "LaMer",
    "env": "minesweeper",
    "env_kwargs": {"size": 6, "mines": 3},
    "num_episodes": 3,
    "max_turns": 12,
    "memory": "both",
    "sampling": "temperature 0.7, top_p 0.8, top_k 20",
    "split": "test",
}


def turn(action="up", phase=Phase.PLAY):
    return Turn(phase, "board", (1,) * 10, Response((1, 2), action), action, action, 0.0)


def trial(seed, *outcomes, actions=("up",), error=None):
    """A trial whose episodes take `actions`; a reflection stands between episodes. A turn is 12 tokens."""
    episodes = [Episode("start", [turn(action) for action in actions], "end", outcome) for outcome in outcomes]
    for episode in episodes[:-1]:
        episode.reflection = turn(phase=Phase.REFLECT)
    return Trial(seed=seed, group=seed, episodes=episodes, error=error)


def result(**changes):
    values = {"task_seeds": list(range(40)), "solved_at": [0] * 10 + [1] * 10 + [2] * 5 + [None] * 15}
    return EvaluationResult(**(FACTS | values | changes))


def test_outcomes_counts_and_tokens_come_from_the_trials():
    trials = [trial(4, WIN), trial(5, LOSS, WIN), trial(6, LOSS, LOSS, LOSS), trial(7, LOSS, CRASH, error="boom")]
    found = EvaluationResult.from_trials(trials, **FACTS, step=50)
    assert (found.task_seeds, found.solved_at) == ([4, 5, 6, 7], [0, 1, None, None])
    assert found.crashed == [{"seed": 7, "error": "boom"}]
    assert found.episode_counts == [(4, 1), (3, 1), (1, 0)]
    assert (found.episodes_played, found.tokens, found.step) == (8, (8 + 4) * 12, 50)
    assert [found.pass_at(k) for k in (1, 2, 3)] == [0.25, 0.5, 0.5]
    assert found.interval(2) == wilson_interval(2, 4)
    assert found.first_episode_successes is None and found.num_samples == 0


def test_what_was_solved_before_a_crash_stays_solved():
    found = EvaluationResult.from_trials([trial(1, WIN, CRASH, error="boom")], **FACTS)
    assert found.solved_at == [0] and len(found.crashed) == 1


def test_sampled_first_episodes_give_independent_pass_at_k_and_diversity():
    trials = [trial(1, WIN), trial(2, LOSS)]
    samples = [
        [trial(1, WIN), trial(1, LOSS, WIN)],
        [trial(2, LOSS, actions=("up", "left")), trial(2, LOSS, actions=("up",))],
    ]
    found = EvaluationResult.from_trials(trials, samples=samples, **FACTS)
    assert found.first_episode_successes == [[True, False], [False, False]]
    assert (found.independent(1), found.independent(2)) == (0.25, 0.5)
    assert (found.diversity_nats, found.diversity_normalised) == pytest.approx((math.log(2) / 2, 0.5))
    assert found.diversity_by_task == pytest.approx([0.0, math.log(2)])
    low, high = found.diversity_interval()
    assert low == 0.0 and high == pytest.approx(math.log(2)), "of two tasks, a resample may hold one twice"
    assert (found.episodes_played, found.tokens) == (2, 24)


def test_a_crashed_sample_counts_as_failed_is_listed_and_leaves_its_task_out_of_the_diversity():
    broken = Trial(seed=1, group=0, error="no board")
    samples = [[broken, trial(1, WIN)], [trial(2, LOSS, actions=("a",)), trial(2, LOSS, actions=("b",))]]
    found = EvaluationResult.from_trials([trial(1, WIN), trial(2, LOSS)], samples=samples, **FACTS)
    assert found.first_episode_successes[0] == [False, True]
    assert found.crashed == [{"seed": 1, "error": "no board"}]
    assert found.diversity_normalised == pytest.approx(1.0)
    assert found.diversity_by_task == [None, pytest.approx(math.log(2))]


def test_samples_of_other_tasks_are_refused():
    with pytest.raises(ConfigError, match="in the order of `trials`"):
        EvaluationResult.from_trials([trial(1, WIN)], samples=[[trial(2, WIN)]], **FACTS)


def test_impossible_outcomes_are_refused():
    with pytest.raises(ConfigError, match="`solved_at` has 1 entries, but there are 40 tasks"):
        result(solved_at=[0])
    with pytest.raises(ConfigError, match="the episode 3, but must lie between 0 and 2"):
        result(solved_at=[3] * 40)


def test_pass_at_k_beyond_what_was_played_is_refused():
    with pytest.raises(ConfigError, match="pass@4 cannot be measured with 3 episodes"):
        result().pass_at(4)
    with pytest.raises(ConfigError, match='"LaMer" was evaluated without independent first episodes'):
        result().independent(1)
    with pytest.raises(ConfigError, match="pass@3 cannot be measured with 2 samples"):
        result(first_episode_successes=[[True, False]] * 40).independent(3)


def test_metrics_for_the_log_keep_both_kinds_of_pass_at_k_apart():
    samples = [[True, False]] * 40
    found = result(first_episode_successes=samples, episode_counts=[(40, 10), (30, 10), (0, 0)], diversity_nats=0.5)
    metrics = found.metrics()
    assert [metrics[f"pass@{k}"] for k in (1, 2, 3)] == [0.25, 0.5, 0.625]
    assert (metrics["pass@1_independent"], metrics["pass@2_independent"]) == (0.5, 1.0)
    assert "pass@3_independent" not in metrics and "episode_2/success" not in metrics
    assert metrics["episode_1/success"] == pytest.approx(1 / 3) and metrics["diversity"] == 0.5


def test_a_result_survives_its_file(tmp_path):
    before = result(
        first_episode_successes=[[True, False]] * 40,
        episode_counts=[(40, 10), (30, 10), (20, 5)],
        crashed=[{"seed": 3, "error": "böse\nZeile"}],
        diversity_nats=0.1,
        winnable_share=0.971,
        seconds=1.5,
        step=100,
        meta={"model": "tiny"},
    )
    path = tmp_path / "eval" / "final.json"
    before.to_json(path)
    assert EvaluationResult.from_json(path) == before
    before.dated().to_json(path)
    after = EvaluationResult.from_json(path)
    assert datetime.fromisoformat(after.meta.pop("date")).utcoffset() == timedelta(0) and after == before
    assert [file.name for file in path.parent.iterdir()] == ["final.json"]


def test_numbers_of_numpy_stay_numbers_in_the_file(tmp_path):
    before = result(task_seeds=list(np.arange(40)), winnable_share=np.float64(0.5), meta={"folder": tmp_path})
    before.to_json(tmp_path / "r.json")
    after = EvaluationResult.from_json(tmp_path / "r.json")
    assert after.task_seeds == list(range(40)) and after.winnable_share == 0.5
    assert after.meta == {"folder": str(tmp_path)}


def test_other_files_and_versions_are_refused(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(ConfigError, match="cannot read the evaluation result .*r.json: No such file"):
        EvaluationResult.from_json(path)
    path.write_text('{"a": 1}')
    with pytest.raises(ConfigError, match="is not an evaluation result"):
        EvaluationResult.from_json(path)
    result().to_json(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 2}))
    with pytest.raises(ConfigError, match="of version 2"):
        EvaluationResult.from_json(path)


GOLDEN = """\
method      n             pass@1             pass@2             pass@3
----------------------------------------------------------------------
LaMer      40  25.0 [14.2, 40.2]  50.0 [35.2, 64.8]  62.5 [47.0, 75.8]
zero-shot  40    5.0 [1.4, 16.5]                  -                  -

method         indep. pass@1        indep. pass@2    diversity
--------------------------------------------------------------
LaMer      50.0 [50.0, 50.0]  100.0 [91.2, 100.0]  0.35 (50 %)
zero-shot                  -                    -            -

pass@k: percent of tasks solved within the first k episodes of one trial, Wilson 95 % interval
LaMer: minesweeper (size 6, mines 3), test tasks, episodes of a trial: 3, max_turns: 12
zero-shot: minesweeper (size 6, mines 3), test tasks, episodes of a trial: 1, max_turns: 12
LaMer: memory: both
zero-shot: memory: none
sampling: temperature 0.7, top_p 0.8, top_k 20
tasks that can be won within 12 turns at all: 97.1 %
LaMer: indep. pass@k: percent solved by one of k unconnected first episodes, from 2 a task;
  diversity: their entropy in nats (share of the largest)
zero-shot: crashed episodes, counted as failed: 6 (seed 0: TimeoutError: 60 s; seed 1: TimeoutError:
  60 s; seed 2: TimeoutError: 60 s; seed 3: TimeoutError: 60 s; seed 4: TimeoutError: 60 s; 1 more)"""


def two_results():
    ours = result(
        first_episode_successes=[[True, False]] * 40,
        diversity_nats=0.3466,
        diversity_normalised=0.5,
        winnable_share=0.971,
    )
    crashed = [{"seed": seed, "error": "TimeoutError:\n60 s"} for seed in range(6)]
    zero = result(
        label="zero-shot", memory="none", num_episodes=1, solved_at=[0, 0] + [None] * 38, crashed=crashed,
        winnable_share=0.971,
    )  # fmt: skip
    return [ours, zero]


def test_the_table_reads_as_agreed():
    assert format_table(two_results()) == GOLDEN


def test_the_table_fits_its_width_and_loses_no_column():
    for width in (60, 80, 100):
        text = format_table(two_results(), width=width)
        assert max(map(len, text.splitlines())) <= width
        titles = ["  n", "pass@1", "pass@2", "pass@3", "indep. pass@1", "indep. pass@2", "diversity"]
        assert all(title in text for title in titles)


def test_markdown_is_one_pipe_table_with_the_notes_as_a_list():
    lines = format_table([replace(two_results()[0], label="a|b")], markdown=True).splitlines()
    assert lines[0].split("|")[1].strip() == "method" and lines[0].count("|") == 9
    assert lines[1].startswith("|---") and set(lines[1]) == set("|-:")
    assert lines[2].startswith("| a\\|b") and "25.0 [14.2, 40.2]" in lines[2]
    assert len({len(line) for line in lines[:3]}) == 1
    assert lines[3] == "" and all(line.startswith("* ") for line in lines[4:])


def test_few_tasks_are_called_too_few():
    few = result(task_seeds=list(range(12)), solved_at=[0] * 12)
    assert "n too small: 12 tasks cannot tell methods apart" in format_table([few])
    assert "n too small" not in format_table([result()])


def test_no_results_make_no_table():
    assert format_table([]) == "no results"


def test_a_column_wider_than_the_line_still_appears():
    assert lay_out(["a", "b"], [["x" * 30, "y" * 30]], markdown=False, width=20).count("y" * 30) == 1
