"""Train a meta-RL agent on an iterated matrix game: the hidden thing is the habit of the other player.

    python recipes/train_matrix_game.py
    python recipes/train_matrix_game.py --num_episodes 1 --group_size 24     # plain RL, same code path
    python recipes/train_matrix_game.py --env_kwargs "{game: prisoners_dilemma, rounds: 5}"
    python recipes/train_matrix_game.py --config recipes/configs/matrix_game/qwen3_4b.yaml

Without flags: the built-in tiny model in three rounds of rock, paper, scissors, on a CPU, five to eight minutes of
training. `--config` replaces that preset. Within a game an agent can answer what it has seen in earlier rounds; only
what it remarked after one game lets it win the first round of the next. What counts is the exploited share that
`recipes/evaluate.py` prints for each game of a trial.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "matrix_game" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
