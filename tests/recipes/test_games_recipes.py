"""The games' recipes: their presets fit, remembering pays in them, prompts are short, a step learns."""

import random
from collections import Counter

import pytest
from recipe_helpers import call, recipe, scripted_trial, settings, takes_a_step

from metarl_agents.config import Config
from metarl_agents.envs.factory import environment_factory
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.evaluation.game_values import role_values
from metarl_agents.evaluation.games import SMALLEST_GAP, game_row, summarise
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model, build_tokenizer, frequent_pieces
from metarl_agents.rollout.tasks import evaluation_seeds
from metarl_agents.training.demonstrations import pages_and_answers, scripted_player
from metarl_agents.training.population import Population
from metarl_agents.training.warm_start import WarmStartPreset

GAMES = ("matrix_game", "kuhn", "tictactoe")


def tiny(env):
    return Config.from_flat(settings(env, "tiny"))


def played(config, seed, **player_settings):
    """Let the game's scripted player play a trial of a preset."""
    return scripted_trial(config, seed, random.Random(seed), player_settings)[0].trial


@pytest.mark.parametrize("env", GAMES)
@pytest.mark.parametrize("preset", ["tiny", "qwen3_4b"])
def test_every_preset_is_made_of_known_settings_and_plays_all_its_episodes(env, preset):
    config = Config.from_flat(settings(env, preset))
    config.check()
    assert config.trial.env == env and config.trial.num_episodes == 3 and config.trial.stop_on_success is False
    world = environment_factory(config.trial)()
    roles = {world.seating.of(seed) for seed in evaluation_seeds("validation", config.run.eval_validation_tasks)}
    seats, opponents = world.seating.seats, world.seating.opponents
    assert len(roles) == len(seats) * len(opponents), "validation meets everybody in every seat that is dealt"


@pytest.mark.parametrize("env", ["kuhn", "tictactoe"])
def test_the_language_model_presets_are_the_published_settings(env):
    published = {"num_episodes": 3, "group_size": 8, "tasks_per_step": 16, "max_steps": 150, "memory": "reflection"}
    published |= {"gamma_step": 0.95, "gamma_traj": 0.6, "learning_rate": 1e-6, "return_mode": "differential"}
    published |= {"beta": 0.1, "length_penalty": 2.0, "enable_thinking": True, "max_prompt_tokens": 4096}
    published |= {
        "kuhn": {"max_turns": 6, "max_new_tokens_per_turn": 4096, "invalid_action_penalty": 2.0},
        "tictactoe": {"max_turns": 8, "max_new_tokens_per_turn": 3072, "invalid_action_penalty": 0.5},
    }[env]
    found = settings(env, "qwen3_4b")
    assert {name: found.get(name) for name in published} == published


@pytest.mark.parametrize(
    ("env", "preset"),
    [("tictactoe", "tiny"), ("tictactoe", "qwen3_4b"), ("kuhn", "qwen3_4b"), ("matrix_game", "qwen3_4b")],
)
def test_presets_with_a_list_deal_the_environments_whole_pool_evenly_so_that_seats_are_balanced_in_every_step(
    env, preset
):
    config = Config.from_flat(settings(env, preset))
    world = environment_factory(config.trial)()
    pool = {opponent.name: share for opponent, share in zip(world.seating.opponents, world.seating.shares, strict=True)}
    assert config.population.is_on and (preset == "tiny" or config.population.snapshot_every == 25)
    sizes = {"seed": 0, "group_size": config.trial.group_size, "seat_model": None}
    population = Population(config.population, world, **sizes)
    assert dict(zip([m.name for m in population.members], population.probabilities(), strict=True)) == pytest.approx(
        pool
    )
    groups, met = config.trial.tasks_per_step, Counter()
    for step in range(24):
        dealt = [group[0] for group in population.deal(step, groups)]
        taken = Counter(seat for _, seat in dealt)
        assert set(taken.values()) == {groups / len(world.seating.seats)} and set(taken) == set(world.seating.seats)
        met.update(name for name, _ in dealt)
    assert all(abs(met[name] - 24 * groups * share) <= 24 for name, share in pool.items()) and set(met) == set(pool)


@pytest.mark.parametrize("env", ["matrix_game", "kuhn"])
def test_every_opponent_of_a_tiny_preset_can_be_exploited(env):
    config = tiny(env).trial
    roles = [(opponent.name, seat) for opponent in environment_factory(config)().seating.opponents for seat in (0, 1)]
    values = role_values(config, roles)
    assert set(values) == set(roles) and all(value.gap > SMALLEST_GAP for value in values.values())


def test_no_choice_is_a_better_first_guess_than_another_in_the_tiny_matrix_game():
    world = environment_factory(tiny("matrix_game").trial)()
    first = dict.fromkeys(world.rules.actions, 0.0)
    for opponent, share in zip(world.seating.opponents, world.seating.shares, strict=True):
        for action, chance in opponent.mix(opponent.start(0), 0).items():
            first[action] += share * chance
    assert list(first.values()) == pytest.approx([1 / 3] * 3)


def test_in_the_tiny_matrix_game_only_who_heeds_its_remarks_gets_far():
    config = tiny("matrix_game").trial
    scale = environment_factory(config)().reward_scale
    shares = {}
    for heed in (0.0, 1.0):
        rows = [game_row(played(config, s, heed=heed), config, scale) for s in evaluation_seeds("test", 90)]
        values = role_values(config, {(row["opponent"], row["seat"]) for row in rows})
        shares[heed] = [found["exploited"].mean for found in summarise(rows, values)[0]["episodes"]]
    assert shares[0.0][0] < 0.35 and shares[0.0][2] < 0.4, "neither is the first game easy, nor are later ones as such"
    assert shares[1.0][0] == shares[0.0][0] and shares[1.0][2] > shares[0.0][2] + 0.3


@pytest.mark.parametrize("env", GAMES)
def test_the_tiny_presets_speak_briefly_so_that_a_cpu_can_follow(env):
    config = tiny(env)
    make_env = environment_factory(config.trial)
    seeds = evaluation_seeds("validation", 30)
    tokenizer = build_tokenizer(frequent_pieces(pages_and_answers(make_env, seeds, config.trial, seed=0), at_least=1))
    lengths = [len(tokenizer.encode(text)) for text in pages_and_answers(make_env, seeds, config.trial, seed=1)]
    assert sum(lengths) / len(lengths) < 40
    # The chat template adds three tokens; half of the limit of an answer is free of length penalty.
    assert max(lengths[0::2]) + 3 <= config.sampling.max_prompt_tokens
    assert sorted(lengths[1::2])[int(0.9 * len(lengths[1::2]))] <= config.sampling.max_new_tokens_per_turn / 2


@pytest.mark.parametrize("env", GAMES)
def test_the_warm_start_teaches_the_recipes_own_kind_of_game_to_a_small_model(env):
    preset, recipe = WarmStartPreset.from_mapping(settings(env, "warm_start_tiny")), tiny(env).trial
    assert (preset.env, preset.wording, preset.num_episodes) == (env, recipe.wording, recipe.num_episodes)
    steps = sum(steps for steps, _ in preset.stages)
    assert preset.max_turns >= recipe.max_turns and steps <= (7000 if env == "tictactoe" else 5000)
    scripted_player(preset.worlds(0)[0](), preset.player)
    rules = {environment_factory(preset.worlds(kind)[1])().game for kind in range(len(preset.tasks))}
    assert environment_factory(recipe)().game in rules
    model = build_model(build_tokenizer(f"w{number}" for number in range(60)), **preset.model)
    assert sum(weight.numel() for weight in model.parameters()) <= 0.45e6


@pytest.fixture(params=GAMES)
def game(request, tmp_path):
    """A game's name, and the folder of a model that knows its words but nothing else."""
    config = tiny(request.param).trial
    pages = pages_and_answers(environment_factory(config), evaluation_seeds("validation", 8), config, seed=0)
    tokenizer = build_tokenizer(frequent_pieces(pages))
    Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer).save(tmp_path / "model")
    return request.param, tmp_path / "model"


def test_a_step_of_the_recipe_samples_updates_and_saves(game, tmp_path, monkeypatch):
    env, model = game
    takes_a_step(monkeypatch, env, model, tmp_path / "run")
    kept = EvaluationResult.from_json(tmp_path / "run" / "eval" / "after.json").meta["games"]["rows"]
    assert len(kept) == 2 and all(len(row["payoffs"]) == 3 for row in kept)


def test_an_evaluation_prints_the_games_block_and_keeps_opponent_seat_and_payoffs(game, tmp_path, monkeypatch, capsys):
    env, model = game
    other = {"matrix_game": "mostly_rock", "kuhn": "equilibrium", "tictactoe": "perfect"}[env]
    flags = {"model_name_or_path": model, "env": env, "wording": "compact", "eval_tasks": 4, "eval_samples": 0}
    flags |= {"max_turns": 2, "max_new_tokens_per_turn": 4, "opponents": other, "output": tmp_path / "result.json"}
    flags |= {"env_kwargs": "{rounds: 2}"} if env == "matrix_game" else {}
    assert call(monkeypatch, recipe("evaluate"), flags) == 0
    text = capsys.readouterr().out
    assert (
        other in text
        and "first seat, against" in text
        and "second seat, against" in text
        and "episode 3" in text
        and "floor" in text
    )
    games = EvaluationResult.from_json(tmp_path / "result.json").meta["games"]
    assert {row["opponent"] for row in games["rows"]} == {other} and games["summary"][0]["n"] == 4
    assert {(value["opponent"], value["seat"]) for value in games["exact"]} == {(other, 0), (other, 1)}
