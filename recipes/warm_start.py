"""Make a built-in tiny model: supervised fine-tuning on scripted play.

    python recipes/warm_start.py --preset minesweeper_4x4 --output_dir runs/warm_start
    python recipes/warm_start.py --data my_demonstrations.jsonl        # your own rows, columns prompt and response

The scripted player deduces safe cells in 95 % of moves, heeds its own remarks in 30 % of retries, takes the first of
several equally good cells in half of its episodes (any of them in the others), and names any cell of the board in 1 %
of moves. Nothing else teaches the model to use memory. The presets' models ship in
`src/metarl_agents/policy/tiny_models/`; each folder holds `warm_start.json`, the settings and log it was made with.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

# `stages` are (optimizer steps, peak learning rate); each falls to zero along a cosine.
PRESETS: dict[str, dict[str, Any]] = {
    "minesweeper_4x4": {
        "env": "minesweeper",
        "boards": [{"size": 4, "mines": mines} for mines in (3, 4, 5)],
        "max_turns": 12,
        "model": {"layers": 3, "hidden": 96},
        "stages": [(1500, 2e-3), (2500, 1e-3)],
        "trials": 16_000,
    },
    "minesweeper_6x6": {
        "env": "minesweeper",
        "boards": [{"size": 6, "mines": mines} for mines in (3, 3, 4, 6)],
        "max_turns": 10,
        "model": {"layers": 4, "hidden": 128},
        "stages": [(1500, 2e-3), (1500, 1e-3)],
        "trials": 16_000,
    },
}


def main() -> None:
    """Make demonstrations, fit the model, save it with its log."""
    import torch

    from metarl_agents.config import ModelConfig
    from metarl_agents.policy.loading import load_policy
    from metarl_agents.policy.policy import Policy
    from metarl_agents.policy.tiny import build_model, build_tokenizer
    from metarl_agents.training.demonstrations import read_demonstrations
    from metarl_agents.training.warm_start import WarmStartConfig, warm_start

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="minesweeper_4x4")
    parser.add_argument("--output_dir", type=Path, default=None, help="default: runs/warm_start-<preset>")
    parser.add_argument("--first_stage", type=int, default=0, help="continue with this stage, from --init")
    parser.add_argument("--init", type=Path, default=None, help="model folder to start from; default: a fresh model")
    parser.add_argument("--trials", type=int, default=None, help="scripted trials; default: the preset's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", help="JSONL file or hub dataset with columns prompt, response, instead of play")
    chosen = parser.parse_args()
    preset = PRESETS[chosen.preset] | ({"trials": chosen.trials} if chosen.trials else {})
    output = chosen.output_dir or Path("runs") / f"warm_start-{chosen.preset}"

    started = time.time()
    if chosen.init:
        policy = load_policy(ModelConfig(model_name_or_path=str(chosen.init)))
    else:
        tokenizer = build_tokenizer()
        policy = Policy(build_model(tokenizer, seed=chosen.seed, **preset["model"]), tokenizer)
    if chosen.data:
        rows = read_demonstrations(chosen.data, policy.encode, policy.answer_ids)
    else:
        rows = scripted_rows(preset, policy, chosen.seed)
    print(f"{len(rows)} demonstrations in {time.time() - started:.0f} s", flush=True)

    log = []
    for stage, (steps, learning_rate) in enumerate(preset["stages"]):
        if stage >= chosen.first_stage:
            config = WarmStartConfig(steps=steps, learning_rate=learning_rate, seed=chosen.seed + stage)
            warm_start(policy, rows, config, partial(report, log, stage, steps))
    policy.save(output)
    record = {
        "preset": chosen.preset,
        **preset,
        "training": asdict(config),
        "threads": torch.get_num_threads(),
        "rows": len(rows),
        "log": log,
    }
    record |= {"seconds": round(time.time() - started)}
    (output / "warm_start.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"saved to {output} after {time.time() - started:.0f} s")


def report(log: list[dict], stage: int, steps: int, step: int, loss: float, seconds: float) -> None:
    """Note and print every fiftieth step, and the last."""
    if step % 50 == 0 or step == steps - 1:
        log.append({"stage": stage, "step": step, "loss": round(loss, 4), "seconds": round(seconds)})
        print(f"stage {stage}  step {step:5d}  loss {loss:.4f}  {seconds:.0f} s", flush=True)


def scripted_rows(preset: dict[str, Any], policy: Any, seed: int) -> list:
    """Play the preset's boards in equal shares, each with a stream of training tasks of its own."""
    from metarl_agents.config import TrialConfig
    from metarl_agents.envs import resolve
    from metarl_agents.rollout.tasks import TaskStream, mix
    from metarl_agents.training.demonstrations import demonstrate

    trial = TrialConfig(env=preset["env"], wording="compact", max_turns=preset["max_turns"], env_timeout_s=None)
    rows: list = []
    for number, board in enumerate(preset["boards"]):
        make_env = partial(resolve(preset["env"]), wording="compact", **board)
        seeds = TaskStream(mix(1_000_003, seed, number), preset["trials"] // len(preset["boards"])).take(0)
        rows += demonstrate(make_env, seeds, trial, policy.encode, policy.answer_ids, seed)
    return rows


if __name__ == "__main__":
    main()
