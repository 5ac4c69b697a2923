"""Level files: what is read, what is left out and how that is said, and play on levels of one's own."""

import random
import re
import warnings

import pytest

from metarl_agents.environments.sokoban import Sokoban
from metarl_agents.environments.sokoban.generator import draw_room
from metarl_agents.environments.sokoban.levels import parse_levels, read_levels
from metarl_agents.environments.sokoban.solver import solver_of
from metarl_agents.environments.sokoban.text import xsb_text
from metarl_agents.envs import check_environment
from metarl_agents.errors import ConfigError

ALLEY = "#######\n#@ $ .#\n#######"
HOOK = "######\n#   .#\n# ## #\n#@$  #\n#    #\n######"
PAIR = "#######\n#  .  #\n# $*  #\n#   @ #\n#######"
COLLECTION = f"""; three rooms to practise on
; made for the tests

Alley
{ALLEY}
Author: nobody

; 2
{HOOK}
{"-" * 20}
; 3

{PAIR}
"""


def only(text):
    rooms, faults = parse_levels(text)
    assert faults == [] and len(rooms) == 1
    return rooms[0]


def fault(text):
    rooms, faults = parse_levels(text)
    assert rooms == () and len(faults) == 1
    return faults[0]


# Reading.


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_collection_with_comments_titles_and_rulers(ends):
    rooms, faults = parse_levels(COLLECTION.replace("\n", ends))
    assert faults == [] and [xsb_text(room) for room in rooms] == [ALLEY, HOOK, PAIR]


def test_drawn_rooms_survive_a_round_trip_up_to_walls_that_nobody_sees():
    rooms = [draw_room(s, size=5 + s % 5, boxes=1 + s % 2, min_moves=4, max_moves=30) for s in range(60)]
    text = "\n\n; next\n".join(xsb_text(room) for room in rooms)
    read, faults = parse_levels(text)
    assert faults == [] and len(read) == 60
    for room, again in zip(rooms, read, strict=True):
        assert xsb_text(again) == xsb_text(only(xsb_text(again)))
        assert xsb_text(again).replace("#", "").split() == xsb_text(room).replace("#", "").split()
        assert len(solver_of(again.layout).shortest(again)) == len(solver_of(room.layout).shortest(room))


@pytest.mark.parametrize("floor", " -_")
def test_all_three_signs_of_floor(floor):
    assert xsb_text(only(HOOK.replace(" ", floor))) == HOOK


def test_surroundings_become_walls_and_are_cut_off():
    ragged = """
       ####
    ####  ##
    #@ $ . #
    ####  ##
       ####
"""
    assert xsb_text(only(ragged)) == "########\n####  ##\n#@ $ . #\n####  ##\n########"
    # What lies behind walls is no floor, and boxes set on targets there are ornaments.
    assert xsb_text(only("#########\n#@$.#*  #\n#########")) == "#####\n#@$.#\n#####"
    # Nothing is cut off a room that is wide and empty.
    assert xsb_text(only("#########\n#@$.    #\n#########")) == "#########\n#@$.    #\n#########"


@pytest.mark.parametrize(
    "title", ["...", "***", "# Level 1", "# 1", "#1: easy", "#Alley\n...", "  # by $", "$$$ hard $$$"]
)
def test_a_title_may_touch_its_level(title):
    text = f"{HOOK}\n\n{title}\n{ALLEY}\n\n{title}\n\n{PAIR}\n...\n"
    rooms, faults = parse_levels(text)
    assert faults == [] and [xsb_text(room) for room in rooms] == [HOOK, ALLEY, PAIR]
    # A broken level is counted without the titles, and found on the line of its first row.
    broken = f"# 1\n\n{title}\n#####\n#@$ #\n#####\n"
    first = broken.split("\n").index("#####") + 1
    assert fault(broken) == f"level 1 (line {first}) has unequal numbers of boxes (1) and targets (0)"


def test_a_level_without_any_whole_wall_row_is_none():
    assert parse_levels("# Level 1\n# Level 2\n...\n") == ((), [])
    assert fault("####x\n#@$.#\n#####").startswith("level 1 (line 2) is not closed")


@pytest.mark.parametrize("level", ["5#\n#@$.#\n5#", "#####|#@$.#|#####", "#####\n#pbo#\n#####"])
def test_what_is_not_read_is_no_level_by_mistake(level):
    assert parse_levels(level)[0] == ()


def test_every_sign_on_a_target():
    room = only("######\n#+$ *#\n######")
    assert (room.player, sorted(room.boxes), sorted(room.layout.targets)) == (7, [8, 10], [7, 10])


@pytest.mark.parametrize(
    ("level", "what"),
    [
        ("#####\n# $.#\n#####", "has no player (`@` or `+`), but needs exactly one"),
        ("######\n#@$.@#\n######", "has 2 players (`@` or `+`), but needs exactly one"),
        ("######\n#@$.+#\n######", "has 2 players"),
        ("######\n#@$..#\n######", "has unequal numbers of boxes (1) and targets (2)"),
        ("######\n#@$$.#\n######", "has unequal numbers of boxes (2) and targets (1)"),
        ("######\n#@   #\n######", "has no box (`$` or `*`), but needs at least one"),
        ("######\n#@$.x#\n######", "has the sign 'x', which means nothing in a level"),
        ("######\n#@$. \n######", "is not closed: the player can walk out of it"),
        ("#### #\n#@$. #\n######", "is not closed"),
        ("########\n#@$. #.#\n#    #$#\n########", "has a box or a target that the player can never reach"),
        ("######\n#@ * #\n######", "is solved from the start"),
        ("######\n#$@ .#\n######", "cannot be solved: a box stands where it can never be pushed to a target"),
        ("#" * 51 + "\n#@$." + " " * 46 + "#\n" + "#" * 51, "has 3 rows and 51 columns, but 50 of each are the most"),
    ],
)
def test_a_level_that_cannot_be_played_is_named(level, what):
    assert fault("; title\n\n" + level + "\n").startswith(f"level 1 (line 3) {what}")


def test_broken_levels_cost_themselves_alone():
    text = f"{ALLEY}\n\n#####\n#@$ #\n#####\n\n{HOOK}\n\n#####\n# $.#\n#####\n"
    rooms, faults = parse_levels(text)
    assert [xsb_text(room) for room in rooms] == [ALLEY, HOOK]
    assert [told.partition(" has")[0] for told in faults] == ["level 2 (line 5)", "level 4 (line 16)"]


def test_parsing_never_raises():
    rng = random.Random(0)
    read = 0
    for _ in range(3000):
        if rng.random() < 0.5:
            text = "".join(rng.choices("##@$.*+ -_\n\n;x\t\u2028", k=rng.randrange(60)))
        else:
            cells = list(rng.choice((ALLEY, HOOK, PAIR)))
            cells[rng.randrange(len(cells))] = rng.choice("#@$.*+ \n")
            text = "".join(cells)
        rooms, faults = parse_levels(text)
        read += len(rooms)
        assert all(told.startswith("level ") for told in faults)
        for room in rooms:
            assert room == only(xsb_text(room))
    assert read > 100


# Files.


def test_the_seed_picks_the_level(tmp_path):
    file = tmp_path / "rooms.xsb"
    file.write_text(COLLECTION, encoding="utf-8")
    env = Sokoban(levels=file)
    for seed, level in enumerate((ALLEY, HOOK, PAIR) * 3):
        env.reset(seed=seed)
        assert xsb_text(env._room) == level
    assert env.reset(seed=0)[0] == "0: # # # # # # #\n1: # P _ X _ O #\n2: # # # # # # #"
    assert Sokoban(levels=str(file), wording="compact").reset(seed=0)[0] == "Row 1: P _ X _ O"


@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_levels_keep_the_contract(tmp_path, wording):
    file = tmp_path / "rooms.xsb"
    file.write_text(COLLECTION, encoding="utf-8")
    report = check_environment(lambda: Sokoban(levels=file, wording=wording), seeds=range(3))
    assert report.warnings == () and report.episodes_ended == 3


def test_a_byte_order_mark_does_no_harm(tmp_path):
    file = tmp_path / "rooms.xsb"
    file.write_text("\ufeff" + ALLEY, encoding="utf-8")
    assert len(read_levels(file)) == 1


def test_an_author_in_latin_1_does_no_harm(tmp_path):
    file = tmp_path / "rooms.xsb"
    file.write_bytes(f"; by François\n{ALLEY}\n".encode("latin-1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [xsb_text(room) for room in read_levels(file)] == [ALLEY]


def test_levels_left_out_are_told_once_in_one_sentence(tmp_path):
    file = tmp_path / "rooms.xsb"
    file.write_text(f"{ALLEY}\n\n#####\n#@$ #\n#####\n\n#####\n# $.#\n#####\n", encoding="utf-8")
    with pytest.warns(RuntimeWarning) as caught:
        environments = [Sokoban(levels=file) for _ in range(3)]
    assert [str(warning.message) for warning in caught] == [
        f"{file}: level 2 (line 5) has unequal numbers of boxes (1) and targets (0); "
        f"level 3 (line 9) has no player (`@` or `+`), but needs exactly one. The other levels are played (1)."
    ]
    assert {env.reset(seed=seed)[0] for env in environments for seed in range(4)} == {environments[0].restart()[0]}


def test_many_broken_levels_are_counted(tmp_path):
    file = tmp_path / "rooms.xsb"
    file.write_text(ALLEY + "\n\n#@#" * 9, encoding="utf-8")
    with pytest.warns(RuntimeWarning, match=r"level 6 .*; and 4 more\. The other levels are played \(1\)"):
        read_levels(file)


def test_a_file_that_changes_is_read_again(tmp_path):
    file = tmp_path / "rooms.xsb"
    file.write_text(ALLEY, encoding="utf-8")
    assert len(read_levels(file)) == 1
    file.write_text(COLLECTION, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_levels(file)) == 3


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "holds no level that can be played. Give a text file"),
        (b"no level here\n", "holds no level that can be played. Give a text file"),
        (b"#####\n#@$ #\n#####\n", "can be played: level 1 (line 1) has unequal numbers of boxes (1) and targets (0)"),
        (b"\xff\xfe#\x00", "cannot be read: it is not UTF-8 text"),
        (ALLEY.encode("utf-16"), "cannot be read: it is not UTF-8 text"),
        (b"\xe9\x00" + ALLEY.encode(), "cannot be read: it is not UTF-8 text"),
        (b"\xfe\xff" + ALLEY.encode(), "cannot be read: it is not UTF-8 text"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_without_levels_is_refused_by_name(tmp_path, content, what):
    file = tmp_path / "rooms.xsb"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(what)) as caught:
        Sokoban(levels=file)
    assert str(caught.value).startswith(f"`levels` is {file}, but ")
    with pytest.raises(ConfigError, match=f"`levels` is {tmp_path}, but that file cannot be read: Is a directory"):
        Sokoban(levels=tmp_path)


def test_a_hard_level_neither_hangs_nor_is_called_stuck():
    # Ten boxes in the open: the search for a shortest solution is hopeless, and the player plays all the same.
    wide = 14
    rows = ["#" * wide, "#@" + " " * 11 + "#", *["#" + " " * 12 + "#"] * 2]
    rows += ["#  $ $ $ $ $ #", "#" + " " * 12 + "#", "# $ $ $ $ $  #", *["#" + " " * 12 + "#"] * 2]
    rows += ["#. . . . . . #", "#. . . .     #", "#" * wide]
    room = only("\n".join(rows))
    env = Sokoban()
    env._start = room
    observation, _ = env.restart()
    solver_of(room.layout).max_work = 20_000
    assert env.min_turns() is None
    result = env.step(env.parse_action(env.player().act(observation, random.Random(0))))
    assert not result.terminated
