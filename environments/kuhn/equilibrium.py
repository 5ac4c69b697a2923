"""Exact play of Kuhn poker: its equilibria in closed form, CFR, best responses as tables.

Source: Kuhn 1950 for the equilibria, one for each α in [0, 1/3]; CFR is Zinkevich et al. 2007.
"""

from __future__ import annotations

from functools import cache

from metarl_agents.environments.kuhn.game import ACTIONS, BET, PASS, Hand, Known, KuhnGame, information_sets
from metarl_agents.envs.games import Decision, Policy, uniform
from metarl_agents.envs.games.exact import best_response
from metarl_agents.errors import ConfigError

Table = dict[Known, dict[str, float]]
"""What is known -> probability of each action."""

VALUE = -1 / 18
"""What the first seat earns on average where both play an equilibrium; the second seat earns the opposite."""
_TREMBLE = 1e-9


def bets(chances: dict[Known, float]) -> Table:
    """Return a table from the probability of betting (to answer a bet is to bet, too)."""
    return {known: {PASS: 1 - chance, BET: chance} for known, chance in chances.items()}


def equilibrium(alpha: float = 1 / 6) -> Table:
    """Return the equilibrium in which the first seat bluffs with the lowest card α of the time, for both seats.

    First seat:   J bets α,                         and never answers a bet;
                  Q never bets,                     and answers a bet α + 1/3 of the time;
                  K bets 3α,                        and always answers.
    Second seat:  J bets 1/3 after a pass,          and never answers;
                  Q never bets after a pass,        and answers 1/3 of the time;
                  K always bets and answers.

    Raises:
        ConfigError: α is not in [0, 1/3].
    """
    if not 0 <= alpha <= 1 / 3:
        raise ConfigError(f"`alpha` is {alpha}, but Kuhn poker has equilibria for 0 to 1/3. Choose one of these.")
    chances = {
        ("J", ()): alpha,
        ("Q", ()): 0.0,
        ("K", ()): 3 * alpha,
        ("J", (PASS, BET)): 0.0,
        ("Q", (PASS, BET)): alpha + 1 / 3,
        ("K", (PASS, BET)): 1.0,
        ("J", (PASS,)): 1 / 3,
        ("Q", (PASS,)): 0.0,
        ("K", (PASS,)): 1.0,
        ("J", (BET,)): 0.0,
        ("Q", (BET,)): 1 / 3,
        ("K", (BET,)): 1.0,
    }
    return bets({Known(*key): chance for key, chance in chances.items()})


def policy_of(table: Table) -> Policy:
    """Return the policy that plays from a table."""
    return lambda decision: table[decision.information]


@cache
def _cfr(iterations: int) -> dict[Known, tuple[float, ...]]:
    """Return the average strategy of so many iterations of counterfactual regret minimisation."""
    sets = [known for seat in (0, 1) for known in information_sets(seat)]
    regrets = {known: [0.0, 0.0] for known in sets}
    totals = {known: [0.0, 0.0] for known in sets}
    game = KuhnGame()

    def walk(state: Hand, reach: tuple[float, float], mixes: dict[Known, list[float]]) -> float:
        """Return the first seat's expected payoff, and add what each action would have been worth to the regrets."""
        seat = game.current_player(state)
        if seat is None:
            return game.payoffs(state)[0]
        known = game.information(state, seat)
        mix, values = mixes[known], []
        for action, share in zip(ACTIONS, mix, strict=True):
            below = (reach[0] * share, reach[1]) if seat == 0 else (reach[0], reach[1] * share)
            values.append(walk(game.play(state, action), below, mixes))
        value = sum(share * worth for share, worth in zip(mix, values, strict=True))
        sign = 1 if seat == 0 else -1
        for number in (0, 1):
            regrets[known][number] += reach[1 - seat] * sign * (values[number] - value)
            totals[known][number] += reach[seat] * mix[number]
        return value

    for _ in range(iterations):
        mixes = {known: _matching(regret) for known, regret in regrets.items()}
        for _, start in game.deals():
            walk(start, (1.0, 1.0), mixes)
    return {known: tuple(_normalised(total)) for known, total in totals.items()}


def cfr(iterations: int = 1000) -> Table:
    """Return the average strategy that counterfactual regret minimisation finds, for both seats.

    Args:
        iterations: at least 1; both players' regrets are updated once in each, over all deals.
    """
    if iterations < 1:
        raise ConfigError(f"`iterations` is {iterations}, but CFR needs at least 1. Raise it.")
    return {known: dict(zip(ACTIONS, mix, strict=True)) for known, mix in _cfr(iterations).items()}


def likeliest(table: Table) -> Table:
    """Return the table that always takes the likeliest action; the first one at a tie."""
    return {known: {max(ACTIONS, key=lambda action: row[action]): 1.0} for known, row in table.items()}


def best_response_table(opponent: Policy) -> Table:
    """Return the best answer to a policy, for both seats.

    Where that policy would never let a decision come, the answer is the best one if it errs ever so rarely.
    """

    def trembling(decision: Decision) -> dict[str, float]:
        row = opponent(decision)
        return {
            action: (1 - _TREMBLE) * row.get(action, 0.0) + _TREMBLE * share
            for action, share in uniform(decision.legal).items()
        }

    choices = [best_response(KuhnGame(), trembling, seat).choices for seat in (0, 1)]
    return {known: {action: 1.0} for chosen in choices for known, action in chosen.items()}


def _matching(regret: list[float]) -> list[float]:
    """Return probabilities in proportion to positive regrets."""
    return _normalised([max(value, 0.0) for value in regret])


def _normalised(weights: list[float]) -> list[float]:
    total = sum(weights)
    return [weight / total for weight in weights] if total > 0 else [1 / len(weights)] * len(weights)
