"""What the model reads: the rules of the shop and how its pages are put, `paper` and `compact`.

`paper` follows the structure of the papers' prompts (role, legend, goal, rules; reason first, then answer).
`compact` says next to nothing: it is for models of less than a million weights, taught by demonstrations.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from metarl_agents.environments.webshop.pages import shorten
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.wording import COMPACT, Wording

_OLD_PIECES = 6
"""Pieces of an old page that stay visible."""

_RULES = """\
You are shopping in an online store for someone who tells you in an instruction what to buy.

{legend}

Goal: buy a product of the kind asked for that has every attribute and every option of the instruction and costs no \
more than it allows. Only a purchase that fulfils all of it counts.

What you can do:
- search[words] looks for products; it is offered on the search page.
- click[name] presses something on the page: a button, a product's code, or an option's value.

What a click does:
- A product's code opens the product. Description, Features and Reviews show more about it; not everything that \
matters is in its title.
- An option's value chooses that value; choosing another one of the same option replaces it.
- < Prev goes one page back, Next > shows the next results, Back to Search starts again.
- Buy Now buys the open product with the options chosen, which ends the attempt.
- Clicking something that is not on the page changes nothing and uses up the move."""

_LEGENDS = {
    "text": "A page is given as its pieces of text in quotes, divided by [SEP].",
    "text_rich": "A page is given line by line. [button] x [button_] can be clicked; [clicked button] x "
    "[clicked button_] has been clicked before.",
    "compact": "A page is given in short lines after the instruction. Products are numbered, and the number is a "
    "product's code; a star marks what was opened or chosen. Every page of a product offers < prev and back to search, "
    "and the product itself description, features and buy now.",
}

_PLAY = """\
Now choose your next action. First reason step by step: what does the instruction ask for, what do you know already, \
and which possible action brings you closer to it? Then give exactly one action, written as search[words] or \
click[name], inside <action> </action>."""

_REFLECT = """\
Now review the attempt. First analyse it: which searches and products came close, and which part of the instruction \
was missed or left unchecked? Then write a concise plan for the next attempt with this same instruction, naming words \
to search for, products to open or to stay away from, and options to choose. Put your analysis and plan inside \
<remark> </remark>."""


def paper(mode: str) -> tuple[str, Wording]:
    """Return (rules, wording) for language models."""
    wording = Wording(
        play_request=_PLAY,
        reflect_request=_REFLECT,
        initial="{observation}",
        current="The page now:\n{observation}",
        history_heading="Your actions in this attempt:",
        history_entry="Action {number}: {action}. The page after it:\n{observation}",
        memory_heading="What you noted after earlier attempts with this same instruction:",
        reflect_heading="One past attempt with this instruction, to be reviewed:",
        history_turns=5,
        reflect_history_turns=20,
        full_observations=2,
        reflect_full_observations=1,
        shorten=partial(shorten, most=_OLD_PIECES),
    )
    return _RULES.format(legend=_LEGENDS[mode]), wording


def compact(mode: str) -> tuple[str, Wording]:
    """Return (rules, wording) for small models: no rules, the page alone, the last actions by name."""
    wording = replace(
        COMPACT,
        play_request="Act.",
        # Compact pages repeat the instruction, the others show it on the first page only.
        initial="" if mode == "compact" else "{observation}",
        outcome_success="succeeded",
        history_turns=4,
        reflect_history_turns=12,
    )
    return "", wording


_WORDINGS = {"paper": paper, "compact": compact}


def texts(name: str, *, mode: str) -> tuple[str, Wording]:
    """Return (rules, wording) of the named wording for pages of a mode."""
    check_choice("WebShop", "wording", name, _WORDINGS)
    return _WORDINGS[name](mode)
