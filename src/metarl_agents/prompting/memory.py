"""Past episodes to inter-episode memory text, H of the paper.

One paragraph per past episode, oldest first. Memory before episode n is a pure function of `episodes[:n]`.
"""

from __future__ import annotations

from collections.abc import Sequence

from metarl_agents.envs.wording import Wording
from metarl_agents.types import Episode, LastSeen, MemoryMode, Outcome

NOT_SEEN = "(not seen)"
"""Stands for the observation after the last action, where nobody gave it."""


def outcome_text(episode: Episode, wording: Wording) -> str:
    """Return how the wording says that `episode` ended."""
    if episode.success:
        return wording.outcome_success
    return wording.outcome_draw if episode.outcome is Outcome.DRAW else wording.outcome_failure


def observations_after(episode: Episode) -> list[str]:
    """Return what each play turn led to: the observation of the turn after it, and the final one if that is known."""
    last = NOT_SEEN if isinstance(episode.final_observation, LastSeen) else episode.final_observation
    return [*(turn.observation for turn in episode.turns[1:]), *([last] if episode.turns else [])]


def memory_text(episodes: Sequence[Episode], mode: MemoryMode, wording: Wording) -> str:
    """Return what an episode may read about the `episodes` before it, or "" where there is nothing to read.

    `reflection` holds how the attempt ended and the remark, `trajectory` its actions and observations, `both` both;
    `none` holds nothing, so the first prompt of a retry equals that of the first attempt (LaMer, arXiv 2512.16848).
    """
    if mode is MemoryMode.NONE or not episodes:
        return ""
    paragraphs = [_paragraph(number, episode, mode, wording) for number, episode in enumerate(episodes, start=1)]
    heading = [wording.memory_heading] if wording.memory_heading else []
    return wording.entry_separator.join(heading + paragraphs)


def _paragraph(number: int, episode: Episode, mode: MemoryMode, wording: Wording) -> str:
    template = {
        MemoryMode.REFLECTION: wording.memory_remark,
        MemoryMode.TRAJECTORY: wording.memory_trajectory,
        MemoryMode.BOTH: wording.memory_both,
    }[mode]
    remark = episode.reflection.action if episode.reflection is not None else None
    entries = [
        wording.trajectory_entry.format(number=turn_number, action=turn.shown_action, observation=observation)
        for turn_number, (turn, observation) in enumerate(
            zip(episode.turns, observations_after(episode), strict=True), start=1
        )
    ]
    return template.format(
        number=number,
        outcome=outcome_text(episode, wording),
        remark=remark or "",
        trajectory=wording.entry_separator.join(entries),
    )
