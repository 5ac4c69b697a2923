"""The speed comparison: its forced lengths, that its contenders do the same work, and its script."""

import importlib
import json
from collections import Counter
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch
from speed_samples import iteration, process, result, speed_parts

from metarl_agents.config import Config


@pytest.fixture(scope="module")
def parts():
    with speed_parts() as found:
        yield found


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
        assert one["logp_difference"] <= one["largest_logp_difference"] < 1e-4
        assert one["padding"]["rollout"] >= 0
    known = {item.name for part in fields(Config) for item in fields(part.default_factory)}
    for maker, found in (("ours", ours), ("lockstep", lockstep)):
        assert known | set(parts.report.DECIDING[maker]) <= set(found["settings"]) and json.dumps(found["settings"])
    assert {one["logp_limit"] for one in ours["iterations"]} == {parts.protocol.LOGP_LIMIT}
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


def test_those_whose_start_is_compared_start_as_often_as_asked_and_the_further_ones_end_with_the_first_update(parts):
    asked = []

    def launch(kind, **settings):
        asked.append((kind, settings["workload"], settings.get("repeats")))
        return process(*[] if settings.get("repeats") == 0 else [iteration()])

    sizes = {"ours": 512, "trl": 16, "lockstep": 8}
    runs = parts.speed.run_all(["ours/meta", "lockstep/meta", "ours/single", "trl/single"], sizes, launch, 5)
    assert {name: len(found) for name, found in runs.items()} == {
        "ours/meta": 2,
        "lockstep/meta": 2,
        "ours/single": 5,
        "trl/single": 5,
    }
    ours, trl = ("ours", "single", 0), ("trl", "single", 0)
    assert asked[8:] == [ours, trl, trl, ours, ours, trl]
    assert all(repeats is None for _, _, repeats in asked[:8])
    assert parts.report.start_rivals(["ours/single", "ours/meta"]) == [], "nobody to compare with"


def test_a_contender_that_failed_is_not_started_further(parts):
    def launch(kind, **settings):
        return {"error": "it did not end within 300 s"} if kind == "trl" else process(iteration())

    runs = parts.speed.run_all(["ours/single", "trl/single"], {"ours": 512, "trl": 16}, launch, 6)
    assert [len(found) for found in runs.values()] == [6, 2]


@pytest.mark.parametrize("maker", ["ours", "lockstep"])
def test_a_process_without_repeats_still_says_when_its_first_update_ended(parts, small, maker):
    found = getattr(parts, maker).measure(small(maker, workload="single", repeats=0))
    assert found["iterations"] == [] and found["first_update_s"] > 0


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
    failed = {"error": "x", "place": 1, "load": 0.2}
    runs = {"trl/single": [process(iteration(), settings=settings)] * 2, "ours/meta": [failed] * 2}
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


# ---- one request -------------------------------------------------------------------------------------------------


def test_the_library_and_plain_generate_answer_the_same_requests_one_at_a_time(parts, small):
    found = parts.request.measure(small("request"))
    assert found["ratio"]["repeats"] == len(found["ours"]) == len(found["plain"]) >= parts.protocol.LEAST
    counts = [one["tokens"] for one in (*found["ours"], *found["plain"])]
    assert all(count == counts[0] for count in counts) and counts[0]["responses"] > 0
    assert {one["rows"] for one in found["ours"]} == {2}, "the prompts of its two tasks"


# ---- a slow environment ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_slow_environment_is_measured_on_the_same_tokens_as_one_that_is_not(parts, small, monkeypatch):
    monkeypatch.setattr(parts.waiting, "WORKERS", 2)
    monkeypatch.setattr(parts.waiting, "STEP_S", 0.02)
    found = parts.waiting.measure(small("waiting"))
    assert found["trials"] == 12 and found["ratio"]["repeats"] >= parts.protocol.LEAST
    counts = [one["tokens"] for one in (*found["slow"], *found["instant"])]
    assert all(count == counts[0] for count in counts) and counts[0]["responses"] > 0
    # Twelve trials of a step or more take turns in two processes.
    assert min(one["seconds"]["rollout"] for one in found["slow"]) >= 6 * 0.02


def test_the_slow_environment_waits_in_its_steps_alone(parts, monkeypatch):
    slept = []
    monkeypatch.setattr(parts.waiting.time, "sleep", slept.append)
    env = parts.waiting.Waiting(parts.presets.PRESETS["cpu"].workloads["rl"], 0.1)
    env.reset(seed=3)
    env.step(env.parse_action("any"))
    assert slept == [0.1]
    work = parts.presets.PRESETS["cpu"].workloads["rl"]
    assert work.tasks * work.group_size >= 64


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
    assert ours["logp_limit"] is None
