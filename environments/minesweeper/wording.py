"""What the model reads: the rules of MineSweeper and how its pages are put, `paper` and `compact`.

`paper` follows the structure of the papers' prompts (role, legend, goal, rules; reason first, then answer).
`compact` says next to nothing: it is for models of less than a million weights, taught by demonstrations.
"""

from __future__ import annotations

from dataclasses import replace

from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import COMPACT, Wording

_RULES = """\
You are playing MineSweeper on a board of {size} rows and {size} columns. {mines} hidden among its cells.
Rows and columns are counted from 1, and (1, 1) is the top left cell.

Signs on the board:
- ? is a cell that is still closed.
- . is an open cell with no mine next to it.
- 1 to 8 is an open cell, and tells how many of the up to 8 cells touching it hold a mine.
- * is a mine that was opened.

Goal: open all cells that hold no mine, and none that does.

What a move does:
- Opening a cell without a mine and with none next to it also opens everything around it, spreading up to numbers.
- Opening a cell with a mine next to it shows that cell's number alone.
- Opening a mine loses the attempt at once.
- Choosing a cell that is open already, or off the board, changes nothing and uses up the move.
The first cell has been opened for you.
An answer names one cell in the form (row, col)."""

_PLAY = """\
Now choose the next cell. First reason step by step: which closed cells do the numbers prove safe, and which must be \
mines? Then name exactly one cell shown as ? in the form (row, col), inside <action> </action>."""

_REFLECT = """\
Now review the attempt. First analyse it: which moves helped, which one went wrong, and what does the final board \
tell about where the mines are? Then write a concise plan for the next attempt on this same board, naming cells to \
open and cells to stay away from. Put your analysis and plan inside <remark> </remark>."""


def show_cell(action: object) -> str:
    """Return a 1-based (row, col) action as pages print it.

    >>> show_cell((2, 3))
    '(2, 3)'
    """
    return "({}, {})".format(*action) if isinstance(action, tuple) else str(action)


def paper(size: int, mines: int) -> tuple[str, Wording]:
    """Return (rules, wording) for language models."""
    count = "1 mine is" if mines == 1 else f"{mines} mines are"
    wording = Wording(
        play_request=_PLAY,
        reflect_request=_REFLECT,
        initial="The board at the start:\n{observation}",
        current="The board now:\n{observation}",
        history_heading="Your moves in this attempt:",
        history_entry="Move {number}: you chose {action}. The board after it:\n{observation}",
        memory_heading="What you noted after earlier attempts on this same board:",
        reflect_heading="One past attempt on this board, to be reviewed:",
        show_action=show_cell,
    )
    return _RULES.format(size=size, mines=count), wording


def compact(size: int, mines: int) -> tuple[str, Wording]:
    """Return (rules, wording) for small models: no rules, the board alone, actions alone in reflections."""
    wording = replace(COMPACT, play_request="Open a cell.", show_action=show_cell)
    return "", wording


_WORDINGS = {"paper": paper, "compact": compact}


def texts(name: str, *, size: int, mines: int) -> tuple[str, Wording]:
    """Return (rules, wording) of the named wording."""
    check_choice("MineSweeper", "wording", name, _WORDINGS)
    return _WORDINGS[name](size, mines)
