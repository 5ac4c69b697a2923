"""Train a meta-RL agent on ALFWorld: household tasks in text, in up to three attempts in the same house.

    python recipes/train_alfworld.py
    python recipes/train_alfworld.py --num_episodes 1 --group_size 24     # plain RL, same code path
    python recipes/train_alfworld.py --config recipes/configs/alfworld/qwen3_4b.yaml

Without flags: the tiny model in generated small rooms, on a CPU, with seven turns an attempt: too few to search a room,
enough for who remembers where things are. `--config` replaces that preset. Training tasks are pick, look, clean and
heat; cool and pick-two are for evaluation (`--env_kwargs` of recipes/evaluate.py, `tasks: out_of_distribution`).
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "alfworld" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
