"""describe_run: what a run would do, without doing it: its prompts, its settings, its model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from metarl_agents.config import Config
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.factory import opened, tiny_model_name
from metarl_agents.errors import ConfigError
from metarl_agents.policy.loading import load_policy, needs_warm_start
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.rollout import PolicySpeaker, TaskStream, TrialRunner
from metarl_agents.rollout.collect import fit_prompt
from metarl_agents.rollout.tasks import load_task_list
from metarl_agents.thoughts import final_text
from metarl_agents.training.credit import check_functions
from metarl_agents.training.ending import advice_on_length
from metarl_agents.training.populating import check_population, meet_listed
from metarl_agents.training.setup import fit_context
from metarl_agents.training.start import build_policy
from metarl_agents.training.warm_start import untaught_tiny_policy
from metarl_agents.types import Response

_FIRST, _REFLECTION, _RETRY = "First prompt", "Reflection prompt", "First prompt of the second episode"
_UNREADABLE = "?"
"""An answer without an action, in any environment."""
_TRIES = 4
"""Attempts to see the player fail by itself, before its play is spoiled."""


@dataclass(frozen=True)
class _Walk:
    """What a trial of one task asks, up to the second episode's first turn."""

    pages: dict[str, tuple[int, ...]]
    answers: list[str]
    """What was answered in the first episode."""
    error: str | None
    lengths: list[int]
    """Tokens of every prompt, history included."""
    too_long: dict[str, int]
    """Which prompts do not fit even without history -> tokens they have then."""


def describe_run(config: Config, make_env: MakeEnv) -> str:
    """Return a page about a run: prompts as the model reads them, settings, sampling, model. Nothing is trained.

    Args:
        config: all settings.
        make_env: builds one environment.

    Raises:
        ConfigError: a setting is wrong, or the model or an opponent cannot be loaded.
    """
    import yaml

    check_functions(config.credit)
    task_lists = load_task_list(config.trial.tasks)
    make_env = meet_listed(config, make_env)
    check_population(config, make_env)
    # A warm start takes minutes and changes no prompt, so a dry run leaves it out.
    with opened(make_env) as env:
        untaught = needs_warm_start(config.model, tiny_model_name(env))
    policy = _untaught(config, make_env) if untaught else build_policy(config, make_env)
    fit_context(config, policy)
    seed = TaskStream(config.run.seed, config.trial.tasks_per_step, task_lists["train"]).take(0)[0]
    walk = _walk_to_retry(config, make_env, policy, seed, untaught)
    limit = config.sampling.max_prompt_tokens
    parts = ["Dry run: nothing is trained.", *_warnings(config, policy, walk)]
    parts += [_page(title, ids, policy, limit, title in walk.too_long) for title, ids in walk.pages.items()]
    parts += _remarks(config, walk)
    parts += [
        f"{_rule('Settings')}\n{yaml.safe_dump(config.flat(), sort_keys=False).rstrip()}",
        f"{_rule('Model and sampling')}\n{_facts(config, policy, untaught, walk)}",
        "Nothing was trained and nothing was written.",
    ]
    return "\n\n".join(parts) + "\n"


def _untaught(config: Config, make_env: MakeEnv) -> Policy:
    """Return the tiny model with the environment's words, or with the built-in ones where nobody can play it."""
    try:
        return untaught_tiny_policy(make_env, config)
    except ConfigError:
        return load_policy(config.model)


def _walk_to_retry(config: Config, make_env: MakeEnv, policy: Policy, seed: int, untaught: bool) -> _Walk:
    """Play a first episode that fails, and note each new kind of prompt."""
    answer = _answers(config, make_env, policy, untaught)
    for _ in range(_TRIES):
        walk = _walk(config, make_env, policy, seed, answer)
        if _RETRY in walk.pages or walk.error is not None or config.trial.num_episodes == 1:
            return walk
    # It solves the task. Once more with the same moves, but without the last one.
    script = iter(walk.answers[:-1])

    def spoiled(runner: TrialRunner, prompt: tuple[int, ...]) -> str:
        return answer(runner, prompt) if runner.reflecting else next(script, _UNREADABLE)

    return _walk(config, make_env, policy, seed, spoiled)


def _walk(
    config: Config,
    make_env: MakeEnv,
    policy: Policy,
    seed: int,
    answer: Callable[[TrialRunner, tuple[int, ...]], str],
) -> _Walk:
    runner = TrialRunner(make_env, seed, 0, config.trial)
    pages: dict[str, tuple[int, ...]] = {}
    answers: list[str] = []
    lengths: list[int] = []
    too_long: dict[str, int] = {}
    while not runner.done:
        prompt = policy.encode(runner.messages())
        kind = _REFLECTION if runner.reflecting else _FIRST if len(runner.trial.episodes) == 1 else _RETRY
        lengths.append(len(prompt))
        if fit_prompt(policy.encode, runner.messages, runner.max_drop, config.sampling.max_prompt_tokens) is None:
            name = f"Prompt of turn {len(lengths)}" if kind in pages else kind
            too_long[name] = len(policy.encode(runner.messages(runner.max_drop)))
        pages.setdefault(kind, prompt)
        if kind is _RETRY:
            break
        text = answer(runner, prompt)
        if kind is _FIRST:
            answers.append(text)
        runner.receive(prompt, Response(ids=policy.answer_ids(text), text=final_text(text), written=text))
    return _Walk(pages, answers, runner.trial.error, lengths, too_long)


def _answers(
    config: Config, make_env: MakeEnv, policy: Policy, untaught: bool
) -> Callable[[TrialRunner, tuple[int, ...]], str]:
    """Return what answers: the environment's scripted player, or the model itself where there is none."""
    rng = random.Random(config.run.seed)
    with opened(make_env) as env:
        player = env.player()
    speaker = PolicySpeaker(policy, Sampling.for_training(config), config.run.seed)
    limit = config.sampling.max_prompt_tokens
    calls = itertools.count()

    def scripted(runner: TrialRunner, prompt: tuple[int, ...]) -> str:
        episode = runner.trial.episodes[-1]
        if runner.reflecting:
            return player.reflect(episode, rng)
        if not episode.turns:
            player.start_episode([], rng)
        return player.act(episode.final_observation, rng)

    def sampled(runner: TrialRunner, prompt: tuple[int, ...]) -> str:
        if untaught or len(prompt) > limit:
            return _UNREADABLE
        return speaker.generate([prompt], next(calls))[0].text

    return sampled if player is None else scripted


def _warnings(config: Config, policy: Policy, walk: _Walk) -> list[str]:
    """Say which prompts would not be put to the model, and what to do."""
    if not walk.too_long:
        return []
    sampling, longest = config.sampling, max(walk.too_long.values())
    listed = ", ".join(f"{name[0].lower()}{name[1:]} ({count} tokens)" for name, count in walk.too_long.items())
    advice = advice_on_length(longest, policy.context_length, sampling.max_new_tokens_per_turn)
    return [
        f"Warning: `max_prompt_tokens` is {sampling.max_prompt_tokens}, which does not hold, even without history: "
        f"{listed}. Training ends an episode there and leaves a reflection out; {advice}."
    ]


def _page(title: str, ids: tuple[int, ...], policy: Policy, limit: int, too_long: bool) -> str:
    what = "does not fit" if too_long else "history would be left out"
    note = f", more than max_prompt_tokens {limit}: {what}" if len(ids) > limit else ""
    return f"{_rule(f'{title} ({len(ids)} tokens{note})')}\n{policy.decode_raw(ids)}"


def _remarks(config: Config, walk: _Walk) -> list[str]:
    """Say why a prompt is missing."""
    if walk.error is not None:
        return [f"The environment failed: {walk.error}. `check_environment` tells more."]
    if config.trial.num_episodes == 1:
        return ["No reflection and no second episode: `num_episodes` is 1."]
    if _REFLECTION not in walk.pages:
        return [f"No reflection prompt: `memory` is {config.trial.memory}."]
    return []


def _facts(config: Config, policy: Policy, untaught: bool, walk: _Walk) -> str:
    parameters = list(policy.model.parameters())
    total = sum(p.numel() for p in parameters)
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    context = f"{policy.context_length} tokens" if policy.context_length else "not stated by the model"
    rows = {
        "Model": config.model.model_name_or_path
        + (", taught by a warm start before the first step" if untaught else ""),
        "Parameters": f"{total:,} ({trained:,} to be trained)",
        "Context": context,
        "Prompt": f"at most {config.sampling.max_prompt_tokens} tokens a turn; {_seen(walk.lengths)} seen here",
        "Training draws": Sampling.for_training(config).describe(),
        "Evaluation draws": Sampling.for_evaluation(config).describe(),
    }
    return "\n".join(f"{name + ':':18}{value}" for name, value in rows.items())


def _seen(lengths: list[int]) -> str:
    return f"{min(lengths)} to {max(lengths)}" if lengths else "none"


def _rule(title: str) -> str:
    return f"--- {title} ".ljust(100, "-")
