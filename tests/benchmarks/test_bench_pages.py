"""An environment's number in the keys of cells is raised when its pages change, or old cells would count as new ones."""

import hashlib
import json
import random
import sys
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench.cells import ENVIRONMENT_VERSIONS  # noqa: E402

from metarl_agents.config import TrialConfig  # noqa: E402
from metarl_agents.envs.factory import environment_factory, opened  # noqa: E402
from metarl_agents.envs.registry import registered, resolve  # noqa: E402
from metarl_agents.rollout.runner import TrialRunner  # noqa: E402
from metarl_agents.rollout.tasks import evaluation_seeds  # noqa: E402
from metarl_agents.training.demonstrations import play_scripted, scripted_player  # noqa: E402

WORLDS = {
    "alfworld": [
        {"source": "generated", "size": "small", "tasks": tasks} for tasks in ("in_distribution", "out_of_distribution")
    ],
    "kuhn": [{}, {"opponents": ["cfr", "equilibrium"]}],
    "matrix_game": [{"rounds": 3}, {"game": "prisoners_dilemma"}],
    "minesweeper": [{"size": 4, "mines": 4}, {}],
    "sokoban": [{"boxes": 1, "min_moves": 12}, {}],
    "tictactoe": [{"opponents": ["mcts_5", "mcts_15"], "seat": "second"}, {}],
    "two_doors": [{}],
    "webshop": [{"preset": "tiny", "num_products": 96}],
}
"""Environment -> keywords of those that are looked at: of the benchmark's tables, and the environment's own defaults."""
NEEDS = {"webshop": ("bm25s", "Stemmer", "rapidfuzz")}
PINNED = {
    "alfworld": (2, "864aa3284ba15377"),
    "kuhn": (1, "be9dc077c5342207"),
    "matrix_game": (1, "cbfdd257e8e5c164"),
    "minesweeper": (1, "4db5fd3e23f288fa"),
    "sokoban": (2, "2395f150582d2550"),
    "tictactoe": (1, "ed93acb88b4887bf"),
    "two_doors": (1, "b49cef5d1d0ce90d"),
    "webshop": (1, "db7dcafc630d6dd0"),
}
"""Environment -> its number, and the digest of its pages under that number."""


def shipped():
    """Return the names of the environments that come with the library."""
    return [name for name in registered() if resolve(name).__module__.startswith("metarl_agents.environments.")]


def pages_of(trial, seed):
    """Return every page, answer, reward and ending of a scripted trial."""
    said = []

    def note(text):
        said.append(text)
        return ()

    make_env = environment_factory(trial)
    runner = TrialRunner(make_env, seed, 0, trial)
    with opened(make_env) as env:
        for _ in play_scripted(runner, scripted_player(env), random.Random(seed), note, note):
            pass
    rewards = [[turn.reward for turn in episode.turns] for episode in runner.trial.episodes]
    endings = [episode.outcome.value for episode in runner.trial.episodes]
    return [said, rewards, endings, runner.trial.opponent, runner.trial.seat, runner.trial.error]


def texts_of(trial):
    """Return the rules and the wording, its texts and windows."""
    with opened(environment_factory(trial)) as env:
        wording = {name: value for name, value in vars(env.wording).items() if not callable(value)}
        return [env.describe(), wording]


def digest_of(name):
    """Return a digest of an environment's texts in both wordings, and of scripted trials, which end at no success."""
    found = []
    for wording, kwargs in product(("compact", "paper"), WORLDS[name]):
        limits = {"max_turns": 7, "num_episodes": 2, "stop_on_success": False, "memory": "both"}
        trial = TrialConfig(env=name, env_kwargs=kwargs, wording=wording, **limits)
        found += [texts_of(trial), *(pages_of(trial, seed) for seed in (7, *evaluation_seeds("test", 3)))]
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def test_every_shipped_environment_is_pinned():
    assert set(PINNED) == set(WORLDS) == set(shipped()) and set(ENVIRONMENT_VERSIONS) <= set(PINNED)


@pytest.mark.parametrize("name", PINNED)
def test_who_changes_the_pages_of_an_environment_raises_its_number(name):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    found = (ENVIRONMENT_VERSIONS.get(name, 1), digest_of(name))
    assert found == PINNED[name], (
        f"the pages of {name} have changed: raise its version and pin the new digest. (ENVIRONMENT_VERSIONS in "
        f"benchmarks/bench/cells.py, PINNED here: {found} in place of {PINNED[name]})"
    )


@pytest.mark.parametrize("name", ["two_doors", "kuhn"])
def test_a_changed_word_a_changed_reward_and_a_changed_task_are_noticed(name, monkeypatch):
    from metarl_agents.environments.kuhn import Kuhn
    from metarl_agents.environments.two_doors import TwoDoors

    world, seen = {"two_doors": TwoDoors, "kuhn": Kuhn}[name], {PINNED[name][1]}
    step, reset, describe = world.step, world.reset, world.describe
    changes = {
        "describe": lambda self: describe(self) + "!",
        "step": lambda self, action: step(self, action)._replace(reward=0.25),
        "reset": lambda self, *, seed: reset(self, seed=seed + 1),
    }
    for method, changed in changes.items():
        with monkeypatch.context() as patch:
            patch.setattr(world, method, changed)
            seen.add(digest_of(name))
    assert len(seen) == 4
