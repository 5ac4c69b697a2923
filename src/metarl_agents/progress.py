"""Progress of a wait before or after training: a bar in a terminal, at most two lines where nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SILENT_S = 5.0
"""Seconds that pass before a wait is mentioned where no terminal is."""


@contextmanager
def progress(what: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show on standard error how far something is.

    Args:
        what: what is being done, for example "teaching the tiny model".
        total: how many parts it has.
        shown: False on every process but the main one.

    Yields:
        A function that takes the number of parts done so far.
    """
    if not shown:
        yield lambda done: None
    elif sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=total, desc=what, leave=False, dynamic_ncols=True) as bar:
            yield lambda done: bar.update(done - bar.n) and None
    else:
        lines = _Lines(what, total)
        yield lines.at
        lines.end()


class _Lines:
    """One line when a wait turns out long, with the time that is left, and one at its end."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._started, self._said = time.monotonic(), False

    def at(self, done: int) -> None:
        """Mention the wait once it is long, and how long it will be."""
        seconds = time.monotonic() - self._started
        if not self._said and done and seconds >= SILENT_S:
            self._said = True
            left = seconds / done * max(0, self._total - done)
            sys.stderr.write(f"{self._what}: {done} of {self._total} after {seconds:.0f} s, about {left:.0f} s to go\n")

    def end(self) -> None:
        """Say how long it took, if it was mentioned."""
        if self._said:
            sys.stderr.write(f"{self._what}: done after {time.monotonic() - self._started:.0f} s\n")
