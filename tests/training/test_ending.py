"""Honest endings: a run that learned nothing says so and why, and nothing that was saved is lost."""

import re
from pathlib import Path

import pytest
import torch
from training_helpers import AlwaysOne, Coin, metrics_of, open_run, run_training, small_policy

from metarl_agents.cli import NOTHING_LEARNED, read_yaml, run_cli
from metarl_agents.config import Config
from metarl_agents.errors import NonFiniteError
from metarl_agents.evaluation import format_table
from metarl_agents.policy.loading import load_policy
from metarl_agents.training.dry_run import describe_run
from metarl_agents.training.ending import CRASHED, EQUAL, NON_FINITE, PATIENCE, TOO_LONG, verdict
from metarl_agents.training.report import report, run_and_report
from metarl_agents.training.warm_start import WarmStartConfig, warm_start

ROOT = Path(__file__).parents[2]


class LongStart(Coin):
    """A first page that no limit of these tests holds."""

    def reset(self, *, seed):
        super().reset(seed=seed)
        return "Choose one. " * 90, {}


class LongLater(Coin):
    """Only pages after the first action are too long; until there nothing is earned."""

    def step(self, action):
        won = super().step(action)
        return won._replace(observation="so " * 300, reward=0.0, terminated=False, info={})


class Gone(Coin):
    def step(self, action):
        raise OSError("the game server is gone")


CAUSES = {
    "too_long": (LongStart, TOO_LONG, r"prompts did not fit `max_prompt_tokens` 200 .the longest has \d{3,}."),
    "later": (LongLater, TOO_LONG, r"prompts did not fit `max_prompt_tokens` 200 .the longest has \d{3,}."),
    "crashed": (Gone, CRASHED, "the environment or an opponent failed .2 steps.; the errors stand in trajectories"),
    "equal": (AlwaysOne, EQUAL, "all groups had equal reward .2 steps.; easier or harder tasks"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_run_that_trained_nothing_says_so_with_the_true_cause(tmp_path, capsys, name):
    make_env, cause, reason = CAUSES[name]
    result = run_training(tmp_path / "run", make_env, invalid_action_penalty=0.0)
    assert not result.learned and result.steps == 2
    assert re.match(f"Nothing was trained: none of 2 steps took an update. Reason: {reason}", result.ending)
    said = capsys.readouterr().out
    assert said.count(result.ending) == 1 and report(result).splitlines()[-1] == f"Ending:       {result.ending}"
    assert ("all groups have equal reward" in said) == (cause == EQUAL)


@pytest.mark.parametrize(("make_env", "played"), [(LongStart, 0), (LongLater, 1)])
def test_prompts_that_do_not_fit_are_counted_and_the_first_step_says_how_long_they_are(
    tmp_path, capsys, make_env, played
):
    result = run_training(tmp_path / "run", make_env, policy=small_policy(model=None), max_steps=1)
    metrics = metrics_of(result.output_dir)[1]
    assert metrics["prompt/too_long_ratio"] == 1.0 and metrics["turns/mean"] == played
    assert metrics["reflection/too_long_ratio"] == 1.0 and metrics["prompt/max_length"] > 200
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Step 1: " in line]
    assert f"longest prompt has {int(metrics['prompt/max_length'])} tokens even without history" in line
    assert "100.0% of episodes ended because a prompt did not fit" in line and "of reflections were left out" in line
    assert "the model's context of 256 tokens leaves 253" in line  # no advice that cannot be followed
    assert result.after.meta["too_long"].startswith("100.0% of episodes ended because a prompt did not fit 200 tokens")
    assert result.after.meta["too_long"] in " ".join(format_table([result.after]).split())


def test_where_prompts_fit_nothing_is_counted_and_a_run_that_learned_ends_without_a_word(tmp_path):
    result = run_training(tmp_path / "run")
    assert result.learned and result.ending == "" and "Ending" not in report(result)
    for metrics in metrics_of(result.output_dir).values():
        assert metrics["prompt/too_long_ratio"] == metrics["reflection/too_long_ratio"] == 0
        assert 0 < metrics["prompt/max_length"] <= 200 and metrics["num_rows"] > 0


def test_a_dry_run_warns_of_prompts_that_do_not_fit():
    text = describe_run(Config.from_flat({"max_turns": 2, "max_new_tokens_per_turn": 8}), LongStart)
    assert "Warning" not in text and re.search(r"Prompt: +at most \d+ tokens a turn; \d+ to \d+ seen here", text)
    short = {"max_turns": 2, "max_new_tokens_per_turn": 8, "max_prompt_tokens": 60}
    text = describe_run(Config.from_flat(short), LongStart)
    (line,) = [line for line in text.splitlines() if line.startswith("Warning")]
    (count,) = re.findall(r"first prompt \((\d+) tokens\)", line)
    assert int(count) > 60 and "`max_prompt_tokens` is 60" in line and "raise `--max_prompt_tokens`" in line
    assert f"First prompt ({count} tokens, more than max_prompt_tokens 60: does not fit)" in text


def weights_of_folder(folder):
    policy = load_policy(Config.from_flat({"model_name_or_path": str(folder)}).model)
    return [parameter for parameter in policy.model.parameters()]


def test_a_step_that_ruins_the_weights_ends_the_run_and_is_not_saved(tmp_path, capsys):
    result = run_training(tmp_path / "run", learning_rate=1e30, weight_decay=1e10, max_steps=5, save_steps=1)
    assert not result.learned and result.steps == 1 and result.after is None and not result.interrupted
    assert "Training stopped after step 1: the policy's weights or outputs are no longer finite." in result.ending
    assert "start again with a lower `--learning_rate` than 1e+30" in result.ending
    assert result.ending in capsys.readouterr().out
    assert not list(result.output_dir.glob("checkpoint-*")) and not list(result.output_dir.glob("*.safetensors"))
    assert "Model:" not in report(result) and result.ending in report(result)


class Poisoned(Coin):
    """Puts a NaN among the weights when its 20th trial begins, in the third step."""

    policy, resets = None, 0

    def reset(self, *, seed):
        Poisoned.resets += 1
        if Poisoned.resets == 24:
            with torch.no_grad():
                next(self.policy.model.parameters())[:] = torch.nan
        return super().reset(seed=seed)


@pytest.fixture
def poisoned(tmp_path, monkeypatch):
    policy = small_policy()
    monkeypatch.setattr(Poisoned, "policy", policy)
    monkeypatch.setattr(Poisoned, "resets", 0)
    return run_training(tmp_path / "run", Poisoned, policy, max_steps=9, save_steps=1, save_total_limit=1)


def test_outputs_that_are_no_numbers_end_the_run_in_a_sentence_and_the_last_checkpoint_stays(poisoned):
    assert not poisoned.learned and poisoned.after is None
    kept = list(poisoned.output_dir.glob("checkpoint-*"))
    assert [folder.name for folder in kept] == [f"checkpoint-{poisoned.steps}"] and 1 <= poisoned.steps < 9
    assert "the model's outputs are no finite numbers, so nothing can be sampled" in poisoned.ending
    assert (
        f"{kept[0]} holds the last weights" in poisoned.ending and "--resume_from_checkpoint latest" in poisoned.ending
    )
    assert all(bool(weight.isfinite().all()) for weight in weights_of_folder(kept[0]))
    again = run_training(poisoned.output_dir, policy=small_policy(), max_steps=4, resume_from_checkpoint="latest")
    assert (
        again.learned
        and again.steps == 4
        and all(bool(w.isfinite().all()) for w in weights_of_folder(again.output_dir))
    )


def test_gradients_that_stay_without_finite_numbers_stop_the_run_and_keep_earlier_checkpoints(tmp_path, capsys):
    result = run_training(tmp_path / "run", learning_rate=1e30, max_steps=50, save_steps=1, save_total_limit=1)
    assert not result.learned and result.steps == 1 + PATIENCE
    assert "Nothing was learned after step 1. Reason: the gradient was not finite (10 steps)" in result.ending
    assert (result.output_dir / "checkpoint-1").is_dir()
    assert capsys.readouterr().out.count("the gradient is not finite, so the optimizer step was skipped") == 1
    metrics = metrics_of(result.output_dir)
    assert [step["update/non_finite"] for step in metrics.values()] == [0.0] + [1.0] * PATIENCE


@pytest.mark.parametrize(
    ("step", "updates", "last", "learned", "sentence"),
    [
        (100, 60, {EQUAL: 40}, True, "40 of 100 steps took no update. Reason: all groups had equal reward (40 steps)"),
        (100, 60, {CRASHED: 40}, False, "Nothing was learned after step 60. Reason: the environment"),
        (100, 99, {CRASHED: 1}, True, "1 of 100 steps took no update."),
        (100, 97, {NON_FINITE: 3}, False, "Nothing was learned after step 97."),
        (100, 99, {NON_FINITE: 1}, True, "1 of 100 steps took no update."),
        (2, 1, {NON_FINITE: 1}, False, "Nothing was learned after step 1."),
        (100, 80, {NON_FINITE: 3, EQUAL: 17}, False, "Nothing was learned after step 80."),
        (100, 60, {CRASHED: 11, EQUAL: 29}, True, "40 of 100 steps took no update."),
        (4, 0, {EQUAL: 1, TOO_LONG: 3}, False, "Nothing was trained: none of 4 steps took an update. Reason: prompts"),
        (0, 0, {}, True, ""),
    ],
)
def test_the_verdict(tmp_path, step, updates, last, learned, sentence):
    run = open_run(tmp_path / "run")
    run.progress.step, run.progress.optimizer_steps = step, updates
    run.progress.idle, run.progress.idle_since_update = dict(last), dict(last)
    found, said = verdict(run)
    assert found is learned and said.startswith(sentence) and bool(said) == bool(sentence)


def test_what_steps_taught_is_remembered_over_a_resume(tmp_path):
    first = run_training(tmp_path / "run", AlwaysOne, max_steps=2, save_steps=1)
    again = run_training(tmp_path / "run", AlwaysOne, max_steps=3, resume_from_checkpoint="latest")
    assert "none of 2 steps" in first.ending and "none of 3 steps" in again.ending


@pytest.mark.parametrize(("settings", "status"), [({}, 0), ({"max_prompt_tokens": 5}, NOTHING_LEARNED)])
def test_the_exit_status_of_a_recipe_tells_a_run_that_learned_nothing(tmp_path, capsys, settings, status):
    values = read_yaml(ROOT / "recipes" / "configs" / "minesweeper" / "tiny.yaml")
    values |= {"max_turns": 2, "group_size": 4, "tasks_per_step": 4, "max_steps": 1, "eval_tasks": 2, "eval_samples": 0}
    values |= {"num_episodes": 1, "report_to": ["none"], "output_dir": str(tmp_path / "run")}
    config = Config.from_flat(values | settings)
    with pytest.raises(SystemExit) as left:
        run_cli(lambda: run_and_report(config))
    assert left.value.code == status
    assert ("Nothing was trained" in capsys.readouterr().out.splitlines()[-1]) == (status != 0)


def test_a_warm_start_with_too_high_a_rate_is_refused_in_a_sentence():
    policy = small_policy()
    rows = [((1, 2, 3), (4, 5)), ((2, 3), (6, 7, 8))]
    with pytest.raises(
        NonFiniteError, match="the loss of step . of the warm start is (nan|inf): lower its learning rate"
    ):
        warm_start(policy, rows, WarmStartConfig(steps=5, batch_size=2, learning_rate=1e30, warmup_steps=1))
