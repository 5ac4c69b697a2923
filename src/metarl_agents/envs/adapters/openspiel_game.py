"""The rules of a game of OpenSpiel for two, as a `Game`.

What lives here: states as histories of action numbers, turns, chance, what a seat may know. What does not: loading
with its refusals (`openspiel_loading.py`), texts (`openspiel_wording.py`), exact play (`openspiel_exact.py`). Read
first: `OpenSpielGame`, then `_Rules.settled`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from random import Random
from typing import Any, NamedTuple

from metarl_agents.envs.adapters import need
from metarl_agents.envs.games.contract import Game, choose
from metarl_agents.envs.games.exact import TooLarge

SMALL = 10_000
"""A game with more histories than this, chance included, is not walked."""
_KEPT = 20_000
"""Positions that a process keeps; then it begins anew, for each can be built again from its history."""


class Play(NamedTuple):
    """A state: what has been done since the start, and where later chance comes from."""

    history: tuple[int, ...] = ()
    """Action numbers as OpenSpiel's `history()` lists them, chance included. Of two who choose at the same time the
    first seat's choice comes first; where it stands alone, it is pending."""
    chance: int = 0
    """Decides chance after the start; 0 in games that have none."""


@dataclass(frozen=True)
class OpenSpielGame(Game):
    """One game with its parameters. Equal names are equal games; nothing but the name goes to another process.

    Chance at the start is a deal. Later chance follows from a number that belongs to the deal: the k-th event of a play
    draws the same share of its outcomes in each replay, however the players came there. No seat knows that number.
    """

    spec: str
    """As `pyspiel.load_game` takes it and `str(game)` gives it, for example "leduc_poker(players=2)"."""

    @property
    def rules(self) -> _Rules:
        """The game's positions, shared by all its copies in this process."""
        return _rules(self.spec)

    @property
    def perfect_information(self) -> bool:
        """Whether nothing is hidden: no choices at the same time, no chance."""
        return self.rules.is_open

    def deals(self) -> Sequence[tuple[float, Play]]:
        """Return every outcome of chance at the start.

        Raises:
            TooLarge: there are too many, or chance goes on later, so that a deal holds a number out of 2**64.
        """
        if self.rules.draws_later:
            raise TooLarge
        found: list[tuple[float, Play]] = []
        pending: list[tuple[float, tuple[int, ...]]] = [(1.0, ())]
        while pending:
            share, history = pending.pop()
            outcomes = self.rules.at(history).outcomes
            if not outcomes:
                found.append((share, Play(history)))
            pending += [(share * chance, (*history, number)) for chance, number in reversed(outcomes)]
        return found

    def deal(self, rng: Random) -> Play:
        """Draw what chance decides at the start, and the number from which later chance follows."""
        history: tuple[int, ...] = ()
        while outcomes := self.rules.at(history).outcomes:
            history = (*history, choose(outcomes, rng))
        return Play(history, rng.getrandbits(64) if self.rules.draws_later else 0)

    def current_player(self, state: Play) -> int | None:
        """Return 0 or 1, or None where the game is over; who choose at the same time are asked one after the other."""
        return self.rules.at(state.history).player

    def legal_actions(self, state: Play) -> tuple[str, ...]:
        """Return the actions as OpenSpiel names them."""
        return tuple(self.rules.at(state.history).actions)

    def play(self, state: Play, action: str) -> Play:
        """Return the state after an action and all chance that follows it."""
        number = self.rules.at(state.history).actions[action]
        return Play(self.rules.settled((*state.history, number), state.chance), state.chance)

    def payoffs(self, state: Play) -> tuple[float, ...]:
        """Return what each seat has earned; nothing before the end, unless the game pays on the way."""
        return self.rules.at(state.history).payoffs

    def information(self, state: Play, seat: int) -> Hashable:
        """Return what a seat knows: all if nothing is hidden, else what it is told and its own pending choice."""
        if self.perfect_information:
            return state
        position = self.rules.at(state.history)
        own = state.history[-1] if position.is_pending and seat == 0 else None
        return self.rules.known(state.history, seat), own

    def least_payoff(self, seat: int) -> float:
        """Return the least that OpenSpiel says anybody can earn."""
        return self.rules.utilities[0]


@lru_cache(maxsize=64)
def _rules(spec: str) -> _Rules:
    return _Rules(spec)


class _Rules:
    """A game of OpenSpiel with the positions that were met so far."""

    def __init__(self, spec: str) -> None:
        pyspiel = need("openspiel", "pyspiel", "open-spiel")
        self.game, self._refuses = pyspiel.load_game(spec), pyspiel.SpielError
        kind = self.game.get_type()
        kinds = pyspiel.GameType
        self.is_simultaneous = kind.dynamics == kinds.Dynamics.SIMULTANEOUS
        self.has_chance = kind.chance_mode != kinds.ChanceMode.DETERMINISTIC
        self.is_open = (
            kind.information == kinds.Information.PERFECT_INFORMATION
            and not self.is_simultaneous
            and not self.has_chance
        )
        self.is_zero_sum = kind.utility == kinds.Utility.ZERO_SUM
        self.pays_on_the_way = kind.reward_model == kinds.RewardModel.REWARDS
        self.title = kind.long_name
        self.utilities = (float(self.game.min_utility()), float(self.game.max_utility()))
        self.remembers = bool(kind.provides_information_state_string)
        """Whether OpenSpiel tells all that a seat knows in one text."""
        self.observes = bool(kind.provides_observation_string)
        self._positions: dict[tuple[int, ...], _Position] = {}

    def at(self, history: tuple[int, ...]) -> _Position:
        """Return the position after these action numbers."""
        found = self._positions.get(history)
        if found is None:
            before = self._positions.get(history[:-1]) if history else None
            found = _Position(self, self._state(history)) if before is None else before.after(history[-1])
            if len(self._positions) >= _KEPT:
                self._positions.clear()
            self._positions[history] = found
        return found

    def settled(self, history: tuple[int, ...], chance: int) -> tuple[int, ...]:
        """Return the history with all chance drawn that comes next."""
        while outcomes := self.at(history).outcomes:
            # By its place among the events of chance, not by the length of the history: the same card lies on top of
            # the pack, however long was bet before it is turned.
            event = self.at(history).drawn
            history = (*history, choose(outcomes, Random(f"chance/{chance}/{event}")))
        return history

    def known(self, history: tuple[int, ...], seat: int) -> Hashable:
        """Return what a seat knows that remembers all it has seen and done."""
        if self.remembers:
            return self.at(history).state.information_state_string(seat)
        seen: list[Hashable] = []
        for end in range(len(history)):
            position = self.at(history[:end])
            if position.player == seat:
                seen.append((position.state.observation_string(seat), history[end]))
        return (*seen, self.at(history).state.observation_string(seat))

    def text(self, history: tuple[int, ...], seat: int) -> str:
        """Return OpenSpiel's text of what a seat sees.

        Where things are hidden it is the one that leaves nothing out which the seat has seen before; where nothing is,
        or that text is wanting, it is the one that shows the position.
        """
        state = self.at(history).state
        if self.observes and (self.is_open or not self.remembers):
            return state.observation_string(seat)
        return state.information_state_string(seat)

    def names(self, seat: int) -> list[str]:
        """Return what each action number stands for; nothing where that depends on the position."""
        try:
            return [self.game.action_to_string(seat, number) for number in range(self.game.num_distinct_actions())]
        except self._refuses:
            return []

    @cached_property
    def size(self) -> int | None:
        """How many histories the game has, or None where they are more than `SMALL`."""
        return None if self._walk is None else self._walk[0]

    @cached_property
    def draws_later(self) -> bool:
        """Whether chance comes after a decision; taken for granted where the game is too large to find out."""
        return self.has_chance and (self._walk is None or self._walk[1])

    @cached_property
    def _walk(self) -> tuple[int, bool] | None:
        """(how many histories, whether chance comes after a decision), or None where there are too many."""
        count, later = 1, False
        # Breadth first, since states of long plays take long to copy, and large games are told by their short ones.
        pending = deque([(self.game.new_initial_state(), False)])
        while pending:
            state, decided = pending.popleft()
            chance = state.is_chance_node()
            later = later or (chance and decided)
            for after in () if state.is_terminal() else _children(state):
                count += 1
                if count > SMALL:
                    return None
                pending.append((after, decided or not chance))
        return count, later

    def _state(self, history: tuple[int, ...]) -> tuple[Any, int | None, int]:
        """Return (OpenSpiel's state, pending choice, events of chance so far)."""
        state, pending, drawn = self.game.new_initial_state(), None, 0
        for number in history:
            drawn += state.is_chance_node()
            pending = _advanced(state, pending, number)
        return state, pending, drawn


def _advanced(state: Any, pending: int | None, number: int) -> int | None:
    """Apply one number of a history to a state, in place; return it instead where it waits for the other's choice."""
    if not state.is_simultaneous_node():
        state.apply_action(number)
        return None
    if pending is None:
        return number
    state.apply_actions([pending, number])
    return None


def _children(state: Any) -> Iterator[Any]:
    if not state.is_simultaneous_node():
        yield from map(state.child, state.legal_actions())
        return
    for choices in product(state.legal_actions(0), state.legal_actions(1)):
        after = state.clone()
        after.apply_actions(list(choices))
        yield after


class _Position:
    """A position of a game, as OpenSpiel holds it; never changed."""

    def __init__(self, rules: _Rules, told: tuple[Any, int | None, int]) -> None:
        self._rules = rules
        self.state, self._pending, self.drawn = told
        self.is_pending = self._pending is not None

    def after(self, number: int) -> _Position:
        """Return the position that follows."""
        if self.state.is_simultaneous_node() and self._pending is None:
            return _Position(self._rules, (self.state, number, self.drawn))
        state = self.state.clone()
        drawn = self.drawn + state.is_chance_node()
        return _Position(self._rules, (state, _advanced(state, self._pending, number), drawn))

    @cached_property
    def player(self) -> int | None:
        """The seat whose turn it is; None at the end, and where chance is to draw."""
        if self.state.is_terminal() or self.state.is_chance_node():
            return None
        return int(self.is_pending) if self.state.is_simultaneous_node() else self.state.current_player()

    @cached_property
    def outcomes(self) -> list[tuple[float, int]]:
        """(probability, number) of each outcome where chance is to draw, else nothing."""
        if not self.state.is_chance_node():
            return []
        return [(chance, number) for number, chance in self.state.chance_outcomes()]

    @cached_property
    def actions(self) -> dict[str, int]:
        """Name -> number of each legal action of the seat whose turn it is."""
        seat, named = self.player, {}
        for number in self.state.legal_actions(seat) if seat is not None else ():
            name = " ".join(self.state.action_to_string(seat, number).split()) or str(number)
            named[f"{name} [{number}]" if name in named else name] = number
        return named

    @cached_property
    def payoffs(self) -> tuple[float, ...]:
        """What each seat has earned so far."""
        if not (self._rules.pays_on_the_way or self.state.is_terminal()):
            return (0.0, 0.0)
        # Added to zero, since OpenSpiel also says -0.0; rounded, for sums of tenths are no tenths.
        earned = [round(float(value), 9) + 0.0 for value in self.state.returns()]
        return tuple(value if math.isfinite(value) else 0.0 for value in earned)
