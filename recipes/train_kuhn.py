"""Train a meta-RL agent on Kuhn poker: the hidden things are the other player's card and its habits.

    python recipes/train_kuhn.py
    python recipes/train_kuhn.py --num_episodes 1 --group_size 24     # plain RL, same code path
    python recipes/train_kuhn.py --env_kwargs "{redraw_deal: true}"   # new cards in each hand
    python recipes/train_kuhn.py --config recipes/configs/kuhn/qwen3_4b.yaml

Without flags: the built-in tiny model against the three characters of MAGE (arXiv 2603.03680), the same deal in all
hands of a trial, on a CPU, four to eight minutes of training. `--config` replaces that preset. What counts is the
exploited share that `recipes/evaluate.py` prints for each hand of a trial: 0 is equilibrium play, 1 a player who knows
the opponent and, where it is replayed, the deal.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "kuhn" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
