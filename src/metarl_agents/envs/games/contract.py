"""What a game and a player of it are: `Game` (the rules), `Decision` (what a player knows), `Opponent` (who plays).

A game is written once, as functions over states that never change. `environment.py` seats the agent in it and lets
opponents act in their turns; `search.py` and `exact.py` look ahead in it. No text lives here: how a state is shown is
the environment's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

State = Hashable
"""One position, everything hidden included: hashable, compared by value, never changed in place."""


class Game(ABC):
    """The rules of a game for two or more seats, numbered from 0.

    Moves are taken one at a time. Where players choose at the same time, let them choose one after the other and keep
    `information` silent about choices that are still pending. Make a game a frozen dataclass, so that equal rules are
    equal objects and can be sent to another process.
    """

    players: ClassVar[tuple[str, ...]] = ("first", "second")
    """A name for each seat, in order."""
    perfect_information: ClassVar[bool] = False
    """True where every player always sees the whole state; `information` then returns the state itself."""

    @abstractmethod
    def deals(self) -> Sequence[tuple[float, State]]:
        """Return every initial state with its probability."""

    @abstractmethod
    def current_player(self, state: State) -> int | None:
        """Return the seat whose turn it is, or None where the game is over."""

    @abstractmethod
    def legal_actions(self, state: State) -> tuple[str, ...]:
        """Return the actions of the seat whose turn it is, as the model would name them; never empty before the end."""

    @abstractmethod
    def play(self, state: State, action: str) -> State:
        """Return the state after a legal action of the seat whose turn it is."""

    @abstractmethod
    def payoffs(self, state: State) -> tuple[float, ...]:
        """Return what each seat has earned so far."""

    @abstractmethod
    def information(self, state: State, seat: int) -> Hashable:
        """Return all that a seat knows in this state, and nothing else: equal for states it cannot tell apart."""

    def least_payoff(self, seat: int) -> float | None:
        """Return the least with which a seat can end a play, or None where only walking the game would tell."""
        return None

    def deal(self, rng: Random) -> State:
        """Draw an initial state."""
        return choose(self.deals(), rng)


@dataclass(frozen=True)
class Decision:
    """What the player whose turn it is knows, as data and as text. Nothing hidden from that player is in it."""

    seat: int
    information: Hashable
    """`Game.information` of that seat."""
    legal: tuple[str, ...]
    """The actions to choose among."""
    observation: str = ""
    """The state as that seat sees it: what a language model or a human reads."""
    rules: str = ""
    """Rules and answer format."""
    seed: int = 0
    """Decides the opponent's randomness: the same for all its decisions in a play, and in each replay of the deal."""


class Opponent(ABC):
    """A player that is not the agent: a script, a search, a language model, a human.

    It keeps no memory between decisions: all it may use is the decision and the generator, so that the same task
    always meets the same opponent, whatever other trials do meanwhile.
    """

    name: str
    """Names the role of the trials played against it: baselines compare within one name."""

    @abstractmethod
    def act(self, decision: Decision, rng: Random) -> str:
        """Return a legal action, or a text with one inside <action> </action>, as a language model writes it.

        An answer that is neither is replaced by a random legal action, and counted in `info["opponent_invalid"]`.

        Args:
            decision: what the player knows.
            rng: the only source of chance; a function of the task and of how many moves have been made.
        """


class MixedOpponent(Opponent):
    """An opponent that can tell how likely each of its actions is: it can be evaluated exactly."""

    @abstractmethod
    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return the probability of each legal action it may take; those left out have none."""

    def act(self, decision: Decision, rng: Random) -> str:
        """Draw from `probabilities`."""
        return choose([(share, action) for action, share in self.probabilities(decision).items()], rng)


Policy = Callable[[Decision], Mapping[str, float]]
"""How likely each legal action is: `MixedOpponent.probabilities`, or any function like it."""


def choose(weighted: Sequence[tuple[float, Any]], rng: Random) -> Any:
    """Draw an item by its weight. One number of `rng.random()` is used, whatever is drawn.

    Args:
        weighted: (weight, item); weights are not negative and not all 0, and need not sum to 1.
        rng: the generator.

    >>> choose([(0.0, "a"), (2.0, "b")], Random(0))
    'b'
    """
    left = rng.random() * sum(weight for weight, _ in weighted)
    possible = [(weight, item) for weight, item in weighted if weight > 0]
    for weight, item in possible:
        left -= weight
        if left < 0:
            return item
    return possible[-1][1]  # rounding can leave a hair's breadth


def uniform(actions: Sequence[str]) -> dict[str, float]:
    """Return equal probabilities.

    >>> uniform(("pass", "bet"))
    {'pass': 0.5, 'bet': 0.5}
    """
    return dict.fromkeys(actions, 1 / len(actions))
