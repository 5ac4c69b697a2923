"""Train an agent that learns from its own failed attempt: the smallest world in which memory decides.

    python recipes/train_two_doors.py
    python recipes/train_two_doors.py --memory none      # nobody can beat one half

A prize is behind door A or door B. Without flags: a tiny model, made on the spot from a player that ignores its
remarks, on a CPU. Its second attempt succeeds half of the time before training and nearly always after it.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "two_doors" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
