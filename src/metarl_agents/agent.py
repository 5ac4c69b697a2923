"""Agent: a trained model outside of training. It acts, reflects, and tries again with what it wrote down.

What lives here: `Agent` for whoever drives the task by hand, and `run_trial` for an environment object. What does
not: playing many trials at once (`rollout/collect.py`) and measuring (`evaluation/evaluate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args

from metarl_agents.cli import TRIAL_SETTINGS, coerce, model_settings
from metarl_agents.config import Config, ModelConfig, TrialConfig, unknown_choice
from metarl_agents.envs.base import Environment
from metarl_agents.envs.guard import can_interrupt
from metarl_agents.envs.parsing import last_tag
from metarl_agents.envs.wording import Wording
from metarl_agents.errors import ConfigError
from metarl_agents.expect import (
    expect,
    expect_count,
    expect_environment,
    expect_function,
    expect_list,
    expect_text,
    wrong,
)
from metarl_agents.policy.loading import TINY, load_policy
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.prompting.messages import Messages, Page, longest_drop, play_messages, reflect_messages
from metarl_agents.rollout.collect import fit_prompt
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.rollout.tasks import mix
from metarl_agents.types import Episode, LastSeen, MemoryMode, Outcome, Phase, Response, Trial, Turn

Memory = Literal["reflection", "trajectory", "both", "none"]
OnTurn = Callable[[Trial, Turn], None]

OF_ONE_TRIAL = tuple(
    item.name
    for item in fields(TrialConfig)
    if item.name in TRIAL_SETTINGS and item.name not in ("env", "env_kwargs", "wording")
)
"""Trial settings that mean something where one environment object plays one trial."""


_OF_THE_MODEL = ("enable_thinking",)
"""Settings of a run's model that shape its prompts and are not saved in its folder."""


class Agent:
    """A language model that plays, looks back, and plays again.

    Let it play an environment object:

    >>> from metarl_agents import Agent, Sampling, run_trial
    >>> from metarl_agents.environments.two_doors import TwoDoors
    >>> short = Sampling(temperature=0.7, max_new_tokens=8)
    >>> agent = Agent.from_pretrained("tiny", sampling=short)  # or a run's folder, "runs/minesweeper-..."
    >>> trial = run_trial(agent, TwoDoors(), seed=0, num_episodes=2, max_turns=3)  # untrained: it solves nothing
    >>> [episode.outcome.value for episode in trial.episodes]
    ['out_of_turns', 'out_of_turns']

    Or drive it by hand, wherever the observations come from. `act` and `reflect` write into the episodes they are
    given, and the next attempt reads the remarks of those in `past`:

    >>> from metarl_agents.types import Episode
    >>> attempt = Episode("Both doors are closed.")
    >>> answer = agent.act("Both doors are closed.", rules="Choose A or B.", episode=attempt).text
    >>> remark = agent.reflect(attempt, observation="Door A is open: empty.", rules="Choose A or B.")
    >>> answer = agent.act("Both doors are closed.", rules="Choose A or B.", past=[attempt]).text
    """

    def __init__(
        self,
        policy: Policy,
        sampling: Sampling | None = None,
        seed: int = 0,
        *,
        max_prompt_tokens: int | None = None,
        trial: Mapping[str, Any] | None = None,
    ) -> None:
        """Bind a policy and how it is sampled.

        Args:
            policy: a loaded policy.
            sampling: default: evaluation's (temperature 0.7, top_p 0.8, top_k 20).
            seed: decides the draws; the c-th answer of an agent is a function of (seed, c) and its prompt.
            max_prompt_tokens: longer prompts lose history, oldest first; default: what the model's context leaves.
            trial: fields of `TrialConfig` that `run_trial` uses where it is given none; default: the library's.

        Raises:
            ConfigError: the model's context is too short for an answer of that length.
        """
        if not all(callable(getattr(policy, method, None)) for method in ("encode", "generate")):
            raise wrong("policy", policy, "a loaded policy: use `Agent.from_pretrained(NAME)` or `load_policy`")
        if sampling is not None:
            expect("sampling", sampling, Sampling, "a `Sampling`")
        expect_count("seed", seed)
        if max_prompt_tokens is not None:
            expect_count("max_prompt_tokens", max_prompt_tokens, least=1)
        self.policy = policy
        self.trial = dict(trial or {})
        self.sampling = sampling or Sampling.for_evaluation(Config())
        self.seed = seed
        self.max_prompt_tokens = _prompt_limit(policy.context_length, self.sampling.max_new_tokens, max_prompt_tokens)
        self._calls = 0

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, sampling: Sampling | None = None, seed: int = 0, **model_settings: Any
    ) -> Agent:
        """Load a model and put it on the accelerator, where there is one.

        The model of a run, and one that ships with the package, is sampled as its run or its preset evaluates it, and
        `run_trial` plays the trials that it was trained on.

        Args:
            name: folder of a run, of a checkpoint or of any model or adapter; hub name; or `tiny`, which is
                untrained until it is taught.
            sampling: default: evaluation's, as described above.
            seed: decides the draws.
            model_settings: fields of `ModelConfig`, for example `dtype="bfloat16"`.

        Raises:
            ConfigError: the model cannot be found or read, or a setting is wrong.
        """
        made_with = _made_with(str(name))
        kept = {key: made_with[key] for key in _OF_THE_MODEL if key in made_with}
        given = kept | {"model_name_or_path": str(name), **model_settings}
        policy = load_policy(_settings_of("model", ModelConfig, given))
        config = Config.from_flat(made_with)
        trial = {item.name: made_with[item.name] for item in fields(TrialConfig) if item.name in made_with}
        limit = config.sampling.max_prompt_tokens if "max_prompt_tokens" in made_with else None
        sampling = sampling or Sampling.for_evaluation(config)
        return cls(policy, sampling, seed, max_prompt_tokens=limit, trial=trial).to_accelerator()

    def to_accelerator(self) -> Agent:
        """Move the model to the accelerator, where there is one, and return the agent."""
        import torch

        if torch.accelerator.is_available():
            self.policy.model.to(torch.accelerator.current_accelerator())
        return self

    def act(
        self,
        observation: str,
        *,
        rules: str = "",
        wording: Wording | None = None,
        memory: Memory = "reflection",
        past: Sequence[Episode] = (),
        episode: Episode | None = None,
        admissible: Sequence[str] = (),
        parse_action: Callable[[str], Any | None] | None = None,
    ) -> Response:
        """Answer an observation; the text holds the action inside `<action> </action>`.

        Args:
            observation: what the agent sees now.
            rules: rules and answer format, as an environment's `describe()` gives them.
            wording: the environment's texts; default: texts that serve any task.
            memory: what is shown of `past`.
            past: earlier attempts at this same task, oldest first.
            episode: the attempt so far; this turn is added to it. None asks without a history.
            admissible: actions to list in the prompt.
            parse_action: what an answer means, for the history; default: the text inside the last `<action>` pair.

        Raises:
            ConfigError: the prompt does not fit, even without history, or an argument is of another type.
        """
        wording = _checked_page(observation, rules, wording)
        if memory not in get_args(Memory):
            raise unknown_choice("memory", memory, get_args(Memory))
        expect_list("past", past, Episode, "`Episode`s")
        for attempt in past:
            _checked_episode(attempt)
        expect_list("admissible", admissible, str, "texts")
        expect_function("parse_action", parse_action)
        current = _checked_episode(episode) if episode is not None else Episode(observation)
        if not current.turns and not current.initial_observation:
            current.initial_observation = observation
        current.final_observation = observation
        page = Page(rules, wording, MemoryMode(memory))
        if not any(observation in message["content"] for message in play_messages(page, past, current, admissible)):
            raise ConfigError(
                "the `wording` shows the newest observation nowhere: give its `current` the field {observation}."
            )

        def messages(drop: int) -> Messages:
            return play_messages(page, past, current, admissible, drop)

        fitted = self._fit(messages, longest_drop(current, wording.history_turns))
        if fitted is None:
            length = len(self.encode(messages(longest_drop(current, wording.history_turns))))
            raise ConfigError(
                f"the prompt has {length} tokens even without history, but {self.max_prompt_tokens} fit: shorten rules "
                "and observation, or sample with fewer `max_new_tokens`."
            )
        prompt, shortened = fitted
        response = self._answer(prompt)
        action = (parse_action or (lambda text: last_tag(text, "action")))(response.text)
        shown = wording.no_action if action is None else wording.show_action(action)
        current.turns.append(_turn(Phase.PLAY, observation, prompt, response, action, shown, shortened))
        current.final_observation = LastSeen(observation)
        return response

    def reflect(
        self, episode: Episode, *, observation: str | None = None, rules: str = "", wording: Wording | None = None
    ) -> str:
        """Look back at a finished attempt, keep the remark in `episode.reflection`, and return its text.

        Args:
            episode: the attempt, as `act` filled it; its `outcome` None counts as not solved.
            observation: what followed the last action, which `act` has not been given.
            rules: as for `act`.
            wording: as for `act`.

        Returns:
            The text inside `<remark> </remark>`; "" where the answer holds none or the prompt does not fit.
        """
        wording = _checked_page("" if observation is None else observation, rules, wording)
        _checked_episode(episode)
        if observation is not None:
            episode.final_observation = observation
        page = Page(rules, wording, MemoryMode.REFLECTION)
        fitted = self._fit(
            lambda drop: reflect_messages(page, episode, drop), longest_drop(episode, wording.reflect_history_turns)
        )
        if fitted is None:
            return ""
        prompt, shortened = fitted
        response = self._answer(prompt)
        remark = last_tag(response.text, "remark")
        episode.reflection = _turn(Phase.REFLECT, "", prompt, response, remark, remark or "", shortened)
        return remark or ""

    def encode(self, messages: Messages) -> tuple[int, ...]:
        """Return a prompt's token ids."""
        return self.policy.encode(messages)

    def _fit(self, messages: Callable[[int], Messages], max_drop: int) -> tuple[tuple[int, ...], bool] | None:
        """Return (prompt ids, whether history was dropped), or None where even the shortest prompt is too long."""
        return fit_prompt(self.encode, messages, max_drop, self.max_prompt_tokens)

    def _answer(self, prompt: tuple[int, ...]) -> Response:
        seed = mix(self.seed, self._calls) % 2**31
        self._calls += 1
        return self.policy.generate([prompt], self.sampling, seed=seed)[0]


def run_trial(
    agent: Agent,
    env: Environment,
    seed: int,
    *,
    num_episodes: int | None = None,
    max_turns: int | None = None,
    memory: Memory | None = None,
    on_turn: OnTurn | None = None,
    **settings: Any,
) -> Trial:
    """Play one trial: attempts at one task with reflections between them, until one succeeds.

    Args:
        agent: who plays.
        env: the environment object; it is reset to the task of `seed`, and left open for the next trial.
        seed: decides the task.
        num_episodes: attempts at most; default, as of the two below: what the agent was trained with, else 3.
        max_turns: answers of one attempt; default: 7.
        memory: what an attempt may read about those before it; default: `reflection`.
        on_turn: called with (trial so far, newest turn) after each move and after each reflection.
        settings: further fields of `TrialConfig`, for example `stop_on_success=False`.

    Returns:
        The trial. A failing environment ends it and is named in `trial.error`.

    Raises:
        ConfigError: a setting is wrong, or belongs to the environment; an argument is of another type.

    Source: LaMer, arXiv 2512.16848, the meta-RL trial.
    """
    expect("agent", agent, Agent, "an `Agent`, as `Agent.from_pretrained(NAME)` gives it")
    expect_environment("env", env)
    expect_count("seed", seed)
    expect_function("on_turn", on_turn)
    named = {"num_episodes": num_episodes, "max_turns": max_turns, "memory": memory}
    given = {name: value for name, value in named.items() if value is not None} | settings
    for item in fields(TrialConfig):
        if item.name in given and item.name not in OF_ONE_TRIAL:
            raise ConfigError(
                f"`{item.name}` has no meaning in `run_trial`, which plays one environment: leave it out."
            )
    usual = {name: value for name, value in agent.trial.items() if name in (*OF_ONE_TRIAL, "wording")}
    config = _settings_of("trial", TrialConfig, usual | given)
    if not can_interrupt():
        # Outside the main thread a time limit would need a copy of `env` in another process.
        config.env_timeout_s = None
    runner = TrialRunner(lambda: _Borrowed(env), seed, 0, config, max_new_tokens=agent.sampling.max_new_tokens)
    while not runner.done:
        fitted = agent._fit(runner.messages, runner.max_drop)
        if fitted is None:
            runner.prompt_does_not_fit(len(agent.encode(runner.messages(runner.max_drop))))
            continue
        prompt, shortened = fitted
        known = sum(1 for _ in runner.trial.rows())
        runner.receive(prompt, agent._answer(prompt), shortened=shortened)
        rows = list(runner.trial.rows())
        if on_turn is not None and len(rows) > known:
            on_turn(runner.trial, rows[-1][2])
    return runner.trial


def _checked_page(observation: Any, rules: Any, wording: Any) -> Wording:
    """Check what a page is written of, and return its wording; None stands for the default."""
    expect_text("observation", observation)
    expect_text("rules", rules)
    wording = Wording() if wording is None else wording
    expect("wording", wording, Wording, "a `Wording`")
    return wording


def _checked_episode(episode: Any) -> Episode:
    """Check an attempt that is played by hand, in which users set texts and the outcome."""
    expect("episode", episode, Episode, "an `Episode`, as in `Episode(observation)`")
    expect_text("episode.initial_observation", episode.initial_observation)
    expect_text("episode.final_observation", episode.final_observation)
    if episode.outcome is not None and not isinstance(episode.outcome, Outcome):
        raise wrong("episode.outcome", episode.outcome, "None or an `Outcome`, as in `Outcome.SUCCESS`")
    return episode


class _Borrowed:
    """The caller's environment, which a finished trial must not close."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def close(self) -> None:
        """Leave it open."""


def _turn(
    phase: Phase,
    observation: str,
    prompt: tuple[int, ...],
    response: Response,
    action: Any | None,
    shown: str,
    shortened: bool,
) -> Turn:
    """Return a turn without a reward: whoever drives by hand keeps the score."""
    return Turn(
        phase=phase,
        observation=observation,
        prompt_ids=prompt,
        response=response,
        action=action,
        shown_action=shown,
        reward=0.0,
        invalid=action is None,
        prompt_shortened=shortened,
    )


def _prompt_limit(context: int | None, max_new_tokens: int, asked: int | None) -> int | None:
    """Return how many tokens a prompt may have; None where nothing limits it."""
    if context is None:
        return asked
    if max_new_tokens >= context:
        raise ConfigError(
            f"an answer may have {max_new_tokens} tokens, but this model's whole context is {context}: give "
            f"`sampling=Sampling(max_new_tokens={max(1, context // 8)})`, or another number below {context}."
        )
    left = context - max_new_tokens
    return left if asked is None else min(asked, left)


def _made_with(name: str) -> dict[str, Any]:
    """Return the settings of the run that made a model, or of the preset of one that ships; {} of others."""
    found = coerce(model_settings(name, names=None)) if name != TINY else {}
    return {key: value for key, value in found.items() if key in Config().flat()}


def _settings_of(part: str, part_class: type, values: dict[str, Any]) -> Any:
    """Build one part of `Config` by name.

    Raises:
        ConfigError: a name belongs to another part or to none, or a value does not fit.
    """
    config = Config.from_flat(coerce(values))
    foreign = sorted(set(coerce(values)) - {item.name for item in fields(part_class)})
    if foreign:
        raise ConfigError(f"`{foreign[0]}` has no effect here: give fields of `{part_class.__name__}` only.")
    return getattr(config, part)
