"""WebShop's splits and bounds: no goal in two splits, every seed a goal, every bound on the grid."""

import pytest

pytest.importorskip("bm25s", reason="needs the webshop extra")
pytest.importorskip("rapidfuzz", reason="needs the webshop extra")

from metarl_agents.environments.webshop import WebShop
from metarl_agents.environments.webshop.chance import Chance
from metarl_agents.environments.webshop.goals import (
    SEEDS_PER_SPLIT,
    goal_of_seed,
    price_bound,
    seed_of_goal,
    split_goals,
)
from metarl_agents.errors import ConfigError
from metarl_agents.rollout.tasks import TaskStream, evaluation_seeds


@pytest.mark.parametrize("total", [3, 7, 99, 1999, 2000, 9041, 60_000])
def test_splits_share_no_goal_and_leave_none_out(total):
    train, validation, test = (set(split_goals(total, split)) for split in ("train", "validation", "test"))
    assert not train & validation and not train & test and not validation & test
    assert train | validation | test == set(range(total))
    if total >= 2000:
        assert (min(train), min(validation), max(test)) == (1500, 500, 499)


def test_the_librarys_seeds_of_different_splits_never_meet_in_a_goal():
    total = WebShop().num_goals
    assert total > 5000
    train = {goal_of_seed(seed, total, None) for step in range(40) for seed in TaskStream(0, 64).take(step)}
    validation = [goal_of_seed(seed, total, None) for seed in evaluation_seeds("validation", 1000)]
    test = [goal_of_seed(seed, total, None) for seed in evaluation_seeds("test", 500)]
    assert test == list(range(500)) and validation == list(range(500, 1500)), "each evaluation seed has its own goal"
    assert min(train) >= 1500 and len(train) > 1500
    assert evaluation_seeds("validation", 1) == [SEEDS_PER_SPLIT]


def test_a_split_can_be_named_and_a_goal_has_a_seed():
    for index in (0, 499, 500, 1499, 1500, 4000):
        assert goal_of_seed(seed_of_goal(index, 5000), 5000, None) == index
    env = WebShop(num_products=100, split="test")
    for seed in (0, 5, SEEDS_PER_SPLIT + 5, -3, 2**80):
        env.reset(seed=seed)
        assert env._visit.goal.index in split_goals(env.num_goals, "test")
    with pytest.raises(ConfigError, match="There is no goal 5000: the shop has 5000"):
        seed_of_goal(5000, 5000)
    with pytest.raises(ConfigError, match="The shop has 1 goals, which leaves none for the split `train`"):
        goal_of_seed(0, 1, None)


def test_as_many_tasks_as_a_split_has_goals_and_all_of_them_different():
    env = WebShop(num_products=100)
    counts = [env.num_tasks(split) for split in ("train", "validation", "test")]
    assert sum(counts) == env.num_goals and counts[1:] == [env.num_goals // 5, -(-env.num_goals // 5)]
    for split in ("validation", "test"):
        count, met = env.num_tasks(split), set()
        for seed in evaluation_seeds(split, count + 3):
            env.reset(seed=seed)
            met.add(env._visit.goal.index)
        assert met == set(split_goals(env.num_goals, split)) and len(met) == count
    named = WebShop(num_products=100, split="test")
    assert {named.num_tasks(split) for split in ("train", "validation", "test")} == {counts[2]}
    with pytest.raises(ConfigError, match='`split` is "dev", but WebShop has train, validation and test'):
        env.num_tasks("dev")


@pytest.mark.parametrize(("price", "bounds"), [(9.99, {20, 30, 40}), (10.0, {30, 40, 50}), (965.0, {980, 990})])
def test_bounds_are_the_larger_of_two_grid_values_above_the_price(price, bounds):
    assert {price_bound(price, Chance(number)) for number in range(200)} == bounds


def test_dear_products_have_no_bound():
    assert price_bound(980.0, Chance(0)) == price_bound(5000.0, Chance(0)) == 1_000_000
