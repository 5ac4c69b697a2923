"""What frames an agent's payoff in a game: a player that cannot be exploited, and the best answer to the opponent.

Values come from walking the whole game (`envs/games/exact.py`). What does not live here: what the agent earned, and
the share of the frame that this is (`games.py`). Read first: `exact_values`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from metarl_agents.config import TrialConfig
from metarl_agents.envs.factory import environment_factory
from metarl_agents.envs.games import Decision, Game, GameEnvironment, MixedOpponent, Opponent, Policy, SearchOpponent
from metarl_agents.envs.games.exact import best_response, deal_ceiling, policy_values
from metarl_agents.errors import ConfigError

Role = tuple[str, int]
"""(opponent's name, the agent's seat)."""
_SAFE = ("equilibrium", "perfect")
"""Opponents' names under which games offer a player that cannot be exploited."""
_SEARCH_SEEDS = 4
_LARGEST_WALK = 300_000


class Exact(NamedTuple):
    """What the two ways of playing that frame the agent's earn on average against one opponent, in one seat."""

    floor: float
    """Of a player that ignores the opponent and cannot be exploited."""
    ceiling: float
    """Of the best answer."""

    @property
    def gap(self) -> float:
        """How much there is to exploit."""
        return self.ceiling - self.floor


def facing(env_kwargs: Mapping[str, Any], opponents: Sequence[str | Opponent]) -> dict[str, Any]:
    """Return the keywords of a game with other opponents, each met equally often.

    >>> facing({"seat": "first", "opponent": "random"}, ["cfr"])
    {'seat': 'first', 'opponents': ['cfr']}
    """
    kept = {name: value for name, value in env_kwargs.items() if name not in ("opponent", "opponents", "weights")}
    return {**kept, "opponents": list(opponents)}


class _TooLarge(Exception):
    """A game's tree has more decisions than can be walked in reasonable time."""


def role_values(config: TrialConfig, roles: Iterable[Role]) -> dict[Role, Exact]:
    """Return floor and ceiling of each role, as far as they can be told.

    The floor is the game's own `equilibrium` or `perfect` player. Roles are left out whose opponent cannot tell how
    likely its actions are (a model, a human), or whose game is too large to be walked.

    Args:
        config: trial settings with the opponents that were met.
        roles: who was met in which seat.
    """
    env = environment_factory(config)()
    safe = safe_player(config)
    if not isinstance(env, GameEnvironment) or safe is None:
        return {}
    known = {opponent.name: opponent for opponent in env.seating.opponents}
    found = {role: exact_values(env, known[role[0]], role[1], safe) for role in sorted(set(roles)) if role[0] in known}
    return {role: value for role, value in found.items() if value is not None}


def safe_player(config: TrialConfig) -> MixedOpponent | None:
    """Return the game's player that cannot be exploited, or None where it has none."""
    for name in _SAFE:
        try:
            env = environment_factory(replace(config, env_kwargs=facing(config.env_kwargs, [name])))()
        except ConfigError:
            continue
        player = env.seating.opponents[0]
        if isinstance(player, MixedOpponent):
            return player
    return None


def exact_values(env: GameEnvironment, opponent: Opponent, seat: int, safe: MixedOpponent) -> Exact | None:
    """Return floor and ceiling against one opponent, by walking the game.

    With `redraw_deal` the ceiling is the best answer of a player who knows the opponent. Where each episode replays one
    deal, memory can teach more, and the ceiling is a player who knows the deal as well. Neither knows the dice of an
    opponent that draws, which a replay repeats: there a share above 1 is possible. A search is another player in every
    task; it is averaged over a few seeds, each of them known to its ceiling.

    Args:
        env: the game; says whether deals are replayed.
        opponent: who is answered.
        seat: the agent's.
        safe: whose payoff is the floor.

    Returns:
        The values, or None where the opponent does not tell its probabilities or the game is too large.
    """
    if not isinstance(opponent, MixedOpponent):
        return None
    answer = _redrawn if env.redraw_deal else deal_ceiling
    seeds = range(_SEARCH_SEEDS if isinstance(opponent, SearchOpponent) else 1)
    policy = _limited(opponent.probabilities)
    policies = [policy] * len(env.game.players)
    policies[seat] = safe.probabilities
    try:
        floors = [policy_values(env.game, policies, seed=seed)[seat] for seed in seeds]
        ceilings = [answer(env.game, policy, seat, seed=seed) for seed in seeds]
    except _TooLarge:
        return None
    return Exact(_mean(floors), _mean(ceilings))


def _mean(values: Sequence[float]) -> float:
    # Sums of fractions miss a whole number by a few bits, and -0.0 would be printed with its sign.
    return round(sum(values) / len(values), 9) + 0.0


def _redrawn(game: Game, policy: Policy, seat: int, *, seed: int) -> float:
    return best_response(game, policy, seat, seed=seed).value


def _limited(policy: Policy) -> Policy:
    """Let a policy decide so often and no oftener."""
    asked = 0

    def decide(decision: Decision) -> Mapping[str, float]:
        nonlocal asked
        asked += 1
        if asked > _LARGEST_WALK:
            raise _TooLarge
        return policy(decision)

    return decide


def least_payoff(game: Game, seat: int) -> float | None:
    """Return the smallest payoff a seat can end a play with: what an unfinished play counts; None if too large."""
    pending = [state for _, state in game.deals()]
    seen, least = set(pending), float("inf")
    while pending:
        state = pending.pop()
        if game.current_player(state) is None:
            least = min(least, game.payoffs(state)[seat])
            continue
        fresh = {game.play(state, action) for action in game.legal_actions(state)} - seen
        if len(seen) > _LARGEST_WALK:
            return None
        seen |= fresh
        pending += fresh
    return least
