"""Train a meta-RL agent on Sokoban.

    python recipes/train_sokoban.py
    python recipes/train_sokoban.py --num_episodes 1 --group_size 24     # plain RL, same code path
    python recipes/train_sokoban.py --config recipes/configs/sokoban/qwen3_4b.yaml

Without flags: the built-in tiny model in 6x6 rooms with one box, on a CPU, 10 to 15 minutes of training. `--config`
replaces that preset. Nothing is hidden in a room, but a small model does not see where a push leads: what trapped a box
is learnt by trying, and remarked.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "sokoban" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
