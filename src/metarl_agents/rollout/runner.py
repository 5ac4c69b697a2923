"""TrialRunner: the state machine of one trial.

A trial only ever says "here is what I want to ask next" (`messages`) and "thank you, here is what I do with the
answer" (`receive`). Trials advance at their own pace; there are no global phases. In words:

    play episode 0 (at most T turns)
    for n = 1 .. N-1:
        stop if episode n-1 succeeded; reflect on it if memory uses reflections; restart; play episode n

Where the environment lives in another process, the machine stops while that works, so that other trials can go on:
its moves are generators that pause wherever an answer is awaited.

Source: LaMer, arXiv 2512.16848, the meta-RL trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import cache, partial
from typing import Any

from metarl_agents.config import TrialConfig
from metarl_agents.envs.base import Environment
from metarl_agents.envs.factory import close_quietly
from metarl_agents.envs.guard import call_guarded, call_with_timeout, can_interrupt
from metarl_agents.envs.parsing import last_tag
from metarl_agents.envs.serving import reach
from metarl_agents.envs.wording import Wording, in_style
from metarl_agents.envs.workers import ProcessEnvironment, WorkerPool
from metarl_agents.prompting import Page, play_messages, reflect_messages
from metarl_agents.prompting.messages import Messages, longest_drop
from metarl_agents.types import Episode, MemoryMode, Outcome, Phase, Response, StepResult, Trial, Turn

Moves = Generator[None, None, Any]
"""Pauses wherever an environment in another process has work to do; returns what the moves lead to."""


class Postponing(Environment):
    """An environment that is asked first and answers later, so that what many of them wait for is done together."""

    def post(self, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Ask for a method or attribute; the function that is returned gives the answer, waiting for it if need be."""
        raise NotImplementedError(f"{type(self).__name__} must define post(self, name, *args, **kwargs).")


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
        wait: bool = True,
    ) -> None:
        """Build the environment and start the first episode.

        Args:
            make_env: builds the environment of this trial.
            seed: decides the task.
            group: which group of the batch this trial belongs to.
            config: trial settings.
            max_new_tokens: L_max of the length penalty; needed only where that is on.
            play_request: replaces the wording's request (prompting baselines).
            wait: False leaves all that concerns the environment to `advance`.
        """
        self.trial = Trial(seed=seed, group=group)
        self.done = False
        self._config = config
        self._max_new_tokens = max_new_tokens
        self._memory = MemoryMode(config.memory)
        self._reflecting = False
        self._info: dict[str, Any] = {}
        self._env: Environment | None = None
        self._written: Messages | None = None
        self._go(self._begin(self._first_reset(make_env, play_request)), wait)

    # ---- what the rollout asks -------------------------------------------------------------------------------

    def messages(self, drop: int = 0) -> Messages:
        """Return the next prompt, with the oldest `drop` history entries left out."""
        return self._messages(drop) if drop or self._written is None else self._written

    def _messages(self, drop: int) -> Messages:
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

    def receive(
        self, prompt_ids: tuple[int, ...], response: Response, *, shortened: bool = False, wait: bool = True
    ) -> None:
        """Take the answer to `messages()` and move on; without `wait`, `advance` does the moving."""
        self._go(self._receive(prompt_ids, response, shortened), wait)

    def prompt_does_not_fit(self, num_tokens: int = 0, *, wait: bool = True) -> None:
        """End the episode, or leave the reflection out, because its prompt exceeds the limit by having `num_tokens`."""
        if self._reflecting:
            self._episode.too_long_reflection = num_tokens
            self._go(self._restart(), wait)
        else:
            self._episode.too_long_prompt = num_tokens
            self._go(self._close_episode(Outcome.OUT_OF_CONTEXT), wait)

    def advance(self) -> bool:
        """Move on to where an environment in another process has been asked something, or else to the next prompt.

        Returns:
            Whether an environment is at work; then call it again, after the other trials' `advance`.
        """
        try:
            next(self._moves)
        except StopIteration:
            return False
        return True

    def _go(self, moves: Moves, wait: bool) -> None:
        self._moves = self._then_write(moves)
        while wait and self.advance():
            pass

    def _then_write(self, moves: Moves) -> Moves:
        """Make moves and write the next prompt, in which texts and functions of the environment's wording work."""
        self._written = None
        yield from moves
        if not self.done:
            yield from self._guarded(self._write())

    def _write(self) -> Moves:
        written = self._timed(partial(self._messages, 0))
        for message in written:
            message["content"].encode()  # half a surrogate pair, which no tokenizer takes, ends this trial only
        range(self.max_drop)  # of windows that are no whole numbers too
        self._written = written
        yield from ()

    # ---- playing ---------------------------------------------------------------------------------------------

    @property
    def _episode(self) -> Episode:
        return self.trial.episodes[-1]

    def _first_reset(self, make_env: Callable[[], Environment], play_request: str | None) -> Moves:
        """Build the environment, learn its texts and start its task; return (observation, info)."""
        if isinstance(make_env, WorkerPool):
            self._env = make_env()
        elif self._limit and not can_interrupt():
            self._env = ProcessEnvironment(make_env, self._limit)
        else:
            self._env = call_with_timeout(make_env, self._limit)
        wording = _shortening_once(in_style((yield from self._ask(_checked_wording, "wording")), self._config.wording))
        if play_request is not None:
            wording = replace(wording, play_request=play_request)
        rules = yield from self._ask(_checked_rules, "describe")
        self._page = Page(rules, wording, self._memory)
        observation, info = yield from self._ask(_checked_start, "reset", seed=self.trial.seed)
        self.trial.opponent, self.trial.seat = info.get("opponent"), int(info.get("seat", 0))
        return observation, info

    def _begin(self, start: Moves) -> Moves:
        """Open an episode with what `start` returns, unless that fails."""
        started = yield from self._guarded(start)
        if started is not None:
            observation, self._info = started
            self.trial.episodes.append(Episode(initial_observation=observation, final_observation=observation))

    def _receive(self, prompt_ids: tuple[int, ...], response: Response, shortened: bool) -> Moves:
        if self._reflecting:
            self._store_reflection(prompt_ids, response, shortened)
            yield from self._restart()
        else:
            yield from self._play(prompt_ids, response, shortened)

    def _play(self, prompt_ids: tuple[int, ...], response: Response, shortened: bool) -> Moves:
        played = yield from self._guarded(self._act(response.text))
        if played is None:
            return
        action, shown, result = played
        self._record(prompt_ids, response, shortened, action, shown, result)
        if result is not None and (ending := _outcome(result)) is not None:
            yield from self._close_episode(ending)
        elif len(self._episode.turns) >= self._config.max_turns:
            yield from self._close_episode(Outcome.OUT_OF_TURNS)

    def _act(self, text: str) -> Moves:
        """Return (action, how it is printed, result); an answer without an action never touches the game."""
        action = yield from self._ask(_as_it_is, "parse_action", text)
        if action is None:
            return None, self._page.wording.no_action, None
        shown = self._timed(lambda: str(self._page.wording.show_action(action)))
        return action, shown, (yield from self._ask(_checked_step, "step", action))

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

    def _close_episode(self, outcome: Outcome) -> Moves:
        self._episode.outcome = outcome
        last = len(self.trial.episodes) >= self._config.num_episodes
        if last or (self._episode.success and self._config.stop_on_success):
            self._finish()
        elif self._memory in (MemoryMode.REFLECTION, MemoryMode.BOTH):
            self._reflecting = True
        else:
            yield from self._restart()

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

    def _restart(self) -> Moves:
        self._reflecting = False
        yield from self._begin(self._ask(_checked_start, "restart"))

    def _finish(self) -> None:
        self.done = True
        if self._env is not None:
            env, self._env = self._env, None
            close_quietly(env, self._limit)  # a failing close() must not undo a finished trial

    # ---- the environment -------------------------------------------------------------------------------------

    @property
    def _limit(self) -> float | None:
        return self._config.env_timeout_s

    def _timed(self, call: Callable[[], Any]) -> Any:
        """Run the environment's code in this process, within the time limit where that can be kept."""
        return call_guarded(call, self._limit)

    def _ask(self, read: Callable[[Any], Any], name: str, /, *args: Any, **kwargs: Any) -> Moves:
        """Call a method of the environment, or read an attribute, and read the answer; pause while it is awaited."""
        if isinstance(self._env, (ProcessEnvironment, Postponing)):
            answer = self._env.post(name, *args, **kwargs)
            yield
            return read(answer())
        return self._timed(lambda: read(reach(self._env, name, *args, **kwargs)))

    def _guarded(self, moves: Moves) -> Moves:
        """Make moves; on an exception, a time-out or nonsense, mark the trial as crashed and return None."""
        try:
            return (yield from moves)
        except (Exception, SystemExit) as error:  # any failure of a user's environment is ordinary weather
            # Python dresses up a StopIteration that leaves a generator.
            reason = error.__cause__ if str(error) == "generator raised StopIteration" else error
            self.trial.error = f"{type(reason).__name__}: {reason}"
            if not self.trial.episodes or self._episode.outcome is not None:
                # It failed before a new episode opened; what was played before stays as it was.
                self.trial.episodes.append(Episode(initial_observation=""))
            self._episode.outcome = Outcome.CRASHED
            self._reflecting = False
            self._finish()
            return None


def _as_it_is(answer: Any) -> Any:
    return answer


def length_penalty(length: int, limit: int, coefficient: float) -> float:
    """Return MAGE's cost of a long response: 0 up to half of `limit`, then rising linearly to `coefficient`.

    >>> length_penalty(75, 100, 2.0)
    1.0
    """
    if not coefficient or limit <= 0:
        return 0.0
    half = limit / 2
    return coefficient * min(1.0, max(0.0, (length - half) / half))


def _checked_wording(answer: Any) -> Wording:
    if not isinstance(answer, Wording):
        raise TypeError(f"`wording` is of type {type(answer).__name__}, not Wording")
    return answer


def _shortening_once(wording: Wording) -> Wording:
    # A prompt that is cut to fit then calls nothing that has not worked before.
    return replace(wording, shorten=cache(wording.shorten))


def _checked_rules(answer: Any) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"describe returned a {type(answer).__name__}, not str")
    return answer


def _checked_start(answer: Any) -> tuple[str, dict[str, Any]]:
    observation, info = answer
    if not isinstance(observation, str):
        raise TypeError(f"reset/restart returned an observation of type {type(observation).__name__}, not str")
    return observation, _checked_info(info)


def _checked_step(answer: Any) -> StepResult:
    observation, reward, terminated, truncated, info = answer
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if isinstance(value, (str, bytes)):
            raise TypeError(f"step returned {name} = {value!r}, but it must be True or False, not a text")
    reward = float(reward)  # None raises TypeError here
    if not math.isfinite(reward):
        raise ValueError(f"step returned the reward {reward}")
    if not isinstance(observation, str):
        raise TypeError(f"step returned an observation of type {type(observation).__name__}, not str")
    return StepResult(observation, reward, bool(terminated), bool(truncated), _checked_info(info))


def _checked_info(info: Any) -> dict[str, Any]:
    info = dict(info or {})
    for key in ("success", "invalid", "draw"):
        if key in info:
            if isinstance(info[key], (str, bytes)):  # "False" would count as true
                raise TypeError(f'info["{key}"] is {info[key]!r}, but must be True or False, not a text')
            info[key] = bool(info[key])  # an array with several entries raises ValueError here
    if "admissible_actions" in info:
        info["admissible_actions"] = _checked_list(info["admissible_actions"])
    return info


def _checked_list(listed: Any) -> list[str]:
    found = [] if listed is None else list(listed)
    if (isinstance(listed, str) and listed) or not all(isinstance(action, str) for action in found):
        raise TypeError('info["admissible_actions"] is not a list of texts')
    return found


def _outcome(result: StepResult) -> Outcome | None:
    """Return how the episode ended with this step, or None where it goes on."""
    if result.info.get("success"):
        return Outcome.SUCCESS
    if result.terminated:
        return Outcome.DRAW if result.info.get("draw") else Outcome.FAILURE
    return Outcome.OUT_OF_TURNS if result.truncated else None
