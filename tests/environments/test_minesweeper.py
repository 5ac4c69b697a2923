"""MineSweeper: boards are a function of the seed, rules hold, nothing hidden is shown, the player reasons soundly."""

import itertools
import os
import random
import re
import subprocess
import sys

import pytest

from metarl_agents.environments.minesweeper import Minesweeper
from metarl_agents.environments.minesweeper.env import board_text
from metarl_agents.environments.minesweeper.game import Game, SplitMix64, draw_game, neighbours
from metarl_agents.environments.minesweeper.player import MinesweeperPlayer, cells_to_avoid, deduce, read_board
from metarl_agents.envs import check_environment
from metarl_agents.errors import ConfigError
from metarl_agents.types import Episode

# (size, mines, seed) -> (first cell, mines); part of the promise that old results stay comparable.
GOLDEN = {
    (6, 3, 0): (35, [2, 16, 31]),
    (6, 3, 1): (17, [20, 27, 35]),
    (6, 3, 2): (28, [21, 22, 27]),
    (6, 3, 3): (5, [4, 22, 25]),
    (6, 3, 4): (19, [15, 31, 32]),
    (4, 3, 0): (15, [2, 7, 14]),
    (4, 3, 1): (8, [9, 12, 15]),
    (4, 3, 2): (1, [9, 10, 12]),
    (4, 3, 3): (3, [1, 10, 11]),
    (4, 3, 4): (9, [1, 6, 14]),
}


def play(env, player, seed, rng, remarks=(), max_turns=7):
    """Play one episode of the task; return (won, texts seen, last info)."""
    observation, _ = env.reset(seed=seed)
    player.start_episode(list(remarks), rng)
    texts, info = [observation], {"success": False}
    for _ in range(max_turns):
        observation, _, terminated, _, info = env.step(env.parse_action(player.act(observation, rng)))
        texts.append(observation)
        if terminated:
            break
    return info["success"], texts, info


# Tasks.


def test_golden_boards():
    for (size, mines, seed), expected in GOLDEN.items():
        game = draw_game(seed, size=size, mines=mines)
        assert (game.first, sorted(game.mines)) == expected


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_boards_are_the_same_in_another_process(hash_seed):
    code = (
        "from metarl_agents.environments.minesweeper.game import draw_game\n"
        "print([(g.first, sorted(g.mines)) for g in (draw_game(s, size=6, mines=3) for s in range(50))])"
    )
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    here = [(game.first, sorted(game.mines)) for game in (draw_game(s, size=6, mines=3) for s in range(50))]
    assert out.strip() == str(here)


def test_seeds_give_different_boards_and_large_or_negative_ones_work():
    boards = {(game.first, game.mines) for game in (draw_game(s, size=6, mines=3) for s in range(300))}
    assert len(boards) > 295
    for seed in (-1, 2**63, 2**80 + 1):
        assert draw_game(seed, size=6, mines=3).min_clicks() > 0


def test_the_generator_is_uniform_enough():
    generator = SplitMix64(7)
    counts = [0] * 6
    for _ in range(12_000):
        counts[generator.below(6)] += 1
    assert all(1800 < count < 2200 for count in counts)
    assert sorted(generator.sample(9, 9)) == list(range(9))


@pytest.mark.parametrize(("size", "mines"), [(2, 1), (2, 2), (3, 7), (4, 3), (6, 3), (6, 12), (6, 34), (9, 10)])
def test_openings_are_safe_and_no_win_and_every_board_can_be_won(size, mines):
    for seed in range(200):
        game = draw_game(seed, size=size, mines=mines)
        assert len(game.mines) == mines
        assert game.first not in game.mines and game.first in game.opened
        assert not game.won and game.hit is None
        for cell in range(size * size):
            if cell not in game.mines:
                game.open(cell)
        assert game.won and game.over


def test_mines_and_openings_are_uniform():
    hits, starts = [0] * 16, [0] * 16
    for seed in range(8000):
        game = draw_game(seed, size=4, mines=6)  # so many mines that an opening hardly ever wins
        starts[game.first] += 1
        for mine in game.mines:
            hits[mine] += 1
    assert all(2650 < count < 3350 for count in hits)
    assert all(380 < count < 620 for count in starts)


# Rules.


def test_a_blank_opens_its_region_up_to_numbers():
    game = Game(4, mines=[0], first=1)
    assert game.opened == {1} and game.counts[1] == 1
    assert game.open(15) == 14
    assert game.won
    assert board_text(game).splitlines() == ["Row 1: ? 1 . .", "Row 2: 1 1 . .", "Row 3: . . . .", "Row 4: . . . ."]


def test_eight_neighbours_count():
    around = [cell for cell in range(9) if cell != 4]
    assert Game(3, mines=around, first=4).counts[4] == 8
    assert [len(cells) for cells in neighbours(3)] == [3, 5, 3, 5, 8, 5, 3, 5, 3]


def brute_force_clicks(game):
    """Try every set of clicks, smallest first."""
    closed = [cell for cell in range(16) if cell not in game.mines and cell not in game.opened]
    for count in range(1, len(closed) + 1):
        for clicks in itertools.combinations(closed, count):
            trial = game.fresh()
            for cell in clicks:
                trial.open(cell)
            if trial.won:
                return count
    raise AssertionError("no clicks win")


@pytest.mark.parametrize("mines", [1, 2, 3, 5])
def test_min_clicks_equals_brute_force(mines):
    for seed in range(40):
        game = draw_game(seed, size=4, mines=mines)
        clicks = game.min_clicks()
        assert clicks == brute_force_clicks(game)
        assert game.winnable_within(clicks) and not game.winnable_within(clicks - 1)


def test_the_share_winnable_in_seven_turns_is_as_documented():
    clicks = [draw_game(seed, size=6, mines=3).min_clicks() for seed in range(2000)]
    assert 4.0 < sum(clicks) / 2000 < 4.4
    assert 0.065 < sum(count > 7 for count in clicks) / 2000 < 0.105
    small = [draw_game(seed, size=4, mines=3).winnable_within(7) for seed in range(2000)]
    assert 0.785 < sum(small) / 2000 < 0.84


def test_max_clicks_filters_tasks_and_keeps_those_that_fit():
    for seed in range(200):
        free, filtered = draw_game(seed, size=6, mines=3), draw_game(seed, size=6, mines=3, max_clicks=4)
        assert filtered.min_clicks() <= 4
        if free.min_clicks() <= 4:
            assert (free.first, free.mines) == (filtered.first, filtered.mines)
    with pytest.raises(ConfigError, match="`max_clicks` is 1.*Raise `max_clicks`"):
        draw_game(0, size=6, mines=18, max_clicks=1)


# The environment.


@pytest.mark.parametrize("kwargs", [{}, {"size": 4, "wording": "compact"}, {"reward_preset": "shaped", "mines": 8}])
def test_it_keeps_the_contract(kwargs):
    report = check_environment(lambda: Minesweeper(**kwargs), seeds=range(6))
    assert report.warnings == () and report.episodes_ended == 6


@pytest.mark.parametrize(("preset", "values"), [("sparse", (10, 0, 0, 0, 0)), ("shaped", (10, 2.0, 0.5, -0.1, -1.0))])
def test_reward_table(preset, values):
    win, several, one, mine, nothing = values
    env = Minesweeper(size=4, mines=2, reward_preset=preset)
    env.reset(seed=0)

    def fresh(mines, first):
        env._game = Game(4, mines=mines, first=first)
        return env

    # Mines at (1, 1) and (1, 3):   * 2 * 1 / 1 2 1 1 / . . . . / . . . .
    assert fresh([0, 2], 1).step((2, 1))[1:] == (one, False, False, {"success": False})
    assert fresh([0, 2], 1).step((4, 4))[1:] == (several, False, False, {"success": False})
    assert fresh([0, 2], 1).step((1, 1))[1:] == (mine, True, False, {"success": False})
    for ineffective in ((1, 2), (0, 1), (5, 1), (1, 999)):
        before = board_text(fresh([0, 2], 1)._game)
        assert env.step(ineffective) == (before, nothing, False, False, {"success": False})
    fresh([0, 2], 1).step((4, 4))
    assert env.step((1, 4))[1:] == (win, True, False, {"success": True})


def test_a_mine_shows_as_a_star_at_that_cell_only():
    env = Minesweeper(size=4, mines=3)
    for seed in range(30):
        start, _ = env.reset(seed=seed)
        mine = min(env._game.mines)
        observation = env.step((mine // 4 + 1, mine % 4 + 1)).observation
        board, expected = read_board(observation), read_board(start)
        expected[mine // 4][mine % 4] = "*"
        assert board == expected
        with pytest.raises(RuntimeError, match="attempt is over"):
            env.step((1, 1))


def test_stepping_before_reset_says_what_to_do():
    with pytest.raises(RuntimeError, match="Call `reset"):
        Minesweeper().step((1, 1))


def test_hidden_mines_are_in_no_text_before_the_end():
    env, rng = Minesweeper(), random.Random(0)
    for seed in range(200):
        _, texts, info = play(env, MinesweeperPlayer(), seed, rng, max_turns=20)
        game = env._game
        for text in texts[: -1 if game.over else None]:
            assert re.fullmatch(r"(Row \d: [?.1-8]( [?.1-8]){5}\n?){6}", text)
            signs = [sign for row in read_board(text) for sign in row]
            assert all(signs[mine] == "?" for mine in game.mines)
            # A closed cell looks the same whether it hides a mine or not, and open ones tell the truth.
            assert all(sign in ("?", str(game.counts[cell] or ".")) for cell, sign in enumerate(signs))
        assert set(info) == {"success"}


def test_the_first_board_depends_on_what_is_open_alone():
    texts = {board_text(Game(4, mines=[0, mine], first=1)) for mine in (8, 11, 15)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<action>(2, 3)</action>", (2, 3)),
        ("reason (1, 1) <action>2,3</action>", (2, 3)),
        ("<action>(1, 1)</action> better: <action>( 6 , 6 )</action>", (6, 6)),
        ("<action>(9, 0)</action>", (9, 0)),
        ("(2, 3)", None),
        ("<action>(2, 3) or (1, 1)</action>", None),
        ("<action>(2.5, 3)</action>", None),
        ("<action>(-1, 3)</action>", None),
    ],
)
def test_parse_action(text, action):
    assert Minesweeper().parse_action(text) == action


def test_parse_action_never_raises():
    env, rng = Minesweeper(), random.Random(0)
    pieces = [
        "<action>",
        "</action>",
        "(",
        ")",
        ",",
        "1",
        "23",
        " ",
        "\n",
        "?",
        "x",
        "<think>",
        "</think>",
        "\u0661",
        "-",
    ]
    for _ in range(3000):
        action = env.parse_action("".join(rng.choices(pieces, k=rng.randrange(14))))
        assert action is None or (len(action) == 2 and all(type(number) is int for number in action))


def test_min_turns_is_that_of_the_start_all_along():
    env = Minesweeper(size=4)
    env.reset(seed=2)
    turns = env.min_turns()
    env.step((1, 1))
    assert env.min_turns() == turns == draw_game(2, size=4, mines=3).min_clicks()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"size": 1}, "`size` is 1, but a MineSweeper board has 2 to 30"),
        ({"size": 31}, "`size` is 31"),
        ({"mines": 0}, "`mines` is 0, but a board of `size` 6 takes 1 to 34"),
        ({"mines": 35}, "`mines` is 35"),
        ({"max_clicks": 0}, "`max_clicks` is 0"),
        ({"reward_preset": "dense"}, '`reward_preset` is "dense", but MineSweeper has sparse and shaped'),
        ({"wording": "long"}, '`wording` is "long", but MineSweeper has paper and compact'),
    ],
)
def test_wrong_settings_are_refused_with_the_way_out(kwargs, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Minesweeper(**kwargs)


def test_wordings_name_the_board_or_next_to_nothing():
    paper, compact = Minesweeper(size=5, mines=4), Minesweeper(size=5, mines=4, wording="compact")
    for part in ("5 rows", "4 mines", "from 1", "?", "*"):
        assert part in paper.describe()
    assert "<action>" in paper.wording.play_request and "<remark>" in paper.wording.reflect_request
    assert compact.describe() == "" and len(compact.wording.play_request) < 20
    assert paper.wording.show_action((2, 3)) == compact.wording.show_action((2, 3)) == "(2, 3)"


# The scripted player.


def test_what_the_player_deduces_is_true_and_never_a_mine():
    player = MinesweeperPlayer(safe=1, heed=0, blunder=0)
    rng = random.Random(0)
    for seed in range(150):
        game = draw_game(seed, size=6, mines=6)
        player.start_episode([], rng)
        while not game.over:
            board = read_board(board_text(game))
            safe, mines = deduce(board)
            assert not safe & game.mines and mines <= game.mines
            row, col = Minesweeper().parse_action(player.act(board_text(game), rng))
            cell = (row - 1) * 6 + col - 1
            assert cell not in mines and cell not in game.opened
            assert cell in safe or not safe
            game.open(cell)


def test_the_subset_rule_is_used():
    # The first 1 sees two closed cells, and the second one these two and a third, which is therefore safe.
    board = read_board("Row 1: . . . .\nRow 2: 1 1 1 1\nRow 3: ? ? ? ?\nRow 4: ? ? ? ?")
    assert deduce(board) == ({9, 10}, {8, 11})


def test_players_get_better_by_reasoning_and_by_heeding():
    def wins(player, remember):
        env, rng = Minesweeper(size=4, mines=3), random.Random(1)
        count = 0
        for seed in range(300):
            remarks = []
            for _ in range(3):
                won, texts, _ = play(env, player, seed, rng, remarks, max_turns=10)
                if won:
                    count += 1
                    break
                if remember:
                    remarks.append(player.reflect(Episode(texts[0], final_observation=texts[-1]), rng))
        return count / 300

    clumsy = wins(MinesweeperPlayer(safe=0, heed=0, blunder=0), remember=False)
    deaf = wins(MinesweeperPlayer(safe=1, heed=0, blunder=0), remember=True)
    heeding = wins(MinesweeperPlayer(safe=1, heed=1, blunder=0), remember=True)
    assert clumsy < 0.2
    assert deaf > clumsy + 0.3
    assert heeding > deaf + 0.03


def test_remarks_name_the_mine_that_was_hit():
    player, rng = MinesweeperPlayer(), random.Random(0)
    lost = Episode("Row 1: ? 1", final_observation="Row 1: 1 ?\nRow 2: ? *")
    assert player.reflect(lost, rng) == "<remark>avoid (2, 2)</remark>"
    slow = Episode("Row 1: ? 1", final_observation="Row 1: 1 ?\nRow 2: ? ?")
    assert player.reflect(slow, rng) == "<remark>be faster</remark>"
    assert cells_to_avoid("(1, 1) was fine, avoid (2, 2), (3, 4)") == [(2, 2), (3, 4)]
    assert cells_to_avoid("be faster (1, 1)") == []


def test_heeded_cells_are_avoided_and_unheeded_ones_are_not():
    board = "Row 1: 1 ?\nRow 2: ? ?"
    remarks = ["avoid (1, 2)", "avoid (2, 1)"]
    rng = random.Random(0)
    for heed, expected in ((1, {"(2, 2)"}), (0, {"(1, 2)", "(2, 1)", "(2, 2)"})):
        player = MinesweeperPlayer(safe=1, heed=heed, blunder=0)
        answers = set()
        for _ in range(40):
            player.start_episode(remarks, rng)
            answers.add(player.act(board, rng))
        assert answers == {f"<action>{cell}</action>" for cell in expected}


def test_a_consistent_player_always_plays_the_same():
    env = Minesweeper(size=5, mines=5)
    player = MinesweeperPlayer(safe=1, heed=1, blunder=0, consistent=True)
    for seed in range(20):
        first, second = (play(env, player, seed, random.Random(generator))[1] for generator in (1, 2))
        assert first == second


def test_the_exploration_generator_alone_decides_among_equals():
    board = "\n".join(f"Row {row}: ? ? ? ?" for row in range(1, 5))
    answers = [
        MinesweeperPlayer(blunder=0, explore_rng=random.Random(3)).act(board, random.Random(seed)) for seed in range(9)
    ]
    assert len(set(answers)) == 1
