"""The speed comparison: its rules, its forced lengths, and that its contenders do the same work."""

import importlib
import json
import sys
from collections import Counter
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from metarl_agents.config import Config

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PARTS = ("protocol", "presets", "job", "meter", "world", "ours", "lockstep", "environments", "prepare", "report")
OTHERS = ("speed", "device_check", "memory", "memory_check", "scripted_players")


@pytest.fixture(scope="module")
def parts():
    """The modules of `benchmarks/side_by_side`, and the script `speed`, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        found = {name: importlib.import_module(f"side_by_side.{name}") for name in PARTS}
        yield SimpleNamespace(**found, speed=importlib.import_module("speed"))
    for name in [name for name in sys.modules if name in OTHERS or name.split(".")[0] == "side_by_side"]:
        sys.modules.pop(name, None)


def iteration(seconds=2.0, sampled=100, trained=None, **more):
    """What a contender would measure of an iteration."""
    trained = sampled if trained is None else trained
    return {
        "seconds": dict.fromkeys(("generate", "rollout", "update", "iteration"), seconds),
        "tokens": {"sampled": sampled, "trained": trained, "responses": sampled // 4},
        "padding": {"rollout": 0.1, "update": 0.25},
        "peak_gib": {"process": 1.5},
        **more,
    }


def process(*iterations, first_update_s=9.0):
    """What a contender's process would find."""
    return {"iterations": list(iterations), "first_update_s": first_update_s, "loaded_gib": 1.0}


# ---- the rules ---------------------------------------------------------------------------------------------------


def test_any_two_contenders_meet_in_the_order_a_b_b_a(parts):
    names = ["ours/meta", "lockstep/meta", "ours/single", "trl/single"]
    places = parts.protocol.order(names)
    assert Counter(places) == Counter(names * 2)
    for one, other in combinations(names, 2):
        assert [name for name in places if name in (one, other)] == [one, other, other, one]


def test_a_drift_of_the_machine_favours_nobody(parts):
    places = parts.protocol.order(["a", "b", "c"])
    means = {name: sum(i for i, own in enumerate(places) if own == name) / 2 for name in places}
    assert len(set(means.values())) == 1


def test_speeds_are_medians_and_ratios_carry_their_range(parts):
    fast = [iteration(seconds) for seconds in (1.0, 2.0, 4.0)]  # 100, 50, 25 tokens/s
    slow = [iteration(seconds) for seconds in (5.0, 4.0, 10.0)]  # 20, 25, 10 tokens/s
    assert parts.protocol.speed_ratio(fast, slow, "rollout") == {"ratio": 50 / 20, "low": 25 / 25, "high": 100 / 10}
    assert parts.protocol.spread([4.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 4.0, "count": 3}


@pytest.mark.parametrize("part", ["rollout", "update", "iteration"])
def test_no_ratio_is_given_where_token_counts_differ_by_more_than_one_percent(parts, part):
    first = [iteration(sampled=10_000)] * 3
    within = [iteration(sampled=9_900)] * 3
    beyond = [iteration(sampled=9_899)] * 3
    assert "ratio" in parts.protocol.speed_ratio(first, within, part)
    for pair in ((first, beyond), (beyond, first)):
        refused = parts.protocol.speed_ratio(*pair, part)
        assert set(refused) == {"refused"} and "1.0 %" in refused["refused"]


def test_an_update_that_trains_on_fewer_tokens_gives_no_ratio_although_the_rollouts_agree(parts):
    first, second = [iteration()], [iteration(trained=90)]
    assert "ratio" in parts.protocol.speed_ratio(first, second, "rollout")
    assert "refused" in parts.protocol.speed_ratio(first, second, "update")
    assert "refused" in parts.protocol.speed_ratio(first, second, "iteration")
    assert "refused" in parts.protocol.share_of([1.0], [1.0], (first, second))


def test_the_penalty_is_normalised_by_tokens(parts):
    plain = [iteration(2.0, 100)]
    assert parts.protocol.penalty([iteration(4.0, 200)], plain, "iteration")["ratio"] == 1.0
    assert parts.protocol.penalty([iteration(6.0, 200)], plain, "iteration")["ratio"] == pytest.approx(1.5)


# ---- forced lengths ----------------------------------------------------------------------------------------------


def test_lengths_depend_neither_on_order_nor_on_batches(parts):
    prompts = [(1, 2, 3)] * 8 + [(4, number) for number in range(40)]
    table = parts.meter.ForcedLengths(6, 0.55, 16)
    forwards = [(prompt, table.take(prompt)) for prompt in prompts]
    table.begin()
    backwards = [(prompt, table.take(prompt)) for prompt in reversed(prompts)]
    assert Counter(forwards) == Counter(backwards)
    assert len({length for prompt, length in forwards if prompt == (1, 2, 3)}) > 1
    assert 1 <= min(length for _, length in forwards) <= max(length for _, length in forwards) <= 16


def test_lengths_are_log_normal_and_cut(parts):
    table = parts.meter.ForcedLengths(20, 0.5, 48)
    drawn = sorted(table.take((number,)) for number in range(2000))
    assert drawn[1000] == pytest.approx(20, abs=1)
    assert drawn[-1] == 48 and drawn.count(48) < 120
    other = parts.meter.ForcedLengths(20, 0.5, 48, seed=1)
    assert [other.take((number,)) for number in range(50)] != [table.take((number,)) for number in range(50)]


def test_answers_have_their_lengths_and_are_counted(parts, make_policy):
    policy = make_policy()
    meter = parts.meter.Meter(parts.meter.ForcedLengths(4, 0.8, 9))
    parts.meter.watch(policy.model, meter, policy.end_ids[0])
    prompts = [(7, 8, 9), (7, 8, 9), (10, 11), (12, 13, 14, 15)]
    from metarl_agents.policy.sampling import Sampling

    meter.begin()
    answers = policy.generate(prompts, Sampling(max_new_tokens=9), seed=0)
    found = meter.finish()
    meter.lengths.begin()
    expected = Counter((prompt, meter.lengths.take(prompt)) for prompt in prompts)
    assert Counter((p, len(a.ids)) for p, a in zip(prompts, answers, strict=True)) == expected
    assert all(answer.ids.index(policy.end_ids[0]) == len(answer.ids) - 1 for answer in answers)
    assert found["tokens"]["sampled"] == 3 + 3 + 2 + 4 + sum(len(answer.ids) for answer in answers)
    places = 4 * (4 + max(len(answer.ids) for answer in answers))
    assert found["padding"]["rollout"] == pytest.approx(1 - found["tokens"]["sampled"] / places)
    assert found["tokens"]["trained"] == 0


# ---- the same work -----------------------------------------------------------------------------------------------


@pytest.fixture
def small(parts, monkeypatch, tmp_path):
    """A job maker for a preset of a blink, its model made; `bf16` is off."""
    from accelerate.state import AcceleratorState

    meta = replace(
        parts.presets.PRESETS["cpu"].workloads["meta"],
        tasks=2,
        group_size=3,
        num_episodes=2,
        max_turns=2,
        min_turns=1,
        success=0.4,
        max_response_tokens=8,
        entropy_coef=0.1,
    )
    preset = replace(
        parts.presets.PRESETS["cpu"],
        workloads=parts.presets.variants(meta, plain_group=6, single_tasks=2),
    )
    monkeypatch.setitem(parts.presets.PRESETS, "small", preset)
    for name, value in {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_CPU": "true"}.items():
        monkeypatch.setenv(name, value)
    AcceleratorState._reset_state(reset_partial_state=True)

    def job(kind, **settings):
        size = 512 if kind == "ours" else 4
        return parts.job.Job(
            kind=kind, preset="small", folder=str(tmp_path), output="", **{"micro_batch": size} | settings
        )

    parts.prepare.measure(job("prepare"))
    yield job
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("work", ["meta", "single"])
def test_the_library_and_the_lock_step_loop_do_the_same_work(parts, small, work):
    ours = parts.ours.measure(small("ours", workload=work))
    lockstep = parts.lockstep.measure(small("lockstep", workload=work))
    for one, other in zip(
        [ours["warm_up"], *ours["iterations"]], [lockstep["warm_up"], *lockstep["iterations"]], strict=True
    ):
        assert one["tokens"] == other["tokens"] and one["rows"] == other["rows"] > 0
        assert one["tokens"]["sampled"] == one["tokens"]["trained"]
        assert one["logp_difference"] < 1e-4
        assert one["padding"]["rollout"] >= 0
    known = {item.name for part in fields(Config) for item in fields(part.default_factory)}
    for maker, found in (("ours", ours), ("lockstep", lockstep)):
        assert known | set(parts.report.DECIDING[maker]) <= set(found["settings"]) and json.dumps(found["settings"])
    assert ours["settings"]["max_tokens_per_micro_batch"] == 512 and lockstep["settings"]["rows_per_micro_batch"] == 4
    for one, other in zip([ours["warm_up"]], [lockstep["warm_up"]], strict=True):
        assert set(one["seconds"]) == set(other["seconds"]) == {"generate", "rollout", "update", "iteration"}
    assert ours["iterations"][0]["tokens"] != ours["warm_up"]["tokens"]  # other tasks, so other lengths


def test_the_library_and_the_lock_step_loop_make_the_same_gradient(parts, small, tmp_path):
    from metarl_agents.policy.processes import start_processes
    from metarl_agents.training.setup import build_run
    from metarl_agents.training.trainer import make_batch, sample_trials
    from metarl_agents.training.update import update_policy

    job = small("ours", workload="meta")
    config = parts.world.build_config(job.work, job.steps, micro_batch_tokens=512)
    world, policy = parts.world.World(job.work), parts.lockstep.load(job.folder)
    meter = parts.meter.Meter(parts.meter.ForcedLengths(4, 0.55, 8))
    parts.meter.watch(policy.model, meter, policy.end_ids[0])
    run = build_run(config, world.make_env, policy, tmp_path, None, start_processes(600))
    step, taken = run.sharding.step, {}

    def note_and_step():
        taken.update({name: p.grad.clone() for name, p in run.policy.model.named_parameters()})
        return step()

    run.sharding.step = note_and_step
    with run.logger:
        batch, _ = make_batch(run, sample_trials(run, 0)[0])
        update_policy(run, batch, 0)
    assert len({len(prompt) for prompt in batch.prompts}) > 1 < len({len(response) for response in batch.responses})
    policy = parts.lockstep.load(job.folder)
    loop = parts.lockstep.Loop(policy, config, parts.lockstep.build_optimizer(policy.model, config), rows=5)
    parts.lockstep.accumulate(loop, batch)
    for name, parameter in policy.model.named_parameters():
        scale = taken[name].abs().max()
        assert scale > 0, name
        assert (parameter.grad - taken[name]).abs().max() <= 1e-4 * scale, name


def test_single_turn_prompts_are_those_that_the_others_read(parts, small):
    job = small("lockstep", workload="single")
    config = parts.world.build_config(job.work, job.steps, micro_batch_tokens=512)
    policy = parts.lockstep.load(job.folder)
    world, meter = parts.world.World(job.work), parts.meter.Meter(parts.meter.ForcedLengths(3, 0.5, 8))
    loop = parts.lockstep.Loop(policy, config, parts.lockstep.build_optimizer(policy.model, config), rows=4)
    steps = json.loads(job.prompts.read_text(encoding="utf-8"))
    from metarl_agents.rollout.tasks import TaskStream

    for step, messages in enumerate(steps):
        world.begin()
        trials = parts.lockstep.play(loop, world, meter, TaskStream(config.run.seed, job.work.tasks).take(step))
        read = [trial.episodes[0].turns[0].prompt_ids for trial in trials]
        assert read == [policy.encode(message) for message in messages for _ in range(job.work.group_size)]
    assert len(steps) == job.steps


def test_words_of_the_task_are_one_token_each_and_no_prompt_is_cut(parts, tiny_tokenizer):
    assert all(len(tiny_tokenizer.encode(word)) == 1 for word in parts.world.WORDS)
    for preset in parts.presets.PRESETS.values():
        for work in preset.workloads.values():
            env = parts.world.World(work).make_env()
            observation, _ = env.reset(seed=3)
            assert len(tiny_tokenizer.encode(env.describe())) == work.rules_tokens
            assert len(tiny_tokenizer.encode(observation)) == work.task_tokens
            past = work.max_turns * (work.turn_tokens + 4) + work.num_episodes * (work.memory_tokens + 16)
            assert work.rules_tokens + work.task_tokens + past + 64 < 2048


# ---- the script --------------------------------------------------------------------------------------------------


def test_every_contender_is_run_twice_in_order_with_its_own_micro_batch(parts):
    asked = []

    def launch(kind, **settings):
        asked.append((kind, settings["workload"], settings["micro_batch"]))
        return process(iteration())

    runs = parts.speed.run_all(["ours/meta", "trl/single"], {"ours": 512, "trl": 16}, launch)
    assert asked == [("ours", "meta", 512), ("trl", "single", 16), ("trl", "single", 16), ("ours", "meta", 512)]
    assert [run["place"] for run in runs["trl/single"]] == [1, 2]


def test_everyones_fastest_micro_batch_is_kept_and_one_that_fails_is_not(parts):
    seconds = {("trl", 4): 3.0, ("trl", 8): 2.0, ("trl", 32): 2.5, ("ours", 1024): 1.0, ("ours", 8192): 1.5}
    works = {"trl": "single", "ours": "meta"}

    def launch(maker, *, workload, micro_batch, repeats):
        assert (workload, repeats) == (works[maker], parts.speed.TUNING_REPEATS)
        taken = seconds.get((maker, micro_batch))
        # One of the two was disturbed, and says nothing about the micro-batch.
        return process(iteration(9 - taken), iteration(taken)) if taken else {"error": "out of memory"}

    sizes = {"ours": (1024, 8192), "lockstep": (4, 8), "trl": (4, 8, 16, 32)}
    assert parts.speed.tune(["ours/meta", "ours/rl", "trl/single"], sizes, launch) == {
        "ours": {"chosen": 1024, "tried": [(1024, 1.0), (8192, 1.5)]},
        "trl": {"chosen": 8, "tried": [(4, 3.0), (8, 2.0), (16, None), (32, 2.5)]},
    }


def test_a_maker_that_cannot_run_here_is_left_out_with_the_reason_and_others_fail_loudly(parts):
    def launch(maker, **settings):
        return {"error": "RuntimeError: no paged attention"}

    tuned = parts.speed.tune(["trl_continuous/single", "trl/single"], {"trl_continuous": (4, 8), "trl": (4,)}, launch)
    assert tuned["trl_continuous"]["tried"] == [(4, None)], "one failure is enough"
    assert tuned["trl_continuous"]["error"] == tuned["trl"]["error"] == "RuntimeError: no paged attention"
    errors = {f"{maker}/single": found["error"] for maker, found in tuned.items()} | {"ours/meta": None}
    reason = "which is not supported here: RuntimeError: no paged attention"
    assert parts.speed.not_supported(errors) == {"trl_continuous/single": reason}
    assert "trl_continuous/single" in parts.speed.CONTENDERS and "trl_continuous/meta" not in parts.speed.POSSIBLE
    assert parts.presets.PRESETS["gpu"].candidates("trl_continuous")[0] == 4


def test_a_maker_that_waits_for_ever_where_it_is_not_supported_is_given_up(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(parts.speed, "OPTIONAL_LIMIT_S", 0.01)
    launch = parts.speed.launcher(str(tmp_path), "cpu", 1.0, 1, None)
    assert launch("trl_continuous", workload="single") == {"error": "it did not end within 0.01 s"}


def test_continuous_batching_is_refused_on_a_cpu(parts, monkeypatch):
    pytest.importorskip("trl", reason="trl is not installed (`make bench-speed` installs it)")
    trl_grpo = importlib.import_module("side_by_side.trl_grpo")
    monkeypatch.setattr(trl_grpo.torch.cuda, "is_available", lambda: False)
    job = parts.job.Job(kind="trl_continuous", preset="cpu", folder="x", output="", workload="single", micro_batch=4)
    with pytest.raises(SystemExit, match="by a GPU's memory"):
        trl_grpo.build_arguments(job, "x")


def test_the_settings_that_decide_are_printed_for_each_contender(parts):
    settings = {"per_device_train_batch_size": 8, "beta": 0.0, "use_vllm": False, "seed": 3}
    runs = {"trl/single": [process(iteration()) | {"settings": settings}] * 2, "ours/meta": [{"error": "x"}] * 2}
    text = parts.report.text(result(parts, runs))
    line = "TRL GRPOTrainer, single turn: per_device_train_batch_size 8, beta 0.0, use_vllm False"
    assert line in text.splitlines() and set(parts.report.DECIDING) == set(parts.report.NAMES)


def test_what_is_not_installed_is_named(parts, monkeypatch):
    monkeypatch.setattr(parts.speed.util, "find_spec", lambda name: None if name == "trl" else object())
    assert parts.speed.missing(["ours/meta", "trl/single"]) == {"trl/single": "because trl is not installed"}


def test_a_process_that_fails_is_reported_with_its_last_line(parts, tmp_path, capsys):
    launch = parts.speed.launcher(str(tmp_path), "cpu", 1.0, 1, None)
    assert launch("nobody") == {"error": "KeyError: 'nobody'"}
    assert "KeyError" in capsys.readouterr().err


def result(parts, runs, **more):
    return {
        "card": "cpu",
        "cpu": "a processor",
        "threads": 2,
        "preset": "cpu",
        "parameters": 421_824,
        "versions": {"torch": "2.13.0", "trl": None},
        "tuning": {"lockstep": {"chosen": 8, "tried": [(4, 3.0), (8, 2.0), (16, None)]}},
        "contenders": runs,
        "compared": parts.report.compare(runs),
        "environments": {},
        "left_out": {},
        **more,
    }


def test_the_report_gives_ratios_penalties_and_costs(parts):
    runs = {
        "ours/meta": [process(iteration(2.0)), process(iteration(2.0), first_update_s=7.0)],
        "lockstep/meta": [process(iteration(5.0)), process(iteration(5.0), first_update_s=16.0)],
        "ours/rl": [process(iteration(1.0, 50)), process(iteration(1.0, 50))],
    }
    compared = parts.report.compare(runs)
    assert compared["speed"]["ours/meta : lockstep/meta"]["rollout"]["ratio"] == 2.5
    assert compared["penalty"]["ours"]["iteration"]["ratio"] == 1.0
    assert compared["cost"]["ours/meta : lockstep/meta"]["first update"]["ratio"] == 8.0 / 12.5
    assert parts.report.refusals(compared) == []
    environments = {"two_doors": parts.environments.measure_one("two_doors", 3), "x": {"left_out": "no files"}}
    text = parts.report.text(
        result(parts, runs, environments=environments, left_out={"trl/single": "because trl is not installed"})
    )
    assert "2.50 [2.50, 2.50]" in text and "8 rows a micro-batch, the fastest of 4 (3.00 s), 8 (2.00 s), 16" in text
    assert "| two_doors |" in text and "left out: trl/single, because trl is not installed" in text
    assert "10 % / 25 %" in text and "1.50 (+0.50 since loaded)" in text


def test_a_report_without_equal_tokens_or_with_a_failure_has_no_ratio_and_says_so(parts):
    runs = {
        "ours/meta": [process(iteration())] * 2,
        "lockstep/meta": [process(iteration(sampled=90))] * 2,
        "ours/single": [process(iteration())] * 2,
        "trl/single": [process(iteration()), {"error": "RuntimeError: no kernel"}],
    }
    found = result(parts, runs)
    refused = parts.report.refusals(found["compared"])
    assert len(refused) == 2 * (3 + 2) and all("ratio" not in line.split(":")[-1] for line in refused)
    text = parts.report.text(found)
    assert "refused, because their token counts differ by 10.0 %" in text
    assert "failed: RuntimeError: no kernel" in text


# ---- environments ------------------------------------------------------------------------------------------------


def test_every_shipped_environment_is_measured_or_named_with_a_reason(parts):
    assert {"alfworld", "minesweeper", "sokoban", "two_doors", "webshop"} <= set(parts.environments.shipped())
    found = parts.environments.measure_one("minesweeper", 2)
    assert found["steps_per_second"]["count"] == parts.environments.REPEATS
    assert 0 < found["steps_per_second"]["min"] <= found["steps_per_second"]["max"] and found["steps"] >= 2


def test_only_the_environments_own_time_is_counted(parts, monkeypatch):
    clock = iter(range(100))  # every look at the clock takes a second
    monkeypatch.setattr(parts.environments.time, "perf_counter", lambda: next(clock))
    env = SimpleNamespace(
        reset=lambda *, seed: ("o", {}), parse_action=str.strip, step=lambda action: action, wording="w"
    )
    timed = parts.environments.Timed(env)
    timed.reset(seed=1)
    for _ in range(3):
        timed.step(timed.parse_action(" go "))
    assert (timed.steps, timed.stepping, timed.resets, timed.resetting, timed.wording) == (3, 6, 1, 1, "w")


# ---- slow: what needs minutes or more packages -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("maker", ["trl", pytest.param("trl_continuous", marks=pytest.mark.gpu)])
def test_trl_does_the_same_work(parts, small, maker):
    pytest.importorskip("trl", reason="trl is not installed (`make bench-speed` installs it)")
    trl_grpo = importlib.import_module("side_by_side.trl_grpo")
    job = small(maker, workload="single", micro_batch=2)
    trl, lockstep = trl_grpo.measure(job), parts.lockstep.measure(replace(job, kind="lockstep"))
    for one, other in zip(trl["iterations"], lockstep["iterations"], strict=True):
        assert one["tokens"] == other["tokens"] and one["rows"] == other["rows"]
        assert one["seconds"]["generate"] <= one["seconds"]["rollout"] < one["seconds"]["iteration"]
    assert trl["first_update_s"] > 0
    assert set(parts.report.DECIDING[maker]) <= set(trl["settings"]) and len(trl["settings"]) > 100
    assert trl["settings"]["use_transformers_continuous_batching"] == (maker == "trl_continuous")


@pytest.mark.slow
def test_in_bf16_both_do_the_same_work(parts, small, monkeypatch):
    monkeypatch.setitem(parts.presets.PRESETS, "small", replace(parts.presets.PRESETS["small"], bf16=True))
    ours = parts.ours.measure(small("ours", workload="meta"))["iterations"][0]
    lockstep = parts.lockstep.measure(small("lockstep", workload="meta"))["iterations"][0]
    assert ours["tokens"] == lockstep["tokens"]
    assert torch.isfinite(torch.tensor(ours["logp_difference"])) and ours["logp_difference"] < 0.1
