"""Train a meta-RL agent on WebShop: buy what an instruction asks for, in up to three visits to the same shop.

    python recipes/train_webshop.py
    python recipes/train_webshop.py --num_episodes 1 --group_size 24     # plain RL, same code path
    python recipes/train_webshop.py --config recipes/configs/webshop/qwen3_4b.yaml

Needs the extra: pip install -e ".[webshop]". Without flags: the tiny model in a generated shop of 768 products, on a
CPU. `--config` replaces that preset. A purchase tells nothing but that it was wrong, so what a later visit should stay
away from has to be remarked.
"""

from __future__ import annotations

from pathlib import Path

from metarl_agents.cli import parse_config, run_cli

PRESET = Path(__file__).parent / "configs" / "webshop" / "tiny.yaml"


def main() -> int:
    config = parse_config(description=__doc__, defaults=PRESET)
    from metarl_agents.training.report import run_and_report

    return run_and_report(config)


if __name__ == "__main__":
    run_cli(main)
