"""Monte Carlo tree search for two-player games in which nothing is hidden.

Source: UCT (Kocsis and Szepesvári 2006) with proven results carried up the tree (MCTS-Solver, Winands et al. 2008).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from random import Random

from metarl_agents.envs.games.contract import Decision, Game, MixedOpponent, State
from metarl_agents.errors import ConfigError


class SearchOpponent(MixedOpponent):
    """Plays what so many simulations from the current state recommend.

    The move is a function of (seed of the task, state), so a replayed play meets the same moves, and it is searched for
    once: found moves are remembered by every game of the process.

    Args:
        game: the rules; with perfect information.
        simulations: how many random plays a move may cost.
        exploration: the constant of UCT.
        name: its role; "mcts_<simulations>" by default.
    """

    def __init__(self, game: Game, simulations: int = 100, exploration: float = 1.4, name: str | None = None):
        if simulations < 1:
            raise ConfigError(f"`simulations` is {simulations}, but a search needs at least 1. Raise it.")
        if not game.perfect_information or len(game.players) != 2:
            raise ConfigError("Tree search needs a game for two in which nothing is hidden. Choose another opponent.")
        self.name = name or f"mcts_{simulations}"
        self.simulations = simulations
        self._game, self._exploration = game, exploration

    def probabilities(self, decision: Decision) -> Mapping[str, float]:
        """Return the move that the search recommends, with certainty."""
        return {searched(self._game, decision.information, decision.seed, self.simulations, self._exploration): 1.0}


@lru_cache(maxsize=200_000)
def searched(game: Game, state: State, seed: int, simulations: int, exploration: float) -> str:
    """Return the action that a search recommends: proven best, else most visited, else highest average.

    Args:
        game: the rules; with perfect information, for two.
        state: where to move; not over.
        seed: decides the search's chance, together with the state.
        simulations: how many random plays.
        exploration: the constant of UCT.
    """
    rng = Random(f"search/{seed}/{state}")
    root = _Node(None)
    root.open(game, state)
    for _ in range(simulations):
        if root.proven is not None:
            break
        _simulate(game, root, state, exploration, rng)
    player = game.current_player(state)
    best = max(root.children.items(), key=lambda child: child[1].rank(player))
    return best[0]


class _Node:
    """A position in the tree. Values are the first seat's payoffs; the second's are their opposites."""

    __slots__ = ("children", "player", "proven", "total", "visits")

    def __init__(self, player: int | None):
        self.player = player
        self.visits, self.total = 0, 0.0
        self.children: dict[str, _Node] = {}
        self.proven: float | None = None
        """The value under best play, once it is certain."""

    def open(self, game: Game, state: State) -> None:
        """Add a child for each action; one that ends the game is proven at once."""
        self.player = game.current_player(state)
        for action in game.legal_actions(state):
            child = self.children[action] = _Node(None)
            after = game.play(state, action)
            if game.current_player(after) is None:
                child.proven = game.payoffs(after)[0]
        self.conclude()

    def conclude(self) -> None:
        """Prove this node from its children: all are proven, or one is a win."""
        sign = 1 if self.player == 0 else -1
        known = [sign * child.proven for child in self.children.values() if child.proven is not None]
        if known and (max(known) > 0 or len(known) == len(self.children)):
            self.proven = sign * max(known)

    def rank(self, player: int | None) -> tuple[float, int, float]:
        """Return what the mover at the root prefers by: proven win or loss, visits, average."""
        sign = 1 if player == 0 else -1
        mean = sign * self.total / self.visits if self.visits else -math.inf
        return (sign * self.proven if self.proven is not None else 0.0, self.visits, mean)

    def next(self, exploration: float, rng: Random) -> tuple[str, _Node]:
        """Choose the child to look at: one never visited, at random, else by upper confidence bound."""
        fresh = [item for item in self.children.items() if not item[1].visits and item[1].proven is None]
        if fresh:
            return fresh[int(rng.random() * len(fresh))]
        sign, log = (1 if self.player == 0 else -1), math.log(max(self.visits, 1))

        def bound(item: tuple[str, _Node]) -> float:
            child = item[1]
            if child.proven is not None:
                return sign * child.proven
            return sign * child.total / child.visits + exploration * math.sqrt(log / child.visits)

        return max(self.children.items(), key=bound)


def _simulate(game: Game, root: _Node, state: State, exploration: float, rng: Random) -> None:
    """Walk down the tree, grow it by one node, play on at random from there, and carry the result up."""
    path, node = [root], root
    while node.children and node.proven is None:
        action, node = node.next(exploration, rng)
        state = game.play(state, action)
        path.append(node)
    if node.proven is None:
        node.open(game, state)
    value = node.proven if node.proven is not None else _random_play(game, state, rng)
    for node in reversed(path):
        node.visits += 1
        node.total += value
        if node.proven is None and node.children:
            node.conclude()


def _random_play(game: Game, state: State, rng: Random) -> float:
    """Return the first seat's payoff of a play at random from here."""
    while game.current_player(state) is not None:
        actions = game.legal_actions(state)
        state = game.play(state, actions[int(rng.random() * len(actions))])
    return game.payoffs(state)[0]
