"""train(): survives its environments, logs what it says, and keeps evaluation apart from training."""

import math
import time

import pytest
import torch
from training_helpers import (
    SMALL,
    TOKENIZER,
    AlwaysOne,
    Coin,
    metrics_of,
    open_run,
    play,
    read_lines,
    run_training,
    same_weights,
    small_config,
    small_policy,
    weights_of,
)

from metarl_agents import train
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.training.credit import drop_crashed_groups
from metarl_agents.training.trainer import make_batch, sample_trials
from metarl_agents.types import StepResult

ALWAYS = {
    "pass@1", "pass@2", "episode_0/success", "episode_1/success", "reward", "reward_std", "frac_reward_zero_std",
    "entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "completions/mean_length", "completions/max_length",
    "completions/clipped_ratio", "turns/mean", "valid_action_ratio", "env/failure_rate", "gigpo/mean_group_size",
    "gigpo/singleton_frac", "reflection/length", "num_tokens", "sampling/logp_difference/mean",
    "sampling/logp_difference/max", "grad_norm", "update/skipped", "loss",
}  # fmt: skip
CLOCKED = {
    "learning_rate", "time/generate", "time/env", "time/train", "step_time", "rollout_step",
    "tokens_per_second/generate", "tokens_per_second/update",
}  # fmt: skip


class Moody(Coin):
    """Fails in about one of 20 steps: raises, hangs, or answers nonsense."""

    mood, calls = "raises", 0

    def step(self, action):
        Moody.calls += 1
        if Moody.calls % 20 == 3:
            if self.mood == "raises":
                raise OSError("the game server is gone")
            if self.mood == "hangs":
                time.sleep(60)
            reward = {"nan": math.nan, "none": None}[self.mood]
            return StepResult("so", reward, True, False, {})
        return super().step(action)


class Deaf(Coin):
    """Reads no answer, so that all trials of a group are the same, turn by turn."""

    def parse_action(self, text):
        return None


class Broken(Coin):
    def reset(self, *, seed):
        raise RuntimeError("no display")


@pytest.mark.parametrize("family", ["bloom", "opt"])
def test_adapters_on_a_model_with_dropout_play_and_learn_with_one_network(family, tmp_path):
    """Dropout under the families' own names, and OPT's layer drop."""
    random_model(family).save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    settings = SMALL | {"use_peft": True, "beta": 0.1, "max_steps": 1}
    result = train(Coin, model_name_or_path=str(tmp_path / "model"), output_dir=str(tmp_path / "run"), **settings)
    (step,) = metrics_of(result.output_dir).values()
    assert abs(step["kl"]) < 1e-6 and step["sampling/logp_difference/max"] < 1e-4


def random_model(family):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "bloom": {"n_layer": 2, "n_head": 4, "hidden_dropout": 0.3, "initializer_range": 0.3},
        "opt": {"num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "layerdrop": 0.5, "init_std": 0.3},
    }[family]
    sizes |= {"hidden_size": 32, "vocab_size": len(TOKENIZER), "attention_dropout": 0.3, "bos_token_id": None}
    ends = {"pad_token_id": TOKENIZER.pad_token_id, "eos_token_id": TOKENIZER.eos_token_id}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes, **ends))


def test_a_group_of_identical_trials_moves_no_weight(tmp_path):
    policy = small_policy()
    before = weights_of(policy.model)
    result = run_training(tmp_path / "run", Deaf, policy=policy, max_turns=7, memory="none", weight_decay=0.0)
    assert result.steps == 2
    assert same_weights(before, weights_of(policy.model))


@pytest.mark.parametrize("mood", ["raises", "hangs", "nan", "none"])
def test_a_run_survives_a_moody_environment_and_counts_its_failures(tmp_path, monkeypatch, capsys, mood):
    monkeypatch.setattr(Moody, "mood", mood)
    monkeypatch.setattr(Moody, "calls", 0)
    started = time.perf_counter()
    result = run_training(tmp_path / "run", Moody, max_steps=3, env_timeout_s=0.2)
    assert time.perf_counter() - started < 30
    assert result.steps == 3 and not result.interrupted
    rates = [metrics["env/failure_rate"] for metrics in metrics_of(result.output_dir).values()]
    assert 0 < sum(rates) / 3 < 0.5
    assert capsys.readouterr().out.count("the environment failed in") == 1
    records = read_lines(result.output_dir / "trajectories" / "train.jsonl")
    failed = [record for record in records if record["error"]]
    assert failed and all(record["episodes"][-1]["outcome"] == "crashed" for record in failed)


def test_the_group_of_a_crashed_trial_is_dropped_and_not_scored(tmp_path):
    run = open_run(tmp_path / "run", tasks_per_step=3)
    trials, _ = sample_trials(run, 0)
    trials[5].error = "OSError: gone"
    kept = drop_crashed_groups(trials)
    assert [trial.group for trial in kept] == [0] * 4 + [2] * 4
    batch, credit = make_batch(run, trials)
    expected, _ = make_batch(run, kept)
    assert len(batch) == sum(len(list(trial.rows())) for trial in kept) == len(credit.table)
    assert torch.equal(batch.advantages, expected.advantages)


def test_a_step_in_which_every_trial_crashes_moves_nothing(tmp_path):
    policy = small_policy()
    before = weights_of(policy.model)
    result = run_training(tmp_path / "run", Broken, policy)
    steps = metrics_of(result.output_dir)
    assert [m["env/failure_rate"] for m in steps.values()] == [1.0, 1.0]
    assert [m["update/skipped"] for m in steps.values()] == [1.0, 1.0]
    assert "pass@1" not in steps[1] and "reward" not in steps[1]
    assert same_weights(before, weights_of(policy.model))


@pytest.mark.parametrize("estimator", ["reinforce", "ppo"])
def test_a_step_without_rows_passes_through_every_kind_of_estimator(tmp_path, estimator):
    result = run_training(tmp_path / "run", Broken, advantages=estimator, beta=0.1)
    assert metrics_of(result.output_dir)[2]["update/skipped"] == 1.0


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logged") / "run"
    settings = {"max_steps": 3, "eval_steps": 2, "report_to": ["tensorboard"], "num_episodes": 2}
    return run_training(folder, **settings)


def test_the_promised_metrics_are_logged_at_every_step(logged):
    lines = [line for line in read_lines(logged.output_dir / "metrics.jsonl") if line["prefix"] == "train"]
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert (ALWAYS | CLOCKED) - set(line["metrics"]) == set()
        assert all(value is not None for value in line["metrics"].values())
    assert lines[0]["metrics"]["rollout_step"] == 1 and lines[0]["metrics"]["learning_rate"] == 1e-2


def test_the_clocks_add_up(logged):
    for line in read_lines(logged.output_dir / "metrics.jsonl"):
        if line["prefix"] == "train":
            m = line["metrics"]
            assert m["step_time"] == pytest.approx(m["time/generate"] + m["time/env"] + m["time/train"])
            assert min(m["time/generate"], m["time/env"], m["time/train"]) > 0


def test_evaluation_is_logged_apart(logged):
    validation = metrics_of(logged.output_dir, "eval")
    assert list(validation) == [2] and {"pass@1", "pass@2"} <= set(validation[2])
    assert list(metrics_of(logged.output_dir, "test")) == [0, 3]
    assert (
        "time/eval"
        in [x for x in read_lines(logged.output_dir / "metrics.jsonl") if x["prefix"] == "eval"][0]["metrics"]
    )


def test_what_a_run_leaves_behind(logged):
    names = {item.name for item in logged.output_dir.iterdir()}
    assert {"config.yaml", "versions.json", "metrics.jsonl", "trajectories", "eval", "model.safetensors"} <= names
    assert {"checkpoint-3", "tokenizer.json", "chat_template.jinja"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert not [name for name in names if name.startswith(".")]
    assert logged.before.step == 0 and logged.after.step == 3
    for result, name in ((logged.before, "before"), (logged.after, "after")):
        kept = EvaluationResult.from_json(logged.output_dir / "eval" / f"{name}.json")
        assert kept.meta.pop("date") and kept == result  # the file alone has a date


def test_conditional_metrics(tmp_path):
    settings = {"beta": 0.1, "advantages": "ppo", "max_steps": 1}
    metrics = metrics_of(run_training(tmp_path / "run", **settings).output_dir)[1]
    assert metrics["kl"] == pytest.approx(0, abs=1e-6) and metrics["value_loss"] > 0


def test_evaluation_does_not_move_the_training_stream(tmp_path):
    first, second = small_policy(), small_policy()
    quiet = run_training(tmp_path / "quiet", policy=first, eval_steps=0, max_steps=3)
    torch.manual_seed(99)
    busy = run_training(tmp_path / "busy", policy=second, eval_steps=1, max_steps=3, eval_samples=2)
    assert metrics_of(quiet.output_dir) == metrics_of(busy.output_dir)
    assert same_weights(weights_of(first.model), weights_of(second.model))
    assert len(metrics_of(busy.output_dir, "eval")) == 3 and not metrics_of(quiet.output_dir, "eval")


def test_training_leaves_torch_s_random_state_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run = open_run(tmp_path / "run")
    state = torch.get_rng_state()
    sample_trials(run, 0)
    assert torch.equal(torch.get_rng_state(), state) and expected.shape == (3,)


def test_every_evaluation_plays_the_same_tasks(tmp_path):
    seen = []

    class Noting(Coin):
        def reset(self, *, seed):
            seen.append(seed)
            return super().reset(seed=seed)

    run_training(tmp_path / "run", Noting, max_steps=3, eval_steps=1, num_episodes=1, eval_tasks=3)
    validation = [seed for seed in seen if 2**40 <= seed < 2**41]
    test = [seed for seed in seen if seed >= 2**41]
    training = [seed for seed in seen if seed < 2**40]
    assert validation == [2**40, 2**40 + 1] * 3
    assert test == [2**41, 2**41 + 1, 2**41 + 2] * 2
    assert len(set(training)) == 6 and len(training) == 24


def test_one_seed_decides_a_run_and_another_seed_changes_it(tmp_path):
    runs = [run_training(tmp_path / f"run{i}", seed=seed).output_dir for i, seed in enumerate((1, 1, 2))]
    one, again, other = map(metrics_of, runs)
    assert one == again != other


@pytest.mark.parametrize("memory", ["reflection", "trajectory", "both", "none"])
def test_memory_modes(tmp_path, memory):
    result = run_training(tmp_path / "run", memory=memory, max_steps=1)
    records = read_lines(result.output_dir / "trajectories" / "train.jsonl")
    retried = [record for record in records if len(record["episodes"]) > 1]
    assert retried
    reflects = memory in ("reflection", "both")
    for record in retried:
        first, second = record["episodes"]
        assert (first["reflection"] is not None) == reflects and second["reflection"] is None
        prompts = [episode["turns"][0]["prompt"] for episode in (first, second)]
        assert (prompts[0] == prompts[1]) == (memory == "none")
    assert ("reflection/length" in metrics_of(result.output_dir)[1]) == reflects


class SecondTry(Coin):
    """Nobody wins the first episode; the second pays by what is said."""

    def __init__(self):
        self.attempt = -1

    def reset(self, *, seed):
        self.attempt += 1
        return super().reset(seed=seed)

    def step(self, action):
        won = self.attempt == 1 and action == self.seed % 2
        return StepResult("so", 10.0 if won else 0.0, True, False, {"success": won})


@pytest.mark.parametrize("estimator", ["gigpo", "grpo", "rloo", "ppo", "reinforce"])
@pytest.mark.parametrize("mode", ["paper", "recursive"])
def test_a_win_in_the_second_episode_is_credited_to_the_first_by_gamma_traj(tmp_path, estimator, mode):
    first = {}
    for gamma in (0.0, 0.9):
        settings = {"advantages": estimator, "return_mode": mode, "gamma_traj": gamma, "invalid_action_penalty": 0}
        run = open_run(tmp_path / f"run{gamma}", SecondTry, **settings)
        batch, credit = play(run)
        assert (credit.table.reward > 0).any() and (credit.table.reward[credit.table.episode == 0] == 0).all()
        first[gamma] = batch.advantages[(credit.table.episode == 0) & ~credit.table.is_reflection]
    assert not torch.allclose(first[0.0], first[0.9])
    if estimator in ("grpo", "rloo"):
        assert not first[0.0].any() and first[0.9].any()


def test_nothing_is_copied_to_make_a_batch_even(tmp_path):
    """Seven rows in pieces of four: means are those of the trials, and the last piece is simply smaller."""
    run = open_run(tmp_path / "run", group_size=3, tasks_per_step=3)
    trials, _ = sample_trials(run, 0)
    batch, credit = make_batch(run, trials)
    turns = [turn for trial in trials for _, _, turn in trial.rows()]
    assert batch.prompts == [turn.prompt_ids for turn in turns]
    assert batch.responses == [turn.response.ids for turn in turns]
    assert credit.stats["gigpo/mean_group_size"][0] == len(turns) == len(batch)
    width = max(len(turn.prompt_ids) + len(turn.response.ids) for turn in turns)
    rows = list(range(7))
    assert len(turns) >= 7 and sum(map(len, batch.split(rows, 4 * width))) == 7


def test_settings_by_name_win_over_a_config_and_the_config_stays_as_it_was(tmp_path):
    config = small_config(max_steps=7, max_prompt_tokens=4000)
    result = train(AlwaysOne, config, policy=small_policy(), max_steps=1, output_dir=str(tmp_path / "run"))
    assert result.steps == 1
    assert config.run.max_steps == 7 and config.sampling.max_prompt_tokens == 4000


def test_wrong_settings_are_refused_before_anything_is_written(tmp_path):
    for settings, message in [
        ({"group_size": 1}, "needs at least 2"),
        ({"max_stepz": 3}, "Did you mean `max_steps`"),
        ({"learning_rate": "fast"}, "must be a number"),
        ({"temperature": 0}, "must explore"),
        ({"repetition_penalty": 1.3}, "leave it out, or set `--eval_repetition_penalty`"),
    ]:
        with pytest.raises(ConfigError, match=message):
            train(Coin, policy=small_policy(), output_dir=str(tmp_path / "run"), **(SMALL | settings))
    assert not (tmp_path / "run").exists()


def test_a_response_as_long_as_the_context_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="whole context is 256"):
        run_training(tmp_path / "run", max_new_tokens_per_turn=256)
