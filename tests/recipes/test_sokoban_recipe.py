"""The Sokoban recipe: its presets fit, its prompts are short, remembering pays, a step learns."""

import random
from functools import partial

import pytest
from recipe_helpers import scripted_trial, takes_a_step
from recipe_helpers import settings as preset_of

from metarl_agents import make
from metarl_agents.config import Config
from metarl_agents.envs.factory import environment_factory
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.rollout.tasks import TaskStream, evaluation_seeds
from metarl_agents.types import Outcome

SPEAKER = Policy(build_model(build_tokenizer(), layers=1, hidden=8), build_tokenizer())


settings = partial(preset_of, "sokoban")


def trials(seeds, heed):
    """Play trials of the tiny preset with the shipped model's player; yield (runner, [(prompt, answer, reflects)])."""
    config, habits = Config.from_flat(settings("tiny")).trial, settings("warm_start_6x6")["player"] | {"heed": heed}
    for number, seed in enumerate(seeds):
        runner, said = scripted_trial(config, seed, random.Random(number), habits)
        yield runner, [(SPEAKER.encode(page), SPEAKER.answer_ids(text), reflects) for page, text, reflects in said]


@pytest.mark.parametrize("preset", ["tiny", "qwen3_4b", "llama31_8b"])
def test_every_preset_is_made_of_known_settings_and_builds_its_environment(preset):
    config = Config.from_flat(settings(preset))
    config.check()
    world = environment_factory(config.trial)()
    assert config.trial.env == "sokoban" and config.trial.num_episodes == 3
    for split in ("validation", "test"):
        for seed in evaluation_seeds(split, 10):
            world.reset(seed=seed)
            assert world.min_turns() <= config.trial.max_turns


@pytest.mark.parametrize("preset", ["qwen3_4b", "llama31_8b"])
def test_the_language_model_presets_are_the_published_settings(preset):
    found = settings(preset)
    published = {"num_episodes": 3, "group_size": 8, "tasks_per_step": 16, "max_steps": 300, "memory": "reflection"}
    published |= {"gamma_step": 0.95, "gamma_traj": 0.6, "learning_rate": 1e-6, "max_turns": 7}
    published |= {"max_prompt_tokens": 2048, "max_new_tokens_per_turn": 1024}
    assert {name: found.get(name) for name in published} == published
    world = environment_factory(Config.from_flat(found).trial)()
    assert (world.size, world.boxes, world.min_moves, world.max_moves, world.max_actions) == (6, 2, 5, 21, 3)
    assert world.rewards == (10, 0, 0, 0) and world.wording.play_request.count("1 to 3 moves") == 1


def test_the_tiny_preset_speaks_briefly_so_that_a_cpu_can_follow():
    config = Config.from_flat(settings("tiny"))
    seen = [row for _, rows in trials(TaskStream(0, 60).take(0), 0.3) for row in rows]
    plays = [(len(page), len(answer)) for page, answer, reflects in seen if not reflects]
    notes = [(len(page), len(answer)) for page, answer, reflects in seen if reflects]
    assert len(plays) > 200 and len(notes) > 30
    assert sum(page for page, _ in plays) / len(plays) < 40
    assert max(page for page, _ in plays + notes) <= config.sampling.max_prompt_tokens
    # Half of the limit is free of length penalty.
    assert max(answer for _, answer in plays + notes) <= config.sampling.max_new_tokens_per_turn / 2
    # The second retry has read both remarks, each with the moves that it warns of.
    assert any(SPEAKER.decode(page).count(": avoid ") == 2 for page, _, _ in seen)


def test_in_the_tiny_preset_only_who_heeds_its_remarks_gets_far():
    played = {heed: [runner.trial for runner, _ in trials(evaluation_seeds("test", 100), heed)] for heed in (0, 1)}
    (first, deaf), (again, heeding) = ([sum(t.pass_at(k) for t in played[h]) / 100 for k in (1, 3)] for h in (0, 1))
    assert first == again and 0.4 < first < 0.65, "neither hopeless nor easy"
    assert heeding > deaf + 0.05 and heeding > 0.8
    ends = [episode.outcome for trial in played[0] for episode in trial.episodes]
    assert ends.count(Outcome.FAILURE) > 4 * ends.count(Outcome.OUT_OF_TURNS), "traps, not time, are what is remarked"


def test_the_shipped_model_is_named_for_the_rooms_it_has_seen_and_for_no_others(tmp_path):
    level = tmp_path / "levels.txt"
    level.write_text("#####\n#@$.#\n#####\n", encoding="utf-8")
    seen = settings("warm_start_6x6")["tasks"] + [{"boxes": 1}, {"min_moves": 14}, {"reward_preset": "shaped"}]
    assert {make("sokoban", wording="compact", **task).tiny_model for task in seen} == {"sokoban_6x6"}
    others = [{"boxes": 3}, {"size": 7}, {"max_actions": 1}, {"levels": level}, {"wording": "paper"}]
    assert {make("sokoban", **({"wording": "compact"} | other)).tiny_model for other in others} == {None}


def test_a_step_of_the_recipe_samples_updates_and_saves(tmp_path, monkeypatch):
    Policy(build_model(build_tokenizer(), layers=1, hidden=32), build_tokenizer()).save(tmp_path / "model")
    takes_a_step(monkeypatch, "sokoban", tmp_path / "model", tmp_path / "run")
