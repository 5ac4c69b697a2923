"""Train a meta-RL agent on MineSweeper.

    python recipes/train_minesweeper.py
    python recipes/train_minesweeper.py --num_episodes 1 --group_size 24     # plain RL, same code path
    python recipes/train_minesweeper.py --config recipes/configs/minesweeper/qwen3_4b.yaml

Without flags: the built-in tiny model on 4x4 boards, on a CPU. `--config` replaces that preset.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "minesweeper" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
