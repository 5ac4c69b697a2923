"""(environment, trial so far) to chat messages, for play and for reflection.

The whole prompt is rebuilt as one user message each turn: rules, initial observation, inter-episode memory, this
episode's history, the request (LaMer, arXiv 2512.16848). A page never shows what the agent could not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metarl_agents.envs.wording import Wording
from metarl_agents.prompting.memory import memory_text, observations_after, outcome_text
from metarl_agents.types import Episode, LastSeen, MemoryMode

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Page:
    """What stays the same on every page of a trial."""

    rules: str
    wording: Wording
    memory: MemoryMode


def play_messages(
    page: Page, past: Sequence[Episode], current: Episode, admissible: Sequence[str] = (), drop: int = 0
) -> Messages:
    """Return the prompt of the next play turn of `current`.

    Args:
        page: rules, wording and memory mode.
        past: the finished episodes before `current`, oldest first.
        current: the episode being played; its `final_observation` is the newest one.
        admissible: actions to list, or none.
        drop: history entries to leave out, oldest first, so that a long prompt fits.
    """
    wording = page.wording
    history = _history(current, wording, wording.history_turns, wording.full_observations, drop)
    heading = wording.history_heading if history else ""
    initial = wording.initial.format(observation=current.initial_observation) if wording.initial else ""
    parts = [
        page.rules,
        initial,
        memory_text(past, page.memory, wording),
        wording.entry_separator.join(piece for piece in (heading, history) if piece),
        _newest(current, wording, initial, history, wording.full_observations),
        wording.admissible.format(actions="\n".join(admissible)) if admissible and wording.admissible else "",
        wording.play_request,
    ]
    return _user(parts, wording)


def reflect_messages(page: Page, episode: Episode, drop: int = 0) -> Messages:
    """Return the prompt of the reflection on `episode`: its own history only, how it ended, and the request."""
    wording = page.wording
    history = _history(episode, wording, wording.reflect_history_turns, wording.reflect_full_observations, drop)
    heading = wording.reflect_heading if history else ""
    initial = wording.initial.format(observation=episode.initial_observation) if wording.initial else ""
    parts = [
        page.rules,
        initial,
        wording.entry_separator.join(piece for piece in (heading, history) if piece),
        _newest(episode, wording, initial, history, wording.reflect_full_observations),
        wording.reflect_note.format(outcome=outcome_text(episode, wording)),
        wording.reflect_request,
    ]
    return _user(parts, wording)


def longest_drop(episode: Episode, window: int) -> int:
    """Return how many history entries a prompt with that window lists, so how many can be dropped."""
    return min(window, len(episode.turns))


def _history(episode: Episode, wording: Wording, window: int, full: int, drop: int) -> str:
    numbered = list(enumerate(zip(episode.turns, observations_after(episode), strict=True), start=1))
    shown = numbered[max(0, len(numbered) - window) + drop :] if window else []
    entries = [
        wording.history_entry.format(
            number=number,
            action=turn.shown_action,
            observation=observation if number > len(numbered) - full else wording.shorten(observation),
        )
        for number, (turn, observation) in shown
    ]
    return wording.entry_separator.join(entries)


def _newest(episode: Episode, wording: Wording, initial: str, history: str, full: int) -> str:
    """Return the newest observation, unless the initial one or the history's last entry already shows it in full."""
    newest = episode.final_observation
    if isinstance(newest, LastSeen):  # the history's last entry shows what followed, which this is not
        is_shown = newest in initial or newest in history
    elif episode.turns:
        is_shown = bool(history) and full > 0 and "{observation}" in wording.history_entry
    else:
        is_shown = "{observation}" in wording.initial and newest == episode.initial_observation
    return "" if is_shown else wording.current.format(observation=newest)


def _user(parts: Sequence[str], wording: Wording) -> Messages:
    return [{"role": "user", "content": wording.separator.join(part for part in parts if part)}]
