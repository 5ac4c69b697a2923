"""WebShop as an environment: pages as text, searches and clicks as actions, rewards.

What does not live here: what clicks do (`shop.py`), what a purchase is worth (`scoring.py`), the model's texts
(`wording.py`), the scripted player (`player.py`).
"""

from __future__ import annotations

import os
import re
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from metarl_agents.environments.webshop.catalogue import read_products
from metarl_agents.environments.webshop.extras import need_all
from metarl_agents.environments.webshop.files import read_records
from metarl_agents.environments.webshop.generate import PRESETS, generate
from metarl_agents.environments.webshop.goals import GOAL_KINDS, GoalList, goal_of_seed, seed_of_goal, split_goals
from metarl_agents.environments.webshop.pages import (
    MODES,
    bought_text,
    compact_clickables,
    shown_compact,
    shown_rich,
    shown_text,
)
from metarl_agents.environments.webshop.player import WebShopPlayer
from metarl_agents.environments.webshop.scoring import NOUN_FINDERS, SCORINGS, Scorer
from metarl_agents.environments.webshop.search import Search
from metarl_agents.environments.webshop.shop import PER_PAGE, Action, Shop, Visit
from metarl_agents.environments.webshop.wording import texts
from metarl_agents.envs.base import Environment
from metarl_agents.envs.choices import check_choice
from metarl_agents.envs.parsing import last_tag
from metarl_agents.envs.splits import SPLITS
from metarl_agents.errors import ConfigError
from metarl_agents.types import StepResult

_FULL_REWARD = 10.0
_REWARD_PRESETS = ("sparse", "shaped")
_REAL_PRODUCTS = 1000
"""Products of a user's own data, unless told otherwise: WebShop's small setting."""
_ACTION = re.compile(r"(search|click)\s*\[(.+)\]", flags=re.DOTALL | re.IGNORECASE)


class WebShop(Environment):
    """A shop, and something to buy; the seed decides what.

    Args:
        data_dir: folder with WebShop's three files; None generates a catalogue.
        num_products: products in the shop. Default: what the preset says, or the first 1,000 of the files.
        preset: of a generated catalogue: `easy`, `medium`, `hard`, or `tiny` for very small models. Default: `tiny`
            for compact pages, else `hard`.
        catalogue_seed: decides the generated catalogue, prices within ranges, and price bounds.
        goals: `synthetic` (a goal for each product and combination of options) or `human` (written instructions).
        split: takes all goals from `train`, `validation` or `test`; None lets the seed tell (see `goal_of_seed`).
        scoring: `webshop`, or the stricter `exact` (see `Scorer`).
        nouns: `words` or `spacy` (see `Scorer`).
        observation_mode: `text`, `text_rich` or `compact` pages. Default: `compact` for the compact wording, else
            `text`.
        max_pieces: longest page in pieces, for `text` and `text_rich`; None shows all of it. LaMer's runs use 15.
        reward_preset: `sparse` pays 10 for a purchase that fulfils everything; `shaped` pays ten times its score.
        wording: `paper` for language models, `compact` for very small ones.

    Raises:
        ConfigError: a setting or a file does not fit, or the `webshop` extra is not installed.
    """

    def __init__(
        self,
        *,
        data_dir: str | None = None,
        num_products: int | None = None,
        preset: str | None = None,
        catalogue_seed: int = 0,
        goals: str = "synthetic",
        split: str | None = None,
        scoring: str = "webshop",
        nouns: str = "words",
        observation_mode: str | None = None,
        max_pieces: int | None = None,
        reward_preset: str = "sparse",
        wording: str = "paper",
    ):
        mode = observation_mode or ("compact" if wording == "compact" else "text")
        preset = preset or ("tiny" if mode == "compact" else "hard")
        check_choice("WebShop", "observation_mode", mode, MODES)
        check_choice("WebShop", "preset", preset, tuple(PRESETS))
        check_choice("WebShop", "goals", goals, GOAL_KINDS)
        check_choice("WebShop", "scoring", scoring, SCORINGS)
        check_choice("WebShop", "nouns", nouns, NOUN_FINDERS)
        check_choice("WebShop", "reward_preset", reward_preset, _REWARD_PRESETS)
        if split is not None:
            check_choice("WebShop", "split", split, SPLITS)
        _check_count("num_products", num_products)
        _check_count("max_pieces", max_pieces)
        self._rules, self.wording = texts(wording, mode=mode)
        self._mode, self._most, self._split, self._shaped = mode, max_pieces, split, reward_preset == "shaped"
        if wording == mode == "compact" and preset == "tiny" and goals == "synthetic" and data_dir is None:
            self.tiny_model = "webshop_tiny"
        need_all()
        source = str(Path(os.path.expanduser(data_dir)).resolve()) if data_dir is not None else None
        self._shop = open_shop(source, num_products, preset, catalogue_seed, goals, scoring, nouns)
        self._visit: Visit | None = None

    def describe(self) -> str:
        """Return the rules in the chosen wording."""
        return self._rules

    @property
    def num_goals(self) -> int:
        """How many goals the shop has, over all splits."""
        return len(self._shop.goals)

    def num_tasks(self, split: str) -> int:
        """Return how many different goals the seeds of a split stand for.

        Args:
            split: one of the library's: `train`, `validation` or `test`.

        Raises:
            ConfigError: there is no such split.
        """
        check_choice("WebShop", "split", split, SPLITS)
        return len(split_goals(self.num_goals, self._split or split))

    def seed_of_goal(self, index: int) -> int:
        """Return the task seed that stands for goal `index`, in the range of the split that goal belongs to."""
        return seed_of_goal(index, self.num_goals)

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Enter the shop with the goal that `seed` stands for."""
        index = goal_of_seed(seed, self.num_goals, self._split)
        self.seed = seed
        self._visit = Visit(self._shop, self._shop.goals[index])
        page = self._page()
        first = page if self._mode == "compact" else f"Instruction: {self._visit.goal.text}\n{page}"
        return first, {"admissible_actions": self._admissible()}

    def parse_action(self, text: str) -> str | None:
        """Return "search[words]" or "click[name]", lower case, from the last <action> pair; or None."""
        match = _ACTION.fullmatch(last_tag(text, "action") or "")
        if match is None:
            return None
        verb, argument = match[1].lower(), " ".join(match[2].lower().split())
        return f"{verb}[{argument}]" if argument and _is_one_name(argument) else None

    def step(self, action: str) -> StepResult:
        """Search or click; what the page does not offer has no effect and uses up the turn."""
        visit = self._started()
        if visit.over:
            raise RuntimeError("This WebShop attempt is over. Call `reset` or `restart` before the next `step`.")
        verb, _, argument = action.removesuffix("]").partition("[")
        visit.do(Action(verb, argument if verb == "search" else self._clickables().get(argument, "")))
        score = visit.verdict.reward if visit.verdict else 0.0
        info = {"success": score == 1.0, "score": score, "admissible_actions": self._admissible()}
        observation = bought_text(visit, self._mode) if visit.over else self._page()
        paid = score if self._shaped else float(score == 1.0)
        return StepResult(observation, _FULL_REWARD * paid, visit.over, False, info)

    def min_turns(self) -> int | None:
        """Return the turns that buy the goal's own product for someone who knows it: searched by its whole title.

        None where that search does not find it, which says nothing about other searches and products.
        """
        goal = self._started().goal
        found = [self._shop.products[place].asin for place in self._shop.search.find(goal.product.title.lower())]
        if goal.product.asin not in found:
            return None
        return 1 + found.index(goal.product.asin) // PER_PAGE + 1 + len(goal.options) + 1

    def player(self) -> WebShopPlayer:
        """Return the scripted player."""
        return WebShopPlayer()

    def _started(self) -> Visit:
        if self._visit is None:
            raise RuntimeError("No WebShop task has been started. Call `reset(seed=...)` first.")
        return self._visit

    def _page(self) -> str:
        visit = self._started()
        if self._mode == "compact":
            return shown_compact(visit)
        return (shown_rich if self._mode == "text_rich" else shown_text)(visit, self._most)

    def _admissible(self) -> list[str]:
        visit = self._started()
        if visit.over:
            return []
        search = ["search[<your query>]"] if visit.page == "search" else []
        return search + [f"click[{name}]" for name in self._clickables() if name != "search" and _is_one_name(name)]

    def _clickables(self) -> dict[str, str]:
        """Return {name as an answer gives it: name in the shop}, with single blanks between words."""
        visit = self._started()
        if self._mode == "compact":
            return compact_clickables(visit)
        return {" ".join(name.split()): name for name in visit.clickables()}


@lru_cache(maxsize=4)
def open_shop(
    data_dir: str | None, num_products: int | None, preset: str, seed: int, goals: str, scoring: str, nouns: str
) -> Shop:
    """Build a shop, or return the one built before: nothing in it changes, so all environments share it."""
    if data_dir is None:
        count = num_products or PRESETS[preset].products
        records = generate(PRESETS[preset], count, seed, requests=goals == "human")
    else:
        limit = num_products or _REAL_PRODUCTS
        records = read_records(data_dir, limit=limit, goals=goals, report=_report)
    products = read_products(records, limit=num_products, seed=seed, report=_report)
    if not products:
        raise ConfigError(f"Not one product of {records.source} can be used. Fetch the file again.")
    listed = GoalList(products, goals, seed)
    if not listed:
        raise ConfigError(
            f"{records.source} and its instructions give no goal of the kind `{goals}`. Use more products "
            f"(`num_products`), or the other kind of `goals`."
        )
    return Shop(products, listed, Search(products), Scorer(scoring, nouns))


def _report(sentence: str) -> None:
    warnings.warn(sentence, UserWarning, stacklevel=2)


def _is_one_name(argument: str) -> bool:
    """Return whether no bracket opens after one that closes what was never open, so that "a] click[b" is no name.

    A bracket without its partner alone may be part of a name, as in "4 [pack".
    """
    depth = 0
    for sign in argument:
        if sign == "[" and depth < 0:
            return False
        depth += (sign == "[") - (sign == "]")
    return True


def _check_count(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigError(f"`{name}` is {value}, but must be at least 1. Raise it, or leave it out.")
