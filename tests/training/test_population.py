"""The pool of opponents: who is met, in which seat; snapshots that join, leave, load and resume; ratings."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))

from pennies import Pennies
from training_helpers import (
    Coin,
    metrics_of,
    open_run,
    read_lines,
    run_training,
    same_weights,
    small_config,
    small_policy,
    weights_of,
)

from metarl_agents.config import PopulationConfig
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.rollout.opponents import ModelOpponent
from metarl_agents.training.population import Member, Population, snapshot_name
from metarl_agents.training.report import report
from metarl_agents.training.snapshots import read_ratings
from metarl_agents.training.trainer import TrainResult, make_batch, sample_trials
from metarl_agents.types import Episode, Outcome, Trial

GAME = {"max_turns": 2, "num_episodes": 1, "group_size": 3, "eval_tasks": 1, "memory": "none"}


class Quick(Pennies):
    """Two rounds."""

    def __init__(self):
        super().__init__(rounds=2)


def pool(group_size=4, env=None, **settings):
    config = PopulationConfig(**({"opponents": ["heads", "random"]} | settings))
    return Population(config, env or Pennies(), seed=5, group_size=group_size, seat_model=lambda member: member)


def trial(opponent, *outcomes, seat=0, group=0, error=None):
    return Trial(0, group, [Episode("", outcome=outcome) for outcome in outcomes], opponent, seat, error)


def alone(values):
    return values


def no_clocks(metrics):
    return {step: {k: v for k, v in values.items() if "time/" not in k} for step, values in metrics.items()}


# ---- who is met ------------------------------------------------------------------------------------------------------


def test_a_group_has_one_opponent_and_one_seat():
    for step in range(20):
        assert all(len(set(group)) == 1 and len(group) == 4 for group in pool().deal(step, 7))


def test_seats_are_taken_equally_often_overall_and_by_each_opponent():
    for step in range(20):
        dealt = [group[0] for group in pool().deal(step, 12)]
        for name in ("heads", "random"):
            taken = Counter(seat for opponent, seat in dealt if opponent == name)
            assert abs(taken[0] - taken[1]) <= 1
        assert Counter(seat for _, seat in dealt) == {0: 6, 1: 6}


def test_a_seat_that_the_environment_fixes_stays_fixed():
    assert {seat for group in pool(env=Pennies(seat="odd")).deal(0, 9) for _, seat in group} == {1}


def test_opponents_get_their_shares_of_every_step_up_to_one_group():
    weighted = pool(opponents=["heads=3", "random"])
    assert weighted.probabilities() == [0.75, 0.25]
    for step in range(20):
        met = Counter(group[0][0] for group in weighted.deal(step, 10))
        assert met["heads"] in (7, 8) and met["random"] in (2, 3)
    one_group = Counter(weighted.deal(step, 1)[0][0][0] for step in range(400))
    assert 260 <= one_group["heads"] <= 340


def test_the_uniform_rule_ignores_weights():
    assert pool(opponents=["heads=3", "random"], population_rule="uniform").probabilities() == [0.5, 0.5]


def test_without_names_the_environments_own_opponents_play_at_its_weights():
    own = pool(env=Pennies(weights=[1.0, 3.0]), opponents=None, snapshot_every=5)
    assert [member.name for member in own.members] == ["heads", "random"]
    assert own.probabilities() == [0.25, 0.75]
    own.join(5)
    assert own.probabilities() == pytest.approx([0.5 / 3, 1.5 / 3, 1 / 3])


def test_the_prioritised_rule_meets_those_oftener_against_whom_the_agent_fails():
    hard = pool(population_rule="prioritised")
    assert hard.probabilities() == [0.5, 0.5]
    lost = [trial("heads", Outcome.FAILURE, Outcome.OUT_OF_TURNS, group=0) for _ in range(4)]
    won = [trial("random", Outcome.FAILURE, Outcome.SUCCESS, group=1) for _ in range(4)]
    hard.record(lost + won, 1, alone)
    assert hard.probabilities() == pytest.approx([5 / 6, 1 / 6])
    drawn = [trial("random", Outcome.DRAW, group=1) for _ in range(4)]
    hard.record(drawn, 2, alone)
    heads, random = hard.members
    assert (heads.failures, heads.trials) == (0.9 * 4, 0.9 * 4)
    assert (random.failures, random.trials) == (2.0, 0.9 * 4 + 4)


def test_deals_are_a_function_of_run_seed_step_and_pool():
    assert pool().deal(3, 8) == pool().deal(3, 8)
    assert len({str(pool().deal(step, 8)) for step in range(8)}) > 4


def test_mixed_grouping_mixes_opponents_in_a_group_but_never_seats():
    mixed = pool(opponent_grouping="mixed", group_size=6)
    for step in range(20):
        for group in mixed.deal(step, 5):
            assert Counter(name for name, _ in group) == {"heads": 3, "random": 3}
            assert len({seat for _, seat in group}) == 1


def test_processes_share_a_deal_without_overlap():
    whole = pool().deal(2, 6)
    parts = [pool() for _ in range(2)]
    for rank, part in enumerate(parts):
        seated = part.seat(Pennies, 2, 6, rank, 2, None)
        mine = [pair for group in whole[rank::2] for pair in group]
        assert [(env.seating.opponents[0].name, env.seating.seats[0]) for env in (seated() for _ in mine)] == mine


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"opponents": ["nobody"]}, '"nobody", but the environment has heads, random'),
        ({"opponents": ["heads", "heads=2"]}, "none twice"),
        ({"opponents": ["heads=0"]}, "weights must be positive"),
        ({"opponents": []}, "at least one opponent"),
        ({"snapshot_limit": 0}, "snapshot_limit"),
        ({"snapshot_every": -1}, "snapshot_every"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        pool(**settings)


def test_models_are_named_after_their_folders_and_may_have_weights():
    made = pool(opponents=["model:runs/my=run", "model:org/name=2.5", "self=2"])
    assert [(m.name, m.source, m.weight) for m in made.members] == [
        ("my=run", "runs/my=run", 1.0),
        ("name", "org/name", 2.5),
    ]
    assert made.join(0) == Member("snapshot-0", 2.0, joined=0)


def test_the_oldest_snapshot_leaves():
    growing = pool(snapshot_every=2, snapshot_limit=2)
    for step in (2, 4, 6):
        growing.join(step)
    assert [member.name for member in growing.members] == ["heads", "random", "snapshot-4", "snapshot-6"]


# ---- how it goes -----------------------------------------------------------------------------------------------------


def test_metrics_tell_first_episodes_by_opponent_and_by_seat():
    won, lost, drawn = Outcome.SUCCESS, Outcome.FAILURE, Outcome.DRAW
    metrics = pool(group_size=2).record(
        [
            trial("heads", won, seat=0),
            trial("heads", lost, won, seat=0),
            trial("random", won, seat=1, group=1),
            trial("random", drawn, seat=1, group=1),
            trial("random", won, seat=1, group=2),
            trial("random", won, seat=1, group=2, error="OpponentFailure: snapshot-3 could not answer"),
        ],
        1,
        alone,
    )
    assert metrics == {
        "population/size": 2.0,
        "population/failure_rate": 1 / 6,
        "population/share/heads": 0.5,
        "population/share/random": 0.5,
        "population/win_rate/heads": 0.5,
        "population/win_rate/random": 0.5,
        "population/seat_win_rate/even": 0.5,
        "population/seat_win_rate/odd": 0.5,
    }


def test_ratings_order_members_by_how_the_agent_fares_and_survive_a_checkpoint():
    rated = pool(group_size=2)
    for step in range(1, 11):
        easy = [trial("random", Outcome.SUCCESS, group=0) for _ in range(2)]
        hard = [trial("heads", Outcome.FAILURE, group=1), trial("heads", Outcome.SUCCESS, group=1)]
        rated.record(easy + hard, step, alone)
    ratings = rated.ratings()
    assert [rating.name for rating in ratings] == ["agent", "heads", "random"] or ratings[0].name == "heads"
    by_name = {rating.name: rating for rating in ratings}
    assert by_name["heads"].rating > by_name["random"].rating + 200
    assert by_name["heads"].games == by_name["random"].games == 10  # groups, not trials
    again = pool(group_size=2)
    again.load_state(json.loads(json.dumps(rated.state())))
    assert again.ratings() == ratings and again.state() == rated.state()


def test_members_that_joined_at_different_times_are_linked_by_the_agent_of_each_stretch():
    # The agent beats `heads` always at first; later it is so good that it beats snapshot-2 half of the time.
    rated = pool(opponents=["heads"], snapshot_every=2, group_size=1)
    for step in (1, 2):
        rated.record([trial("heads", Outcome.SUCCESS, group=g) for g in range(8)], step, alone)
    rated.join(2)
    for step in (3, 4):
        rated.record(
            [trial("heads", Outcome.SUCCESS, group=g) for g in range(8)]
            + [trial("snapshot-2", (Outcome.SUCCESS, Outcome.FAILURE)[g % 2], group=8 + g) for g in range(8)],
            step,
            alone,
        )
    by_name = {rating.name: rating.rating for rating in rated.ratings()}
    assert set(by_name) == {"agent", "heads", "snapshot-2"}
    assert by_name["snapshot-2"] > by_name["heads"] + 200
    assert by_name["agent"] == pytest.approx(by_name["snapshot-2"], abs=100)


def roles(folder):
    """{(step, group): roles of its trials} as the trajectories tell."""
    found = {}
    for line in read_lines(folder / "trajectories" / "train.jsonl"):
        found.setdefault((line["step"], line["group"]), set()).add((line["opponent"], line["seat"]))
    return found


SELF_PLAY = GAME | {"opponents": ["heads", "self=3"], "snapshot_every": 2, "snapshot_limit": 1, "tasks_per_step": 4}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("population") / "straight"
    return run_training(folder, Quick, max_steps=4, save_steps=3, **SELF_PLAY)


def test_a_run_meets_its_own_snapshots_which_join_and_leave(straight):
    met = roles(straight.output_dir)
    assert all(len(group) == 1 for group in met.values()) and len(met) == 16
    names = {step: {name for (s, _), group in met.items() if s == step for name, _ in group} for step in range(1, 5)}
    for step, snapshot in enumerate(("snapshot-0", "snapshot-0", "snapshot-2", "snapshot-2"), start=1):
        assert snapshot in names[step] and names[step] <= {"heads", snapshot}


def test_a_run_leaves_ratings_in_its_folder_its_curves_and_its_report(straight):
    ratings = read_ratings(straight.output_dir)
    assert {"agent", "heads"} < {rating.name for rating in ratings}
    assert all(rating.low < rating.rating < rating.high for rating in ratings)
    curves = metrics_of(straight.output_dir, "population")
    assert list(curves) == [2, 4] and curves[4]["rating/agent"] == next(r.rating for r in ratings if r.name == "agent")
    train = metrics_of(straight.output_dir)
    assert train[1]["population/size"] == 2 and train[4]["population/failure_rate"] == 0
    assert train[1]["population/batch_size"] > 1
    shown = report(straight)
    assert "Elo" in shown and "snapshot-2" in shown


def test_a_run_without_a_population_reports_no_ratings(tmp_path):
    assert "Elo" not in report(TrainResult(tmp_path, None, None, False, 0))


def test_three_steps_and_one_more_equal_four_in_one_go(tmp_path, straight):
    run_training(tmp_path / "half", Quick, max_steps=3, save_steps=3, **SELF_PLAY)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    settings = {"resume_from_checkpoint": str(tmp_path / "half" / "checkpoint-3")}
    resumed = run_training(moved, Quick, max_steps=4, save_steps=3, **SELF_PLAY, **settings)
    old, new = metrics_of(straight.output_dir), metrics_of(resumed.output_dir)
    assert no_clocks(old)[4] == no_clocks(new)[4] and "population/share/snapshot-2" in new[4]
    assert read_ratings(moved) == read_ratings(straight.output_dir)
    states = [
        json.loads((folder / "checkpoint-4/trainer_state.json").read_text()) for folder in (moved, straight.output_dir)
    ]
    assert states[0]["population"] == states[1]["population"] != {}
    assert [member["name"] for member in states[0]["population"]["members"]] == ["heads", "snapshot-4"]
    from safetensors.torch import load_file

    weights = [load_file(folder / "model.safetensors") for folder in (moved, straight.output_dir)]
    assert same_weights(*weights)


def test_a_snapshot_holds_the_weights_of_its_step(tmp_path):
    from transformers import AutoModelForCausalLM

    policy = small_policy()
    start = weights_of(policy.model)
    run = open_run(tmp_path / "run", Quick, policy, **SELF_PLAY)
    run.policy.model.get_input_embeddings().weight.data.add_(1.0)
    folder = run.output_dir / "population" / snapshot_name(0)
    assert same_weights(weights_of(AutoModelForCausalLM.from_pretrained(folder)), start)
    model = run.population.opponent("snapshot-0")
    assert isinstance(model, ModelOpponent) and same_weights(weights_of(model.policy.model), start)
    assert not any(parameter.requires_grad for parameter in model.policy.model.parameters())


@pytest.mark.slow
def test_snapshots_stay_as_long_as_the_pool_or_a_checkpoint_knows_them(tmp_path):
    settings = SELF_PLAY | {"snapshot_every": 1, "snapshot_limit": 1}
    run_training(tmp_path / "run", Quick, max_steps=4, save_steps=2, save_total_limit=1, **settings)
    kept = sorted(folder.name for folder in (tmp_path / "run/population").glob("snapshot-*"))
    # Checkpoint 2 was still there when snapshot 4 joined.
    assert kept == ["snapshot-2", "snapshot-4"]


def test_another_checkpoint_can_be_an_opponent(tmp_path):
    small_policy(seed=3).save(tmp_path / "rival")
    settings = GAME | {"opponents": [f"model:{tmp_path / 'rival'}"], "max_steps": 1, "save_trajectories_steps": 1}
    result = run_training(tmp_path / "run", Quick, **settings)
    assert {role for group in roles(result.output_dir).values() for role in group} <= {("rival", 0), ("rival", 1)}


@pytest.mark.slow
def test_a_snapshot_of_adapters_plays_too(tmp_path):
    settings = SELF_PLAY | {"use_peft": True, "lora_r": 2, "max_steps": 3, "snapshot_every": 1}
    result = run_training(tmp_path / "run", Quick, **settings)
    assert (result.output_dir / "population/snapshot-3/adapter_model.safetensors").is_file()
    assert metrics_of(result.output_dir)[3]["population/failure_rate"] == 0
    assert "snapshot-1" in str(roles(result.output_dir))


def test_an_opponent_that_cannot_answer_costs_its_groups_and_is_counted(tmp_path, capsys):
    run = open_run(tmp_path / "run", Quick, **SELF_PLAY)
    run.population._models["snapshot-0"] = broken = ModelOpponent("snapshot-0", small_policy(), None)
    broken.answer = lambda questions: 1 / 0
    trials, _ = sample_trials(run, 0)
    lost = {trial.group for trial in trials if trial.opponent == "snapshot-0" or trial.crashed}
    assert lost and all(trial.crashed == (trial.group in lost) for trial in trials)
    assert all(trial.error.startswith("OpponentFailure: snapshot-0") for trial in trials if trial.crashed)
    batch, _ = make_batch(run, trials)
    assert len(batch) == sum(len(list(trial.rows())) for trial in trials if trial.group not in lost)
    metrics = run.population.record(trials, 1, alone)
    assert metrics["population/failure_rate"] == len(lost) / 4
    assert "population/win_rate/snapshot-0" not in metrics


def test_a_run_without_a_population_is_the_run_it_was(tmp_path):
    one = run_training(tmp_path / "one", Quick, max_steps=2, **GAME)
    assert not (one.output_dir / "population").exists()
    assert not any(name.startswith("population") for name in metrics_of(one.output_dir)[2])
    met = roles(one.output_dir)
    assert all(len(group) == 1 for group in met.values())
    assert {name for group in met.values() for name, _ in group} <= {"heads", "random"}


@pytest.mark.parametrize(
    ("make_env", "settings", "message"),
    [
        (Coin, {"snapshot_every": 2}, "are for games"),
        (Quick, {"opponents": ["nobody"]}, "nobody"),
        (Quick, {"opponents": ["model:/no/such/folder"]}, "no model folder"),
        (Quick, {"opponents": ["model:tiny"]}, "cannot play this game untaught"),
    ],
)
def test_a_run_that_cannot_have_a_population_says_so_before_it_plays(tmp_path, make_env, settings, message):
    with pytest.raises(ConfigError, match=message):
        open_run(tmp_path / "run", make_env, **GAME, **settings)


def test_workers_and_a_population_exclude_each_other():
    with pytest.raises(ConfigError, match="env_workers"):
        small_config(env_workers=2, snapshot_every=1).check()


def test_a_lost_snapshot_is_missed_at_once(tmp_path, straight):
    shutil.copytree(straight.output_dir, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/population/snapshot-4")
    with pytest.raises(CheckpointError, match="snapshot-4 is not in"):
        run_training(tmp_path / "run", Quick, max_steps=5, resume_from_checkpoint="latest", **SELF_PLAY)


@pytest.mark.parametrize("settings", [{"opponents": ["tails", "self"]}, {"snapshot_every": 3}])
def test_the_pool_of_a_resumed_run_is_its_checkpoints(straight, settings):
    """A list of opponents that differs would be announced and have no effect."""
    with pytest.raises(CheckpointError, match=f"`{next(iter(settings))}` is .* was trained with"):
        chosen = SELF_PLAY | {"max_steps": 5, "resume_from_checkpoint": "latest"} | settings
        run_training(straight.output_dir, Quick, **chosen)


def test_a_checkpoint_with_opponents_that_the_environment_lacks_is_refused():
    with pytest.raises(CheckpointError, match="nobody"):
        pool().load_state({"members": [{"name": "nobody", "weight": 1.0}], "results": []})


def test_loading_an_opponent_moves_no_random_stream(tmp_path):
    run = open_run(tmp_path / "run", Quick, **SELF_PLAY)
    before = torch.random.get_rng_state()
    assert run.population.opponent("snapshot-0").policy is not run.policy
    assert torch.equal(before, torch.random.get_rng_state())
