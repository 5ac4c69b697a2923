"""Which ALFWorld games the library's seeds play: training, validation and test never meet, and how many there are."""

import re

import pytest

from metarl_agents.environments.alfworld import ALFWorld
from metarl_agents.environments.alfworld.gamefile import find_games, save_game
from metarl_agents.environments.alfworld.generator import SPLITS, VALIDATION, draw_house, draw_room
from metarl_agents.environments.alfworld.tables import TASKS
from metarl_agents.envs.splits import SEEDS_PER_SPLIT
from metarl_agents.errors import ConfigError
from metarl_agents.rollout.tasks import TaskStream, evaluation_seeds

ALL = tuple(TASKS)
PLAYED = {"train": "train", "validation": VALIDATION, "test": "valid_unseen"}
# Other counts in each split, so that a count of another split is noticed.
SAVED = {"train": 12, "valid_seen": 7, "valid_unseen": 9}


def seeds_of(count):
    """Return the seeds that training, validation and test play with, by split."""
    stream = TaskStream(0, 8)
    train = [seed for step in range(-(-count // 8)) for seed in stream.take(step)]
    return {"train": train[:count], **{split: evaluation_seeds(split, count) for split in ("validation", "test")}}


def room_of(env, seed):
    """Return the number of the room that an environment plays a seed in."""
    env.reset(seed=seed)
    return int(re.search(r"problem room(\d+)", env._file.problem)[1])


def apart(sets):
    train, validation, test = sets
    return bool(train and validation and test) and not (train & validation or train & test or validation & test)


# Generated games.


@pytest.mark.parametrize(
    "settings", [{"size": "small", "wording": "compact"}, {"size": "full", "tasks": "out_of_distribution"}]
)
def test_training_validation_and_test_seeds_never_play_in_the_same_room(settings):
    env = ALFWorld(source="generated", **settings)
    rooms = {split: {room_of(env, seed) for seed in seeds} for split, seeds in seeds_of(60).items()}
    assert apart(rooms.values()) and all(len(numbers) > 20 for numbers in rooms.values())


@pytest.mark.parametrize("size", ["small", "full"])
def test_no_room_of_an_evaluation_is_furnished_like_one_of_training(size):
    seeds = seeds_of(800)
    rooms = {s: [draw_house(seed, split=PLAYED[s], tasks=ALL, size=size).room for seed in seeds[s]] for s in seeds}
    assert apart({room.number for room in split} for split in rooms.values())
    assert apart({room.face for room in split} for split in rooms.values())
    assert all(draw_room(room.number, size) == room for split in rooms.values() for room in split)


def test_seeds_outside_the_librarys_ranges_are_training_games():
    env = ALFWorld(source="generated", size="small")
    training = ALFWorld(source="generated", size="small", split="train")
    for seed in (-1, 2**70, 3 * SEEDS_PER_SPLIT):
        assert env.reset(seed=seed) == training.reset(seed=seed)


@pytest.mark.parametrize("split", SPLITS)
def test_a_named_split_wins_over_the_range_of_the_seed(split):
    env = ALFWorld(source="generated", size="small", split=split)
    held_out = {room_of(env, seed) % 5 == 0 for seeds in seeds_of(6).values() for seed in seeds}
    assert held_out == {split == "valid_unseen"}
    assert env.num_tasks("test") is None


def test_test_seeds_play_the_games_of_valid_unseen():
    env, named = (ALFWorld(source="generated", size="small", split=split) for split in (None, "valid_unseen"))
    for seed in evaluation_seeds("test", 10):
        assert env.reset(seed=seed) == named.reset(seed=seed)


# Published games.


@pytest.fixture
def data(tmp_path):
    """A data folder with other numbers of games in each of the three splits."""
    for split, count in SAVED.items():
        for seed in range(count):
            house = draw_house(seed, split=split, tasks=ALL, size="small")
            save_game(house, "own", seed, tmp_path / "json_2.1.1", split)
    return tmp_path


def files_of(env, seeds):
    played = []
    for seed in seeds:
        env.reset(seed=seed)
        played.append(env._file.path)
    return played


def test_each_range_of_seeds_plays_its_own_published_games(data):
    env = ALFWorld(data_dir=str(data), tasks="all")
    files = {split: files_of(env, seeds) for split, seeds in seeds_of(40).items()}
    assert apart(map(set, files.values()))
    for split, folder in zip(files, SPLITS, strict=True):
        assert all(f"/{folder}/" in path for path in files[split])
        assert env.num_tasks(split) == SAVED[folder] == len(set(files[split]))
    # An evaluation of as many tasks as there are plays each game once, in the order of their paths.
    assert files["test"][: SAVED["valid_unseen"]] == sorted(set(files["test"]))
    rooms = {split: {room_of(env, seed) for seed in seeds} for split, seeds in seeds_of(40).items()}
    assert not rooms["test"] & (rooms["train"] | rooms["validation"])


def test_a_named_split_of_published_games_is_played_by_all_seeds(data):
    env = ALFWorld(data_dir=str(data), tasks="all", split="valid_seen")
    for split, seeds in seeds_of(10).items():
        assert all("/valid_seen/" in path for path in files_of(env, seeds))
        assert env.num_tasks(split) == SAVED["valid_seen"]


def test_tasks_are_counted_after_the_task_filter_and_what_everyone_skips(data):
    kinds = {path.parent.parent.name.partition("-")[0] for path in (data / "json_2.1.1/valid_unseen").glob("*/*/*")}
    counts = {short: 0 for short, name in TASKS.items() if name in kinds}
    for short in counts:
        counts[short] = len(find_games(data / "json_2.1.1", "valid_unseen", (short,)))
    assert sum(counts.values()) == SAVED["valid_unseen"] and len(counts) > 1
    path = next((data / "json_2.1.1/valid_unseen").glob("*"))
    path.rename(path.with_name(f"{path.name}-movable"))
    find_games.cache_clear()
    assert ALFWorld(data_dir=str(data), tasks="all").num_tasks("test") == SAVED["valid_unseen"] - 1


def test_a_split_without_games_is_named_when_it_is_needed(data):
    (data / "json_2.1.1/valid_seen").rename(data / "elsewhere")
    env = ALFWorld(data_dir=str(data), tasks="all")
    assert env.num_tasks("test") == SAVED["valid_unseen"]
    for call in (lambda: env.num_tasks("validation"), lambda: env.reset(seed=SEEDS_PER_SPLIT)):
        with pytest.raises(ConfigError, match=r"No playable game .* lies in .*valid_seen"):
            call()
    with pytest.raises(ConfigError, match='`split` is "valid_seen", but the library has train, validation and'):
        env.num_tasks("valid_seen")


@pytest.mark.parametrize("written", ["~/games", "$FOR_GAMES/games"])
def test_homes_and_variables_in_the_datas_folder_are_expanded(data, monkeypatch, tmp_path_factory, written):
    home = tmp_path_factory.mktemp("home")
    data.rename(home / "games")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FOR_GAMES", str(home))
    assert ALFWorld(data_dir=written, tasks="all").num_tasks("train") == SAVED["train"]
    monkeypatch.setenv("ALFWORLD_DATA", written)
    assert ALFWorld(tasks="all", source="data").num_tasks("train") == SAVED["train"]
    with pytest.raises(ConfigError, match='`data_dir` is "~nobody-of-this-name/x", but it holds no ALFWorld games'):
        ALFWorld(data_dir="~nobody-of-this-name/x")


# How many turns a game needs.


def test_min_turns_are_the_commands_of_the_walkthrough_which_win():
    env = ALFWorld(source="generated", size="small", tasks="all")
    for seed in evaluation_seeds("test", 12):
        env.reset(seed=seed)
        turns = env.min_turns()
        ends = [env.step(step).terminated for step in env.walkthrough()]
        assert len(ends) == turns and ends == [False] * (turns - 1) + [True]
    with pytest.raises(RuntimeError, match="Call `reset"):
        ALFWorld(source="generated").min_turns()


def test_a_published_game_without_a_walkthrough_tells_no_turns(data):
    path = sorted((data / "json_2.1.1/train").glob("**/game.tw-pddl"))[0]
    path.write_text(path.read_text().replace('"walkthrough"', '"other"'))
    env = ALFWorld(data_dir=str(data), tasks="all")
    turns = []
    for seed in range(3):
        env.reset(seed=seed)
        turns.append(env.min_turns())
    assert turns[0] is None and all(3 <= number <= 11 for number in turns[1:])


def test_nearly_all_test_games_can_be_won_in_the_turns_of_the_documented_runs():
    def share(env, turns):
        needed = []
        for seed in evaluation_seeds("test", 60):
            env.reset(seed=seed)
            needed.append(env.min_turns())
        return sum(number <= turns for number in needed) / len(needed)

    assert share(ALFWorld(source="generated", size="small", wording="compact"), 7) > 0.95
    assert 0.4 < share(ALFWorld(source="generated", size="small", tasks="out_of_distribution"), 7) < 0.75
    assert share(ALFWorld(source="generated"), 10) == 1.0
