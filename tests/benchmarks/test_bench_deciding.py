"""A key moves exactly when a setting changes that matters: each rule both ways, and against the code it speaks of."""

import sys
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("benchmarks", "tests/advantages", "tests/training")]

from bench import cells, deciding  # noqa: E402
from bench.cells import decides_evaluation, decides_training, key_of  # noqa: E402
from bench.deciding import EVALUATION, TRAINING, launched  # noqa: E402
from bench_samples import other_value  # noqa: E402
from training_helpers import micro, plain, scores  # noqa: E402
from trial_builder import random_trials  # noqa: E402

from metarl_agents.addresses import ESTIMATOR, RETURN_MODE  # noqa: E402
from metarl_agents.advantages import RunningMean  # noqa: E402
from metarl_agents.cli import coerce, read_yaml, settings  # noqa: E402
from metarl_agents.config import Config, CreditConfig  # noqa: E402
from metarl_agents.envs.factory import environment_factory  # noqa: E402
from metarl_agents.errors import ConfigError  # noqa: E402
from metarl_agents.rollout.runner import TrialRunner  # noqa: E402
from metarl_agents.training.credit import assign_credit, needs_values, tabulate  # noqa: E402
from metarl_agents.training.demonstrations import demonstrate  # noqa: E402
from metarl_agents.training.loss import policy_gradient_loss  # noqa: E402
from metarl_agents.types import Response  # noqa: E402

FLAT = Config.from_flat(coerce(read_yaml(ROOT / "recipes/configs/minesweeper/tiny.yaml"))).flat()
FLAT |= {"max_steps": 4, "eval_steps": 8, "memory": "reflection"}
VALIDATED = {"eval_steps": 2}
UNTOUCHED = ("env", "tasks")  # both must name something that is there


def training_key(**changes):
    return key_of(decides_training(Config.from_flat(FLAT | changes)))


def evaluation_key(train_key=None, **changes):
    config = Config.from_flat(FLAT | changes)
    return key_of(decides_evaluation(config, agent="policy", split="test", train_key=train_key))


def moves(key, name, **context):
    """Whether another value of a setting gives another key, the others being as `context` says."""
    value = (FLAT | context)[name]
    changed = other_value(*settings()[name], value)
    if name == "eval_steps":  # between values that validate, or values that do not
        changed = value - 1
    return key(**context | {name: changed}) != key(**context)


# ---- each rule, both ways ------------------------------------------------------------------------------------------

LORA = dict.fromkeys(("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"), ({"use_peft": True}, {}))
CRITIC = dict.fromkeys(("critic", "critic_learning_rate", "value_clip"), ({"advantages": "ppo"}, {}))
GROWN = ({"opponents": ["cycle"]}, {})
ONE = {"num_episodes": 1}
GREEDY = {"eval_temperature": 0.0}
WHEN = {
    **LORA,
    **CRITIC,
    **dict.fromkeys(("clip_low", "clip_high"), ({"updates_per_batch": 2}, {"updates_per_batch": 1})),
    "anchor_scope": ({"advantages": "gigpo"}, {"advantages": "gigpo"} | ONE),
    "reference": ({"beta": 0.1, "use_peft": True}, {"use_peft": True}),
    "anchor_visits": ({"advantages": "gigpo"} | ONE, {"advantages": "rloo"}),
    **dict.fromkeys(("step_weight", "norm"), ({"advantages": "gigpo"}, {"advantages": "rloo"})),
    **dict.fromkeys(("episode_score", "credit_unit"), ({"advantages": "reinforce"}, {"advantages": "ppo"})),
    "normalise_by_role": ({"advantages": "grpo"}, {"advantages": "ppo"}),
    "gae_lambda": ({"advantages": "ppo"}, {"advantages": "gigpo"}),
    "gamma_step": ({}, None),  # all shipped return modes discount, and an estimator of one's own may read the table's
    "gamma_traj": ({}, {"return_mode": "single"}),
    **dict.fromkeys(("memory", "stop_on_success", "max_remark_chars"), ({}, ONE)),
    "penalty_scope": ({"invalid_action_penalty": 0.5}, {"invalid_action_penalty": 0.0, "length_penalty": 1.0}),
    **dict.fromkeys(("eval_steps", "eval_validation_tasks", "load_best_model_at_end"), (VALIDATED, {})),
    "metric_for_best_model": (VALIDATED | {"load_best_model_at_end": True}, VALIDATED),
    **dict.fromkeys(("eval_temperature", "eval_repetition_penalty"), (VALIDATED, {"eval_steps": 0})),
    **dict.fromkeys(("eval_top_p", "eval_top_k", "eval_min_p"), (VALIDATED, VALIDATED | GREEDY)),
    **dict.fromkeys(("population_rule", "opponent_grouping"), GROWN),
    "snapshot_limit": ({"snapshot_every": 3}, {"opponents": ["cycle"]}),
}
"""Setting -> other settings beside which it matters to a training, and beside which it does not."""
ALSO_IDLE = {
    "anchor_scope": [{"advantages": "rloo"}],
    "gamma_traj": [ONE],
    "eval_temperature": [VALIDATED | {"eval_validation_tasks": 0}, {"opponents": ["cycle"]}],
    "eval_top_p": [{}, {"snapshot_every": 3} | GREEDY],
    "load_best_model_at_end": [VALIDATED | {"eval_validation_tasks": 0}],
}
ALSO_MATTERS = {
    "gamma_traj": [ONE | {"return_mode": "test_bench_deciding:discounting"}],
    "eval_temperature": [{"snapshot_every": 3}, {"opponents": ["self"]}, {"opponents": ["model:a/b=2"]}],
    "eval_repetition_penalty": [VALIDATED | GREEDY],
    "eval_top_k": [{"snapshot_every": 3}],
    "population_rule": [{"snapshot_every": 3}],
    "credit_unit": [{"advantages": name} for name in ("gigpo", "grpo", "rloo", "test_bench_deciding:blind")],
    "anchor_scope": [{"advantages": "test_bench_deciding:blind"}],
    "critic": [{"advantages": "test_bench_deciding:critical"}],
    "gae_lambda": [{"advantages": "test_bench_deciding:lambda_too"}],
    "step_weight": [{"return_mode": "test_bench_deciding:weighted"}],
    "norm": [{"advantages": "no_such_module:function"}],  # nothing is known of it, so everything counts
}


def blind(table):
    return table.returns


def critical(table):
    return table.returns - table.values


critical.reads_values = True


def lambda_too(table, *, gae_lambda):
    return gae_lambda * table.returns


def discounting(rewards, episode, is_reflection, *, gamma_traj):
    return gamma_traj * rewards


def weighted(rewards, episode, is_reflection, *, step_weight):
    return step_weight * rewards


def test_every_rule_is_tried_both_ways():
    assert set(WHEN) == set(TRAINING) - {"tasks"} and set(EVALUATION) - {"tasks"} <= set(WHEN)
    assert not set(TRAINING) & cells.IDLE and set(EVALUATION) <= set(cells.EVALUATED)


@pytest.mark.parametrize("name", WHEN)
def test_a_training_key_moves_with_a_setting_where_it_matters_and_only_there(name):
    matters, idle = WHEN[name]
    for context in (matters, *ALSO_MATTERS.get(name, ())):
        assert moves(training_key, name, **context), context
    for context in ([] if idle is None else [idle]) + ALSO_IDLE.get(name, []):
        assert not moves(training_key, name, **context), context


def test_a_setting_without_a_rule_always_moves_the_key_unless_it_is_idle():
    names = [name for name in settings() if name not in {*TRAINING, *UNTOUCHED}]
    assert [name for name in names if moves(training_key, name) == (name in cells.IDLE)] == []


@pytest.mark.parametrize("train_key", [None, "0" * 64])
def test_an_evaluation_key_moves_with_what_matters_to_an_evaluation(train_key):
    def key(**changes):
        return evaluation_key(train_key, **changes)

    cuts = ("eval_top_p", "eval_top_k", "eval_min_p")
    assert all(moves(key, name) and not moves(key, name, **GREEDY) for name in cuts)
    assert moves(key, "eval_repetition_penalty", **GREEDY)
    assert all(moves(key, name) and not moves(key, name, **ONE) for name in ("stop_on_success", "max_remark_chars"))
    assert moves(key, "memory", **ONE), "which memory there was is printed"


def test_validation_that_never_comes_is_no_validation_however_it_is_written():
    keys = [training_key(eval_steps=0), training_key(eval_steps=5), training_key(eval_steps=2, eval_validation_tasks=0)]
    assert len({*keys, training_key()}) == 1 and training_key(eval_steps=4) not in keys


def test_of_a_local_task_list_the_contents_count_and_not_the_folder(tmp_path):
    for name, text in (("a", '{"seed": 1}\n'), ("b", '{"seed": 1}\n'), ("c", '{"seed": 2}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tasks.jsonl").write_text(text)
    for key in (training_key, evaluation_key):
        a, b, c = (key(tasks=str(tmp_path / name / "tasks.jsonl")) for name in "abc")
        assert a == b != c and key(tasks="owner/list") not in (a, c, key(tasks="owner/other"))


def test_a_changed_default_reruns_only_what_it_changes():
    gigpo, ppo, rl = {}, {"advantages": "ppo"}, ONE
    before = [training_key(**row) for row in (gigpo, ppo, rl)]
    after = [training_key(**row, gae_lambda=0.9) for row in (gigpo, ppo, rl)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    after = [training_key(**row, gamma_traj=0.1) for row in (gigpo, ppo, rl)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, False, True]


def test_what_a_cell_keeps_holds_the_settings_that_do_not_matter_too():
    decides = decides_training(Config.from_flat(FLAT))
    assert set(decides["settings"]) >= {"lora_r", "gae_lambda", "eval_temperature", "clip_low"}
    assert key_of(decides | {"unheard_of": 1}) != key_of(decides)
    strange = decides | {"settings": {"lora_r": 3}}
    assert key_of(strange) != key_of(decides | {"settings": {"lora_r": 4}}), "no rule can be read: all counts"


# ---- rules against the code ----------------------------------------------------------------------------------------


def credit_of(config, num_episodes):
    """Return what training takes from credit, of several batches: advantages, and returns where a critic learns."""
    found, baseline = [], RunningMean()
    for seed in range(4):
        trials = random_trials(seed, num_groups=2, roles=2)
        for trial in trials:
            del trial.episodes[num_episodes:]
            if num_episodes == 1:
                trial.episodes[0].reflection = None
        table = tabulate(trials, config)
        if needs_values(config):
            table = table.with_values(torch.linspace(-1, 1, len(table)))
        credit = assign_credit(table, config, baseline, lambda values: values)
        found += [credit.advantages, *([table.returns] if needs_values(config) else [])]
    return torch.cat(found)


DISCOUNTS = ("gamma_step", "gamma_traj")
CREDIT = {item.name for item in fields(CreditConfig)} - {"advantages", "return_mode", *DISCOUNTS}
PAIRS = [("paper", name) for name in sorted(CREDIT)] + list(product(RETURN_MODE.names, DISCOUNTS))
IN_DOUBT = {("reinforce", "normalise_by_role")}
"""Roles of trials that are not compared may still decide in which order scores are added up."""


@pytest.mark.parametrize("estimator", ESTIMATOR.names)
@pytest.mark.parametrize("num_episodes", [1, 3])
def test_a_credit_setting_matters_exactly_where_it_changes_advantages(estimator, num_episodes):
    wrong = []
    for mode, name in PAIRS:
        config = CreditConfig(advantages=estimator, return_mode=mode)
        changed = replace(config, **{name: other_value(*settings()[name], getattr(config, name))})
        differs = not torch.equal(credit_of(config, num_episodes), credit_of(changed, num_episodes))
        context = {"advantages": estimator, "return_mode": mode, "num_episodes": num_episodes}
        if moves(training_key, name, **context) != (differs or (estimator, name) in IN_DOUBT):
            wrong.append((mode, name, differs))
    assert wrong == []


def test_with_one_update_a_batch_clip_ranges_have_no_say():
    def gradient(**ranges):
        given = scores([[-1.0, -0.5], [-2.0, -0.1]])
        policy_gradient_loss(given, micro([[0, 1], [1, 1]], [2.0, -3.0]), plain(**ranges))[0].backward()
        return given.logprobs.grad.tolist()

    assert gradient(clip_low=0.2, clip_high=0.2) == gradient(clip_low=0.0, clip_high=0.0) == gradient(clip_low=5.0)


def played(num_episodes, **changes):
    """Return all pages and answers of scripted trials."""
    flat = FLAT | {"num_episodes": num_episodes} | changes
    trial = Config.from_flat(flat).trial
    rows = demonstrate(
        environment_factory(trial), [1, 2, 3, 4], trial, lambda page: tuple(str(page).encode()), lambda text: (1,), 0,
        memory_mix=(trial.memory,),
    )  # fmt: skip
    return list(rows)


@pytest.mark.parametrize(("name", "value"), [("memory", "none"), ("stop_on_success", False), ("max_remark_chars", 3)])
def test_what_goes_from_one_episode_to_the_next_means_nothing_where_there_is_one(name, value):
    assert played(1, **{name: value}) == played(1)
    assert played(3, **{name: value}) != played(3)


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_where_a_penalty_goes_means_nothing_where_there_is_none(penalty):
    def earned(scope):
        changes = {"invalid_action_penalty": penalty, "penalty_scope": scope, "length_penalty": 1.0, "num_episodes": 1}
        trial = Config.from_flat(FLAT | changes).trial
        runner = TrialRunner(environment_factory(trial), 1, 0, trial, max_new_tokens=4)
        while not runner.done:
            runner.receive((1,), Response((1, 2, 3), "nothing to read"))
        return [(turn.reward, turn.row_penalty) for _, _, turn in runner.trial.rows()]

    assert (earned("return") == earned("row")) == (penalty == 0)


# ---- the launcher --------------------------------------------------------------------------------------------------


def test_precision_and_processes_of_the_launcher_decide_a_training_and_where_its_file_lies_does_not(tmp_path):
    def key(*words):
        return key_of(decides_training(Config.from_flat(FLAT), words))

    for name, precision in (("a", "bf16"), ("b", "bf16"), ("c", "'no'")):
        (tmp_path / f"{name}.yaml").write_text(f"mixed_precision: {precision}\nnum_processes: 8\nmachine_rank: 0\n")
    start = ("accelerate", "launch", "--config_file")
    a, b, c = (key(*start, str(tmp_path / f"{name}.yaml")) for name in "abc")
    flags = ("accelerate", "launch", "--mixed_precision", "bf16", "--num_processes")
    assert a == b == key(*flags, "8") == key(*flags, "8", "--main_process_port=29501") != c
    assert len({a, c, key(*flags, "4"), key(*flags[:2], "--multi_gpu", *flags[2:], "8"), key()}) == 5
    assert key() == training_key() and "launch" not in decides_training(Config.from_flat(FLAT))


def test_flags_win_over_the_launchers_file_and_what_nobody_says_is_left_to_the_machine():
    file = "recipes/accelerate_configs/zero2.yaml"
    told = launched(["accelerate", "launch", "--config_file", file, "--num_processes", "2"])
    assert (told["mixed_precision"], told["num_processes"], told["distributed_type"]) == ("bf16", 2, "DEEPSPEED")
    assert launched(["torchrun", "-n"]) == {
        "launcher": ["torchrun", "-n"],
        "mixed_precision": None,
        "num_processes": None,
    }
    with pytest.raises(ConfigError, match="nowhere.yaml"):
        launched(["accelerate", "launch", "--config_file", "nowhere.yaml"])


def test_lists_of_functions_name_functions_that_are_shipped():
    for names in (deciding.COMPARES_STEPS, deciding.DISCOUNTS, deciding.ROLELESS):
        assert names <= set(ESTIMATOR.names)
    assert set(RETURN_MODE.names) >= deciding.OWN_EPISODE_ONLY
