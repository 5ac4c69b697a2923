"""Who may be compared with whom in a table, how far they lie apart, and whether somebody may be said to lead.

What lives here: the choice of pairs, and the verdict. What does not: the statistics (`metarl_agents.evaluation`,
`compare_runs.py`, `games.py`) and the numbers of single rows (`summary.py`). Only rows that were evaluated alike are
compared: the same tasks under the same limits and the same sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compare_runs import Group, difference

from bench import games
from bench.fairness import conditions_of, differing
from bench.measures import EXPLOITED, PASS, Measure, scores
from bench.plan import Block, Row
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation import holm_adjusted
from metarl_agents.evaluation.results import SMALL_NUMBER

LEVEL = 0.05
"""A p-value below this is significant."""
STRICTER = (
    "; the verdict is stricter: it corrects for all pairs of rows, as nobody said beforehand which row would lead"
)


def finished_rows(rows: Sequence[dict[str, Any]], measure: Measure) -> list[dict[str, Any]]:
    """Return the rows of a summary's block that are whole and mean something."""
    return [row for row in rows if row["state"] == "finished" and row["meaningful"] and scores(row, measure)]


def trained_otherwise(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of other trained models than `row` has: only beside one of them does it show a training's worth.

    Rows that show the same models with other memory are none, and neither are rows of the base model.
    """
    return [other for other in rows if other["models"] and other["models"] != row["models"]]


class Comparer:
    """Compares the rows of a block.

    Args:
        block: what is planned.
        groups: {row id: its runs} of the rows that are there.
        played: {row id: its games}, for measures of games.
        measure: what the table leads with.
        options: `resamples` and `seed` of the bootstrap.
    """

    def __init__(
        self,
        block: Block,
        groups: Mapping[str, Group],
        played: Mapping[str, games.Played],
        measure: Measure,
        options: Mapping[str, int],
    ) -> None:
        self.block, self.groups, self.played, self.measure, self.options = block, groups, played, measure, options
        self.rows = {row.id: row for row in block.rows}
        self.conditions = {row.id: conditions_of(row) for row in block.rows}
        self.refused: list[str] = []
        """Why pairs that should have been compared could not be."""
        self.apart = self._apart()
        """Why no row of the block can be best over all; "" where all rows may be compared."""
        self._compared: dict[tuple[str, str], dict[str, Any] | None] = {}

    def differences(self) -> list[dict[str, Any]]:
        """Compare every row with the reference of its variant, if both played the same tasks alike."""
        pairs = [(self._reference_of(row), row) for row in self.block.rows if row.meaningful]
        found = [entry for other, row in pairs if other and (entry := self.difference(other.id, row.id)) is not None]
        for entry, p_holm in zip(found, holm_adjusted([entry["p_value"] for entry in found]), strict=True):
            entry["p_holm"] = p_holm
        return found

    def difference(self, better: str, than: str) -> dict[str, Any] | None:
        """Compare two rows at the last episode that both have; asked again, the answer is at hand.

        None where they were not evaluated alike, one is not there, or their games have nothing in common.
        """
        pair = (better, than)
        if pair not in self._compared:
            self._compared[pair] = self._compare(better, than)
        found = self._compared[pair]
        return None if found is None else dict(found)

    def verdict(self, rows: Sequence[dict[str, Any]]) -> tuple[str | None, str]:
        """Return the row that may be printed bold, and a sentence about who leads or why nobody may be said to.

        Args:
            rows: the block's rows as a summary has them.
        """
        if self.apart:
            return None, self.apart
        there = [row for row in rows if scores(row, self.measure) and row["meaningful"]]
        if len(there) < 2:
            return None, "fewer than two rows are there: nothing to compare"
        few, kind = min(_tasks_of(row, self.measure) for row in there)
        if few < SMALL_NUMBER:
            return None, f"n too small: {few} {kind} cannot tell rows apart"
        shown = {row["id"]: scores(row, self.measure) for row in there}
        last = str(min(max(map(int, found)) for found in shown.values()))
        leader = max(there, key=lambda row: shown[row["id"]][last]["share"])
        lead = f"{leader['label']} leads {self.measure.lead.format(k=last)}"
        if reason := self._unrivalled(rows, leader):
            return None, f"no winner: {lead}, but {reason}"
        return self._tested(rows, there, leader, lead)

    def _reference_of(self, row: Row) -> Row | None:
        names = (self.block.reference, f"{self.block.reference}:{row.variant}")
        found = next((other for other in self.block.rows if other.id in names), None)
        return None if found is row else found

    def _compare(self, better: str, than: str) -> dict[str, Any] | None:
        if self.conditions[better] != self.conditions[than]:
            return None
        try:
            compare = self._compare_passes if self.measure is PASS else self._compare_games
            found = compare(better, than)
        except ConfigError as error:
            labels = " and ".join(self.rows[name].label for name in (better, than))
            self.refused.append(f"{labels} cannot be compared: {str(error).rstrip('.')}")
            return None
        named = {"better": better, "than": than, "measure": self.measure.name}
        return None if found is None else {"k": found.pop("k"), **named, **found}

    def _compare_passes(self, better: str, than: str) -> dict[str, Any] | None:
        if better not in self.groups or than not in self.groups:
            return None
        first, second = self.groups[better], self.groups[than]
        if first.results[0].task_seeds != second.results[0].task_seeds:
            raise ConfigError("they hold other tasks, though the same were asked for")
        k = min(first.num_episodes, second.num_episodes)
        seeds = [len(first.results), len(second.results)]
        return {"k": k, **difference(first, second, k, self.options)._asdict(), "seeds": seeds}

    def _compare_games(self, better: str, than: str) -> dict[str, Any] | None:
        first, second = self.played.get(better), self.played.get(than)
        return games.compare(first, second, self.measure.name, self.options) if first and second else None

    def _apart(self) -> str:
        first, *others = self.conditions.values()
        names = dict.fromkeys(name for other in others for name in differing(first, other))
        if names:
            told = f"{', '.join(f'`{name}`' for name in names)} {'differ' if len(names) > 1 else 'differs'}"
            return f"each variant plays tasks of its own ({told}): no row is best over all"
        methods = {row.method for row in self.block.rows}
        if len({row.variant for row in self.block.rows}) > 1 and self.block.reference in methods:
            return "each variant is a table of its own: no row is best over all"
        return ""

    def _unrivalled(self, rows: Sequence[dict[str, Any]], leader: dict[str, Any]) -> str:
        """Say that no finished row of other trained models stands beside the leader; "" where one does."""
        rivals = trained_otherwise([row for row in rows if row["meaningful"]], leader)
        if finished_rows(rivals, self.measure):
            return ""
        missing = [row["label"] for row in rivals]
        told = f"; not finished: {', '.join(missing)}" if missing else ""
        return f"no finished row of otherwise trained models is there to compare with{told}"

    def _tested(
        self, rows: Sequence[dict[str, Any]], there: Sequence[dict[str, Any]], leader: dict[str, Any], lead: str
    ) -> tuple[str | None, str]:
        """Test the leader against every other row, for all pairs of rows."""
        comparisons = len(there) * (len(there) - 1) // 2
        p_values = {
            row["label"]: min(1.0, comparisons * self._p_value(leader["id"], row["id"]))
            for row in there
            if row is not leader
        }
        if self.refused:
            return None, f"no winner: {'; '.join(self.refused)}"
        close = [label for label, p in p_values.items() if p >= LEVEL]
        adjusted = f"p times the {comparisons} pairs of rows" if comparisons > 1 else "p"
        if close:
            above = f"not significantly above {', '.join(close)} ({adjusted} is not below {LEVEL})"
            return None, f"no winner: {lead}, but {above}"
        if any(row["seeds"] and len(row["done"]) < 2 for row in there):
            return None, f"n too small: {lead}, on these tasks significantly, but with one seed"
        count = f"{len(there)} rows that are there" if len(there) < len(rows) else f"{len(there)} rows"
        return leader["id"], f"{lead}, significantly above every other of the {count} ({adjusted} is below {LEVEL})"

    def _p_value(self, better: str, than: str) -> float:
        found = self.difference(better, than)
        return 1.0 if found is None else found["p_value"]


def _tasks_of(row: dict[str, Any], measure: Measure) -> tuple[int, str]:
    """Return how many tasks a row's number is of, and what they are called: of exploited shares, the framed ones."""
    if measure is EXPLOITED:
        return row["games"]["framed"], "tasks with something to exploit"
    return row["num_tasks"], "tasks"
