"""What frames an agent's payoff in a game: a player that cannot be exploited, and the best answer to the opponent.

Values come from the game where it has a way of its own to tell them, or else from walking it whole
(`envs/games/exact.py`). What does not live here: what the agent earned, and
the share of the frame that this is (`games.py`). Read first: `exact_values`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from metarl_agents.config import TrialConfig
from metarl_agents.envs.factory import environment_factory
from metarl_agents.envs.games import Decision, Game, GameEnvironment, MixedOpponent, Opponent, Policy, SearchOpponent
from metarl_agents.envs.games.exact import TooLarge, best_response, deal_ceiling, policy_values
from metarl_agents.errors import ConfigError

Role = tuple[str, int]
"""(opponent's name, the agent's seat)."""
_SAFE = ("equilibrium", "perfect")
"""Opponents' names under which games offer a player that cannot be exploited."""
_SEARCHES = (8, 64)
"""At least and at most so many searches are averaged over, for one opponent in one seat."""
_SIMULATIONS = 6_400
"""Between these bounds, as many as need so many simulations a move together."""
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


def facing(
    env_kwargs: Mapping[str, Any], opponents: Sequence[str | Opponent], weights: Sequence[float] | None = None
) -> dict[str, Any]:
    """Return the keywords of a game with other opponents.

    Args:
        env_kwargs: the keywords so far.
        opponents: who is met instead.
        weights: how often each is met; None for equally often.

    >>> facing({"seat": "first", "opponent": "random"}, ["cfr"])
    {'seat': 'first', 'opponents': ['cfr']}
    """
    kept = {name: value for name, value in env_kwargs.items() if name not in ("opponent", "opponents", "weights")}
    return {**kept, "opponents": list(opponents)} | ({"weights": list(weights)} if weights is not None else {})


class NoFrame(Exception):
    """Floor and ceiling of a role cannot be told; the message says why."""


def role_values(config: TrialConfig, roles: Mapping[Role, Sequence[int]] | Iterable[Role]) -> dict[Role, Exact]:
    """Return floor and ceiling of each role, as far as they can be told: the first part of `role_frames`."""
    return role_frames(config, roles)[0]


def role_frames(
    config: TrialConfig, roles: Mapping[Role, Sequence[int]] | Iterable[Role]
) -> tuple[dict[Role, Exact], dict[Role, str]]:
    """Return floor and ceiling of each role, and, of the roles for which they cannot be told, why not.

    The floor is that of the game's own `equilibrium` or `perfect` player.

    Args:
        config: trial settings with the opponents that were met; one they do not name is a model.
        roles: who was met in which seat; with the seeds of the tasks, where they are known: a search is another player
            in each of them.
    """
    env = environment_factory(config)()
    values: dict[Role, Exact] = {}
    missing: dict[Role, str] = {}
    if not isinstance(env, GameEnvironment):
        return values, missing
    known = {opponent.name: opponent for opponent in env.seating.opponents}
    safe = safe_player(config)
    tasks = roles if isinstance(roles, Mapping) else dict.fromkeys(roles, ())
    for name, seat in sorted(tasks):
        try:
            values[name, seat] = exact_values(env, known.get(name), seat, safe, tasks[name, seat])
        except NoFrame as reason:
            missing[name, seat] = str(reason)
    return values, missing


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


def exact_values(
    env: GameEnvironment,
    opponent: Opponent | None,
    seat: int,
    safe: MixedOpponent | None,
    tasks: Sequence[int] = (),
) -> Exact:
    """Return floor and ceiling against one opponent: as the game tells them, or else by walking it.

    With `redraw_deal` the ceiling is the best answer of a player who knows the opponent. Where each episode replays one
    deal, memory can teach more, and the ceiling is a player who knows the deal as well. Neither knows the dice of an
    opponent that draws, which a replay repeats: there a share above 1 is possible. A search is another player in every
    task; it is averaged over those that these tasks meet, or 8 to 64 of them, each of them known to its ceiling.

    Args:
        env: the game; says whether deals are replayed.
        opponent: who is answered; None for somebody whom the game does not know.
        seat: the agent's.
        safe: whose payoff is the floor.
        tasks: seeds of the tasks in which it is met; none for any.

    Raises:
        NoFrame: they cannot be told.
    """
    if not isinstance(opponent, MixedOpponent):
        raise NoFrame("who plays there does not tell how likely its actions are")
    try:
        told = env.exact_values(opponent, seat)
        if told is not None:
            return Exact(*(_mean([value]) for value in told))
        if safe is None:
            raise NoFrame("the game has no player that is known not to be exploitable")
        return _walked(env, opponent, seat, safe, tasks)
    except TooLarge:
        raise NoFrame("the game is too large to be walked in reasonable time") from None


def _walked(
    env: GameEnvironment, opponent: MixedOpponent, seat: int, safe: MixedOpponent, tasks: Sequence[int]
) -> Exact:
    answer = _redrawn if env.redraw_deal else deal_ceiling
    seeds = [0]
    if isinstance(opponent, SearchOpponent):
        fewest, most = _SEARCHES
        count = min(most, max(fewest, _SIMULATIONS // opponent.simulations))
        seeds = [env.opponent_chance(task) for task in sorted(set(tasks) or range(count))[:count]]
    policy = _limited(opponent.probabilities)
    policies = [policy] * len(env.game.players)
    policies[seat] = safe.probabilities
    floors = [policy_values(env.game, policies, seed=seed)[seat] for seed in seeds]
    ceilings = [answer(env.game, policy, seat, seed=seed) for seed in seeds]
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
            raise TooLarge
        return policy(decision)

    return decide


def least_payoff(game: Game, seat: int) -> float | None:
    """Return the smallest payoff a seat can end a play with: what an unfinished play counts; None if too large.

    The game tells it, or is walked.
    """
    told = game.least_payoff(seat)
    if told is not None:
        return told
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
