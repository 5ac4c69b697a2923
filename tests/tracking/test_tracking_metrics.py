"""Metrics by hand, and the law that dealing trials to processes changes nothing."""

import math
import random

import pytest

from metarl_agents.tracking.metrics import combine, count_seats, finish, group_statistics, summarize
from metarl_agents.types import Episode, Outcome, Phase, Response, Trial, Turn


def turn(reward=0.0, tokens=2, phase=Phase.PLAY, action="up", truncated=False, **more):
    return Turn(
        phase, "board", (1,) * 10, Response((1,) * tokens, "text", truncated), action, str(action), reward, **more
    )


def trial(outcomes, group=0, reward=0.0, error=None):
    """A trial of one-turn episodes; every episode but the last has a reflection of 5 tokens."""
    episodes = [Episode("start", [turn(reward)], "end", outcome) for outcome in outcomes]
    for episode in episodes[:-1]:
        episode.reflection = turn(tokens=5, phase=Phase.REFLECT, action="remark")
    return Trial(seed=group, group=group, episodes=episodes, error=error)


WIN, LOSS = Outcome.SUCCESS, Outcome.FAILURE


def metrics(trials, num_episodes=3):
    return finish(summarize(trials, num_episodes=num_episodes))


def test_success_is_counted_within_k_episodes_and_per_episode_reached():
    found = metrics([trial([WIN]), trial([LOSS, WIN]), trial([LOSS, LOSS, LOSS]), trial([LOSS, LOSS, WIN])])
    assert [found[f"pass@{k}"] for k in (1, 2, 3)] == [0.25, 0.5, 0.75]
    assert [found[f"episode_{n}/success"] for n in (0, 1, 2)] == [0.25, pytest.approx(1 / 3), 0.5]


def test_an_episode_that_no_trial_reached_has_no_success_rate():
    found = metrics([trial([WIN])])
    assert "episode_1/success" not in found and "reflection/length" not in found
    assert found["pass@3"] == 1.0


def test_turns_tokens_and_reflections_by_hand():
    first = Episode("s", [turn(1.0), turn(-0.5, tokens=8, action=None, invalid=True, truncated=True)], "e", LOSS)
    first.reflection = turn(tokens=5, phase=Phase.REFLECT, action=None)
    second = Episode("s", [turn(10.0, tokens=1, prompt_shortened=True)], "e", WIN)
    found = metrics([Trial(seed=0, group=0, episodes=[first, second])])
    assert found["reward"] == pytest.approx((0.5 + 10.0) / 2)
    assert found["turns/mean"] == 1.5
    assert found["valid_action_ratio"] == pytest.approx(2 / 3)
    assert (found["completions/mean_length"], found["completions/max_length"]) == (4.0, 8.0)
    assert (found["completions/clipped_ratio"], found["prompt/shortened_ratio"]) == (0.25, 0.25)
    assert (found["reflection/length"], found["reflection/empty_ratio"]) == (5.0, 1.0)
    assert (found["num_tokens"], found["num_episodes"]) == (16.0 + 40.0, 2.0)


def test_a_crashed_trial_counts_only_as_a_failure_of_the_environment():
    whole = [trial([LOSS, WIN], reward=1.0), trial([WIN], reward=3.0)]
    crashed = trial([LOSS, LOSS, WIN], reward=99.0, error="boom")
    with_crash = metrics([*whole, crashed])
    assert with_crash.pop("env/failure_rate") == pytest.approx(1 / 3)
    assert with_crash == {name: value for name, value in metrics(whole).items() if name != "env/failure_rate"}
    assert group_statistics([*whole, crashed]) == group_statistics(whole)


def test_groups_compare_the_total_rewards_of_their_trials():
    trials = [trial([WIN], 0, 4.0), trial([LOSS, WIN], 0, 1.0), trial([LOSS], 1, 5.0), trial([LOSS], 1, 5.0)]
    found = finish(group_statistics([*trials, trial([WIN], 2, 7.0)]))
    assert found["reward_std"] == pytest.approx(math.sqrt(2.0) / 2)
    assert found["frac_reward_zero_std"] == 0.5


def test_a_group_of_one_has_nothing_to_compare():
    assert finish(group_statistics([trial([WIN], 0, 1.0)])) == {}


def test_dealing_trials_to_processes_changes_nothing():
    rng = random.Random(3)
    trials = [
        trial([LOSS] * n + [rng.choice([WIN, LOSS])], g, rng.random(), None if rng.random() < 0.8 else "boom")
        for g in range(6)
        for n in (0, 1, 2)
    ]

    def sums(part):
        return summarize(part, num_episodes=3) | group_statistics(part)

    together, dealt = finish(sums(trials)), finish(combine([sums(trials[:9]), sums([]), sums(trials[9:])]))
    assert dealt == pytest.approx(together)


def test_every_process_has_the_same_keys_in_the_same_order():
    assert list(summarize([], num_episodes=3)) == list(summarize([trial([LOSS, WIN])], num_episodes=3))
    assert list(group_statistics([])) == list(group_statistics([trial([WIN])]))
    assert finish(summarize([], num_episodes=3)) == {"num_episodes": 0.0, "num_tokens": 0.0}


def game(seat, outcomes, reward=0.0, error=None):
    """A trial of a game, with the agent in a seat."""
    played = trial(outcomes, reward=reward, error=error)
    played.opponent, played.seat = "somebody", seat
    return played


def test_games_are_told_by_the_agents_seat_from_first_episodes_alone():
    found = metrics(
        [game(0, [WIN], 3.0), game(0, [LOSS, WIN], 1.0), game(1, [LOSS, LOSS], -1.0), game(1, [WIN], error="x")]
    )
    assert (found["seat_0/success"], found["seat_1/success"]) == (0.5, 0.0)
    assert (found["seat_0/reward"], found["seat_1/reward"]) == (2.0, -1.0)


def test_outside_games_there_are_no_seats():
    assert not any(name.startswith("seat_") for name in summarize([trial([WIN])], num_episodes=1))
    assert count_seats([trial([WIN])]) == count_seats([]) == 0 and count_seats([game(0, [WIN])]) == 1


def test_every_process_has_the_same_keys_in_whatever_seats_its_own_trials_were():
    keys = [list(summarize(part, num_episodes=1, seats=2)) for part in ([], [game(0, [WIN])], [game(1, [LOSS])])]
    assert keys[0] == keys[1] == keys[2] and "seat_1/success" in keys[0]
    assert "seat_1/success" not in finish(summarize([game(0, [WIN])], num_episodes=1, seats=2))
