"""collect_trials: whoever waits is asked together, whoever has ended costs nothing, ids pass through untouched."""

import pytest
from rollout_worlds import Stairs

from metarl_agents.config import TrialConfig
from metarl_agents.envs import Environment
from metarl_agents.policy.sampling import Sampling
from metarl_agents.rollout import PolicySpeaker, collect_trials
from metarl_agents.types import Outcome

ODD = ["hel" + "lo", "😀👩‍👩‍👧", " ", "  \n ", "a\u00a0b\u200b", "(2, 3)(2,3)", "<|nothing|>", "</action><action>"]


def act(word):
    return f"<action>{word}</action>"


def collect(speaker, env=Stairs, *, seeds=(1, 2, 3), group_size=1, limit=10_000, on_wave=None, **settings):
    config = TrialConfig(**{"max_turns": 3, "num_episodes": 2, "env_timeout_s": None, **settings})
    return collect_trials(speaker, env, seeds, config, group_size=group_size, max_prompt_tokens=limit, on_wave=on_wave)


def test_trials_come_in_the_order_group_then_trial_however_long_each_takes(scripted_speaker):
    order = iter(range(10**6))

    def answer(page):
        return act("win" if next(order) % 5 == 0 else "up") if "REFLECT" not in page else "<remark>x</remark>"

    trials = collect(scripted_speaker(answer), seeds=[9, 4, 6], group_size=3)
    assert [(trial.group, trial.seed) for trial in trials] == [(g, s) for g, s in enumerate([9, 4, 6]) for _ in "abc"]
    assert len({len(list(trial.rows())) for trial in trials}) > 1


def test_nothing_is_asked_encoded_or_stepped_for_a_trial_that_has_ended(scripted_speaker):
    logs = {1: [], 2: [], 3: []}
    made = iter(logs.values())

    def answer(page):
        return act("win" if "house 1" in page else "up") if "REFLECT" not in page else "<remark>x</remark>"

    speaker = scripted_speaker(answer)
    collect(speaker, lambda: Stairs(seeds=next(made)))
    assert [len(wave) for wave in speaker.waves] == [3, 2, 2, 2, 2, 2, 2]
    assert len(speaker.encoded) == sum(map(len, speaker.waves))
    assert sum("house 1" in page for page in speaker.encoded) == 1
    assert logs[1] == [("reset", 1), ("step", "win"), ("close", None)]
    assert len(logs[2]) == 2 + 6 + 1


def test_one_trial_reflects_while_its_neighbour_still_plays(scripted_speaker):
    def answer(page):
        if "REFLECT" in page:
            return "<remark>x</remark>"
        return act("lose" if "house 1" in page else "up")

    speaker = scripted_speaker(answer)
    collect(speaker, seeds=[1, 2])
    second = [bytes(prompt).decode() for prompt in speaker.waves[1]]
    assert "REFLECT" in second[0] and "PLAY" in second[1]


def test_calls_are_numbered_so_that_no_two_draw_the_same(scripted_speaker):
    speaker = scripted_speaker(lambda page: act("up"))
    collect(speaker, memory="none")
    assert speaker.calls == sorted(set(speaker.calls)) and len(speaker.calls) == 6


def test_a_wave_in_which_nobody_can_be_asked_asks_nobody(scripted_speaker):
    speaker = scripted_speaker([])
    trials = collect(speaker, limit=3)
    assert speaker.waves == []
    assert all(episode.outcome is Outcome.OUT_OF_CONTEXT for trial in trials for episode in trial.episodes)


def test_no_task_is_no_trial(scripted_speaker):
    speaker = scripted_speaker([])
    assert collect(speaker, seeds=[]) == [] and speaker.waves == []


def test_progress_is_told_after_each_wave(scripted_speaker):
    told = []
    collect(
        scripted_speaker(lambda page: act("win" if "house 1" in page else "up")),
        num_episodes=1,
        on_wave=lambda finished, whole: told.append((finished, whole)),
    )
    assert told == [(1, 3), (1, 3), (3, 3)]


def test_a_model_that_never_finishes_stops_at_max_turns(scripted_speaker):
    speaker = scripted_speaker(lambda page: act("up"))
    trials = collect(speaker, max_turns=4, num_episodes=3, memory="none")
    for trial in trials:
        assert [episode.outcome for episode in trial.episodes] == [Outcome.OUT_OF_TURNS] * 3
        assert [len(episode.turns) for episode in trial.episodes] == [4] * 3
    assert len(speaker.waves) == 12


class Echo(Environment):
    """Answers every move with odd text, and never ends."""

    def reset(self, *, seed):
        self.seed, self.turn = seed, seed
        return ODD[seed % len(ODD)], {}

    def step(self, action):
        self.turn += 1
        return ODD[self.turn % len(ODD)], 0.0, False, False, {}


def assert_ids_passed_through(trials, asked, answered):
    """Each turn holds the very ids that went into and came out of `generate`; nothing was encoded again."""
    kept = [(turn.prompt_ids, turn.response) for trial in trials for _, _, turn in trial.rows()]
    assert len(kept) == len(asked) == len(answered)
    exchanged = list(zip(asked, answered, strict=True))
    assert all(any(p is prompt and r is response for prompt, response in exchanged) for p, r in kept)


def test_ids_of_odd_text_are_those_that_were_exchanged_with_the_model(tiny_policy):
    speaker = PolicySpeaker(tiny_policy, Sampling(max_new_tokens=5), 0)
    asked, answered = [], []

    class Wiretap:
        encode = speaker.encode

        def generate(self, prompts, call):
            responses = speaker.generate(prompts, call)
            asked.extend(prompts)
            answered.extend(responses)
            return responses

    trials = collect(Wiretap(), Echo, seeds=range(len(ODD)), max_turns=3, num_episodes=2)
    assert len(answered) == len(ODD) * 7
    assert_ids_passed_through(trials, asked, answered)
    for trial in trials:
        for _, _, turn in trial.rows():
            assert len(turn.response.ids) == len(turn.response.logprobs) > 0
            assert turn.response.text == tiny_policy.decode(turn.response.ids)
        seen = ODD[trial.seed % len(ODD)]
        assert trial.episodes[0].initial_observation == seen
        assert seen in tiny_policy.decode(trial.episodes[0].turns[0].prompt_ids)


@pytest.mark.parametrize("text", ODD)
def test_ids_that_decode_to_odd_text_are_kept_although_encoding_it_again_would_differ(scripted_speaker, text):
    speaker = scripted_speaker(lambda page: f"{text}{act(text)}")
    trials = collect(speaker, Echo, seeds=[0], num_episodes=1)
    for turn in trials[0].episodes[0].turns:
        assert turn.response.ids == tuple(1000 + byte for byte in f"{text}{act(text)}".encode())
        assert turn.response.ids != speaker.encode([{"role": "user", "content": turn.response.text}])


def test_the_same_seed_plays_the_same_trials_and_another_seed_others(tiny_policy):
    def texts(seed):
        speaker = PolicySpeaker(tiny_policy, Sampling(max_new_tokens=4), seed)
        trials = collect(speaker, seeds=[1], group_size=2)
        return [turn.response.ids for trial in trials for _, _, turn in trial.rows()]

    assert texts(0) == texts(0) != texts(1)


def test_members_of_a_group_answer_differently(tiny_policy):
    speaker = PolicySpeaker(tiny_policy, Sampling(max_new_tokens=5), 0)
    trials = collect(speaker, seeds=[1], group_size=5)
    first = [trial.episodes[0].turns[0] for trial in trials]
    assert len({turn.prompt_ids for turn in first}) == 1
    assert len({turn.response.ids for turn in first}) == 5
