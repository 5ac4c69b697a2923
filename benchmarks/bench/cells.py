"""A cell: one trained model or one evaluation, kept as a JSON file under a hash of all that decides its result.

What lives here: the hash, the file, and the packing of outcomes. What does not: when a setting can matter
(`deciding.py`), which cells a table needs (`plan.py`) and how they are made (`work.py`).

A cell keeps all settings it was made with (`decides`). Its key is worked out from them whenever it is read, by the
rules as they are now, so that a cell made under older rules, or by an older copy of this code, is found all the same;
the hash in its file's name only keeps names apart.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from bench.deciding import launched, what_matters
from bench.games import pack_games, unpack_games
from metarl_agents.config import Config, TrialConfig
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"

CELL_VERSION = 1
"""Raise it when code changes what a cell would find (sampling, prompts, credit, update): all cells become stale."""

ENVIRONMENT_VERSIONS: dict[str, int] = {"alfworld": 2, "sokoban": 2}
"""Raise an environment's number (1 where it is not listed) when its tasks, texts or shipped player change."""

IDLE = frozenset(
    {
        *("output_dir", "run_name", "resume_from_checkpoint", "dry_run"),
        *("logging_steps", "report_to", "save_steps", "save_total_limit", "save_trajectories_steps", "merge_and_save"),
        *("collective_timeout_s", "env_timeout_s", "env_workers", "halve_on_oom"),
        # The evaluations before and after training are no part of a training cell: cells of their own do that.
        *("eval_tasks", "eval_samples"),
    }
)
"""Settings that decide nothing a training cell keeps: paths, logging, the machine. Whether some others do depends on
the rest of the settings (`deciding.py`)."""

ADDED_LATER: dict[str, Any] = {
    "anchor_visits": "pooled",
    "reference": "start",
    "normalise_by_role": True,
    "opponents": None,
    "opponent_grouping": "stationary",
    "population_rule": "ratio",
    "snapshot_every": 0,
    "snapshot_limit": 4,
}
"""Settings that are younger than the first cells -> the value that means what was done before they existed."""

EVALUATED = (
    *("dtype", "attn_implementation", "enable_thinking"),
    *("max_new_tokens_per_turn", "max_prompt_tokens", "max_tokens_per_generate_batch"),
    *("eval_temperature", "eval_top_p", "eval_top_k", "eval_min_p", "eval_repetition_penalty"),
    *("env", "env_kwargs", "wording", "max_turns", "num_episodes", "memory", "stop_on_success", "max_remark_chars"),
    *("opponents", "tasks", "eval_tasks", "eval_samples"),
)
"""Settings that decide what an evaluation finds. A game's opponents and seat are in `env_kwargs`, or in `opponents`."""

_FORMAT = "metarl_agents.bench_cell"
_FORMAT_VERSION = 1
_WEIGHT_FILES = ("*.safetensors", "*.gguf", "config.json", "generation_config.json", "tokenizer*", "*.jinja")


@dataclass
class Cell:
    """What was found, and all that must be known about how."""

    kind: str
    """"train" or "evaluate"."""
    key: str
    """`key_of(decides)`; worked out anew when the file is read."""
    name: str
    """For people: "minesweeper/lamer/s0"."""
    status: str
    """"finished" or "failed"."""
    decides: dict[str, Any]
    seed: int | None = None
    """The training seed; None for the base model."""
    reason: str | None = None
    """Why it failed."""
    date: str | None = None
    seconds: float = 0.0
    """Of the work itself; training: sampling and updates."""
    machine: dict[str, Any] | None = None
    run: str | None = None
    """The trained model's folder, relative to the repository; it need not exist on this machine."""
    adopted: dict[str, Any] | None = None
    """Where a cell was taken from that this runner did not make."""
    training: dict[str, Any] | None = None
    """Steps, episodes allotted and used, tokens, seconds, digest of the weights, curves of pass@k."""
    model: dict[str, Any] | None = None
    """Of an evaluation: the model's name, its training cell, the digest of its weights."""
    result: dict[str, Any] | None = None
    """Of an evaluation: the packed `EvaluationResult`."""
    path: Path | None = field(default=None, compare=False, repr=False)
    """The file it was read from or written to; no part of what is kept."""

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.status == "finished"

    @property
    def file_name(self) -> str:
        """Return the name of the cell's file: the one it has, or will have."""
        return self.path.name if self.path else f"{self.kind}-{stem(self.name, self.key)}.json"

    def evaluation(self) -> EvaluationResult:
        """Return what an evaluation cell found.

        Raises:
            ConfigError: there is none, or it comes from another version.
        """
        if self.result is None:
            raise ConfigError(f"the cell {self.name} holds no evaluation: run it again.")
        return unpack(self.result, self.file_name)

    def write(self, folder: Path) -> Path:
        """Write the cell's file, whole or not at all, in place of any older one with the same key."""
        folder.mkdir(parents=True, exist_ok=True)
        values = {"format": _FORMAT, "version": _FORMAT_VERSION, **asdict(self)}
        del values["path"]
        lines = [f" {json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in values.items()]
        path = folder / f"{self.kind}-{stem(self.name, self.key)}.json"
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        unfinished.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        os.replace(unfinished, path)
        self.path = path
        for other in _read_folder(folder, damaged="skip"):
            if (other.kind, other.key) == (self.kind, self.key) and other.path != path:
                other.path.unlink()
        return path


def stem(name: str, key: str) -> str:
    """Return a name for files and folders: readable, and different for different keys.

    >>> stem("minesweeper/GiGPO, N = 1/s0", "0123456789abcdef")
    'minesweeper-GiGPO-N-1-s0-0123456789'
    """
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', name).strip('-')}-{key[:10]}"


def read_cell(path: Path) -> Cell:
    """Read one file as it is, under the key it was written with; `read_cells` works out the one it has today.

    Raises:
        ConfigError: it cannot be read, or is no cell of this version.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f'cannot read the cell "{path}": {error}. Delete it, and it is made again.') from None
    known = {item.name for item in fields(Cell)} - {"path"} | {"format", "version"}
    is_cell = isinstance(values, dict) and values.get("format") == _FORMAT and set(values) == known
    if (
        not is_cell
        or not isinstance(values["decides"], dict)
        or not isinstance(values["decides"].get("settings"), dict)
    ):
        raise ConfigError(f'"{path}" is not a cell of this version: delete it, and it is made again.')
    return Cell(**{name: value for name, value in values.items() if name not in ("format", "version")}, path=path)


def read_cells(preset: str, results: Path = RESULTS, *, damaged: Literal["raise", "skip"] = "raise") -> dict[str, Cell]:
    """Return {key: cell} of a preset, stale ones included.

    Of several files with one key a finished cell counts, of an evaluation one of the very weights that count, and of
    these the latest.

    Args:
        preset: whose cells.
        results: where cells are kept, a folder for each preset.
        damaged: what to do about files that cannot be read.

    Raises:
        ConfigError: a file is damaged.
    """
    cells: dict[str, Cell] = {}
    for cell in _read_folder(results / preset, damaged):
        other = cells.get(cell.key)
        if other is None or _precedence(cell, cells) > _precedence(other, cells):
            cells[cell.key] = cell
    return {key: cells[key] for key in sorted(cells, key=lambda key: cells[key].path.name)}


def _precedence(cell: Cell, cells: dict[str, Cell]) -> tuple[bool, bool, str]:
    """Return what one cell is preferred for to another with its key; `cells` holds the trainings already."""
    model = cell.model or {}
    trained = cells.get(model.get("train_key"))
    fits = trained is None or (trained.training or {}).get("weights") == model.get("weights")
    return cell.finished, fits, cell.date or ""


def _read_folder(folder: Path, damaged: Literal["raise", "skip"]) -> list[Cell]:
    """Read a folder's cells, trainings first, under the keys that the present rules give them."""
    cells: list[Cell] = []
    keys: dict[str, str] = {}
    for path in (path for kind in ("train", "evaluate") for path in sorted(folder.glob(f"{kind}-*.json"))):
        try:
            cell = read_cell(path)
        except ConfigError:
            if damaged == "raise":
                raise
            continue
        if train_key := cell.decides.get("train_key"):
            # Evaluations used to name their training by its key alone, which was the hash of all its settings.
            trained = cell.decides.get("train")
            cell.decides["train_key"] = key_of(trained) if trained else keys.get(train_key, train_key)
        if cell.model:
            cell.model["train_key"] = cell.decides.get("train_key")
        kept, cell.key = cell.key, key_of(cell.decides)
        keys |= {kept: cell.key, _hash(cell.decides): cell.key}
        cells.append(cell)
    return cells


def key_of(decides: dict[str, Any]) -> str:
    """Return the hash of what decides a result, less the settings that cannot matter; order means nothing."""
    return _hash(what_matters(decides, ADDED_LATER))


def _hash(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def decides_training(config: Config, launch: Sequence[str] = ()) -> dict[str, Any]:
    """Return all that may decide a training run: settings, code versions, the weights it starts from, its launcher.

    Args:
        config: all settings.
        launch: the plan's words before the recipe, which say in what precision and by how many processes.
    """
    flat = config.flat()
    kept = {name: value for name, value in flat.items() if name not in IDLE}
    return _versions(config) | {
        "kind": "train",
        "settings": _neutral_dropped({k: v for k, v in kept.items() if k != "model_name_or_path"}),
        "start": base_model(config),
        "task_file": _task_file(config),
        **({"launch": launched(launch)} if launch else {}),
    }


def decides_evaluation(config: Config, *, agent: str, split: str, train_key: str | None) -> dict[str, Any]:
    """Return all that may decide an evaluation of the base model, or of the one that the cell `train_key` trained."""
    flat = config.flat()
    return _versions(config) | {
        "kind": "evaluate",
        "settings": _neutral_dropped({name: flat[name] for name in EVALUATED}),
        "agent": agent,
        "split": split,
        "train_key": train_key,
        "base": base_model(config) if train_key is None else None,
        "task_file": _task_file(config),
    }


def base_model(config: Config) -> dict[str, Any]:
    """Return what identifies the model a run starts from: digest of local weights, else its name; a GGUF file's name.

    A tiny model that no folder ships is made on the spot, from the settings, the seed and how such models are taught.
    """
    found = _base_model(config)
    return found if config.model.gguf_file is None else found | {"gguf_file": config.model.gguf_file}


def _base_model(config: Config) -> dict[str, Any]:
    from metarl_agents.policy.loading import TINY, shipped_folder

    name = config.model.model_name_or_path
    if name == TINY:
        trial = config.trial
        shipped = _shipped_name(trial.env, json.dumps(trial.env_kwargs, sort_keys=True), trial.wording)
        folder = shipped_folder(shipped) if shipped else None
        if folder is None:
            return {"name": TINY, "made_on_the_spot": _lessons(), "seed": config.run.seed}
        return {"name": TINY, "weights": digest(folder)}
    if Path(name).expanduser().exists():
        return {"weights": digest(Path(name).expanduser())}
    return {"name": name}


def _lessons() -> dict[str, Any]:
    """Return how a model that is made on the spot is shaped and taught; its seed is the run's."""
    from metarl_agents.training import warm_start

    return {
        "fit": asdict(replace(warm_start.ON_THE_FLY, seed=0)),
        "trials": warm_start.ON_THE_FLY_TRIALS,
        "size": warm_start.ON_THE_FLY_SIZE,
        "vocabulary_trials": warm_start.VOCABULARY_TRIALS,
    }


@lru_cache(maxsize=256)
def _shipped_name(env: str, env_kwargs: str, wording: Any) -> str | None:
    """Return which shipped model fits an environment; building one can take long, so each is built once."""
    from metarl_agents.envs.factory import environment_factory, tiny_model_name

    trial = TrialConfig(env=env, env_kwargs=json.loads(env_kwargs), wording=wording)
    return tiny_model_name(environment_factory(trial)())


def digest(folder: Path) -> str:
    """Return the sha256 of a model's weights, shape and tokenizer, wherever they lie."""
    found = [folder] if folder.is_file() else {path for mark in _WEIGHT_FILES for path in folder.glob(mark)}
    stamps = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(found))
    return _digest_of(stamps)


@lru_cache(maxsize=64)
def _digest_of(stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Hash files; what has kept its time and size is not read twice."""
    whole = hashlib.sha256()
    for name, _, _ in stamps:
        with open(name, "rb") as file:
            whole.update(f"{Path(name).name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _versions(config: Config) -> dict[str, Any]:
    return {"cell_version": CELL_VERSION, "environment_version": ENVIRONMENT_VERSIONS.get(config.trial.env, 1)}


def _neutral_dropped(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out young settings where they say nothing new, so that they do not make older cells stale."""
    return {name: value for name, value in settings.items() if name not in ADDED_LATER or value != ADDED_LATER[name]}


def _task_file(config: Config) -> str | None:
    source = config.trial.tasks
    return digest(Path(source)) if source and Path(source).is_file() else None


def pack(result: EvaluationResult) -> dict[str, Any]:
    """Return a result's fields, the long ones short: runs of seeds, samples as text, each entropy once, columns."""
    values = asdict(result)
    values["task_seeds"] = _runs(result.task_seeds)
    if result.first_episode_successes is not None:
        values["first_episode_successes"] = [
            "".join("01"[won] for won in row) for row in result.first_episode_successes
        ]
    if result.diversity_by_task is not None:
        found = list(dict.fromkeys(result.diversity_by_task))
        place = {nats: index for index, nats in enumerate(found)}
        values["diversity_by_task"] = {"nats": found, "task": [place[nats] for nats in result.diversity_by_task]}
    if "games" in result.meta:
        values["meta"] = result.meta | {"games": pack_games(result.meta["games"])}
    return json.loads(json.dumps(values))


def unpack(values: dict[str, Any], name: str) -> EvaluationResult:
    """Undo `pack`.

    Raises:
        ConfigError: the fields are another version's.
    """
    samples, entropies = values.get("first_episode_successes"), values.get("diversity_by_task")
    meta = values.get("meta", {})
    changed: dict[str, Any] = {
        "task_seeds": [first + i for first, count in values.get("task_seeds", ()) for i in range(count)],
        "first_episode_successes": samples and [[letter == "1" for letter in row] for row in samples],
        "diversity_by_task": entropies and [entropies["nats"][index] for index in entropies["task"]],
        "meta": meta | ({"games": unpack_games(meta["games"])} if "games" in meta else {}),
    }
    return EvaluationResult.from_values(values | changed, name)


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return [first, count] of each stretch of consecutive numbers.

    >>> _runs([5, 6, 7, 2])
    [[5, 3], [2, 1]]
    """
    stretches = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    return [[group[0][1], len(group)] for group in (list(members) for _, members in stretches)]
