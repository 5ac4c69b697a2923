"""What a run shows and leaves behind: a progress bar, TensorBoard events, `metrics.jsonl`, `trajectories/*.jsonl`.

Only the main process writes; elsewhere every method does nothing. A log that cannot be written is one warning and
never the end of training. What does not live here: what the numbers mean (`metrics.py`), what a trial looks like
as a record (`records.py`).
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from metarl_agents.config import check_targets
from metarl_agents.tracking.records import TRAJECTORY_FOLDER, cut, drop_after, number, write_records

METRICS_FILE = "metrics.jsonl"
LOGS = (METRICS_FILE, f"{TRAJECTORY_FOLDER}/*.jsonl", "events.out.tfevents.*")
"""Patterns of the files that grow with a run, in its folder."""

_SHOWN = ("pass@1", "pass@2", "pass@3")
_RECENT = 10
_FLUSH_S = 30
_SLOW_REFRESH_S = 30.0


class RunLogger:
    """The one writer of a run; also a context manager that closes itself.

    The x-axis of everything is the number of training steps done, a batch each (`optimizer_step` stands beside). Tags
    are `train/<metric>`, `eval/<metric>`.
    The progress bar shows pass@1, pass@2 and pass@3 of training, each as the mean over the last 10 logged steps.

    Args:
        output_dir: the run folder; TensorBoard events and `metrics.jsonl` lie directly in it.
        report_to: "tensorboard" and/or "none", as a name or a sequence of names. `metrics.jsonl` is always written.
        total_steps: the length of the progress bar, in training steps.
        is_main: False on every process but one; then nothing is ever written.
        progress: False for no progress bar.
    """

    def __init__(
        self,
        output_dir: str | Path,
        *,
        report_to: str | Sequence[str] = ("tensorboard",),
        total_steps: int,
        is_main: bool,
        progress: bool = True,
    ) -> None:
        targets = (report_to,) if isinstance(report_to, str) else tuple(report_to)
        check_targets(targets)
        self._folder = Path(output_dir)
        self._is_main = is_main
        self._wants_events = "tensorboard" in targets
        self._events: Any | None = None
        self._first_step: int | None = None
        self._recent: dict[str, deque[float]] = {name: deque(maxlen=_RECENT) for name in _SHOWN}
        self._warned: set[str] = set()
        self._bar = _progress_bar(total_steps) if is_main and progress else None

    def __enter__(self) -> RunLogger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def log(self, step: int, metrics: Mapping[str, Any], prefix: str = "train") -> None:
        """Write metrics under `prefix`/ at training step `step`, and move the progress bar if they are training's.

        `metrics.jsonl` gets one line per call: {"step", "prefix", "metrics"}; a number that is not finite is null
        there. TensorBoard gets such numbers as they are.
        """
        if not self._is_main:
            return
        line = {"step": step, "prefix": prefix, "metrics": {name: number(value) for name, value in metrics.items()}}
        self._write("metrics", lambda: write_records(self._folder / METRICS_FILE, [line]))
        self._log_events(step, metrics, prefix)
        if prefix == "train":
            self._advance(step, line["metrics"])

    def trials(self, records: Iterable[dict[str, Any]], split: str) -> None:
        """Append trial records (`records.trial_record`) to `trajectories/<split>.jsonl`."""
        if self._is_main:
            path = self._folder / TRAJECTORY_FOLDER / f"{split}.jsonl"
            self._write("trajectories", lambda: write_records(path, records))

    def message(self, text: str) -> None:
        """Print a line without tearing the progress bar."""
        if self._is_main:
            from tqdm import tqdm

            tqdm.write(text)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each log as it is now, for `truncate`; {} on every process but the main one."""
        if not self._is_main:
            return {}
        if self._events is not None:
            with suppress(Exception):  # a broken TensorBoard is warned about where points are written
                self._events.flush()
        return {str(path.relative_to(self._folder)): path.stat().st_size for path in self._files()}

    def truncate(self, step: int, sizes: Mapping[str, int] | None = None) -> None:
        """Forget what was logged after a checkpoint: call it after resuming from it.

        Args:
            step: of the checkpoint; the progress bar starts there.
            sizes: what `sizes()` was when it was written: every log is cut to its size then. Without, metrics and
                trajectories of later steps are dropped, and TensorBoard hides its points of later steps.
        """
        if not self._is_main:
            return
        self._first_step = step + 1
        self._close_events()
        for path in self._files():
            name = str(path.relative_to(self._folder))
            if sizes:
                self._write("old logs", lambda path=path, name=name: cut(path, sizes.get(name, 0), step))
            elif path.suffix == ".jsonl":
                self._write("old logs", lambda path=path: drop_after(path, step))
        if self._bar is not None:
            self._bar.n = self._bar.last_print_n = self._bar.initial = step
            self._bar.refresh()

    def close(self) -> None:
        """Flush and close everything; safe to call twice."""
        self._close_events()
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _files(self) -> list[Path]:
        """Return the logs that there are."""
        return sorted(path for pattern in LOGS for path in self._folder.glob(pattern))

    def _log_events(self, step: int, metrics: Mapping[str, Any], prefix: str) -> None:
        """Write scalars to TensorBoard, opening it at the first call."""
        if not self._wants_events:
            return
        # Broken installations of TensorBoard raise anything at all, from its import on (protobuf raises TypeError).
        try:
            if self._events is None:
                self._events = _open_events(self._folder, self._first_step)
            for name, value in metrics.items():
                if (scalar := _scalar(value)) is not None:
                    self._events.add_scalar(f"{prefix}/{name}", scalar, global_step=step)
        except Exception as error:
            self._wants_events, self._events = False, None
            self._warn("tensorboard", f"TensorBoard cannot be written ({error}): going on with {METRICS_FILE} alone.")

    def _close_events(self) -> None:
        """Close TensorBoard's file, if there is one."""
        events, self._events = self._events, None
        if events is not None:
            self._write("TensorBoard events", events.close)

    def _advance(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Move the progress bar to `step` and show the recent pass@k."""
        for name, recent in self._recent.items():
            if (value := metrics.get(name)) is not None:
                recent.append(value)
        if self._bar is not None:
            shown = {name: f"{sum(values) / len(values):.2f}" for name, values in self._recent.items() if values}
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(step - self._bar.n)

    def _write(self, what: str, write: Callable[[], None]) -> None:
        """Write, or warn once that this cannot be written."""
        try:
            write()
        except OSError as error:
            self._warn(what, f"The {what} of this run cannot be written ({error}): training goes on without them.")

    def _warn(self, kind: str, text: str) -> None:
        """Warn once per kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, RuntimeWarning, stacklevel=4)


def _progress_bar(total_steps: int) -> Any:
    """Open the bar; where no one watches (a log file), it is refreshed rarely."""
    from tqdm import tqdm

    interval = 0.1 if sys.stderr.isatty() else _SLOW_REFRESH_S
    return tqdm(total=total_steps, desc="train", unit="step", mininterval=interval, dynamic_ncols=True)


def _open_events(folder: Path, first_step: int | None) -> Any:
    """Open TensorBoard's writer; points of an earlier run from `first_step` on are hidden."""
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(log_dir=str(folder), purge_step=first_step, flush_secs=_FLUSH_S)


def _scalar(value: Any) -> float | None:
    """Return a float, NaN and infinities included, or None for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
