"""What a trial does, rule by rule. Each rule below is pinned by the tests that carry its number.

 1. An episode is played until the game ends it or `max_turns` answers have been given.
 2. A success ends the trial at once; nothing is reflected on.
 3. After a failure, and only then, the agent reflects, restarts the same task, and plays again, N episodes at most.
 4. With `stop_on_success` off, all N episodes are played, every one but the last is reflected on, and pages say won.
 5. With memory `trajectory` or `none`, no reflection is asked for.
 6. An answer without an action is penalised, costs a turn, and never touches the game.
 7. A move that the game refuses (`info["invalid"]`) is penalised too, but it was played.
 8. Under `penalty_scope: row` a penalty stays beside the reward; under `return` it is in it.
 9. A reflection without a remark is stored as empty and penalised; a remark is cut at `max_remark_chars`.
10. An environment that fails ends its own trial as crashed, with the reason; what was played before stands.
11. A prompt that is too long loses history, oldest first; one that still is ends its episode as out of context.
12. The trials of a group play the same task, from the same first observation.
13. An answer of more than half the limit costs up to `length_penalty`.
14. Draws are draws; the game's own limit is out of turns.
"""

import itertools
import threading
import time
from dataclasses import replace
from functools import partial

import numpy
import pytest
from rollout_worlds import Stairs

from metarl_agents.config import TrialConfig
from metarl_agents.rollout import TrialRunner, collect_trials
from metarl_agents.rollout.runner import length_penalty
from metarl_agents.types import Outcome, Phase


def act(*words):
    return [f"<action>{word}</action>" for word in words]


def note(text):
    return f"<remark>{text}</remark>"


@pytest.fixture
def play(scripted_speaker):
    """Play one trial with scripted answers; return (trial, speaker). Every answer must be asked for."""

    def run(answers, env=Stairs, *, limit=10_000, max_new_tokens=0, seeds=(7,), group_size=1, **settings):
        config = TrialConfig(**{"num_episodes": 3, "max_turns": 3, "env_timeout_s": None, **settings})
        speaker = scripted_speaker(answers)
        trials = collect_trials(
            speaker, env, seeds, config, group_size=group_size, max_prompt_tokens=limit, max_new_tokens=max_new_tokens
        )
        if isinstance(answers, list):
            assert len(speaker.pages) == len(answers), "not every answer was asked for"
        return (trials[0] if len(trials) == 1 else trials), speaker

    return run


def outcomes(trial):
    return [episode.outcome for episode in trial.episodes]


def rewards(trial):
    return [turn.reward for _, _, turn in trial.rows()]


# ---- 1, 2, 3: turns, success, failure ------------------------------------------------------------------------


def test_01_an_episode_ends_after_max_turns_answers(play):
    trial, _ = play(act("up", "up", "up", "up"), num_episodes=1, max_turns=4)
    assert outcomes(trial) == [Outcome.OUT_OF_TURNS] and len(trial.episodes[0].turns) == 4


def test_01_the_limit_is_one_of_each_episode_and_not_of_the_trial(play):
    answers = [*act("up", "up"), note("a"), *act("up", "up"), note("b"), *act("up", "up")]
    trial, _ = play(answers, max_turns=2)
    assert [len(episode.turns) for episode in trial.episodes] == [2, 2, 2]


def test_01_a_success_on_the_last_turn_is_a_success(play):
    trial, _ = play(act("up", "win"), max_turns=2)
    assert outcomes(trial) == [Outcome.SUCCESS]


def test_01_every_turn_of_a_long_episode_keeps_its_whole_answer(play):
    answers = act(*[f"step{index:02}" for index in range(10)])
    trial, _ = play(answers, num_episodes=1, max_turns=10)
    lengths = [len(turn.response.ids) for turn in trial.episodes[0].turns]
    assert lengths == [len(answer) for answer in answers]


def test_02_a_success_ends_the_trial_at_once(play):
    trial, speaker = play(act("up", "win"))
    assert outcomes(trial) == [Outcome.SUCCESS]
    assert trial.episodes[0].reflection is None and trial.episodes[0].success
    assert trial.pass_at(1) and trial.pass_at(3)
    assert not any("REFLECT" in page for page in speaker.encoded)


def test_02_a_success_in_a_later_episode_ends_the_trial_too(play):
    trial, _ = play([*act("lose"), note("go up"), *act("win")])
    assert outcomes(trial) == [Outcome.FAILURE, Outcome.SUCCESS]
    assert not trial.pass_at(1) and trial.pass_at(2)


def test_03_every_failure_but_the_last_is_reflected_on(play):
    trial, speaker = play([*act("lose"), note("one"), *act("lose"), note("two"), *act("lose")])
    assert outcomes(trial) == [Outcome.FAILURE] * 3
    assert [episode.reflection and episode.reflection.action for episode in trial.episodes] == ["one", "two", None]
    assert [("REFLECT" in page) for page in speaker.pages] == [False, True, False, True, False]
    phases = [turn.phase for _, _, turn in trial.rows()]
    assert phases == [Phase.PLAY, Phase.REFLECT, Phase.PLAY, Phase.REFLECT, Phase.PLAY]
    assert [(n, t) for n, t, _ in trial.rows()] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize(("word", "outcome"), [("up", Outcome.OUT_OF_TURNS), ("lose", Outcome.FAILURE)])
def test_03_running_out_of_turns_is_a_failure_like_a_lost_game(play, word, outcome):
    trial, speaker = play([*act(word), note("x"), *act("win")], max_turns=1)
    assert outcomes(trial) == [outcome, Outcome.SUCCESS]
    assert "IT lost" in speaker.pages[1]


def test_03_the_same_task_is_restarted(play):
    env = Stairs()
    play([*act("up", "lose"), note("x"), *act("win")], lambda: env, seeds=[5])
    steps = [("reset", 5), ("step", "up"), ("step", "lose"), ("reset", 5), ("step", "win"), ("close", None)]
    assert env.log == steps


def test_03_a_single_episode_is_never_reflected_on(play):
    trial, _ = play(act("lose"), num_episodes=1)
    assert len(trial.episodes) == 1 and trial.episodes[0].reflection is None


def test_03_a_reflection_is_judged_on_its_own_and_acts_on_no_observation(play):
    trial, _ = play([*act("lose"), note("x"), *act("win")])
    reflection = trial.episodes[0].reflection
    assert (reflection.observation, reflection.reward, reflection.invalid) == ("", 0.0, False)
    assert [turn.observation for turn in trial.episodes[0].turns] == ["floor 0 of house 7"]
    assert trial.episodes[0].reward == 0.0 and trial.episodes[1].reward == 10.0


# ---- 4, 5: playing on, and memory without remarks ------------------------------------------------------------


def test_04_all_episodes_are_played_and_pages_say_how_each_ended(play):
    answers = [*act("win"), note("one"), *act("lose"), note("two"), *act("win")]
    trial, speaker = play(answers, stop_on_success=False)
    assert outcomes(trial) == [Outcome.SUCCESS, Outcome.FAILURE, Outcome.SUCCESS]
    assert "IT won" in speaker.pages[1] and "IT lost" in speaker.pages[3]
    assert "[1 won | one] [2 lost | two]" in speaker.pages[4]
    assert trial.episodes[2].reflection is None


@pytest.mark.parametrize("memory", ["trajectory", "none"])
def test_05_no_reflection_is_asked_for_where_memory_uses_none(play, memory):
    trial, speaker = play(act("lose", "lose", "win"), memory=memory)
    assert outcomes(trial) == [Outcome.FAILURE, Outcome.FAILURE, Outcome.SUCCESS]
    assert not any("REFLECT" in page for page in speaker.encoded)
    assert all(episode.reflection is None for episode in trial.episodes)


@pytest.mark.parametrize(
    ("memory", "seen"),
    [
        ("reflection", "[1 lost | go up]"),
        ("trajectory", "[1 lost | lose>floor 0 after lose]"),
        ("both", "[1 lost | lose>floor 0 after lose | go up]"),
    ],
)
def test_05_the_next_episode_reads_what_its_memory_mode_holds(play, memory, seen):
    remarks = [] if memory == "trajectory" else [note("go up")]
    _, speaker = play([*act("lose"), *remarks, *act("win")], memory=memory)
    assert f"MEMORY {seen}" in speaker.pages[-1] and "MEMORY" not in speaker.pages[0]


def test_05_without_memory_a_retry_reads_what_the_first_attempt_read(play):
    _, speaker = play(act("lose", "lose", "lose"), memory="none")
    assert len(set(speaker.pages)) == 1


# ---- 6, 7, 8: penalties --------------------------------------------------------------------------------------


def test_06_an_answer_without_an_action_costs_a_turn_and_never_touches_the_game(play):
    env = Stairs()
    trial, speaker = play(["up", "<action></action>", *act("win")], lambda: env, invalid_action_penalty=0.5)
    assert env.log == [("reset", 7), ("step", "win"), ("close", None)]
    assert rewards(trial) == [-0.5, -0.5, 10.0]
    turns = trial.episodes[0].turns
    assert [turn.invalid for turn in turns] == [True, True, False]
    assert [turn.action for turn in turns] == [None, None, "win"]
    assert [turn.observation for turn in turns] == ["floor 0 of house 7"] * 3
    assert "HISTORY 1:no valid action>floor 0 of house 7" in speaker.pages[1]


def test_06_unreadable_answers_alone_end_an_episode_too(play):
    trial, _ = play(["hm"] * 3, num_episodes=1)
    assert outcomes(trial) == [Outcome.OUT_OF_TURNS] and rewards(trial) == [-0.5] * 3


def test_06_a_truncated_answer_is_used_where_its_action_can_be_read(scripted_speaker):
    speaker = scripted_speaker([*act("up"), "<action>u", *act("win")], truncated=True)
    config = TrialConfig(env_timeout_s=None)
    (trial,) = collect_trials(speaker, Stairs, [7], config, group_size=1, max_prompt_tokens=999)
    turns = trial.episodes[0].turns
    assert [turn.action for turn in turns] == ["up", None, "win"]
    assert all(turn.response.truncated for turn in turns)


def test_07_a_refused_move_was_played_and_is_penalised(play):
    env = Stairs()
    trial, speaker = play(act("refused", "win"), lambda: env, invalid_action_penalty=2.0)
    assert ("step", "refused") in env.log
    assert rewards(trial) == [-2.0, 10.0]
    assert [turn.invalid for turn in trial.episodes[0].turns] == [True, False]
    assert "1:refused>floor 0 after refused" in speaker.pages[1]


def test_08_the_scope_row_leaves_rewards_alone(play):
    answers = ["hm", *act("refused", "lose"), "no remark", *act("win")]
    trial, _ = play(answers, penalty_scope="row", invalid_action_penalty=0.5)
    assert rewards(trial) == [0.0, 0.0, 0.0, 0.0, 10.0]
    assert [turn.row_penalty for _, _, turn in trial.rows()] == [0.5, 0.5, 0.0, 0.5, 0.0]
    trial, _ = play(answers, penalty_scope="return", invalid_action_penalty=0.5)
    assert rewards(trial) == [-0.5, -0.5, 0.0, -0.5, 10.0]
    assert not any(turn.row_penalty for _, _, turn in trial.rows())


# ---- 9: remarks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["", "I was unlucky", "<remark>cut off", "<remark> </remark>"])
def test_09_a_reflection_without_a_remark_is_stored_as_empty_and_penalised(play, answer):
    trial, speaker = play([*act("lose"), answer, *act("win")])
    reflection = trial.episodes[0].reflection
    assert (reflection.action, reflection.shown_action, reflection.invalid) == (None, "", True)
    assert reflection.reward == -0.5 and reflection.response.text == answer
    assert trial.episodes[0].reward == 0.0  # the attempt itself does not pay for it
    assert "[1 lost | ]" in speaker.pages[2]


def test_09_a_remark_is_cut_at_2000_characters(play):
    trial, speaker = play([*act("lose"), note("x" * 2500), *act("win")])
    assert trial.episodes[0].reflection.action == "x" * 2000
    assert f"| {'x' * 2000}]" in speaker.pages[2]
    assert not trial.episodes[0].reflection.invalid


# ---- 10: environments that fail ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("raise", "ZeroDivisionError: a step is missing"),
        ("nan", "ValueError: step returned the reward nan"),
        ("inf", "ValueError: step returned the reward inf"),
        ("none", "TypeError"),
        ("junk", "ValueError"),
        ("number", "TypeError: step returned an observation of type int"),
        ("bad menu", "TypeError"),
        ("exit", "SystemExit"),
    ],
)
def test_10_a_failing_step_ends_its_own_trial_only(play, word, reason):
    def answer(page):
        return act(word if "house 8" in page else "win")[0]

    trials, speaker = play(answer, seeds=[7, 8, 9])
    assert [trial.crashed for trial in trials] == [False, True, False]
    assert [outcomes(trial) for trial in trials] == [[Outcome.SUCCESS], [Outcome.CRASHED], [Outcome.SUCCESS]]
    assert trials[1].error.startswith(reason) and trials[0].error is None
    assert len(speaker.pages) == 3


def test_10_a_failing_parser_ends_its_own_trial(play):
    trial, _ = play([*act("up"), "PARSE"])
    assert outcomes(trial) == [Outcome.CRASHED] and trial.error.startswith("KeyError")
    assert len(trial.episodes[0].turns) == 1


def test_10_a_failing_reset_ends_its_own_trial_before_anything_is_asked(play):
    trials, speaker = play(act("win", "win"), partial(Stairs, breaks=["reset"]), seeds=[2, 3, 4])
    assert [trial.error for trial in trials] == [None, "RuntimeError: the stairs are closed", None]
    assert outcomes(trials[1]) == [Outcome.CRASHED] and not trials[1].episodes[0].turns
    assert not trials[1].pass_at(3) and len(speaker.pages) == 2


def test_10_an_environment_that_cannot_be_built_ends_its_trial(play):
    trial, _ = play([], partial(Stairs, breaks=["make"]))
    assert trial.error == "RuntimeError: no stairs were delivered" and outcomes(trial) == [Outcome.CRASHED]


def test_10_a_failing_restart_leaves_what_was_played_before_as_it_was(play):
    broken = partial(Stairs, breaks=["restart"])
    trial, _ = play([*act("lose"), note("x")], broken)
    assert outcomes(trial) == [Outcome.FAILURE, Outcome.CRASHED]
    assert trial.error == "RuntimeError: nobody takes the stairs twice"
    assert trial.episodes[0].reflection.action == "x" and not trial.episodes[1].turns


def test_10_a_failing_restart_does_not_undo_a_success(play):
    trial, _ = play([*act("win"), note("x")], partial(Stairs, breaks=["restart"]), stop_on_success=False)
    assert outcomes(trial) == [Outcome.SUCCESS, Outcome.CRASHED] and trial.crashed and trial.pass_at(1)


def test_10_an_action_that_cannot_be_printed_is_an_environments_failure(play):
    class Mute(Stairs):
        wording = replace(Stairs.wording, show_action=lambda action: {}[action])

    trial, _ = play(act("up"), Mute)
    assert outcomes(trial) == [Outcome.CRASHED] and trial.error.startswith("KeyError")


def test_10_a_hanging_step_is_interrupted_and_the_others_go_on(play):
    trials, _ = play(lambda page: act("sleep" if "house 8" in page else "win")[0], seeds=[7, 8, 9], env_timeout_s=0.2)
    assert [outcomes(trial)[-1] for trial in trials] == [Outcome.SUCCESS, Outcome.CRASHED, Outcome.SUCCESS]
    assert "did not answer within 0.2 s" in trials[1].error


def test_10_the_environment_is_closed_once_however_the_trial_ends(play):
    for word in ("win", "raise", "lose"):
        env = Stairs()
        play(act(word), lambda env=env: env, num_episodes=1)
        assert env.log.count(("close", None)) == 1


def test_10_a_failing_close_does_not_undo_a_trial(play):
    class Stuck(Stairs):
        def close(self):
            raise OSError("the door is stuck")

    trial, _ = play(act("win"), Stuck)
    assert outcomes(trial) == [Outcome.SUCCESS] and not trial.crashed


def test_10_outside_the_main_thread_a_hang_is_stopped_by_a_worker_process(play):
    found = []

    def answer(page):
        return act("sleep" if "house 8" in page else "win")[0]

    def elsewhere():
        found.extend(play(answer, Stairs, seeds=[7, 8], env_timeout_s=1.0)[0])

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(timeout=120)
    assert [outcomes(trial) for trial in found] == [[Outcome.SUCCESS], [Outcome.CRASHED]]
    assert "did not answer within 1 s" in found[1].error


def test_10_a_close_that_exits_ends_nothing(play):
    class Leaving(Stairs):
        def close(self):
            raise SystemExit(3)

    trials, _ = play(lambda page: act("win")[0], Leaving, seeds=[7, 8])
    assert [outcomes(trial) for trial in trials] == [[Outcome.SUCCESS]] * 2 and not any(t.crashed for t in trials)


@pytest.mark.parametrize("key", ["success", "invalid", "draw"])
@pytest.mark.parametrize("method", ["reset", "step"])
def test_10_a_fact_that_is_neither_true_nor_false_ends_its_own_trial_only(play, key, method):
    vague = numpy.array([True, False])

    class Vague(Stairs):
        def reset(self, *, seed):
            observation, info = super().reset(seed=seed)
            return observation, info | ({key: vague} if method == "reset" and seed == 8 else {})

        def step(self, action):
            *result, info = super().step(action)
            return *result, info | ({key: vague} if self.seed == 8 else {})

    trials, _ = play(lambda page: act("win")[0], Vague, seeds=[7, 8])
    assert [outcomes(trial)[-1] for trial in trials] == [Outcome.SUCCESS, Outcome.CRASHED]
    assert trials[1].error.startswith("ValueError: The truth value")


def test_10_facts_of_numpy_count_as_pythons(play):
    class Typed(Stairs):
        def step(self, action):
            *result, info = super().step(action)
            return *result, {name: numpy.array([value]) for name, value in info.items()}

    trial, _ = play([*act("draw"), note("x"), *act("refused", "win")], Typed)
    assert outcomes(trial) == [Outcome.DRAW, Outcome.SUCCESS] and trial.episodes[1].turns[0].invalid is True


def shorten_badly(observation):
    raise OSError("the summariser is down")


BAD_WORDINGS = {
    "shorten": (replace(Stairs.wording, shorten=shorten_badly, full_observations=0), "OSError: the summariser is down"),
    "no function": (replace(Stairs.wording, shorten=None), "TypeError"),
    "template": (replace(Stairs.wording, initial="{nothing}"), "KeyError: 'nothing'"),
    "request": (replace(Stairs.wording, play_request=3), "TypeError"),
    "window": (replace(Stairs.wording, history_turns=None), "TypeError"),
    "half a window": (replace(Stairs.wording, history_turns=1.5), "TypeError"),
    "surrogate": (replace(Stairs.wording, play_request="\ud83d"), "UnicodeEncodeError"),
    "none": (None, "TypeError: `wording` is of type NoneType, not Wording"),
}


@pytest.mark.parametrize("name", BAD_WORDINGS)
def test_10_a_wording_that_fails_ends_its_own_trial_only(play, name):
    bad, reason = BAD_WORDINGS[name]

    made = itertools.count()

    def make_env():
        env = Stairs()
        if next(made) == 1:
            env.wording = bad
        return env

    trials, _ = play(lambda page: act("up" if "house 8" in page else "win")[0], make_env, seeds=[7, 8, 9])
    assert [outcomes(trial)[-1] for trial in trials] == [Outcome.SUCCESS, Outcome.CRASHED, Outcome.SUCCESS]
    assert trials[1].error.startswith(reason), trials[1].error


def test_10_a_reflection_page_that_cannot_be_written_leaves_what_was_played_before(play):
    class Worded(Stairs):
        wording = replace(Stairs.wording, reflect_note="{nothing}")

    trial, _ = play(act("lose"), Worded)
    assert outcomes(trial) == [Outcome.FAILURE, Outcome.CRASHED] and trial.error == "KeyError: 'nothing'"
    assert len(trial.episodes[0].turns) == 1 and trial.episodes[0].reflection is None


@pytest.mark.parametrize("rules", [None, 3, ["a"]])
def test_10_rules_that_are_no_text_are_an_environments_failure(play, rules):
    class Ruled(Stairs):
        def describe(self):
            return rules

    trial, _ = play([], Ruled)
    assert outcomes(trial) == [Outcome.CRASHED] and "not str" in trial.error


def test_10_a_hanging_wording_is_interrupted(play):
    class Worded(Stairs):
        wording = replace(Stairs.wording, shorten=lambda observation: time.sleep(30), full_observations=0)

    trial, _ = play(act("up"), Worded, env_timeout_s=0.2)
    assert outcomes(trial) == [Outcome.CRASHED] and "did not answer within 0.2 s" in trial.error


def test_11_a_page_that_is_cut_to_fit_asks_nothing_of_the_wording_again(play):
    seen = []

    class Worded(Stairs):
        wording = replace(Stairs.wording, shorten=lambda observation: seen.append(observation) or "~")

    answers = act("one", "two", "three", "four", "win")
    whole = play(answers, Worded, max_turns=5)[1].pages
    assert seen and len(set(seen)) == len(seen)
    seen.clear()
    _, speaker = play(answers, Worded, max_turns=5, limit=len(whole[4]) - 1)
    assert len(speaker.encoded) > len(speaker.pages) and len(set(seen)) == len(seen)


def test_10_listed_actions_may_come_from_any_iterable(play):
    class Listed(Stairs):
        def step(self, action):
            *result, info = super().step(action)
            kinds = {"one": numpy.array(["up", "win"]), "two": (word for word in ("up", "win")), "three": None}
            return *result, info | {"admissible_actions": kinds.get(action, [])}

    _, speaker = play(act("one", "two", "three", "win"), Listed, max_turns=4)
    assert ["Admissible actions:\nup\nwin" in page for page in speaker.pages] == [False, True, True, False]


# ---- 11: long prompts ----------------------------------------------------------------------------------------


def test_11_a_long_prompt_loses_history_oldest_first_and_is_flagged(play):
    answers = act("one", "two", "three", "four", "win")
    _, whole = play(answers, max_turns=5)
    assert "1:one>~ 2:two>~ 3:three>floor 0 after three 4:four>floor 0 after four" in whole.pages[4]
    limit = len(whole.pages[4]) - len("1:one>~ ")
    trial, speaker = play(answers, max_turns=5, limit=limit)
    assert "HISTORY 2:two>~ 3:three" in speaker.pages[4]
    assert [turn.prompt_shortened for turn in trial.episodes[0].turns] == [False] * 4 + [True]
    assert outcomes(trial) == [Outcome.SUCCESS]
    assert play(answers, max_turns=5, limit=limit)[1].pages == speaker.pages


def test_11_no_more_history_is_lost_than_needed(play):
    answers = act("one", "two", "three", "four", "win")
    whole = play(answers, max_turns=5)[1].pages[4]
    for limit in range(80, len(whole) + 1, 7):
        trial, speaker = play(lambda page: answers[page.count(">")], max_turns=5, limit=limit)
        assert all(len(page) <= limit for page in speaker.pages)
        assert all(len(turn.prompt_ids) <= limit for turn in trial.episodes[0].turns)
        for asked in speaker.pages:
            longer = [page for page in speaker.encoded if len(page) > len(asked) and page.endswith(asked[-30:])]
            assert all(len(page) > limit for page in longer if page.count(">") == asked.count(">") + 1)


def test_11_the_newest_observation_stays_when_all_history_is_lost(play):
    answers = act("one", "two", "win")
    whole = play(answers)[1].pages
    bare = len("RULES\nSTART floor 0 of house 7\nNOW floor 0 after two\nPLAY")
    assert bare < len(whole[1]) <= len(whole[2])
    _, speaker = play(answers, limit=bare)
    assert speaker.pages[2] == "RULES\nSTART floor 0 of house 7\nNOW floor 0 after two\nPLAY"


def test_11_a_prompt_that_still_does_not_fit_ends_the_episode_as_out_of_context(play):
    trial, speaker = play([], limit=5, num_episodes=2)
    assert outcomes(trial) == [Outcome.OUT_OF_CONTEXT] * 2 and not trial.crashed
    assert not speaker.pages and all(not episode.turns for episode in trial.episodes)
    assert trial.episodes[0].reflection is None


def test_11_out_of_context_is_a_failure_that_is_reflected_on_where_that_fits(scripted_speaker):
    class Narrow(scripted_speaker):
        def encode(self, messages):
            return super().encode(messages) * (1 if "REFLECT" in messages[0]["content"] or not self.waves else 9)

    trial = collect_trials(
        Narrow([*act("up"), note("be brief")]), Stairs, [7], TrialConfig(num_episodes=2, env_timeout_s=None),
        group_size=1, max_prompt_tokens=200,
    )[0]  # fmt: skip
    assert outcomes(trial) == [Outcome.OUT_OF_CONTEXT] * 2
    assert trial.episodes[0].reflection.action == "be brief"


def test_11_a_long_trial_is_played_to_its_end_although_some_remarks_make_pages_too_long(play):
    def answer(page):
        return note("x" * 1500) if "REFLECT" in page else act("lose")[0]

    trial, _ = play(answer, limit=400)
    assert outcomes(trial) == [Outcome.FAILURE, Outcome.OUT_OF_CONTEXT, Outcome.OUT_OF_CONTEXT]


# ---- 12, 13, 14 ----------------------------------------------------------------------------------------------


def test_12_members_of_a_group_share_task_and_first_observation_and_no_object(play):
    made = []

    def make_env():
        made.append(Stairs())
        return made[-1]

    trials, speaker = play(lambda page: act("win")[0], make_env, seeds=[3, 4, 5, 6], group_size=4)
    assert [trial.group for trial in trials] == [group for group in range(4) for _ in range(4)]
    assert [trial.seed for trial in trials] == [seed for seed in (3, 4, 5, 6) for _ in range(4)]
    starts = [trial.episodes[0].initial_observation for trial in trials]
    assert len(set(starts)) == 4 and all(len(set(starts[4 * g : 4 * g + 4])) == 1 for g in range(4))
    assert len(made) == 16 == len({id(env) for env in made})
    assert len(set(speaker.waves[0])) == 4


def test_13_a_long_answer_costs_up_to_the_coefficient(play):
    assert [length_penalty(length, 100, 2.0) for length in (0, 50, 75, 100, 150)] == [0.0, 0.0, 1.0, 2.0, 2.0]
    assert length_penalty(100, 100, 0.0) == 0.0 and length_penalty(9, 0, 2.0) == 0.0
    answers = [act("up")[0].ljust(75), *act("lose"), note("x").ljust(100), *act("win")]
    trial, _ = play(answers, length_penalty=2.0, max_new_tokens=100)
    assert rewards(trial) == [-1.0, 0.0, -2.0, 10.0]
    assert rewards(play(answers, max_new_tokens=100)[0]) == [0.0, 0.0, 0.0, 10.0]


def test_13_the_length_penalty_stays_in_the_reward_whatever_the_scope(play):
    trial, _ = play(["hm".ljust(100), *act("win")], length_penalty=2.0, max_new_tokens=100, penalty_scope="row")
    first = trial.episodes[0].turns[0]
    assert (first.reward, first.row_penalty) == (-2.0, 0.5)


def test_14_a_draw_is_a_draw(play):
    trial, speaker = play([*act("draw"), note("x"), *act("win")])
    assert outcomes(trial) == [Outcome.DRAW, Outcome.SUCCESS]
    assert "IT drew" in speaker.pages[1] and "[1 drew | x]" in speaker.pages[2]


def test_14_the_games_own_limit_is_out_of_turns(play):
    trial, _ = play([*act("cut"), note("x"), *act("win")])
    assert outcomes(trial) == [Outcome.OUT_OF_TURNS, Outcome.SUCCESS]


def test_the_actions_that_the_environment_lists_are_on_the_next_page_only(play):
    _, speaker = play(act("menu", "up", "win"))
    assert ["Admissible actions:\nup\nwin" in page for page in speaker.pages] == [False, True, False]


def test_a_request_of_the_callers_replaces_that_of_the_wording():
    runner = TrialRunner(Stairs, 7, 0, TrialConfig(env_timeout_s=None), play_request="JUST GUESS")
    (message,) = runner.messages()
    assert message["content"].endswith("JUST GUESS") and "PLAY" not in message["content"]


def test_what_a_turn_acted_on_is_kept_as_it_was_seen(play):
    trial, _ = play(act("one", "two", "win"))
    assert [turn.observation for turn in trial.episodes[0].turns] == [
        "floor 0 of house 7",
        "floor 0 after one",
        "floor 0 after two",
    ]
    assert trial.episodes[0].final_observation == "floor 0 after win"
    assert trial.episodes[0].initial_observation == "floor 0 of house 7"
