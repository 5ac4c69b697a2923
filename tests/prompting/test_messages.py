"""What the model reads: whole pages against golden files, and the laws every page keeps.

After a wanted change of a page, write the golden files anew and review the difference:

    METARL_UPDATE_GOLDEN=1 python -m pytest tests/prompting
"""

import os
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from terse import TERSE

from metarl_agents.config import TrialConfig
from metarl_agents.environments.minesweeper import Minesweeper
from metarl_agents.environments.minesweeper.env import board_text
from metarl_agents.environments.minesweeper.game import draw_game
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.prompting import Page, memory_text, play_messages, reflect_messages
from metarl_agents.prompting.messages import longest_drop
from metarl_agents.rollout import TrialRunner
from metarl_agents.types import Episode, MemoryMode, Outcome, Phase, Response, Turn

GOLDEN = Path(__file__).parent / "golden"
MODES = ["reflection", "trajectory", "both", "none"]
SEED = 11
SIZE, MINES = 4, 3


def answer(text, ids=(1,)):
    return Response(ids=ids, text=text)


def pages_of(env, answers, memory, *, seed=SEED, **settings):
    """Every page of a trial, as (what it is for, text); `answers` are taken in order, remarks where one is due."""
    config = TrialConfig(**{"num_episodes": 3, "max_turns": 3, "memory": memory, "env_timeout_s": None, **settings})
    runner = TrialRunner(lambda: env, seed, 0, config)
    plays = iter(answers)
    pages = []
    while not runner.done:
        ((role, text),) = [(message["role"], message["content"]) for message in runner.messages()]
        assert role == "user"
        pages.append(("reflect" if runner.reflecting else "play", text))
        said = f"<remark>note {len(pages)}</remark>" if runner.reflecting else next(plays)
        runner.receive((1,), answer(said))
    return pages


def cells(seed=SEED):
    """(a safe closed cell, a mine) of a board, 1-based."""
    game = draw_game(seed, size=SIZE, mines=MINES)
    closed = set(range(SIZE * SIZE)) - game.opened
    safe, mine = min(closed - game.mines), min(game.mines)
    return tuple((cell // SIZE + 1, cell % SIZE + 1) for cell in (safe, mine))


def mine_answers():
    """An unreadable answer, a safe cell, a mine; then again a mine; then a safe cell till the turns are over."""
    safe, mine = (f"I think so. <action>({row}, {col})</action>" for row, col in cells())
    return ["no idea", safe, mine, mine, safe, safe, safe]


WORLDS = {
    "minesweeper_paper": (lambda: Minesweeper(size=SIZE, mines=MINES), mine_answers()),
    "minesweeper_compact": (lambda: Minesweeper(size=SIZE, mines=MINES, wording="compact"), mine_answers()),
    "two_doors": (TwoDoors, ["which?", *(f"<action>{door}</action>" for door in ("B", "B", "A"))]),
}


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("world", WORLDS)
def test_pages_are_the_reviewed_ones(world, memory):
    make_env, answers = WORLDS[world]
    pages = pages_of(make_env(), answers, memory)
    assert len(pages) > 3
    text = "".join(f"======== {number} {kind}\n{page}\n" for number, (kind, page) in enumerate(pages, start=1))
    path = GOLDEN / f"{world}_{memory}.txt"
    if os.environ.get("METARL_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_every_golden_file_belongs_to_a_test():
    wanted = {f"{world}_{memory}.txt" for world in WORLDS for memory in MODES}
    assert {path.name for path in GOLDEN.iterdir()} == wanted


# ---- the laws -----------------------------------------------------------------------------------------------

WORDING = replace(TERSE, reflect_history_turns=6, shorten=lambda observation: f"~{observation[-1]}")


def turn(action, observation="", phase=Phase.PLAY):
    return Turn(phase, observation, (1,), answer(f"THOUGHT <a>{action}</a>"), action or None, action, 0.0)


def episode(*steps, outcome=Outcome.FAILURE, remark=None):
    """An attempt from observation o0; step k leads to observation ok."""
    seen = [f"o{k}" for k in range(len(steps) + 1)]
    turns = [turn(action, observation) for action, observation in zip(steps, seen, strict=False)]
    reflection = None if remark is None else turn(remark, phase=Phase.REFLECT)
    return Episode("o0", turns, seen[-1], outcome, reflection)


def page(memory="reflection", **changes):
    return Page("RULES", replace(WORDING, **changes), MemoryMode(memory))


def text(messages):
    (message,) = messages
    assert message.keys() == {"role", "content"} and message["role"] == "user"
    return message["content"]


PAST = [episode("a", "b", remark="r one"), episode("c", outcome=Outcome.DRAW, remark=""), episode(outcome=None)]


def test_a_play_page_is_rules_start_memory_history_and_request_in_this_order():
    assert text(play_messages(page(), PAST[:1], episode("x"))) == (
        "RULES\nSTART o0\nMEMORY [1 lost | r one]\nHISTORY 1:x>o1\nPLAY"
    )
    assert text(play_messages(page(), [], episode())) == "RULES\nSTART o0\nPLAY"


def test_a_reflection_page_is_rules_start_the_attempt_how_it_ended_and_request():
    assert text(reflect_messages(page(), episode("x", "y"))) == (
        "RULES\nSTART o0\nREVIEW 1:x>o1 2:y>o2\nIT lost\nREFLECT"
    )


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("reflection", "MEMORY [1 lost | r one] [2 drew | ]"),
        ("trajectory", "MEMORY [1 lost | a>o1 b>o2] [2 drew | c>o1]"),
        ("both", "MEMORY [1 lost | a>o1 b>o2 | r one] [2 drew | c>o1 | ]"),
        ("none", ""),
    ],
)
def test_each_memory_mode_holds_exactly_its_own_oldest_first(mode, wanted):
    assert memory_text(PAST[:2], MemoryMode(mode), WORDING) == wanted
    assert memory_text([], MemoryMode(mode), WORDING) == ""
    shown = text(play_messages(page(mode), PAST[:2], episode()))
    assert shown == "\n".join(part for part in ("RULES", "START o0", wanted, "PLAY") if part)


def test_memory_says_won_lost_or_drawn():
    ended = [episode(outcome=outcome, remark="r") for outcome in Outcome]
    said = memory_text(ended, MemoryMode.REFLECTION, WORDING)
    assert said.split(" ", 1)[1] == ("[1 won | r] [2 lost | r] [3 drew | r] [4 lost | r] [5 lost | r] [6 lost | r]")


def test_a_heading_that_is_empty_leaves_no_gap():
    bare = page(memory_heading="", history_heading="", initial="")
    assert text(play_messages(bare, PAST[:1], episode("x"))) == "RULES\n[1 lost | r one]\n1:x>o1\nPLAY"
    assert text(play_messages(bare, [], episode())) == "RULES\nNOW o0\nPLAY"


def test_without_memory_a_retry_reads_what_the_first_attempt_read():
    assert play_messages(page("none"), PAST[:2], episode()) == play_messages(page("none"), [], episode())


def test_history_is_the_last_turns_with_their_numbers_and_older_observations_shortened():
    shown = text(play_messages(page(), [], episode(*"abcdefg")))
    assert "HISTORY 4:d>~4 5:e>~5 6:f>o6 7:g>o7\n" in shown
    review = text(reflect_messages(page(), episode(*"abcdefg")))
    assert "REVIEW 2:b>~2 3:c>~3 4:d>~4 5:e>o5 6:f>o6 7:g>o7\n" in review


def test_actions_are_never_shortened():
    shown = text(reflect_messages(page(reflect_full_observations=0, reflect_history_turns=50), episode(*"abcdefg")))
    assert all(f":{action}>" in shown for action in "abcdefg")


def test_dropping_takes_the_oldest_entries_first_and_the_newest_observation_stays():
    current = episode(*"abcdefg")
    assert longest_drop(current, 4) == 4 and longest_drop(episode("a"), 4) == 1
    shown = [text(play_messages(page(), [], current, drop=drop)) for drop in range(5)]
    assert "HISTORY 5:e>~5 6:f>o6 7:g>o7" in shown[1]
    assert "HISTORY 7:g>o7" in shown[3]
    assert shown[4] == "RULES\nSTART o0\nNOW o7\nPLAY"
    assert [len(one) for one in shown] == sorted((len(one) for one in shown), reverse=True)
    assert text(reflect_messages(page(), current, drop=6)) == "RULES\nSTART o0\nNOW o7\nIT lost\nREFLECT"


@pytest.mark.parametrize(
    "changes", [{"full_observations": 0}, {"history_turns": 0}, {"history_entry": "{number}:{action}"}]
)
def test_the_newest_observation_is_on_the_page_in_full_whatever_the_windows(changes):
    assert "o3" in text(play_messages(page(**changes), [], episode(*"abc")))
    changes = {f"reflect_{name}" if name != "history_entry" else name: value for name, value in changes.items()}
    assert "o3" in text(reflect_messages(page(**changes), episode(*"abc")))


def test_the_newest_observation_is_shown_once():
    for current in (episode(), episode("a"), episode(*"abc")):
        newest = current.final_observation
        assert text(play_messages(page(), [], current)).split().count(newest) <= 1
        assert text(play_messages(page(), [], current)).count(newest) == 1


def test_what_the_agent_thought_is_on_no_page():
    for mode in MODES:
        shown = text(play_messages(page(mode), PAST[:2], episode("x"))) + text(reflect_messages(page(mode), PAST[0]))
        assert "THOUGHT" not in shown


def test_a_reflection_reads_its_own_attempt_only():
    shown = text(reflect_messages(page("both"), episode("x")))
    assert "MEMORY" not in shown and "r one" not in shown


def test_braces_and_tags_in_observations_and_remarks_are_taken_as_they_are():
    odd = episode("{x}", remark="{number} %s {} \\n")
    odd.final_observation = "{observation} <action>"
    assert "[1 lost | {number} %s {} \\n]" in text(play_messages(page(), [odd], episode()))
    assert "1:{x}>{observation} <action>" in text(reflect_messages(page(), odd))


def test_listed_actions_stand_before_the_request_and_an_empty_text_hides_them():
    shown = text(play_messages(page(admissible="MAY {actions}"), [], episode(), ["up", "down"]))
    assert shown == "RULES\nSTART o0\nMAY up\ndown\nPLAY"
    assert text(play_messages(page(admissible=""), [], episode(), ["up"])) == "RULES\nSTART o0\nPLAY"


def test_building_a_page_changes_nothing_and_gives_the_same_page_again():
    past, current = [episode("a", remark="r")], episode("x")
    before = repr(past), repr(current)
    assert play_messages(page("both"), past, current) == play_messages(page("both"), past, current)
    assert (repr(past), repr(current)) == before


# ---- nothing hidden is on a page -----------------------------------------------------------------------------


def twins():
    """Pairs of boards that look the same at the start, share a mine, and differ in another: (seed, seed, mine)."""
    groups = {}
    for seed in range(1500):
        game = draw_game(seed, size=SIZE, mines=MINES)
        groups.setdefault(board_text(game), []).append((seed, game.mines))
    for boards in groups.values():
        for (one, mines), (other, others) in combinations(boards[:4], 2):
            if mines != others and mines & others:
                yield one, other, min(mines & others)


@pytest.mark.parametrize("wording", ["paper", "compact"])
def test_two_boards_that_look_alike_have_the_same_pages_wherever_their_other_mines_are(wording):
    pairs = list(twins())[:25]
    assert len(pairs) == 25
    for one, other, mine in pairs:
        hit = f"<action>({mine // SIZE + 1}, {mine % SIZE + 1})</action>"
        for memory in MODES:
            seen = []
            for seed in (one, other):
                env = Minesweeper(size=SIZE, mines=MINES, wording=wording)
                config = TrialConfig(num_episodes=2, memory=memory, env_timeout_s=None)
                runner, pages = TrialRunner(lambda env=env: env, seed, 0, config), []
                while not runner.done:
                    pages.append(runner.messages())
                    said = "<remark>unlucky</remark>" if runner.reflecting else hit
                    runner.receive((1,), answer(said))
                seen.append(pages)
            assert seen[0] == seen[1] and len(seen[0]) == (3 if memory in ("reflection", "both") else 2)


@pytest.mark.parametrize("wording", ["paper", "compact"])
@pytest.mark.parametrize("memory", MODES)
def test_no_mine_is_on_a_page_before_the_game_shows_it(wording, memory):
    for seed in range(40):
        env = Minesweeper(size=SIZE, mines=MINES, wording=wording)
        game = draw_game(seed, size=SIZE, mines=MINES)
        hidden = [f"({mine // SIZE + 1}, {mine % SIZE + 1})" for mine in game.mines if mine]  # (1, 1) is in the rules
        config = TrialConfig(num_episodes=2, max_turns=2, memory=memory, env_timeout_s=None)
        runner = TrialRunner(lambda env=env: env, seed, 0, config)
        safe = sorted(set(range(SIZE * SIZE)) - game.mines - game.opened)[0]
        rules = env.describe()
        while not runner.done:
            (message,) = runner.messages()
            own = message["content"].removeprefix(rules)
            assert not any(cell in own for cell in hidden) and "*" not in own
            said = f"<action>({safe // SIZE + 1}, {safe % SIZE + 1})</action>"
            runner.receive((1,), answer("<remark>x</remark>" if runner.reflecting else said))


def test_the_rules_say_nothing_about_one_task():
    for make_env, _ in WORLDS.values():
        env = make_env()
        before = env.describe()
        for seed in range(5):
            env.reset(seed=seed)
            assert env.describe() == before


def test_two_doors_has_the_same_pages_wherever_the_prize_is_until_a_door_is_opened():
    winners = [seed for seed in range(8) if prize(seed) == "A"], [seed for seed in range(8) if prize(seed) == "B"]
    pages = [pages_of(TwoDoors(), ["hm"] * 9, "both", seed=seeds[0]) for seeds in winners]
    assert pages[0] == pages[1] and len(pages[0]) == 11


def prize(seed):
    env = TwoDoors()
    env.reset(seed=seed)
    return "A" if env.step("A").info["success"] else "B"
