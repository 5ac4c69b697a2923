"""Game files on disk: find them, read them, write generated ones in the same layout.

The layout is that of the published data: `<root>/<split>/<task>-<kind>-None-<kind>-<room>/trial_<id>/` with
`game.tw-pddl` and `traj_data.json`, where the root is `$ALFWORLD_DATA/json_2.1.1`. A file that is broken costs that
file: it is named in a warning, and the others are played.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from metarl_agents.environments.alfworld.game import GameFile
from metarl_agents.environments.alfworld.generator import SPLITS, House, write_game
from metarl_agents.environments.alfworld.tables import TASKS
from metarl_agents.errors import ConfigError

VARIABLE = "ALFWORLD_DATA"
_FOLDER = "json_2.1.1"
_SKIPPED_NAMES = ("movable", "Sliced")


def find_root(data_dir: str | None) -> Path | None:
    """Return the folder that holds the splits, or None where the environment variable leads to no data.

    Args:
        data_dir: the folder, or the one above it; None asks `$ALFWORLD_DATA`. "~" and variables are expanded.

    Raises:
        ConfigError: `data_dir` is given and holds no data.
    """
    folder = os.path.expanduser(os.path.expandvars(data_dir or os.environ.get(VARIABLE) or ""))
    for root in (Path(folder) / _FOLDER, Path(folder)) if folder else ():
        if any((root / split).is_dir() for split in SPLITS):
            return root
    if data_dir:
        raise ConfigError(
            f'`data_dir` is "{data_dir}", but it holds no ALFWorld games: a folder `{_FOLDER}` with '
            f"{', '.join(SPLITS)} is expected there. Name the folder that `alfworld-download` filled, or leave "
            f"`data_dir` out to play generated games."
        )
    return None


@lru_cache(maxsize=32)
def find_games(root: Path, split: str, tasks: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the game files of a split that can be played, sorted.

    Left out without a word, as everyone leaves them out: tasks with movable receptacles or sliced things, task types
    that were not asked for, trials without a game, and games that are marked as not solvable.

    Args:
        root: as found by `find_root`.
        split: one of `SPLITS`.
        tasks: short names of task types.

    Raises:
        ConfigError: no game is left.
    """
    wanted = {TASKS[task] for task in tasks}
    games = []
    for path in sorted((root / split).glob("**/game.tw-pddl")):
        if any(name in str(path.relative_to(root)) for name in _SKIPPED_NAMES):
            continue
        try:
            if _task_type(path) in wanted and _is_solvable(path):
                games.append(path)
        except ValueError as error:
            _report(error)
    if not games:
        raise ConfigError(
            f"No playable game of the task types {', '.join(tasks)} lies in {root / split}. "
            f"Choose other `tasks`, name a `split` that has some, or take another `data_dir`."
        )
    return tuple(games)


@lru_cache(maxsize=64)
def read_game(path: Path) -> GameFile:
    """Return the texts of a game file; raises ValueError with a sentence that names the file where it is broken."""
    data = _read_json(path)
    for key in ("pddl_domain", "pddl_problem", "grammar"):
        if not isinstance(data.get(key), str):
            raise ValueError(f'The game file {path} has no text "{key}", so it is left out.')
    steps = data.get("walkthrough")
    steps = steps if isinstance(steps, list) and all(isinstance(step, str) for step in steps) else []
    texts = (data["pddl_domain"], data["pddl_problem"], data["grammar"])
    return GameFile(*texts, task_type=_task_type(path), walkthrough=tuple(steps), path=str(path))


def save_game(house: House, rules: str, seed: int, root: Path, split: str) -> Path:
    """Write a generated game where `find_games` finds it; return the path of its `game.tw-pddl`.

    Args:
        house: as drawn by `generator.draw_house`.
        rules: `own` or `alfworld`.
        seed: the house's seed, which names the trial.
        root: folder that holds the splits.
        split: name of the split.
    """
    game, task = write_game(house, rules, seed), house.task
    is_lamp = task.type == TASKS["look"]
    folder = root / split / f"{task.type}-{task.thing}-None-{task.goal}-{house.room.number}" / f"trial_G{seed:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"object_target": task.thing, "mrecep_target": "", "object_sliced": False}
    kinds |= {"parent_target": "" if is_lamp else task.goal, "toggle_target": task.goal if is_lamp else ""}
    room = {"floor_plan": f"FloorPlan{house.room.number}", "scene_num": house.room.number}
    about = {"task_type": task.type, "task_id": folder.name, "scene": room, "pddl_params": kinds}
    texts = {"pddl_domain": game.domain, "grammar": game.grammar, "pddl_problem": game.problem}
    path = folder / "game.tw-pddl"
    path.write_text(json.dumps(texts | {"solvable": True, "walkthrough": list(game.walkthrough)}), encoding="utf-8")
    (folder / "traj_data.json").write_text(json.dumps(about), encoding="utf-8")
    return path


def first_readable(games: Sequence[Path], start: int, read: Any) -> Any:
    """Return `read(path)` of the game at `start`, or of the first after it that can be read, going round.

    Raises:
        ConfigError: none can be read.
    """
    for offset in range(len(games)):
        path = games[(start + offset) % len(games)]
        try:
            return read(path)
        except ValueError as error:
            _report(error)
    raise ConfigError(f"None of the {len(games)} games beside {games[0]} can be read. Download the data again.")


def _task_type(path: Path) -> str:
    kind = _read_json(path.with_name("traj_data.json")).get("task_type")
    if not isinstance(kind, str):
        raise ValueError(f'The file {path.with_name("traj_data.json")} has no "task_type", so its game is left out.')
    return kind


def _is_solvable(path: Path) -> bool:
    data = _read_json(path)
    if "solvable" not in data:
        raise ValueError(f'The game file {path} does not say whether it is "solvable", so it is left out.')
    return data["solvable"] is True


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"The file {path} cannot be read ({error.strerror}), so its game is left out.") from None
    except (ValueError, RecursionError):
        raise ValueError(f"The file {path} is not whole JSON, so its game is left out.") from None
    if not isinstance(data, dict):
        raise ValueError(f"The file {path} is JSON, but not an object, so its game is left out.")
    return data


def _report(error: ValueError) -> None:
    warnings.warn(str(error), stacklevel=3)
