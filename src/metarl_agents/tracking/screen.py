"""Screen: one trial as text in a terminal, turn by turn. Plain ASCII; colours only where a person looks."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import TextIO

from metarl_agents.types import Episode, Outcome, Phase, Trial, Turn

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ENDINGS = {
    Outcome.SUCCESS: ("green", "Solved."),
    Outcome.FAILURE: ("red", "Failed."),
    Outcome.DRAW: ("yellow", "A draw."),
    Outcome.OUT_OF_TURNS: ("red", "Failed: out of turns."),
    Outcome.OUT_OF_CONTEXT: ("red", "Failed: the prompt no longer fits the model."),
    Outcome.CRASHED: ("red", "The environment failed."),
}
_GAME_ENDINGS = {
    Outcome.SUCCESS: ("green", "Won"),
    Outcome.FAILURE: ("red", "Lost"),
    Outcome.DRAW: ("yellow", "Drawn"),
    Outcome.OUT_OF_TURNS: ("red", "Unfinished: out of turns"),
    Outcome.OUT_OF_CONTEXT: ("red", "Unfinished: the prompt no longer fits the model"),
    Outcome.CRASHED: ("red", "Unfinished: the environment failed"),
}
_WIDEST = 100
_BARE_ACTION = re.compile(r"<action>[^<]*</action>")
"""An answer that says no more than its action, which is shown anyway."""


class Screen:
    """Writes what happens as it happens.

    Args:
        out: where to; in colour if it is a terminal and NO_COLOR is unset or empty.
        num_episodes: of a trial.
        payoff: of games, all of which are played whoever wins: what the model earned in an episode. None where a trial
            is attempts at one task until one succeeds.
    """

    def __init__(self, out: TextIO, *, num_episodes: int, payoff: Callable[[Episode], float] | None = None) -> None:
        self._out = out
        self._colour = out.isatty() and not os.environ.get("NO_COLOR")
        self._width = min(_WIDEST, shutil.get_terminal_size().columns)
        self._num_episodes = num_episodes
        self._payoff = payoff
        self._opened = 0
        self._closed = 0

    def header(self, title: str, facts: Sequence[str]) -> None:
        """Write what is about to be seen."""
        self._line(self._style(title, "bold"))
        for fact in facts:
            self._block(fact, "", "dim")

    def turn(self, trial: Trial, turn: Turn) -> None:
        """Write a turn, and the end of its attempt if that was the last one; call it in the order of `trial.rows()`."""
        number, place = next((n, t) for n, t, row in trial.rows() if row is turn)
        self._catch_up(trial, number)
        if turn.phase is Phase.REFLECT:
            self._reflection(turn)
            return
        episode = trial.episodes[number]
        self._move(place + 1, turn)
        if episode.outcome is not None and turn is episode.turns[-1]:
            self._close(episode)

    def verdict(self, trial: Trial) -> None:
        """Write how the trial ended."""
        self._catch_up(trial, len(trial.episodes))
        self._line()
        if self._payoff is not None and trial.error is None:
            self._score(trial.episodes, self._payoff)
            return
        solved = next((n for n, episode in enumerate(trial.episodes, start=1) if episode.success), None)
        total = self._num_episodes
        if trial.error is not None:
            self._block(f"Result: the environment failed ({_printable(trial.error)})", "", "red")
        elif solved is not None:
            self._line(self._style(f"Result: solved in attempt {solved} of {total}", "bold", "green"))
        else:
            attempts = "1 attempt" if total == 1 else f"{total} attempts"
            self._line(self._style(f"Result: not solved in {attempts}", "bold", "red"))

    def _score(self, games: Sequence[Episode], payoff: Callable[[Episode], float]) -> None:
        """Write how the games ended and what the model earned in all of them."""
        words = [_GAME_ENDINGS[game.outcome or Outcome.FAILURE][1].partition(":")[0].lower() for game in games]
        ends = ["won", "drawn", "lost", *(["unfinished"] if "unfinished" in words else [])]
        counts = ", ".join(f"{end} {words.count(end)}" for end in ends)
        total = sum(payoff(game) for game in games)
        played = "1 game" if len(games) == 1 else f"{len(games)} games"
        colour = "green" if total > 0 else "red" if total < 0 else "yellow"
        text = f"Result for the model: {counts} of {played}, payoffs {total:+g} in all"
        self._line(self._style(text, "bold", colour))

    def _catch_up(self, trial: Trial, number: int) -> None:
        """Write the ends of attempts before `number` that ended without a turn, and open attempt `number`."""
        while self._closed < number:
            self._open(self._closed + 1)
            self._close(trial.episodes[self._closed])
        if number < len(trial.episodes) and self._closed == number:
            self._open(number + 1)

    def _open(self, number: int) -> None:
        if self._opened < number:
            self._opened = number
            self._line()
            name = "Attempt" if self._payoff is None else "Game"
            self._line(self._style(f"== {name} {number} of {self._num_episodes} ".ljust(self._width, "="), "bold"))

    def _close(self, episode: Episode) -> None:
        self._closed += 1
        self._line()
        self._block(episode.final_observation, "  ")
        colour, text = (_ENDINGS if self._payoff is None else _GAME_ENDINGS)[episode.outcome or Outcome.FAILURE]
        text += "" if self._payoff is None else f". Payoff: {self._payoff(episode):+g}."
        self._line("  " + self._style(text, "bold", colour))

    def _move(self, number: int, turn: Turn) -> None:
        self._line()
        self._line(self._style(f"Turn {number}", "bold"))
        self._block(turn.observation, "  ")
        answer = turn.response.written.strip()
        if turn.action is None or not _BARE_ACTION.fullmatch(answer):
            self._block(answer or "(an empty answer)", "  > ", "dim")
        note = f"   reward {turn.reward:g}" + "   cut at the token limit" * turn.response.truncated
        action = self._style(_printable(turn.shown_action), "red" if turn.action is None else "cyan", "bold")
        self._line(f"  Action: {action}{self._style(note, 'dim')}")

    def _reflection(self, turn: Turn) -> None:
        self._line()
        self._line(self._style("Reflection", "bold", "yellow"))
        if turn.action is None:
            self._block(turn.response.written.strip() or "(an empty answer)", "  > ", "dim")
            self._line("  " + self._style("No usable remark.", "red"))
        else:
            self._block(turn.shown_action, "  | ", "yellow")

    def _block(self, text: str, indent: str, *styles: str) -> None:
        """Write a text line by line, long lines wrapped."""
        for line in _printable(text).splitlines():
            room = max(20, self._width - len(indent))
            for piece in textwrap.wrap(line, room, replace_whitespace=False, drop_whitespace=False) or [""]:
                self._line(indent + self._style(piece.rstrip(), *styles))

    def _style(self, text: str, *styles: str) -> str:
        if not (self._colour and styles and text):
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def _line(self, text: str = "") -> None:
        self._out.write(text.rstrip() + "\n")
        self._out.flush()


def _printable(text: str) -> str:
    r"""Show control characters instead of sending them: an answer must not be able to drive the terminal.

    >>> _printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(sign if sign in "\n\t" or sign.isprintable() else repr(sign)[1:-1] for sign in text)
