"""The nouns of the method: Response, StepResult, Turn, Episode, Trial.

What lives here: plain data, no behaviour beyond looking at itself. What does not: how trials are played
(`rollout/`), how they are credited (`advantages/`). Letters used everywhere:

    G trials per group    N episodes per trial (max)    T turns of one trial, reflections included
    B rows: all turns of all trials in the batch        P prompt tokens    R response tokens    L padded length
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple


class Phase(Enum):
    """What a turn is for."""

    PLAY = "play"
    REFLECT = "reflect"


class Outcome(Enum):
    """How an episode ended (a closed set)."""

    SUCCESS = "success"
    FAILURE = "failure"
    DRAW = "draw"
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_CONTEXT = "out_of_context"
    CRASHED = "crashed"


class MemoryMode(Enum):
    """What inter-episode memory holds (LaMer, arXiv 2512.16848, memory ablation)."""

    REFLECTION = "reflection"
    TRAJECTORY = "trajectory"
    BOTH = "both"
    NONE = "none"


class StepResult(NamedTuple):
    """What an environment answers to one action; equal to Gymnasium's 5-tuple."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass(frozen=True)
class Response:
    """One sampled answer of the policy."""

    ids: tuple[int, ...]
    """(R,) exactly what was sampled, the end token included if it was sampled."""
    text: str
    """What is finally said, after any thought: `ids` decoded once, control tokens removed. All that is ever parsed."""
    truncated: bool = False
    """True where the length limit stopped it, not the model."""
    logprobs: tuple[float, ...] = ()
    """(R,) log-probability of each id at sampling time, temperature applied; empty if not recorded."""
    written: str = ""
    """All that was sampled, thoughts and their markings included, for records and people; `text` where not given."""

    def __post_init__(self) -> None:
        if not self.written:
            object.__setattr__(self, "written", self.text)


@dataclass(frozen=True)
class Turn:
    """One prompt, its response, and what came of it. The unit of training (a "row")."""

    phase: Phase
    observation: str
    """Raw observation acted on (the anchor of GiGPO); for a reflection, empty."""
    prompt_ids: tuple[int, ...]
    """(P,) exactly what was read."""
    response: Response
    action: Any | None
    """What the response meant: a game action, or the remark's text; None = unreadable, never shown to the game."""
    shown_action: str
    """The action as history and memory print it."""
    reward: float
    """From the environment, less penalties that enter the returns."""
    row_penalty: float = 0.0
    """Penalty subtracted from this row's own advantage only (`penalty_scope: row`)."""
    invalid: bool = False
    """True where the invalid-action penalty was due."""
    prompt_shortened: bool = False
    """True where history was dropped so that the prompt fits."""


class LastSeen(str):
    """The observation in which the last action was chosen, where what followed that action is not known (yet).

    Play by hand leaves it as an episode's `final_observation` until the next observation is given.
    """


@dataclass
class Episode:
    """One attempt at the task, from its initial state."""

    initial_observation: str
    turns: list[Turn] = field(default_factory=list)
    """Play turns in time order."""
    final_observation: str = ""
    """What the agent saw last; equals `initial_observation` while nothing has been played."""
    outcome: Outcome | None = None
    """None while the episode is being played."""
    reflection: Turn | None = None
    """Written *about this episode*, read by the ones after it."""
    too_long_prompt: int = 0
    """Tokens of the shortest prompt of a play turn that exceeded the limit, which ended this episode; else 0."""
    too_long_reflection: int = 0
    """Tokens of the shortest reflection prompt that exceeded the limit, so that nothing was written; else 0."""

    @property
    def success(self) -> bool:
        """Whether the task was solved in this episode."""
        return self.outcome is Outcome.SUCCESS

    @property
    def reward(self) -> float:
        """Undiscounted sum of the play turns' rewards, R_n of the paper."""
        return sum(turn.reward for turn in self.turns)


@dataclass
class Trial:
    """Up to N episodes on one task, with memory between them."""

    seed: int
    group: int
    """Same group means same task; unique within one batch of one rank."""
    episodes: list[Episode] = field(default_factory=list)
    opponent: str | None = None
    """In games: the opponent's name, the same for a whole group."""
    seat: int = 0
    """In games: the agent's seat, the same for a whole group."""
    error: str | None = None
    """Why the trial crashed, or None."""

    @property
    def crashed(self) -> bool:
        """Whether an environment failure ended this trial."""
        return self.error is not None

    def rows(self) -> Iterator[tuple[int, int, Turn]]:
        """Yield (episode index, turn index, turn) in time order: play 0, reflection 0, play 1, ..."""
        for n, episode in enumerate(self.episodes):
            yield from ((n, t, turn) for t, turn in enumerate(episode.turns))
            if episode.reflection is not None:
                yield n, len(episode.turns), episode.reflection

    def pass_at(self, k: int) -> bool:
        """Whether the task was solved within the first k episodes (sequential pass@k, k >= 1)."""
        return any(episode.success for episode in self.episodes[:k])
