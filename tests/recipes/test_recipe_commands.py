"""Every command that a training recipe's docstring shows is one that it takes."""

import shlex

import pytest
from recipe_helpers import ROOT, recipe

from metarl_agents.cli import parse_config
from metarl_agents.envs.factory import environment_factory
from metarl_agents.training.populating import build_population, meet_listed

RECIPES = sorted(path.stem for path in (ROOT / "recipes").glob("train_*.py"))
LAUNCH = ["python"]


def commands(name):
    """The words of each command, less `python` and a remark behind it."""
    lines = [line.strip() for line in recipe(name).__doc__.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(" ".join(LAUNCH))]


SHOWN = [(name, words) for name in RECIPES for words in commands(name)]


def test_every_recipe_shows_how_it_is_begun():
    assert len(RECIPES) >= 8
    for name in RECIPES:
        assert [f"recipes/{name}.py"] in commands(name)


@pytest.mark.parametrize(("name", "words"), SHOWN, ids=[" ".join(words) for _, words in SHOWN])
def test_a_command_is_understood_and_its_opponents_can_be_met(name, words, monkeypatch):
    monkeypatch.chdir(ROOT)  # where presets are named from
    assert words[0] == f"recipes/{name}.py"
    config = parse_config(words[1:], defaults=recipe(name).PRESET)
    assert config.trial.env == name.removeprefix("train_")
    if config.population.is_on:
        make_env = meet_listed(config, environment_factory(config.trial))
        population = build_population(config, make_env, lambda tiny_name: lambda member: None)
        own = {opponent.name for opponent in make_env().seating.opponents}
        assert {member.name for member in population.members if member.source is None} == own
