"""The contract an environment satisfies, with Gymnasium's signatures.

An environment is one task at a time, in text. It does not count turns against a limit, build prompts, keep memory
between episodes, know its group, or penalise unreadable text: the library does each of these once.
Read next: `checks.py`, which proves a class keeps the promises below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from metarl_agents.envs.parsing import last_tag
from metarl_agents.envs.wording import Wording
from metarl_agents.types import StepResult


class Player(Protocol):
    """A scripted player: used for warm starts, baselines and tests."""

    def act(self, observation: str, rng: Any) -> str:
        """Return an answer as the model would write it, `<action>...</action>` included."""

    def reflect(self, episode: Any, rng: Any) -> str:
        """Return a reflection on a finished `Episode`, `<remark>...</remark>` included."""

    def start_episode(self, remarks: list[str], rng: Any) -> None:
        """Begin an attempt; `remarks` are those of the attempts before it, oldest first."""


class Environment:
    """One task, played in text. Subclass it, or bring any object with these methods.

    Promises:
        reset(seed):   the seed alone decides the task: same seed, same first observation, same responses to the
                       same actions, in every process. Draw from a generator built inside `reset`.
        restart():     the same task from its initial state. Override only if resetting by seed is slow.
        parse_action:  pure; never raises; None for a missing, malformed or ambiguous answer.
        step(action):  `info["success"]` says whether the task is solved. Calling it after the end raises.

    Optional `info` keys: `admissible_actions` (list of str, may be shown to the model), `invalid` (True for a move the
    game refuses and wants penalised), `draw` (True for a drawn game), `opponent` (str) and `seat` (int): the role, the
    same throughout a trial.
    """

    wording: Wording = Wording()
    seed: int | None = None
    tiny_model: str | None = None
    """Name of the shipped tiny model that knows this environment, if there is one."""

    def describe(self) -> str:
        """Return rules and answer format: constant for one configuration, no hidden information."""
        return ""

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Start the task that `seed` decides; return (observation, info)."""
        raise NotImplementedError(f"{type(self).__name__} must define reset(self, *, seed).")

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Return to the initial state of the same task; return (observation, info)."""
        if self.seed is None:
            raise RuntimeError(f"{type(self).__name__}.restart() needs `self.seed`, set by reset(seed=...).")
        return self.reset(seed=self.seed)

    def parse_action(self, text: str) -> Any | None:
        """Return the action that a response means, or None. Default: the text inside the last <action> pair.

        Args:
            text: what the model finally says; thoughts are left out.
        """
        return last_tag(text, "action")

    def step(self, action: Any) -> StepResult | tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one action."""
        raise NotImplementedError(f"{type(self).__name__} must define step(self, action).")

    def player(self) -> Player | None:
        """Return a scripted player, or None."""
        return None

    def players(self) -> tuple[str, ...]:
        """Return the names of the seats: of the agent alone, where nobody else plays.

        Games for several (`envs/games`) name theirs, and tell whose turn it is, what each sees and what it may do.
        """
        return ("agent",)

    def num_tasks(self, split: str) -> int | None:
        """Return how many different tasks a split has: "train", "validation" or "test". None: there is no bound.

        An evaluation plays no more tasks than that, since a task that is played twice counts twice and makes the
        intervals too narrow. The split's first so many seeds must each give another task; a number that grows by one
        from seed to seed, taken modulo the tasks, does.
        """
        return None

    def close(self) -> None:
        """Free what the environment holds. Default: nothing."""


MakeEnv = Callable[[], Environment]
"""Builds one environment object; called once per trial."""
