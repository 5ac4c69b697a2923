"""The rules of the speed comparison, its report, and the goals that it is held against."""

import re
from collections import Counter
from itertools import combinations

import pytest
from speed_samples import contender, iteration, noted, process, result, speed_parts


@pytest.fixture(scope="module")
def parts():
    with speed_parts() as found:
        yield found


# ---- order and ratios --------------------------------------------------------------------------------------------


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


def test_speeds_are_medians_and_ratios_carry_their_range_and_their_repeats(parts):
    fast = [iteration(seconds) for seconds in (1.0, 2.0, 2.0, 2.0, 4.0)]  # 100, 50, 50, 50, 25 tokens/s
    slow = [iteration(seconds) for seconds in (5.0, 4.0, 4.0, 4.0, 10.0)]  # 20, 25, 25, 25, 10 tokens/s
    expected = {"ratio": 50 / 25, "low": 25 / 25, "high": 100 / 10, "repeats": 5}
    assert parts.protocol.speed_ratio(fast, slow, "rollout") == expected
    assert parts.protocol.spread([4.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 4.0, "count": 3}


@pytest.mark.parametrize("part", ["rollout", "update", "iteration"])
def test_no_ratio_is_given_where_token_counts_differ_by_more_than_one_percent(parts, part):
    first = [iteration(sampled=10_000)] * 5
    within = [iteration(sampled=9_900)] * 5
    beyond = [iteration(sampled=9_899)] * 5
    assert "ratio" in parts.protocol.speed_ratio(first, within, part)
    for pair in ((first, beyond), (beyond, first)):
        refused = parts.protocol.speed_ratio(*pair, part)
        assert set(refused) == {"refused"} and "1.0 %" in refused["refused"]


def test_an_update_that_trains_on_fewer_tokens_gives_no_ratio_although_the_rollouts_agree(parts):
    first, second = [iteration()] * 5, [iteration(trained=90)] * 5
    assert "ratio" in parts.protocol.speed_ratio(first, second, "rollout")
    assert "refused" in parts.protocol.speed_ratio(first, second, "update")
    assert "refused" in parts.protocol.speed_ratio(first, second, "iteration")
    assert "refused" in parts.protocol.share_of([1.0], [1.0], (first, second))


def test_the_penalty_is_normalised_by_tokens(parts):
    plain = [iteration(2.0, 100)] * 5
    assert parts.protocol.penalty([iteration(4.0, 200)] * 5, plain, "iteration")["ratio"] == 1.0
    assert parts.protocol.penalty([iteration(6.0, 200)] * 5, plain, "iteration")["ratio"] == pytest.approx(1.5)


@pytest.mark.parametrize(("ours", "theirs"), [(4, 6), (6, 4), (2, 2)])
def test_no_ratio_of_times_comes_from_fewer_than_five_repeats_of_a_side_and_it_says_how_to_get_them(
    parts, ours, theirs
):
    rules, sides = parts.protocol, ([iteration()] * ours, [iteration()] * theirs)
    alike = [[iteration()] * min(ours, theirs)] * 2
    for found in (rules.speed_ratio(*alike, "rollout"), rules.penalty(*sides, "update")):
        assert set(found) == {"refused"}
        assert f"from {min(ours, theirs)} timed repeats" in found["refused"] and "--repeats 3" in found["refused"]
    found = rules.start_share([1.0] * ours, [1.0] * theirs, ([iteration()] * 6, [iteration()] * 6))
    assert f"from {min(ours, theirs)} starts" in found["refused"] and "--starts 5" in found["refused"]


def test_the_advice_of_a_refusal_is_enough(parts):
    told = re.search(r"--repeats (\d+)", parts.protocol.too_few(4))
    assert parts.protocol.too_few(parts.speed.PASSES * int(told[1])) is None
    assert all(preset.repeats * parts.speed.PASSES >= parts.protocol.LEAST for preset in parts.presets.PRESETS.values())
    assert parts.speed.STARTS >= parts.protocol.LEAST


# ---- exactness ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "largest", "limit", "refused"),
    [
        (1e-7, 9e-4, 1e-3, False),
        (2e-3, 2e-3, 1e-3, True),
        (1e-5, 2e-3, 1e-3, True),  # one token is wrong
        (float("nan"), 0.0, 1e-3, True),
        (2e-2, 9e-2, None, False),  # bf16
    ],
)
def test_no_speed_counts_where_the_sampler_and_the_update_are_not_the_same_policy(parts, gap, largest, limit, refused):
    rules = parts.protocol
    ours, theirs = [iteration()] * 4 + [noted(gap, largest, limit)], [iteration()] * 5
    for found in (
        rules.speed_ratio(ours, theirs, "rollout"),
        rules.penalty(theirs, ours, "rollout"),
        rules.share_of([1.0], [1.0], (ours, theirs)),
        rules.start_share([1.0] * 5, [1.0] * 5, (ours, theirs)),
    ):
        assert ("refused" in found) == refused
        assert not refused or "not the same policy" in found["refused"]


def test_the_difference_of_log_probabilities_is_printed_with_its_limit(parts):
    runs = {
        "ours/meta": [process(*[noted(1e-7, 4e-6)] * 3)] * 2,
        "ours/rl": [process(noted(0.01, 0.05, None))],
        "lockstep/meta": contender(2.0),
    }
    lines = [line for line in parts.report.text(result(parts, runs)).splitlines() if "as sampled and as scored" in line]
    assert len(lines) == 2 and "differs by 1.0e-07, at most 4.0e-06 (limit 0.001)" in lines[0]
    assert "no limit under bf16" in lines[1]


# ---- other jobs --------------------------------------------------------------------------------------------------


def test_what_was_measured_beside_another_job_is_named(parts):
    quiet = {"ours/meta": [process(iteration(), place=0, load=1.9), process(iteration(), place=3, load=2.3)]}
    assert "WARNING" not in parts.report.text(result(parts, quiet))
    unknown = {"ours/meta": [process(iteration(), load=None)]}
    assert "WARNING" not in parts.report.text(result(parts, unknown, loads={"the end": None}))
    busy = quiet | {"trl/single": [process(iteration(), place=1, load=4.2), {"error": "x", "place": 2, "load": 3.1}]}
    text = parts.report.text(result(parts, busy, loads={"the environments": 3.4, "the end": 0.0}))
    warning = next(line for line in text.splitlines() if line.startswith("WARNING: another job was running"))
    assert "measure again" in warning and "2 threads in use" in warning
    assert "process 2 (TRL GRPOTrainer, single turn) 4.2, process 3 (TRL GRPOTrainer, single turn) 3.1, " in warning
    assert warning.endswith("the environments 3.4.") and "metarl_agents" not in warning


def test_the_load_is_taken_before_each_process(parts, monkeypatch):
    loads = iter((0.5, 1.5))
    happened = []
    monkeypatch.setattr(parts.protocol.os, "getloadavg", lambda: happened.append("load") or (next(loads), 9.0, 9.0))

    def launch(kind, **settings):
        happened.append("process")
        return process(iteration())

    runs = parts.speed.run_all(["ours/meta"], {"ours": 512}, launch)
    assert happened == ["load", "process"] * 2 and [run["load"] for run in runs["ours/meta"]] == [0.5, 1.5]


def test_a_machine_that_knows_no_load_is_measured_all_the_same(parts, monkeypatch):
    monkeypatch.delattr(parts.protocol.os, "getloadavg")
    assert parts.protocol.load() is None


# ---- goals -------------------------------------------------------------------------------------------------------


def test_a_goal_is_met_or_missed_by_the_median_and_doubted_where_a_repeat_says_otherwise(parts):
    def verdict(ratio, low, high, **goal):
        return parts.goals._verdict({"ratio": ratio, "low": low, "high": high}, **goal)

    assert verdict(2.0, 2.0, 3.0, bound=2.0, at_least=True) == "met"
    assert verdict(2.1, 1.9, 3.0, bound=2.0, at_least=True) == "met, not beyond doubt"
    assert verdict(1.9, 1.5, 1.99, bound=2.0, at_least=True) == "missed"
    assert verdict(1.9, 1.5, 2.5, bound=2.0, at_least=True) == "missed, not beyond doubt"
    assert verdict(0.7, 0.6, 0.7, bound=0.7, at_least=False) == "met"
    assert verdict(0.8, 0.6, 0.9, bound=0.7, at_least=False) == "missed, not beyond doubt"
    assert verdict(1.4, 1.0, 2.0, bound=None, at_least=False) == "measured"


def full(**changes):
    """Everything that goals compare."""
    return {
        "ours/meta": contender(2.0),
        "lockstep/meta": contender(5.0),
        "ours/rl": contender(1.0, 60),
        "lockstep/rl": contender(2.5),
        "ours/single": contender(2.0, starts=[7.0] * 4),
        "trl/single": contender(2.4, starts=[20.0] * 4),
    } | changes


def test_every_goal_is_judged_in_plain_words_or_left_out_with_a_reason(parts):
    extras = {name: {"ratio": {"ratio": 0.9, "low": 0.8, "high": 0.93, "repeats": 6}} for name in parts.report.EXTRAS}
    compared = parts.report.compare(full(), extras)
    goals, left_out = parts.goals.judge(compared, "cpu")
    verdicts = {found["number"]: found["verdict"] for found in goals}
    assert verdicts == {
        "G1": "met",  # 2.5, at least 2
        "G2": "met",
        "G3": "missed",  # 1.2, at least 1.5
        "G5": "missed",  # (2 / 100) / (1 / 60) = 1.2, at most 1.15
        "G7": "measured",
        "G10": "met, not beyond doubt",  # 7 / 20, but two of six processes took 9 and 9
        "G11": "missed",  # 1.0, at most 0.7
        "G12": "missed",  # 0.9, at least 0.95
        "G13": "met, not beyond doubt",  # 0.9, at least 0.9
    }
    named = [found["number"] for found in goals] + [re.match(r"goal (G\d+) \(\w", name)[1] for name in left_out]
    assert sorted(named, key=lambda number: int(number[1:])) == [f"G{number}" for number in range(1, 14)]
    assert all(reason.startswith("because ") for reason in left_out.values())
    assert all(len(found["goal"].split()) > 5 for found in goals)
    text = parts.report.text(result(parts, full(), extras=extras))
    row = next(line for line in text.splitlines() if line.startswith("| G1: tokens a second of meta-RL's rollout"))
    assert row.endswith("| at least 2 | 2.50 [2.50, 2.50] of 6 timed repeats | met |")
    assert "| at most 0.7 | 0.35 [0.35, 1.00] of 6 starts | met, not beyond doubt |" in text
    assert "one request at a time, times as fast as plain `generate`): rollout 0.90 [0.80, 0.93] of 6 timed" in text
    assert "left out: goal G4 (speed of a whole meta-RL iteration" in text


def test_a_goal_whose_ratio_is_refused_is_not_judged_and_one_that_did_not_run_is_left_out(parts):
    runs = full(**{"lockstep/meta": contender(5.0, 90)})
    del runs["trl/single"], runs["ours/rl"]
    goals, left_out = parts.goals.judge(parts.report.compare(runs), "gpu")
    assert {found["number"]: found["verdict"] for found in goals} == {
        "G1": "not judged",
        "G2": "not judged",
        "G7": "measured",
    }
    absent = {name.split()[1] for name, reason in left_out.items() if reason == "because what it compares did not run"}
    assert absent == {"G3", "G5", "G10", "G11", "G12", "G13"}


def test_every_goal_has_a_bound_for_every_preset_and_points_at_what_is_compared(parts):
    ratio = {"ratio": 1.0, "low": 1.0, "high": 1.0, "repeats": 6}
    compared = parts.report.compare(full(), {name: {"ratio": ratio} for name in parts.report.EXTRAS})
    for number, goal in parts.goals.GOALS.items():
        assert set(goal.bounds) == set(parts.presets.PRESETS)
        assert set(goal.parts) & set(compared[goal.kind][goal.pair]), number


def test_the_memory_of_updates_is_judged_alone_where_a_gpu_tells_it(parts):
    def peaks(rollout, update):
        return {"peak_gib": {"rollout": rollout, "update": update}}

    runs = {"ours/single": contender(2.0, **peaks(9.0, 2.0)), "trl/single": contender(2.0, **peaks(6.0, 5.0))}
    compared = parts.report.compare(runs)
    costs = compared["cost"]["ours/single : trl/single"]
    assert costs["peak memory"]["ratio"] == 9 / 6 and costs["peak memory of the update"]["ratio"] == 2 / 5
    goals, _ = parts.goals.judge(compared, "gpu")
    assert {found["number"]: found["verdict"] for found in goals}["G11"] == "met"


# ---- the report --------------------------------------------------------------------------------------------------


def test_the_report_gives_ratios_penalties_and_costs(parts):
    runs = {
        "ours/meta": contender(2.0),
        "lockstep/meta": contender(5.0),
        "ours/rl": contender(1.0, 50),
        "ours/single": [*contender(2.0), *(process(first_update_s=taken) for taken in (7.0, 8.0, 8.0, 8.0))],
        "trl/single": [*contender(2.0), *(process(first_update_s=taken) for taken in (16.0, 12.0, 12.0, 12.0))],
    }
    compared = parts.report.compare(runs)
    assert compared["speed"]["ours/meta : lockstep/meta"]["rollout"]["ratio"] == 2.5
    assert compared["penalty"]["ours"]["iteration"]["ratio"] == 1.0
    assert compared["cost"]["ours/single : trl/single"]["first update"]["ratio"] == 8.0 / 12.0
    assert "first update" not in compared["cost"]["ours/meta : lockstep/meta"]
    assert parts.report.refusals(compared) == []
    environments = {"two_doors": parts.environments.measure_one("two_doors", 3), "x": {"left_out": "no files"}}
    text = parts.report.text(
        result(parts, runs, environments=environments, left_out={"trl/single": "because trl is not installed"})
    )
    assert "2.50 [2.50, 2.50] of 6 timed repeats" in text
    assert "8 rows a micro-batch, the fastest of 4 (3.00 s), 8 (2.00 s), 16" in text
    assert "| two_doors |" in text and "left out: trl/single, because trl is not installed" in text
    assert "10 % / 25 %" in text and "1.50 (+0.50 since loaded)" in text
    assert "peak memory 1.00 [1.00, 1.00] of 2 processes" in text


def test_a_report_without_equal_tokens_or_with_a_failure_has_no_ratio_and_says_so(parts):
    runs = {
        "ours/meta": contender(2.0),
        "lockstep/meta": contender(2.0, 90),
        "ours/single": contender(2.0),
        "trl/single": [process(iteration()), {"error": "RuntimeError: no kernel", "place": 4, "load": 0.1}],
    }
    found = result(parts, runs)
    refused = parts.report.refusals(found["compared"])
    assert len(refused) == (3 + 1) + (3 + 2) and all("ratio" not in line.split(":")[-1] for line in refused)
    text = parts.report.text(found)
    assert "refused, because their token counts differ by 10.0 %" in text
    assert "failed: RuntimeError: no kernel" in text
