"""Trials for tests, built from the real dataclasses; a row is written as one short tuple."""

import json
import random
from functools import partial
from pathlib import Path

from metarl_agents.advantages import RETURN_MODES, tabulate_turns
from metarl_agents.types import Episode, Phase, Response, Trial, Turn

VECTORS = json.loads((Path(__file__).parent / "credit.json").read_text())
GAMMAS = {"gamma_step": VECTORS["gamma_step"], "gamma_traj": VECTORS["gamma_traj"]}


def play(reward, observation="s", penalty=0.0):
    return Turn(Phase.PLAY, observation, (1, 2), Response((3,), "x"), "x", "x", float(reward), row_penalty=penalty)


def reflect(reward=0.0, penalty=0.0):
    return Turn(Phase.REFLECT, "", (1, 2), Response((3,), "r"), "r", "r", float(reward), row_penalty=penalty)


def make_trial(*episodes, group=0, seed=0, last_reflects=False, reflections=True, **fields):
    """Each episode is a list of rewards, or of (reward, observation) pairs; a reflection stands between episodes."""
    built = []
    for n, turns in enumerate(episodes):
        pairs = [turn if isinstance(turn, tuple) else (turn, f"episode {n} turn {t}") for t, turn in enumerate(turns)]
        is_last = n == len(episodes) - 1
        reflects = reflections and (last_reflects or not is_last)
        turns = [play(*pair) for pair in pairs]
        built.append(Episode("start", turns, "end", reflection=reflect() if reflects else None))
    return Trial(seed=seed, group=group, episodes=built, **fields)


def trial_from_vector(name, anchors=None, group=0):
    """Trial A, B or C of credit.json; `anchors` gives one observation per row."""
    rows = next(trial["rows"] for trial in VECTORS["trials"] if trial["name"] == name)
    episodes = [Episode("start") for _ in range(rows[-1][1] + 1)]
    for (phase, n, reward), anchor in zip(rows, anchors or ["s"] * len(rows), strict=True):
        if phase == "play":
            episodes[n].turns.append(play(reward, anchor))
        else:
            episodes[n].reflection = reflect(reward)
    return Trial(seed=0, group=group, episodes=episodes)


def group_of_vectors():
    """The two trials of the worked group, with its anchors."""
    anchors = VECTORS["gigpo_row_units"]["anchors"]
    return [trial_from_vector("A", anchors[:7]), trial_from_vector("B", anchors[7:])]


def tabulate(trials, mode="paper", gamma_step=0.95, gamma_traj=0.6, **options):
    return_fn = partial(RETURN_MODES[mode], gamma_step=gamma_step, gamma_traj=gamma_traj)
    return tabulate_turns(trials, return_fn, gamma_step=gamma_step, **options)


def random_trials(seed, num_groups=3, group_size=4, roles=1):
    """Ragged trials: 1-3 episodes of 1-4 turns, few distinct observations, sometimes a closing reflection."""
    rng = random.Random(seed)
    trials = []
    for group in range(num_groups):
        for _ in range(group_size):
            episodes = [
                [(rng.choice([0.0, 1.0, -0.5, 10.0]), f"s{rng.randrange(3)}") for _ in range(rng.randint(1, 4))]
                for _ in range(rng.randint(1, 3))
            ]
            last_reflects = rng.random() < 0.3
            trials.append(make_trial(*episodes, group=group, last_reflects=last_reflects, seat=rng.randrange(roles)))
    return trials
