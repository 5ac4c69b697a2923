"""TrialRunner: the state machine of one trial.

A trial only ever says "here is what I want to ask next" (`messages`) and "thank you, here is what I do with the
answer" (`receive`). Trials advance at their own pace; there are no global phases. In words:

    play episode 0 (at most T turns)
    for n = 1 .. N-1:
        stop if episode n-1 succeeded; reflect on it if memory uses reflections; restart; play episode n

Source: LaMer, arXiv 2512.16848, the meta-RL trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import Environment
from metarl_agents.envs.guard import ProcessEnvironment, call_with_timeout, can_interrupt
from metarl_agents.envs.parsing import last_tag
from metarl_agents.prompting import Page, play_messages, reflect_messages
from metarl_agents.prompting.messages import Messages, longest_drop
from metarl_agents.types import Episode, MemoryMode, Outcome, Phase, Response, StepResult, Trial, Turn


class TrialRunner:
    """Plays one trial of one task; an environment's failure ends this trial and nothing else."""

    def __init__(
        self,
        make_env: Callable[[], Environment],
        seed: int,
        group: int,
        config: TrialConfig,
        *,
        max_new_tokens: int = 0,
        play_request: str | None = None,
    ) -> None:
        """Build the environment and start the first episode.

        Args:
            make_env: builds the environment of this trial.
            seed: decides the task.
            group: which group of the batch this trial belongs to.
            config: trial settings.
            max_new_tokens: L_max of the length penalty; needed only where that is on.
            play_request: replaces the wording's request (prompting baselines).
        """
        self.trial = Trial(seed=seed, group=group)
        self.done = False
        self._config = config
        self._max_new_tokens = max_new_tokens
        self._memory = MemoryMode(config.memory)
        self._reflecting = False
        self._info: dict[str, Any] = {}
        self._env: Environment | None = None
        started = self._guarded(lambda: self._start(make_env, play_request))
        if started is not None:
            self._open_episode(*started)

    # ---- what the rollout asks -------------------------------------------------------------------------------

    def messages(self, drop: int = 0) -> Messages:
        """Return the next prompt, with the oldest `drop` history entries left out."""
        if self._reflecting:
            return reflect_messages(self._page, self._episode, drop)
        return play_messages(self._page, self.trial.episodes[:-1], self._episode, self.admissible, drop)

    @property
    def admissible(self) -> list[str]:
        """Actions that the environment lists for the current state; empty where it lists none."""
        return list(self._info.get("admissible_actions") or ())

    @property
    def reflecting(self) -> bool:
        """Whether the next answer is a reflection."""
        return self._reflecting

    @property
    def max_drop(self) -> int:
        """How many history entries the next prompt can lose."""
        wording = self._page.wording
        window = wording.reflect_history_turns if self._reflecting else wording.history_turns
        return longest_drop(self._episode, window)

    def receive(self, prompt_ids: tuple[int, ...], response: Response, *, shortened: bool = False) -> None:
        """Take the answer to `messages()` and move on."""
        if self._reflecting:
            self._store_reflection(prompt_ids, response, shortened)
            self._restart()
        else:
            self._play(prompt_ids, response, shortened)

    def prompt_does_not_fit(self) -> None:
        """End the episode, or leave the reflection out, because its prompt exceeds the limit."""
        if self._reflecting:
            self._restart()
        else:
            self._close_episode(Outcome.OUT_OF_CONTEXT)

    # ---- playing ---------------------------------------------------------------------------------------------

    @property
    def _episode(self) -> Episode:
        return self.trial.episodes[-1]

    def _start(self, make_env: Callable[[], Environment], play_request: str | None) -> tuple[str, dict[str, Any]]:
        if self._config.env_timeout_s and not can_interrupt():
            self._env = ProcessEnvironment(make_env, self._config.env_timeout_s)
        else:
            self._env = make_env()
        wording = self._env.wording
        if play_request is not None:
            wording = replace(wording, play_request=play_request)
        self._page = Page(self._env.describe(), wording, self._memory)
        return _checked_start(self._env.reset(seed=self.trial.seed))

    def _open_episode(self, observation: str, info: dict[str, Any]) -> None:
        self._info = info
        self.trial.episodes.append(Episode(initial_observation=observation, final_observation=observation))

    def _play(self, prompt_ids: tuple[int, ...], response: Response, shortened: bool) -> None:
        parsed = self._guarded(lambda: (self._env.parse_action(response.text),))
        if parsed is None:
            return
        action = parsed[0]
        shown: str = self._page.wording.no_action
        result: StepResult | None = None
        if action is not None:
            show = self._page.wording.show_action
            stepped = self._guarded(lambda: (show(action), _checked_step(self._env.step(action))))
            if stepped is None:
                return
            shown, result = stepped
        self._record(prompt_ids, response, shortened, action, shown, result)
        if result is not None and (ending := _outcome(result)) is not None:
            self._close_episode(ending)
        elif len(self._episode.turns) >= self._config.max_turns:
            self._close_episode(Outcome.OUT_OF_TURNS)

    def _record(
        self,
        prompt_ids: tuple[int, ...],
        response: Response,
        shortened: bool,
        action: Any | None,
        shown: str,
        result: StepResult | None,
    ) -> None:
        invalid = action is None or bool(result is not None and result.info.get("invalid"))
        reward, row_penalty = self._with_penalties(result.reward if result else 0.0, invalid, response)
        episode = self._episode
        episode.turns.append(
            Turn(
                phase=Phase.PLAY,
                observation=episode.final_observation,
                prompt_ids=prompt_ids,
                response=response,
                action=action,
                shown_action=shown,
                reward=reward,
                row_penalty=row_penalty,
                invalid=invalid,
                prompt_shortened=shortened,
            )
        )
        if result is not None:
            episode.final_observation = result.observation
            self._info = result.info

    def _with_penalties(self, reward: float, invalid: bool, response: Response) -> tuple[float, float]:
        """Return (reward, penalty of this row only) of a turn; see method section on invalid responses."""
        reward -= length_penalty(len(response.ids), self._max_new_tokens, self._config.length_penalty)
        penalty = self._config.invalid_action_penalty if invalid else 0.0
        return (reward - penalty, 0.0) if self._config.penalty_scope == "return" else (reward, penalty)

    def _close_episode(self, outcome: Outcome) -> None:
        self._episode.outcome = outcome
        last = len(self.trial.episodes) >= self._config.num_episodes
        if last or (self._episode.success and self._config.stop_on_success):
            self._finish()
        elif self._memory in (MemoryMode.REFLECTION, MemoryMode.BOTH):
            self._reflecting = True
        else:
            self._restart()

    # ---- between episodes ------------------------------------------------------------------------------------

    def _store_reflection(self, prompt_ids: tuple[int, ...], response: Response, shortened: bool) -> None:
        remark = last_tag(response.text, "remark")
        invalid = remark is None
        reward, row_penalty = self._with_penalties(0.0, invalid, response)
        remark = (remark or "")[: self._config.max_remark_chars]
        self._episode.reflection = Turn(
            phase=Phase.REFLECT,
            observation="",
            prompt_ids=prompt_ids,
            response=response,
            action=None if invalid else remark,
            shown_action=remark,
            reward=reward,
            row_penalty=row_penalty,
            invalid=invalid,
            prompt_shortened=shortened,
        )

    def _restart(self) -> None:
        self._reflecting = False
        started = self._guarded(lambda: _checked_start(self._env.restart()))
        if started is not None:
            self._open_episode(*started)

    def _finish(self) -> None:
        self.done = True
        if self._env is not None:
            env, self._env = self._env, None
            self._close_quietly(env)

    def _close_quietly(self, env: Environment) -> None:
        # A failing close() must not undo a finished trial.
        with suppress(Exception):
            call_with_timeout(env.close, self._timeout)

    @property
    def _timeout(self) -> float | None:
        """Seconds for an alarm; a worker process (outside the main thread) keeps its own time."""
        return self._config.env_timeout_s if can_interrupt() else None

    def _guarded(self, call: Callable[[], Any]) -> Any | None:
        """Run environment code; on an exception, a time-out or nonsense, mark the trial as crashed and return None."""
        try:
            return call_with_timeout(call, self._timeout)
        except (Exception, SystemExit) as error:  # any failure of a user's environment is ordinary weather
            self.trial.error = f"{type(error).__name__}: {error}"
            if not self.trial.episodes or self._episode.outcome is not None:
                # It failed before a new episode opened; what was played before stays as it was.
                self.trial.episodes.append(Episode(initial_observation=""))
            self._episode.outcome = Outcome.CRASHED
            self._reflecting = False
            self._finish()
            return None


def length_penalty(length: int, limit: int, coefficient: float) -> float:
    """Return MAGE's cost of a long response: 0 up to half of `limit`, then rising linearly to `coefficient`.

    >>> length_penalty(75, 100, 2.0)
    1.0
    """
    if not coefficient or limit <= 0:
        return 0.0
    half = limit / 2
    return coefficient * min(1.0, max(0.0, (length - half) / half))


def _checked_start(answer: Any) -> tuple[str, dict[str, Any]]:
    observation, info = answer
    if not isinstance(observation, str):
        raise TypeError(f"reset/restart returned an observation of type {type(observation).__name__}, not str")
    return observation, _checked_info(info)


def _checked_step(answer: Any) -> StepResult:
    observation, reward, terminated, truncated, info = answer
    reward = float(reward)  # None raises TypeError here
    if not math.isfinite(reward):
        raise ValueError(f"step returned the reward {reward}")
    if not isinstance(observation, str):
        raise TypeError(f"step returned an observation of type {type(observation).__name__}, not str")
    return StepResult(observation, reward, bool(terminated), bool(truncated), _checked_info(info))


def _checked_info(info: Any) -> dict[str, Any]:
    info = dict(info or {})
    listed = info.get("admissible_actions") or ()
    if isinstance(listed, str) or not all(isinstance(action, str) for action in listed):
        raise TypeError('info["admissible_actions"] is not a list of texts')
    return info


def _outcome(result: StepResult) -> Outcome | None:
    """Return how the episode ended with this step, or None where it goes on."""
    if result.info.get("success"):
        return Outcome.SUCCESS
    if result.terminated:
        return Outcome.DRAW if result.info.get("draw") else Outcome.FAILURE
    return Outcome.OUT_OF_TURNS if result.truncated else None
