"""What `tiny` brings to a run, unless the user gives it; what other models and resumed runs keep."""

from __future__ import annotations

from functools import partial

import pytest
import yaml

from metarl_agents.cli import BRIEF, tiny_settings
from metarl_agents.config import Config
from metarl_agents.environments.kuhn import Kuhn
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.envs.wording import COMPACT_DEFAULT, Wording, in_style
from metarl_agents.training.settling import settle


class Own(TwoDoors):
    """An environment that no preset knows."""

    wording = Wording()


def test_an_environment_without_a_preset_is_trained_with_what_fits_the_tiny_model_and_that_is_said(capsys):
    config = settle(None, {"max_steps": 3}, Own)
    line = capsys.readouterr().err
    flat = config.flat()
    assert {name: flat[name] for name in BRIEF} == BRIEF and flat["max_steps"] == 3
    assert flat["learning_rate"] > 100 * Config().update.learning_rate and "learning_rate 0.0005" in line
    assert flat["env"].endswith(":Own") and line.count("\n") == 1


@pytest.mark.parametrize("given", [{"learning_rate": 1e-6}, {"updates_per_batch": 1}, {"wording": "paper"}])
def test_what_is_given_wins_also_where_it_is_the_library_s_default(given):
    for config in (None, Config.from_flat(given)):
        found = settle(config, given if config is None else {}, Own)
        assert found.flat() | given == found.flat()


def test_a_preset_is_followed_by_name_and_by_the_class_of_its_environment():
    preset = tiny_settings("kuhn")
    for settings, make_env in (({"env": "kuhn"}, None), ({}, partial(Kuhn, wording="compact"))):
        flat = settle(None, settings, make_env).flat()
        for name in ("learning_rate", "max_turns", "invalid_action_penalty", "stop_on_success", "scale_advantages"):
            assert flat[name] == preset[name]
        assert flat["max_steps"] == Config().run.max_steps


def test_other_models_and_settings_that_were_all_given_stay_as_they_are(capsys):
    assert settle(None, {"model_name_or_path": "owner/model"}, Own).update.learning_rate == 1e-6
    assert capsys.readouterr().err == ""
    assert settle(Config.from_flat(Config().flat()), {}, Own).update.learning_rate == 1e-6


def test_a_resumed_run_keeps_what_it_was_started_with(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"learning_rate": 1e-6, "wording": "paper"}))
    config = settle(None, {"output_dir": str(tmp_path), "resume_from_checkpoint": "latest"}, Own)
    assert (config.update.learning_rate, config.trial.wording) == (1e-6, "paper")


def test_a_compact_run_speaks_briefly_to_an_environment_without_texts_of_its_own():
    assert in_style(Wording(), "compact") == COMPACT_DEFAULT and in_style(Wording(), "paper") == Wording()
    assert in_style(TwoDoors.wording, "compact") == TwoDoors.wording
