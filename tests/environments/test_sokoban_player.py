"""The hasty Sokoban player: systematic mistakes, which its own remarks cure."""

import random

import pytest

from metarl_agents.environments.sokoban import Sokoban
from metarl_agents.environments.sokoban.player import SokobanPlayer
from metarl_agents.environments.sokoban.solver import solver_of
from metarl_agents.environments.sokoban.text import XSB, compact_text, paper_text, read_room, room_of
from metarl_agents.types import Episode, Phase, Response, Turn


def position(*lines):
    """A position in XSB signs, with walls laid around it."""
    return room_of([list(line) for line in lines], XSB)


def hasty(**settings):
    return SokobanPlayer(**({"plan": 0, "hasty": 1, "blunder": 0} | settings))


def attempt(env, player, remarks, seed):
    """Play one attempt from the start; return the finished episode and whether it was won."""
    observation, _ = env.restart()
    episode, rng = Episode(observation, final_observation=observation), random.Random(seed)
    player.start_episode(list(remarks), rng)
    won = False
    while len(episode.turns) < 7 and not won:
        seen = episode.final_observation
        action = env.parse_action(player.act(seen, rng))
        result = env.step(action)
        episode.turns.append(Turn(Phase.PLAY, seen, (), Response((), ""), action, "", result.reward))
        episode.final_observation, won = result.observation, result.info["success"]
        if result.terminated:
            break
    return episode, won


@pytest.mark.parametrize("show", [paper_text, compact_text])
@pytest.mark.parametrize(
    ("lines", "moves"),
    [
        (("@$ .",), "right, right"),  # up to the target, and not beyond it
        (("@  ", " $ ", "  ."), "right, down, left"),  # equally near pushes: the direction named first
        (("@     ", "  $  .", "      "), "down, right, right"),
        (("@   ", "  $ ", "  . ", "  * "), "right, right, down"),  # the box that is there stays
        (("$  @", "    ", "   ."), "left, left"),  # in a corner nothing brings the box closer: a stroll instead
    ],
)
def test_haste_makes_the_nearest_push_that_brings_a_box_closer(show, lines, moves):
    player, rng = hasty(), random.Random(0)
    answers = {player.act(show(position(*lines)), rng) for _ in range(30)}
    if lines[0].startswith("$"):
        assert len(answers) > 1
    else:
        assert answers == {f"<action>{moves}</action>"}


def test_haste_falls_for_the_same_trap_again_and_a_heeded_remark_keeps_it_away():
    env, traps, again, saved = Sokoban(boxes=2, min_moves=12), 0, 0, 0
    for seed in range(30):
        env.reset(seed=seed)
        episode, won = attempt(env, hasty(heed=0), [], 1)
        room, first = read_room(episode.final_observation)
        if won or not solver_of(room.layout).is_stuck(room):
            continue
        traps += 1
        remark = hasty().reflect(episode, random.Random(0)).removeprefix("<remark>").removesuffix("</remark>")
        # Where no push brings a box closer, it strolls; so not every attempt is the same to the last move.
        again += attempt(env, hasty(heed=0), [remark], 2)[0].final_observation == episode.final_observation
        heeding, won = attempt(env, hasty(heed=1), [remark], 2)
        assert [turn.action for turn in heeding.turns] != [turn.action for turn in episode.turns]
        saved += won
    assert traps > 10 and again > 0.8 * traps and saved > traps / 4


def test_where_haste_would_do_what_a_remark_warns_of_a_plan_takes_its_place():
    # Up is nearer to the target as the crow flies; behind the wall, where the box then stands, it is lost.
    room = position(".#  ", " @$ ", "    ", "####")
    rushed, planned = "down, right, up", "down, right, right"
    assert solver_of(room.layout).shortest(room)[:3] == planned.split(", ")
    seen = compact_text(room)
    for remarks, heed, answer in (
        ([], 1, rushed),
        ([f"avoid {rushed}"], 1, planned),
        (["be faster", f"avoid {rushed}"], 1, planned),
        ([f"avoid {rushed}"], 0, rushed),
        (["avoid down, right"], 1, rushed),
    ):
        player = hasty(heed=heed)
        player.start_episode(remarks, random.Random(0))
        assert player.act(seen, random.Random(0)) == f"<action>{answer}</action>"


def test_haste_is_drawn_turn_by_turn():
    room, rng = compact_text(position("@  ", " $ ", "  .")), random.Random(0)
    player = hasty(hasty=0.5)
    answers = [player.act(room, rng) for _ in range(300)]
    assert 120 < answers.count("<action>right, down, left</action>") < 280 and len(set(answers)) > 3
