"""One sentence for a keyword of an environment that is none of its choices."""

from __future__ import annotations

from collections.abc import Collection

from metarl_agents.errors import ConfigError


def check_choice(environment: str, name: str, value: object, choices: Collection[str]) -> None:
    """Refuse a value that is not among `choices`.

    Args:
        environment: the environment's name, as the sentence is to call it.
        name: the keyword.
        value: what was given.
        choices: two or more, in the order in which they are listed.

    Raises:
        ConfigError: naming all choices.

    >>> check_choice("MineSweeper", "wording", "long", ("paper", "compact"))
    Traceback (most recent call last):
        ...
    metarl_agents.errors.ConfigError: `wording` is "long", but MineSweeper has paper and compact. Choose one of them.
    """
    if value not in choices:
        *others, last = choices
        raise ConfigError(
            f'`{name}` is "{value}", but {environment} has {", ".join(others)} and {last}. Choose one of them.'
        )
