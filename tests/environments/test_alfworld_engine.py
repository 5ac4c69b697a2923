"""The interpreter of game files: PDDL and grammars by hand, TextWorld's own play recorded and live, broken texts."""

import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import alfworld_engine as engine
import pytest

from metarl_agents.environments.alfworld.game import NOTHING_HAPPENS, Game, GameFile, display_names, read_script
from metarl_agents.environments.alfworld.gamefile import save_game
from metarl_agents.environments.alfworld.generator import draw_game, draw_house, write_game
from metarl_agents.environments.alfworld.pddl import And, Atom, Not, read_domain, read_problem
from metarl_agents.environments.alfworld.tables import TASKS

ALL = tuple(TASKS)

DOMAIN = """
(define (domain toy)   ; a comment (with a parenthesis
  (:types agent place box)
  (:action go
    :parameters (?a - agent ?from ?to - place)
    :precondition (and (At ?a ?from) (not (= ?from ?to)) (not (barred ?to)))
    :effect (and (not (at ?a ?from)) (at ?a ?to) (increase (total-cost) 1)))
  (:action stay
    :parameters (?a - agent ?p - place)
    :precondition (at ?a ?p)
    :effect (at ?a ?p))
  (:action press
    :parameters (?a - agent ?b - box ?p - place)
    :precondition (and (at ?a ?p) (or (in ?b ?p) (exists (?q - nowhere, ?r - place) (in ?b ?r))))
    :effect (and (when (lit ?b) (not (lit ?b))) (when (not (lit ?b)) (lit ?b)) (pressed ?b)))
  (:action hide
    :parameters (?b - box ?p - place)
    :precondition (in ?b ?p)
    :effect (not (in ?b ?p))))
"""

PROBLEM = """
(define (problem one) (:domain toy)
  (:objects me - agent p_bar_1 p_bar_2 p_bar_3 - place box_bar_1 box_bar_2 - box)
  (:init (at me p_bar_1) (in box_bar_1 p_bar_1) (in box_bar_2 p_bar_2) (barred p_bar_3) (= (total-cost) 0))
  (:goal (exists (?b - box ?c - box) (and (not (= ?b ?c)) (lit ?b) (pressed ?c)))))
"""

GRAMMAR = '''
grammar :: """
{
  "intro": [{"rhs": "  \\n#all#. #pair#. GOAL"}],
  "all": [{"rhs": "See [{b.definite + ' ' + b.name | in(b:box, p:place)}]"}],
  "pair": [
    {"condition": "in(b:box, p:place) & in(c:box, q:place)", "rhs": "two: {b.name + '/' + c.name | in(b:box, p:place) & in(c:box, q:place)}"},
    {"rhs": "not two"}
  ],
  "gone": [
    {"condition": "not_in(b:box, p:place)", "rhs": "{#box(b)# | not_in(b:box, p:place)} is gone"},
    {"rhs": "none gone"}
  ],
  "box(b)": [{"rhs": "({b.name or b.id})"}, {"rhs": "never"}],
  "list_empty": [{"rhs": "nothing"}],
  "list_separator": [{"rhs": ", "}],
  "list_last_separator": [{"rhs": " and "}]
}
""";
action go { template :: "go [{to.name | at(a:agent, from:place)}]"; feedback :: "at {to.name}. \\n#pair#"; }
action stay { template :: "stay at {p}"; feedback :: "stayed"; }
action press {
    template :: "press {b}";
    feedback :: "#pressed#";
    grammar :: """
    {
      # a line to be skipped
      "pressed": [{"condition": "lit(b:box)", "rhs": "on } cut off here"}, {"rhs": "off"}]
    }
    """;
}
action hide { template :: "hide {b}"; feedback :: "#gone#, #all#"; }
'''


def toy(**texts):
    return Game(
        read_script(GameFile(**{"domain": DOMAIN, "problem": PROBLEM, "grammar": GRAMMAR, **texts}, task_type="toy"))
    )


# Hand-made texts.


def test_pddl_is_read_as_written():
    go, _, press, _ = read_domain(DOMAIN)
    assert go.parameters == (("?a", "agent"), ("?from", "place"), ("?to", "place"))
    assert go.precondition == And(
        (
            Atom("at", ("?a", "?from")),
            Not(Atom("=", ("?from", "?to")), ("?from", "?to")),
            Not(Atom("barred", ("?to",)), ("?to",)),
        )
    )
    assert [(e.adds, e.condition is None) for e in go.effects] == [(False, True), (True, True)]
    assert [(e.adds, e.condition is None) for e in press.effects] == [(False, False), (True, False), (True, True)]
    problem = read_problem(PROBLEM)
    assert len(problem.facts) == 4 and problem.types["box_bar_2"] == "box"


def test_commands_are_what_the_actions_allow():
    game = toy()
    # "stay" changes nothing, place 3 is barred, and box 2 is elsewhere (the type "nowhere," has no things).
    # Ids count downwards: p_bar_1 is "p 3".
    game.restart()
    assert game.admissible == ["go p 2", "hide box 1", "hide box 2", "press box 2"]
    assert not game.won


def test_texts_are_expanded_as_the_grammar_says():
    game = toy()
    # Rows come in the order of their ids; blank space in front of a right-hand side is swallowed, " and " included.
    # Different variables stand for different things.
    assert game.restart() == "See the box 2and the box 1. two: box 2/box 1box 1/box 2. GOAL"
    # Places 1 and 2 are `from` and `to` here, so no other variable may stand for them.
    assert game.play("go p 2") == "at p 2. \nnot two"
    assert game.play(" press box 1 ") == "on "
    assert game.play("press box 1") == "off"
    # The box and the place are bound here, so the list holds that box in that place alone.
    assert game.play("hide box 2") == "(box 2) is gone, See nothing"
    assert game.play("hide box 1") == "(box 1) is gone, See nothing"


def test_a_state_is_won_when_the_goal_holds_and_conditions_look_at_the_state_before():
    game = toy()
    game.restart()
    assert game.play("press box 2") == "on " and not game.won
    game.play("go p 2")
    assert game.play("press box 1") == "on " and game.won
    assert game.play("press box 1") == "off" and game.won  # pressed stays, and the other one is lit
    assert game.restart().endswith("GOAL") and not game.won


def test_unknown_commands_change_nothing():
    game = toy()
    game.restart()
    before = list(game.admissible)
    for command in ("", "dance", "go p 3", "GO P 2", "press box 1", "stay at p 3", "\ud800"):
        assert game.play(command) == NOTHING_HAPPENS and game.admissible == before


def test_names_count_downwards_and_basins_are_named_so():
    names = display_names(
        ["sink_bar_1_bar_sinkbasin", "sink_bar_2_bar_sinkbasin", "sink_bar_3", "me", "a_minus_b_bar_0"]
    )
    assert names["sink_bar_1_bar_sinkbasin"] == "sinkbasin 2" and names["sink_bar_2_bar_sinkbasin"] == "sinkbasin 1"
    assert names["sink_bar_3"] == "sink 1" and names["me"] == "me " and names["a_minus_b_bar_0"] == "a-b 1"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"domain": "(define (domain d))"}, "no actions"),
        ({"domain": DOMAIN + ")"}, "parenthesis too many"),
        ({"domain": DOMAIN.rstrip()[:-1]}, "never closed"),
        ({"domain": DOMAIN.replace("exists", "forall")}, "forall"),
        ({"domain": "oops"}, "define"),
        ({"problem": PROBLEM.replace(":goal", ":aim")}, "no :goal"),
        ({"problem": PROBLEM.replace("(at me", "(at you")}, "you"),
        ({"problem": PROBLEM.replace("(at me p_bar_1)", "(at me)")}, "at has 1 arguments in a fact, 2"),
        ({"grammar": GRAMMAR.replace("action hide", "action seek")}, "hide has no text"),
        ({"grammar": GRAMMAR.replace('"gone"', '"lost"')}, "gone is missing"),
        ({"grammar": GRAMMAR.replace('"never"', '"#box(b)#"')}, "made of itself"),
        ({"grammar": GRAMMAR.replace('"rhs": "never"', '"rhs": 3')}, "not a list of rules"),
        ({"grammar": GRAMMAR.replace('"list_empty": [', '"list_empty": [,')}, "not JSON"),
        ({"grammar": GRAMMAR.replace("{to.name}", "{to.name.upper()}")}, "expression"),
        ({"grammar": GRAMMAR.replace("{to.name}", "{__import__('os').getcwd()}")}, "expression"),
        ({"grammar": GRAMMAR.replace('"  \\n#all#', '"{b.name}')}, "stands for nothing"),
    ],
)  # fmt: skip
def test_broken_texts_are_refused_with_the_reason(texts, message):
    assert all(texts[name] != {"domain": DOMAIN, "problem": PROBLEM, "grammar": GRAMMAR}[name] for name in texts)
    with pytest.raises(ValueError, match=message):
        toy(**texts)


def test_mangled_texts_raise_value_errors_only():
    game, _ = draw_game(3, split="train", tasks=ALL, size="small", rules="own")
    rng = random.Random(0)
    outcomes = set()
    for _ in range(250):
        texts = {"domain": game.domain, "problem": game.problem, "grammar": game.grammar}
        name = rng.choice(list(texts))
        text, at = texts[name], rng.randrange(len(texts[name]))
        texts[name] = rng.choice([text[:at], text[:at] + rng.choice('()#{}|"[]?-;,') + text[at + 1 :], text[at:]])
        try:
            read_script(GameFile(**texts, task_type=game.task_type))
            outcomes.add("read")
        except ValueError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


# TextWorld's own engine.


def compare(game, rows, where):
    """Play a recording again; every answer, every list of commands and every win must be the engine's."""
    for command, answer, digest, won in rows:
        said = game.restart() if command is None else game.play(command)
        assert (said, engine.digest(game.admissible), game.won) == (answer, digest, won), (where, command)
    return len(rows) - 1


def test_recorded_play_of_the_engine_is_played_again_to_the_letter():
    recorded = json.loads(engine.RECORDED.read_text())
    houses = engine.recorded_houses()
    assert len(recorded) == len(houses)
    steps = 0
    for (split, task, size, seed), rows in zip(houses, recorded, strict=True):
        house = draw_house(seed, split=split, tasks=(task,), size=size)
        steps += compare(Game(read_script(write_game(house, "own", seed))), rows, task)
    assert steps > 150 and any(rows[-1][3] for rows in recorded)


def needs(*packages):
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: needs the extra `alfworld`, on Python 3.12 or older.")


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["own", "alfworld"])
def test_live_play_of_the_engine_is_the_same(rules, tmp_path):
    needs("textworld", "fast_downward", "alfworld")
    for seed in range(20):
        size = "full" if seed % 4 == 0 else "small"
        task = ALL[seed % len(ALL)]
        house = draw_house(seed, split="train", tasks=(task,), size=size)
        save_game(house, rules, seed, tmp_path / "data", "train")
    script = Path(engine.__file__)
    out = tmp_path / "out.json"
    subprocess.run([sys.executable, script, tmp_path / "data", out, "100"], check=True, capture_output=True)
    played = json.loads(out.read_text())
    steps = 0
    for path, rows in played.items():
        data = json.loads(Path(path).read_text())
        game = GameFile(data["pddl_domain"], data["pddl_problem"], data["grammar"], task_type="any")
        steps += compare(Game(read_script(game)), rows, path)
    print(f"{steps} steps of {len(played)} games ({rules} rules) are the engine's")
    assert len(played) == 20 and steps >= 1000


def test_our_rules_are_those_of_the_installed_package():
    needs("alfworld")
    kept = os.environ.get("ALFWORLD_DATA")
    rng = random.Random(0)
    for seed in range(12):
        house = draw_house(seed, split="train", tasks=ALL, size="small" if seed % 2 else "full")
        ours, theirs = (Game(read_script(write_game(house, rules, seed))) for rules in ("own", "alfworld"))
        assert ours.restart() != theirs.restart()
        for _ in range(100):
            assert (ours.admissible, ours.won) == (theirs.admissible, theirs.won)
            command = engine.choose(ours.admissible, rng)
            ours.play(command), theirs.play(command)
    assert os.environ.get("ALFWORLD_DATA") == kept, "reading the package's files must not import it"


def test_it_is_fast():
    steps = seconds = 0
    for seed in range(8):
        game, _ = draw_game(seed, split="train", tasks=ALL, size="full", rules="own")
        play, rng = Game(read_script(game)), random.Random(seed)
        play.restart()
        # Time of this process alone, so that a crowded machine does not fail.
        start = time.process_time()
        for _ in range(200):
            play.play(rng.choice(play.admissible))
        steps, seconds = steps + 200, seconds + time.process_time() - start
    print(f"ALFWorld: {steps / seconds:.0f} steps a second of CPU time in full-size rooms, first visits")
    assert steps / seconds > 500
