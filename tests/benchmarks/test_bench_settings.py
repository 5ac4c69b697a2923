"""Which settings decide an evaluation: those of the evaluation, each of them, and none of the training's."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.cells import EVALUATED, decides_evaluation, decides_training, key_of  # noqa: E402
from bench_samples import METHODS, PLAN, other_value  # noqa: E402
from games_samples import write_plan  # noqa: E402

from metarl_agents.cli import coerce, read_yaml, settings  # noqa: E402
from metarl_agents.config import Config  # noqa: E402
from metarl_agents.errors import ConfigError  # noqa: E402
from metarl_agents.training import warm_start  # noqa: E402


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
    old = "num_episodes: 3, group_size: 2"
    new = "num_episodes: 1, group_size: 6" if name == "num_episodes" else f"{old}, {written(name, tmp_path)}"
    changed = evaluation_of(write_plan(tmp_path / "other", PLAN, with_changes(old, new)))
    before = evaluation_of(plan)
    idle = ("eval_tasks", "eval_samples")  # they decide nothing that a training keeps
    assert changed.train.config != before.train.config and (changed.train.key != before.train.key or name in idle)
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
    methods = METHODS.replace("group_size: 2}", "group_size: 2, use_peft: true, lora_r: 4, model_name_or_path: a/b}")
    model = evaluation_of(write_plan(tmp_path / "other", PLAN, methods)).config.model
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
