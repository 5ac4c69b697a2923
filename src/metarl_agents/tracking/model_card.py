"""The model card: `README.md` beside a saved model, as the Hugging Face Hub reads it, from plain facts.

What lives here: the card's text, and writing it so that what a person has edited stays. What does not: finding the
facts of a run (`training/card.py`). Everything that a user, a model or an environment named is escaped. Nothing
here asks the network.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from metarl_agents.config import Config
from metarl_agents.tracking.markdown import code, escape, fenced, one_line
from metarl_agents.tracking.papers import custom_functions, method_name, papers_of

CARD_FILE = "README.md"

_SIGNATURE = re.compile(r"\n<!-- metarl_agents model card ([0-9a-f]{64}): [^\n]*-->\s*\Z")
_SETTINGS = (
    *("num_episodes", "max_turns", "group_size", "tasks_per_step", "memory", "wording", "invalid_action_penalty"),
    *("temperature", "top_p", "top_k", "max_new_tokens_per_turn", "max_prompt_tokens"),
    *("advantages", "return_mode", "gamma_step", "gamma_traj", "anchor_scope", "anchor_visits", "scale_advantages"),
    *("learning_rate", "lr_scheduler_type", "updates_per_batch", "clip_low", "clip_high", "entropy_coef", "beta"),
)
_GAME_SETTINGS = (
    *("opponents", "snapshot_every", "population_rule"),
    *("normalise_by_role", "stop_on_success", "length_penalty"),
)
"""Told of a game, and wherever they are not the default."""
_LORA = ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")


@dataclass(frozen=True)
class CardFacts:
    """What a card tells."""

    name: str
    """The model's name, usually its run's."""
    config: Config
    base: str
    """The base model in words, or its name."""
    base_on_hub: str | None = None
    """Where the base is on the hub; None for what is not there."""
    license: str | None = None
    """The weights' license, as the hub spells it; None where it is not known."""
    is_adapter: bool = False
    """Whether the folder holds adapters, not whole weights."""
    is_game: bool = False
    """Whether the environment seats opponents."""
    env_keywords: dict[str, Any] = field(default_factory=dict)
    """What the environment was built with."""
    steps: int = 0
    optimizer_steps: int = 0
    num_episodes: int = 0
    """Training episodes played."""
    num_tokens: int = 0
    """Prompt and response tokens of training."""
    num_processes: int = 1
    results: str = ""
    """The tables of pass@k, of games and of ratings as Markdown, escaped; empty where nothing was measured."""
    notes: tuple[str, ...] = ()
    """Sentences about which weights these are, plain text."""
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"


def render_card(facts: CardFacts) -> str:
    """Return the card: front matter, results, how to load, what was done, how to cite."""
    trial = facts.config.trial
    what = f"A language-model agent for {code(trial.env)}, trained by {escape(method_name(facts.config))}."
    if trial.num_episodes > 1:
        what += (
            f" It plays up to {trial.num_episodes} episodes of one task; after a failed episode it writes a reflection,"
            " and what it may read of the past is the `memory` setting below."
        )
    limits = "It was trained and measured on the tasks named here, and on nothing else."
    parts = [
        _front_matter(facts),
        f"# {escape(facts.name)}",
        "\n".join([what, *map(escape, facts.notes), limits]),
        "## Results",
        facts.results or "Not measured.",
        "## How to load",
        _loading(facts),
        "## Training",
        _training_table(facts),
        f"All settings are in `config.yaml` of the run. Versions: {_versions(facts)}.",
        "## Citation",
        _citation(facts.config),
    ]
    return "\n\n".join(parts) + "\n"


def write_card(folder: str | Path, card: str) -> Path:
    """Write a card into a model's folder and return where it lies.

    It is signed with its own digest. A `README.md` whose signature does not fit was edited or written by somebody
    else; it stays, and the card goes beside it as `README.new.md` (then `README.new-2.md`, and so on).
    """
    path = next(path for path in _places(Path(folder)) if not path.exists() or is_unedited(path))
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(_sign(card), encoding="utf-8")
    os.replace(unfinished, path)
    return path


def keep_cards(old: Path, new: Path) -> None:
    """Copy the cards of a model's folder into the one that will replace it."""
    for card in sorted(old.glob("README*.md")):
        shutil.copy2(card, new / card.name)


def is_unedited(path: Path) -> bool:
    """Whether a file is a card as `write_card` left it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    signature = _SIGNATURE.search(text)
    return signature is not None and signature[1] == _digest(text[: signature.start() + 1])


def _places(folder: Path) -> Iterator[Path]:
    yield folder / CARD_FILE
    yield folder / "README.new.md"
    yield from (folder / f"README.new-{number}.md" for number in count(2))


def _sign(card: str) -> str:
    body = card.rstrip() + "\n\n"
    # A lone surrogate is written as its backslash form, so that is what must be signed.
    body = body.encode("utf-8", "backslashreplace").decode("utf-8")
    return f"{body}<!-- metarl_agents model card {_digest(body)}: an edited card is never overwritten -->\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode("utf-8")).hexdigest()


def _front_matter(facts: CardFacts) -> str:
    import yaml

    fields: dict[str, Any] = {"library_name": "peft" if facts.is_adapter else "transformers"}
    if facts.license:
        fields["license"] = facts.license
    if facts.base_on_hub:
        relation = "adapter" if facts.is_adapter else "finetune"
        fields |= {"base_model": facts.base_on_hub, "base_model_relation": relation}
    fields |= {"pipeline_tag": "text-generation", "tags": _tags(facts.config)}
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)}---"


def _tags(config: Config) -> list[str]:
    methods = [paper.name.lower() for paper in papers_of(config)]
    env = re.sub(r"[^a-z0-9_.-]+", "-", config.trial.env.lower()).strip("-")
    kind = ["meta-reinforcement-learning"] if config.trial.num_episodes > 1 else []
    return list(
        dict.fromkeys(["metarl_agents", "reinforcement-learning", *kind, "agent", *methods, *([env] * bool(env))])
    )


def _loading(facts: CardFacts) -> str:
    return "\n\n".join(
        [
            "With this library, which brings prompts, memory and the environment along:",
            fenced(_agent_code(facts), "python"),
            "With plain `transformers`" + (" and `peft`:" if facts.is_adapter else ":"),
            fenced(_plain_code(facts), "python"),
        ]
    )


def _agent_code(facts: CardFacts) -> str:
    trial = facts.config.trial
    keywords = ", ".join(f"{name}={value!r}" for name, value in facts.env_keywords.items())
    call = f"make({trial.env!r}{', ' + keywords if keywords else ''})"
    if _is_repeatable(call):
        names, env = "Agent, make, run_trial", call
    else:
        names, env = "Agent, run_trial", f"...  # the environment it was trained on: {one_line(trial.env)}"
    played = f"num_episodes={trial.num_episodes}, max_turns={trial.max_turns}, memory={trial.memory!r}"
    return "\n".join(
        [
            f"from metarl_agents import {names}",
            "",
            f"agent = Agent.from_pretrained({facts.name!r})  # the path of this folder, or its name on the hub",
            f"env = {env}",
            f"trial = run_trial(agent, env, seed=7, {played})",
            "print([episode.outcome for episode in trial.episodes])",
        ]
    )


def _is_repeatable(call: str) -> bool:
    """Whether a `make(...)` call is Python made of literals alone, its address one that can be imported."""
    try:
        made = ast.parse(call, mode="eval").body
        if not isinstance(made, ast.Call):
            return False
        values = [ast.literal_eval(value) for value in (*made.args, *(item.value for item in made.keywords))]
    except (SyntaxError, ValueError):
        return False
    return "<" not in values[0] and not values[0].startswith("__main__")


def _plain_code(facts: CardFacts) -> str:
    name = f"folder = {facts.name!r}  # the path of this folder, or its name on the hub"
    tokenizer = "tokenizer = AutoTokenizer.from_pretrained(folder)"
    trusting = ", trust_remote_code=True" if facts.config.model.trust_remote_code else ""
    if facts.is_adapter:
        lines = ["from peft import AutoPeftModelForCausalLM", "from transformers import AutoTokenizer"]
        model = f"model = AutoPeftModelForCausalLM.from_pretrained(folder{trusting})"
    else:
        lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer"]
        model = f"model = AutoModelForCausalLM.from_pretrained(folder{trusting})"
    return "\n".join([*lines, "", name, model, tokenizer])


def _training_table(facts: CardFacts) -> str:
    config = facts.config
    values = config.flat()
    keywords = ", ".join(f"{name}: {value}" for name, value in facts.env_keywords.items())
    rows: list[tuple[str, object]] = [
        ("base model", facts.base),
        ("method", method_name(config)),
        ("environment", config.trial.env),
        ("environment's settings", keywords or "none"),
        ("seed", config.run.seed),
        ("steps", f"{facts.steps} of {config.run.max_steps} ({facts.optimizer_steps} optimizer steps)"),
        ("episodes played in training", f"{facts.num_episodes:,}"),
        ("tokens of training, prompts included", f"{facts.num_tokens:,}"),
        ("machine", f"{facts.device}, {facts.num_processes} process{'es' * (facts.num_processes > 1)}"),
    ]
    usual = Config().flat()
    told_of_games = [name for name in _GAME_SETTINGS if facts.is_game or values[name] != usual[name]]
    names = [*_SETTINGS, *told_of_games, *(_LORA if config.model.use_peft else ())]
    head = ["| | |", "|---|---|"]
    told = [f"| {escape(name)} | {escape(value)} |" for name, value in rows]
    return "\n".join([*head, *told, *(f"| `{name}` | {code(values[name], in_table=True)} |" for name in names)])


def _versions(facts: CardFacts) -> str:
    return ", ".join(escape(f"{name} {version}") for name, version in facts.versions.items()) or "not known"


def _citation(config: Config) -> str:
    papers = papers_of(config)
    told = [
        f"[{paper.name}](https://arxiv.org/abs/{paper.arxiv}) (arXiv {paper.arxiv})"
        if paper.arxiv
        else f"{paper.name} ({paper.journal}, {paper.year})"
        for paper in papers
    ]
    sentences = [f"The methods are those of {' and '.join(told)}."] if told else []
    custom = " and ".join(custom_functions(config))
    if custom:
        sentences.append(f"No paper tells of {escape(custom)}: that is the code of whoever trained this model.")
    entries = [fenced("\n\n".join(paper.bibtex() for paper in papers), "bibtex")] if papers else []
    return "\n\n".join([" ".join(sentences) or "There is no paper to cite.", *entries])
