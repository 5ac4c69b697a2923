"""What the model reads around ALFWorld's own sentences, `paper` and `compact`.

`paper` follows the structure of the papers' prompts (role, start with the task, memory, history, admissible actions;
reason first, then answer). `compact` says next to nothing: it is for models of less than a million weights.
"""

from __future__ import annotations

from dataclasses import replace

from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import COMPACT, Wording

_RULES = """\
You are a capable helper in a household that you know through text alone. You are given one task, and carry it out by \
typing one command a turn.

What to know about the household:
- Furniture and appliances hold things. You see what lies in or on one of them once you have gone to it; fridges, \
cabinets, drawers and the like have to be opened first.
- Your hands hold one thing at a time.
- Things get clean at a sink basin, hot at a microwave and cold at a fridge, while you hold them.
- Where everything is stays the same in every attempt at this task.
- A command that cannot be carried out does nothing and still uses up the turn.
An answer is one command, word for word as it is listed."""

_PLAY = """\
Now choose your next command. First reason step by step: what does the task still need, what have you learned about \
where things are, and which of the admissible actions brings you closer? Then give exactly one of them, inside \
<action> </action>."""

_REFLECT = """\
Now review the attempt. First analyse it: where did you find things, which searches led nowhere, and what was still \
missing at the end? Then write a concise plan for the next attempt at this same task, naming the places to go to and \
the commands to give there. Put your analysis and plan inside <remark> </remark>."""


def paper() -> tuple[str, Wording]:
    """Return (rules, wording) for language models."""
    wording = Wording(
        play_request=_PLAY,
        reflect_request=_REFLECT,
        admissible="Admissible actions now:\n{actions}",
        initial="Where you start, and your task:\n{observation}",
        current="{observation}",
        history_heading="Your turns in this attempt:",
        history_entry="Turn {number}: you typed: {action}\nAnswer: {observation}",
        memory_heading="What you noted after earlier attempts at this same task:",
        reflect_heading="One past attempt at this task, to be reviewed:",
        history_turns=15,
        full_observations=15,
        reflect_full_observations=50,
    )
    return _RULES, wording


def compact() -> tuple[str, Wording]:
    """Return (rules, wording) for small models: no rules, no list of actions; in play, only the newest answer."""
    wording = replace(
        COMPACT,
        play_request="What to do?",
        initial="{observation}",
        history_entry="{action} {observation}",
        trajectory_entry="{action} {observation}",
        history_turns=15,
        reflect_full_observations=50,
        entry_separator="; ",
        shorten=lambda observation: "",
    )
    return "", wording


_WORDINGS = {"paper": paper, "compact": compact}


def texts(name: str) -> tuple[str, Wording]:
    """Return (rules, wording) of the named wording."""
    check_choice("ALFWorld", "wording", name, _WORDINGS)
    return _WORDINGS[name]()
