"""How far an environment's scripted player gets: success by the first, second and third attempt at the same tasks.

    python benchmarks/scripted_players.py webshop --env_kwargs "{preset: hard}" --player "{heed: 1, wander: 0}"
    python benchmarks/scripted_players.py sokoban --max_turns 7 --num_tasks 500

Tasks are the fixed evaluation tasks. The player reads what an agent reads; between attempts it writes its remark and
gets those before it. `--player` sets what the player lets one set (`heed`: how often it listens to its remarks).
"""

from __future__ import annotations

import argparse
import random
from typing import Any

import yaml

from metarl_agents import make
from metarl_agents.cli import run_cli
from metarl_agents.envs.parsing import last_tag
from metarl_agents.rollout.tasks import evaluation_seeds
from metarl_agents.training.demonstrations import scripted_player
from metarl_agents.types import Episode, Phase, Response, Turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", help="registered name")
    parser.add_argument("--env_kwargs", type=yaml.safe_load, default={}, help="keywords of the environment, as YAML")
    parser.add_argument("--player", type=yaml.safe_load, default={}, help="attributes of the player, as YAML")
    parser.add_argument("--max_turns", type=int, default=12)
    parser.add_argument("--num_episodes", type=int, default=3)
    parser.add_argument("--num_tasks", type=int, default=200)
    chosen = parser.parse_args()
    env = make(chosen.env, **chosen.env_kwargs)
    trials = [
        play_trial(env, chosen.player, seed, chosen.max_turns, chosen.num_episodes)
        for seed in evaluation_seeds("test", min(chosen.num_tasks, env.num_tasks("test") or chosen.num_tasks))
    ]
    solved = [sum(any(t[:k]) for t, _ in trials) / len(trials) for k in range(1, chosen.num_episodes + 1)]
    scores = [score for _, score in trials if score is not None]
    line = f"{chosen.env} {chosen.env_kwargs} {chosen.player}, {len(trials)} tasks, {chosen.max_turns} turns: solved "
    line += " / ".join(f"{100 * share:.1f} %" for share in solved)
    print(line + (f", mean score of first attempts {sum(scores) / len(scores):.3f}" if scores else ""))


def play_trial(
    env: Any, settings: dict[str, Any], seed: int, max_turns: int, num_episodes: int
) -> tuple[list[bool], float | None]:
    """Return success of each attempt, up to the first, and what the environment scored the first attempt with."""
    rng, player = random.Random(seed), scripted_player(env, settings)
    remarks: list[str] = []
    won: list[bool] = []
    score = None
    while len(won) < num_episodes and not any(won):
        episode, info = play_episode(env, player, seed, remarks, rng, max_turns)
        score = info.get("score") if not won else score
        won.append(bool(info.get("success")))
        remarks.append(last_tag(player.reflect(episode, rng), "remark") or "")
    return won, score


def play_episode(
    env: Any, player: Any, seed: int, remarks: list[str], rng: random.Random, max_turns: int
) -> tuple[Episode, dict[str, Any]]:
    """Return a played attempt and the `info` of its last turn."""
    observation, info = env.reset(seed=seed)
    episode = Episode(observation)
    player.start_episode(remarks, rng)
    for _ in range(max_turns):
        text = player.act(observation, rng)
        action = env.parse_action(text)
        result = env.step(action)
        shown = env.wording.show_action(action)
        episode.turns.append(Turn(Phase.PLAY, observation, (), Response((), text), action, shown, result[1]))
        observation, _, terminated, truncated, info = result
        if terminated or truncated:
            break
    episode.final_observation = observation
    return episode, info


if __name__ == "__main__":
    run_cli(main)
