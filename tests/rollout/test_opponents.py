"""Models in the opponent's seat: what their histories tell, how a list of opponents is read, who is dealt to a task."""

import importlib.util
import json
import sys
from functools import partial
from pathlib import Path

import pytest

from metarl_agents.config import TrialConfig
from metarl_agents.environments.kuhn import Kuhn
from metarl_agents.environments.matrix_game import MatrixGame
from metarl_agents.envs.factory import environment_factory
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.games import games_record
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.tiny import build_model, build_tokenizer, frequent_pieces
from metarl_agents.rollout import collect_trials
from metarl_agents.rollout.opponent_lists import read_listed
from metarl_agents.rollout.opponents import (
    DealtEnvironments,
    ModelOpponent,
    OpponentDesk,
    SeatedEnvironments,
    SeatedGame,
)
from metarl_agents.rollout.tasks import evaluation_seeds
from metarl_agents.training.demonstrations import pages_and_answers
from metarl_agents.types import Response

KUHN = TrialConfig(env="kuhn", wording="compact", max_turns=4, num_episodes=2, stop_on_success=False)
SAMPLING = Sampling(max_new_tokens=6)


class Says(ModelOpponent):
    """Answers every question with one text, or with an exception, and counts the batches."""

    def __init__(self, name, text):
        super().__init__(name, lambda: pytest.fail("nobody asks the model itself"), SAMPLING)
        self.text, self.waves = text, []

    def answer(self, questions):
        self.waves.append(len(questions))
        if isinstance(self.text, Exception):
            raise self.text
        return [self.text] * len(questions)


class Agent:
    """Answers every prompt with one text."""

    def __init__(self, says="<action>pass</action>"):
        self.says = says

    def encode(self, messages):
        return (1,)

    def generate(self, prompts, call):
        return [Response(ids=(1,), text=self.says, logprobs=(0.0,)) for _ in prompts]


def collect(make_env, seeds, says="<action>pass</action>"):
    return collect_trials(Agent(says), make_env, seeds, KUHN, group_size=1, max_prompt_tokens=100)


# What a model's own history tells.


@pytest.mark.parametrize(
    ("text", "invalid", "shown"),
    [
        ("bet", 0, "bet"),
        ("<action>bet</action>", 0, "bet"),
        ("<action>raise</action>", 1, "no valid action"),
        ("I bet", 1, "no valid action"),
    ],
)
def test_an_opponents_history_tells_the_action_that_the_game_has_played(text, invalid, shown):
    model = Says("model", text)
    env = SeatedGame(SeatedEnvironments(Kuhn, [(model, 0)])().env, model, OpponentDesk())
    env.reset(seed=3)
    result = env.step("pass")
    (turn,) = env._episodes[1].turns
    assert (result.info["opponent_invalid"], turn.shown_action, turn.invalid) == (invalid, shown, bool(invalid))
    if not invalid:
        assert turn.action == "bet" and env.env._state.actions[1] == "bet"


# A list of opponents.


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        ("cfr", ("cfr", 1.0, None)),
        ("cfr=2", ("cfr", 2.0, None)),
        ("self=0.5", ("self", 0.5, None)),
        ("model:runs/kuhn/population/snapshot-50", ("snapshot-50", 1.0, "runs/kuhn/population/snapshot-50")),
        ("model:runs/lr=3e-4/model", ("model", 1.0, "runs/lr=3e-4/model")),
        ("model:org/name=3", ("name", 3.0, "org/name")),
    ],
)
def test_an_entry_has_a_name_a_weight_and_perhaps_a_models_address(entry, read):
    assert read_listed(entry) == read


@pytest.mark.parametrize("weight", ["0", "-1", "inf", "nan"])
def test_a_weight_is_positive(weight):
    with pytest.raises(ConfigError, match="weights must be positive"):
        read_listed(f"cfr={weight}")


# Who is dealt to a task.


def table(*opponents, weights=None, **keywords):
    make_env = partial(Kuhn, wording="compact", **keywords)
    return DealtEnvironments(make_env, opponents, weights or [1.0] * len(opponents))


def test_the_seed_deals_opponent_and_seat_whoever_builds_the_environments_and_in_whatever_order():
    scripted = Kuhn(opponent="aggressive").seating.opponents[0]
    seeds = list(range(40))
    build = table(Says("one", "bet"), scripted, weights=[3.0, 1.0])
    roles = {trial.seed: (trial.opponent, trial.seat) for trial in collect(build, seeds)}
    again = collect(table(Says("one", "bet"), scripted, weights=[3.0, 1.0]), seeds[::-1])
    assert {trial.seed: (trial.opponent, trial.seat) for trial in again} == roles
    names = [name for name, _ in roles.values()]
    assert abs(names.count("one") - 30) <= 2 and [seat for _, seat in roles.values()].count(0) == 20


def test_models_answer_in_batches_and_scripted_opponents_by_themselves():
    one, two = Says("one", "bet"), Says("two", "pass")
    build = table(one, two, Kuhn(opponent="aggressive").seating.opponents[0])
    trials = collect(build, list(range(24)))
    assert not any(trial.crashed for trial in trials) and {trial.opponent for trial in trials} == {
        *("one", "two", "aggressive")
    }
    met = sum(trial.opponent != "aggressive" for trial in trials)
    assert build.desk.answers >= 2 * met > 2 * build.desk.batches
    assert sum(one.waves) + sum(two.waves) == build.desk.answers


def test_scripted_opponents_play_as_they_do_without_a_desk():
    keywords = {"opponents": ["random", "aggressive"], "redraw_deal": True}
    scripted = Kuhn(**keywords).seating.opponents
    plain = collect(partial(Kuhn, wording="compact", **keywords), list(range(30)))
    dealt = collect(table(*scripted, redraw_deal=True), list(range(30)))
    ends = [[[episode.final_observation for episode in trial.episodes] for trial in kind] for kind in (plain, dealt)]
    assert ends[0] == ends[1] and len({str(end) for end in ends[0]}) > 5


def test_an_agents_fixed_seat_is_kept():
    assert {trial.seat for trial in collect(table(Says("one", "bet"), seat="second"), range(6))} == {1}


class Asked(ModelOpponent):
    """A real model that notes what it was asked and what it said."""

    def __init__(self, policy):
        super().__init__("model", policy, Sampling(temperature=1.0, max_new_tokens=6))
        self.said = []

    def answer(self, questions):
        texts = super().answer(questions)
        told = zip(questions, texts, strict=True)
        self.said += [(question.decision.observation, question.seed, text) for question, text in told]
        return texts


@pytest.mark.parametrize("seat", ["first", "second"])
def test_a_redrawn_game_changes_the_draws_of_a_model_and_neither_the_model_nor_the_seat(make_policy, seat):
    config = TrialConfig(max_turns=2, num_episodes=6, stop_on_success=False)
    drawn = {}
    for redraw_deal in (True, False):
        model = Asked(make_policy("qwen3"))
        keywords = {"rounds": 1, "seat": seat, "redraw_deal": redraw_deal, "wording": "compact"}
        build = DealtEnvironments(partial(MatrixGame, **keywords), [model], [1.0])
        agent = Agent("<action>rock</action>")
        (trial,) = collect_trials(agent, build, [4], config, group_size=1, max_prompt_tokens=100)
        assert not trial.crashed and len(trial.episodes) == len(model.said) == 6
        assert (trial.opponent, trial.seat) == ("model", ("first", "second").index(seat))
        assert len({page for page, _, _ in model.said}) == 1, "the same page in every episode"
        drawn[redraw_deal] = {(number, text) for _, number, text in model.said}
    assert len({number for number, _ in drawn[True]}) == 6 and len({text for _, text in drawn[True]}) > 3
    assert len(drawn[False]) == 1, "a replay repeats them"
    assert drawn[False] & drawn[True], "of which the first play is the same either way"


def test_two_opponents_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="one of them twice"):
        table(Says("one", "bet"), Says("one", "pass"))


def test_games_lost_to_a_broken_model_keep_their_role_in_the_record():
    broken = Says("broken", RuntimeError("out of memory"))
    build = table(broken, Says("good", "bet"))
    trials = collect(build, list(range(12)))
    assert {trial.opponent is None for trial in trials if trial.crashed} == {True, False}
    rows = games_record(build, trials, KUHN, 10)["games"]["rows"]
    assert [(row["opponent"], row["seat"]) for row in rows] == [
        (opponent.name, seat) for opponent, seat in map(build().env.seating.of, range(12))
    ]
    assert all(row["endings"] == ["unfinished"] * 2 for row in rows if row["opponent"] == "broken")
    assert all(row["endings"] != ["unfinished"] * 2 for row in rows if row["opponent"] == "good")


# The recipe.


@pytest.fixture
def model(tmp_path):
    """A folder with a model that knows the words of Kuhn poker and nothing else."""
    pages = pages_and_answers(environment_factory(KUHN), evaluation_seeds("validation", 8), KUHN, seed=0)
    tokenizer = build_tokenizer(frequent_pieces(pages))
    Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer).save(tmp_path / "snapshot-50")
    return tmp_path / "snapshot-50"


def evaluate(monkeypatch, model, opponents, *flags):
    file = Path(__file__).parents[2] / "recipes" / "evaluate.py"
    spec = importlib.util.spec_from_file_location("evaluate_recipe_of_opponents", file)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    words = ["--model_name_or_path", str(model), "--env", "kuhn", "--wording", "compact", "--eval_samples", "1"]
    words += ["--eval_tasks", "8", "--max_turns", "2", "--max_new_tokens_per_turn", "4", "--opponents", opponents]
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *words, *flags])
    return recipe.main()


def test_an_evaluation_meets_models_beside_scripted_opponents(model, tmp_path, monkeypatch, capsys):
    file = tmp_path / "result.json"
    assert evaluate(monkeypatch, model, f"model:{model}=3 cfr", "--output", str(file)) == 0
    printed = capsys.readouterr().out
    assert f"kuhn(opponents['model:{model}=3','cfr']),testtasks" in "".join(printed.split())  # lines are broken
    assert "without floor and ceiling: snapshot-50" in printed
    meta = json.loads(file.read_text())["meta"]
    met = [row["opponent"] for row in meta["games"]["rows"]]
    assert meta["opponents"] == [f"model:{model}=3", "cfr"]
    assert met.count("snapshot-50") > met.count("cfr") > 0 and len(met) == 8


def test_an_evaluation_may_meet_models_alone(model, tmp_path, monkeypatch, capsys):
    assert evaluate(monkeypatch, model, f"model:{model}") == 0
    assert "cfr" not in (printed := capsys.readouterr().out) and "snapshot-50" in printed


def test_an_evaluations_opponents_are_refused_in_a_sentence_where_they_do_not_fit(model, monkeypatch):
    for opponents, flags, says in (
        ("self", (), "nobody is trained in an evaluation"),
        ("model:/nowhere", (), "model:/nowhere"),
        ("nobody", (), "nobody"),
        (f"model:{model}", ("--env", "two_doors"), "no game"),
        (f"model:{model} model:/other/snapshot-50", (), "/other/snapshot-50"),
    ):
        with pytest.raises(ConfigError, match=says):
            evaluate(monkeypatch, model, opponents, *flags)
