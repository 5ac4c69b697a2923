"""What a process of the comparison is told, and how it says what it found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from side_by_side.presets import PRESETS, Preset, Workload


@dataclass(frozen=True)
class Job:
    """One process."""

    kind: str
    """`prepare`, `environments`, `request`, `waiting`, or a contender: `ours`, `lockstep`, `trl`, `trl_continuous`."""
    preset: str
    folder: str
    """Where the model and TRL's prompts are."""
    output: str
    """The file for what was found."""
    workload: str = ""
    micro_batch: int = 1
    """Rows of a forward and backward pass; of the library, which counts padded tokens, tokens."""
    tasks_factor: float = 1.0
    repeats: int = 1
    """Timed iterations; 0: only the first one, for the time until its update ends."""
    started: float = 0.0
    """The machine's monotonic clock when the process was started."""

    @property
    def sizes(self) -> Preset:
        """The preset, as far as it was resized."""
        return PRESETS[self.preset].resized(self.tasks_factor, self.repeats)

    @property
    def work(self) -> Workload:
        """The workload."""
        return self.sizes.workloads[self.workload]

    @property
    def steps(self) -> int:
        """Iterations: one that warms up, and those that are timed."""
        return 1 + self.repeats

    @property
    def prompts(self) -> Path:
        """The file of single-turn prompts: for each step the messages of each task."""
        return Path(self.folder) / "prompts.json"

    def write(self, path: Path) -> None:
        """Write the job for its process."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read what `write` wrote."""
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{item.name: values[item.name] for item in fields(cls)})
