"""The benchmark's plans, cells and runner, with a trainer that costs nothing."""

import json
import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args, get_origin

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench import cells, work  # noqa: E402
from bench.adopt import Adopter  # noqa: E402
from bench.cells import Cell, decides_evaluation, decides_training, digest, key_of, pack, read_cells, unpack  # noqa: E402
from bench.plan import load_plan  # noqa: E402
from bench.runner import Runner  # noqa: E402
from bench.summary import summarize, summary  # noqa: E402
from bench.table import report  # noqa: E402
from bench.work import CellFailed, Interrupted, Workshop, evaluation_cell, failed  # noqa: E402

from metarl_agents.cli import settings  # noqa: E402
from metarl_agents.config import Config  # noqa: E402
from metarl_agents.errors import ConfigError  # noqa: E402
from metarl_agents.evaluation import EvaluationResult, paired_bootstrap  # noqa: E402
from metarl_agents.policy.sampling import Sampling  # noqa: E402
from metarl_agents.rollout.tasks import evaluation_seeds  # noqa: E402

METHODS = """
base: {label: base, evaluate: {memory: none}}
react: {label: ReAct, agent: react, evaluate: {memory: none}}
rl: {label: RL, train: {num_episodes: 1, group_size: 6}, evaluate: {memory: none}}
rl_memory: {label: RL with memory, train_as: rl, evaluate: {memory: reflection, eval_samples: 0}}
meta: {label: meta-RL, train: {num_episodes: 3, group_size: 2}, evaluate: {memory: reflection}}
"""
PLAN = """
title: test
jobs: 2
episodes_per_task: 6
train: {eval_tasks: 1, save_steps: 1}
evaluate: {num_episodes: 3, eval_tasks: 40, eval_samples: 4}
cost: {rl_step: 1, meta_step: 2, evaluation: 5}
blocks:
- name: main
  title: MineSweeper
  recipe: recipes/train_minesweeper.py
  config: recipes/configs/minesweeper/tiny.yaml
  seeds: [0, 1]
  train: {max_steps: 2, tasks_per_step: 2}
  rows: [base, react, rl, rl_memory, meta]
  reference: meta
  figures: [training, gain, diversity]
- name: sweep
  title: gamma_traj
  like: main
  kind: ablation
  seeds: [0]
  rows: [meta]
  reference: "meta:0.9"
  vary: {name: gamma_traj, variants: {"0": {train: {gamma_traj: 0}}, "0.9": {train: {gamma_traj: 0.9}}}}
  figures: [ablation]
"""


@pytest.fixture
def write_plan(tmp_path):
    """Write a plan as the preset `smoke` of a folder of its own, and load it."""

    def write(text=PLAN, methods=METHODS):
        folder = tmp_path / "plans"
        folder.mkdir(exist_ok=True)
        (folder / "methods.yaml").write_text(methods)
        (folder / "smoke.yaml").write_text(text)
        return load_plan("smoke", folder)

    return write


@pytest.fixture
def plan(write_plan):
    return write_plan()


class Trainer:
    """Makes cells at once: models are a folder with a file, outcomes follow from the row."""

    def __init__(self, solved, *, break_at=(), stop_at=()):
        self.solved, self.break_at, self.stop_at = solved, break_at, stop_at
        self.made = []

    def __call__(self, job, shop, trained):
        self.made.append(f"{job.kind} {job.name}")
        if any(text in self.made[-1] for text in self.stop_at):
            raise Interrupted
        if any(text in self.made[-1] for text in self.break_at):
            return failed(job, "ConfigError: <b>it</b> broke")
        return self.train(job, shop) if job.kind == "train" else self.evaluate(job, trained)

    def train(self, job, shop):
        folder = shop.folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(job.key)
        took = {"steps": 2, "episodes_allotted": 24, "episodes_used": 20, "tokens": 999, "seconds": 12.0}
        curves = {"train": {"pass@1": [[1, 0.1], [2, 0.2]]}, "eval": {"pass@1": [[2, 0.3]]}}
        training = took | {"weights": digest(folder), "curves": curves}
        return Cell("train", job.key, job.name, "finished", job.decides, job.seed, run=str(folder), training=training)

    def evaluate(self, job, trained):
        method = job.name.split("/")[1].split(":")[0]
        tasks = job.config.run.eval_tasks
        rate = self.solved[method] + (job.seed or 0)
        solved = [number % 3 if number < rate else None for number in range(tasks)]
        samples = job.config.run.eval_samples
        result = EvaluationResult(
            label="x", env="minesweeper", env_kwargs=dict(job.config.trial.env_kwargs), num_episodes=3, max_turns=12,
            memory=job.config.trial.memory, sampling=Sampling.for_evaluation(job.config).describe(), split="test",
            task_seeds=evaluation_seeds("test", tasks), solved_at=solved,
            first_episode_successes=[[number % 2 == 0] * samples for number in range(tasks)] if samples else None,
            diversity_nats=0.5 if samples else None, diversity_normalised=0.25 if samples else None,
        )  # fmt: skip
        return evaluation_cell(job, result, trained)


SOLVED = {"base": 8, "react": 3, "rl": 12, "rl_memory": 13, "meta": 37}


@pytest.fixture
def make(plan, tmp_path):
    """Make a runner of the plan with a trainer; everything lies in the test's own folder."""

    def build(trainer=None, **changes):
        trainer = trainer or Trainer(SOLVED)
        lines = []
        places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
        runner = Runner(changes.pop("plan", plan), work=trainer, say=lines.append, **places, **changes)
        runner.lines, runner.trainer = lines, trainer
        return runner

    return build


ALLOWED = {"dual_clip": (2.0, 4.0), "collective_timeout_s": (2.0, 3.0)}


def other_value(kind, item, value):
    """Return a value of a setting that is not the one it has."""
    if get_origin(kind) is not None and get_args(kind)[-1] is type(None):
        kind = get_args(kind)[0]
    if get_origin(kind) is not None and all(isinstance(choice, str) for choice in get_args(kind)):
        return next(choice for choice in get_args(kind) if choice != value)
    if kind is bool:
        return not value
    if kind in (int, float):
        return (value or 0) + 1 if kind is int else next(x for x in ALLOWED.get(item.name, (0.5, 0.25)) if x != value)
    return {"size": 4, "mines": 3} if item.name == "env_kwargs" else ["none"] if get_origin(kind) is list else "changed"


def test_a_training_cell_is_stale_when_any_setting_changes_but_the_idle_ones(plan):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    flat = job.config.flat()
    wrong = []
    for name, (kind, item) in settings().items():
        if name in ("env", "tasks"):  # both must name something that is there; see the next test
            continue
        changed = Config.from_flat(flat | {name: other_value(kind, item, flat[name])})
        moved = key_of(decides_training(changed)) != job.key
        if moved == (name in cells.IDLE):
            wrong.append(name)
    assert wrong == []


def test_the_contents_of_a_task_file_decide_and_its_environment_does(plan, tmp_path):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    (tmp_path / "tasks.jsonl").write_text('{"seed": 1}\n')
    flat = job.config.flat() | {"tasks": str(tmp_path / "tasks.jsonl")}
    first = key_of(decides_training(Config.from_flat(flat)))
    (tmp_path / "tasks.jsonl").write_text('{"seed": 22}\n')
    second = key_of(decides_training(Config.from_flat(flat)))
    third = key_of(decides_training(Config.from_flat(job.config.flat() | {"env": "two_doors", "env_kwargs": {}})))
    assert len({first, second, third, job.key}) == 4


def test_lists_of_settings_name_settings_that_exist():
    known = {item.name for part in fields(Config) for item in fields(part.default_factory)}
    assert known >= cells.IDLE and set(cells.EVALUATED) <= known and set(cells.ADDED_LATER) <= known


def test_a_setting_younger_than_the_cells_leaves_them_valid_at_its_neutral_value(plan, monkeypatch):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    monkeypatch.setattr(cells, "ADDED_LATER", {"step_weight": 1.0})
    assert "step_weight" not in decides_training(job.config)["settings"]
    changed = Config.from_flat(job.config.flat() | {"step_weight": 0.5})
    assert decides_training(changed)["settings"]["step_weight"] == 0.5


def test_cells_that_are_kept_are_still_wanted():
    for preset in ("cpu", "gpu"):
        wanted = {job.key for job in load_plan(preset).jobs_wanted()}
        stale = sorted(cell.name for key, cell in read_cells(preset).items() if key not in wanted)
        assert stale == [], (
            f"{stale[:3]} and others are of no use any more. A new setting that keeps old runs as they were belongs into "
            "`ADDED_LATER` of benchmarks/bench/cells.py; where results do change, delete the cells."
        )


def test_evaluation_does_not_know_the_training_temperature(plan):
    job = next(job for job in plan.jobs_wanted() if job.name == "main/base")
    keys = set()
    for temperature in (1.0, 0.4):
        config = Config.from_flat(job.config.flat() | {"temperature": temperature, "top_p": 0.9})
        keys.add(key_of(decides_evaluation(config, agent="policy", split="test", train_key=None)))
    assert keys == {job.key}
    colder = Config.from_flat(job.config.flat() | {"eval_temperature": 0.1})
    assert key_of(decides_evaluation(colder, agent="policy", split="test", train_key=None)) != job.key


def test_where_a_model_lies_does_not_matter_but_every_byte_of_it_does(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"weights")
        (tmp_path / name / "config.json").write_text("{}")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").write_bytes(b"weighty")
    assert digest(tmp_path / "a") != digest(tmp_path / "b")


def test_a_new_version_of_the_code_makes_cells_stale(plan, monkeypatch):
    job = plan.jobs_wanted()[0]
    monkeypatch.setitem(cells.ENVIRONMENT_VERSIONS, "minesweeper", 2)
    assert key_of(decides_evaluation(job.config, agent="policy", split="test", train_key=None)) != job.key


def test_a_cell_comes_back_from_its_file_as_it_was_and_packing_loses_nothing(plan, tmp_path):
    job = plan.jobs_wanted()[0]
    cell = Trainer(SOLVED).evaluate(job, None)
    cell.write(tmp_path / "smoke")
    again = read_cells("smoke", tmp_path)[job.key]
    assert again == cell and again.evaluation() == cell.evaluation()
    result = replace(cell.evaluation(), task_seeds=[9, 3, 4, *range(100, 137)], episode_counts=[(40, 8)])
    assert unpack(pack(result), "x") == result
    # Found under another name before: one file for one key.
    replace(cell, name="other/name").write(tmp_path / "smoke")
    assert len(list((tmp_path / "smoke").glob("*.json"))) == 1


def test_a_damaged_cell_is_named(tmp_path):
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "train-x-0123.json").write_text("{")
    with pytest.raises(ConfigError, match="train-x-0123.json.*Delete it"):
        read_cells("smoke", tmp_path)


@pytest.mark.parametrize("preset", ["smoke", "cpu", "gpu"])
def test_shipped_plans_load_and_stay_within_their_time(preset):
    plan = load_plan(preset)
    # All of it: cells that come with the repository count as if they had to be made.
    assert plan.blocks and (plan.hours is None or plan.hours_needed() <= plan.hours)
    for block in plan.blocks:
        for row in block.rows:
            allotted = {
                j.train.config.trial.num_episodes * j.train.config.trial.group_size for j in row.jobs if j.train
            }
            assert allotted <= {plan.episodes_per_task}


def test_the_main_table_has_every_method_and_three_seeds():
    main = load_plan("cpu").blocks[0]
    assert {row.id for row in main.rows} >= {
        *("zero_shot", "react", "reflexion", "base", "base_memory", "ppo", "rloo", "grpo", "gigpo", "gigpo_memory"),
        *("lamer_trajectory", "lamer", "lamer_both", "mage"),
    }
    assert all(len(row.jobs) == 3 for row in main.rows if row.trained)
    assert [row.id for row in main.rows if not row.meaningful] == ["zero_shot", "react", "reflexion"]
    trained = {row.id: row.jobs[0].train.config for row in main.rows if row.trained}
    assert (trained["gigpo"].trial.num_episodes, trained["gigpo"].trial.group_size) == (1, 24)
    assert (trained["lamer"].trial.num_episodes, trained["lamer"].trial.group_size) == (3, 8)
    assert trained["mage"].credit.return_mode == "differential" and trained["ppo"].credit.advantages == "ppo"


def test_what_has_one_seed_says_so_and_only_some_tables_have_more():
    plan = load_plan("cpu")
    assert plan.hours == 6
    three = {job.train.key for row in plan.blocks[0].rows for job in row.jobs if job.train}
    for block, told in zip(plan.blocks[1:], summary(plan, {})["blocks"][1:], strict=True):
        trainings = {job.train.key for row in block.rows for job in row.jobs if job.train}
        if {len(row.jobs) for row in block.rows if row.trained} == {1}:
            assert any(note.startswith("one seed: ") for note in told["notes"]), block.name
        else:  # the runs that are there already, and what the first table has anyway
            assert block.name in ("minesweeper_6x6", "sokoban") or trainings <= three, block.name


def test_published_numbers_stand_beside_the_methods_that_have_them():
    blocks = {block.name: block for block in load_plan("gpu").blocks}
    assert "MAGE 77.3 %" in blocks["sokoban"].note and "MAGE 100 %" in blocks["webshop"].note
    assert "LaMer 97.7, 100, 90.2, 89.5 and 81.0, 50.2" in blocks["alfworld"].note
    cpu = {block.name: block for block in load_plan("cpu").blocks}
    assert cpu["alfworld_out_of_distribution"].note in blocks["alfworld"].note


def test_what_does_not_fit_a_cpu_is_in_the_plan_for_gpus():
    blocks = {block.name: block for block in load_plan("gpu").blocks}
    main = {job.key for row in blocks["minesweeper"].rows for job in row.jobs}
    for name in ("memory", "return_mode", "credit", "gamma_traj"):
        rows = blocks[name].rows
        reference = [row for row in rows if blocks[name].reference in (row.id, row.method)]
        assert len(rows) >= 3 and reference[0].jobs[0].key in main, name
    assert {row.variant for row in blocks["return_mode"].rows} == {
        *("paper", "recursive", "differential", "final", "single")
    }


def test_tables_share_the_cells_that_they_have_in_common(plan):
    wanted = plan.jobs_wanted()
    assert len({job.key for job in wanted}) == len(wanted)
    main, sweep = plan.blocks
    meta = next(row for row in main.rows if row.id == "meta")
    shared = next(row for row in sweep.rows if row.variant == "0.9")
    assert shared.jobs[0].key == meta.jobs[0].key
    rl, memory = (next(row for row in main.rows if row.id == name) for name in ("rl", "rl_memory"))
    assert [job.train.key for job in rl.jobs] == [job.train.key for job in memory.jobs]
    assert sum(job.kind == "train" for job in wanted) == 2 + 2 + 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("group_size: 2}", "group_size: 4}", "may play 12 episodes of a task in training, but .* at 6"),
        ("{label: base, evaluate: {", "{label: base, evaluate: {eval_temperature: 0.1, ", "not evaluated alike"),
        ("{label: base, evaluate: {", "{label: base, evaluate: {eval_tasks: 9, ", "not evaluated alike"),
        ("{label: base, evaluate: {", "{label: base, evaluate: {memori: none, ", "memori"),
        ("{label: base, ", "{lable: base, ", "`lable`"),
        ("base: {label", "bass: {label", "no method `base`"),
    ],
)
def test_a_table_of_unequal_chances_or_unknown_names_is_refused(write_plan, old, new, message):
    assert old in METHODS
    with pytest.raises(ConfigError, match=message):
        write_plan(methods=METHODS.replace(old, new))


def test_an_environment_without_its_recipe_is_left_out_with_the_reason(write_plan):
    plan = write_plan(
        PLAN.replace(
            "- name: sweep", "- {name: chess, title: x, like: main, recipe: recipes/train_chess.py}\n- name: sweep"
        )
    )
    assert [block.name for block in plan.blocks] == ["main", "sweep"]
    assert plan.skipped == ({"block": "chess", "reason": "recipes/train_chess.py is not there"},)


def test_a_pattern_names_blocks_and_rows_and_seeds_leave_the_base_model(plan):
    assert {job.name for job in plan.jobs_wanted("main/rl*", [1])} == {"main/rl/s1", "main/rl_memory/s1"}
    assert {job.name for job in plan.jobs_wanted("base")} == {"main/base"}
    assert {job.seed for job in plan.jobs_wanted("main", [0])} == {None, 0}
    with pytest.raises(ConfigError, match="its blocks are main, sweep"):
        plan.jobs_wanted("sokoban")


def test_every_cell_is_made_once_models_before_what_plays_them(make, plan):
    runner = make()
    wanted = plan.jobs_wanted()
    made = runner.run(wanted)
    assert len(made) == len(wanted) == len(set(runner.trainer.made)) and all(cell.finished for cell in made)
    place = {name: index for index, name in enumerate(runner.trainer.made)}
    assert place["train main/meta/s1"] < place["evaluate main/meta/s1"]
    again = make()
    assert again.due(wanted) == [] and again.run(wanted) == [] and again.trainer.made == []
    assert "left" in runner.lines[0] and any(line.startswith(f"[{len(wanted)}/{len(wanted)}]") for line in runner.lines)


def test_only_what_is_missing_is_made_again_with_its_model_where_that_is_gone(make, plan, tmp_path):
    make().run(plan.jobs_wanted())
    (tmp_path / "results/smoke").joinpath(
        next(path.name for path in (tmp_path / "results/smoke").glob("evaluate-main-rl-memory-s1-*"))
    ).unlink()
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["evaluate main/rl_memory/s1"]
    next((tmp_path / "results/smoke").glob("evaluate-main-meta-s0-*")).unlink()
    shutil.rmtree(next((tmp_path / "runs/smoke").glob("main-meta-s0-*")))
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["train main/meta/s0", "evaluate main/meta/s0"]


def test_a_failed_cell_is_reported_and_the_rest_goes_on(make, plan, tmp_path):
    runner = make(Trainer(SOLVED, break_at=["train main/rl/s1"]))
    made = runner.run(plan.jobs_wanted())
    assert [cell.name for cell in made if not cell.finished] == ["main/rl/s1"]
    assert "evaluate main/rl/s1" not in runner.trainer.made and "evaluate main/meta/s1" in runner.trainer.made
    found = summarize("smoke", results=tmp_path / "results", plan=plan)
    rows = {row["id"]: row for row in found["blocks"][0]["rows"]}
    assert rows["rl"]["state"] == "partial" and rows["rl"]["done"] == [0]
    assert rows["rl"]["problems"] == [
        {"cell": "main/rl/s1", "status": "failed", "reason": "ConfigError: <b>it</b> broke"}
    ]
    assert "FAILED main/rl/s1: ConfigError: <b>it</b> broke" in report(found)
    # The next time it is tried again.
    runner = make()
    runner.run(plan.jobs_wanted())
    assert runner.trainer.made == ["train main/rl/s1", "evaluate main/rl/s1", "evaluate main/rl_memory/s1"]
    assert not summarize("smoke", results=tmp_path / "results", plan=plan)["failed"]


def test_a_stopped_runner_keeps_what_is_finished_and_goes_on_there(make, plan):
    runner = make(Trainer(SOLVED, stop_at=["train main/meta/s0"]), jobs=1)
    with pytest.raises(KeyboardInterrupt):
        runner.run(plan.jobs_wanted())
    before = set(runner.trainer.made) - {"train main/meta/s0"}
    assert before and runner.shop.stopping
    again = make()
    again.run(plan.jobs_wanted())
    assert not before & set(again.trainer.made) and "train main/meta/s0" in again.trainer.made


def test_two_runners_of_one_preset_do_not_work_at_once(make, plan):
    outer = make()

    class Second(Trainer):
        def __call__(self, job, shop, trained):
            with pytest.raises(ConfigError, match="another process makes cells"):
                make().run(plan.jobs_wanted())
            return super().__call__(job, shop, trained)

    outer.work = Second(SOLVED)
    assert outer.run(plan.jobs_wanted("base"))


def test_the_summary_is_the_same_for_the_same_cells_and_plain_json(make, plan, tmp_path):
    make().run(plan.jobs_wanted())
    first, second = (summarize("smoke", results=tmp_path / "results", plan=plan) for _ in range(2))
    assert json.dumps(first) == json.dumps(second) and first["missing"] == first["failed"] == []
    rows = {row["id"]: row for row in first["blocks"][0]["rows"]}
    assert rows["meta"]["pass"]["3"]["share"] == (37 + 38) / 80 and rows["meta"]["n"] == 80
    shared = {"nats": 0.5, "share": 0.25, "interval": [0.5, 0.5]}
    assert rows["rl_memory"]["diversity"] == rows["rl"]["diversity"] == shared
    assert rows["base"]["training"] is None and rows["meta"]["training"]["episodes_used"] == 20
    assert all(entry["better"] == "meta" for entry in first["blocks"][0]["differences"])
    assert "react" not in {entry["than"] for entry in first["blocks"][0]["differences"]}


@pytest.mark.parametrize(
    ("solved", "tasks", "seeds", "best", "verdict"),
    [
        (SOLVED, 40, "[0, 1]", "meta", "leads at pass@3, significantly"),
        (SOLVED | {"meta": 14}, 40, "[0, 1]", None, "no winner"),
        (SOLVED, 40, "[0]", None, "with one seed"),
        (SOLVED | {"meta": 20}, 20, "[0, 1]", None, "n too small: 20 tasks"),
    ],
)
def test_a_winner_is_named_only_where_tasks_and_seeds_allow_it(write_plan, make, solved, tasks, seeds, best, verdict):
    solved = solved if tasks == 40 else {name: min(value, tasks - 1) for name, value in solved.items()}
    plan = write_plan(
        PLAN.replace("eval_tasks: 40", f"eval_tasks: {tasks}").replace("seeds: [0, 1]", f"seeds: {seeds}")
    )
    runner = make(Trainer(solved), plan=plan)
    runner.run(plan.jobs_wanted())
    block = summary(plan, runner.cells)["blocks"][0]
    assert verdict in block["verdict"] and [row["id"] for row in block["rows"] if row["best"]] == [best] * bool(best)


def test_a_table_can_be_printed_from_nothing_and_from_part_of_the_cells(make, plan):
    runner = make()
    empty = report(summary(plan, {}))
    assert "missing: main/base" in empty and "12 cells are missing" in empty.replace(str(len(plan.jobs_wanted())), "12")
    runner.run(plan.jobs_wanted("main/base"))
    text = report(summary(plan, runner.cells), markdown=True)
    assert "| base " in text and "ReAct (not meaningful)" in text and "the same sampling" in text


def test_figures_are_drawn_for_what_is_there(make, plan, tmp_path):
    pytest.importorskip("matplotlib")
    from bench.figures import draw_all

    runner = make()
    assert draw_all(summary(plan, {}), tmp_path / "pictures") == []
    runner.run(plan.jobs_wanted())
    made = draw_all(summary(plan, runner.cells), tmp_path / "pictures")
    names = ["main_training", "main_gain", "main_diversity", "sweep_ablation"]
    assert [path.stem for path in made] == names and all(path.stat().st_size > 5000 for path in made)


def test_two_models_that_found_the_same_are_two_rows_and_one_model_played_twice_is_one(make, plan, monkeypatch):
    pytest.importorskip("matplotlib")
    from bench import figures, table

    class Axes:
        def __getattr__(self, name):
            return lambda *given, **more: drawn.append(given[1]) if name == "barh" else None

    runner = make()
    runner.run(plan.jobs_wanted())
    main = summary(plan, runner.cells)["blocks"][0]
    assert len({json.dumps([row["independent"], row["diversity"]]) for row in main["rows"] if row["seeds"]}) == 1
    rows = table._sampled(main, ["1", "2", "3"])[1]
    assert [row[0] for row in rows] == ["base", "ReAct", "RL", "meta-RL"]
    assert [row[0] for row in table._training(main)[1]] == ["RL", "meta-RL"]
    drawn, told = [], []
    monkeypatch.setattr(figures, "_picture", lambda path, size, fill, **more: fill(Axes()))
    monkeypatch.setattr(figures, "draw", lambda methods, **more: told.extend(methods))
    figures.diversity(main, Path("unused"))
    figures.training(main, Path("unused"))
    assert drawn == [[0.5] * 3] and told == ["RL", "meta-RL"]


def test_every_number_of_a_table_has_its_interval(make, plan):
    from bench import table
    from bench.measures import PASS

    runner = make()
    runner.run(plan.jobs_wanted())
    main = summary(plan, runner.cells)["blocks"][0]
    ks = ["1", "2", "3"]
    for row in main["rows"]:
        cells = table._row(row, ks, PASS, markdown=True)[3:]
        assert len(cells) == 4 and all(cell.count("[") == cell.count(",") == 1 for cell in cells), cells
    for row, *cells in table._sampled(main, ks)[1]:
        # Of a single run nothing says how far its diversity reaches.
        assert all("[" in cell for cell in cells[: 4 if row in ("RL", "meta-RL") else 3]), (row, cells)


def test_a_command_that_fails_leaves_its_last_words(tmp_path):
    shop = Workshop(tmp_path)
    with pytest.raises(CellFailed, match="ConfigError: no such thing"):
        shop.call(["-c", "import sys; print('hello'); sys.exit('ConfigError: no such thing')"], tmp_path / "a.log")
    assert "hello" in (tmp_path / "a.log").read_text()


def test_a_stopped_shop_stops_its_processes_and_starts_none(tmp_path):
    import threading

    shop = Workshop(tmp_path)
    threading.Timer(1.0, shop.stop).start()
    with pytest.raises(Interrupted):
        shop.call(["-c", "import time; time.sleep(60)"], tmp_path / "a.log")
    with pytest.raises(Interrupted):
        shop.call(["-c", "print('too late')"], tmp_path / "b.log")


@pytest.fixture
def run_folder(plan, tmp_path):
    """Write the folder of a finished run as training leaves it."""

    def write(job, name="run", last=2, **settings):
        folder = tmp_path / name
        (folder / "eval").mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(job.config.flat() | settings))
        (folder / "config.json").write_text("{}")
        (folder / "versions.json").write_text(json.dumps({"device": "cpu", "versions": {"torch": "2"}}))
        lines = [{"step": 0, "prefix": "test", "metrics": {"pass@1": 0.5}}]
        for step in range(1, last + 1):
            metrics = {
                "pass@1": step / 10,
                "pass@3": None,
                "step_time": 1.5,
                "total_tokens": 100 * step,
                "total_episodes": 7 * step,
            }
            lines.append({"step": step, "prefix": "train", "metrics": metrics})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        start(job).to_json(folder / "eval" / "before.json")
        return folder

    return write


def start(job, **changes):
    trial = job.config.trial
    values = {
        "label": "before", "env": trial.env, "env_kwargs": dict(trial.env_kwargs), "num_episodes": 3, "max_turns": 12,
        "memory": "reflection", "sampling": "s", "split": "test", "task_seeds": [7, 8], "solved_at": [0, None], "step": 0,
    }  # fmt: skip
    return EvaluationResult(**(values | changes))


class OneResult(Workshop):
    """A workshop whose every evaluation finds the same."""

    result: EvaluationResult

    def call(self, command, log):
        self.result.to_json(command[command.index("--output") + 1])


def adopter(plan, tmp_path, result):
    shop = OneResult(tmp_path / "shop")
    shop.result = result
    return Adopter(plan, {}, shop)


def test_a_run_that_the_plan_asks_for_is_adopted_with_what_it_took(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train" and "meta" in job.name)
    cell = adopter(plan, tmp_path, start(job)).run(run_folder(job, save_steps=7, report_to=["none"]))
    assert (cell.key, cell.name, cell.finished) == (job.key, job.name, True)
    took = {name: cell.training[name] for name in ("steps", "episodes_allotted", "episodes_used", "tokens", "seconds")}
    assert took == {"steps": 2, "episodes_allotted": 24, "episodes_used": 14, "tokens": 200, "seconds": 3.0}
    assert cell.training["curves"] == {"train": {"pass@1": [[1, 0.1], [2, 0.2]]}, "eval": {}}


def test_a_run_with_other_settings_is_refused_and_told_which(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    with pytest.raises(ConfigError, match="`learning_rate` is 0.5, not 0.0003"):
        adopter(plan, tmp_path, start(job)).run(run_folder(job, learning_rate=0.5))


def test_a_run_that_started_from_other_weights_is_refused(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    with pytest.raises(ConfigError, match="differs on 1 of 2 tasks"):
        adopter(plan, tmp_path, start(job, solved_at=[1, None])).run(run_folder(job))


def test_an_unfinished_run_is_no_cell(plan, tmp_path, run_folder):
    job = next(job for job in plan.jobs_wanted() if job.kind == "train")
    with pytest.raises(ConfigError, match="ends at step 1 of 2"):
        work.training_cell(job, run_folder(job, last=1))


def test_an_evaluation_is_adopted_only_where_all_that_it_states_agrees(plan, tmp_path):
    job = next(job for job in plan.jobs_wanted() if job.name == "main/base")
    result = Trainer(SOLVED).evaluate(job, None).evaluation()
    result.meta = {"model": "tiny"}
    result.to_json(tmp_path / "a.json")
    cell = adopter(plan, tmp_path, result).evaluation(tmp_path / "a.json")
    assert cell.key == job.key and "wording" in cell.adopted["not_recorded"]
    replace(result, max_turns=11).to_json(tmp_path / "b.json")
    with pytest.raises(ConfigError, match="max_turns differ"):
        adopter(plan, tmp_path, result).evaluation(tmp_path / "b.json")
    replace(result, meta={"model": "runs/strange"}).to_json(tmp_path / "c.json")
    with pytest.raises(ConfigError, match="adopt its run first"):
        adopter(plan, tmp_path, result).evaluation(tmp_path / "c.json")


def test_seeds_that_differ_widen_the_interval_and_equal_ones_do_not():
    tasks = [[number % 2 == 0 for number in range(200)]]
    steady = paired_bootstrap(tasks * 3, [[False] * 200] * 3, over_runs=True)
    plain = paired_bootstrap(tasks * 3, [[False] * 200] * 3)
    assert abs(steady.low - plain.low) < 0.02 and abs(steady.high - plain.high) < 0.02
    uneven = [[True] * 200, tasks[0], [False] * 200]
    wide = paired_bootstrap(uneven, [[False] * 200] * 3, over_runs=True)
    narrow = paired_bootstrap(uneven, [[False] * 200] * 3)
    assert wide.mean == narrow.mean == 0.5 and wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert paired_bootstrap(uneven, uneven, over_runs=True).p_value > 0.5
