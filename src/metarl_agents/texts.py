"""Read a user's text, JSON and JSONL files; what is wrong with one is said in a sentence with file, line and cause."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metarl_agents.errors import ConfigError

_OTHERS = {
    "UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),  # before UTF-16, whose mark begins one of them
    "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_GZIP = b"\x1f\x8b"


def read_text(path: str | Path, what: str) -> str:
    """Return the text of a UTF-8 file, with or without its mark at the beginning, gzipped or not.

    Args:
        path: of the file.
        what: the file's name in messages, for example "task list".

    Raises:
        ConfigError: it cannot be read, or has another encoding.
    """
    try:
        data = Path(path).expanduser().read_bytes()
        data = gzip.decompress(data) if data.startswith(_GZIP) else data
    except (OSError, EOFError) as error:
        raise _unreadable(path, what, getattr(error, "strerror", None) or str(error)) from None
    encoding = next((name for name, marks in _OTHERS.items() if data.startswith(marks)), None)
    if encoding is None and b"\0" in data[:1000]:
        encoding = "UTF-16 or binary"
    if encoding is not None:
        raise _unreadable(path, what, f"its first line is {encoding}, not UTF-8; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        cause = f"line {line} holds the byte 0x{data[error.start]:02x}, which is not UTF-8; save it as UTF-8"
        raise _unreadable(path, what, cause) from None


def read_json(path: str | Path, what: str) -> Any:
    """Return what a JSON file holds.

    Raises:
        ConfigError: it cannot be read, or is no JSON.
    """
    return _parsed(read_text(path, what), path, what)


def read_jsonl(path: str | Path, what: str) -> list[tuple[int, dict[str, Any]]]:
    """Return (line number, object) of each line that is not blank; a file that is one JSON list counts by its items.

    Raises:
        ConfigError: it cannot be read, or a line is no JSON object.
    """
    text = read_text(path, what)
    if text.lstrip().startswith("["):
        rows = list(enumerate(_parsed(text, path, what), start=1))
    else:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        last = lines[-1][0] if lines else 0
        rows = [(number, _parsed(line, path, what, number, is_last=number == last)) for number, line in lines]
    for number, row in rows:
        if not isinstance(row, Mapping):
            raise _unreadable(
                path, what, f"line {number} holds no JSON object but a value of type {type(row).__name__}"
            )
    return rows


def _parsed(text: str, path: str | Path, what: str, number: int | None = None, *, is_last: bool = True) -> Any:
    """Return the JSON value of a text; `number` is the line it stands in, where it is one line of a file."""
    try:
        return json.loads(text)
    except RecursionError:
        raise _unreadable(path, what, f"line {number or 1} is nested too deeply") from None
    except json.JSONDecodeError as error:
        is_cut = is_last and (error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"))
        cause = "is cut off" if is_cut else f"is no JSON ({error.msg} at column {error.colno})"
        raise _unreadable(path, what, f"line {number or error.lineno} {cause}") from None


def _unreadable(path: str | Path, what: str, cause: str) -> ConfigError:
    return ConfigError(f"cannot read the {what} {path}: {cause}.")
