"""Records keep everything of a trial, and their files survive a killed run."""

import json

import pytest

from metarl_agents.tracking.records import drop_after, read_records, trial_record, write_records
from metarl_agents.types import Episode, Outcome, Phase, Response, Trial, Turn


def turn(phase=Phase.PLAY, text="look", reward=0.0, **more):
    return Turn(phase, "a board", (1, 2, 3), Response((4, 5), text), text, text, reward, **more)


def two_attempts():
    first = Episode("start", [turn(reward=-0.5, invalid=True), turn(reward=1.0)], "lost", Outcome.OUT_OF_TURNS)
    first.reflection = turn(Phase.REFLECT, "go left")
    second = Episode("start", [turn(reward=10.0)], "won", Outcome.SUCCESS)
    return Trial(seed=7, group=2, episodes=[first, second], opponent="random", seat=1)


def decode(ids):
    return "<|start|>" + "".join(map(str, ids))


def test_a_record_holds_every_turn_with_its_credit_in_row_order():
    record = trial_record(two_attempts(), decode, step=3, split="train", returns=[1, 2, 3, 4], advantages=[-1, 0, 1, 2])
    first, second = record["episodes"]
    assert (record["seed"], record["group"], record["opponent"], record["seat"]) == (7, 2, "random", 1)
    assert (record["step"], record["split"], record["solved_at"], record["error"]) == (3, "train", 1, None)
    assert [t["return"] for t in first["turns"]] == [1, 2]
    assert (first["reflection"]["return"], first["reflection"]["phase"]) == (3, "reflect")
    assert (second["turns"][0]["return"], second["turns"][0]["advantage"], second["reflection"]) == (4, 2, None)
    assert (first["outcome"], first["reward"], second["final_observation"]) == ("out_of_turns", 0.5, "won")
    shown = first["turns"][0]
    assert (shown["prompt"], shown["response"], shown["prompt_tokens"], shown["response_tokens"]) == (
        "<|start|>123",
        "look",
        3,
        2,
    )
    assert shown["invalid"] and not shown["truncated"]


def test_a_record_is_strict_json_even_with_tensors_and_infinities():
    torch = pytest.importorskip("torch")
    trial = two_attempts()
    record = trial_record(
        trial,
        decode,
        step=0,
        split="eval",
        returns=torch.tensor([1.0, float("nan"), float("inf"), 2.0]),
        extra={"a": torch.tensor(2.5), "b": {1}},
    )
    json.dumps(record, allow_nan=False)
    assert [t["return"] for t in record["episodes"][0]["turns"]] == [1.0, None]
    assert record["episodes"][1]["turns"][0]["advantage"] is None
    assert record["extra"] == {"a": 2.5, "b": "{1}"}


def test_an_unsolved_or_crashed_trial_says_so():
    record = trial_record(Trial(seed=1, group=0, episodes=[Episode("x")], error="boom"), decode, step=0, split="train")
    assert (record["solved_at"], record["error"]) == (None, "boom")
    assert record["episodes"][0]["outcome"] is None


def test_credit_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="`returns` has 2 entries, but the trial has 4 turns"):
        trial_record(two_attempts(), decode, step=0, split="train", returns=[1, 2])


def test_what_is_written_is_read_back(tmp_path):
    odd = [{"step": 1, "text": 'é\u2028"\ud800\n</script>'}, {"step": 2, "text": "b"}]
    write_records(tmp_path / "trajectories" / "train.jsonl", odd[:1])
    write_records(tmp_path / "trajectories" / "train.jsonl", odd[1:])
    write_records(tmp_path / "trajectories" / "eval.jsonl", [{"step": 9}])
    assert read_records(tmp_path) == [{"step": 9}, *odd]
    assert read_records(tmp_path / "trajectories") == [{"step": 9}, *odd]
    assert read_records(tmp_path / "trajectories" / "train.jsonl") == odd


@pytest.mark.parametrize("torn", [b'{"step": 2, "te', b'{"a": "\xc3', b"2"])
def test_a_torn_last_line_is_skipped_and_cut_before_the_next_record(tmp_path, torn):
    path = tmp_path / "train.jsonl"
    path.write_bytes(b'{"step": 1}\n' + torn)
    assert read_records(path) == [{"step": 1}]
    write_records(path, [{"step": 3}])
    assert read_records(path) == [{"step": 1}, {"step": 3}]


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_bytes(b'{"step": 1}')
    write_records(path, [{"step": 2}])
    assert read_records(path) == [{"step": 1}, {"step": 2}]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"step": 1}\noops\n{"step": 2}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_records(path)


def test_a_run_without_trajectories_says_what_to_give(tmp_path):
    with pytest.raises(FileNotFoundError, match="give the folder of a run that has recorded trials"):
        read_records(tmp_path)


def test_lines_beyond_a_step_can_be_dropped(tmp_path):
    path = tmp_path / "train.jsonl"
    write_records(path, [{"step": 1}, {"step": 2}, {"step": 3}])
    with path.open("a") as file:
        file.write('{"step": 1, "to')
    drop_after(path, 2)
    drop_after(tmp_path / "missing.jsonl", 2)
    assert read_records(path) == [{"step": 1}, {"step": 2}]
    assert [p.name for p in tmp_path.iterdir()] == ["train.jsonl"]
