"""The comparison of methods: what it refuses, what it pools, and what it prints."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult, wilson_interval

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compare_runs.py"
sys.path.append(str(SCRIPT.parent))
SPEC = importlib.util.spec_from_file_location("compare_runs", SCRIPT)
compare_runs = importlib.util.module_from_spec(SPEC)
sys.modules["compare_runs"] = compare_runs
SPEC.loader.exec_module(compare_runs)

BASE = [0] * 4 + [None] * 36
OURS = [0] * 8 + [1] * 12 + [2] * 8 + [None] * 12


@pytest.fixture
def save(tmp_path):
    """Write a result with `solved_at` and return its path."""

    def write(name, solved_at, **changes):
        values = {
            "label": name,
            "env": "minesweeper",
            "env_kwargs": {"size": 6},
            "num_episodes": 3,
            "max_turns": 12,
            "memory": "both",
            "sampling": "temperature 0.7",
            "split": "test",
            "task_seeds": list(range(len(solved_at))),
            "solved_at": solved_at,
        }
        path = tmp_path / f"{name}.json"
        EvaluationResult(**(values | changes)).to_json(path)
        return str(path)

    return write


def groups(*texts):
    return [compare_runs.read_group(text) for text in texts]


def test_labels_and_paths_may_hold_equal_signs_and_commas(save, tmp_path):
    (tmp_path / "lr=1e-6").mkdir()
    path = save("lr=1e-6/a", BASE)
    group = compare_runs.read_group(f"GiGPO (N=1, G=24)={path}, {save('b', BASE)}")
    assert group.label == "GiGPO (N=1, G=24)" and len(group.results) == 2


@pytest.mark.parametrize("text", ["no sign", "=a.json", "label=", "label=a.json,,b.json"])
def test_a_group_without_label_or_file_is_refused(text):
    with pytest.raises(ConfigError, match="must be a label and files"):
        compare_runs.read_group(text)


def test_missing_and_doubled_files_are_refused(save):
    with pytest.raises(ConfigError, match="cannot read the evaluation result nowhere.json: No such file"):
        compare_runs.read_group("a=nowhere.json")
    path = save("a", BASE)
    with pytest.raises(ConfigError, match="names a file twice"):
        compare_runs.read_group(f"a={path},{path}")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"max_turns": 7}, "`max_turns` differs: .*a.json has 12, .*b.json has 7"),
        ({"sampling": "greedy"}, "`sampling` differs: .*'temperature 0.7', .*'greedy'"),
        ({"env_kwargs": {"size": 4}}, "`env_kwargs` differs"),
        ({"task_seeds": list(range(5, 45))}, r"`task_seeds` differs: .*40 tasks \(5 of them not in the other"),
    ],
)
def test_other_conditions_are_refused_by_name(save, change, sentence):
    pair = groups(f"a={save('a', BASE)}", f"b={save('b', BASE, **change)}")
    with pytest.raises(ConfigError, match=sentence):
        compare_runs.compare(pair)


def test_memory_may_differ_between_methods_but_not_within_one(save):
    a, b = save("a", BASE), save("b", BASE, memory="none")
    compare_runs.compare(groups(f"a={a}", f"b={b}"), resamples=10)
    with pytest.raises(ConfigError, match='`memory` differs: .*Runs of one method \\("c"\\)'):
        compare_runs.compare(groups(f"c={a},{b}"))


def test_equal_labels_are_refused(save):
    with pytest.raises(ConfigError, match="same label"):
        compare_runs.compare(groups(f"a={save('a', BASE)}", f"a={save('b', BASE)}"))


def test_runs_are_pooled_and_their_spread_stands_beside(save):
    paths = [save("a", OURS), save("b", BASE)]
    entry = compare_runs.compare(groups(f"ours={','.join(paths)}"), resamples=200)["groups"][0]
    assert (entry["pass@3"]["solved"], entry["pass@3"]["n"]) == (32, 80)
    assert entry["pass@3"]["interval"] == wilson_interval(32, 80)
    assert entry["pass@3"]["per_run"] == [0.7, 0.1]
    assert entry["pass@3"]["spread"]["std"] == pytest.approx(0.6 / 2**0.5)


def test_the_gain_of_several_runs_says_how_far_training_once_more_may_differ(save):
    one = f"one={save('a', OURS)}"
    equal = f"equal={save('b', OURS)},{save('c', OURS)}"
    uneven = f"uneven={save('d', OURS)},{save('e', [0] * 8 + [None] * 32)},{save('f', [0] * 8 + [1] * 32)}"
    entries = compare_runs.compare(groups(one, equal, uneven), resamples=2000)["groups"]
    single, same, far = (entry["gain_over_pass@1"]["pass@3"] for entry in entries)
    assert same["mean"] == single["mean"] == 0.5 and far["mean"] == pytest.approx((0.5 + 0.0 + 0.8) / 3)
    assert same["low"] == pytest.approx(single["low"], abs=0.03) and same["high"] == pytest.approx(
        single["high"], abs=0.03
    )
    assert far["low"] < 0.1 and far["high"] > 0.75, "runs from 0 to 0.8 stand behind this mean"


def test_a_run_stays_its_own_pair_when_its_gain_is_resampled(save):
    # Both runs gain exactly half of the tasks; drawn apart, a good last episode would meet a bad first one.
    weak = save("a", [1] * 20 + [None] * 20)
    strong = save("b", [0] * 20 + [1] * 20)
    entry = compare_runs.compare(groups(f"x={weak},{strong}"), resamples=2000)["groups"][0]
    gain = entry["gain_over_pass@1"]["pass@3"]
    assert gain["mean"] == 0.5 and gain["low"] > 0.3 and gain["high"] < 0.7


def test_differences_of_several_runs_are_over_runs_too(save):
    base = f"base={save('a', BASE)}"
    uneven = f"uneven={save('b', BASE)},{save('c', [0] * 40)},{save('d', BASE)}"
    (found,) = compare_runs.compare(groups(base, uneven), resamples=2000)["differences"]
    assert found["mean"] == pytest.approx(0.3) and found["low"] <= 0.0 and found["high"] > 0.55


def test_independent_attempts_of_several_runs_have_an_interval_over_tasks_and_runs(save):
    def sampled(name, tasks):
        samples = [[True] * 2] * tasks + [[False] * 2] * (40 - tasks)
        return save(name, BASE, first_episode_successes=samples, diversity_nats=tasks / 40, diversity_normalised=0.5)

    texts = [f"one={sampled('a', 20)}", f"equal={sampled('b', 20)},{sampled('c', 20)}"]
    texts += [f"uneven={sampled('d', 4)},{sampled('e', 36)}", f"sure={sampled('f', 40)},{sampled('g', 40)}"]
    entries = compare_runs.compare(groups(*texts), resamples=2000)["groups"]
    one, equal, uneven, sure = (entry["pass@1_independent"] for entry in entries)
    assert one["share"] == equal["share"] == uneven["share"] == 0.5
    width = {name: low_high[1] - low_high[0] for name, low_high in
             {"one": one["interval"], "equal": equal["interval"], "uneven": uneven["interval"]}.items()}  # fmt: skip
    assert width["equal"] == pytest.approx(width["one"], abs=0.05) and width["uneven"] > 2 * width["one"]
    assert sure["interval"][0] < 1.0 == sure["interval"][1], "no certainty from forty tasks"
    intervals = [entry["diversity"]["interval"] for entry in entries]
    assert intervals[0] is None and intervals[1] == [0.5, 0.5] and intervals[2] == [0.1, 0.9]
    assert {entry["diversity"]["samples"] for entry in entries} == {2}


def test_the_interval_of_diversity_without_the_tasks_is_the_lowest_and_the_highest_run_of_however_many(save):
    nats = [0.1, 0.4, 0.5, 0.5, 0.6, 0.9]
    alone = {"first_episode_successes": [[True, False]] * 40, "diversity_normalised": 0.5}
    files = ",".join(save(f"r{index}", BASE, diversity_nats=value, **alone) for index, value in enumerate(nats))
    (entry,) = compare_runs.compare(groups(f"six={files}"), resamples=200)["groups"]
    assert entry["diversity"]["interval"] == [0.1, 0.9] and not entry["diversity"]["over_tasks"]


def test_the_interval_of_diversity_is_over_tasks_where_every_run_kept_them(save):
    def sampled(name, nats, **changes):
        kept = {"diversity_nats": sum(nats) / 40, "diversity_normalised": 0.5, "diversity_by_task": nats} | changes
        return save(name, BASE, first_episode_successes=[[True, False]] * 40, **kept)

    half = [0.0, 0.6] * 20
    texts = [f"one={sampled('a', half)}", f"equal={sampled('b', half)},{sampled('c', half)}"]
    texts += [f"apart={sampled('d', [0.0] * 40)},{sampled('e', [0.6] * 40)}"]
    texts += [f"old={sampled('f', half)},{sampled('g', half, diversity_by_task=None)}"]
    texts += [f"crash={sampled('h', half)},{sampled('i', half, diversity_by_task=[None, *half[1:]])}"]
    texts += [f"never={sampled('j', [0.0] * 40)},{sampled('k', [0.0] * 40)}"]
    entries = compare_runs.compare(groups(*texts), resamples=2000)["groups"]
    one, equal, apart, old, crash, never = (entry["diversity"] for entry in entries)
    width = {name: found["interval"][1] - found["interval"][0] for name, found in
             {"one": one, "equal": equal, "apart": apart, "old": old, "crash": crash}.items()}  # fmt: skip
    assert one["nats"] == equal["nats"] == pytest.approx(0.3) and 0.1 < width["one"] < 0.25
    assert width["equal"] == pytest.approx(width["one"], abs=0.03) and width["apart"] == pytest.approx(0.6)
    assert (width["old"], old["over_tasks"]) == (0.0, False) and width["crash"] == pytest.approx(width["one"], abs=0.03)
    assert never["interval"][0] == 0.0 < never["interval"][1], "no certainty from forty tasks"


def test_gains_and_differences_are_paired_and_corrected(save):
    texts = [f"base={save('a', BASE)}", f"ours={save('b', OURS)}", f"again={save('c', OURS)}"]
    found = compare_runs.compare(groups(*texts), resamples=999)
    gain = found["groups"][1]["gain_over_pass@1"]["pass@3"]
    assert gain["mean"] == pytest.approx(0.5) and 0.3 < gain["low"] < 0.5 < gain["high"] < 0.7
    by_pair = {(entry["better"], entry["than"]): entry for entry in found["differences"]}
    strong, none = by_pair["ours", "base"], by_pair["again", "ours"]
    assert strong["k"] == 3 and strong["mean"] == pytest.approx(0.6)
    assert strong["p_value"] == pytest.approx(2 / 1000) and strong["p_holm"] == pytest.approx(3 * 2 / 1000)
    assert (none["mean"], none["low"], none["high"], none["p_holm"]) == (0.0, 0.0, 0.0, 1.0)


def test_methods_with_fewer_episodes_are_compared_at_what_all_played(save):
    single = save("a", [None if n else 0 for n in range(40)], num_episodes=1)
    pair = groups(f"single={single}", f"ours={save('b', OURS)}")
    found = compare_runs.compare(pair, resamples=50)
    assert [entry["k"] for entry in found["differences"]] == [1]
    row = next(line for line in compare_runs.report(pair, found, markdown=False).splitlines() if "single" in line)
    assert row.split()[-2:] == ["-", "-"]


def test_the_command_prints_markdown_and_writes_everything(save, tmp_path, capsys):
    samples = {"first_episode_successes": [[True, False]] * 40, "diversity_nats": 0.5, "diversity_normalised": 0.7}
    crash = {"crashed": [{"seed": 1, "error": "boom"}]}
    runs = f"{save('b', OURS, **samples)},{save('c', OURS, **samples, **crash)}"
    output = tmp_path / "results" / "x.json"
    arguments = ["--group", f"base={save('a', BASE)}", "--group", f"LaMer={runs}", "--output", str(output)]
    returned = compare_runs.main([*arguments, "--markdown", "--resamples", "200"])
    text = capsys.readouterr().out
    assert "| LaMer  |    2 | 80 | 20.0 [12.7, 30.0] | 50.0 [39.3, 60.7] | 70.0 [59.2, 78.9] |" in text
    assert "* LaMer: pass@3 minus its own pass@1: +50.0 points [" in text
    assert "* pass@3, LaMer minus base: +60.0 points [" in text and "(Holm = 0.010)" in text
    assert "20.0 to 20.0, sd 0.0" in text and "0.50 [0.50, 0.50] (70 %)" in text
    assert "LaMer: crashed episodes, counted as failed: 1 (seed 1: boom)" in text
    written = json.loads(output.read_text())
    assert written == json.loads(json.dumps(returned))
    assert written["groups"][1]["runs"][1]["solved_at"] == OURS
    assert written["settings"]["task_seeds"] == list(range(40))


def test_a_refusal_ends_the_command_with_its_sentence(save, capsys):
    with pytest.raises(SystemExit):
        compare_runs.main(["--group", f"a={save('a', BASE)}", "--group", f"b={save('b', BASE, max_turns=7)}"])
    assert "`max_turns` differs" in capsys.readouterr().err
