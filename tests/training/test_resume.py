"""Stopping, crashing, resuming: a run that was interrupted ends as one that was not."""

import errno
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from training_helpers import (
    SMALL,
    TOKENIZER,
    Coin,
    metrics_of,
    open_run,
    read_lines,
    run_training,
    same_weights,
    small_policy,
    weights_of,
)

from metarl_agents import train
from metarl_agents.cli import parse_config, run_cli
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.policy.tiny import build_model
from metarl_agents.training import checkpoint as module
from metarl_agents.training.checkpoint import Progress, list_checkpoints, newest_whole, prune, write_atomically
from metarl_agents.training.saving import save_checkpoint


def load(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def outcome(folder):
    """All that two equal runs must share."""
    from safetensors.torch import load_file

    critic = Path(folder) / "critic" / "model.safetensors"
    return {
        "weights": weights_of(load(folder)),
        "critic": load_file(critic) if critic.exists() else {},
        "metrics": metrics_of(folder),
        "text": read_lines(Path(folder) / "trajectories" / "train.jsonl"),
    }


def assert_equal_runs(one, other):
    one, other = outcome(one), outcome(other)
    assert list(one["metrics"]) == list(other["metrics"])
    assert one["metrics"] == other["metrics"]
    assert [record["seed"] for record in one["text"]] == [record["seed"] for record in other["text"]]
    assert one["text"] == other["text"]
    assert same_weights(one["weights"], other["weights"]) and same_weights(one["critic"], other["critic"])


@pytest.mark.parametrize(
    "settings",
    [
        {"updates_per_batch": 2},
        {"advantages": "ppo", "critic_learning_rate": 0.01},
        {"advantages": "ppo", "critic": "separate"},
        {"advantages": "reinforce"},
        {"beta": 0.1},
    ],
    ids=["gigpo", "ppo", "ppo-separate", "reinforce", "kl"],
)
def test_three_steps_and_three_more_equal_six_in_one_go(tmp_path, settings):
    straight = run_training(tmp_path / "straight", max_steps=6, **settings)
    run_training(tmp_path / "halved", max_steps=3, **settings)
    resumed = run_training(tmp_path / "halved", max_steps=6, resume_from_checkpoint="latest", **settings)
    assert resumed.steps == 6 and resumed.before is not None
    assert resumed.before.metrics() == straight.before.metrics()
    assert resumed.after.metrics() == straight.after.metrics()
    assert_equal_runs(straight.output_dir, resumed.output_dir)


def test_adapters_resume_too(tmp_path):
    settings = {"use_peft": True, "lora_r": 4, "beta": 0.1}
    first, second, third = small_policy(), small_policy(), small_policy()
    straight = run_training(tmp_path / "straight", policy=first, max_steps=4, **settings)
    run_training(tmp_path / "halved", policy=second, max_steps=2, **settings)
    # Runs that were started when `lora_dropout` was accepted, and ignored, go on.
    settings |= {"lora_dropout": 0.1, "resume_from_checkpoint": "latest"}
    resumed = run_training(tmp_path / "halved", policy=third, max_steps=4, **settings)
    assert same_weights(weights_of(first.model), weights_of(third.model))
    assert metrics_of(straight.output_dir) == metrics_of(resumed.output_dir)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    small_policy().save(folder)
    return folder


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from test_resume import start
from metarl_agents.cli import run_cli
run_cli(lambda: start({settings!r}))
"""


class Deadly(Coin):
    """Sends its own process the signal KILL in step AFTER; takes SLOW seconds a step."""

    calls = 0

    def step(self, action):
        Deadly.calls += 1
        time.sleep(float(os.environ.get("SLOW", "0")))
        if os.environ.get("KILL") and Deadly.calls == int(os.environ["AFTER"]):
            os.kill(os.getpid(), getattr(signal, os.environ["KILL"]))
        return super().step(action)


def start(settings, argv=None):
    """What a recipe does."""
    result = train(Deadly, parse_config(argv, defaults=settings))
    return 130 if result.interrupted else 0


@pytest.fixture(scope="module")
def settings(model_folder):
    return SMALL | {"model_name_or_path": str(model_folder), "max_steps": 6, "save_steps": 1}


@pytest.fixture(scope="module")
def straight_run(tmp_path_factory, settings):
    folder = tmp_path_factory.mktemp("straight") / "run"
    assert start(settings, ["--output_dir", str(folder), "--gamma_traj", "0.8"]) == 0
    return folder


def test_a_sigterm_saves_and_the_printed_command_finishes_the_run(tmp_path, settings, straight_run):
    script, folder = tmp_path / "my_run.py", tmp_path / "run"
    script.write_text(SCRIPT.format(here=str(Path(__file__).parent), settings=settings))
    command = [sys.executable, str(script), "--output_dir", str(folder), "--gamma_traj", "0.8"]
    environment = os.environ | {"KILL": "SIGTERM", "AFTER": "30"}
    stopped = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert stopped.returncode == 130, stopped.stderr
    step = list_checkpoints(folder)[-1].name.removeprefix("checkpoint-")
    assert 1 <= int(step) < 6 and f"Stopped after step {step} and saved." in stopped.stdout
    assert not (folder / "model.safetensors").exists()
    python, named, *flags = shlex.split(stopped.stdout.split("Resume with: ")[1].splitlines()[0])
    assert (python, named) == ("python", str(script))
    assert start(settings, flags) == 0
    assert_equal_runs(straight_run, folder)


def test_a_killed_run_resumes_from_its_latest_checkpoint(tmp_path, settings, straight_run, monkeypatch):
    flags = ["--output_dir", str(tmp_path / "run"), "--gamma_traj", "0.8"]
    monkeypatch.setenv("AFTER", "40")
    monkeypatch.setenv("KILL", "SIGKILL")
    # Not fork: torch refuses a backward pass in a fork once its autograd has threads, as with any device but the CPU.
    child = multiprocessing.get_context("spawn").Process(target=start, args=(settings, flags))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    assert 0 < len(metrics_of(tmp_path / "run")) < 6
    monkeypatch.delenv("KILL")
    assert start(settings, [*flags, "--resume_from_checkpoint", "latest"]) == 0
    assert_equal_runs(straight_run, tmp_path / "run")


def test_a_mistake_is_one_line_and_status_2(tmp_path, settings, capsys):
    flags = ["--output_dir", str(tmp_path), "--resume_from_checkpoint", str(tmp_path / "checkpoint-3")]
    with pytest.raises(SystemExit) as left:
        run_cli(lambda: start(settings, flags))
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("CheckpointError: ") and "there is no checkpoint" in line


# ---- what is on disk ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "run"
    run_training(folder, max_steps=2, save_steps=1, advantages="ppo")
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-1", "checkpoint-2"]
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "critic/model.safetensors",
        "optimizer.pt",
        "trainer_state.json",
        "config.json",
        "tokenizer.json",
    ],
)
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_broken_newest_checkpoint_is_reported_and_the_one_before_it_used(two_checkpoints, name, damage):
    if damage == "missing" and name in ("config.json", "tokenizer.json", "critic/model.safetensors"):
        pytest.skip("the loader names what is missing")
    file = two_checkpoints / "checkpoint-2" / name
    content = file.read_bytes()
    said = []
    try:
        if damage == "truncated":
            file.write_bytes(content[: len(content) // 2])
        else:
            file.unlink()
        assert newest_whole(two_checkpoints, said.append).name == "checkpoint-1"
    finally:
        file.write_bytes(content)
    assert len(said) == 1 and "checkpoint-2" in said[0] and said[0].endswith("Trying the checkpoint before it.")
    assert newest_whole(two_checkpoints, said.append).name == "checkpoint-2" and len(said) == 1


def test_a_run_goes_on_from_the_checkpoint_before_a_broken_one(tmp_path, capsys):
    straight = run_training(tmp_path / "straight", max_steps=3)
    run_training(tmp_path / "run", max_steps=2, save_steps=1)
    weights = tmp_path / "run" / "checkpoint-2" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    resumed = run_training(tmp_path / "run", max_steps=3, resume_from_checkpoint="latest")
    assert "checkpoint-2" in capsys.readouterr().err
    assert_equal_runs(straight.output_dir, resumed.output_dir)


def test_when_all_are_broken_it_is_said(tmp_path):
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
    said = []
    with pytest.raises(CheckpointError, match="holds no checkpoint that can be read"):
        newest_whole(tmp_path, said.append)
    assert len(said) == 2


def test_a_checkpoint_that_was_asked_for_by_name_must_be_whole(tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(CheckpointError, match="checkpoint-3 is not a whole checkpoint"):
        run_training(tmp_path / "run", resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        run_training(tmp_path / "run", resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def run_training_without_folder(**settings):
    return train(Coin, policy=small_policy(), **(SMALL | settings))


def test_latest_without_a_folder_takes_the_newest_run_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run_training_without_folder(max_steps=1)
    os.utime(first.output_dir, (1, 1))
    second = run_training_without_folder(max_steps=1)
    assert first.output_dir.name.startswith("two_doors-") and first.output_dir != second.output_dir
    resumed = run_training_without_folder(max_steps=2, resume_from_checkpoint="latest")
    assert resumed.output_dir == second.output_dir and resumed.steps == 2


def test_latest_never_takes_a_run_whose_name_only_begins_alike(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = run_training_without_folder(max_steps=1)
    run_training_without_folder(max_steps=1, run_name="two_doors-wide")
    assert run_training_without_folder(max_steps=2, resume_from_checkpoint="latest").output_dir == own.output_dir


def test_checkpoints_newer_than_the_one_resumed_from_are_set_aside_and_written_anew(tmp_path):
    settings = {"max_steps": 3, "save_steps": 1, "save_total_limit": 2}
    folder = run_training(tmp_path / "run", **settings).output_dir
    straight = load(folder).state_dict()
    (folder / "checkpoint-3" / "model.safetensors").write_bytes(b"half")
    run_training(folder, resume_from_checkpoint="latest", **settings)
    assert [path.name for path in list_checkpoints(folder)] == ["checkpoint-2", "checkpoint-3"]
    assert newest_whole(folder, pytest.fail).name == "checkpoint-3"
    assert (folder / "abandoned-checkpoint-3" / "model.safetensors").read_bytes() == b"half"
    assert same_weights(straight, load(folder).state_dict())
    run_training(folder, resume_from_checkpoint=str(folder / "checkpoint-2"), **settings)
    assert (folder / "abandoned-checkpoint-3-2").is_dir() and len(list_checkpoints(folder)) == 2


def test_a_full_disk_costs_a_result_file_and_no_training(tmp_path, monkeypatch, capsys):
    from metarl_agents.evaluation.results import EvaluationResult

    def full(self, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(EvaluationResult, "to_json", full)
    assert run_training(tmp_path / "run", max_steps=1).steps == 1
    assert "after.json (No space left on device): going on without it." in capsys.readouterr().out


def test_what_is_sampled_in_training_is_said_once(tmp_path, capsys):
    run_training(tmp_path / "run", max_steps=2, temperature=0.9)
    assert capsys.readouterr().out.count("Training draws: temperature 0.9") == 1


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    run_training(tmp_path / "run", max_steps=1)
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    with pytest.raises(ConfigError, match="already holds a run: add `--resume_from_checkpoint latest`"):
        run_training(tmp_path / "run", max_steps=1)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(ConfigError, match="is a file"):
        run_training(tmp_path / "run")


def test_resuming_as_another_kind_of_run_is_one_sentence(tmp_path):
    run_training(tmp_path / "run", max_steps=1)
    with pytest.raises(CheckpointError, match="does not fit this run: it has no critic, and `--advantages ppo` trains"):
        run_training(tmp_path / "run", max_steps=2, advantages="ppo", resume_from_checkpoint="latest")
    other = small_policy(model=build_model(TOKENIZER, layers=2, hidden=32, max_length=256))
    with pytest.raises(CheckpointError, match="do not fit this policy"):
        run_training(tmp_path / "run", policy=other, max_steps=2, resume_from_checkpoint="latest")


def test_no_more_checkpoints_than_save_total_limit(tmp_path):
    run_training(tmp_path / "run", max_steps=4, save_steps=1, save_total_limit=2)
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["checkpoint-3", "checkpoint-4"]


@pytest.mark.parametrize(
    ("limit", "best", "left"),
    [
        (None, None, [1, 2, 3, 4]),
        (2, None, [3, 4]),
        (2, 1, [1, 4]),
        (3, 2, [2, 3, 4]),
        (2, 4, [3, 4]),
        (1, 1, [1, 4]),
        (1, 4, [4]),
        (1, None, [4]),
        (9, 1, [1, 2, 3, 4]),
    ],
)
def test_pruning_keeps_the_best_and_the_newest(tmp_path, limit, best, left):
    for step in (1, 2, 3, 4):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    prune(tmp_path, limit, best)
    assert [int(path.name.split("-")[1]) for path in list_checkpoints(tmp_path)] == left


def test_the_best_checkpoint_is_kept_and_becomes_the_final_model(tmp_path, monkeypatch, capsys):
    from metarl_agents.training import trainer

    real, scores = trainer.evaluate, iter([0.2, 0.9, 0.5, 0.4])

    def graded(*args, split, **options):
        result = real(*args, split=split, **options)
        if split == "validation":
            value = next(scores)
            monkeypatch.setattr(type(result), "metrics", lambda self: {"pass@2": value})
        return result

    monkeypatch.setattr(trainer, "evaluate", graded)
    settings = {"load_best_model_at_end": True, "metric_for_best_model": "pass@2", "save_total_limit": 2}
    run_training(tmp_path / "run", max_steps=4, eval_steps=1, save_steps=1, **settings)
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["checkpoint-2", "checkpoint-4"]
    final, best, last = (weights_of(load(tmp_path / "run" / name)) for name in (".", "checkpoint-2", "checkpoint-4"))
    assert same_weights(final, best) and not same_weights(final, last)
    assert "The final model is the one after step 2" in capsys.readouterr().out


def test_the_metric_for_the_best_model_must_be_measured(tmp_path):
    for name in ("pass@3", "reward", "loss"):
        with pytest.raises(ConfigError, match="measures pass@1, pass@2"):
            settings = {"load_best_model_at_end": True, "metric_for_best_model": name, "eval_steps": 1}
            run_training(tmp_path / "run", num_episodes=2, **settings)


# ---- all or nothing ----------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    run = open_run(tmp_path / "run")
    run.progress.step = 1
    save_checkpoint(run)
    run.progress.step = 2
    return run


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("step", [1, 2])
def test_a_full_disk_is_one_sentence_and_leaves_no_half_folder(saved, monkeypatch, step):
    before = contents(saved.output_dir)
    saved.progress.step = step

    def full(folder, weights):
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saved.policy, "save", full)
    with pytest.raises(
        CheckpointError, match=r"^cannot write [^\n]*No space left on device[^\n]*`--output_dir`"
    ) as caught:
        save_checkpoint(saved)
    assert "\n" not in str(caught.value)
    assert contents(saved.output_dir) == before
    assert [path.name for path in saved.output_dir.glob(".*")] == []


def test_safetensors_own_word_for_a_full_disk_is_understood(saved, monkeypatch):
    from safetensors import SafetensorError

    def full(folder, weights):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(saved.policy, "save", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(saved)


@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyError])
def test_any_other_failure_passes_through_and_leaves_no_half_folder(saved, monkeypatch, error):
    before = contents(saved.output_dir)

    def fail(folder, weights):
        (folder / "model.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(saved.policy, "save", fail)
    with pytest.raises(error):
        save_checkpoint(saved)
    assert contents(saved.output_dir) == before


def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(tmp_path, monkeypatch):
    target = tmp_path / "checkpoint-1"
    write_atomically(target, lambda folder: (folder / "a").write_text("old"))
    replace = os.replace

    def refuse(source, destination):
        if Path(source).name.startswith(".tmp"):
            raise OSError(errno.EIO, "broken disk")
        replace(source, destination)

    monkeypatch.setattr(module.os, "replace", refuse)
    with pytest.raises(CheckpointError, match="broken disk"):
        write_atomically(target, lambda folder: (folder / "a").write_text("new"))
    assert contents(tmp_path) == {"checkpoint-1/a": b"old"}


def test_writing_again_replaces_and_leftovers_are_cleared(tmp_path):
    target = tmp_path / "checkpoint-1"
    for leftover in (".tmp-checkpoint-1", ".old-checkpoint-1"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "junk").touch()
    for text in ("one", "two"):
        write_atomically(target, lambda folder, text=text: (folder / "a").write_text(text))
    assert contents(tmp_path) == {"checkpoint-1/a": b"two"}


# ---- what is saved -----------------------------------------------------------------------------------------------


def test_the_final_folder_loads_without_this_library_and_gives_equal_logits(tmp_path):
    from transformers import AutoTokenizer

    policy = small_policy()
    folder = run_training(tmp_path / "run", policy=policy, advantages="ppo").output_dir
    loaded, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "Choose one door A or B"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    assert tuple(ids[0].tolist()) == policy.encode(messages)
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=ids).logits, policy.model(input_ids=ids).logits)


@pytest.mark.parametrize("kind", ["head", "separate"])
def test_the_critic_is_saved_beside_the_policy_and_not_inside_it(tmp_path, kind):
    from safetensors import safe_open

    folder = run_training(tmp_path / "run", advantages="ppo", critic=kind, max_steps=1).output_dir
    for place in (folder, folder / "checkpoint-1"):
        assert (place / "critic" / "model.safetensors").stat().st_size > 0
        with safe_open(place / "model.safetensors", framework="pt") as tensors:
            assert not [name for name in tensors.keys() if "critic" in name or "linear" in name]  # noqa: SIM118


def test_a_checkpoint_knows_its_run(tmp_path):
    folder = run_training(tmp_path / "run", advantages="reinforce", seed=4).output_dir
    state = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["step"] == 2 and state["optimizer_steps"] == 2 and state["num_episodes"] > 0
    assert isinstance(state["baseline"]["mean"], float)
    assert Progress(**state).step == 2
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed"] == 4
    assert {"torch", "transformers", "metarl_agents"} <= set(
        json.loads((folder / "versions.json").read_text())["versions"]
    )


def test_a_second_signal_stops_at_once():
    from metarl_agents.training.interrupt import StopRequest

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        assert stop.asked
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
    assert signal.getsignal(signal.SIGTERM) is handler


def test_the_resume_command_drops_what_it_says_anew(monkeypatch):
    from metarl_agents.training.interrupt import StopRequest

    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    old = ["--output_dir", "old", "--seed", "3", "--output_dir=older", "--resume_from_checkpoint", "latest"]
    monkeypatch.setattr(sys, "argv", ["my run.py", *old, "--x", "a b"])
    wanted = "python 'my run.py' --seed 3 --x 'a b' --output_dir new --resume_from_checkpoint latest"
    assert StopRequest().resume_command(Path("new")) == wanted


@pytest.mark.slow
def test_a_run_whose_launcher_was_killed_saves_and_tells_the_launchers_command(tmp_path, settings, straight_run):
    script, folder = tmp_path / "my_run.py", tmp_path / "run"
    script.write_text(SCRIPT.format(here=str(Path(__file__).parent), settings=settings))
    launcher = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--num_processes", "1", "--cpu"]
    command = [*launcher, str(script), "--output_dir", str(folder), "--gamma_traj", "0.8"]
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"SLOW": "0.05"})
    wait_for(lambda: list_checkpoints(folder))
    process.terminate()
    process.wait(60)
    wait_for(lambda: "Resume with: " in (tmp_path / "log").read_text())
    said = (tmp_path / "log").read_text().split("Resume with: ")[1].splitlines()[0]
    words = shlex.split(said)
    assert words[:5] == ["accelerate", "launch", "--num_processes", "1", "--cpu"] and words[5] == str(script)
    assert len(list_checkpoints(folder)) < 6
    subprocess.run([*launcher[:3], *words[1:]], check=True, capture_output=True, timeout=120)
    assert_equal_runs(straight_run, folder)


def wait_for(condition, limit_s=90):
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, "it never came to that"
        time.sleep(0.1)


def test_adapters_on_a_model_made_in_memory_leave_a_run_that_loads(tmp_path):
    from transformers import AutoModelForCausalLM

    from metarl_agents.config import ModelConfig
    from metarl_agents.policy.loading import load_policy

    policy = small_policy()
    start = weights_of(policy.model)
    run_training(tmp_path / "run", policy=policy, use_peft=True, lora_r=4, merge_and_save=True)
    base = weights_of(AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "base"))
    assert same_weights(base, start)
    ids = torch.arange(10, 30)[None]
    with torch.no_grad():
        trained = policy.model(input_ids=ids).logits
        for folder in (tmp_path / "run", tmp_path / "run" / "merged"):
            loaded = load_policy(ModelConfig(model_name_or_path=str(folder)))
            assert torch.allclose(loaded.model(input_ids=ids).logits, trained, atol=1e-5)
    assert not torch.allclose(AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "base")(ids).logits, trained)
    # What a resumed run saves leads back to that base as well.
    resumed = small_policy()
    goes_on = {"resume_from_checkpoint": "latest", "max_steps": 3}
    run_training(tmp_path / "run", policy=resumed, use_peft=True, lora_r=4, merge_and_save=True, **goes_on)
    loaded = load_policy(ModelConfig(model_name_or_path=str(tmp_path / "run" / "merged")))
    with torch.no_grad():
        assert torch.allclose(loaded.model(input_ids=ids).logits, resumed.model(input_ids=ids).logits, atol=1e-5)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_merged_model_is_the_trained_one_or_is_not_there(tmp_path, monkeypatch, capsys, is_wrong):
    """Adapters on the head of a model that shares its head's weight with its embedding."""
    from metarl_agents.config import ModelConfig
    from metarl_agents.policy import merging
    from metarl_agents.policy.loading import load_policy

    if is_wrong:
        monkeypatch.setattr(merging, "_untie", lambda model: [])
    settings = {"use_peft": True, "lora_target_modules": ["q_proj", "lm_head"], "merge_and_save": True}
    policy = small_policy()
    if is_wrong:
        with pytest.raises(ConfigError, match="merged is another one .* no merged model is kept"):
            run_training(tmp_path / "run", policy=policy, **settings)
        assert not (tmp_path / "run" / "merged").exists() and (tmp_path / "run" / "eval" / "after.json").is_file()
        return
    run_training(tmp_path / "run", policy=policy, **settings)
    assert "tie_word_embeddings: false" in capsys.readouterr().out
    loaded = load_policy(ModelConfig(model_name_or_path=str(tmp_path / "run" / "merged")))
    ids = torch.arange(10, 30)[None]
    with torch.no_grad():
        assert torch.allclose(loaded.model(input_ids=ids).logits, policy.model(input_ids=ids).logits, atol=1e-4)
