"""A run that is killed anywhere and resumed leaves what an unbroken one leaves; changed settings do what is said."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from training_helpers import CLOCKS, SMALL, TOKENIZER, Coin, read_lines, run_training, small_config, small_policy

from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.evaluation.results import EvaluationResult
from metarl_agents.policy.processes import start_processes
from metarl_agents.training import saving, trainer
from metarl_agents.training.setup import build_run

FOUR = {
    "max_steps": 4,
    "save_steps": 2,
    "eval_steps": 2,
    "lr_scheduler_type": "linear",
    "warmup_steps": 1,
    "report_to": ["tensorboard"],
}


class Killed(BaseException):
    """Stands for SIGKILL: nothing but `finally` runs after it."""


def die(monkeypatch, module, name, *, call=1, before=False):
    """Kill the run in its `call`th call of `module.name`, or before it."""
    real, calls = getattr(module, name), []

    def dying(*args, **options):
        calls.append(name)
        if len(calls) == call and before:
            raise Killed
        result = real(*args, **options)
        if len(calls) == call:
            raise Killed
        return result

    monkeypatch.setattr(module, name, dying)


def whole(folder):
    """All that a run leaves, but for clocks and dates."""
    left = {"metrics": [], "points": points(folder)}
    for line in read_lines(folder / "metrics.jsonl"):
        line["metrics"] = {key: value for key, value in line["metrics"].items() if not key.startswith(CLOCKS)}
        left["metrics"].append(line)
    for file in sorted((folder / "trajectories").iterdir()):
        left[file.name] = file.read_bytes()
    for file in sorted((folder / "eval").iterdir()):
        result = EvaluationResult.from_json(file)
        left[file.name] = (result.step, result.metrics())
    left["weights"] = (folder / "model.safetensors").read_bytes()
    left["card"] = (folder / "README.md").read_text()
    left["checkpoints"] = sorted(path.name for path in folder.glob("*checkpoint-*"))
    return left


def points(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if not tag.split("/", 1)[1].startswith(CLOCKS)]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in sorted(tags)}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = run_training(tmp_path_factory.mktemp("unbroken") / "run", **FOUR).output_dir
    left = whole(folder)
    assert [line["prefix"] for line in left["metrics"]].count("test") == 2 and len(left["points"]["eval/pass@1"]) == 2
    return left


@pytest.mark.parametrize(
    ("module", "name", "call", "before"),
    [
        pytest.param(trainer, "log_step", 3, False, id="step-logged"),
        pytest.param(trainer, "_validate_if_due", 2, False, id="validated", marks=pytest.mark.slow),
        pytest.param(trainer, "save_checkpoint", 2, True, id="before-checkpoint", marks=pytest.mark.slow),
        pytest.param(trainer, "save_checkpoint", 2, False, id="after-checkpoint", marks=pytest.mark.slow),
        pytest.param(saving, "save_model_card", 1, True, id="model-saved", marks=pytest.mark.slow),
        pytest.param(trainer, "finish_run", 1, False, id="card-written", marks=pytest.mark.slow),
        pytest.param(trainer, "_frame_games", 1, True, id="final-evaluation-logged"),
        pytest.param(trainer, "save_model_card", 1, False, id="final-card", marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_anywhere_leaves_what_an_unbroken_one_leaves(
    module, name, call, before, unbroken, tmp_path, monkeypatch
):
    die(monkeypatch, module, name, call=call, before=before)
    with pytest.raises(Killed):
        run_training(tmp_path / "run", **FOUR)
    monkeypatch.undo()
    result = run_training(tmp_path / "run", resume_from_checkpoint="latest", **FOUR)
    assert result.steps == 4 and result.before is not None and result.after is not None
    left = whole(tmp_path / "run")
    for what in unbroken:
        assert left[what] == unbroken[what], what


@pytest.mark.slow
@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_any_split_of_a_run_is_one_go(schedule, warmup, tmp_path, monkeypatch):
    settings = FOUR | {"save_steps": 1, "lr_scheduler_type": schedule, "warmup_steps": warmup}
    settings |= {"save_total_limit": 4, "advantages": "ppo", "critic_learning_rate": 3e-2}
    straight = whole(run_training(tmp_path / "straight" / "run", **settings).output_dir)
    for step in (1, 2, 3):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            die(patch, trainer, "save_checkpoint", call=step)
            run_training(tmp_path / str(step) / "run", **settings)
        run_training(tmp_path / str(step) / "run", resume_from_checkpoint="latest", **settings)
        left = whole(tmp_path / str(step) / "run")
        assert [name for name in straight if left[name] != straight[name]] == []


def test_a_run_that_goes_on_in_a_new_folder_is_whole_there(tmp_path, unbroken):
    run_training(tmp_path / "old", **(FOUR | {"save_total_limit": 4}))
    checkpoint = tmp_path / "old" / "checkpoint-2"
    with pytest.raises(ConfigError, match="already holds another run"):
        run_training(tmp_path / "old" / "..", resume_from_checkpoint=str(copied_run(checkpoint, tmp_path)), **FOUR)
    result = run_training(tmp_path / "new" / "run", resume_from_checkpoint=str(checkpoint), **FOUR)
    left = whole(result.output_dir)
    assert result.before is not None
    assert [name for name in unbroken if name != "checkpoints" and left[name] != unbroken[name]] == []


def copied_run(checkpoint, folder):
    """A checkpoint elsewhere; `folder` holds logs of some run."""
    (folder / "metrics.jsonl").touch()
    return shutil.copytree(checkpoint, folder / "elsewhere" / checkpoint.name)


# ---- extended, finished and changed runs ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_training(folder, max_steps=2, lr_scheduler_type="linear", report_to=["tensorboard"])
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("steps", [2, 1])
def test_a_finished_run_is_left_as_it_is(copied, steps, capsys):
    files, policy = contents(copied), small_policy()
    changed = {"max_steps": steps, "learning_rate": 0.5}
    result = run_training(copied, policy=policy, resume_from_checkpoint="latest", **changed)
    said = capsys.readouterr()
    assert "is already finished after 2 steps; raise `--max_steps`" in said.err + said.out
    assert contents(copied) == files
    assert (result.steps, result.interrupted, result.output_dir) == (2, False, copied)
    for name in ("before", "after"):
        saved = EvaluationResult.from_json(copied / "eval" / f"{name}.json")
        assert getattr(result, name).metrics() == saved.metrics()
    own = policy.model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in load_file(copied / "model.safetensors").items())


def test_an_unfinished_run_with_fewer_steps_is_not_called_finished(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        die(patch, trainer, "save_checkpoint", call=2)
        run_training(tmp_path / "run", max_steps=3, save_steps=1)
    files = contents(tmp_path / "run")
    result = run_training(tmp_path / "run", max_steps=1, resume_from_checkpoint="latest")
    assert "has already taken 2 steps, and `max_steps` is 1; raise `--max_steps`" in capsys.readouterr().err
    assert contents(tmp_path / "run") == files and (result.steps, result.after) == (2, None)


def test_a_longer_run_follows_the_new_schedule_and_logs_one_end(copied, capsys):
    weights = load_file(copied / "checkpoint-2" / "model.safetensors")
    result = run_training(
        copied, max_steps=3, lr_scheduler_type="linear", resume_from_checkpoint="latest", report_to=["tensorboard"]
    )
    said = capsys.readouterr().out
    assert "`max_steps` is 3 (was 2): the linear schedule follows the new total" in said
    assert "step 3 has learning rate 0.00333333." in said
    after = load_file(copied / "checkpoint-3" / "model.safetensors")
    assert max((after[name] - weights[name]).abs().max().item() for name in after) == pytest.approx(0.01 / 3, rel=0.05)
    rows = [(line["step"], line["prefix"]) for line in read_lines(copied / "metrics.jsonl")]
    assert rows == [(0, "test"), (1, "train"), (2, "train"), (3, "train"), (3, "test")]
    assert [step for step, _ in points(copied)["test/pass@1"]] == [0, 3]
    assert result.steps == 3 and result.after.step == 3


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"learning_rate": 0.5}, [0.5, 0.02]),
        ({"critic_learning_rate": 0.5}, [0.01, 0.5]),
        ({"lr_scheduler_type": "linear"}, [0.005, 0.01]),
        ({"lr_scheduler_type": "linear", "max_steps": 8}, [0.0075, 0.015]),
        ({"warmup_steps": 5}, [0.004, 0.008]),
        ({"weight_decay": 0.3, "adam_beta1": 0.5, "adam_beta2": 0.7}, [0.01, 0.02]),
    ],
)
def test_the_optimizer_of_a_resumed_run_has_its_settings(with_critic, settings, rates, capsys):
    chosen = {"max_steps": 4, "advantages": "ppo", "critic_learning_rate": 0.02} | settings
    checkpoint = with_critic / "checkpoint-2"
    run = build_run(small_config(**chosen), Coin, small_policy(), with_critic, checkpoint, start_processes(60))
    groups = run.sharding.optimizer.param_groups
    assert [group["lr"] for group in groups] == pytest.approx(rates)
    for group in groups:
        assert group["weight_decay"] == chosen.get("weight_decay", 0.01)
        assert group["betas"] == (chosen.get("adam_beta1", 0.9), chosen.get("adam_beta2", 0.999))
    assert all(state["step"] == 2 for state in run.sharding.optimizer.state.values())
    said = capsys.readouterr().out
    assert all(f"{name} {value!r} (was " in said for name, value in settings.items() if name != "max_steps")


@pytest.fixture(scope="module")
def ppo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ppo") / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        die(patch, trainer, "save_checkpoint")
        run_training(folder, max_steps=4, save_steps=2, advantages="ppo", critic_learning_rate=0.02)
    return folder


@pytest.fixture
def with_critic(ppo, tmp_path):
    return shutil.copytree(ppo, tmp_path / "run")


def test_a_new_learning_rate_moves_the_weights_and_nothing_else_is_lost(with_critic):
    """A rate of 0 on resuming leaves every weight where the checkpoint has it."""
    rates = {"learning_rate": 0.0, "critic_learning_rate": 0.0, "advantages": "ppo"}
    run_training(with_critic, max_steps=3, resume_from_checkpoint="latest", **rates)
    for file in ("model.safetensors", "critic/model.safetensors"):
        old, new = (load_file(with_critic / f"checkpoint-{step}" / file) for step in (2, 3))
        assert all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_peft": True}, "`use_peft` is True, but .* was trained with False"),
        ({"advantages": "gigpo"}, "does not fit this run: it has a critic, and `--advantages gigpo` trains none"),
        ({"critic": "separate"}, "`critic` is 'separate', but .* was trained with 'head'"),
    ],
)
def test_what_decides_the_weights_cannot_change(with_critic, settings, message):
    files = contents(with_critic)
    chosen = {"max_steps": 3, "advantages": "ppo", "resume_from_checkpoint": "latest"} | settings
    with pytest.raises(CheckpointError, match=message):
        run_training(with_critic, **chosen)
    assert contents(with_critic) == files


@pytest.mark.parametrize(("name", "value"), [("lora_r", 2), ("lora_alpha", 3)])
def test_adapters_cannot_change(with_adapters, name, value):
    chosen = {"use_peft": True, "lora_r": 4} | {name: value}
    with pytest.raises(
        CheckpointError, match=f"`{name}` is {value}, but .* was trained with .*resume with the earlier value"
    ):
        run_training(with_adapters, max_steps=2, resume_from_checkpoint="latest", **chosen)


@pytest.fixture(scope="module")
def with_adapters(tmp_path_factory):
    return run_training(tmp_path_factory.mktemp("lora") / "run", max_steps=1, use_peft=True, lora_r=4).output_dir


def test_what_no_longer_compares_is_said(copied, capsys):
    facts = json.loads((copied / "versions.json").read_text())
    (copied / "versions.json").write_text(json.dumps(facts | {"num_processes": 8}))
    changed = {
        "report_to": ["tensorboard"],
        "eval_tasks": 3,
        "seed": 5,
        "model_name_or_path": "elsewhere",
        "lr_scheduler_type": "linear",
    }
    build_run(
        small_config(max_steps=2, **changed), Coin, small_policy(), copied, copied / "checkpoint-2", start_processes(60)
    )
    said = capsys.readouterr().out
    assert "from step 3 on: eval_tasks 3 (was 2), seed 5 (was 0)." in said
    assert "the new `model_name_or_path` of this start does not change them" in said
    assert "eval/before.json was measured with the earlier eval_tasks" in said
    assert "not bit for bit as before: num_processes 1 (was 8)." in said


def test_a_best_model_that_was_not_kept_is_looked_for_anew(tmp_path, capsys):
    settings = {"eval_steps": 1, "save_steps": 2, "metric_for_best_model": "pass@1"}
    run_training(tmp_path / "run", max_steps=2, **settings)
    state = tmp_path / "run" / "checkpoint-2" / "trainer_state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"best_step": 1, "best_metric": 9.0}))
    result = run_training(
        tmp_path / "run", max_steps=3, load_best_model_at_end=True, resume_from_checkpoint="latest", **settings
    )
    said = capsys.readouterr().out
    assert result.steps == 3 and "the checkpoint of step 1, the best so far, was not kept" in said
    assert "The final model is the one after step 3" in said


# ---- latest --------------------------------------------------------------------------------------------------------


def test_latest_starts_what_is_not_there_yet(tmp_path, capsys):
    result = run_training(tmp_path / "run", max_steps=1, resume_from_checkpoint="latest")
    assert result.steps == 1 and result.before is not None
    assert "holds no checkpoint yet: the run starts at step 0." in capsys.readouterr().err


def test_latest_takes_a_run_over_that_died_before_its_first_checkpoint(unbroken, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        die(patch, trainer, "log_step")
        run_training(tmp_path / "run", **FOUR)
    (tmp_path / "run" / "notes.txt").write_text("a person's")
    with pytest.raises(ConfigError, match="add `--resume_from_checkpoint latest` to start it anew there"):
        run_training(tmp_path / "run", **FOUR)
    run_training(tmp_path / "run", resume_from_checkpoint="latest", **FOUR)
    assert "starts at step 0; what an earlier start logged there is removed." in capsys.readouterr().err
    left = whole(tmp_path / "run")
    assert [name for name in unbroken if left[name] != unbroken[name]] == []
    assert (tmp_path / "run" / "notes.txt").exists()


def test_latest_never_starts_over_a_finished_model(copied):
    shutil.rmtree(copied / "checkpoint-2")
    files = contents(copied)
    with pytest.raises(CheckpointError, match="holds a model and no checkpoint to resume from"):
        run_training(copied, resume_from_checkpoint="latest")
    assert contents(copied) == files


def test_latest_without_a_folder(tmp_path, monkeypatch, capsys):
    """Starts; takes over its own start that died, never one with other settings; then goes on."""
    monkeypatch.chdir(tmp_path)

    def begin(**settings):
        chosen = SMALL | {"max_steps": 1, "resume_from_checkpoint": "latest"} | settings
        return trainer.train(Coin, policy=small_policy(), **chosen).output_dir

    with monkeypatch.context() as patch, pytest.raises(Killed):
        die(patch, trainer, "log_step")
        begin()
    (first,) = (tmp_path / "runs").iterdir()
    other = begin(learning_rate=0.5)
    assert other.name != first.name and yaml.safe_load((other / "config.yaml").read_text())["learning_rate"] == 0.5
    shutil.rmtree(other)
    assert begin().name == first.name
    assert "is removed" in capsys.readouterr().err
    assert begin(max_steps=2).name == first.name


# ---- older versions ------------------------------------------------------------------------------------------------


def test_a_run_of_an_older_version_goes_on(tmp_path, monkeypatch, capsys):
    """Killed after step 3 of 4, saved after step 2; its checkpoint holds a schedule's state and no sizes of logs."""
    from metarl_agents.policy.tiny import build_model

    with tarfile.open(Path(__file__).with_name("run_of_an_older_version.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    settings = {"max_steps": 4, "save_steps": 2, "lr_scheduler_type": "linear", "warmup_steps": 1}
    policy = small_policy(model=build_model(TOKENIZER, layers=1, hidden=8, seed=0, max_length=256))
    rates, real = [], trainer.update_policy

    def noted(run, batch, step):
        rates.extend(run.schedule.rates)
        return real(run, batch, step)

    monkeypatch.setattr(trainer, "update_policy", noted)
    old = load_file(tmp_path / "run" / "checkpoint-2" / "model.safetensors")
    result = run_training(tmp_path / "run", policy=policy, resume_from_checkpoint="latest", **settings)
    assert rates == pytest.approx([0.01 * 2 / 3, 0.01 / 3]) and result.before is not None
    rows = [(line["step"], line["prefix"]) for line in read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert rows == [(0, "test"), *((step, "train") for step in (1, 2, 3, 4)), (4, "test")]
    new = load_file(tmp_path / "run" / "model.safetensors")
    assert new.keys() == old.keys() and any(not torch.equal(new[name], old[name]) for name in old)
