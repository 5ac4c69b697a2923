"""Demonstrations: (prompt ids, response ids) rows of a scripted player, made through the real rollout.

The very same pages and the very same parser as in training, so a model warmed up on these rows has seen exactly the
prompts it will be asked. An environment without a player gives parseable answers drawn from its admissible actions:
they teach the format and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import Environment, MakeEnv
from metarl_agents.errors import ConfigError
from metarl_agents.prompting.messages import Messages
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.types import Response

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""(prompt ids, response ids)."""

Encode = Callable[[Messages], tuple[int, ...]]
AnswerIds = Callable[[str], tuple[int, ...]]

MEMORY_MIX = ("reflection",) * 6 + ("trajectory", "both", "none", "none")
"""Memory modes that demonstrations are played under, so that every `--memory` finds a model that knows its page."""


class FormatPlayer:
    """Knows the answer format and nothing else: a random admissible action, a remark that names the last one."""

    def __init__(self, env: Environment) -> None:
        """Watch the actions that `env` admits."""
        self._env = env
        self.admissible: Sequence[str] = ()
        self._last = ""

    def start_episode(self, remarks: list[str], rng: random.Random) -> None:
        """Forget the last action."""
        self._last = ""

    def act(self, observation: str, rng: random.Random) -> str:
        """Answer with any admissible action."""
        if not self.admissible:
            raise ConfigError(
                f"{type(self._env).__name__} has neither a player() nor info['admissible_actions'], so the tiny model "
                "cannot learn its answer format: add one of them, or pass `--model_name_or_path` a real model."
            )
        self._last = rng.choice(list(self.admissible))
        return f"<action>{self._last}</action>"

    def reflect(self, episode: object, rng: random.Random) -> str:
        """Remark on the last action."""
        return f"<remark>not {self._last}</remark>"


def demonstrate(
    make_env: MakeEnv, seeds: Sequence[int], config: TrialConfig, encode: Encode, answer_ids: AnswerIds, seed: int
) -> Iterator[Row]:
    """Yield the rows of one scripted trial per task seed, memory modes mixed as in `MEMORY_MIX`."""
    for number, task in enumerate(seeds):
        rng = random.Random(f"{seed}/{number}")
        mode = rng.choice(MEMORY_MIX) if config.num_episodes > 1 else config.memory
        runner = TrialRunner(make_env, task, number, replace(config, memory=mode))
        yield from _play(runner, make_env, rng, encode, answer_ids)
        if runner.trial.crashed:
            raise ConfigError(f"the environment failed during scripted play of task {task}: {runner.trial.error}.")


def read_demonstrations(source: str, encode: Encode, answer_ids: AnswerIds) -> list[Row]:
    """Read rows from a JSONL file or hub dataset with the text columns `prompt` and `response`.

    Raises:
        ConfigError: datasets is not installed, the source cannot be read, or a column is missing.
    """
    try:
        import datasets
    except ImportError:
        raise ConfigError("reading demonstrations needs the package datasets: pip install datasets.") from None
    try:
        local = Path(source).is_file()
        loaded = datasets.load_dataset("json", data_files=source, split="train") if local else None
        loaded = loaded if local else datasets.load_dataset(source, split="train")
    except Exception as error:  # datasets reports a bad source in many types
        raise ConfigError(f"cannot read the demonstrations {source}: {' '.join(str(error).split())[:300]}") from None
    missing = {"prompt", "response"} - set(loaded.column_names)
    if missing:
        raise ConfigError(f"the demonstrations {source} have no column `{sorted(missing)[0]}`: add it, as text.")
    return [(encode([{"role": "user", "content": row["prompt"]}]), answer_ids(row["response"])) for row in loaded]


def _play(
    runner: TrialRunner, make_env: MakeEnv, rng: random.Random, encode: Encode, answer_ids: AnswerIds
) -> Iterator[Row]:
    env = make_env()
    player = env.player() or FormatPlayer(env)
    played = -1
    while not runner.done:
        episodes = runner.trial.episodes
        if runner.reflecting:
            text = player.reflect(episodes[-1], rng)
        else:
            if played != len(episodes):
                played = len(episodes)
                player.start_episode([e.reflection.action for e in episodes if e.reflection is not None], rng)
            if isinstance(player, FormatPlayer):
                player.admissible = runner.admissible
            text = player.act(episodes[-1].final_observation, rng)
        prompt, response = encode(runner.messages()), answer_ids(text)
        runner.receive(prompt, Response(ids=response, text=text))
        yield prompt, response
