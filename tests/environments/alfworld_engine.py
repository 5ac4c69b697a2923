"""Play saved ALFWorld games in TextWorld's own engine and write down what it says.

    python alfworld_engine.py FOLDER OUT.json STEPS      every game below FOLDER (run by test_alfworld_engine.py)
    python alfworld_engine.py --record                   make alfworld_recorded.json again

It needs the extra `alfworld` and a process of its own: the engine overwrites `sys.argv` and replaces `sys.stdout`.
"""

import hashlib
import json
import os
import random
import sys
import tempfile
from pathlib import Path

RECORDED = Path(__file__).with_name("alfworld_recorded.json")
BUSY = ("take", "open", "move", "heat", "cool", "clean", "use", "slice", "close", "look", "inventory")


def recorded_houses():
    """(split, task, size, seed) of the games in the recording: each task type, small and full, two splits."""
    tasks = ("pick", "look", "clean", "heat", "cool", "pick_two")
    sizes = ("full", "small")
    return [("train" if n % 2 else "valid_unseen", task, sizes[n % 2], 100 + n) for n, task in enumerate(tasks)]


def choose(admissible, rng):
    """A command: often one that changes something, sometimes one that nobody knows."""
    busy = [command for command in admissible if command.split()[0] in BUSY]
    return rng.choice(busy if busy and rng.random() < 0.55 else [*admissible, "dance with mug 1"])


def digest(admissible):
    return hashlib.sha256("\n".join(admissible).encode()).hexdigest()[:16]


def play(path, steps):
    """Return [command, answer, digest of the admissible commands, won] of the start and each step."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    wanted = textworld.EnvInfos(won=True, admissible_commands=True)
    env = textworld.start(str(path), wanted, wrappers=[AlfredDemangler(shuffle=False)])
    state, rng = env.reset(), random.Random(7)
    rows = [[None, state.feedback, digest(state["admissible_commands"]), state["won"]]]
    # One game in five follows its walkthrough to the end, so that wins are compared as well.
    plan = json.loads(path.read_text())["walkthrough"] if int(path.parent.name[-1]) % 5 == 0 else []
    while len(rows) <= steps and not rows[-1][3]:
        command = plan.pop(0) if plan else choose(state["admissible_commands"], rng)
        state, _, _ = env.step(command)
        rows.append([command, state.feedback, digest(state["admissible_commands"]), state["won"]])
    return rows


def record():
    from metarl_agents.environments.alfworld.gamefile import save_game
    from metarl_agents.environments.alfworld.generator import draw_house

    played = []
    with tempfile.TemporaryDirectory() as folder:
        for split, task, size, seed in recorded_houses():
            house = draw_house(seed, split=split, tasks=(task,), size=size)
            played.append(play(save_game(house, "own", seed, Path(folder), split), 60))
    rows = ",\n".join("[\n" + ",\n".join(json.dumps(row) for row in game) + "\n]" for game in played)
    RECORDED.write_text(f"[\n{rows}\n]\n")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home:
        os.environ["ALFWORLD_DATA"] = home  # alfworld makes this folder when it is imported
        if arguments == ["--record"]:
            record()
        else:
            paths = sorted(Path(arguments[0]).glob("**/game.tw-pddl"))
            Path(arguments[1]).write_text(json.dumps({str(path): play(path, int(arguments[2])) for path in paths}))
