"""docs/games.md is run: its code as it stands, its commands by the parsers they are for."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest

from metarl_agents import play
from metarl_agents.cli import parse_config, parse_with_extras
from metarl_agents.config import Config, TrialConfig
from metarl_agents.envs.factory import environment_factory
from metarl_agents.evaluation.game_values import role_frames
from metarl_agents.evaluation.games import exam_opponents, exam_settings
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.training.populating import meet_listed
from metarl_agents.types import Response

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "games.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, code in BLOCKS if not kind for line in code.splitlines()]
ADDRESS = "my_package.my_game:TakeStones"


@pytest.fixture
def space(tmp_path, monkeypatch):
    """The names of the page's code, which stands where its command looks for it."""
    (code,) = [code for kind, code in BLOCKS if kind == "python"]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "my_game.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_package", "my_package.my_game"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    names = {"__name__": "page"}
    exec(compile(code, "games.md", "exec"), names)
    return names


def test_every_fence_is_of_a_kind_that_is_tested():
    assert {kind for kind, _ in BLOCKS} == {"", "python"} and len(COMMANDS) == 10


def test_the_pages_game_is_framed_and_played_to_its_end(space):
    config = TrialConfig(env=ADDRESS, num_episodes=2, max_turns=8, stop_on_success=False)
    roles = [(name, seat) for name in ("random", "takes_one") for seat in (0, 1)]
    values, missing = role_frames(config, roles)
    assert set(values) == set(roles) and not missing
    assert all(value.floor <= value.ceiling for value in values.values())
    assert values["takes_one", 0] == (1.0, 1.0) and values["random", 1].ceiling > 0.8
    runner = TrialRunner(environment_factory(config), 1, 0, config)
    while not runner.done:
        action = runner.admissible[-1] if runner.admissible else ""
        runner.receive((), Response((), "<remark>x</remark>" if runner.reflecting else f"<action>{action}</action>"))
    ends = [episode.final_observation for episode in runner.trial.episodes]
    assert runner.trial.error is None and len(ends) == 2 and set(ends) <= {"You have lost.", "You have won."}


def test_perfect_play_of_the_page_is_perfect(space):
    config = TrialConfig(env=ADDRESS, env_kwargs={"opponents": ["perfect"]})
    values, _ = role_frames(config, [("perfect", 0), ("perfect", 1)])
    # Ten stones are won by whoever begins, since two of them leave eight.
    assert values["perfect", 0] == (1.0, 1.0) and values["perfect", 1] == (-1.0, -1.0)


@pytest.mark.parametrize("command", [line for line in COMMANDS if "train_" in line])
def test_the_training_commands_are_understood(command, space):
    words = shlex.split(command)
    assert words[:2] == ["python", "recipes/train_kuhn.py"]
    config = parse_config(words[2:], defaults=ROOT / "recipes/configs/kuhn/tiny.yaml")
    env = meet_listed(config, environment_factory(config.trial))()
    own = {opponent.name for opponent in env.seating.opponents}
    for entry in config.population.opponents or ():
        assert entry.split("=")[0] in own | {"self"} or entry.startswith("model:runs/old_run")


@pytest.mark.parametrize("command", [line for line in COMMANDS if "evaluate.py" in line])
def test_the_evaluation_commands_are_understood(command):
    spec = importlib.util.spec_from_file_location("evaluate_recipe_of_games", ROOT / "recipes" / "evaluate.py")
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    config, _ = parse_with_extras(shlex.split(command)[2:], recipe._parser())
    assert config.model.model_name_or_path == "runs/my_run"
    listed = config.population.opponents
    examined = exam_settings(TrialConfig(env="kuhn"), listed, models=True)
    scripted = [entry.name for entry in exam_opponents(listed, models=True) if entry.source is None]
    assert examined.env_kwargs.get("opponents", []) == scripted


@pytest.mark.parametrize("command", [line for line in COMMANDS if "metarl_agents.play" in line])
def test_the_play_commands_are_understood(command):
    words = shlex.split(command)
    told = play._parser().parse_args(words[3:])
    assert words[:3] == ["python", "-m", "metarl_agents.play"] and told.model_name_or_path == "runs/my_run"
    _, is_human = play.against(TrialConfig(env=told.env), told.opponent)
    assert is_human == (told.opponent is None)


def test_every_setting_that_the_page_names_exists():
    flags = set(re.findall(r"`--(\w+)", PAGE))
    assert {"opponents", "snapshot_every", "snapshot_limit", "population_rule", "normalise_by_role"} <= flags
    assert flags - {"opponent"} <= set(Config().flat())


def test_links_lead_to_files():
    links = re.findall(r"\]\((?!http)([^)#]+)", PAGE)
    assert links and all((ROOT / "docs" / link).is_file() for link in links)
