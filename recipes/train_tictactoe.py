"""Train a meta-RL agent on Tic-Tac-Toe: the hidden thing is how the other player plays.

    python recipes/train_tictactoe.py
    python recipes/train_tictactoe.py --num_episodes 1 --group_size 24     # plain RL, same code path
    python recipes/train_tictactoe.py --opponents mcts_100   # a search, and nobody else
    python recipes/train_tictactoe.py --config recipes/configs/tictactoe/qwen3_4b.yaml

Without flags: the built-in tiny model against short searches, on a CPU. `--config` replaces that preset; qwen3_4b.yaml
meets the pool of MAGE (arXiv 2603.03680). `recipes/evaluate.py` prints wins, draws and payoffs of each game, by
opponent and seat.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "tictactoe" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
