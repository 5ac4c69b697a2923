"""Tables of games: which cells they need, what decides a cell, and the shares that hand-made games give."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.adopt import Adopter  # noqa: E402
from bench.cells import decides_evaluation, key_of, pack, read_cells, unpack  # noqa: E402
from bench.games import compare, describe, gain, read_played  # noqa: E402
from bench.plan import load_plan  # noqa: E402
from bench.summary import summary  # noqa: E402
from bench.table import report  # noqa: E402
from bench.work import Workshop, evaluation_cell  # noqa: E402
from games_samples import METHODS, PLAN, block_of, cells_of, games, result_of, training, write_plan  # noqa: E402
from report.charts import draw  # noqa: E402
from report.model import Chart, Number  # noqa: E402
from report.page import render_page  # noqa: E402
from report.reading import read_report  # noqa: E402
from report.text import render_text  # noqa: E402

from metarl_agents.config import Config  # noqa: E402
from metarl_agents.envs.factory import environment_factory  # noqa: E402
from metarl_agents.errors import ConfigError  # noqa: E402
from metarl_agents.evaluation import EvaluationResult  # noqa: E402
from metarl_agents.evaluation.games import games_record  # noqa: E402
from metarl_agents.rollout.runner import TrialRunner  # noqa: E402
from metarl_agents.types import Response  # noqa: E402

OPTIONS = {"resamples": 200, "seed": 0}


@pytest.fixture
def plan(tmp_path):
    return write_plan(tmp_path / "plans")


def row_of(block, name):
    return next(row for row in block["rows"] if row["id"] == name)


# Plans.


@pytest.mark.parametrize(
    ("preset", "names"), [("cpu", ["matrix_game", "kuhn", "tictactoe"]), ("gpu", ["tictactoe", "kuhn", "matrix_game"])]
)
def test_games_have_a_table_in_which_every_method_plays_as_many_episodes_and_all_of_a_trial(preset, names):
    blocks = {block.name: block for block in load_plan(preset).blocks}
    for name in names:
        rows = {row.id: row for row in blocks[name].rows}
        assert {"base_memory", "gigpo", "gigpo_memory", "lamer"} <= set(rows)
        assert preset == "cpu" or {"lamer_no_memory", "mage"} <= set(rows)
        assert blocks[name].measure == "exploited" and blocks[name].figures == ("episodes",)
        for row in rows.values():
            settings = row.jobs[0].decides["settings"]
            assert (settings["stop_on_success"], settings["num_episodes"], settings["eval_samples"]) == (False, 3, 0)
            expected = {"tictactoe": 1024}.get(name, 2048) if preset == "cpu" else 504 if name == "matrix_game" else 512
            assert settings["eval_tasks"] == expected
        shapes = {"gigpo": (1, 24, "paper"), "lamer": (3, 8, "paper"), "mage": (3, 8, "differential")}
        for row in set(shapes) & set(rows):
            job = rows[row].jobs[0]
            trial, credit = job.train.config.trial, job.train.config.credit
            assert (trial.num_episodes, trial.group_size, credit.return_mode) == shapes[row]
        assert rows["gigpo_memory"].jobs[0].train.key == rows["gigpo"].jobs[0].train.key


@pytest.mark.parametrize(
    ("preset", "name", "opponents"),
    [
        ("cpu", "matrix_game", ["win_stay_lose_shift", "beat_frequent", "mostly_paper"]),
        ("cpu", "kuhn", ["cfr", "equilibrium"]),
        ("cpu", "tictactoe", ["mcts_3", "mcts_5"]),
        ("gpu", "kuhn", ["cfr", "equilibrium"]),
        ("gpu", "matrix_game", ["win_stay_lose_shift", "beat_frequent", "mostly_paper"]),
        ("gpu", "tictactoe", ["mcts_1000", "perfect"]),
    ],
)
def test_trained_rows_also_meet_opponents_that_training_did_not_have(preset, name, opponents):
    blocks = {block.name: block for block in load_plan(preset).blocks}
    main = {row.id: row for row in blocks[name].rows}
    for row in blocks[f"{name}_unseen"].rows:
        for job, known in zip(row.jobs, main[row.method].jobs, strict=True):
            if row.variant == "of training":
                assert job.key == known.key
                continue
            settings = job.config.trial.env_kwargs
            assert settings["opponents"] == opponents and job.train.key == known.train.key and job.key != known.key
            assert not set(opponents) & set(known.config.trial.env_kwargs.get("opponents", ()))
    env = environment_factory(job.config.trial)()
    assert [opponent.name for opponent in env.seating.opponents] == opponents


@pytest.mark.parametrize(
    "change",
    [
        {"env_kwargs": {"rounds": 3, "opponents": ["cycle"]}},
        {"env_kwargs": {"rounds": 3, "seat": "first"}},
        {"env_kwargs": {"rounds": 3, "opponents": ["cycle", "always_rock"], "weights": [1, 2]}},
        {"opponents": ["cycle"]},
        {"stop_on_success": True},
        {"num_episodes": 2},
    ],
)
def test_whom_where_and_how_long_an_evaluation_plays_decides_its_cell(plan, change):
    job = next(job for job in plan.jobs_wanted() if (job.kind, job.name) == ("evaluate", "rocks/meta/s0"))

    def key(config):
        return key_of(decides_evaluation(config, agent="policy", split="test", train_key=job.train.key))

    assert key(Config.from_flat(job.config.flat())) == job.key and "opponents" not in job.decides["settings"]
    assert key(Config.from_flat(job.config.flat() | change)) != job.key


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("measure: exploited", "measure: pass@9", "measure `pass@9`"),
        ("eval_samples: 0}", "eval_samples: 0, stop_on_success: true}", "`base` .*of games all episodes are played"),
    ],
)
def test_a_table_of_games_that_would_not_be_played_out_is_refused(tmp_path, old, new, message):
    with pytest.raises(ConfigError, match=message):
        write_plan(tmp_path / "plans", PLAN.replace(old, new, 1))


def test_a_row_that_plays_other_opponents_is_not_evaluated_alike(tmp_path):
    methods = METHODS.replace("{label: base, evaluate: {", "{label: base, evaluate: {opponents: [cycle], ")
    with pytest.raises(ConfigError, match="not evaluated alike"):
        write_plan(tmp_path / "plans", methods=methods)


# Cells.


def test_a_cell_keeps_every_trial_and_its_frame_and_no_path(plan, tmp_path):
    job = next(job for job in plan.jobs_wanted() if (job.kind, job.name) == ("evaluate", "rocks/meta/s0"))
    result = result_of(job)
    cell = evaluation_cell(job, result, training(job.train))
    cell.write(tmp_path / "smoke")
    kept = read_cells("smoke", tmp_path)[job.key].evaluation()
    assert kept.meta == {"games": result.meta["games"]} and "/somewhere/else" not in json.dumps(cell.result)
    crashed = replace(result, meta={"games": games([5, 6], [[0.5], [], [1.0]])})
    crashed.meta["games"]["rows"][1] |= {"opponent": None, "seat": None, "payoffs": [], "endings": []}
    assert unpack(pack(crashed), "x") == crashed
    assert len(json.dumps(cell.result)) < 4_000, "forty trials fit into a hundred bytes each"


def test_games_that_nobody_examined_are_examined_for_their_cell(plan):
    job = next(job for job in plan.jobs_wanted() if (job.kind, job.name) == ("evaluate", "rocks/meta/s0"))
    trial = replace(job.config.trial, env_kwargs={"rounds": 2, "opponent": "always_rock"}, num_episodes=2)
    job = replace(job, config=replace(job.config, trial=trial))
    trials = []
    for seed in (0, 1):
        runner = TrialRunner(environment_factory(trial), seed, 0, trial)
        while not runner.done:
            word = "paper" if len(runner.trial.episodes) > 1 else "rock"
            runner.receive((), Response((), "<remark>x</remark>" if runner.reflecting else f"<action>{word}</action>"))
        trials.append(runner.trial)
    record = games_record(environment_factory(trial), trials, trial, 0)
    result = EvaluationResult.from_trials(
        trials, label="x", env=trial.env, env_kwargs=trial.env_kwargs, num_episodes=2, max_turns=trial.max_turns,
        memory="reflection", sampling="s", split="test", meta={"model": "m", **record},
    )  # fmt: skip
    kept = evaluation_cell(job, result, training(job.train)).evaluation()
    found = describe(read_played([kept], [0]), OPTIONS)
    assert [entry["share"] for entry in found["exploited"].values()] == [0.0, 1.0]
    assert kept.meta["games"]["summary"][0]["episodes"][1]["won"] == 1.0


def test_an_evaluation_of_a_game_is_adopted_with_its_trials_where_the_opponents_agree(tmp_path):
    methods = METHODS.replace(
        "{label: base, evaluate: {memory: none}}", "{label: base, evaluate: {memory: none, opponents: [cycle]}}"
    )
    plan = write_plan(
        tmp_path / "plans",
        PLAN.replace("rows: [base, rl, meta]\n  reference: meta", "rows: [base]\n  reference: base"),
        methods,
    )
    job = next(job for job in plan.jobs_wanted() if job.name == "rocks/base")
    adopter = Adopter(plan, {}, Workshop(tmp_path / "shop"))
    result = replace(result_of(job), env_kwargs={"rounds": 3, "opponents": ["cycle"]})
    result.meta["model"] = "tiny"
    result.to_json(tmp_path / "a.json")
    cell = adopter.evaluation(tmp_path / "a.json")
    assert cell.key == job.key and cell.evaluation().meta == {"games": result.meta["games"]}
    replace(result, env_kwargs={"rounds": 3, "opponents": ["tit_for_tat"]}).to_json(tmp_path / "b.json")
    with pytest.raises(ConfigError, match="env_kwargs differ"):
        adopter.evaluation(tmp_path / "b.json")


# Numbers.


def test_hand_made_games_give_the_shares_that_a_hand_computes(plan):
    block = block_of(plan, cells_of(plan))
    meta, rl, base = (row_of(block, name) for name in ("meta", "rl", "base"))
    shares = {row["id"]: [v["share"] for v in row["games"]["exploited"].values()] for row in (meta, rl, base)}
    # Thirty framed tasks with a gap of 2: twenty in seat 0, ten in seat 1. Of the last episode, seed 0 takes 20 x 1
    # and 10 x 0.5, seed 1 takes 30 x 0.5.
    assert shares["meta"] == pytest.approx([0.0, 0.5, 2 / 3])
    assert shares["rl"] == pytest.approx([1 / 6] * 3) and shares["base"] == pytest.approx([-0.5] * 3)
    last = meta["games"]["exploited"]["3"]
    assert last["per_run"] == pytest.approx([25 / 30, 0.5]) and last["interval"][0] < 2 / 3 < last["interval"][1]
    assert (last["spread"]["min"], last["spread"]["max"]) == pytest.approx((0.5, 25 / 30))
    assert meta["games"]["payoff"]["3"]["share"] == pytest.approx((50 + 30) / 80)
    assert meta["games"]["endings"]["3"] == {"won": 0.75, "drawn": 0.25, "lost": 0.0, "unfinished": 0.0}
    assert (meta["games"]["tasks"], meta["games"]["framed"]) == (40, 30)
    assert meta["gain"]["mean"] == pytest.approx(2 / 3) and meta["gain"]["low"] > 0.3 and meta["gain"]["p_value"] < 0.01
    found = {entry["than"]: entry for entry in block["differences"]}
    assert found["rl"]["mean"] == pytest.approx(0.5) and found["base"]["mean"] == pytest.approx(2 / 3 + 0.5)
    assert found["rl"]["seeds"] == [2, 2] and found["base"]["seeds"] == [2, 1] and found["rl"]["measure"] == "exploited"
    assert meta["best"] and "leads in the exploited share of episode 3, significantly" in block["verdict"]


def test_rows_are_compared_seed_by_seed(plan):
    job = next(job for job in plan.jobs_wanted() if (job.kind, job.name) == ("evaluate", "rocks/meta/s0"))

    def played(by_seed):
        results = [result_of(job, [[value] * 3, [value - 1] * 3, [0.0] * 3]) for value in by_seed.values()]
        return read_played(results, list(by_seed))

    first, second = played({0: 1.0, 1: 2.0, 2: 0.0}), played({2: 0.0, 1: 2.0})
    found = compare(first, second, "exploited", OPTIONS)
    assert (found["mean"], found["low"], found["high"], found["seeds"]) == (0.0, 0.0, 0.0, [2, 2])
    base = played({None: 1.0})
    assert compare(first, base, "exploited", OPTIONS)["seeds"] == [3, 1]
    assert compare(base, first, "exploited", OPTIONS)["mean"] == pytest.approx(0.0)
    assert compare(played({0: 1.0}), played({1: 1.0}), "exploited", OPTIONS) is None


def test_a_play_that_did_not_end_counts_the_least_that_the_game_pays(plan):
    def stall(job, result):
        for row in result.meta["games"]["rows"]:
            row["endings"][2] = "unfinished"

    row = row_of(block_of(plan, cells_of(plan, stall)), "meta")
    assert row["games"]["payoff"]["3"]["share"] == -3.0 and row["games"]["endings"]["3"]["unfinished"] == 1.0
    assert row["games"]["exploited"]["3"]["share"] == pytest.approx(np.mean([-1.5, -1.5, -1.0]))
    assert row["games"]["payoff"]["2"]["share"] == pytest.approx(30 / 40)


def test_a_crashed_trial_is_a_failure_of_its_run_and_stays_in_the_denominator(plan):
    def crash(job, result):
        if job.name == "rocks/meta/s1":
            # As a result file has it (`games_record`): all plays are there, those that never came unfinished.
            first, second = result.meta["games"]["rows"][:2]
            first |= {"payoffs": [0.0] * 3, "endings": ["unfinished"] * 3}
            second |= {
                "payoffs": [second["payoffs"][0], 0.0, 0.0],
                "endings": [second["endings"][0], *["unfinished"] * 2],
            }
            result.crashed = [{"seed": result.task_seeds[place], "error": "boom"} for place in (0, 1)]

    found = summary(plan, cells_of(plan, crash))
    row = row_of(found["blocks"][0], "meta")
    assert (row["games"]["tasks"], row["games"]["framed"], row["n"]) == (40, 30, 80)
    # Without crashes seed 1 takes half of 30 gaps of 2; of the two lost trials, in which it took 1, it gets -3 each.
    last = row["games"]["exploited"]["3"]
    assert last["per_run"] == pytest.approx([25 / 30, (30 - 2 * (1 + 3)) / 60])
    assert row["games"]["endings"]["3"]["unfinished"] == pytest.approx(2 / 80)
    untouched = row_of(summary(plan, cells_of(plan))["blocks"][0], "meta")["games"]["exploited"]["3"]["per_run"]
    assert last["per_run"][0] == untouched[0], "the other run is what it was"
    assert "meta-RL: crashed episodes, counted as failed: 2" in " ".join(report(found).split())


def test_a_trial_of_which_nobody_knows_the_opponent_costs_its_row_that_seed_and_no_other_row_anything(plan):
    def crash(job, result):
        if job.name == "rocks/meta/s1":
            result.meta["games"]["rows"][0] |= {"opponent": None, "seat": None, "payoffs": [], "endings": []}

    cells = cells_of(plan, crash)
    found = summary(plan, cells)
    block, whole = found["blocks"][0], summary(plan, cells_of(plan))["blocks"][0]
    meta = row_of(block, "meta")
    assert (meta["state"], meta["done"]) == ("partial", [0])
    file = next(cell.file_name for cell in cells.values() if (cell.kind, cell.name) == ("evaluate", "rocks/meta/s1"))
    (problem,) = meta["problems"]
    assert problem["status"] == "failed" and f"delete {file}" in problem["reason"]
    assert [entry["cell"] for entry in found["failed"]] == ["evaluate rocks/meta/s1"]
    assert f"FAILED rocks/meta/s1: {problem['reason']}" in " ".join(report(found).split())
    assert row_of(block, "rl") == row_of(whole, "rl") and row_of(block, "base") == row_of(whole, "base")


def test_where_nothing_can_be_exploited_the_table_leads_with_payoffs(plan):
    def close(job, result):
        for exact in result.meta["games"]["exact"]:
            exact["ceiling"] = exact["floor"] + 0.04

    found = summary(plan, cells_of(plan, close))
    block = found["blocks"][0]
    row = row_of(block, "meta")
    assert (
        block["measure"] == "payoff" and row["games"]["exploited"] == {} and row["gain"]["mean"] == pytest.approx(1.0)
    )
    text = report(found)
    assert "+1.000 [" in text and "payoff of episode 3, meta-RL minus RL: +0.750 [" in text and " points [" not in text
    assert "+1.000" in render_page(read_report(found, root=ROOT, page_folder=ROOT))


def test_runs_that_met_different_opponents_in_one_task_cost_their_row_alone(plan):
    def swap(job, result):
        if job.name == "rocks/meta/s1":
            result.meta["games"]["rows"][0]["opponent"] = "safe"

    cells = cells_of(plan, swap)
    found = summary(plan, cells)
    block = found["blocks"][0]
    meta = row_of(block, "meta")
    assert (meta["state"], meta["done"], meta["games"]) == ("failed", [], None)
    files = [cell.file_name for cell in cells.values() if cell.kind == "evaluate" and "rocks/meta" in cell.name]
    assert all("the runs met" in problem["reason"] for problem in meta["problems"])
    assert len(files) == 2 and all(file in problem["reason"] for problem in meta["problems"] for file in files)
    assert row_of(block, "rl")["state"] == "finished" and block["differences"] == []
    assert row_of(found["blocks"][1], "meta:others")["games"] is not None
    assert "the runs met" in render_page(read_report(found, root=ROOT, page_folder=ROOT))


def test_rows_that_met_different_opponents_in_one_task_are_not_compared_and_it_is_said(plan):
    def swap(job, result):
        if job.name.startswith("rocks/rl"):
            result.meta["games"]["rows"][3]["opponent"] = "weak"

    block = block_of(plan, cells_of(plan, swap))
    assert [entry["than"] for entry in block["differences"]] == ["base"] and not any(r["best"] for r in block["rows"])
    assert "meta-RL and RL cannot be compared: in the task" in block["verdict"]
    assert any("cannot be compared" in note for note in block["notes"])


def test_an_evaluation_without_games_is_named_and_fails_alone(plan):
    found = summary(plan, cells_of(plan, lambda job, result: job.name == "rocks/base" and result.meta.clear()))
    rows = {row["id"]: row for row in found["blocks"][0]["rows"]}
    assert (rows["base"]["state"], rows["meta"]["state"]) == ("failed", "finished")
    assert "rocks/base holds no games" in rows["base"]["problems"][0]["reason"]


def test_tasks_in_which_nothing_can_be_exploited_do_not_count_where_few_cannot_name_a_winner(plan):
    def few(job, result):
        result.meta["games"]["exact"] = [dict(one) for one in result.meta["games"]["exact"]]
        result.meta["games"]["exact"][0]["ceiling"] = 0.0  # twenty tasks less

    block = block_of(plan, cells_of(plan, few))
    assert row_of(block, "meta")["games"]["framed"] == 10 and row_of(block, "meta")["num_tasks"] == 40
    assert block["verdict"] == "n too small: 10 tasks with something to exploit cannot tell rows apart"
    assert not any(row["best"] for row in block["rows"])


# What is printed and drawn.


@pytest.mark.parametrize("markdown", [False, True])
def test_the_table_shows_shares_endings_payoffs_spread_and_differences(plan, markdown):
    text = report(summary(plan, cells_of(plan)), markdown=markdown, only={"rocks"})
    squeezed = " ".join(text.replace("|", " ").split())
    for told in (
        "exploited % seeds tasks episode 1 episode 2 episode 3",
        "episode 3 - 1",
        "meta-RL 2/2 40 0.0 [0.0, 0.0] 50.0 [50.0, 50.0]",
        "episode 3 won % drawn % lost % unfinished % payoff",
        "meta-RL 75.0 25.0 0.0 0.0 +1.000 [",
        "lowest to highest seed episode 1 episode 2 episode 3",
        "meta-RL 0.0 to 0.0 50.0 to 50.0 50.0 to 83.3",
        "exploited share of episode 3, meta-RL minus RL: +50.0 points [",
        "seeds: 2 and 2",
        "floor: equilibrium play",
        "by more than 0.05",
        "tasks with something to exploit: 30 of 40",
        "training, mean over seeds steps episodes allotted used tokens minutes",
    ):
        assert told in squeezed, told
    assert "pass@" not in text
    assert ("**66.7 [" if markdown else "*66.7 [") in text


def test_nothing_and_part_of_the_cells_are_a_table_too(plan):
    assert "missing: rocks/base" in report(summary(plan, {}))
    some = cells_of(plan, wanted=lambda job: job.name in ("rocks/meta/s0", "rocks/rl/s1"))
    block = block_of(plan, some)
    assert block["differences"] == [] and "no winner" in block["verdict"]
    assert row_of(block, "meta")["games"]["exploited"]["3"]["share"] == pytest.approx(25 / 30)
    assert row_of(block, "base")["games"] is None and row_of(block, "base")["state"] == "missing"


def test_page_and_markdown_show_the_shares_and_nothing_of_pass_at_k(plan):
    found = summary(plan, cells_of(plan))
    shown = read_report(found, root=ROOT, page_folder=ROOT)
    page, text = render_page(shown), render_text(shown, pictures="p").replace("\\", "")
    for told in (
        "66.7",
        "75.0 / 25.0 / 0.0 / 0.0",
        "+1.000",
        "exploited share of episode 3, meta-RL minus RL",
        "+66.7 [",
    ):
        assert told in page and told in text, told
    assert "runs 50.0 to 83.3" in page and "100 the best response" in page
    assert "pass@" not in page and "pass@" not in text and "over training" not in page
    assert [chart.title for chart in shown.main[0].charts] == ["From the first episode to the last"]


def test_shares_below_equilibrium_lie_inside_the_picture():
    rows = (("base", (Number(-0.5, -0.62, -0.4), Number(0.1, 0.0, 0.2))), ("meta", (Number(0.7, 0.6, 0.8),) * 2))
    picture = draw(Chart("dots", "t", "c", rows=rows, names=("a", "b")), "c")
    root = ElementTree.fromstring(picture)
    width = float(root.attrib["viewBox"].split()[2])
    numbers = [float(mark.get("d").split()[0].lstrip("M")) for mark in root.iter() if mark.get("d")]
    assert numbers and all(0 <= x <= width for x in numbers)
    assert ">-50<" in picture and ">0<" in picture


def test_the_figures_of_games_are_drawn(plan, tmp_path):
    pytest.importorskip("matplotlib")
    from bench.figures import draw_all

    made = draw_all(summary(plan, cells_of(plan)), tmp_path / "pictures")
    assert [path.stem for path in made] == ["rocks_episodes", "others_ablation"]
    assert all(path.stat().st_size > 5000 for path in made)
    assert draw_all(summary(plan, {}), tmp_path / "none") == []


def test_a_game_of_one_episode_has_no_gain():
    rows = games(range(4), [[1.0], [0.0], [0.0]])
    result = EvaluationResult(
        label="x", env="kuhn", env_kwargs={}, num_episodes=1, max_turns=4, memory="none", sampling="s", split="test",
        task_seeds=list(range(4)), solved_at=[0, 0, None, None], meta={"games": rows},
    )  # fmt: skip
    played = read_played([result], [0])
    assert gain(played, "exploited", OPTIONS) is None
    assert describe(played, OPTIONS)["exploited"]["1"]["share"] == pytest.approx((0.5 + 0.5 + 0.5) / 3)
