"""Exact evaluation by walking the whole game: what policies earn, the best answer to one, what the deal is worth.

For games small enough to be walked (Tic-Tac-Toe, Kuhn poker). Values are payoffs, not rewards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from metarl_agents.envs.games.contract import Decision, Game, Policy, State


class TooLarge(Exception):
    """A game is too large for what was asked of it to be told in reasonable time."""


Deals = Sequence[tuple[float, State]]
Worth = Callable[[float], float]
"""What a payoff at the end is worth; a share of wins is counted by `lambda payoff: payoff > 0`."""


class BestResponse(NamedTuple):
    """The best answer to a policy."""

    value: float
    """What it earns on average."""
    choices: dict[Hashable, str]
    """information -> action, wherever the policy lets one come."""


def policy_values(game: Game, policies: Sequence[Policy], *, seed: int = 0) -> tuple[float, ...]:
    """Return what each seat earns on average, one policy per seat.

    Args:
        game: the rules.
        policies: one per seat.
        seed: `Decision.seed` of every decision, for opponents that search.
    """
    known: dict[State, tuple[float, ...]] = {}

    def value(state: State) -> tuple[float, ...]:
        if state not in known:
            seat = game.current_player(state)
            if seat is None:
                known[state] = game.payoffs(state)
            else:
                row = policies[seat](_decision(game, state, seat, seed)).items()
                known[state] = _mean([(share, value(game.play(state, action))) for action, share in row if share > 0])
        return known[state]

    return _mean([(share, value(state)) for share, state in game.deals()])


def best_response(
    game: Game, opponent: Policy, seat: int, *, deals: Deals | None = None, worth: Worth = float, seed: int = 0
) -> BestResponse:
    """Return the best answer to a policy that plays all other seats.

    States that the answering seat cannot tell apart are answered together; perfect recall is assumed.

    Args:
        game: the rules.
        opponent: plays all seats but one.
        seat: that one.
        deals: (probability, initial state) that can come; None for the game's own.
        worth: what a payoff at the end is worth.
        seed: `Decision.seed` of every decision, for opponents that search.

    Ties go to the action that `legal_actions` lists first.
    """
    walk = _Walk(game, opponent, seat, worth, seed)
    start = game.deals() if deals is None else deals
    return BestResponse(walk.value([(state, share) for share, state in start]), walk.choices)


def deal_ceiling(game: Game, opponent: Policy, seat: int, *, worth: Worth = float, seed: int = 0) -> float:
    """Return what the best answer earns on average if it knows the deal, not only the policy: no memory teaches more.

    It does not know the opponent's dice, which a replayed trial can teach as well where the opponent draws.
    """
    return sum(
        share * best_response(game, opponent, seat, deals=[(1.0, state)], worth=worth, seed=seed).value
        for share, state in game.deals()
    )


def minimax(game: Game, state: State, known: dict[State, float] | None = None) -> float:
    """Return the first seat's payoff under best play of both: a zero-sum game for two in which nothing is hidden.

    Args:
        game: the rules.
        state: where play begins.
        known: values found so far, which are used and added to.
    """
    known = {} if known is None else known
    if state not in known:
        seat = game.current_player(state)
        if seat is None:
            known[state] = game.payoffs(state)[0]
        else:
            after = [minimax(game, game.play(state, action), known) for action in game.legal_actions(state)]
            known[state] = max(after) if seat == 0 else min(after)
    return known[state]


@dataclass
class _Walk:
    """One search for a best answer."""

    game: Game
    opponent: Policy
    seat: int
    worth: Worth
    seed: int
    choices: dict[Hashable, str] = field(default_factory=dict)
    known: dict[State, float] = field(default_factory=dict)
    """Values of states that the answering seat recognises for certain: they do not depend on how they came about."""

    def value(self, states: list[tuple[State, float]]) -> float:
        """Return the sum over states of (weight x value); all of them look alike to the answering seat so far."""
        ended, decisions = self._until_own_turn(states)
        return ended + sum(self._decide(information, members) for information, members in decisions.items())

    def _until_own_turn(
        self, pending: list[tuple[State, float]]
    ) -> tuple[float, dict[Hashable, list[tuple[State, float]]]]:
        """Let the others move: return the worth of plays that ended, and the states to decide in, by information."""
        pending, ended = list(pending), 0.0
        decisions: dict[Hashable, list[tuple[State, float]]] = defaultdict(list)
        while pending:
            state, weight = pending.pop()
            turn = self.game.current_player(state)
            if turn is None:
                ended += weight * self.worth(self.game.payoffs(state)[self.seat])
            elif turn == self.seat:
                decisions[self.game.information(state, self.seat)].append((state, weight))
            else:
                row = self.opponent(_decision(self.game, state, turn, self.seed)).items()
                pending += [(self.game.play(state, action), weight * share) for action, share in row if share > 0]
        return ended, decisions

    def _decide(self, information: Hashable, members: list[tuple[State, float]]) -> float:
        alone = self.game.perfect_information
        total = sum(weight for _, weight in members)
        if alone and members[0][0] in self.known:
            return total * self.known[members[0][0]]
        if alone:
            members = [(members[0][0], total)]
        values = {
            action: self.value([(self.game.play(state, action), weight) for state, weight in members])
            for action in self.game.legal_actions(members[0][0])
        }
        best = max(values, key=lambda action: values[action])
        self.choices[information] = best
        if alone:
            self.known[members[0][0]] = values[best] / total
        return values[best]


def _decision(game: Game, state: State, seat: int, seed: int) -> Decision:
    return Decision(seat, game.information(state, seat), game.legal_actions(state), seed=seed)


def _mean(weighted: list[tuple[float, tuple[float, ...]]]) -> tuple[float, ...]:
    return tuple(sum(share * values[seat] for share, values in weighted) for seat in range(len(weighted[0][1])))
