"""evaluate(): no task is played twice, and what is asked beside the trials never ends an evaluation."""

from functools import partial
from types import SimpleNamespace

import pytest
from evaluation_worlds import COUNTS, Plain, Rows

from metarl_agents.config import Config
from metarl_agents.envs.splits import SEEDS_PER_SPLIT
from metarl_agents.envs.workers import WorkerPool
from metarl_agents.evaluation.evaluate import evaluate, turns_needed, winnable_share
from metarl_agents.types import Episode, Trial, Turn

FIRST = 2 * SEEDS_PER_SPLIT
SMALL = {"num_episodes": 1, "max_turns": 1, "max_new_tokens_per_turn": 3, "max_prompt_tokens": 200}


@pytest.fixture(autouse=True)
def fresh_counts():
    COUNTS.clear()


@pytest.fixture
def examine(tiny_policy):
    def run(make_env, num_tasks=20, *, settings=None, **options):
        config = Config.from_flat(SMALL | (settings or {}))
        return evaluate(tiny_policy, make_env, config, num_tasks=num_tasks, **options)

    return run


def trials_of(seeds, crashed=()):
    return [Trial(seed, 0, [Episode("start")], error="OSError: gone" if seed in crashed else None) for seed in seeds]


# ---- how many tasks there are --------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["test", "validation"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_environment_with_fewer_tasks_gives_each_once_and_the_result_says_so(examine, split, workers):
    result = examine(partial(Rows, tasks=7), 512, split=split, settings={"env_workers": workers})
    assert result.num_tasks == 7 and len({seed % 7 for seed in result.task_seeds}) == 7
    assert result.meta["fewer_tasks"] == (
        f"there are 7 different {split} tasks, so no more were played (512 were asked for)"
    )
    assert "\n" not in result.meta["fewer_tasks"]


@pytest.mark.parametrize("tasks", [7, 12, None, 0, -3, "many", 2.5, OSError("gone"), SystemExit(3)])
def test_only_a_smaller_number_of_tasks_bounds_an_evaluation(examine, tasks):
    result = examine(partial(Rows, tasks=tasks), 7)
    assert result.num_tasks == 7 and "fewer_tasks" not in result.meta


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_without_the_method_is_evaluated_as_before(examine, workers):
    result = examine(Plain, 9, settings={"env_workers": workers})
    assert result.num_tasks == 9 and not result.crashed
    assert result.winnable_share is None and set(result.meta) == {"model"}


def test_listed_tasks_are_played_once_each_and_not_bounded(examine):
    result = examine(partial(Rows, tasks=2), listed=[5, 3, 5, 9, 3])
    assert result.task_seeds == [5, 3, 9] and "fewer_tasks" not in result.meta
    assert examine(Rows, 2, listed=[5, 5, 3, 9]).task_seeds == [5, 3]


def test_processes_agree_on_the_tasks_although_one_does_not_learn_their_number(examine, monkeypatch):
    import accelerate.utils

    gathered = []

    def gather_object(rows):
        gathered.append(rows)
        # The other process failed to learn the number; of its trials, this test needs none.
        return [*rows, None] if len(gathered) == 1 else rows

    monkeypatch.setattr(accelerate.utils, "gather_object", gather_object)
    process = SimpleNamespace(process_index=0, num_processes=2)
    result = examine(partial(Rows, tasks=7), accelerator=process)
    assert gathered[0] == [7] and result.task_seeds == [FIRST, FIRST + 2, FIRST + 4, FIRST + 6]


# ---- what can be won ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_the_share_that_can_be_won_is_that_of_all_tasks_where_all_is_known(examine, workers):
    result = examine(Rows, settings={"env_workers": workers})
    assert result.winnable_share == 0.5 and "winnable_unknown" not in result.meta


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("fails", "crashed"), [("reset", 4), ("min_turns", 0), ("exit", 0), ("unknown", 0)])
def test_tasks_of_which_nothing_is_known_are_left_out_and_counted(examine, fails, crashed, workers):
    result = examine(partial(Rows, fails), settings={"env_workers": workers})
    assert len(result.crashed) == crashed and result.num_tasks == 20
    # Of the seeds 0 to 19 without 0, 5, 10 and 15, half are even and need one turn.
    assert result.winnable_share == 0.5 and result.meta["winnable_unknown"] == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_question_that_hangs_is_interrupted(examine, workers):
    settings = {"env_workers": workers, "env_timeout_s": 0.3}
    result = examine(partial(Rows, "hang"), 6, settings=settings)
    assert result.meta["winnable_unknown"] == 2 and result.winnable_share == 0.5 and not result.crashed


def test_an_environment_that_never_answers_is_not_asked_for_ever(examine):
    result = examine(partial(Rows, "always"), 40)
    assert result.winnable_share is None and "winnable_unknown" not in result.meta and COUNTS["min_turns"] == 9


def test_tasks_that_crashed_at_the_start_are_not_begun_again():
    played = trials_of([1, 2, 3], crashed=[2, 3])
    played[2].episodes[0].turns.append(Turn(None, "", (), None, None, "", 0.0))
    assert turns_needed(Rows, played, None) == [2.0, None, 2.0] and COUNTS["reset"] == 2


def test_workers_are_asked_and_not_this_process(tmp_path):
    log = tmp_path / "log"
    with WorkerPool(partial(Rows, log=log), 2, 30.0) as pool:
        assert turns_needed(pool, trials_of(range(5)), 30.0) == [1.0, 2.0, 1.0, 2.0, 1.0]
    assert log.read_text().count("asked") == 5 and not COUNTS


@pytest.mark.parametrize("fails", ["", "reset", "min_turns", "exit"])
def test_every_environment_that_is_built_is_closed(examine, fails):
    examine(partial(Rows, fails, tasks=6))
    assert COUNTS["built"] == COUNTS["closed"] > 6


def test_the_share_is_that_of_the_known_tasks():
    assert winnable_share([1.0, 3.0, None, float("inf")], 2) == (1 / 3, 1)
    assert winnable_share([1.0, 2.0], 2) == (1.0, 0)
    assert winnable_share([], 2) == winnable_share([None] * 3, 2) == (None, 0)
    assert winnable_share([1.0] + [None] * 9, 2) == (1.0, 9) and winnable_share([1.0] + [None] * 10, 2) == (None, 0)
