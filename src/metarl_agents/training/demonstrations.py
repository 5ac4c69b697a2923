"""Demonstrations: (prompt ids, response ids) rows of a scripted player, made through the real rollout.

The very same pages and the very same parser as in training, so a model warmed up on these rows has seen exactly the
prompts it will be asked. An environment without a player gives parseable answers drawn from its admissible actions:
they teach the format and nothing else. What does not live here: what a preset asks for (`warm_start.py`).
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import Environment, MakeEnv
from metarl_agents.envs.factory import opened
from metarl_agents.errors import ConfigError
from metarl_agents.prompting.memory import observations_after
from metarl_agents.prompting.messages import Messages
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.sources import read_rows
from metarl_agents.thoughts import final_text
from metarl_agents.types import Episode, Response

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""(prompt ids, response ids)."""

Encode = Callable[[Messages], tuple[int, ...]]
AnswerIds = Callable[[str], tuple[int, ...]]

MEMORY_MIX = ("reflection",) * 6 + ("trajectory", "both", "none", "none")
"""Memory modes that demonstrations are played under, so that every `--memory` finds a model that knows its page."""


REMARK_WORDS = 12
"""Words of a remark that a player without knowledge writes."""


class FormatPlayer:
    """Plays admissible actions at random and remarks what they led to; in half of the attempts it repeats no action.

    A model that is fitted to it knows the answer format, writes remarks worth reading, and sometimes acts on them.
    Whether acting on them pays is left to training.
    """

    def __init__(self, env: Environment) -> None:
        """Watch the actions that `env` admits."""
        self._env = env
        self.admissible: Sequence[str] = ()
        self._remarks = ""
        self._tried: list[str] = []
        self._repeats = True

    def start_episode(self, remarks: list[str], rng: random.Random) -> None:
        """Read the remarks, and decide whether this attempt repeats actions."""
        self._remarks, self._tried, self._repeats = f" {' '.join(remarks)}", [], rng.random() < 0.5

    def act(self, observation: str, rng: random.Random) -> str:
        """Answer with an admissible action, in some attempts with one that the page does not show as tried."""
        if not self.admissible:
            raise ConfigError(
                f"{type(self._env).__name__} has neither a player() nor info['admissible_actions'], so the tiny model "
                "cannot learn its answer format: add one of them, or pass `--model_name_or_path` a real model."
            )
        new = [action for action in self.admissible if action not in self._tried and f" {action}:" not in self._remarks]
        action = rng.choice(list(self.admissible) if self._repeats or not new else new)
        self._tried.append(action)
        return f"<action>{action}</action>"

    def reflect(self, episode: Episode, rng: random.Random) -> str:
        """Repeat actions and what they led to, in `REMARK_WORDS` words; the oldest are left out first."""
        seen = zip(episode.turns, observations_after(episode), strict=True)
        words = [f"{turn.shown_action}: {observation}".split() for turn, observation in seen]
        while len(words) > 1 and sum(map(len, words)) > REMARK_WORDS:
            del words[0]
        return f"<remark>{' '.join([word for entry in words for word in entry][:REMARK_WORDS])}</remark>"


def demonstrate(
    make_env: MakeEnv,
    seeds: Sequence[int],
    config: TrialConfig,
    encode: Encode,
    answer_ids: AnswerIds,
    seed: int,
    *,
    first: int = 0,
    memory_mix: Sequence[str] = MEMORY_MIX,
    player: Mapping[str, Any] | None = None,
) -> Iterator[Row]:
    """Yield the rows of one scripted trial per task seed, memory modes mixed.

    Args:
        make_env: builds the environment.
        seeds: the tasks.
        config: what a trial is; with one episode its own `memory` is kept.
        encode: turns a page into ids.
        answer_ids: turns an answer into ids.
        seed: decides, with a trial's number, all that the player draws.
        first: number of the first of these trials, so that parts of a long list give what the whole would.
        memory_mix: memory modes, each as likely as it is listed often.
        player: attributes that the environment's player is given.

    Raises:
        ConfigError: the player has no such attribute, or the environment fails.
    """
    for number, task in enumerate(seeds, start=first):
        rng = random.Random(f"{seed}/{number}")
        mode = rng.choice(memory_mix) if config.num_episodes > 1 else config.memory
        runner = TrialRunner(make_env, task, number, replace(config, memory=mode))
        with opened(make_env) as env:
            yield from play_scripted(runner, scripted_player(env, player), rng, encode, answer_ids)
        if runner.trial.crashed:
            raise ConfigError(f"the environment failed during scripted play of task {task}: {runner.trial.error}.")


def scripted_player(env: Environment, settings: Mapping[str, Any] | None = None) -> Any:
    """Return the environment's player, or one that knows the answer format only, with some attributes changed.

    Raises:
        ConfigError: the player has no such attribute.
    """
    player = env.player() or FormatPlayer(env)
    for name, value in (settings or {}).items():
        public = sorted(known for known in vars(player) if not known.startswith("_"))
        if name not in public:
            near = difflib.get_close_matches(name, public, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(public)}."
            raise ConfigError(f"{type(player).__name__} has no setting `{name}`; {hint}")
        setattr(player, name, value)
    return player


def pages_and_answers(make_env: MakeEnv, seeds: Sequence[int], config: TrialConfig, **options: Any) -> list[str]:
    """Return the texts of scripted trials, from which a tokenizer learns the environment's words.

    Args:
        make_env: builds the environment.
        seeds: the tasks.
        config: what a trial is.
        options: the other arguments of `demonstrate`, `seed` among them.
    """
    texts: list[str] = []

    def note(said: Messages | str) -> tuple[int, ...]:
        texts.extend([said] if isinstance(said, str) else [message["content"] for message in said])
        return ()

    for _ in demonstrate(make_env, seeds, config, note, note, **options):
        pass
    return texts


def read_demonstrations(source: str, encode: Encode, answer_ids: AnswerIds) -> list[Row]:
    """Read rows from a JSONL file or hub dataset with the text columns `prompt` and `response`.

    Rows that name another split than "train" are left out.

    Raises:
        ConfigError: datasets is not installed, the source cannot be read, or it has no such rows.
    """
    rows = [
        row
        for row in read_rows(source, "demonstrations", ["prompt", "response"])
        if (row.get("split") or "train") == "train"
    ]
    for row in rows:
        for column in ("prompt", "response"):
            if not isinstance(row[column], str):
                kind = type(row[column]).__name__
                raise ConfigError(
                    f"the demonstrations {source} hold a {kind} as `{column}`: both columns must be texts."
                )
    if not rows:
        raise ConfigError(f"the demonstrations {source} hold no training rows: give each a `prompt` and a `response`.")
    return [(encode([{"role": "user", "content": row["prompt"]}]), answer_ids(row["response"])) for row in rows]


def play_scripted(
    runner: TrialRunner, player: Any, rng: random.Random, encode: Encode, answer_ids: AnswerIds
) -> Iterator[Row]:
    """Let a player play a trial to its end, and yield each (prompt ids, response ids) after it was taken.

    Args:
        runner: a trial at its beginning.
        player: see `scripted_player`.
        rng: all that the player draws.
        encode: turns a page into ids.
        answer_ids: turns an answer into ids.
    """
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
        runner.receive(prompt, Response(ids=response, text=final_text(text), written=text))
        yield prompt, response
