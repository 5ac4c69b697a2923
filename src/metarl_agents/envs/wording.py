"""Wording: the texts and windows an environment gives the page.

A wording is data. `prompting/` puts the pieces together; nothing here knows about tokens. Every text is a
`str.format` template whose fields are named in the docstring below it. Each shipped environment has two wordings:
`paper` (the papers' structure, for language models) and `compact` (a few words, for small models on CPUs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


def _ellipsis(observation: str) -> str:
    return "..."


@dataclass(frozen=True)
class Wording:
    """How one environment is put into words. The defaults serve any environment that says nothing."""

    play_request: str = (
        "Think step by step about what you have seen so far, then give your next action inside <action> </action>."
    )
    """Closes a play prompt."""
    reflect_request: str = (
        "Look back at this attempt: find where it went wrong, then write a concise new plan that names concrete "
        "actions. Put your reflection and plan inside <remark> </remark>."
    )
    """Closes a reflection prompt."""
    admissible: str = "Admissible actions:\n{actions}\n"
    """Fields: actions (one a line). Used when the environment lists them; empty hides them."""
    initial: str = "Initial observation:\n{observation}"
    """Fields: observation. Empty leaves the initial observation out once there is a newer one."""
    current: str = "{observation}"
    """Fields: observation. The newest observation, where history does not already end with it."""
    history_heading: str = "This attempt so far:"
    """Above the history of the current episode; empty prints none."""
    history_entry: str = "Step {number} - Action: {action}\nObservation: {observation}"
    """Fields: number (1-based), action, observation (what the action led to, perhaps shortened)."""
    no_action: str = "no valid action"
    """Stands in history for an answer that could not be read."""
    memory_heading: str = "Notes from earlier attempts at this same task:"
    """Above the inter-episode memory; empty prints none."""
    memory_remark: str = "Attempt {number} {outcome}. Your remark after it: {remark}"
    """Fields: number (1-based), outcome, remark. One paragraph a past episode (memory `reflection`)."""
    memory_trajectory: str = "Attempt {number} {outcome}. What happened:\n{trajectory}"
    """Fields: number, outcome, trajectory (memory `trajectory`)."""
    memory_both: str = "Attempt {number} {outcome}. What happened:\n{trajectory}\nYour remark after it: {remark}"
    """Fields: number, outcome, trajectory, remark (memory `both`)."""
    trajectory_entry: str = "Action: {action}\nObservation: {observation}"
    """Fields: number, action, observation; one past turn inside memory."""
    outcome_failure: str = "did not complete the task"
    outcome_success: str = "completed the task"
    outcome_draw: str = "ended in a draw"
    reflect_note: str = "The attempt {outcome}."
    """Fields: outcome. The statement of a reflection prompt on how the episode ended."""
    reflect_heading: str = "The attempt to review:"
    """Above the history in a reflection prompt; empty prints none."""
    history_turns: int = 7
    """Turns of the current episode that a play prompt lists."""
    reflect_history_turns: int = 50
    """Turns of the finished episode that a reflection prompt lists."""
    full_observations: int = 2
    """Newest observations shown in full in a play prompt; older ones go through `shorten`."""
    reflect_full_observations: int = 7
    """The same in a reflection prompt."""
    separator: str = "\n\n"
    """Between the parts of a prompt."""
    entry_separator: str = "\n"
    """Between entries of a history or of memory."""
    show_action: Callable[[object], str] = str
    """How an action is printed."""
    shorten: Callable[[str], str] = _ellipsis
    """How an old observation is printed."""


COMPACT = Wording(
    reflect_request="What to remember?",
    admissible="",
    initial="",
    history_heading="",
    history_entry="{action}",
    no_action="none",
    memory_heading="",
    memory_remark="Attempt {number} {outcome}: {remark}",
    memory_trajectory="Attempt {number} {outcome}: {trajectory}",
    memory_both="Attempt {number} {outcome}: {trajectory}: {remark}",
    trajectory_entry="{action}",
    outcome_failure="failed",
    outcome_success="won",
    outcome_draw="drawn",
    reflect_note="Attempt {outcome}.",
    reflect_heading="",
    history_turns=0,
    full_observations=0,
    reflect_full_observations=0,
    separator="\n",
    entry_separator=" ",
)
"""What compact wordings have in common; an environment replaces what is its own (`dataclasses.replace`)."""

COMPACT_DEFAULT = replace(
    COMPACT,
    play_request="Next action?",
    history_entry="{action}: {observation}",
    trajectory_entry="{action}: {observation}",
    history_turns=4,
    full_observations=4,
    reflect_history_turns=8,
    reflect_full_observations=8,
)
"""The compact wording of an environment that has no texts of its own."""


def in_style(wording: Wording, style: str) -> Wording:
    """Return an environment's wording, or `COMPACT_DEFAULT` where it has none of its own and `style` is "compact"."""
    return COMPACT_DEFAULT if style == "compact" and wording == Wording() else wording
