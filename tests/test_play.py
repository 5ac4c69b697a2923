"""Laws of `python -m metarl_agents.play` and of the screen it writes to."""

import io
import re
import shutil

import pytest
import yaml

from metarl_agents import play, presets
from metarl_agents.cli import TRIAL_SETTINGS
from metarl_agents.config import Config, TrialConfig
from metarl_agents.environments.two_doors import TwoDoors
from metarl_agents.errors import ConfigError, UnknownEnvironmentError
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.tiny import build_model, build_tokenizer
from metarl_agents.tracking.screen import Screen
from metarl_agents.types import Episode, Outcome, Phase, Response, Trial, Turn


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tokenizer = build_tokenizer()
    folder = tmp_path_factory.mktemp("model")
    Policy(build_model(tokenizer, layers=1, hidden=32), tokenizer).save(folder)
    return folder


def turn(text, action, phase=Phase.PLAY, reward=0.0):
    shown = action or "no valid action"
    return Turn(phase, "Both doors are closed.", (1,), Response((1,), text), action, shown, reward)


def shown(trial, out=None, total=3):
    """Return what the screen says of a trial, fed row by row."""
    out = out or io.StringIO()
    screen = Screen(out, num_episodes=total)
    for _, _, row in trial.rows():
        screen.turn(trial, row)
    screen.verdict(trial)
    return out.getvalue()


def two_attempts():
    first = Episode("", [turn("I guess. <action>A</action>", "A")], "Door A is open: empty.", Outcome.FAILURE)
    first.reflection = turn("<remark>not A</remark>", "not A", Phase.REFLECT)
    second = Episode("", [turn("<action>B</action>", "B", reward=10.0)], "Door B is open: the prize!", Outcome.SUCCESS)
    return Trial(1, 0, [first, second])


def test_a_trial_reads_from_first_attempt_to_verdict():
    text = shown(two_attempts())
    order = [
        "== Attempt 1 of 3 ",
        "Both doors are closed.",
        "> I guess. <action>A</action>",
        "Action: A   reward 0",
        "Door A is open: empty.",
        "Failed.",
        "Reflection",
        "| not A",
        "== Attempt 2 of 3 ",
        "Action: B   reward 10",
        "Door B is open: the prize!",
        "Solved.",
        "Result: solved in attempt 2 of 3",
    ]
    places = [text.index(piece) for piece in order if piece != "Both doors are closed."]
    assert places == sorted(places)


def test_text_that_is_not_for_a_terminal_is_plain_ascii():
    text = shown(two_attempts())
    assert "\x1b" not in text and text.isascii()


def test_colours_are_for_terminals_unless_no_color_is_set(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in shown(two_attempts(), Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(two_attempts(), Terminal())


def test_an_answer_cannot_drive_the_terminal():
    trial = Trial(1, 0, [Episode("", [turn("\x1b[2J\r\x07", None)], "", Outcome.OUT_OF_TURNS)])
    assert "\\x1b[2J\\r\\x07" in shown(trial)


def test_attempts_that_ended_without_a_turn_are_shown_too():
    trial = Trial(1, 0, [Episode("start", final_observation="start", outcome=Outcome.OUT_OF_CONTEXT) for _ in range(3)])
    text = shown(trial)
    assert text.count("the prompt no longer fits the model") == 3
    assert "Result: not solved in 3 attempts" in text


def test_a_failing_environment_is_named():
    trial = Trial(1, 0, [Episode("start", outcome=Outcome.CRASHED)], error="ValueError: a bug")
    assert "the environment failed (ValueError: a bug)" in shown(trial)


def test_a_model_folder_plays_a_named_environment(model, capsys):
    flags = ["two_doors", "--model", str(model), "--max_turns", "2", "--num_episodes", "2"]
    assert play.main([*flags, "--max_new_tokens_per_turn", "4"]) == 0
    text = capsys.readouterr().out
    assert "two_doors, test task 0" in text and "temperature 0.7, top_p 0.8, top_k 20" in text
    assert "== Attempt 2 of 2 " in text and "Result: " in text


def test_the_same_flags_show_the_same_trial(model, capsys):
    flags = ["two_doors", "--model", str(model), "--max_turns", "1", "--max_new_tokens_per_turn", "4"]
    shown = []
    for _ in range(2):
        play.main(flags)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def chosen(*flags):
    return play.parse_with_extras(list(flags), play._parser(), play._defaults)[0]


def test_a_run_brings_its_settings_and_flags_win(tmp_path):
    values = {"model_name_or_path": "tiny", "env": "minesweeper", "env_kwargs": {"size": 5, "mines": 2}}
    values |= {"wording": "compact", "max_turns": 9, "num_episodes": 2, "memory": "both", "max_prompt_tokens": 99}
    values |= {"max_new_tokens_per_turn": 7, "learning_rate": 0.5, "a_setting_of_another_version": 1}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    (tmp_path / "checkpoint-3").mkdir()
    for folder in (tmp_path, tmp_path / "checkpoint-3"):
        config = chosen("--model", str(folder), "--max_turns", "4")
        trial, sampling = config.trial, config.sampling
        assert (trial.env, trial.env_kwargs, trial.wording) == ("minesweeper", {"size": 5, "mines": 2}, "compact")
        assert (trial.max_turns, trial.num_episodes, trial.memory) == (4, 2, "both")
        assert (sampling.max_prompt_tokens, sampling.max_new_tokens_per_turn) == (99, 7)
        assert config.update.learning_rate != 0.5
        assert chosen("two_doors", "--model", str(folder)).trial.env_kwargs == {}


def test_a_trial_is_played_with_the_penalties_remarks_and_draws_of_its_run(model, tmp_path, monkeypatch, capsys):
    from metarl_agents import agent as module

    shaped = {"max_remark_chars": 1, "penalty_scope": "row", "length_penalty": 0.5, "invalid_action_penalty": 0.25}
    shaped |= {"stop_on_success": False, "num_episodes": 2, "max_turns": 1, "env_timeout_s": 9.0, "memory": "both"}
    values = Config().flat() | shaped | {"env": "two_doors", "eval_temperature": 0.3, "eval_min_p": 0.1}
    values |= {"max_new_tokens_per_turn": 5}
    folder = shutil.copytree(model, tmp_path / "run")
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    seen = []

    def run_trial(agent, env, seed, **settings):
        seen.append((agent.sampling, settings))
        return module_run_trial(agent, env, seed, **settings)

    module_run_trial = module.run_trial
    monkeypatch.setattr(module, "run_trial", run_trial)
    assert play.main(["--model", str(folder), "--delay", "0"]) == 0
    ((sampling, settings),) = seen
    assert (sampling.temperature, sampling.min_p, sampling.max_new_tokens) == (0.3, 0.1, 5)
    assert {name: settings[name] for name in shaped} == shaped


def test_the_tiny_model_plays_what_it_knows_unless_told_otherwise(capsys):
    assert chosen("--model", "tiny").trial.env_kwargs == {"size": 4, "mines": 4}
    address = "metarl_agents.environments.minesweeper:Minesweeper"
    assert chosen(address, "--model", "tiny").trial.env_kwargs == {"size": 4, "mines": 4}
    assert chosen("two_doors", "--model", "tiny").trial.env_kwargs == {}
    assert capsys.readouterr().err == ""
    unknown = chosen("my_package.my_env:MyEnv", "--model", "tiny")
    assert (unknown.trial.wording, unknown.sampling.max_new_tokens_per_turn) == ("compact", 24)
    said = "my_package.my_env:MyEnv has no preset for the tiny model: wording compact, max_new_tokens_per_turn 24"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(presets.CONFIGS.glob("*/tiny.yaml")), ids=lambda file: file.parent.name)
def test_the_tiny_model_is_played_as_its_preset_trains_it_in_every_environment(file, tmp_path):
    preset = yaml.safe_load(file.read_text(encoding="utf-8"))
    (tmp_path / "warm_start.json").write_text("{}")
    for model in ("tiny", str(tmp_path)):  # the shipped one, and one that was taught anew
        flat = chosen(file.parent.name, "--model", model).flat()
        brought = {name: preset[name] for name in TRIAL_SETTINGS if name in preset}
        assert {name: flat[name] for name in brought} == brought and "max_new_tokens_per_turn" in brought
    assert chosen("--model", "tiny", "--temperature", "0").eval_sampling.eval_temperature == 0


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        ([], ConfigError, "name a model"),
        (["two_dors", "--model", "tiny"], UnknownEnvironmentError, "two_doors"),
        (["--model", "./nothing"], ConfigError, "no model folder"),
        (["--model", "tiny", "--max_turn", "3"], ConfigError, "--max_turn"),
        (["--model", "tiny", "--seed", "-1"], ConfigError, "at least 0"),
        (["two_doors", "--model", "tiny", "--opponent", "own"], ConfigError, "two_doors is no game"),
        (["kuhn", "--model", "tiny", "--opponent", "agressive"], ConfigError, "agressive"),
    ],
)
def test_a_wrong_command_is_answered_with_one_sentence(flags, error, message):
    with pytest.raises(error, match=message):
        play.main(flags)


def test_a_person_who_stops_it_sees_no_traceback(model, monkeypatch, capsys):
    def interrupted(self, action):
        raise KeyboardInterrupt

    monkeypatch.setattr(TwoDoors, "parse_action", interrupted)
    assert play.main(["two_doors", "--model", str(model), "--max_new_tokens_per_turn", "2"]) == 130
    assert capsys.readouterr().out.endswith("Stopped.\n")


# A person in the opponent's seat.


@pytest.fixture
def sit_down(model, monkeypatch, capsys):
    """Play a game against a model that gives one answer; return (status, what was shown before the record, the record)."""

    def sit(typed, says, *flags):
        answer = Response((1,), f"<action>{says}</action>")
        monkeypatch.setattr(Policy, "generate", lambda self, prompts, *_, **__: [answer for _ in prompts])
        monkeypatch.setattr("metarl_agents.policy.loading.check_model", lambda policy: None)  # it would see the script
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = play.main([*flags, "--model", str(model), "--wording", "compact"])
        before, _, record = capsys.readouterr().out.partition("What the model read and wrote:")
        return status, before, record

    return sit


def test_in_a_game_a_person_takes_the_opponents_seat(sit_down):
    status, before, record = sit_down("pass\nbet\nbet\n", "bet", "kuhn")
    assert status == 0 and "You are playing Kuhn poker" in before
    assert "Game 1 is over: you get -1, the model +1." in before
    assert before.count("== Game ") == 3 and before.count("Your move [pass | bet], for example pass: ") == 3
    ends = [line for line in before.splitlines() if line.startswith("Game ")]
    assert len(ends) == 3 and ends[1].endswith(ends[2][-26:]), "the same answer to the same deal ends alike"
    assert record.count("Action: bet") == 3 and "== Game 3 of 3 " in record


def test_a_record_of_games_tells_how_each_ended_and_what_all_of_them_paid(sit_down):
    _, before, record = sit_down("pass\nbet\nbet\n", "bet", "kuhn")
    assert "3 games of at most" in before and "That was all: you got -5, the model +5." in before
    assert record.count("Won. Payoff: +2.") == 2 and record.count("Won. Payoff: +1.") == 1
    assert record.endswith("Result for the model: won 3, drawn 0, lost 0 of 3 games, payoffs +5 in all\n")
    assert not any(word in before + record for word in ("attempts", "Attempt ", "olved"))


@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_person_reads_positions_in_words_and_sees_the_last_one_from_the_own_seat(sit_down, seed):
    seat = ("second", "first")[int(seed)]
    _, before, record = sit_down("bet\n" * 9, "bet", "kuhn", "--seed", seed, "--num_episodes", "1")
    game = before[before.index("== Game 1") :]
    assert f"You act {seat}. Your card is " in game and "The hand is over: you " in game and "last" not in game
    assert re.search(r"^  (first|last) [JQK]:", record, flags=re.MULTILINE), "the model reads the compact wording"
    flags = ("tictactoe", "--env_kwargs", "{opponent: random}", "--seed", seed, "--num_episodes", "1")
    _, before, record = sit_down("2 1\n2,2\n(2, 3)\n", "(1, 1)", *flags)
    game = before[before.index("== Game 1") :]
    assert "Row" not in game and "Row 1: " in record and "random" not in before
    assert "X" not in re.split("for example", game)[0], "the person's own signs are X, and none stands there yet"


def test_a_game_of_several_turns_is_recorded_turn_by_turn(sit_down):
    flags = ("matrix_game", "--env_kwargs", "{rounds: 3}", "--num_episodes", "1")
    _, before, record = sit_down("rock\nPaper\n rock \n", "paper", *flags)
    assert re.findall(r"^Turn \d", record, flags=re.MULTILINE) == ["Turn 1", "Turn 2", "Turn 3"]
    assert record.count("Payoff: +2.") == 1 and "lost 0 of 1 game, payoffs +2 in all" in record
    assert "All 3 rounds are over. Your choices against the other player's: rock against paper (-1)" in before


def test_a_person_never_sees_the_models_card_before_the_end(sit_down):
    _, before, record = sit_down("bet\n" * 3, "bet", "kuhn")
    # In the first test task the model acts first; its pages begin with that word.
    game = before[before.index("== Game 1") :]
    assert "You act second." in game and len(set(re.findall(r"\b[JQK]\b", game))) == 1
    assert not any(f"first {card}:" in before for card in "JQK")
    assert any(f"first {card}:" in record for card in "JQK")


def test_a_person_chooses_without_knowing_the_models_choice(sit_down):
    flags = ("matrix_game", "--env_kwargs", "{rounds: 1}", "--num_episodes", "1")
    _, before, _ = sit_down("rock\n", "paper", *flags)
    game = before[before.index("== Game 1") :]
    assert game.splitlines()[1:] == [
        "Round 1 of 1. Your choices against the other player's so far: none. Your points: 0.",
        "Your move [rock | paper | scissors], for example rock: All 1 rounds are over. Your choices against the other "
        "player's: rock against paper (-1). Your points: -1.",
        "Game 1 is over: you get -1, the model +1.",
        "",
        "That was all: you got -1, the model +1.",
        "",
    ]


def test_what_cannot_be_played_is_asked_again(sit_down):
    _, before, _ = sit_down("fold\n\nbet\n", "bet", "kuhn", "--num_episodes", "1")
    assert before.count("Your move") == 3 and '"fold" cannot be played here.' in before


def test_a_model_without_a_move_leaves_the_game_unfinished(sit_down):
    _, before, record = sit_down("", "fold", "kuhn", "--max_turns", "2", "--num_episodes", "2")
    assert [f"Game {number} stays unfinished" in before for number in (1, 2)] == [True, True]
    assert record.count("Unfinished: out of turns. Payoff: +0.") == 2
    assert "won 0, drawn 0, lost 0, unfinished 2 of 2 games, payoffs +0 in all" in record


def test_a_person_who_leaves_ends_the_game(sit_down):
    status, before, record = sit_down("bet\n", "bet", "kuhn")
    assert status == 130 and before.endswith("Stopped.\n") and record == ""


def test_other_opponents_are_watched_as_ever(sit_down):
    status, shown, record = sit_down("", "bet", "kuhn", "--opponent", "aggressive")
    assert status == 0 and "opponents ['aggressive']" in shown and record == ""
    assert shown.count("Action: bet") == 3, "a win does not end the trial"
    assert sit_down("", "bet", "kuhn", "--opponent", "own")[0] == 0


def test_only_a_person_is_seated_for_a_person():
    trial = TrialConfig(env="kuhn", env_kwargs={"opponent": "random"})
    assert [play.against(trial, name)[1] for name in (None, "human", "own", "cfr")] == [True, True, False, False]
    assert play.against(trial, "own")[0].env_kwargs == {"opponent": "random"}
    assert play.against(TrialConfig(env="two_doors"), None) == (TrialConfig(env="two_doors"), False)
