"""The WebShop and ALFWorld recipes: their presets fit, their prompts are short, remembering pays, a step learns."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from recipe_helpers import scripted_trial, settings, takes_a_step

from metarl_agents import Agent, run_trial
from metarl_agents.config import Config
from metarl_agents.envs.factory import environment_factory
from metarl_agents.policy.loading import shipped_folder
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import PIECES, build_model, build_tokenizer
from metarl_agents.rollout.tasks import TaskStream, evaluation_seeds
from metarl_agents.training.warm_start import WarmStartPreset, preset_tokenizer

ROOT = Path(__file__).parents[2]
ENVS = ("webshop", "alfworld")


def tiny(env):
    return Config.from_flat(settings(env, "tiny"))


def lessons(env):
    return WarmStartPreset.from_mapping(settings(env, "warm_start_tiny"))


def trials(env, seeds, **changes):
    """Play the warm start's player under the tiny preset; yield (runner, [(prompt, answer, whether it reflects)])."""
    config, habits = tiny(env).trial, lessons(env).player | changes
    for number, seed in enumerate(seeds):
        runner, said = scripted_trial(config, seed, random.Random(number), habits)
        yield runner, [(page[0]["content"], text, reflects) for page, text, reflects in said]


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("preset", ["tiny", "qwen3_4b"])
def test_every_preset_is_made_of_known_settings_and_builds_its_environment(env, preset):
    config = Config.from_flat(settings(env, preset))
    config.check()
    world = environment_factory(config.trial)()
    assert config.trial.env == env and config.trial.num_episodes == 3
    for split in ("validation", "test"):
        first, info = world.reset(seed=evaluation_seeds(split, 1)[0])
        assert first and info["admissible_actions"]


@pytest.mark.parametrize("env", ENVS)
def test_the_language_model_presets_are_the_published_settings(env):
    found = settings(env, "qwen3_4b")
    common = {"num_episodes": 3, "group_size": 8, "tasks_per_step": 8, "max_steps": 150, "memory": "reflection"}
    common |= {"gamma_step": 0.95, "gamma_traj": 0.6, "learning_rate": 1e-6, "max_new_tokens_per_turn": 1024}
    own = {
        "webshop": {"max_turns": 12, "max_prompt_tokens": 8192},
        "alfworld": {"max_turns": 10, "max_prompt_tokens": 4096},
    }
    assert {name: found.get(name) for name in common | own[env]} == common | own[env]
    world = environment_factory(Config.from_flat(found).trial)()
    if env == "webshop":
        assert found["env_kwargs"] == {"num_products": 1000, "goals": "synthetic", "max_pieces": 15}
        assert (world.wording.history_turns, world.wording.reflect_history_turns) == (5, 20)
    else:
        assert world.tasks == ("pick", "look", "clean", "heat") and world.wording.history_turns == 15
        _, info = world.reset(seed=0)
        assert "look" in info["admissible_actions"] and "help" not in info["admissible_actions"]


@pytest.mark.parametrize("env", ENVS)
def test_the_tiny_presets_speak_briefly_so_that_a_cpu_can_follow(env):
    config = tiny(env)
    seen = [row for _, rows in trials(env, TaskStream(0, 40).take(0)) for row in rows]
    plays = [
        (len(re.findall(PIECES, page)), len(re.findall(PIECES, text))) for page, text, reflects in seen if not reflects
    ]
    notes = [
        (len(re.findall(PIECES, page)), len(re.findall(PIECES, text))) for page, text, reflects in seen if reflects
    ]
    assert len(plays) > 200 and len(notes) > 20
    assert max(page for page, _ in plays) < 200 and sum(page for page, _ in plays) / len(plays) < 110
    # Beside the pieces stand the three tokens of the chat template; half of the limit is free of length penalty.
    assert max(page for page, _ in plays + notes) + 3 <= config.sampling.max_prompt_tokens
    assert max(text for _, text in plays) < 16
    assert max(text for _, text in plays + notes) <= config.sampling.max_new_tokens_per_turn


@pytest.mark.parametrize("env", ENVS)
def test_in_the_tiny_presets_only_who_heeds_its_remarks_gets_far(env):
    def solved(heed):
        played = [runner.trial for runner, _ in trials(env, evaluation_seeds("test", 60), heed=heed)]
        return [sum(trial.pass_at(attempt) for trial in played) / 60 for attempt in (1, 3)]

    deaf, heeding = solved(0), solved(1)
    assert 0.2 < deaf[0] < 0.5, "neither hopeless nor easy"
    assert heeding[1] > deaf[1] + 0.15 and heeding[1] > 0.65


@pytest.mark.parametrize(
    ("env", "fits", "others"),
    [
        ("webshop", {}, [{"preset": "easy"}, {"observation_mode": "text"}, {"goals": "human"}, {"wording": "paper"}]),
        (
            "alfworld",
            {"source": "generated", "size": "small"},
            [{"size": "full"}, {"wording": "paper"}],
        ),
    ],
)
def test_the_shipped_model_is_named_for_the_worlds_it_has_seen_and_for_no_others(env, fits, others):
    from metarl_agents import make

    known = {"wording": "compact"} | fits
    assert make(env, **known).tiny_model == f"{env}_tiny"
    assert all(make(env, **(known | other)).tiny_model is None for other in others)


@pytest.mark.parametrize("env", ENVS)
def test_the_shipped_model_is_taught_in_its_own_kind_of_world_with_words_for_all_it_meets(env):
    preset, recipe = lessons(env), tiny(env).trial
    worlds = [preset.worlds(kind)[0]() for kind in range(len(preset.tasks))]
    assert {world.tiny_model for world in worlds} == {f"{env}_tiny"} == {environment_factory(recipe)().tiny_model}
    assert preset.max_turns >= recipe.max_turns and preset.num_episodes == recipe.num_episodes
    tokenizer = preset_tokenizer(replace(preset, vocabulary_trials=16), seed=0)
    weights = sum(weight.numel() for weight in build_model(tokenizer, **preset.model).parameters())
    assert weights < 0.8e6, "with room for the words of more trials"
    plain = build_tokenizer()
    pages = [page for _, rows in trials(env, TaskStream(1, 5).take(0)) for page, _, _ in rows]
    assert sum(len(tokenizer.encode(page)) for page in pages) < 0.6 * sum(len(plain.encode(page)) for page in pages)


def test_the_shop_that_is_trained_in_is_none_of_those_the_shipped_model_has_seen():
    own = tiny("webshop").trial.env_kwargs
    seen = lessons("webshop").tasks
    assert own.get("catalogue_seed", 0) not in {shop.get("catalogue_seed", 0) for shop in seen}
    assert all(shop | {"catalogue_seed": 0} == own | {"catalogue_seed": 0} for shop in seen)


@pytest.mark.slow
@pytest.mark.parametrize("env", ENVS)
def test_the_shipped_model_speaks_the_format_and_leaves_room_to_learn(env):
    folder, config = shipped_folder(f"{env}_tiny"), tiny(env).trial
    assert folder is not None
    agent, world = Agent.from_pretrained(str(folder)), environment_factory(config)()
    seeds = evaluation_seeds("test", 24)
    played = [run_trial(agent, world, seed=seed, num_episodes=3, max_turns=config.max_turns) for seed in seeds]
    turns = [turn for trial in played for episode in trial.episodes for turn in episode.turns]
    assert sum(turn.invalid for turn in turns) < 0.02 * len(turns)
    remarks = [episode.reflection for trial in played for episode in trial.episodes if episode.reflection is not None]
    # The fit is a short one: now and then it gives an action where a remark is asked for, and is fined for it in training.
    assert len(remarks) > 15 and sum(remark.invalid for remark in remarks) < 0.1 * len(remarks)
    shares = [sum(trial.pass_at(attempt) for trial in played) / len(played) for attempt in (1, 3)]
    assert 0 < shares[0] <= shares[1] < 0.75


@pytest.mark.parametrize("env", ENVS)
def test_a_step_of_the_recipe_samples_updates_and_saves(env, tmp_path, monkeypatch):
    # The model knows the environment's words and nothing else.
    pages = [text for _, rows in trials(env, TaskStream(0, 8).take(0)) for row in rows for text in row[:2]]
    tokenizer = build_tokenizer({piece for page in pages for piece in re.findall(PIECES, page)})
    Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer).save(tmp_path / "model")
    takes_a_step(monkeypatch, env, tmp_path / "model", tmp_path / "run")
