"""What docs/custom_environments.md shows is run: its code from top to bottom, its package installed, its commands read."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "custom_environments.md").read_text(encoding="utf-8")
LIBRARIES = ("gymnasium", "textarena")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language, in order."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [code for spoken, code in fenced if spoken == language]


CODE = blocks("python")


def commands() -> list[str]:
    """Return the commands of the shell blocks, continued lines joined."""
    lines = "\n".join(blocks("")).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip()]


def installed(code: str) -> bool:
    """Whether the libraries that a block or command speaks of are here."""
    return all(importlib.util.find_spec(name) for name in LIBRARIES if re.search(rf"\b{name}\b", code))


@pytest.fixture
def my_package(tmp_path, monkeypatch):
    """The page's first class under the address that its commands use."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "my_env.py").write_text(CODE[0])
    monkeypatch.syspath_prepend(tmp_path)
    forget_my_package()
    yield
    forget_my_package()


def forget_my_package():
    """Other pages have packages of that name, too."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def test_every_fence_is_of_a_kind_that_is_tested():
    kinds = re.findall(r"^```(\w+)$", PAGE, flags=re.MULTILINE)
    assert set(kinds) == {"python", "toml", "jsonl"} and len(CODE) > 8 and len(commands()) > 6


def test_the_complete_environment_has_at_most_25_lines():
    (environment,) = [node for node in ast.parse(CODE[0]).body if isinstance(node, ast.ClassDef)]
    assert environment.end_lineno - environment.lineno + 1 <= 25


def run_code(*, with_training: bool) -> dict:
    """Run the page's code from top to bottom in one namespace and return it; what needs a missing extra is left out."""
    space = {"__name__": "page"}
    for code in CODE:
        if not installed(code) or ("train(\n" in code and not with_training):
            continue
        if "train(\n" in code:
            # The length alone is another: sizes are replaced, and nothing is evaluated in between.
            code = re.sub(r"(max_steps|eval_tasks|tasks_per_step)=\d+", r"\1=1", code)
            code = code.replace("max_steps=1", "max_steps=1, group_size=2, eval_samples=0, eval_steps=0")
            assert code.count("=1,") == 3
        exec(compile(code, "custom_environments.md", "exec"), space)
    return space


def test_the_code_runs_from_top_to_bottom():
    space = run_code(with_training=False)
    for seed in (0, 2**40, 2**41):
        space["test_bridge_keeps_the_contract"](seed)


@pytest.mark.slow
def test_the_code_trains_too(tmp_path, monkeypatch):
    from metarl_agents.training import warm_start

    monkeypatch.setattr(warm_start, "ON_THE_FLY", replace(warm_start.ON_THE_FLY, steps=5, batch_size=8))
    monkeypatch.setattr(warm_start, "ON_THE_FLY_TRIALS", 60)
    monkeypatch.chdir(tmp_path)
    run_code(with_training=True)
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "model.safetensors").is_file()


def test_the_parts_of_the_page_do_what_the_text_says():
    space = run_code(with_training=False)
    numbered, bridge = space["Numbered"](), space["Bridge"]()
    assert [numbered.parse_action(f"<action>{text}</action>") for text in ("1", "2", "3")] == ["left", "right", None]
    assert space["WordedBridge"]("compact").wording.play_request == "Which plank?"
    # A blind crossing succeeds in one attempt of eight; whoever remembers needs four at most.
    won = 0
    for seed in range(400):
        bridge.reset(seed=seed)
        won += any(bridge.step(action).info["success"] for action in ("left", "left", "left") if not bridge.over)
    assert 0.07 < won / 400 < 0.18
    for seed in range(40):
        assert attempts_with_memory(bridge, seed) <= 4
    data, rows = space["BridgeFromData"](), space["ROWS"]
    seen = {}
    for split, start in (("train", 0), ("validation", 2**40), ("test", 2**41)):
        seen[split] = set()
        for seed in range(start, start + 8):
            data.reset(seed=seed)
            seen[split].add("".join(plank[0] for plank in data.sound))
    assert seen == {split: set(listed) for split, listed in rows.items()}
    assert {split: data.num_tasks(split) for split in rows} == {split: len(tasks) for split, tasks in seen.items()}


def attempts_with_memory(bridge, seed: int) -> int:
    """Return how many attempts somebody needs who never steps on a broken plank twice."""
    broken: set[tuple[int, str]] = set()
    bridge.reset(seed=seed)
    for attempt in range(1, 9):
        for step in range(3):
            action = "right" if (step, "left") in broken else "left"
            result = bridge.step(action)
            if result.info["success"]:
                return attempt
            if result.terminated:
                broken.add((step, action))
                break
        bridge.restart()
    raise AssertionError("nobody needs more than eight attempts")


def test_the_task_file_is_read(tmp_path):
    from metarl_agents.rollout.tasks import load_task_list

    (listed,) = blocks("jsonl")
    (tmp_path / "tasks.jsonl").write_text(listed)
    assert load_task_list(str(tmp_path / "tasks.jsonl")) == {"train": [11, 12], "validation": None, "test": [900]}


@pytest.mark.slow
def test_the_package_of_the_page_installs_and_its_name_works(tmp_path, monkeypatch):
    pytest.importorskip("setuptools", reason="building a package without network needs setuptools here")
    from metarl_agents.envs import installed as installed_names
    from metarl_agents.envs import make, registered

    (toml,) = blocks("toml")
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "pyproject.toml").write_text(toml)
    (source / "bridge_worlds.py").write_text(CODE[0])
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    made = subprocess.run([*pip, "--target", str(target), str(source)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    monkeypatch.syspath_prepend(target)
    installed_names.installed_environments.cache_clear()
    try:
        assert "bridge" in registered()
        assert type(make("bridge")).__module__ == "bridge_worlds"
    finally:
        installed_names.installed_environments.cache_clear()
        sys.modules.pop("bridge_worlds", None)


def recipe_commands() -> list[str]:
    return [command for command in commands() if "recipes/train_" in command]


def read(command: str):
    """Return the settings that a recipe's command asks for."""
    from metarl_agents.cli import parse_config

    words = shlex.split(command)
    assert words[0] == "python" and (ROOT / words[1]).is_file()
    preset = ROOT / "recipes/configs" / Path(words[1]).stem.removeprefix("train_") / "tiny.yaml"
    return parse_config(words[2:], defaults=preset)


@pytest.mark.parametrize("command", recipe_commands())
def test_the_recipes_commands_build_their_environments(command, my_package, monkeypatch):
    from metarl_agents.envs.factory import environment_factory

    if not installed(command):
        pytest.skip("needs the extra that this command is about")
    monkeypatch.chdir(ROOT)
    config = read(command)
    if config.trial.env == "bridge":  # tested where its package is installed
        config.trial.env = "my_package.my_env:Bridge"
    config.check()
    observation, _ = environment_factory(config.trial)().reset(seed=0)
    assert observation


@pytest.mark.slow
def test_a_recipe_finds_a_module_of_the_current_folder(tmp_path):
    (tmp_path / "own_bridge.py").write_text(CODE[0])
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    flags = ["--env", "own_bridge:Bridge", "--num_episodes", "3", "--max_turns", "3", "--dry_run"]
    recipe = [sys.executable, str(ROOT / "recipes" / "train_two_doors.py"), *flags]
    done = subprocess.run(recipe, cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "You stand before the bridge." in done.stdout and "Nothing was trained" in done.stdout


@pytest.mark.parametrize("command", [command for command in recipe_commands() if command.endswith("--dry_run")])
def test_dry_runs_print_their_prompts(command, my_package, monkeypatch, capsys):
    from metarl_agents.training.report import run_and_report

    if not installed(command):
        pytest.skip("needs the extra that this command is about")
    monkeypatch.chdir(ROOT)
    config = read(command)
    if config.trial.env == "bridge":
        config.trial.env = "my_package.my_env:Bridge"
    assert run_and_report(config) in (0, None)
    printed = capsys.readouterr().out
    assert "Nothing was trained" in printed and ("[red:S]FFF" in printed or "You stand before the bridge." in printed)


def test_the_other_commands_are_understood():
    spec = importlib.util.spec_from_file_location("evaluate_recipe_of_the_page", ROOT / "recipes" / "evaluate.py")
    evaluate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(evaluate)
    from metarl_agents import play

    read_by = {"recipes/evaluate.py": evaluate._parser, "-m metarl_agents.play": play._parser}
    others = [command for command in commands() if command not in recipe_commands()]
    assert "pip install -e ." in others
    for command in others:
        if command == "pip install -e .":
            continue
        (start,) = [start for start in read_by if command.startswith(f"python {start} ")]
        arguments = read_by[start]().parse_args(shlex.split(command.removeprefix(f"python {start} ")))
        assert arguments.model_name_or_path == "runs/my_run"


def test_every_setting_that_the_page_names_exists():
    from metarl_agents.config import Config

    flags = set(re.findall(r"`--(\w+)", PAGE))
    assert {"env_timeout_s", "tasks", "wording"} <= flags
    assert flags <= set(Config().flat())
    named = {"invalid_action_penalty", "gamma_step", "gamma_traj", "max_turns"}
    assert named <= set(Config().flat()) and all(f"`{name}`" in PAGE for name in named)


def test_every_keyword_of_the_adapters_is_explained():
    import inspect

    from metarl_agents.envs.adapters.gymnasium import GymnasiumEnvironment

    own = [p.name for p in inspect.signature(GymnasiumEnvironment).parameters.values() if p.kind is p.KEYWORD_ONLY]
    chapter = PAGE.split("\n## Gymnasium\n")[1].split("\n## TextArena\n")[0]
    assert own and all(name in chapter for name in own)


def test_links_lead_to_files():
    links = re.findall(r"\]\((?!http)([^)#]+)", PAGE)
    assert links and all((ROOT / "docs" / link).is_file() for link in links)
