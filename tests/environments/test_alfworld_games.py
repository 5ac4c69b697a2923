"""Where ALFWorld games come from: invented households and their splits, folders of published games, broken files."""

import json
import os
import re
import subprocess
import sys

import pytest

from metarl_agents.environments.alfworld import ALFWorld
from metarl_agents.environments.alfworld.game import Game, read_script
from metarl_agents.environments.alfworld.gamefile import save_game
from metarl_agents.environments.alfworld.generator import SPLITS, Draw, draw_house, draw_room, walkthrough, write_game
from metarl_agents.environments.alfworld.rules import rules_named
from metarl_agents.environments.alfworld.tables import (
    FURNITURE,
    LAMP_TOPS,
    LAMPS,
    OPENABLE,
    ROOMS,
    STATIONS,
    TASKS,
    THINGS,
    holders,
)
from metarl_agents.errors import ConfigError

ALL = tuple(TASKS)


def houses(count, split="train", tasks=ALL, size="full"):
    return [draw_house(seed, split=split, tasks=tasks, size=size) for seed in range(count)]


# Tables.


def test_tables_speak_of_known_kinds_only():
    furniture = {kind for room in FURNITURE.values() for kind in room}
    abilities = {station.ability for station in STATIONS.values()} | {"sliceable"}
    for thing, known in THINGS.items():
        assert known.rooms and set(known.rooms.split()) <= set(FURNITURE)
        assert holders(thing) <= furniture and set(known.abilities.split()) <= abilities
        for room in known.rooms.split():
            assert holders(thing) & set(FURNITURE[room]), f"{thing} fits nowhere in a {room}"
    assert furniture >= OPENABLE and furniture >= set(LAMP_TOPS) and set(ROOMS) == set(TASKS.values())
    assert all(station.receptacle in furniture for station in STATIONS.values())


# Households.


def test_rooms_are_as_large_as_real_ones_and_keep_their_furniture():
    sizes = {kind: set() for kind in FURNITURE}
    for first in (0, 200, 300, 400):
        for number in range(1, 100):
            room = draw_room(first + number, "full")
            sizes[room.kind].add(len(room.receptacles))
            assert len(draw_room(first + number, "small").receptacles) <= 9
    assert min(sizes["Kitchen"]) >= 25 and max(sizes["Kitchen"]) <= 35
    assert all(min(sizes[kind]) >= 9 and max(sizes[kind]) <= 16 for kind in sizes if kind != "Kitchen")
    kitchens = [house for house in houses(60) if house.room.kind == "Kitchen"]
    assert all(35 <= len(house.kinds) <= 65 for house in kitchens)


def test_some_receptacles_share_a_standing_place():
    places = [draw_room(number, "full").places for number in range(1, 60)]
    shared = sum(len(room) - len(set(room.values())) for room in places) / sum(map(len, places))
    assert 0.1 < shared < 0.2


@pytest.mark.parametrize("size", ["full", "small"])
def test_tasks_are_fair(size):
    for house in houses(100, size=size):
        task, room = house.task, house.room
        assert room.kind in ROOMS[task.type]
        wanted = [thing for thing, kind in house.kinds.items() if kind == task.thing]
        assert len(wanted) >= task.count
        assert all(room.receptacles[house.inside[thing]] != task.goal for thing in wanted)
        for thing, kind in house.kinds.items():
            where = room.receptacles[house.inside[thing]]
            assert where in (LAMP_TOPS if kind in LAMPS else holders(kind))
        if task.type in STATIONS:
            station = STATIONS[task.type]
            assert station.receptacle != task.goal and station.receptacle in room.receptacles.values()
            assert station.ability in THINGS[task.thing].abilities
        if task.type == TASKS["look"]:
            assert task.goal in house.kinds.values()
        else:
            assert task.goal in holders(task.thing) & set(room.receptacles.values())
            assert len(holders(task.thing) & set(room.receptacles.values())) > 1


@pytest.mark.parametrize("size", ["full", "small"])
@pytest.mark.parametrize("split", SPLITS)
def test_every_game_is_won_by_its_walkthrough_and_by_no_shorter_beginning(split, size):
    for seed, house in enumerate(houses(15, split, size=size)):
        game = write_game(house, "own", seed)
        play = Game(read_script(game))
        play.restart()
        for command in game.walkthrough:
            assert not play.won and command in play.admissible
            play.play(command)
        assert play.won


@pytest.mark.parametrize("size", ["full", "small"])
def test_ten_turns_are_enough_for_all_but_a_few_games_with_two_things(size):
    lengths = [(house.task.type, len(walkthrough(house))) for house in houses(300, size=size)]
    assert all(length <= 8 for kind, length in lengths if kind != TASKS["pick_two"])
    pairs = [length for kind, length in lengths if kind == TASKS["pick_two"]]
    assert max(pairs) <= 11 and sum(length > 10 for length in pairs) <= 0.05 * len(pairs)


def test_task_types_are_drawn_evenly():
    types = [house.task.type for house in houses(400, size="small")]
    assert set(types) == set(TASKS.values()) and all(40 < types.count(kind) < 95 for kind in set(types))


def test_splits_hold_rooms_apart_and_tasks_within_rooms():
    tasks = {split: {(h.room.number, h.task) for h in houses(700, split, size="small")} for split in SPLITS}
    rooms = {split: {number for number, _ in tasks[split]} for split in SPLITS}
    assert not rooms["valid_unseen"] & (rooms["train"] | rooms["valid_seen"])
    assert not tasks["train"] & tasks["valid_seen"]
    assert len(rooms["train"]) > 200 and len(rooms["train"] & rooms["valid_seen"]) > 150


def test_seeds_give_different_games():
    texts = {write_game(house, "own", seed).problem for seed, house in enumerate(houses(200))}
    assert len(texts) == 200


DIGEST = """
import hashlib
from metarl_agents.environments.alfworld import ALFWorld
digest = hashlib.sha256()
for size in ("full", "small"):
    env = ALFWorld(source="generated", tasks="all", size=size)
    for seed in (*range(6), -1, 2**70):
        observation, info = env.reset(seed=seed)
        digest.update(repr((observation, info, env.walkthrough())).encode("utf-8"))
        for step in env.walkthrough():
            digest.update(repr(env.step(step)).encode("utf-8"))
print(digest.hexdigest())
"""


def test_games_are_the_same_in_every_process():
    outs = set()
    for hash_seed in ("1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, text=True, check=True)
        outs.add(done.stdout)
    assert len(outs) == 1 and len(outs.pop()) == 65


def test_draws_are_those_of_every_python_version():
    draw = Draw("a")
    assert [draw.below(1000) for _ in range(4)] == [272, 67, 599, 644]
    assert sorted(Draw("b").some("abc", 5)) == ["a", "b", "c"]


def test_sentences_of_goals_are_english():
    assert {write_game(h, "own", 0).grammar.count("GOAL") for h in houses(20)} == {0}
    tasks = [re.search(r"Task: (.*?)\.", write_game(house, "own", 0).grammar)[1] for house in houses(60)]
    assert not any(re.search(r"\ba [aeiou]|\ban [^aeiou]|[{}]", text) for text in tasks)
    assert any(" and another " in text for text in tasks)
    assert rules_named("own").articles


# Folders of games.


@pytest.fixture
def data(tmp_path):
    """A data folder with twelve generated games in each of two splits."""
    root = tmp_path / "json_2.1.1"
    for split in ("train", "valid_unseen"):
        for seed, house in enumerate(houses(12, split, size="small")):
            save_game(house, "own", seed, root, split)
    return tmp_path


def paths(data, split="train"):
    return sorted((data / "json_2.1.1" / split).glob("**/game.tw-pddl"))


def of_type(data, *tasks):
    return [path for path in paths(data) if any(path.parent.parent.name.startswith(TASKS[task]) for task in tasks)]


def starts(env, count):
    return [env.reset(seed=seed)[0] for seed in range(count)]


def test_saved_games_are_played_in_the_order_of_their_paths(data):
    env = ALFWorld(data_dir=str(data), tasks="all")
    assert env.num_tasks("train") == 12
    for seed, path in enumerate(paths(data)):
        observation, _ = env.reset(seed=seed)
        goal = json.loads((path.parent / "traj_data.json").read_text())["pddl_params"]["object_target"].lower()
        assert goal in observation.rpartition("Task:")[2]
        for step in env.walkthrough():
            result = env.step(step)
        assert result.terminated and result.info["success"]
    assert starts(env, 12) == [env.reset(seed=seed + 12)[0] for seed in range(12)]
    assert starts(ALFWorld(data_dir=str(data / "json_2.1.1"), tasks="all"), 12) == starts(env, 12)


def test_task_types_and_splits_are_chosen(data):
    seen = of_type(data, "pick", "look", "clean", "heat")
    assert ALFWorld(data_dir=str(data)).num_tasks("train") == len(seen)
    assert ALFWorld(data_dir=str(data), tasks="out_of_distribution").num_tasks("train") == 12 - len(seen)
    unseen = ALFWorld(data_dir=str(data), tasks="all", split="valid_unseen")
    assert not set(starts(unseen, 12)) & set(starts(ALFWorld(data_dir=str(data), tasks="all"), 12))
    with pytest.raises(ConfigError, match="No playable game of the task types pick, look, clean, heat lies in"):
        ALFWorld(data_dir=str(data), split="valid_seen")


def test_the_environment_variable_leads_to_the_data_where_there_is_some(data, monkeypatch, tmp_path):
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    assert ALFWorld(tasks="all").num_tasks("train") == 12
    assert ALFWorld(tasks="all", source="generated").num_tasks("train") is None
    (tmp_path / "empty").mkdir()
    for value in (str(tmp_path / "empty"), "/nowhere", ""):
        monkeypatch.setenv("ALFWORLD_DATA", value)
        assert ALFWorld().num_tasks("train") is None
        with pytest.raises(ConfigError, match='`source` is "data", but `.ALFWORLD_DATA` leads to no games'):
            ALFWorld(source="data")


def test_what_everyone_skips_is_skipped_without_a_word(data, recwarn):
    first, second, third, fourth, *_ = paths(data)
    for path, word in ((first, "movable"), (second, "Sliced")):
        path.parent.parent.rename(path.parent.parent.with_name(f"a-{word}-b-{path.parent.parent.name}"))
    for path, value in ((third, False), (fourth, None)):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"solvable": value}))
    gone = {first.parent.parent, second.parent.parent}
    left = [path for path in paths(data) if path.parent.parent not in gone and "-b-" not in str(path)]
    assert ALFWorld(data_dir=str(data), tasks="all").num_tasks("train") == len(left) - 2
    assert len(recwarn) == 0


def without(key):
    return lambda path: path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != key}))


def cut(path):
    path.write_text(path.read_text()[:5000])


@pytest.mark.parametrize(
    ("breaks", "complaint"),
    [
        (without("solvable"), 'does not say whether it is "solvable"'),
        (cut, "is not whole JSON"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not whole JSON"),
        (lambda path: path.write_text("[]"), "not an object"),
        (lambda path: path.with_name("traj_data.json").unlink(), "cannot be read"),
        (lambda path: path.with_name("traj_data.json").write_text("{}"), 'has no "task_type"'),
    ],
)
def test_a_broken_file_is_named_and_the_rest_goes_on(data, breaks, complaint):
    broken = paths(data)[2]
    expected = starts(ALFWorld(data_dir=str(data), tasks="all"), 12)
    from metarl_agents.environments.alfworld.gamefile import find_games

    find_games.cache_clear()
    breaks(broken)
    with pytest.warns(UserWarning, match=complaint) as caught:
        env = ALFWorld(data_dir=str(data), tasks="all")
    assert [str(broken.parent) in str(warning.message) for warning in caught] == [True]
    assert "\n" not in str(caught[0].message)
    del expected[2]
    assert env.num_tasks("train") == 11 and starts(env, 11) == expected


@pytest.mark.parametrize(
    ("breaks", "complaint"),
    [
        (without("pddl_problem"), 'has no text "pddl_problem"'),
        (lambda path: path.write_text(path.read_text().replace("(:goal", "(:gaol")), "makes no game"),
    ],
)
def test_a_game_that_proves_broken_in_play_is_named_and_the_next_one_is_played(data, breaks, complaint):
    breaks(paths(data)[11])
    env = ALFWorld(data_dir=str(data), tasks="all")
    with pytest.warns(UserWarning, match=complaint):
        observation, _ = env.reset(seed=11)
    assert observation == env.reset(seed=0)[0]


def test_when_all_games_are_broken_it_says_so(data):
    for path in paths(data):
        without("grammar")(path)
    env = ALFWorld(data_dir=str(data), tasks="all")
    with pytest.warns(UserWarning), pytest.raises(ConfigError, match="None of the 12 games"):
        env.reset(seed=0)
