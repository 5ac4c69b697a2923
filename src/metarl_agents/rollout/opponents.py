"""Language models in the opponent's seat: who plays, and how many positions are answered at once.

A model plays a game from the pages that the agent would read in its place, without inter-episode memory. `SeatedGame`
notes the questions of many games at an `OpponentDesk`; the first answer that is waited for makes each model answer all
that it has been asked. Scripted opponents need nothing of this: their environments answer by themselves.
Read first: `ModelOpponent`, then `SeatedGame`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.games import Decision, GameEnvironment, Opponent
from metarl_agents.envs.games.seating import MIXED, Seating, seating
from metarl_agents.envs.guard import call_guarded
from metarl_agents.envs.serving import reach
from metarl_agents.envs.wording import Wording
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.seeded import generate_seeded
from metarl_agents.prompting.messages import Page, longest_drop, play_messages
from metarl_agents.rollout.collect import fit_prompt
from metarl_agents.rollout.runner import Postponing
from metarl_agents.rollout.tasks import mix
from metarl_agents.types import Episode, MemoryMode, Phase, Response, Turn


class OpponentFailure(Exception):
    """A model in the opponent's seat could not answer; it ends the trials that were waiting for it."""


@dataclass(frozen=True)
class Question:
    """One position put to a model."""

    decision: Decision
    episode: Episode
    """The play as that seat has seen it so far; its newest observation is the decision's."""
    wording: Wording
    seed: int
    """Decides the draws of the answer."""


class ModelOpponent(Opponent):
    """A causal language model that plays an opponent's seat: a snapshot of the agent, or any other checkpoint.

    Args:
        name: its role.
        policy: a loaded policy that nobody trains, or what loads it when it is first asked.
        sampling: how it answers.
        max_prompt_tokens: longer prompts lose history, oldest first; None sets no limit but the model's context.
        wording: the texts of `act`, which is told nothing of the environment's.
    """

    def __init__(
        self,
        name: str,
        policy: Policy | Callable[[], Policy],
        sampling: Sampling,
        *,
        max_prompt_tokens: int | None = None,
        wording: Wording | None = None,
    ):
        self.name, self.sampling = name, sampling
        self._given, self._limit = policy, max_prompt_tokens
        self._wording = wording or Wording()
        self._policy: Policy | None = policy if isinstance(policy, Policy) else None

    @property
    def policy(self) -> Policy:
        """The policy, loaded if it was not."""
        if self._policy is None:
            self._policy = self._given()
        return self._policy

    def forget(self) -> None:
        """Give the memory of a policy back that can be loaded again."""
        if not isinstance(self._given, Policy):
            self._policy = None

    def act(self, decision: Decision, rng: Random) -> str:
        """Answer one position, seen without the moves that led to it."""
        episode = Episode(initial_observation=decision.observation, final_observation=decision.observation)
        return self.answer([Question(decision, episode, self._wording, rng.getrandbits(62))])[0]

    def answer(self, questions: Sequence[Question]) -> list[str]:
        """Answer positions together, in order; each answer depends on its own question alone.

        A prompt that does not fit even without history is answered by "", which no game can read.
        """
        prompts = [self._prompt(question) for question in questions]
        fitting = [index for index, prompt in enumerate(prompts) if prompt is not None]
        texts = generate_seeded(
            self.policy,
            [prompts[index] for index in fitting],
            self.sampling,
            [questions[index].seed for index in fitting],
        )
        answers = dict(zip(fitting, texts, strict=True))
        return [answers.get(index, "") for index in range(len(questions))]

    def _prompt(self, question: Question) -> tuple[int, ...] | None:
        decision, episode, wording = question.decision, question.episode, question.wording
        page = Page(decision.rules, wording, MemoryMode.NONE)
        fitted = fit_prompt(
            self.policy.encode,
            lambda drop: play_messages(page, [], episode, decision.legal, drop),
            longest_drop(episode, wording.history_turns),
            self._longest(),
        )
        return None if fitted is None else fitted[0]

    def _longest(self) -> int | None:
        context = self.policy.context_length
        left = None if context is None else context - self.sampling.max_new_tokens
        return min((limit for limit in (left, self._limit) if limit is not None), default=None)


class OpponentDesk:
    """Collects what models are asked, and lets each of them answer everything at once."""

    def __init__(self) -> None:
        self._open: list[_Slip] = []
        self.seconds = 0.0
        """Spent on answers."""
        self.batches = 0
        """How often a model was called."""
        self.answers = 0
        """How many positions were put to models."""

    def ask(self, opponent: ModelOpponent, question: Question) -> Callable[[], str]:
        """Note a question; the function that is returned gives the answer, or raises OpponentFailure."""
        slip = _Slip(opponent, question)
        self._open.append(slip)
        return partial(self._collect, slip)

    def _collect(self, slip: _Slip) -> str:
        if slip in self._open:
            self._answer_all()
        if slip.error is not None:
            raise OpponentFailure(f"{slip.opponent.name} could not answer ({slip.error})") from slip.error
        return slip.answer

    def _answer_all(self) -> None:
        slips, self._open = self._open, []
        started = time.perf_counter()
        for opponent in dict.fromkeys(slip.opponent for slip in slips):
            own = [slip for slip in slips if slip.opponent is opponent]
            self.batches, self.answers = self.batches + 1, self.answers + len(own)
            try:
                for slip, answer in zip(own, opponent.answer([slip.question for slip in own]), strict=True):
                    slip.answer = answer
            except Exception as error:  # whatever ails one opponent costs its own trials and nobody else's
                for slip in own:
                    slip.error = error
        self.seconds += time.perf_counter() - started


@dataclass(eq=False)
class _Slip:
    """A question and what became of it."""

    opponent: ModelOpponent
    question: Question
    answer: str = ""
    error: Exception | None = None


class SeatedGame(Postponing):
    """A game in which a model takes the other seats; its moves are asked for at a desk.

    Opponents that are no models move at once, as they do without a desk.

    Args:
        env: the game, in which the opponent is seated already.
        opponent: the model; None for whoever the game seats in a task, which may be a model.
        desk: where questions are collected.
        timeout_s: seconds the game's own code may take for one call; the model may take its time.
    """

    def __init__(
        self, env: GameEnvironment, opponent: ModelOpponent | None, desk: OpponentDesk, timeout_s: float | None = None
    ):
        self._env, self._opponent, self._desk = env, opponent, desk
        self._timeout_s = timeout_s
        self.wording = env.wording
        self._restarted()

    @property
    def env(self) -> GameEnvironment:
        """The game by itself."""
        return self._env

    def describe(self) -> str:
        """Return rules and answer format."""
        return self._env.describe()

    def parse_action(self, text: str) -> Any | None:
        """Return the action that a response means, or None."""
        return self._env.parse_action(text)

    def players(self) -> tuple[str, ...]:
        """Return the names of the seats."""
        return self._env.players()

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the task that `seed` decides; the model has moved already where it moves first."""
        return self.post("reset", seed=seed)()

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Play the task's next episode."""
        return self.post("restart")()

    def step(self, action: Any) -> Any:
        """Play one action and let the model answer."""
        return self.post("step", action)()

    def close(self) -> None:
        """Free what the game holds."""
        self._env.close()

    def post(self, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Do what can be done at once and note what the model has to decide; the function returned does the rest."""
        if name == "step":
            self._timed(partial(self._env.submit, *args, **kwargs))
            return partial(self._go_on, self._next())
        if name in ("reset", "restart"):
            self._restarted()
            self._timed(partial(self._env.deal, **kwargs))
            return partial(self._started, self._next())
        value = self._timed(partial(reach, self._env, name, *args, **kwargs))
        return lambda: value

    def _restarted(self) -> None:
        self._episodes: dict[int, Episode] = {}
        self._asked = 0

    def _next(self) -> Callable[[], None] | None:
        """Note what is awaited of the model; None where it is the agent's turn or the play is over."""
        decision = self._timed(self._env.awaited)
        if decision is None:
            return None
        opponent = self._opponent or self._env.seated
        if not isinstance(opponent, ModelOpponent):
            self._timed(self._env.let_opponent_play)
            return None
        episode = self._episodes.setdefault(decision.seat, Episode(initial_observation=decision.observation))
        episode.final_observation = decision.observation
        self._asked += 1
        # The seed is the task's and the play's: replays of a deal meet the same opponent.
        question = Question(decision, episode, self.wording, mix(decision.seed, self._asked))
        return partial(self._play, question, self._desk.ask(opponent, question))

    def _play(self, question: Question, answer: Callable[[], str]) -> None:
        text = answer()
        self._timed(lambda: self._take(question, text))

    def _take(self, question: Question, text: str) -> None:
        played, meant = self._env.reply(text)
        action = played if meant else None
        shown = self.wording.show_action(action) if meant else self.wording.no_action
        seen = question.decision.observation
        turn = Turn(Phase.PLAY, seen, (), Response((), text), action, shown, 0.0, invalid=not meant)
        question.episode.turns.append(turn)

    def _go_on(self, pending: Callable[[], None] | None) -> Any:
        while pending is not None:
            pending()
            pending = self._next()
        return self._timed(self._env.outcome)

    def _started(self, pending: Callable[[], None] | None) -> tuple[str, dict[str, Any]]:
        result = self._go_on(pending)
        return result.observation, result.info

    def _timed(self, call: Callable[[], Any]) -> Any:
        return call_guarded(call, self._timeout_s)


class SeatedEnvironments:
    """Builds the environments of a rollout, one after the other, each with its own opponent and the agent's seat.

    Args:
        make_env: builds one game environment.
        assigned: (opponent, the agent's seat) of each trial, in the order in which trials are begun.
        timeout_s: seconds an environment may take for one call.
    """

    def __init__(self, make_env: MakeEnv, assigned: Sequence[tuple[Opponent, int]], timeout_s: float | None = None):
        self._make_env, self._timeout_s = make_env, timeout_s
        self._assigned: Iterator[tuple[Opponent, int]] = iter(assigned)
        self.desk = OpponentDesk()
        """Where models are asked."""

    def __call__(self) -> GameEnvironment | SeatedGame:
        """Build the next trial's environment."""
        opponent, seat = next(self._assigned)
        env = self._make_env()
        env.seating = Seating((opponent,), (1.0,), (seat,))
        return SeatedGame(env, opponent, self.desk, self._timeout_s) if isinstance(opponent, ModelOpponent) else env


class DealtEnvironments:
    """Builds the environments of an evaluation: the task's seed deals opponent and seat, models among the opponents.

    Args:
        make_env: builds one game environment, whose possible seats for the agent are kept.
        opponents: who is met, with different names.
        weights: how often each is met, relative to the others.
        timeout_s: seconds an environment may take for one call.

    Raises:
        ConfigError: two opponents have one name.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        opponents: Sequence[Opponent],
        weights: Sequence[float],
        timeout_s: float | None = None,
    ):
        self._make_env, self._timeout_s = make_env, timeout_s
        env = make_env()
        seats, players = env.seating.seats, env.game.players
        seat = MIXED if len(seats) > 1 else players[seats[0]]
        self._seating = seating(env.name, opponents, weights, seat, players)
        self.desk = OpponentDesk()
        """Where models are asked."""

    def __call__(self) -> SeatedGame:
        """Build one environment."""
        env = self._make_env()
        env.seating = self._seating
        return SeatedGame(env, None, self.desk, self._timeout_s)
