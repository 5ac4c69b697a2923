"""What decides a cell, the cell's file, and the plans that say which cells are wanted."""

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench import cells  # noqa: E402
from bench.cells import decides_evaluation, decides_training, digest, key_of, pack, read_cells, unpack  # noqa: E402
from bench.plan import load_plan  # noqa: E402
from bench.summary import summary  # noqa: E402
from bench_samples import METHODS, PLAN, SOLVED, Trainer  # noqa: E402

from metarl_agents.config import Config  # noqa: E402
from metarl_agents.errors import ConfigError  # noqa: E402


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


def test_cells_that_are_older_than_a_field_of_a_result_are_read_all_the_same(plan, tmp_path):
    kept = [cell for cell in read_cells("cpu").values() if cell.kind == "evaluate" and cell.finished]
    assert kept and all(cell.evaluation().num_tasks for cell in kept)
    job = plan.jobs_wanted()[0]
    cell = Trainer(SOLVED).evaluate(job, None)
    known = cell.evaluation()
    assert cell.result.pop("diversity_by_task") and "diversity_by_task" not in json.dumps(cell.decides)
    cell.write(tmp_path / "smoke")
    (again,) = read_cells("smoke", tmp_path).values()
    assert again.key == job.key and again.evaluation() == replace(known, diversity_by_task=None)
    assert again.evaluation().diversity_interval() is None is not known.diversity_interval()


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
    result.diversity_by_task = [None, 0.6931471805599453, *[0.0] * 38]
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
        else:  # the papers' claims, and what these tables have anyway
            main = {
                "minesweeper_6x6",
                "sokoban",
                "matrix_game",
                "kuhn",
                "kuhn_gamma_traj",
                "tictactoe",
                "anchor_visits",
            }
            assert {block.name, block.name.removesuffix("_unseen")} & main or trainings <= three, block.name


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
        *(
            (
                "num_episodes: 1, group_size: 6",
                f"num_episodes: 1, group_size: 6, {change}",
                f"not trained alike: {name}",
            )
            for change, name in [
                ("tasks_per_step: 3", "`tasks_per_step` differ"),
                ("max_steps: 3", "`max_steps` differ"),
                ("updates_per_batch: 2", "`updates_per_batch` differ"),
                ("env: two_doors, env_kwargs: {}", "`env`, `env_kwargs` differ"),
                ("env_kwargs: {size: 4, mines: 3}", "`env_kwargs` differ"),
                ("max_turns: 5", "`max_turns` differ"),
                ("model_name_or_path: a/b", "`model_name_or_path` differ"),
            ]
        ),
        ("{label: base, evaluate: {", "{label: base, evaluate: {memori: none, ", "memori"),
        ("{label: base, ", "{lable: base, ", "`lable`"),
        ("base: {label", "bass: {label", "no method `base`"),
    ],
)
def test_a_table_of_unequal_chances_or_unknown_names_is_refused(write, old, new, message):
    assert old in METHODS
    with pytest.raises(ConfigError, match=message):
        write(methods=METHODS.replace(old, new))


def test_a_variant_may_change_how_long_and_what_all_of_its_rows_are_trained_on(write):
    changes = "{train: {max_steps: 1, tasks_per_step: 4, env_kwargs: {size: 4, mines: 3}}}"
    plan = write(PLAN.replace("{train: {gamma_traj: 0.9}}", changes).replace("rows: [meta]", "rows: [rl, meta]"))
    trained = {row.id: row.jobs[0].train.config for row in plan.blocks[1].rows}
    assert {name: config.run.max_steps for name, config in trained.items()} == {
        **{"rl:0": 2, "rl:0.9": 1},
        **{"meta:0": 2, "meta:0.9": 1},
    }


def test_an_environment_without_its_recipe_is_left_out_with_the_reason(write):
    plan = write(
        PLAN.replace(
            "- name: sweep", "- {name: chess, title: x, like: main, recipe: recipes/train_chess.py}\n- name: sweep"
        )
    )
    assert [block.name for block in plan.blocks] == ["main", "sweep"]
    assert plan.skipped == ({"block": "chess", "reason": "recipes/train_chess.py is not there"},)


def test_a_pattern_names_blocks_and_rows_and_seeds_leave_the_base_model(plan):
    assert {job.name for job in plan.jobs_wanted("main/rl*", seeds=[1])} == {"main/rl/s1", "main/rl_memory/s1"}
    assert {job.name for job in plan.jobs_wanted("base")} == {"main/base"}
    assert plan.jobs_wanted("sweep", "main") == plan.jobs_wanted(), "what any pattern names, in the order of the tables"
    assert {job.seed for job in plan.jobs_wanted("main", seeds=[0])} == {None, 0}
    with pytest.raises(ConfigError, match="its blocks are main, sweep"):
        plan.jobs_wanted("sokoban")


def test_prompting_means_nothing_to_a_tiny_model_whatever_it_is_called(write, tmp_path):
    folder = tmp_path / "taught"
    folder.mkdir()
    for name in ("warm_start.json", "config.json"):
        (folder / name).write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")

    def meaningful(model):
        plan = write(PLAN.replace("evaluate: {num", f"evaluate: {{model_name_or_path: {model}, num"))
        return {row.id for row in plan.blocks[0].rows if not row.trained and row.meaningful}

    assert meaningful(folder) == {"base"} and meaningful(tmp_path / "other") == {"base", "react"}
