"""Ratings of players from the games they played against each other: Elo's scale, by maximum likelihood.

What lives here: the Bradley-Terry fit and its intervals, on NumPy alone. What does not: which games are counted
(`training/population.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metarl_agents.errors import ConfigError

SCALE = 400 / math.log(10)
"""Elo points of one unit of log-odds: 400 points are odds of 10 to 1."""
CENTRE = 1000.0
_PRIOR_GAMES = 1.0
_STEPS = 100


class Record(NamedTuple):
    """What two players' games came to, seen by the first. Counts may be fractions: see `elo_ratings`."""

    first: str
    second: str
    wins: float
    draws: float
    losses: float


class Rating(NamedTuple):
    """How strong a player is."""

    name: str
    rating: float
    low: float
    high: float
    games: float


def elo_ratings(
    records: Sequence[Record], *, confidence: float = 0.95, resamples: int = 500, seed: int = 0
) -> list[Rating]:
    """Rate players by their games.

        P(a beats b) = 1 / (1 + 10^((R_b - R_a) / 400)),  a draw counting as half a win

    The likelihood's maximum, with one drawn game of each player against a phantom at 1000 added: it keeps players
    finite who never lost or never won, and fixes the scale's origin. Intervals are percentiles of a Bayesian bootstrap:
    each record's shares of wins, draws and losses are drawn from their Dirichlet posterior (1/3 added to each), so
    that ten wins out of ten are not taken for certainty. That moves all samples of extreme players towards the others,
    so they are moved back as far as their median lies from the rating.

    Args:
        records: results; those of the same two players are added up. Count dependent games (the trials of one
            group) as one game in all, in fractions, lest the intervals be too narrow.
        confidence: coverage of the intervals.
        resamples: bootstrap samples.
        seed: of the resampling; the same seed gives the same intervals.

    Returns:
        A rating for each player, strongest first.

    Raises:
        ConfigError: a count is negative or not finite, a player plays itself, or `confidence` or `resamples` is odd.

    Source: Bradley and Terry, Biometrika 39 (1952); Elo, "The Rating of Chessplayers" (1978); Rubin, "The Bayesian
    bootstrap", Ann. Statist. 9 (1981).

    >>> [(r.name, round(r.rating)) for r in elo_ratings([Record("a", "b", 2, 0, 0), Record("b", "c", 1, 0, 1)])]
    [('a', 1209), ('c', 923), ('b', 885)]
    """
    _check(records, confidence, resamples)
    records = [record for record in _added_up(records) if record.wins + record.draws + record.losses > 0]
    names = sorted({name for record in records for name in (record.first, record.second)})
    if not names:
        return []
    place = {name: index for index, name in enumerate(names)}
    pairs = np.array([(place[record.first], place[record.second]) for record in records])
    counts = np.array([record[2:] for record in records], dtype=float)  # (records, 3)
    games = counts.sum(axis=1)
    strengths = _fit(pairs, games, counts @ (1.0, 0.5, 0.0), len(names))
    generator = np.random.default_rng(seed)
    samples = np.empty((resamples, len(names)))
    for row in range(resamples):
        shares = generator.standard_gamma(counts + 1 / 3)
        scores = (shares / shares.sum(axis=1, keepdims=True)) @ (1.0, 0.5, 0.0)
        samples[row] = _fit(pairs, games, games * scores, len(names), strengths)
    samples += strengths - np.median(samples, axis=0)
    bounds = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    played = np.bincount(pairs.ravel(), weights=np.repeat(games, 2), minlength=len(names))
    ratings = [
        Rating(name, *(float(CENTRE + SCALE * x) for x in (strengths[i], *bounds[:, i])), float(played[i]))
        for i, name in enumerate(names)
    ]
    return sorted(ratings, key=lambda rating: (-round(rating.rating, 6), rating.name))


def expected_score(rating: float, other: float) -> float:
    """Return what a player of `rating` scores on average against `other`: 1 for a win, half for a draw.

    >>> round(expected_score(1400, 1000), 3)
    0.909
    """
    return 1 / (1 + 10 ** ((other - rating) / 400))


def format_ratings(ratings: Sequence[Rating]) -> str:
    """Return a table, one player a line.

    >>> print(format_ratings([Rating("random", 912.3, 850.0, 980.6, 40.0)]))
    opponent       Elo           95 %  games
    random         912     [850, 981]     40
    """
    width = max([8, *(len(rating.name) for rating in ratings)])
    lines = [f"{'opponent':{width}} {'Elo':>9} {'95 %':>14} {'games':>6}"]
    for name, rating, low, high, games in ratings:
        lines.append(f"{name:{width}} {rating:9.0f} {f'[{low:.0f}, {high:.0f}]':>14} {games:6.0f}")
    return "\n".join(lines)


def _added_up(records: Sequence[Record]) -> list[Record]:
    """Return one record for each two players: what the bootstrap adds to a record is meant for all of their games."""
    sums: dict[tuple[str, str], Record] = {}
    for first, second, wins, draws, losses in records:
        if first > second:
            first, second, wins, losses = second, first, losses, wins
        old = sums.get((first, second), Record(first, second, 0.0, 0.0, 0.0))
        sums[first, second] = Record(first, second, old.wins + wins, old.draws + draws, old.losses + losses)
    return list(sums.values())


def _fit(
    pairs: NDArray[np.int64],
    games: NDArray[np.float64],
    scores: NDArray[np.float64],
    players: int,
    start: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return (players,) strengths in log-odds, by Newton's method; the objective is strictly concave.

    Args:
        pairs: (records, 2) places of the players.
        games: (records,) how many they played.
        scores: (records,) what the first one scored.
        players: how many there are.
        start: where to begin.
    """
    first, second = pairs.T
    strengths = np.zeros(players) if start is None else start.copy()
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(strengths[second] - strengths[first]))
        surplus, weight = scores - games * expected, games * expected * (1 - expected)
        phantom = 1 / (1 + np.exp(-strengths))
        gradient = _PRIOR_GAMES * (0.5 - phantom)
        np.add.at(gradient, first, surplus)
        np.add.at(gradient, second, -surplus)
        curvature = np.diag(_PRIOR_GAMES * phantom * (1 - phantom) + 1e-12)
        for one, other, sign in ((first, first, 1), (second, second, 1), (first, second, -1), (second, first, -1)):
            np.add.at(curvature, (one, other), sign * weight)
        step = np.linalg.solve(curvature, gradient)
        # Far from the maximum the curve is flat, and a whole step would leap over it.
        strengths = strengths + step * min(1.0, 1.0 / max(np.abs(step).max(), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    return strengths


def _check(records: Sequence[Record], confidence: float, resamples: int) -> None:
    for record in records:
        if record.first == record.second:
            raise ConfigError(f"{record.first} is recorded as its own opponent: name the two players differently.")
        if not all(0 <= count < math.inf for count in record[2:]):
            raise ConfigError(f"the record of {record.first} against {record.second} holds {record[2:]}: count from 0.")
    if not 0 < confidence < 1:
        raise ConfigError(f"`confidence` is {confidence}, but must lie between 0 and 1, like 0.95.")
    if resamples < 1:
        raise ConfigError(f"`resamples` is {resamples}, but must be at least 1.")
