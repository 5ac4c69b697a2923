"""The package as it is installed from a wheel, away from any checkout: its settings files, and what they play."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from metarl_agents.errors import ConfigError
from metarl_agents.policy import processes
from metarl_agents.presets import CONFIGS, LAUNCHERS, launcher_file, preset_file

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = sorted(path.parent.name for path in (ROOT / "recipes" / "configs").glob("*/tiny.yaml"))
READ = """
import json, sys
import metarl_agents
from metarl_agents import play
from metarl_agents.presets import launcher_file
config = lambda env: play.parse_with_extras([env, "--model", "tiny"], play._parser(), play._defaults)[0].flat()
found = {env: config(env) for env in sys.argv[1:]}
print(json.dumps({"place": metarl_agents.__file__, "launcher": launcher_file("zero2"), "settings": found}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build a wheel of a copy of the sources, install it beside no checkout, and return how to run Python on it."""
    pytest.importorskip("setuptools", reason="building a package without network needs setuptools here")
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "target"))
    for name in ("build_backend", "src", "environments"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    made = subprocess.run([*pip, "--target", str(target), str(source)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    shutil.rmtree(source)

    def run(*words):
        environment = os.environ | {"PYTHONPATH": str(target)}
        done = subprocess.run(
            [sys.executable, *words], cwd=target.parent, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    return target, run


@pytest.mark.slow
def test_an_installed_package_plays_what_the_presets_of_the_checkout_say(installed):
    target, run = installed
    done = run("-c", READ, *ENVIRONMENTS)
    found = json.loads(done.stdout)
    assert Path(found["place"]).is_relative_to(target) and Path(found["launcher"]).is_relative_to(target)
    assert yaml.safe_load(Path(found["launcher"]).read_text()) == yaml.safe_load((LAUNCHERS / "zero2.yaml").read_text())
    assert done.stderr == "" and len(ENVIRONMENTS) >= 6
    here = subprocess.run([sys.executable, "-c", READ, *ENVIRONMENTS], cwd=ROOT, capture_output=True, text=True)
    assert found["settings"] == json.loads(here.stdout)["settings"]
    for env in ENVIRONMENTS:
        preset = yaml.safe_load((ROOT / "recipes" / "configs" / env / "tiny.yaml").read_text(encoding="utf-8"))
        brought = {name: preset[name] for name in ("env_kwargs", "max_turns", "num_episodes") if name in preset}
        assert {name: found["settings"][env][name] for name in brought} == brought


@pytest.mark.slow
def test_an_installed_package_plays_minesweeper_with_the_boards_of_its_model(installed):
    text = installed[1]("-m", "metarl_agents.play", "minesweeper", "--model", "tiny", "--delay", "0").stdout
    assert "size 4, mines 4" in text and "at most 12 turns" in text


@pytest.mark.slow
def test_an_installed_package_holds_every_settings_file(installed):
    inside = installed[0] / "metarl_agents" / "presets"
    for here, there in ((CONFIGS, inside / "configs"), (LAUNCHERS, inside / "accelerate_configs")):
        names = {path.relative_to(here) for path in here.rglob("*.yaml")}
        assert names == {path.relative_to(there) for path in there.rglob("*.yaml")} and len(names) > 5


def test_the_paths_of_the_recipes_lead_to_the_presets_of_the_package():
    assert (ROOT / "recipes" / "configs").samefile(CONFIGS)
    assert (ROOT / "recipes" / "accelerate_configs").samefile(LAUNCHERS)


def test_a_preset_is_found_by_the_name_and_by_the_address_of_its_environment(monkeypatch, tmp_path):
    assert preset_file("minesweeper") == preset_file("metarl_agents.environments.minesweeper:Minesweeper")
    assert preset_file("minesweeper", "tiny_6x6").is_file()
    assert preset_file("my_package.my_env:MyEnv") is None and preset_file("..") is None
    monkeypatch.setattr("metarl_agents.presets.CONFIGS", tmp_path / "gone")
    with pytest.raises(ConfigError, match="install metarl_agents again"):
        preset_file("minesweeper")


def test_messages_name_a_launchers_file_that_is_there(monkeypatch, tmp_path):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    for folder in (ROOT, tmp_path):  # a checkout, and anywhere else
        monkeypatch.chdir(folder)
        assert Path(launcher_file("cpu")).is_file() and Path(launcher_file("cpu")).is_absolute() == (folder != ROOT)
        with pytest.raises(ConfigError, match=r"accelerate_configs/cpu\.yaml or multi_gpu\.yaml"):
            processes.check_whole_weights()
