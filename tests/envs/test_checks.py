"""A gallery of environments that break one promise each, and the sentence that each one gets."""

import functools
import itertools
import random
import re

import numpy
import pytest

from metarl_agents.envs import Environment, check_environment, registered, resolve
from metarl_agents.envs.parsing import last_tag
from metarl_agents.errors import EnvironmentContractError
from metarl_agents.types import StepResult

numbers = itertools.count()


class Guess(Environment):
    """A sound one: guess a number below 4; three guesses."""

    def reset(self, *, seed):
        self.seed, self.left = seed, 3
        self.secret = random.Random(seed).randrange(4)
        return f"Guess a number below 4, task {seed % 7}.", {"admissible_actions": list("0123")}

    def step(self, action):
        if self.left == 0:
            raise RuntimeError("over")
        self.left -= 1
        won = action == str(self.secret)
        self.left = 0 if won else self.left
        info = {"success": won, "admissible_actions": list("0123")}
        return ("yes" if won else "no"), 10.0 * won, self.left == 0, False, info


class Unlisted(Guess):
    """Sound, and its actions have to be guessed."""

    def reset(self, *, seed):
        return super().reset(seed=seed)[0], {}

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {"success": info["success"]}


class Changed(Guess):
    """Lets a subclass replace single parts of what `step` returns."""

    parts = {}

    def step(self, action):
        names = ("observation", "reward", "terminated", "truncated", "info")
        return tuple(self.parts.get(name, value) for name, value in zip(names, super().step(action), strict=True))


class Seedless(Guess):
    def reset(self, *, number=0):
        return super().reset(seed=number)


class BareReset(Guess):
    def reset(self, *, seed):
        return super().reset(seed=seed)[0]


class NumberReset(Guess):
    def reset(self, *, seed):
        return numpy.zeros(3), super().reset(seed=seed)[1]


class RaisingReset(Guess):
    def reset(self, *, seed):
        raise FileNotFoundError("rooms.txt")


class Fickle(Guess):
    def reset(self, *, seed):
        return super().reset(seed=seed)[0] + str(next(numbers)), {}


class FickleSteps(Guess):
    def step(self, action):
        observation, *rest = super().step(action)
        return (observation + str(next(numbers)), *rest)


class GlobalRandom(Guess):
    def reset(self, *, seed):
        return super().reset(seed=seed)[0] + f" Wind {random.random()}.", {}


class GlobalNumpy(Guess):
    def step(self, action):
        observation, *rest = super().step(action)
        return (observation + str(numpy.random.random()), *rest)


class Continuing(Guess):
    """Its generator lives on from task to task."""

    def __init__(self):
        self.rng = random.Random(0)

    def reset(self, *, seed):
        return super().reset(seed=seed)[0] + str(self.rng.random()), {}


class Carrying(Guess):
    """Something of the task before is left on the object."""

    def reset(self, *, seed):
        before = self.seed or 0
        return super().reset(seed=seed)[0] + f" Before: {before}.", {}


class Shared(Guess):
    """Keeps its state on the class."""

    def reset(self, *, seed):
        answer = super().reset(seed=seed)
        Shared.current = seed
        return answer

    def step(self, action):
        observation, *rest = super().step(action)
        return (f"{observation} in task {Shared.current}", *rest)


class SharedBoard(Guess):
    """Keeps its board in a list of the class, which each object empties when it begins."""

    board = []

    def reset(self, *, seed):
        self.board.clear()
        return super().reset(seed=seed)

    def step(self, action):
        self.board.append(action)
        observation, *rest = super().step(action)
        return (f"{observation} after {' '.join(self.board)}", *rest)


module_generator = random.Random()


class ModuleGenerator(Guess):
    """Draws from one generator, which `reset` seeds: alone, all is as it should be."""

    def reset(self, *, seed):
        module_generator.seed(seed)
        return super().reset(seed=seed)

    def step(self, action):
        observation, *rest = super().step(action)
        return (f"{observation} {module_generator.random()}", *rest)


@functools.cache
def cached_level(seed):
    return {"visits": 0}


class CachedLevel(Guess):
    """Two objects that play the same task hold the same level; other tasks do not matter."""

    def reset(self, *, seed):
        self.level = cached_level(seed)
        self.level["visits"] = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.level["visits"] += 1
        observation, *rest = super().step(action)
        return (f"{observation} {self.level['visits']}", *rest)


class SharedDefault(Guess):
    def __init__(self, seen=[]):  # noqa: B006
        self.seen = seen

    def reset(self, *, seed):
        self.seen.clear()
        return super().reset(seed=seed)

    def step(self, action):
        self.seen.append(action)
        observation, *rest = super().step(action)
        return (f"{observation} {len(self.seen)}", *rest)


class SharedRestart(Guess):
    """Only `restart` reads what the class holds."""

    def reset(self, *, seed):
        SharedRestart.newest = seed
        return super().reset(seed=seed)

    def restart(self):
        return super().reset(seed=SharedRestart.newest)


class BleedingRestart(Guess):
    """Only `restart` writes what the class holds."""

    again = 0

    def reset(self, *, seed):
        type(self).again = 0
        return super().reset(seed=seed)

    def restart(self):
        answer = super().reset(seed=self.seed)
        type(self).again = self.seed + 1
        self.mine = type(self).again
        return answer

    def step(self, action):
        observation, *rest = super().step(action)
        is_mine = type(self).again in (0, getattr(self, "mine", 0))
        return (observation if is_mine else "a stranger", *rest)


class Counting(Guess):
    """Sound: what it keeps on the class has no effect."""

    played = 0
    levels = {}

    def reset(self, *, seed):
        type(self).played += 1
        self.levels[seed] = seed
        return super().reset(seed=seed)


class OtherRestart(Guess):
    def restart(self):
        return "Guess again.", {}


class LateRestart(Guess):
    def restart(self):
        return super().reset(seed=self.seed)[0] if self.left else "not now", {}


class ForgetfulRestart(Guess):
    """Shows the same observation, but hides another number."""

    def restart(self):
        answer = super().restart()
        self.secret += 1
        return answer


class NoSeedKept(Guess):
    def reset(self, *, seed):
        answer = super().reset(seed=seed)
        self.seed = None
        return answer


class FourTuple(Guess):
    def step(self, action):
        return super().step(action)[:4]


class Endless(Guess):
    def step(self, action):
        return "no", 0.0, False, False, {"success": False}


class Mute(Guess):
    def step(self, action):
        return "no", 0.0, False, False, {}


class Answering(Guess):
    def step(self, action):
        return "no", 0.0, True, False, {"success": False}


class RaisingStep(Guess):
    def step(self, action):
        raise KeyError(action)


class RaisingParser(Guess):
    def parse_action(self, text):
        return re.search("<action>(.*)</action>", text)[1]


class RandomParser(Guess):
    def parse_action(self, text):
        return random.random()


class GreedyParser(Guess):
    def parse_action(self, text):
        return text.removeprefix("<action>").removesuffix("</action>")


class MeddlingParser(Guess):
    def parse_action(self, text):
        self.secret = len(text) % 4
        return super().parse_action(text)


class DeafParser(Guess):
    def parse_action(self, text):
        return None


class UnlistedDeafParser(Unlisted):
    def parse_action(self, text):
        return None


class Silent:
    """A player that says nothing usable."""

    def start_episode(self, remarks, rng):
        pass

    def act(self, observation, rng):
        return "hm"


class SilentPlayer(Unlisted):
    def player(self):
        return Silent()


class Describing(Guess):
    def describe(self):
        return f"The secret is {getattr(self, 'secret', '?')}."


class DescribingNothing(Guess):
    def describe(self):
        return None


class OtherWording(Guess):
    wording = "short"


class Stranger:
    """Not a subclass, and lacks `restart`."""

    def describe(self):
        return ""

    def reset(self, *, seed):
        return "", {}

    def parse_action(self, text):
        return None

    def step(self, action):
        return "", 0.0, True, False, {"success": True}


def changed(**parts):
    return type("Odd", (Changed,), {"parts": parts})


GALLERY = [
    (Seedless, "Seedless.reset(*, number=0) does not accept the keyword `seed`"),
    (BareReset, "BareReset.reset(seed=0) returned 'Guess a number below 4, task 0.', but a pair (observation, info)"),
    (NumberReset, "NumberReset.reset(seed=0) returned an observation of type ndarray"),
    (RaisingReset, "RaisingReset.reset(seed=0) raised FileNotFoundError: rooms.txt"),
    (Fickle, "Fickle.reset(seed=0) gave two different first observations.\nA group compares trials of one task"),
    (FickleSteps, "FickleSteps.reset(seed=0) led to two different answers to the same actions (turn 1"),
    (GlobalRandom, "It reads a global random generator. Draw from a generator built inside `reset`"),
    (GlobalNumpy, "It reads a global random generator."),
    (Continuing, "Continuing.reset(seed=0) gave two different first observations"),
    (Carrying, "Carrying.reset(seed=0), after another task was played on that object, gave two different"),
    (Shared, "Shared.reset(seed=0), while another object played another task, led to two different answers"),
    (OtherRestart, "OtherRestart.restart(), after an episode, gave two different first observations"),
    (LateRestart, "LateRestart.restart(), after an episode, gave two different first observations"),
    (ForgetfulRestart, "ForgetfulRestart.restart(), after an episode, led to two different answers"),
    (NoSeedKept, "NoSeedKept.restart() raised RuntimeError: NoSeedKept.restart() needs `self.seed`"),
    (FourTuple, "but (observation, reward, terminated, truncated, info) is expected"),
    (changed(observation=None), "an observation of type NoneType, but the model reads text"),
    (changed(reward=None), "returned the reward None, but a finite number is expected"),
    (changed(reward=float("nan")), "returned the reward nan, but a finite number is expected"),
    (changed(reward=float("inf")), "returned the reward inf"),
    (changed(reward="10"), "returned the reward '10'"),
    (changed(terminated=None), "terminated=None and truncated=False, but both must be True or False"),
    (changed(truncated=0), "truncated=0, but both must be True or False"),
    (changed(info=None), "an info of type NoneType, but a dict is expected"),
    (changed(info={}), 'gave no info["success"] at the end of an episode (seed 0'),
    (Mute, 'gave no info["success"] in any step'),
    (changed(info={"success": "yes"}), "info[\"success\"] = 'yes', but True or False is expected"),
    (changed(info={"success": True, "admissible_actions": "up"}), "but a list of texts is expected"),
    (Answering, "Answering.step was called after the end of an episode and answered. It must raise"),
    (RaisingStep, "raised KeyError: "),
    (RaisingParser, "RaisingParser.parse_action('') raised TypeError"),
    (RandomParser, "It must be pure: the text alone decides."),
    (GreedyParser, "GreedyParser.parse_action(\"\") gave '', but an empty answer is no action"),
    (MeddlingParser, "Nor may `parse_action` touch the game."),
    (DeafParser, "DeafParser lists admissible actions, but `parse_action(\"<action>"),
    (UnlistedDeafParser, "UnlistedDeafParser.parse_action accepted no sample answer"),
    (SilentPlayer, "SilentPlayer.parse_action accepted no answer of its player ('hm' was the last)"),
    (Describing, "Describing.describe() changes from task to task"),
    (DescribingNothing, "DescribingNothing.describe() returned None, but a text is expected"),
    (OtherWording, "OtherWording.wording is a str, but `metarl_agents.envs.Wording` is expected"),
    (Stranger, "Stranger has no method `restart`. Subclass `metarl_agents.envs.Environment`"),
]  # fmt: skip


@pytest.mark.parametrize(("make_env", "message"), GALLERY, ids=lambda value: getattr(value, "__name__", ""))
def test_each_broken_promise_gets_its_sentence(make_env, message):
    with pytest.raises(EnvironmentContractError) as caught:
        check_environment(make_env)
    assert message in str(caught.value)


def test_a_builder_that_hands_out_one_object_is_refused():
    only = Guess()
    with pytest.raises(EnvironmentContractError, match="gave the same Guess object"):
        check_environment(lambda: only)


@pytest.mark.parametrize(
    ("make_env", "shared"),
    [
        (Shared, "Shared.current"),
        (SharedBoard, "SharedBoard.board"),
        (ModuleGenerator, "test_checks.module_generator"),
        (CachedLevel, "self.level"),
        (SharedDefault, "a default argument of SharedDefault.__init__"),
        (SharedRestart, "SharedRestart.newest"),
        (BleedingRestart, "BleedingRestart.again"),
    ],
)
@pytest.mark.parametrize("seeds", [(0, 1, 2), (5,)])
def test_what_two_objects_share_is_found_and_named(make_env, shared, seeds):
    with pytest.raises(EnvironmentContractError, match="while another object played (another|the same) task") as caught:
        check_environment(make_env, seeds=seeds)
    assert f"Both objects share `{shared}`" in str(caught.value) or f", `{shared}`" in str(caught.value)


@pytest.mark.parametrize("make_env", [Guess, Unlisted, Counting])
def test_sound_environments_pass(make_env):
    report = check_environment(make_env, seeds=(3, 4))
    assert report.environment == make_env.__name__ and report.seeds == (3, 4)
    assert report.episodes_ended == 2 and report.turns >= 2 and report.warnings == ()


@pytest.mark.parametrize("name", registered())
def test_every_shipped_environment_passes(name):
    assert check_environment(resolve(name)).warnings == ()


def test_numpy_scalars_are_accepted():
    parts = {"reward": numpy.float32(1.5), "truncated": numpy.False_}
    assert check_environment(changed(**parts)).episodes_ended == 3


class Monotonous(Guess):
    def reset(self, *, seed):
        super().reset(seed=0)
        self.seed = seed
        return "Guess.", {"admissible_actions": ["0"]}


class Seeding(Guess):
    """Deterministic, at the expense of everybody else's random numbers."""

    def reset(self, *, seed):
        random.seed(seed)
        return super().reset(seed=seed)


@pytest.mark.parametrize(
    ("make_env", "message"),
    [
        (Monotonous, "The seeds 0, 1, 2 all give the same task"),
        (Endless, "No episode ended within 30 turns"),
        (Seeding, "It moves the global random generators"),
    ],
)
def test_what_is_allowed_but_odd_is_a_warning(make_env, message):
    assert any(message in warning for warning in check_environment(make_env).warnings)


def test_the_check_leaves_the_global_generators_as_they_were():
    states = random.getstate(), numpy.random.get_state()[1].tolist()
    check_environment(Seeding)
    with pytest.raises(EnvironmentContractError):
        check_environment(GlobalNumpy)
    assert states == (random.getstate(), numpy.random.get_state()[1].tolist())


def test_every_built_object_is_closed():
    built, closed = [], []

    class Closing(Guess):
        def __init__(self):
            built.append(self)

        def close(self):
            closed.append(self)

    check_environment(Closing)
    assert built and built == closed


class Maze(Guess):
    """Listed moves lead nowhere; its player knows the way out."""

    def reset(self, *, seed):
        self.seed, self.out = seed, False
        return f"maze {seed}", {"admissible_actions": ["left", "right"]}

    def parse_action(self, text):
        return last_tag(text, "action")

    def step(self, action):
        if self.out:
            raise RuntimeError("over")
        self.out = action == "up"
        return StepResult("a wall", 0.0, self.out, False, {"success": self.out, "admissible_actions": ["left"]})

    def player(self):
        class Guide:
            def start_episode(self, remarks, rng):
                """Nothing to remember."""

            def act(self, observation, rng):
                return "<action>up</action>"

            def reflect(self, episode, rng):
                return "<remark>up</remark>"

        return Guide()


def test_where_listed_actions_lead_nowhere_the_player_shows_the_end():
    report = check_environment(Maze)
    assert report.episodes_ended == 1 and report.warnings == ()


@pytest.mark.parametrize("key", ["success", "invalid", "draw"])
def test_facts_that_are_neither_true_nor_false_are_named(key):
    class Vague(Guess):
        def step(self, action):
            *result, info = super().step(action)
            return *result, info | {key: numpy.array([True, False])}

    with pytest.raises(EnvironmentContractError, match=rf'info\["{key}"\] = array\(\[.*True or False is expected'):
        check_environment(Vague)


@pytest.mark.parametrize(
    ("told", "fine"), [(None, True), (5, True), (numpy.int64(5), True), (0, False), (True, False), (2.5, False)]
)
def test_the_number_of_tasks_is_a_whole_number_above_0_or_none(told, fine):
    class Counted(Guess):
        def num_tasks(self, split):
            return told if split == "test" else None

    if fine:
        check_environment(Counted)
        return
    with pytest.raises(EnvironmentContractError, match=r'num_tasks\("test"\) returned'):
        check_environment(Counted)


@pytest.mark.parametrize("error", [OSError("stuck"), SystemExit(3)])
def test_a_failing_close_is_a_warning_and_hides_no_broken_promise(error):
    class Stuck(Guess):
        def close(self):
            raise error

    class StuckAndSeedless(Stuck, Seedless):
        pass

    (warning,) = check_environment(Stuck).warnings
    assert f"`close` raised {type(error).__name__}: {error}" in warning
    with pytest.raises(EnvironmentContractError, match="does not accept the keyword `seed`"):
        check_environment(StuckAndSeedless)
