"""Make a built-in tiny model: supervised fine-tuning on scripted play.

    python recipes/warm_start.py --preset minesweeper_4x4 --output_dir runs/warm_start
    python recipes/warm_start.py --preset sokoban_6x6 --rows runs/rows.npz --rows_only --workers 2    # play, and save
    python recipes/warm_start.py --preset sokoban_6x6 --rows runs/rows.npz             # fit, on a GPU if there is one
    python recipes/warm_start.py --data my_demonstrations.jsonl        # your own rows, columns prompt and response

A preset is `recipes/configs/<env>/warm_start_<what>.yaml`, named `<env>_<what>`, or any file of that kind. In the
shipped ones the player slips now and then and heeds its own remarks in some retries only; nothing else teaches the
model to use memory. The models ship in `src/metarl_agents/policy/tiny_models/`, each with its settings and log.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from metarl_agents.cli import read_yaml, run_cli
from metarl_agents.errors import ConfigError

CONFIGS = Path(__file__).parent / "configs"
PRESETS = {"_".join([p.parent.name, *p.stem.split("_")[2:]]): p for p in sorted(CONFIGS.glob("*/warm_start*.yaml"))}


def main() -> int:
    """Make demonstrations or read them, fit the model, save it with its log."""
    from metarl_agents.training.warm_start import WarmStartPreset

    chosen = parse()
    name = Path(chosen.preset).stem
    if name == chosen.preset and name not in PRESETS:
        raise ConfigError(f"there is no preset {name}: give a YAML file, or one of {', '.join(PRESETS)}.")
    values = read_yaml(PRESETS.get(chosen.preset, chosen.preset))
    preset = WarmStartPreset.from_mapping(values | ({"trials": chosen.trials} if chosen.trials else {}))
    chosen.rows = chosen.rows or (Path("runs") / f"rows-{name}.npz" if chosen.rows_only else None)
    started = time.time()
    policy, rows = policy_and_rows(preset, chosen)
    print(f"{len(rows)} demonstrations in {time.time() - started:.0f} s", flush=True)
    if not chosen.rows_only:
        output = chosen.output_dir or Path("runs") / f"warm_start-{name}"
        record = {"preset": name, **asdict(preset), "rows": len(rows), **fit(policy, rows, preset, chosen)}
        policy.save(output)
        (output / "warm_start.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"saved to {output} after {time.time() - started:.0f} s")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="minesweeper_4x4", help=f"a YAML file, or one of {', '.join(PRESETS)}")
    parser.add_argument("--output_dir", type=Path, help="where the model goes [runs/warm_start-<preset>]")
    parser.add_argument("--rows", type=Path, metavar="FILE.npz", help="fit what --rows_only has saved there")
    parser.add_argument("--rows_only", action="store_true", help="save demonstrations [runs/rows-<preset>.npz], no fit")
    parser.add_argument("--workers", type=int, default=1, help="processes that play; they change no row [1]")
    parser.add_argument("--device", help="where to fit [cuda where there is one, else cpu]")
    parser.add_argument("--first_stage", type=int, default=0, help="continue with this stage, from --init [0]")
    parser.add_argument("--init", type=Path, help="model folder to start from [a fresh model]")
    parser.add_argument("--trials", type=int, help="scripted trials [the preset's]")
    parser.add_argument("--seed", type=int, default=0, help="decides tasks, play, first weights, batches [0]")
    parser.add_argument("--data", help="JSONL file or hub dataset with columns prompt, response, instead of play")
    return parser.parse_args()


def policy_and_rows(preset: Any, chosen: argparse.Namespace) -> tuple[Any, Sequence]:
    """Return the model to fit and its demonstrations, which both need the same tokenizer."""
    from metarl_agents.config import ModelConfig
    from metarl_agents.policy.loading import load_policy, load_tokenizer
    from metarl_agents.policy.policy import Policy
    from metarl_agents.policy.tiny import build_model
    from metarl_agents.training.demonstrations import read_demonstrations
    from metarl_agents.training.warm_start import preset_rows, preset_tokenizer

    is_stored = chosen.rows is not None and not chosen.rows_only
    policy = load_policy(ModelConfig(model_name_or_path=str(chosen.init))) if chosen.init else None
    if policy is None:
        beside = chosen.rows.with_suffix(".tokenizer") if is_stored else None
        tokenizer = load_tokenizer(beside) if beside else preset_tokenizer(preset, chosen.seed)
        policy = Policy(build_model(tokenizer, seed=chosen.seed, **preset.model), tokenizer)
    if not is_stored and chosen.data:
        return policy, read_demonstrations(chosen.data, policy.encode, policy.answer_ids)
    if not is_stored:
        rows = preset_rows(preset, policy.tokenizer, chosen.seed, chosen.workers)
        if not chosen.rows_only:
            return policy, list(rows)
        StoredRows.save(chosen.rows, rows)
        policy.tokenizer.save_pretrained(chosen.rows.with_suffix(".tokenizer"))
    return policy, StoredRows(chosen.rows)


def fit(policy: Any, rows: Sequence, preset: Any, chosen: argparse.Namespace) -> dict[str, Any]:
    """Teach the model in fp32, stage by stage; return what the record of it holds."""
    import torch

    from metarl_agents.training.warm_start import WarmStartConfig, warm_start

    device = torch.device(chosen.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    policy.model.to(device)
    log: list[dict] = []
    for stage, (steps, rate) in list(enumerate(preset.stages))[chosen.first_stage :]:
        config = WarmStartConfig(steps, preset.batch_size, rate, seed=chosen.seed + stage)
        warm_start(policy, rows, config, partial(report, log, stage, steps))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    policy.model.to("cpu")
    return {"device": name, "threads": torch.get_num_threads(), "seed": chosen.seed, "log": log}


def report(log: list[dict], stage: int, steps: int, step: int, loss: float, seconds: float) -> None:
    """Note and print every fiftieth step, and the last."""
    if step % 50 == 0 or step == steps - 1:
        log.append({"stage": stage, "step": step, "loss": round(loss, 4), "seconds": round(seconds)})
        print(f"stage {stage}  step {step:5d}  loss {loss:.4f}  {seconds:.0f} s", flush=True)


class StoredRows(Sequence):
    """(prompt ids, response ids) rows in a file: all ids in one array, and where each prompt and each answer ends."""

    def __init__(self, path: Path) -> None:
        import numpy as np

        if not path.is_file():
            raise ConfigError(f"there are no demonstrations {path}: make them with --rows_only.")
        with np.load(path) as stored:
            self._ids, self._ends = stored["ids"], stored["ends"]

    @staticmethod
    def save(path: Path, rows: Iterable) -> None:
        """Write rows as 16-bit ids, compressed."""
        import numpy as np

        parts = [np.asarray(ids, dtype=np.uint16) for row in rows for ids in row]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, ids=np.concatenate(parts), ends=np.cumsum([len(ids) for ids in parts]))

    def __len__(self) -> int:
        return len(self._ends) // 2

    def __getitem__(self, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        start = self._ends[2 * row - 1] if row else 0
        middle, end = self._ends[2 * row], self._ends[2 * row + 1]
        return tuple(self._ids[start:middle].tolist()), tuple(self._ids[middle:end].tolist())


if __name__ == "__main__":
    run_cli(main)
