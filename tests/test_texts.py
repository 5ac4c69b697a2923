"""Files that users bring: what is wrong with one is said with file, line and cause, whatever reads it."""

import gzip

import pytest

from metarl_agents.cli import parse_config
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import EvaluationResult
from metarl_agents.rollout.tasks import load_task_list
from metarl_agents.training.demonstrations import read_demonstrations


def demonstrations(path):
    return read_demonstrations(path, lambda messages: (1,), lambda text: (2,))


READERS = {
    "task list": (load_task_list, '{"seed": 1}\n{"seed": 2}\n{"seed": 3}\n'),
    "demonstrations": (demonstrations, '{"prompt": "a", "response": "b"}\n{"prompt": "c", "response": "d"}\n'),
    "settings file": (lambda path: parse_config(["--config", path]), "seed: 1\nmax_steps: 2\n"),
    "evaluation result": (EvaluationResult.from_json, '{\n"label": "a",\n"split": "test"\n}\n'),
}
ENCODINGS = {
    "utf-16": "its first line is UTF-16, not UTF-8; save it as UTF-8",
    "utf-16-le": "its first line is UTF-16 or binary, not UTF-8; save it as UTF-8",
    "utf-32": "its first line is UTF-32, not UTF-8; save it as UTF-8",
}


def refusal(read, path):
    with pytest.raises(ConfigError) as caught:
        read(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("what", READERS)
def test_another_encoding_is_named_with_its_line(tmp_path, what):
    read, text = READERS[what]
    path = tmp_path / "theirs.jsonl"
    for encoding, cause in ENCODINGS.items():
        path.write_bytes(text.encode(encoding))
        assert refusal(read, path) == f"cannot read the {what} {path}: {cause}."
    first, rest = text.encode().split(b"\n", 1)
    path.write_bytes(first + b"\n" + "\N{LATIN SMALL LETTER E WITH ACUTE}".encode("latin-1") + rest)
    cause = "line 2 holds the byte 0xe9, which is not UTF-8; save it as UTF-8"
    assert refusal(read, path) == f"cannot read the {what} {path}: {cause}."
    assert (
        refusal(read, tmp_path / "no.jsonl")
        == f"cannot read the {what} {tmp_path}/no.jsonl: No such file or directory."
    )


@pytest.mark.parametrize("what", ["task list", "demonstrations", "evaluation result"])
def test_a_file_that_is_cut_and_a_line_that_is_no_json_are_named(tmp_path, what):
    read, text = READERS[what]
    path = tmp_path / "theirs.jsonl"
    lines = text.splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:-1] if what != "evaluation result" else text[:20])
    assert (
        refusal(read, path) == f"cannot read the {what} {path}: line {3 if 'eval' in what else len(lines)} is cut off."
    )
    path.write_text(text.replace(":", "=", 1))
    assert f"cannot read the {what} {path}: line {2 if 'eval' in what else 1} is no JSON (" in refusal(read, path)


def test_a_row_that_lacks_a_column_or_is_no_object_is_named_by_its_line(tmp_path):
    path = tmp_path / "theirs.jsonl"
    path.write_text('{"seed": 1}\n\n{"sed": 2}\n')
    assert refusal(load_task_list, path).endswith("has no column `seed`, only sed, in line 3.")
    path.write_text('{"seed": 1}\n2\n')
    assert refusal(load_task_list, path).endswith("line 2 holds no JSON object but a value of type int.")
    path.write_text('{"prompt": [{"role": "user", "content": "a"}], "response": "b"}\n')
    assert "hold a list as `prompt`: both columns must be texts" in refusal(demonstrations, path)


def test_marks_blank_lines_lists_and_gzip_are_read(tmp_path):
    path = tmp_path / "theirs.jsonl"
    for data in (
        b'\xef\xbb\xbf{"seed": 4}\r\n\r\n{"seed": 5}', b'[{"seed": 4},\n {"seed": 5}]', gzip.compress(b'{"seed": 4}\n{"seed": 5}\n')
    ):  # fmt: skip
        path.write_bytes(data)
        assert load_task_list(str(path))["train"] == [4, 5]
