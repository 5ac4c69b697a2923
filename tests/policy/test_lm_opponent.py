"""A language model in the opponent's seat: what it reads, how it draws, and that many are asked at once."""

import sys
from pathlib import Path
from random import Random

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))

from pennies import FACES, Cautious, Pennies

from metarl_agents.config import TrialConfig
from metarl_agents.environments.tictactoe import TicTacToe
from metarl_agents.envs.games import Decision
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.seeded import RowDraws, generate_seeded
from metarl_agents.rollout import collect_trials
from metarl_agents.rollout.opponents import ModelOpponent, OpponentDesk, OpponentFailure, SeatedEnvironments, SeatedGame
from metarl_agents.types import Outcome, Response

SAMPLING = Sampling(temperature=1.0, max_new_tokens=6)


class Speaker:
    """The agent: says whatever it is told to, and notes what it is asked."""

    def __init__(self, policy, says="x"):
        self.policy, self.says, self.read = policy, says, []

    def encode(self, messages):
        return self.policy.encode(messages)

    def generate(self, prompts, call):
        self.read += prompts
        return [Response(ids=(1,), text=self.says, logprobs=(0.0,)) for _ in prompts]


class Listening(ModelOpponent):
    """Answers from a script and notes the questions."""

    def __init__(self, name, policy, script=("heads",)):
        super().__init__(name, policy, SAMPLING)
        self.script, self.waves, self.pages = list(script), [], []

    def answer(self, questions):
        self.waves.append(len(questions))
        self.pages += [self.policy.decode(self._prompt(question)) for question in questions]
        return [self.script[len(question.episode.turns) % len(self.script)] for question in questions]


def trial_config(**settings):
    return TrialConfig(**({"num_episodes": 1, "max_turns": 12, "stop_on_success": False} | settings))


def collect(make_env, speaker, seeds=(1,), group_size=1, **settings):
    config = trial_config(**settings)
    return collect_trials(speaker, make_env, seeds, config, group_size=group_size, max_prompt_tokens=4000)


def test_a_text_is_a_function_of_prompt_and_seed_whoever_else_is_asked(make_policy):
    policy = make_policy("qwen3")
    prompts = [policy.encode([{"role": "user", "content": text}]) for text in ("one", "one two three", "a", "b c")]
    together = generate_seeded(policy, prompts, SAMPLING, [5, 6, 7, 8])
    alone = [generate_seeded(policy, [p], SAMPLING, [s])[0] for p, s in zip(prompts, [5, 6, 7, 8], strict=True)]
    small = Sampling(temperature=1.0, max_new_tokens=6, max_batch_tokens=40)
    assert together == alone == generate_seeded(policy, prompts, small, [5, 6, 7, 8])
    assert len({generate_seeded(policy, prompts[:1], SAMPLING, [seed])[0] for seed in range(6)}) > 3


def test_seeded_sampling_leaves_torchs_random_state_alone(make_policy):
    policy = make_policy("qwen3")
    before = torch.random.get_rng_state()
    generate_seeded(policy, [policy.encode([{"role": "user", "content": "x"}])], SAMPLING, [1])
    assert torch.equal(before, torch.random.get_rng_state())


def test_greedy_sampling_needs_no_dice(make_policy):
    policy = make_policy("qwen3")
    prompt = policy.encode([{"role": "user", "content": "x"}])
    greedy = Sampling(temperature=0.0, max_new_tokens=6)
    assert generate_seeded(policy, [prompt], greedy, [1]) == generate_seeded(policy, [prompt], greedy, [2])
    assert generate_seeded(policy, [prompt], greedy, [1])[0] == policy.generate([prompt], greedy, seed=0)[0].text


def test_row_draws_follow_the_distribution_after_temperature_and_filters():
    scores = torch.tensor([0.6, 0.3, 0.1]).log().repeat(20_000, 1)

    def shares(sampling):
        drawn = RowDraws(sampling, list(range(20_000)))(torch.zeros(20_000, 1, dtype=torch.long), scores)
        assert bool((drawn.isinf().sum(dim=1) == 2).all())
        return torch.bincount(drawn.argmax(dim=1), minlength=3) / 20_000

    assert shares(Sampling()).tolist() == pytest.approx([0.6, 0.3, 0.1], abs=0.02)
    assert shares(Sampling(top_k=2)).tolist() == pytest.approx([2 / 3, 1 / 3, 0], abs=0.02)
    assert shares(Sampling(top_p=0.5)).tolist() == [1, 0, 0]
    assert shares(Sampling(min_p=0.4)).tolist() == pytest.approx([2 / 3, 1 / 3, 0], abs=0.02)
    squared = torch.tensor([0.36, 0.09, 0.01]) / 0.46
    assert shares(Sampling(temperature=0.5)).tolist() == pytest.approx(squared.tolist(), abs=0.02)


def test_a_row_of_certainty_stays_certain_at_every_point_of_the_dice():
    scores = torch.full((500, 4), -torch.inf)
    scores[:, 1] = 3.0
    drawn = RowDraws(Sampling(), list(range(500)))(torch.zeros(500, 1, dtype=torch.long), scores)
    assert set(drawn.argmax(dim=1).tolist()) == {1}


def test_a_model_answers_one_position_like_any_opponent(make_policy):
    model = ModelOpponent("ours", make_policy("llama"), SAMPLING)
    decision = Decision(seat=1, information=(), legal=FACES, observation="odd", rules="Match.", seed=3)
    assert model.act(decision, Random(1)) == model.act(decision, Random(1))
    env = Pennies()
    env.seating = SeatedEnvironments(Pennies, [(model, 0)])()._env.seating
    _, info = env.reset(seed=4)
    assert info["opponent"] == "ours" and info["seat"] == 0
    result = env.step("heads")
    assert len(env._state) == 2 and result.info["opponent_invalid"] == 0


@pytest.mark.parametrize("seat", [0, 1])
def test_the_model_reads_what_the_agent_would_read_in_its_seat_without_memory(make_policy, seat):
    """Two trials that mirror each other: the pages of the opponent in one are the agent's in the other."""
    cells = {0: ["(1, 1)", "(2, 1)", "(3, 2)"], 1: ["(1, 2)", "(2, 2)", "(3, 1)"]}
    other, policy = 1 - seat, make_policy("qwen3", max_position_embeddings=8192)

    class Scripted(Speaker):
        def generate(self, prompts, call):
            self.says = f"<action>{cells[self.seat][min(call, 2)]}</action>"
            return super().generate(prompts, call)

    pages = {}
    for agent_seat in (seat, other):
        speaker = Scripted(policy)
        speaker.seat = agent_seat
        script = [f"I say <action>{cell}</action>" for cell in cells[1 - agent_seat]]
        model = Listening("model", policy, script)
        (trial,) = collect(SeatedEnvironments(TicTacToe, [(model, agent_seat)]), speaker, max_turns=3)
        assert not trial.crashed, trial.error
        pages[agent_seat] = ([policy.decode(prompt) for prompt in speaker.read], model.pages)
    for place in (seat, other):
        agents, models = pages[place][0], pages[1 - place][1]
        assert len(agents) == 3 and agents[: len(models)] == models[: len(agents)]
    assert len(pages[seat][1]) >= 2


def test_all_games_of_a_wave_are_answered_in_one_batch(tiny_policy):
    model = Listening("model", tiny_policy)
    build = SeatedEnvironments(Pennies, [(model, seat) for seat in (0, 0, 0, 1, 1, 1)])
    trials = collect(build, Speaker(tiny_policy), seeds=(1, 2), group_size=3)
    assert not any(trial.crashed for trial in trials)
    # The games in which the model begins are three; then all six ask at each of the agent's moves but the last ones.
    assert model.waves == [3, 6, 6, 3]
    assert build.desk.answers == 18 and build.desk.batches == 4 and build.desk.seconds > 0


def test_two_models_of_a_wave_answer_their_own_games(tiny_policy):
    one, two = Listening("one", tiny_policy, ["heads"]), Listening("two", tiny_policy, ["tails"])
    build = SeatedEnvironments(Cautious, [(one, 0), (two, 0), (one, 0)])
    trials = collect(build, Speaker(tiny_policy, "heads"), seeds=(1, 2, 3))
    assert one.waves == [2, 2, 2] and two.waves == [1, 1, 1]
    assert [trial.opponent for trial in trials] == ["one", "two", "one"]
    assert [trial.episodes[0].outcome for trial in trials] == [Outcome.SUCCESS, Outcome.FAILURE, Outcome.SUCCESS]


def test_scripted_and_learned_opponents_sit_side_by_side(tiny_policy):
    model = Listening("model", tiny_policy)
    build = SeatedEnvironments(Pennies, [(model, 0), (Pennies.find("tails"), 0)])
    assert isinstance(build(), SeatedGame) and isinstance(build(), Pennies)


def test_an_opponent_and_a_seat_last_for_all_episodes_of_a_group(tiny_policy):
    one, two = Listening("one", tiny_policy), Listening("two", tiny_policy)
    build = SeatedEnvironments(Pennies, [(one, 1)] * 3 + [(two, 0)] * 3)
    trials = collect(build, Speaker(tiny_policy), seeds=(1, 2), group_size=3, num_episodes=3)
    assert [(t.group, t.opponent, t.seat) for t in trials] == [(0, "one", 1)] * 3 + [(1, "two", 0)] * 3
    assert all(len(trial.episodes) == 3 for trial in trials)
    moves = 3 * 3 * 3  # trials, episodes, rounds
    assert sum(one.waves) == moves and sum(two.waves) == moves


def test_a_model_that_cannot_answer_ends_its_own_trials_and_is_named(tiny_policy):
    class Broken(Listening):
        def answer(self, questions):
            raise RuntimeError("out of memory")

    good, bad = Listening("good", tiny_policy), Broken("bad", tiny_policy)
    build = SeatedEnvironments(Pennies, [(good, 0), (bad, 0), (bad, 1), (good, 1)])
    trials = collect(build, Speaker(tiny_policy), seeds=(1, 2), group_size=2)
    assert [trial.crashed for trial in trials] == [False, True, True, False]
    assert trials[1].error == f"{OpponentFailure.__name__}: bad could not answer (out of memory)"
    assert trials[1].episodes[0].outcome is Outcome.CRASHED


def test_an_answer_that_is_no_move_becomes_a_random_legal_one_and_is_counted(tiny_policy):
    model = Listening("model", tiny_policy, ["heads or tails", "tails"])
    env = SeatedGame(build_env(model, 1), model, OpponentDesk())
    _, info = env.reset(seed=9)
    assert info["opponent_invalid"] == 1
    assert [turn.shown_action for turn in env._episodes[0].turns] == ["no valid action"]
    assert env.step("heads").info["opponent_invalid"] == 1
    assert [turn.shown_action for turn in env._episodes[0].turns] == ["no valid action", "tails"]


def build_env(model, seat):
    return SeatedEnvironments(Cautious, [(model, seat)])()._env


def test_a_replayed_deal_meets_the_same_draws_of_the_model(make_policy):
    model = ModelOpponent("model", make_policy("qwen3"), SAMPLING)
    trials = [
        collect(SeatedEnvironments(Pennies, [(model, 1)]), Speaker(model.policy), num_episodes=3)[0] for _ in range(2)
    ]
    ends = [episode.final_observation for trial in trials for episode in trial.episodes]
    assert len(ends) == 6 and len(set(ends)) == 1
    (other,) = collect(SeatedEnvironments(Pennies, [(model, 1)]), Speaker(model.policy), seeds=(2,))
    (third,) = collect(SeatedEnvironments(Pennies, [(model, 1)]), Speaker(model.policy), seeds=(3,))
    assert len({*ends, other.episodes[0].final_observation, third.episodes[0].final_observation}) > 1


def test_a_page_that_fits_nowhere_is_answered_by_nothing(tiny_policy):
    model = ModelOpponent("model", tiny_policy, SAMPLING, max_prompt_tokens=3)
    decision = Decision(seat=0, information=(), legal=FACES, observation="even")
    assert model.act(decision, Random(0)) == ""


def test_a_policy_is_loaded_when_it_is_first_asked_and_can_be_forgotten(tiny_policy):
    loads = []
    model = ModelOpponent("model", lambda: loads.append(1) or tiny_policy, SAMPLING)
    assert loads == []
    decision = Decision(seat=0, information=(), legal=FACES, observation="even")
    model.act(decision, Random(0)), model.act(decision, Random(0))
    assert loads == [1]
    model.forget()
    model.act(decision, Random(0))
    assert loads == [1, 1]
