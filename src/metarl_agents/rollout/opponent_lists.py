"""Lists of opponents as users write them, and the models that they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.policy.loading import load_policy, needs_warm_start
from metarl_agents.policy.policy import Policy

SELF = "self"
"""Names the policy that is trained, in a list of opponents."""
MODEL = "model:"
"""Begins the name of a model in a list of opponents."""


class Listed(NamedTuple):
    """One entry of the setting `opponents`."""

    name: str
    """The opponent's, or the last part of the model's address."""
    weight: float
    source: str | None
    """A model's hub name or folder; None for opponents of the environment."""


def read_listed(entry: str) -> Listed:
    """Read `NAME`, `model:FOLDER` or `self`, each perhaps with `=WEIGHT`.

    >>> read_listed("cfr=2")
    Listed(name='cfr', weight=2.0, source=None)

    Raises:
        ConfigError: the weight is not positive.
    """
    name, weight = _split_weight(entry)
    source = name.removeprefix(MODEL) if name.startswith(MODEL) else None
    return Listed(name if source is None else Path(source).name, weight, source)


def _split_weight(entry: str) -> tuple[str, float]:
    name, equals, text = entry.rpartition("=")
    try:
        weight = float(text) if equals else None
    except ValueError:
        weight = None  # a path may hold the sign
    if weight is None:
        return entry, 1.0
    if not 0 < weight < float("inf"):
        raise ConfigError(f"`opponents` gives {name} the weight {text}, but weights must be positive: leave it out.")
    return name, weight


def load_opponent(model: ModelConfig, source: str, tiny_name: str | None, device: Any) -> Policy:
    """Load a model that nobody trains.

    Args:
        model: how models are loaded here; which one is `source`'s to say.
        source: hub name or folder.
        tiny_name: the shipped tiny model that knows the game, if there is one.
        device: where it answers.

    Raises:
        ConfigError: it cannot be found or read, or is the built-in model, untaught.
    """
    model = replace(model, model_name_or_path=source, gguf_file=None)
    if needs_warm_start(model, tiny_name):
        raise ConfigError("`opponents` names `model:tiny`, which cannot play this game untaught: name a trained model.")
    try:
        policy = load_policy(model, tiny_name=tiny_name)
    except ConfigError as error:
        raise ConfigError(f"`opponents` names `model:{source}`, which cannot be loaded: {error}") from error
    policy.model.requires_grad_(False)
    policy.model.to(device)
    return policy
