"""Sokoban's rules, rooms and solver: moves by hand, exact bounds, shortest solutions and stuck positions by brute force."""

import hashlib
import os
import random
import subprocess
import sys
import time
from collections import deque

import pytest

from metarl_agents.environments.sokoban import Sokoban
from metarl_agents.environments.sokoban.game import DIRECTIONS, Layout, Room
from metarl_agents.environments.sokoban.generator import carve, draw_room, play_backwards
from metarl_agents.environments.sokoban.solver import Solver, Undecided, solver_of
from metarl_agents.environments.sokoban.text import XSB, compact_text, paper_text, read_room, room_of, xsb_text
from metarl_agents.errors import ConfigError
from metarl_agents.rollout.tasks import TaskStream, evaluation_seeds

DEFAULT = {"size": 6, "boxes": 2, "min_moves": 5, "max_moves": 21}


def position(*lines):
    """A position in XSB signs, with walls laid around it."""
    return room_of([list(line) for line in lines], XSB)


def draw(seed, **settings):
    return draw_room(seed, **{**DEFAULT, **settings})


def neighbours(room):
    return [after for direction in DIRECTIONS if (after := room.move(direction)) is not room]


def brute_force_length(room):
    """Breadth-first search move by move over the rules, with nothing clever in it; None where nothing solves it."""
    seen, queue = {(room.player, room.boxes)}, deque([(room, 0)])
    while queue:
        current, length = queue.popleft()
        if current.solved:
            return length
        for after in neighbours(current):
            if (after.player, after.boxes) not in seen:
                seen.add((after.player, after.boxes))
                queue.append((after, length + 1))
    return None


def everything_after(room):
    """Return all positions that moves lead to."""
    seen, queue = {(room.player, room.boxes)}, [room]
    for current in queue:
        for after in neighbours(current):
            if (after.player, after.boxes) not in seen:
                seen.add((after.player, after.boxes))
                queue.append(after)
    return queue


def replayed(room, moves):
    for direction in moves:
        room = room.move(direction)
    return room


# Moves.


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("@ $.", " @$."),  # a walk
        ("@$ .", " @$."),  # a push
        ("@$.", " @*"),  # onto a target
        ("@*  ", " +$ "),  # off a target, and onto it oneself
        ("@. $", " + $"),  # onto a free target
        ("+ $ ", ".@$ "),  # off a target
        ("@$#.", "@$#."),  # a wall behind the box
        ("@$$ ..", "@$$ .."),  # a box behind the box
        ("@$*  .", "@$*  ."),  # a box on a target behind the box
        ("$@", "$@"),  # the outer wall; boxes are not pulled
        ("$@ ", "$ @"),
        ("@#", "@#"),
    ],
)
def test_a_move_in_each_direction(before, after):
    right, down = ([before], [after]), (list(before), list(after))
    left, up = ([before[::-1]], [after[::-1]]), (list(before[::-1]), list(after[::-1]))
    for direction, (start, end) in {"right": right, "left": left, "down": down, "up": up}.items():
        assert position(*start).move(direction) == position(*end)


def test_every_position_of_a_small_room_by_enumeration():
    # A box alone in a corridor of four cells, target at the end: it can be pushed one way only.
    start = position("@$ .")
    found = {xsb_text(room).splitlines()[1][1:-1] for room in everything_after(start)}
    assert found == {"@$ .", " @$.", "@ $.", "  @*", " @ *", "@  *"}
    assert position("@$ .").move("right").move("right").solved


def test_counts_of_placed_boxes():
    room = position("@$*", "  .")
    assert (room.placed, room.solved) == (1, False)
    assert (position("@**").placed, position("@**").solved) == (2, True)


# Rooms.


def test_golden_rooms():
    # Part of the promise that old results stay comparable.
    assert compact_text(draw(1)) == "Row 1: _ _ _ #\nRow 2: O X X _\nRow 3: O _ _ _\nRow 4: P _ _ _"
    texts = "\n\n".join(xsb_text(draw(seed)) for seed in range(100))
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == "afc0311da66c5c89"
    texts = "\n\n".join(xsb_text(draw(seed, size=8, boxes=3, min_moves=10)) for seed in range(10))
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == "f32af0ee7a7957e7"


@pytest.mark.parametrize("settings", [{}, {"boxes": 1, "min_moves": 10}, {"size": 5, "boxes": 1, "max_moves": 9}])
def test_splits_never_share_walls_and_targets_however_few_rooms_there_are(settings):
    trained = [seed for step in range(20) for seed in TaskStream(0, 16).take(step)]
    seeds = {"train": trained, **{split: evaluation_seeds(split, 300) for split in ("validation", "test")}}
    rooms = {split: {draw(seed, **settings).layout for seed in listed} for split, listed in seeds.items()}
    assert not rooms["train"] & (rooms["validation"] | rooms["test"]) and not rooms["validation"] & rooms["test"]
    assert all(len(found) > 10 for found in rooms.values())


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_rooms_are_the_same_in_another_process(hash_seed):
    code = (
        "from metarl_agents.environments.sokoban import Sokoban\n"
        "print('\\n'.join(Sokoban().reset(seed=seed)[0] for seed in range(60)))"
    )
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONIOENCODING": "utf-8"}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout
    assert out.decode().strip() == "\n".join(Sokoban().reset(seed=seed)[0] for seed in range(60))


def test_bounds_hold_in_one_environment_after_1000_restarts():
    env = Sokoban(**DEFAULT)
    for seed in range(1000):
        env.reset(seed=seed)
        env.step(("up", "left"))
        env.restart()
        moves = solver_of(env._start.layout).shortest(env._start)
        assert DEFAULT["min_moves"] <= len(moves) <= DEFAULT["max_moves"]
        assert env._room == env._start == draw(seed)


def test_seeds_give_different_rooms_and_large_or_negative_ones_work():
    assert len({draw(seed) for seed in range(300)}) > 290
    assert len({draw(seed) for seed in (-1, 1, 2**63, 2**80 + 1)}) == 4


def check_rooms(seeds, **settings):
    """Check every promise about drawn rooms, the bounds by an independent search."""
    settings = {**DEFAULT, **settings}
    for seed in seeds:
        room = draw(seed, **settings)
        layout = room.layout
        ring = {cell for cell in range(layout.rows * layout.cols) if 0 in divmod(cell, layout.cols)}
        ring |= {cell for cell in range(layout.rows * layout.cols) if cell % layout.cols == layout.cols - 1}
        ring |= set(range((layout.rows - 1) * layout.cols, layout.rows * layout.cols))
        assert (layout.rows, layout.cols) == (settings["size"],) * 2 and ring <= layout.walls
        assert len(room.boxes) == len(layout.targets) == settings["boxes"] and room.placed == 0
        assert room.player not in layout.walls | room.boxes and not room.boxes & layout.walls
        length = brute_force_length(room)
        assert settings["min_moves"] <= length <= settings["max_moves"], seed


@pytest.mark.parametrize(
    ("count", "settings"),
    [
        (300, {}),
        (60, {"boxes": 1}),
        (12, {"boxes": 3}),
        (60, {"min_moves": 3, "max_moves": 4}),
        (40, {"min_moves": 12, "max_moves": 12}),
        (20, {"size": 5, "boxes": 1, "max_moves": 9}),
        (8, {"size": 8}),
    ],
)
def test_the_bounds_hold_for_every_room(count, settings):
    check_rooms(range(count), **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "settings"), [(1000, {}), (200, {"boxes": 3}), (60, {"boxes": 4}), (60, {"size": 8})]
)
def test_the_bounds_hold_for_many_rooms(count, settings):
    check_rooms(range(10_000, 10_000 + count), **settings)


def test_backward_play_counts_moves_exactly_also_where_it_is_cut_short():
    for seed in range(4):
        layout = draw(seed).layout
        cells = layout.floor()
        for layers in (play_backwards(layout, 30), play_backwards(layout, 30, max_positions=150)):
            states = [state for layer in layers for state in layer]
            assert len(set(states)) == len(states) and len(layers) > 1
            for length, layer in enumerate(layers):
                for state in layer[:: max(1, len(layer) // 2)]:
                    mask, player = divmod(state, len(cells))
                    boxes = frozenset(cell for bit, cell in enumerate(cells) if mask >> bit & 1)
                    assert brute_force_length(Room(layout, cells[player], boxes)) == length


def test_carved_floor_is_connected_and_inside_the_walls():
    for seed in range(100):
        size = 5 + seed % 6
        floor = carve(random.Random(seed), size)
        layout = Layout(size, size, frozenset(range(size * size)) - set(floor), frozenset())
        reached = everything_after(Room(layout, floor[0], frozenset()))
        assert sorted(room.player for room in reached) == floor
        assert all(0 < cell // size < size - 1 and 0 < cell % size < size - 1 for cell in floor)


def test_impossible_bounds_are_refused_with_the_way_out():
    with pytest.raises(ConfigError, match="None of 500 rooms drawn with `size` 5 and `boxes` 1 takes 60 to 61 moves"):
        draw(0, size=5, boxes=1, min_moves=60, max_moves=61)


def test_rooms_are_drawn_fast():
    draw_room.cache_clear()
    start = time.perf_counter()
    rooms = [draw(seed) for seed in range(200)]
    mean = (time.perf_counter() - start) / len(rooms)
    print(f"\na 6x6 room with 2 boxes and exact bounds: {1000 * mean:.2f} ms on average")
    assert mean < 0.05


# The solver.


def test_solutions_are_shortest_and_solve():
    for seed in range(150):
        room = draw(seed, boxes=1 + seed % 2)
        moves = Solver(room.layout).shortest(room)
        assert replayed(room, moves).solved and not replayed(room, moves[:-1]).solved
        assert len(moves) == brute_force_length(room)


def test_solutions_are_shortest_from_positions_met_in_play():
    rng = random.Random(0)
    for seed in range(25):
        room = draw(seed)
        for _ in range(8):
            room = room.move(rng.choice(DIRECTIONS))
            moves = solver_of(room.layout).shortest(room, rng.sample(range(4), 4))
            assert (len(moves) if moves is not None else None) == brute_force_length(room)
            if moves is not None:
                assert replayed(room, moves).solved


def test_another_order_of_directions_gives_another_solution_of_the_same_length():
    room = position("@  ", "   ", "  $", "  .")
    solutions = {tuple(Solver(room.layout).shortest(room, order)) for order in ((0, 1, 2, 3), (3, 2, 1, 0))}
    assert solutions == {("down", "right", "right", "down"), ("right", "right", "down", "down")}


def test_a_solved_room_takes_no_moves_and_a_hopeless_one_has_none():
    assert solver_of(position("@*").layout).shortest(position("@*")) == []
    assert solver_of(position("$@.").layout).shortest(position("$@.")) is None


@pytest.mark.parametrize(
    ("lines", "stuck"),
    [
        (["$  ", " @ ", "  ."], True),  # in a corner
        (["*  ", " @$", "   ", "  ."], False),  # a corner that is a target does no harm
        ([" $  ", "    ", "@  .", "    "], True),  # along a wall without a target
        ([" $ .", "    ", "@   "], False),  # along a wall with one
        (["  $$  ", "@     ", "..    "], True),  # two side by side at a wall
        ([" .. ", "@$$ "], True),  # the same, below their targets: nobody can stand behind them
        ([" ..  ", " $$  ", " $$ @", "  .. "], True),  # a block of four
        ([" .   ", " **  ", " *$ @", "     "], True),  # a block of four, one of them off its target
        (["**  @", "** $.", "     "], False),  # all of the block on targets
        (["@$ #.", "   # ", "   # "], True),  # the target is out of reach
        (["@#.", "$  ", "   "], True),  # the player is shut in
    ],
)
def test_deadlocks_by_hand(lines, stuck):
    room = position(*lines)
    assert len(room.boxes) == len(room.layout.targets)
    assert Solver(room.layout).is_stuck(room) is stuck
    assert (brute_force_length(room) is None) is stuck


def test_stuck_is_exactly_what_no_moves_can_solve():
    rng = random.Random(1)
    found = {True: 0, False: 0}
    for seed in range(15):
        solver = Solver(draw(seed).layout)
        rooms = everything_after(draw(seed))
        for room in rng.sample(rooms, min(len(rooms), 20)):
            stuck = brute_force_length(room) is None
            # Asked twice: the second answer is from memory; and other positions have been asked before.
            assert solver.is_stuck(room) is stuck is solver.is_stuck(room)
            found[stuck] += 1
    assert min(found.values()) > 30


def test_stuck_positions_with_three_boxes():
    rng = random.Random(2)
    for seed in range(4):
        room = draw(seed, boxes=3)
        solver = solver_of(room.layout)
        for _ in range(6):
            for _ in range(4):
                room = room.move(rng.choice(DIRECTIONS))
            assert solver.is_stuck(room) is (brute_force_length(room) is None)


def test_answers_are_kept():
    room = draw(3)
    solver = Solver(room.layout)
    assert not solver.is_stuck(room)
    solver._decide = None  # a second search would fail
    assert not solver.is_stuck(room)
    for after in neighbours(room):
        if after.boxes == room.boxes:
            assert not solver.is_stuck(after)  # walking does not change the answer


def test_answers_do_not_hang_on_the_questions_before_also_where_the_search_gives_up():
    rng = random.Random(3)
    # Two boxes side by side at a wall never move again, which takes the search all places of the third to find out.
    rooms = everything_after(position(".$$. ", "   $ ", "@  . "))
    unproven = 0
    for max_work in (40, 150, 600, 2000):
        shared = Solver(rooms[0].layout, max_work)
        for room in rng.sample(rooms, 100):
            alone = Solver(room.layout, max_work).is_stuck(room)
            assert shared.is_stuck(room) is alone
            unproven += not alone and brute_force_length(room) is None
    assert unproven > 20


def test_a_search_that_gives_up_says_so_and_calls_nothing_stuck():
    room = draw(4)
    hasty = Solver(room.layout, max_work=1)
    with pytest.raises(Undecided):
        hasty.shortest(room)
    assert not hasty.is_stuck(room)
    dead = position(". $$ .", "      ", "  $ . ", "@     ")  # two side by side at a wall, a third to push around
    assert Solver(dead.layout).is_stuck(dead) and not Solver(dead.layout, max_work=1).is_stuck(dead)


def test_the_oracle_solves_every_room_within_its_limits():
    for settings in ({}, {"boxes": 1}, {"boxes": 3}, {"boxes": 4}, {"size": 8, "boxes": 3}):
        for seed in range(20):
            room = draw(seed, **settings)
            moves = solver_of(room.layout).shortest(room)
            assert 5 <= len(moves) <= 21 and replayed(room, moves).solved


# Text.


def test_rooms_read_back_as_they_were_printed():
    rng = random.Random(0)
    for seed in range(60):
        room = draw(seed, size=5 + seed % 5, boxes=1 + seed % 2)
        for _ in range(5):
            assert read_room(compact_text(room)) == (room, 1)
            # The paper's text shows the outer walls, so that reading adds a second ring.
            padded, first = read_room(paper_text(room))
            inside = [line[1:-1] for line in xsb_text(padded).splitlines()[1:-1]]
            assert (first, inside) == (0, xsb_text(room).splitlines())
            room = room.move(rng.choice(DIRECTIONS))


def test_the_texts_are_as_documented():
    room = position("@$.", "*  ")
    assert paper_text(room) == "0: # # # # #\n1: # P X O #\n2: # √ _ _ #\n3: # # # # #"
    assert compact_text(position("+$#", "*  ")) == "Row 1: S X #\nRow 2: * _ _"


@pytest.mark.parametrize(
    "text", ["", "hello", "Row 1:", "Row 1: P ?", "Row 1: X O", "Row 1: P P", "0: P X O\n1: _ _", "Row 1: PX O"]
)
def test_other_texts_are_no_rooms(text):
    assert read_room(text) is None
