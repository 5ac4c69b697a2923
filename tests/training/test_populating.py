"""Who is listed is who is met: in rollouts and in the run's evaluations, under one name each, and refused in time."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))

from pennies import Pennies
from training_helpers import Coin, metrics_of, read_lines, run_training, small_config, small_policy

from metarl_agents.config import Config, PopulationConfig
from metarl_agents.envs.factory import environment_factory
from metarl_agents.envs.games import PolicyOpponent
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.rollout.opponent_lists import SELF, read_listed
from metarl_agents.training.dry_run import describe_run
from metarl_agents.training.populating import meet_listed
from metarl_agents.training.population import Population
from metarl_agents.types import Episode, Outcome, Trial

GAME = {"max_turns": 2, "num_episodes": 1, "group_size": 4, "tasks_per_step": 4, "memory": "none"}


class Closed(Pennies):
    """Lets nobody say whom it seats."""

    def __init__(self):
        super().__init__(rounds=2)


def pool(opponents, env=None, **settings):
    config = PopulationConfig(opponents=opponents, **settings)
    return Population(config, env or Pennies(), seed=0, group_size=1, seat_model=lambda member: member)


def names(make_env):
    return [opponent.name for opponent in make_env().seating.opponents]


def kuhn(**settings):
    """Settings of a run in Kuhn poker, and what builds its games."""
    config = Config.from_flat({"env": "kuhn", "wording": "compact"} | settings)
    return config, environment_factory(config.trial)


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opponents", "expected"),
    [
        (["model:runs/mine", "heads"], ["mine", "heads"]),
        (["model:runs/agent"], ["model:runs/agent"]),
        (["model:runs/agent 3=2"], ["model:runs/agent 3"]),
        (["model:agent"], ["model:agent"]),
        (["model:old/population/snapshot-2"], ["model:old/population/snapshot-2"]),
        (["model:runs/agents", "model:snapshots"], ["agents", "snapshots"]),
        (["model:runs/random"], ["model:runs/random"]),  # an opponent of the environment is called so
        (["model:a/final", "model:b/final"], ["model:a/final", "model:b/final"]),
    ],
)
def test_a_model_is_called_by_its_folder_unless_somebody_else_may_be_called_so(opponents, expected):
    assert [member.name for member in pool(opponents).members] == expected


def test_one_model_twice_is_refused():
    with pytest.raises(ConfigError, match="none twice"):
        pool(["model:a/final", "model:a/final=2"])


def test_a_model_in_a_folder_named_agent_is_rated_beside_the_agent():
    rated = pool(["model:runs/agent", "heads"])
    played = [Trial(0, 0, [Episode("", outcome=Outcome.SUCCESS)], name, 0) for name in ("model:runs/agent", "heads")]
    rated.record(played, 1, lambda values: values)
    assert {rating.name for rating in rated.ratings()} == {"agent", "model:runs/agent", "heads"}


def test_a_snapshot_of_another_run_stays_beside_the_runs_own_of_that_step():
    mixed = pool(["model:old/population/snapshot-2", "heads"], snapshot_every=2)
    mixed.join(2)
    assert [member.name for member in mixed.members] == ["model:old/population/snapshot-2", "heads", "snapshot-2"]
    lost = Trial(0, 0, [Episode("", outcome=Outcome.FAILURE)], "snapshot-2", 0)
    metrics = mixed.record([lost], 1, lambda values: values)
    assert metrics["population/win_rate/snapshot-2"] == 0.0
    assert "population/win_rate/model:old/population/snapshot-2" not in metrics


@pytest.mark.parametrize("name", ["agent", "agent 2", "snapshot-7"])
def test_an_opponent_of_the_game_may_not_have_a_name_that_the_run_gives(name):
    for opponents in ([name], None):
        with pytest.raises(ConfigError, match=f'is called "{name}"'):
            pool(opponents, Pennies(opponents=[name]), snapshot_every=2)


# ---- who is met ------------------------------------------------------------------------------------------------------


def test_names_that_the_games_own_pool_lacks_are_met_where_the_game_knows_them():
    config, make_env = kuhn(
        opponents=["cfr=3", "equilibrium", "self"], env_kwargs={"opponent": "random", "seat": "first"}
    )
    faced = meet_listed(config, make_env)
    for build in (faced, environment_factory(config.trial)):
        assert names(build) == ["cfr", "equilibrium"] and build().seating.shares == (0.75, 0.25)
        assert build().seating.seats == (0,)
    assert config.trial.env_kwargs == {"seat": "first", "opponents": ["cfr", "equilibrium"], "weights": [3.0, 1.0]}
    members = Population(config.population, faced(), seed=0, group_size=1, seat_model=None).members
    assert [(member.name, member.weight) for member in members] == [("cfr", 3.0), ("equilibrium", 1.0)]
    assert meet_listed(config, faced) is faced, "it has them now"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"snapshot_every": 5},
        {"opponents": ["self"]},
        {"opponents": ["model:runs/x", "self=2"]},
        {"opponents": ["intermediate=4", "aggressive=3", "conservative=3"]},  # the pool as it is
    ],
)
def test_where_nobody_else_is_named_the_environment_keeps_its_own(settings):
    config, make_env = kuhn(**settings)
    assert meet_listed(config, make_env) is make_env and config.trial.env_kwargs == {}


def test_a_part_of_the_pool_is_met_alone_and_equally_often_unless_weights_say_otherwise():
    config, make_env = kuhn(opponents=["aggressive", "conservative"])
    assert meet_listed(config, make_env)().seating.shares == (0.5, 0.5)
    assert config.trial.env_kwargs == {"opponents": ["aggressive", "conservative"]}


def test_a_name_that_the_game_does_not_know_is_refused_in_one_sentence():
    config, make_env = kuhn(opponents=["agressive"])
    with pytest.raises(ConfigError, match='"agressive", but Kuhn poker knows random, conservative'):
        meet_listed(config, make_env)


def test_a_class_that_takes_no_opponents_keeps_its_own():
    config = small_config(**GAME, opponents=["heads"])
    assert meet_listed(config, Closed) is Closed and config.trial.env_kwargs == {}
    config = small_config(**GAME, opponents=["nobody"])
    with pytest.raises(ConfigError, match='names "nobody", but the environment has heads, random'):
        pool(["nobody"], meet_listed(config, Closed)())


def test_objects_that_a_program_seats_can_be_listed_by_their_names():
    class Strict(Pennies):
        @staticmethod
        def find(name):
            raise ConfigError(f"nobody is called {name}")

    mine = [PolicyOpponent(name, lambda decision: {"heads": 1.0}) for name in ("mine", "yours")]
    make_env = partial(Strict, opponents=mine)
    assert meet_listed(small_config(**GAME, opponents=["mine"]), make_env) is make_env
    with pytest.raises(ConfigError, match="nobody is called theirs"):
        meet_listed(small_config(**GAME, opponents=["theirs"]), make_env)


@pytest.fixture(scope="module")
def against_tails(tmp_path_factory):
    """A run against somebody whom its environment does not seat by itself."""
    folder = tmp_path_factory.mktemp("listed") / "run"
    settings = {"env": "pennies:Pennies", "opponents": ["tails"], "max_steps": 1, "eval_steps": 1, "eval_tasks": 4}
    return run_training(folder, Pennies, **GAME, **settings).output_dir


def test_rollouts_and_evaluations_of_a_run_meet_those_that_are_listed(against_tails):
    trained = {line["opponent"] for line in read_lines(against_tails / "trajectories" / "train.jsonl")}
    validated = {line["opponent"] for line in read_lines(against_tails / "trajectories" / "validation.jsonl")}
    assert trained == validated == {"tails"}
    for name in ("before", "after"):
        result = EvaluationResult.from_json(against_tails / "eval" / f"{name}.json")
        assert {row["opponent"] for row in result.meta["games"]["rows"]} == {"tails"}
    kept = yaml.safe_load((against_tails / "config.yaml").read_text())
    assert kept["env_kwargs"] == {"opponents": ["tails"]} and kept["opponents"] == ["tails"]


def test_a_game_leaves_seats_in_its_curves_and_frames_and_ratings_on_its_card(against_tails):
    metrics = metrics_of(against_tails)[1]
    assert all(f"seat_{seat}/{what}" in metrics for seat in (0, 1) for what in ("success", "reward"))
    assert metrics["seat_0/success"] == metrics["population/seat_win_rate/even"]
    games = EvaluationResult.from_json(against_tails / "eval" / "after.json").meta["games"]
    assert {(one["opponent"], one["seat"]) for one in games["summary"]} > {("tails", 0), ("tails", 1)}
    card = (against_tails / "README.md").read_text()
    assert "What was won from whom" in card and "| tails" in card and "even seat, against" in card
    assert "| player" in card and "| agent" in card


# ---- refused in time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make_env", "settings", "message"),
    [
        (Closed, {"opponents": ["nobody"]}, "nobody"),
        (Pennies, {"opponents": ["heads", "heads=2"]}, "none twice"),
        (Pennies, {"opponents": ["model:/no/such/folder"]}, "no model folder"),
        (Pennies, {"opponents": ["heads=0"]}, "weights must be positive"),
        (Coin, {"snapshot_every": 2}, "are for games"),
        (Coin, {"opponents": ["heads"]}, "are for games"),
        (Pennies, {"opponents": ["heads"], "env_workers": 2}, "seats its opponents in the training process"),
    ],
)
def test_a_dry_run_refuses_the_population_that_training_would(tmp_path, make_env, settings, message):
    with pytest.raises(ConfigError, match=message):
        describe_run(small_config(**GAME, **settings), make_env)
    with pytest.raises(ConfigError, match=message):
        run_training(tmp_path / "run", make_env, **GAME, **settings)


def test_a_dry_run_of_a_population_shows_the_page_and_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_policy(seed=3).save(tmp_path / "rival")
    config, make_env = kuhn(opponents=["cfr", "model:rival", "self"], max_turns=4, max_new_tokens_per_turn=8)
    text = describe_run(config, make_env)
    assert "First prompt (" in text and "- cfr" in text
    assert [path.name for path in tmp_path.iterdir()] == ["rival"]


@pytest.mark.parametrize(
    ("opponents", "expected"),
    [
        (None, False), (["cfr", "self_made"], False), (["cfr=2", "self"], True), (["self=0.5"], True), (["model:x=2"], True),
    ],
)  # fmt: skip
def test_only_models_exclude_environment_workers_where_nothing_is_trained(opponents, expected):
    listed = [read_listed(entry) for entry in opponents or ()]
    assert expected == any(entry.source is not None or entry.name == SELF for entry in listed)
    config = small_config(opponents=opponents, env_workers=2)
    assert config.population.seats_models == expected
    if not expected:
        config.check()
        return
    with pytest.raises(ConfigError, match="`env_workers` is 2, but models that sit opposite"):
        config.check()


# ---- what a run says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"opponent_grouping": "mixed"}, 1),
        ({"opponent_grouping": "mixed", "normalise_by_role": False}, 0),
        ({"opponent_grouping": "stationary"}, 0),
    ],
)
def test_trials_with_nobody_to_be_compared_with_are_explained_once(tmp_path, capsys, settings, expected):
    settings = GAME | {"group_size": 2, "opponents": ["heads", "tails"], "max_steps": 2} | settings
    result = run_training(tmp_path / "run", Pennies, **settings)
    assert capsys.readouterr().out.count("had nothing to be compared with") == expected
    assert metrics_of(result.output_dir)[1]["advantages/lone_frac"] == expected


def test_environments_and_models_opposite_are_timed_apart(tmp_path):
    run_training(tmp_path / "run", Pennies, **(GAME | {"opponents": ["self"], "max_steps": 1}))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (metrics,) = [line["metrics"] for line in lines if line["prefix"] == "train"]
    parts = [metrics[f"time/{part}"] for part in ("generate", "env", "opponents", "train")]
    assert min(parts) > 0 and sum(parts) == pytest.approx(metrics["step_time"])
