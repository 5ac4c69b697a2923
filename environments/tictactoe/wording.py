"""What the model reads: boards and rules of Tic-Tac-Toe and how its pages are put, `paper` and `compact`.

Boards are printed as the one who looks sees them: the own signs are X, whoever began. So one model can sit in either
seat. Read first: `board_text`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import COMPACT, Wording

_RULES = """\
You are playing Tic-Tac-Toe against another player on a board of 3 rows and 3 columns. You put X, the other player \
puts O. If the first board you see is empty, you begin; if it shows an O, the other player has begun.

Signs on the board:
- . is a free cell.
- X is a cell of yours.
- O is a cell of the other player.

Rules:
- The players take turns. A move puts one sign on a free cell, named (row, col). Rows are counted from the top and \
columns from the left, both from 1: (1, 1) is the top left cell, (2, 2) the centre, (1, 3) the top right cell.
- Whoever first has three signs in a row wins: along a row as (1, 1), (1, 2), (1, 3), along a column as (1, 2), \
(2, 2), (3, 2), or along a diagonal as (1, 1), (2, 2), (3, 3).
- If the board is full and nobody has three in a row, the game is a draw.
- A cell that is taken or off the board cannot be played; the attempt to do so is penalised.

Goal: win. The other player is the same in every attempt and may have habits, so find out how it plays.
In the list of moves only yours are named; the other player's answers are on the boards.
An answer names one cell in the form (row, col)."""

_PLAY = """\
Now choose your next cell. First reason step by step: can you win at once, must you stop the other player from \
winning, and how has it answered so far? Then name exactly one free cell in the form (row, col), inside <action> \
</action>."""

_REFLECT = """\
Now review the game. First analyse it: which of your moves helped, which one went wrong, and how does the other player \
choose its cells? Then write a concise plan for the next game against this same player, naming the cells to take and \
in which order. Put your analysis and plan inside <remark> </remark>."""


@dataclass(frozen=True)
class Texts:
    """All that depends on the wording."""

    rules: str
    wording: Wording
    row: str
    """One row of the board. Fields: number (1-based), signs."""
    results: tuple[str, str, str]
    """Follow the last board: won, lost, drawn."""
    refusal: str
    """Follows the board after an illegal move."""


_PAPER = Texts(
    rules=_RULES,
    wording=Wording(
        play_request=_PLAY,
        reflect_request=_REFLECT,
        admissible="",
        initial="The board at the start:\n{observation}",
        current="The board now:\n{observation}",
        history_heading="Your moves in this game:",
        history_entry="Move {number}: you chose {action}. The board after it and the other player's answer:\n"
        "{observation}",
        memory_heading="What you noted after earlier games against this same player:",
        memory_remark="Game {number} {outcome}. Your remark after it: {remark}",
        memory_trajectory="Game {number} {outcome}. What happened:\n{trajectory}",
        memory_both="Game {number} {outcome}. What happened:\n{trajectory}\nYour remark after it: {remark}",
        outcome_failure="was lost or not finished",
        outcome_success="was won",
        outcome_draw="was a draw",
        reflect_note="The game {outcome}.",
        reflect_heading="One past game against this player, to be reviewed:",
    ),
    row="{signs}",
    results=("You have won.", "You have lost.", "The game is a draw."),
    refusal="\nThat cell cannot be played. Nothing has changed.",
)
_COMPACT = Texts(
    rules="",
    wording=replace(COMPACT, play_request="Choose one."),
    row="Row {number}: {signs}",
    results=("won", "lost", "drawn"),
    refusal="\nnot valid",
)
_TEXTS = {"paper": _PAPER, "compact": _COMPACT}


def texts(name: str) -> Texts:
    """Return the texts of the named wording."""
    check_choice("Tic-Tac-Toe", "wording", name, _TEXTS)
    return _TEXTS[name]


def board_text(state: str, seat: int, row: str = "{signs}") -> str:
    """Return the board as a seat sees it, one line a row.

    >>> board_text("xo.......", 1).splitlines()
    ['O X .', '. . .', '. . .']
    """
    signs = state.upper() if seat == 0 else state.translate(str.maketrans("xo", "OX"))
    lines = (" ".join(signs[start : start + 3]) for start in (0, 3, 6))
    return "\n".join(row.format(number=number, signs=line) for number, line in enumerate(lines, start=1))


def show_state(state: str, seat: int, won: int | None, over: bool, words: Texts) -> str:
    """Return the board and, at the end, who has won."""
    board = board_text(state, seat, words.row)
    return f"{board}\n{words.results[2 if won is None else int(won != seat)]}" if over else board
