"""Which settings decide an evaluation: those of the evaluation, each of them, and none of the training's.

When a setting matters beside the others is held against the code in `test_bench_deciding.py`.
"""

import sys
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.cells import EVALUATED, decides_evaluation, decides_training, key_of  # noqa: E402
from bench_samples import METHODS, PLAN, other_value  # noqa: E402
from games_samples import write_plan  # noqa: E402

from metarl_agents.cli import coerce, read_yaml, settings  # noqa: E402
from metarl_agents.config import Config  # noqa: E402
from metarl_agents.envs import Environment  # noqa: E402
from metarl_agents.errors import ConfigError  # noqa: E402
from metarl_agents.evaluation.evaluate import evaluate  # noqa: E402
from metarl_agents.evaluation.results import table_notes  # noqa: E402
from metarl_agents.training import warm_start  # noqa: E402
from metarl_agents.types import StepResult  # noqa: E402


def evaluation_of(plan, row="meta"):
    return next(job for job in plan.jobs_wanted() if job.kind == "evaluate" and f"main/{row}" in job.name)


WRITTEN = {
    "env": "env: two_doors, env_kwargs: {}",
    "env_kwargs": "env_kwargs: {size: 4, mines: 3}",
    "memory": "memory: both",
    "num_episodes": "num_episodes: 1",
    "opponents": "opponents: [cycle]",
}
"""Settings as a plan may write them, where another value than the plan's would not fit or not be read."""
PRESET = Config.from_flat(coerce(read_yaml(ROOT / "recipes/configs/minesweeper/tiny.yaml"))).flat()


def written(name, folder):
    """Return a setting with another value than the plan's, as a plan writes it."""
    if name == "tasks":
        (folder / "tasks.jsonl").write_text('{"seed": 1}\n')
        return f"tasks: {folder / 'tasks.jsonl'}"
    value = other_value(*settings()[name], PRESET[name])
    return WRITTEN.get(name, f"{name}: {str(value).lower() if isinstance(value, bool) else value}")


def with_changes(old, new):
    assert METHODS.count(old) == 1
    return METHODS.replace(old, new)


@pytest.mark.parametrize("name", EVALUATED)
def test_how_a_row_is_trained_does_not_reach_its_evaluation(plan, tmp_path, name):
    if name == "num_episodes":
        texts = PLAN, with_changes("num_episodes: 3, group_size: 2", "num_episodes: 1, group_size: 6")
    else:  # of all rows, which a table asks to be trained alike
        texts = PLAN.replace("tasks_per_step: 2}", f"tasks_per_step: 2, {written(name, tmp_path)}}}"), METHODS
    changed = evaluation_of(write_plan(tmp_path / "other", *texts))
    before = evaluation_of(plan)
    assert changed.train.config.flat()[name] != before.train.config.flat()[name]
    assert changed.decides["settings"] == before.decides["settings"]
    flat, wanted = changed.config.flat(), before.config.flat()
    assert {name: flat[name] for name in EVALUATED} == {name: wanted[name] for name in EVALUATED}


@pytest.mark.parametrize("name", EVALUATED)
def test_a_row_that_is_evaluated_otherwise_is_refused_by_the_name_of_the_setting(tmp_path, name):
    old = "{label: base, evaluate: {memory: none"
    new = old.replace(
        "memory: none", written(name, tmp_path) if name == "memory" else f"memory: none, {written(name, tmp_path)}"
    )
    methods = with_changes(old, new)
    if name in ("memory", "eval_samples"):
        assert write_plan(tmp_path / "other", PLAN, methods)
    else:
        with pytest.raises(ConfigError, match=f"not evaluated alike: .*`{name}`.* differ"):
            write_plan(tmp_path / "other", PLAN, methods)


def test_a_trained_model_is_loaded_as_it_was_trained(tmp_path):
    text = PLAN.replace("tasks_per_step: 2}", "tasks_per_step: 2, use_peft: true, lora_r: 4, model_name_or_path: a/b}")
    model = evaluation_of(write_plan(tmp_path / "other", text, METHODS)).config.model
    assert (model.use_peft, model.lora_r, model.model_name_or_path) == (True, 4, "a/b")


@pytest.mark.parametrize("train_key", [None, "0" * 64])
def test_an_evaluation_is_stale_when_a_setting_changes_that_decides_it_and_only_then(plan, train_key):
    flat = evaluation_of(plan, "base").config.flat()

    def key(**changes):
        config = Config.from_flat(flat | changes)
        return key_of(decides_evaluation(config, agent="policy", split="test", train_key=train_key))

    deciding = {*EVALUATED, *(() if train_key else ("model_name_or_path", "gguf_file"))}
    wrong = []
    for name, (kind, item) in settings().items():
        if name in ("env", "tasks"):  # both must name something that is there
            continue
        if (key(**{name: other_value(kind, item, flat[name])}) != key()) != (name in deciding):
            wrong.append(name)
    assert wrong == []


def test_which_file_of_a_folder_is_loaded_decides(plan, tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(name.encode())
    job = evaluation_of(plan, "base")
    keys = set()
    for name in ("a.gguf", "b.gguf"):
        model = replace(job.config.model, model_name_or_path=str(tmp_path), gguf_file=name)
        config = replace(job.config, model=model)
        keys |= {
            key_of(decides_evaluation(config, agent="policy", split="test", train_key=None)),
            key_of(decides_training(config)),
        }
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ON_THE_FLY_TRIALS", 7),
        ("ON_THE_FLY_SIZE", {"layers": 9, "hidden": 64}),
        ("ON_THE_FLY", replace(warm_start.ON_THE_FLY, steps=7)),
        ("VOCABULARY_TRIALS", 7),
    ],
)
def test_how_a_model_is_taught_decides_where_it_is_made_on_the_spot_and_nowhere_else(plan, monkeypatch, name, value):
    def keys(**changes):
        config = Config.from_flat(evaluation_of(plan, "base").config.flat() | changes)
        trained = key_of(decides_training(config))
        return {trained, key_of(decides_evaluation(config, agent="policy", split="test", train_key=None))}

    on_the_spot, shipped = keys(env="two_doors", env_kwargs={}), keys()
    monkeypatch.setattr(warm_start, name, value)
    assert not keys(env="two_doors", env_kwargs={}) & on_the_spot
    assert keys() == shipped


class Lottery(Environment):
    """Whatever is said is a ticket; about one of three wins."""

    def describe(self):
        return "Say anything."

    def reset(self, *, seed):
        self.seed = seed
        return "Well?", {}

    def parse_action(self, text):
        return text

    def step(self, action):
        return StepResult("So be it.", 0.0, True, False, {"success": crc32(f"{self.seed} {action}".encode()) % 3 == 0})


def test_training_at_another_temperature_changes_nothing_in_an_evaluation_and_its_own_temperature_does(tiny_policy):
    def found(**changes):
        config = Config.from_flat({"memory": "none", "max_new_tokens_per_turn": 3, "max_prompt_tokens": 300} | changes)
        return evaluate(tiny_policy, Lottery, config, num_tasks=24, samples=2)

    warm, cold = found(temperature=1.0), found(temperature=0.4, top_p=0.5, top_k=3, min_p=0.1, repetition_penalty=1.5)
    assert warm.solved_at == cold.solved_at and len({*warm.solved_at}) > 2, "what is equal must be able to differ"
    assert warm.first_episode_successes == cold.first_episode_successes
    assert warm.sampling == cold.sampling and warm.sampling.startswith("temperature 0.7, top_p 0.8, top_k 20,")
    assert f"sampling: {warm.sampling}" in table_notes([warm, cold])
    other = found(eval_temperature=0.4)
    assert other.sampling.startswith("temperature 0.4,") and other.solved_at != warm.solved_at
