"""Elo ratings from games: the maximum of the likelihood, invariances, and intervals that cover the truth."""

import math
import random

import pytest

from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.ratings import CENTRE, SCALE, Record, elo_ratings, expected_score, format_ratings


def points(records, **options):
    return {rating.name: rating.rating for rating in elo_ratings(records, **({"resamples": 10} | options))}


def test_many_games_of_two_players_give_the_difference_of_their_odds():
    found = points([Record("a", "b", 30_000, 0, 10_000)])
    assert found["a"] - found["b"] == pytest.approx(SCALE * math.log(3), abs=0.5)
    assert (found["a"] + found["b"]) / 2 == pytest.approx(CENTRE)


def test_the_ratings_maximise_the_likelihood():
    records = [Record("a", "b", 3, 1, 2), Record("b", "c", 4, 0, 1), Record("c", "a", 2, 2, 2)]

    def log_likelihood(ratings):
        total = sum(
            math.log(expected_score(r, CENTRE)) / 2 + math.log(expected_score(CENTRE, r)) / 2 for r in ratings.values()
        )
        for first, second, wins, draws, losses in records:
            share = expected_score(ratings[first], ratings[second])
            total += (wins + draws / 2) * math.log(share) + (losses + draws / 2) * math.log(1 - share)
        return total

    best = points(records)
    for name in best:
        for step in (-5, 5):
            assert log_likelihood(best | {name: best[name] + step}) < log_likelihood(best)


def test_the_order_of_records_and_of_the_two_players_changes_nothing():
    records = [Record("a", "b", 3, 1, 2), Record("b", "c", 4, 0, 1)]
    turned = [Record("c", "b", 1, 0, 4), Record("b", "a", 2, 1, 3)]
    assert points(records) == pytest.approx(points(turned))


def test_records_of_two_players_are_one_with_their_sum_in_ratings_and_intervals():
    whole = elo_ratings([Record("a", "b", 30, 10, 20)])
    parts = [Record("a", "b", 2, 0, 1), Record("b", "a", 1, 1, 1)] * 10
    assert elo_ratings(parts) == whole


def test_whoever_never_lost_is_rated_finitely_and_not_for_certain():
    best, worst = elo_ratings([Record("a", "b", 10, 0, 0)])
    assert best.name == "a" and CENTRE < best.rating < CENTRE + 600
    assert best.low < best.rating - 10 and worst.high > worst.rating + 10


def test_draws_bring_players_together():
    assert points([Record("a", "b", 0, 9, 0)]) == pytest.approx({"a": CENTRE, "b": CENTRE})


def test_players_who_never_met_are_compared_through_a_third():
    found = points([Record("strong", "mid", 90, 0, 10), Record("mid", "weak", 90, 0, 10)])
    assert found["strong"] > found["mid"] + 200 > found["weak"] + 400


def test_the_same_seed_gives_the_same_intervals_and_more_games_give_narrower_ones():
    few, again = (elo_ratings([Record("a", "b", 6, 0, 4)], seed=3) for _ in range(2))
    many = elo_ratings([Record("a", "b", 600, 0, 400)], seed=3)
    assert few == again
    assert few[0].high - few[0].low > 4 * (many[0].high - many[0].low)
    assert few[0].low < few[0].rating < few[0].high


def test_a_rating_lies_well_inside_its_interval_also_of_those_who_never_lost():
    rated = elo_ratings([Record("a", "b", 70, 0, 0), Record("a", "c", 300, 250, 50), Record("c", "b", 80, 0, 1)])
    for rating in rated:
        above, below = rating.high - rating.rating, rating.rating - rating.low
        assert min(above, below) > 0.2 * max(above, below) > 0


def test_intervals_cover_the_true_difference_about_as_often_as_they_promise():
    rng, covered, truth = random.Random(0), 0, 200.0
    share = expected_score(CENTRE + truth / 2, CENTRE - truth / 2)
    for trial in range(100):
        wins = sum(rng.random() < share for _ in range(60))
        ratings = {r.name: r for r in elo_ratings([Record("a", "b", wins, 0, 60 - wins)], resamples=100, seed=trial)}
        covered += ratings["a"].low <= CENTRE + truth / 2 <= ratings["a"].high
    assert 86 <= covered <= 100


def test_no_games_give_no_ratings_and_nobody_plays_himself():
    assert elo_ratings([]) == [] and elo_ratings([Record("a", "b", 0, 0, 0)]) == []
    for bad in (Record("a", "a", 1, 0, 0), Record("a", "b", -1, 0, 0), Record("a", "b", math.nan, 0, 0)):
        with pytest.raises(ConfigError):
            elo_ratings([bad])
    for options in ({"confidence": 1.0}, {"resamples": 0}):
        with pytest.raises(ConfigError):
            elo_ratings([Record("a", "b", 1, 0, 0)], **options)


def test_the_table_lists_every_player_strongest_first():
    lines = format_ratings(elo_ratings([Record("a", "b", 1, 0, 3), Record("b", "a long name", 1, 0, 0)])).splitlines()
    assert [line.split()[0] for line in lines] == ["opponent", "b", "a", "a"]
    assert len({len(line) for line in lines}) == 1
