"""collect_trials: batch whoever is waiting for a response.

While one trial reflects, its neighbour still plays; one that has ended costs nothing. No collectives, no group-wide
phases: a rank samples its own groups alone. Environments in other processes (`env_workers`) work side by side: all
are asked before any is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import environment_workers
from metarl_agents.prompting.messages import Messages
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.types import Response, Trial


class Speaker(Protocol):
    """What the rollout needs of a policy."""

    def encode(self, messages: Messages) -> tuple[int, ...]:
        """Return the prompt's token ids."""

    def generate(self, prompts: Sequence[tuple[int, ...]], call: int) -> list[Response]:
        """Answer each prompt, in order; `call` numbers the calls of one rollout."""


def collect_trials(
    speaker: Speaker,
    make_env: MakeEnv,
    seeds: Sequence[int],
    config: TrialConfig,
    *,
    group_size: int,
    max_prompt_tokens: int,
    max_new_tokens: int = 0,
    play_request: str | None = None,
    on_wave: Callable[[int, int], None] | None = None,
) -> list[Trial]:
    """Play `group_size` trials of each task and return them in order (group, trial).

    Args:
        speaker: answers prompts.
        make_env: builds one environment; called once per trial. One of `environment_workers` brings its processes
            along; otherwise those that `config.env_workers` asks for live as long as this call.
        seeds: one task seed per group.
        config: trial settings.
        group_size: trials per task.
        max_prompt_tokens: longer prompts lose history, oldest first; what still does not fit ends its episode.
        max_new_tokens: L_max of the length penalty.
        play_request: replaces the wording's request (prompting baselines).
        on_wave: called with (finished, all) trials after each round of answers.

    Raises:
        ConfigError: `make_env` cannot be sent to the processes that are asked for.
    """
    options = {"max_new_tokens": max_new_tokens, "play_request": play_request, "wait": False}
    with environment_workers(make_env, config) as build:
        runners = [
            TrialRunner(build, seed, group, config, **options)
            for group, seed in enumerate(seeds)
            for _ in range(group_size)
        ]
        _advance(runners)
        _play(runners, speaker, max_prompt_tokens, on_wave)
    return [runner.trial for runner in runners]


def _play(
    runners: Sequence[TrialRunner],
    speaker: Speaker,
    max_prompt_tokens: int,
    on_wave: Callable[[int, int], None] | None,
) -> None:
    """Ask and answer until every trial has ended."""
    call = 0
    while waiting := [runner for runner in runners if not runner.done]:
        asked = [(runner, *fitted) for runner in waiting if (fitted := _fit(runner, speaker, max_prompt_tokens))]
        if asked:
            responses = speaker.generate([prompt for _, prompt, _ in asked], call)
            for (runner, prompt, shortened), response in zip(asked, responses, strict=True):
                runner.receive(prompt, response, shortened=shortened, wait=False)
        _advance(waiting)
        call += 1
        if on_wave is not None:
            on_wave(sum(runner.done for runner in runners), len(runners))


def _advance(runners: Sequence[TrialRunner]) -> None:
    """Move trials on to their next prompts: each asks its environment before the first one waits for an answer."""
    while runners := [runner for runner in runners if runner.advance()]:
        pass


def fit_prompt(
    encode: Callable[[Messages], tuple[int, ...]],
    messages: Callable[[int], Messages],
    max_drop: int,
    limit: int | None,
) -> tuple[tuple[int, ...], bool] | None:
    """Return (prompt ids, whether history was dropped), or None where even the shortest prompt is too long.

    Args:
        encode: turns messages into ids.
        messages: the prompt with so many history entries left out, oldest first.
        max_drop: entries that can be left out.
        limit: tokens that fit; None for any number.
    """
    for drop in range(max_drop + 1):
        prompt = encode(messages(drop))
        if limit is None or len(prompt) <= limit:
            return prompt, drop > 0
    return None


def _fit(runner: TrialRunner, speaker: Speaker, limit: int) -> tuple[tuple[int, ...], bool] | None:
    """Return the runner's next prompt, or None after telling it that none fits."""
    fitted = fit_prompt(speaker.encode, runner.messages, runner.max_drop, limit)
    if fitted is None:
        runner.prompt_does_not_fit(len(speaker.encode(runner.messages(runner.max_drop))), wait=False)
    return fitted
