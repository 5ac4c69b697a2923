"""ALFWorld as an environment: commands in, the game's own sentences out, a reward for the goal.

What does not live here: rules of the game (`game.py` and what it reads), where games come from (`generator.py`,
`gamefile.py`), the pages around them (`wording.py`), the scripted player (`player.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from metarl_agents.environments.alfworld.game import Game, GameFile, Script, read_script
from metarl_agents.environments.alfworld.gamefile import VARIABLE, find_games, find_root, first_readable, read_game
from metarl_agents.environments.alfworld.generator import SIZES, SPLITS, VALIDATION, draw_game
from metarl_agents.environments.alfworld.player import AlfworldPlayer
from metarl_agents.environments.alfworld.rules import rules_named
from metarl_agents.environments.alfworld.tables import TASK_LISTS, TASKS
from metarl_agents.environments.alfworld.wording import texts
from metarl_agents.envs import splits
from metarl_agents.envs.base import Environment
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.parsing import last_tag
from metarl_agents.errors import ConfigError
from metarl_agents.types import StepResult

_WIN = 10.0
_SOURCES = ("auto", "generated", "data")
# Which split the library's three ranges of seeds play. Published games of `valid_seen` share rooms with training.
_PUBLISHED = dict(zip(splits.SPLITS, SPLITS, strict=True))
_GENERATED = _PUBLISHED | {"validation": VALIDATION}


class ALFWorld(Environment):
    """Household tasks in text: find things, carry them, clean, heat and cool them.

    With the published games in `$ALFWORLD_DATA` (or `data_dir`), the first seed of a range plays the first game of the
    split, and so on, counted round, in the order of their paths. Without, games are generated. A command that is not
    admissible answers "Nothing happens.".

    Args:
        split: takes all games from `train`, `valid_seen` (same rooms, other tasks) or `valid_unseen` (other rooms).
            None lets the seed tell: training seeds play `train`, test seeds `valid_unseen`, and validation seeds
            `valid_seen`, or generated games in rooms that nothing else plays in.
        tasks: `in_distribution` (pick, look, clean, heat), `out_of_distribution` (cool, pick_two), `all`, or a list of
            these short names.
        source: `data`, `generated`, or `auto` for data where there is some.
        data_dir: folder of the published games; None asks `$ALFWORLD_DATA`.
        size: of generated rooms, `full` (a kitchen has 25 to 35 receptacles) or `small` (6 to 9).
        rules: sentences of generated games, `own`, or `alfworld` for those of the installed package.
        wording: `paper` for language models, `compact` for very small ones.

    Raises:
        ConfigError: a setting is unknown, or the data or package it asks for is not there.
    """

    def __init__(
        self,
        *,
        split: str | None = None,
        tasks: str | Sequence[str] = "in_distribution",
        source: str = "auto",
        data_dir: str | None = None,
        size: str = "full",
        rules: str = "own",
        wording: str = "paper",
    ):
        for name, value, known in (("split", split, SPLITS), ("source", source, _SOURCES), ("size", size, SIZES)):
            if value not in known and (name, value) != ("split", None):
                raise ConfigError(f'`{name}` is "{value}", but ALFWorld has {", ".join(known)}. Choose one of them.')
        self.split, self.size, self.rules = split, size, rules
        self.tasks = _task_names(tasks)
        self._rules, self.wording = texts(wording)
        self._root = _root(source, data_dir)
        if self._root:
            _look_for_games(self._root, split, self.tasks)
        if wording == "compact" and self._root is None and size == "small" and rules == "own":
            self.tiny_model = "alfworld_tiny"
        rules_named(rules)  # a wrong name, or a package that is missing, fails here and not in the middle of a rollout
        self._file: GameFile | None = None
        self._play: Game | None = None

    def num_tasks(self, split: str) -> int | None:
        """Return how many different games the seeds of a split play; None where they are generated without end.

        Args:
            split: one of the library's: `train`, `validation` or `test`.

        Raises:
            ConfigError: there is no such split, or no game for it.
        """
        check_choice("the library", "split", split, splits.SPLITS)
        return len(self._games(split)) if self._root else None

    @property
    def task_type(self) -> str:
        """The published name of the current game's task type."""
        self._started()
        return self._file.task_type if self._file else ""

    def describe(self) -> str:
        """Return the rules in the chosen wording."""
        return self._rules

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the game of `seed`."""
        self.seed = seed
        dealt = splits.split_of_seed(seed)
        if self._root is None:
            split = self.split or _GENERATED[dealt]
            self._file, _ = draw_game(seed, split=split, tasks=self.tasks, size=self.size, rules=self.rules)
            script = read_script(self._file)
        else:
            games = self._games(dealt)
            self._file, script = first_readable(games, seed % splits.SEEDS_PER_SPLIT % len(games), _read)
        self._play = Game(script)
        return self.restart()

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Return to the start of the same game."""
        play = self._started()
        return play.restart(), self._info(play)

    def parse_action(self, text: str) -> str | None:
        """Return the command inside the last <action> pair, in lower case and single blanks; or None."""
        answer = last_tag(text, "action")
        return " ".join(answer.lower().split()) or None if answer else None

    def step(self, action: str) -> StepResult:
        """Type a command."""
        play = self._started()
        if play.won:
            raise RuntimeError("This ALFWorld attempt is over. Call `reset` or `restart` before the next `step`.")
        observation = play.play(action)
        reward = _WIN if play.won else 0.0
        return StepResult(observation, reward, play.won, False, {"success": play.won, **self._info(play)})

    def walkthrough(self) -> list[str]:
        """Return commands that win the current game from its start; empty where a game file brings none."""
        self._started()
        return list(self._file.walkthrough) if self._file else []

    def min_turns(self) -> int | None:
        """Return the turns that win the current game for someone who knows where everything is.

        At most so many are needed: the commands are those of the game's own walkthrough. None where it brings none.
        """
        return len(self.walkthrough()) or None

    def player(self) -> AlfworldPlayer:
        """Return the scripted player."""
        return AlfworldPlayer()

    def _games(self, dealt: str) -> tuple[Path, ...]:
        """Return the published games that the seeds of one of the library's splits play."""
        assert self._root is not None
        return find_games(self._root, self.split or _PUBLISHED[dealt], self.tasks)

    def _started(self) -> Game:
        if self._play is None:
            raise RuntimeError("No ALFWorld game has been started. Call `reset(seed=...)` first.")
        return self._play

    def _info(self, play: Game) -> dict[str, Any]:
        # "help" can be typed, but it is not worth a turn; listing it would invite to.
        return {"admissible_actions": [command for command in play.admissible if command != "help"]}


def _look_for_games(root: Path, split: str | None, tasks: tuple[str, ...]) -> None:
    """Read the lists of games now, so that what is wrong with them is said before anything is played.

    Where no split is named, validation and test may have no games: whoever evaluates on them is told.
    """
    find_games(root, split or "train", tasks)
    for name in SPLITS[1:] if split is None else ():
        with suppress(ConfigError):
            find_games(root, name, tasks)


def _read(path: Path) -> tuple[GameFile, Script]:
    game = read_game(path)
    try:
        return game, read_script(game)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The game file {path} makes no game ({error}), so another one is played.") from None


def _task_names(tasks: str | Sequence[str]) -> tuple[str, ...]:
    named = TASK_LISTS.get(tasks, (tasks,)) if isinstance(tasks, str) else tuple(tasks)
    long = {name: short for short, name in TASKS.items()}
    short = tuple(long.get(name, name) for name in named)
    unknown = [name for name in short if name not in TASKS]
    if unknown or not short:
        raise ConfigError(
            f'`tasks` is "{unknown[0] if unknown else ""}", but ALFWorld has the lists {", ".join(TASK_LISTS)} and the '
            f"task types {', '.join(TASKS)}. Name a list, or list task types."
        )
    return tuple(dict.fromkeys(short))


def _root(source: str, data_dir: str | None) -> Path | None:
    if source == "generated":
        if data_dir:
            raise ConfigError(f'`source` is "generated", but `data_dir` is "{data_dir}". Leave one of them out.')
        return None
    root = find_root(data_dir)
    if root is None and source == "data":
        raise ConfigError(
            f'`source` is "data", but `${VARIABLE}` leads to no games. Set it to the folder that `alfworld-download` '
            f"filled, or pass `data_dir`."
        )
    return root
