"""When a setting can matter to what a cell keeps, as one table; and what of a launcher's words decides a training.

A setting that no rule here names always counts, and so does one of which a rule is in doubt: better a run too many than
a result that is no longer what the settings would give. `tests/benchmarks/test_bench_deciding.py` tries each rule both
ways, and holds those of credit, loss and trials against the code that they speak of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from metarl_agents.addresses import ESTIMATOR, RETURN_MODE, load
from metarl_agents.cli import read_yaml
from metarl_agents.config import CreditConfig
from metarl_agents.errors import ConfigError
from metarl_agents.rollout.opponent_lists import SELF, read_listed

Rule = Callable[[Any], bool]
"""Whether a setting matters, given all settings as attributes (and `task_file`, the digest of a local task list)."""

_ROOT = Path(__file__).resolve().parents[2]

COMPARES_STEPS = frozenset({"gigpo"})
"""Shipped estimators that look at anchors, that is at which turns are comparable step by step."""
DISCOUNTS = frozenset({"ppo"})
"""Shipped estimators that discount by the table's own γ_step."""
ROLELESS = frozenset({"ppo"})
"""Shipped estimators that compare no trials, so that roles mean nothing to them."""
OWN_EPISODE_ONLY = frozenset({"single"})
"""Shipped return modes that never look past the end of an episode."""


class _Asked(NamedTuple):
    """What the functions of a run ask for by the names of their parameters."""

    estimator: frozenset[str]
    return_mode: frozenset[str]
    reads_values: bool


def _asked(s: Any) -> _Asked | None:
    """Return what estimator and return mode ask for; None where they cannot be found here and nothing is known."""
    try:
        return _asked_by(s.advantages, s.return_mode)
    except ConfigError:
        return None


@lru_cache(maxsize=64)
def _asked_by(advantages: str, return_mode: str) -> _Asked:
    from metarl_agents.training.credit import asked_of, needs_values

    config = CreditConfig(advantages=advantages, return_mode=return_mode)
    table, columns = ("table",), ("rewards", "episode", "is_reflection")
    estimator = asked_of(load(advantages, ESTIMATOR), advantages, config, table, "baseline")
    returns = asked_of(load(return_mode, RETURN_MODE), return_mode, config, columns)
    return _Asked(frozenset(estimator), frozenset(returns), needs_values(config))


def _is_asked(name: str, *others: str) -> Rule:
    """Return the rule of a setting that matters where estimator or return mode take it, or one of `others`."""

    def rule(s: Any) -> bool:
        asked = _asked(s)
        return asked is None or not (asked.estimator | asked.return_mode).isdisjoint((name, *others))

    return rule


def _compares_steps(s: Any) -> bool:
    return s.advantages not in ESTIMATOR.names or s.advantages in COMPARES_STEPS


def _credit_unit(s: Any) -> bool:
    # REINFORCE's baseline counts the scores of a batch by it, and anchors of reflections are made by it.
    return _compares_steps(s) or _is_asked("credit_unit", "baseline")(s)


def _gamma_step(s: Any) -> bool:
    in_table = s.advantages not in ESTIMATOR.names or s.advantages in DISCOUNTS
    return in_table or _is_asked("gamma_step")(s)


def _gamma_traj(s: Any) -> bool:
    asked = _asked(s)
    if asked is None or "gamma_traj" in asked.estimator:
        return True
    # A user's own return mode may do with it what it likes; a shipped one discounts later episodes, if there are any.
    unused = s.return_mode in RETURN_MODE.names and (s.return_mode in OWN_EPISODE_ONLY or s.num_episodes == 1)
    return "gamma_traj" in asked.return_mode and not unused


def _has_critic(s: Any) -> bool:
    asked = _asked(s)
    return asked is None or asked.reads_values


def _goes_on(s: Any) -> bool:
    """Whether anything follows the first episode of a trial."""
    return s.num_episodes > 1


def _validates(s: Any) -> bool:
    """Whether a training is validated on its way, which its curves keep."""
    return s.eval_validation_tasks > 0 and 0 < s.eval_steps <= s.max_steps


def _has_population(s: Any) -> bool:
    return s.opponents is not None or s.snapshot_every > 0


def _seats_models(s: Any) -> bool:
    """Whether the agent trains against models, which draw as in evaluation."""
    try:
        listed = [read_listed(entry) for entry in s.opponents or ()]
    except ConfigError:
        return True
    return s.snapshot_every > 0 or any(entry.source is not None or entry.name == SELF for entry in listed)


def _draws_as_in_evaluation(s: Any) -> bool:
    return _validates(s) or _seats_models(s)


def _is_random(s: Any) -> bool:
    """Whether evaluation draws at all: where it takes the likeliest token, nothing cuts the distribution."""
    return s.eval_temperature > 0


_CUTS = ("eval_top_p", "eval_top_k", "eval_min_p")

TRAINING: dict[str, Rule] = {
    # Adapters.
    **dict.fromkeys(("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"), lambda s: s.use_peft),
    "reference": lambda s: s.beta > 0 and s.use_peft,
    # Credit: what estimator and return mode are given.
    "step_weight": _is_asked("step_weight"),
    "norm": _is_asked("norm"),
    "gae_lambda": _is_asked("gae_lambda"),
    "episode_score": _is_asked("episode_score", "baseline"),
    "credit_unit": _credit_unit,
    "anchor_scope": lambda s: _compares_steps(s) and _goes_on(s),
    "anchor_visits": _compares_steps,
    "normalise_by_role": lambda s: s.advantages not in ROLELESS,
    "gamma_step": _gamma_step,
    "gamma_traj": _gamma_traj,
    # The update. With one optimizer step a batch the policy is the one that played: all ratios are 1.
    **dict.fromkeys(("clip_low", "clip_high"), lambda s: s.updates_per_batch > 1),
    **dict.fromkeys(("critic", "critic_learning_rate", "value_clip"), _has_critic),
    # Trials.
    **dict.fromkeys(("memory", "stop_on_success", "max_remark_chars"), _goes_on),
    "penalty_scope": lambda s: s.invalid_action_penalty > 0,
    "tasks": lambda s: s.task_file is None,  # of a local list the contents count
    # Validation, and models that sit opposite.
    **dict.fromkeys(("eval_steps", "eval_validation_tasks", "load_best_model_at_end"), _validates),
    "metric_for_best_model": lambda s: _validates(s) and s.load_best_model_at_end,
    **dict.fromkeys(("eval_temperature", "eval_repetition_penalty"), _draws_as_in_evaluation),
    **dict.fromkeys(_CUTS, lambda s: _draws_as_in_evaluation(s) and _is_random(s)),
    # The population.
    **dict.fromkeys(("population_rule", "opponent_grouping"), _has_population),
    "snapshot_limit": lambda s: s.snapshot_every > 0,
}
"""Setting -> when it matters to a trained model and its curves."""

EVALUATION: dict[str, Rule] = {
    **dict.fromkeys(_CUTS, _is_random),
    # Which memory there was is printed with the result, of one episode too.
    **dict.fromkeys(("stop_on_success", "max_remark_chars"), _goes_on),
    "tasks": lambda s: s.task_file is None,
}
"""Setting -> when it matters to what an evaluation finds."""

_RULES = {"train": TRAINING, "evaluate": EVALUATION}


def what_matters(decides: dict[str, Any], absent: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of all that may decide a cell the settings that cannot matter beside the others.

    Of a trained model `train_key` speaks, not the settings it was trained with, which an evaluation keeps as `train`.

    Args:
        decides: as a cell keeps it.
        absent: settings that older cells do not know -> what they then mean.
    """
    rules = _RULES.get(decides.get("kind", ""), {})
    settings = decides.get("settings", {})
    known = SimpleNamespace(**{**absent, **settings, "task_file": decides.get("task_file")})
    kept = {name: value for name, value in settings.items() if name not in rules or _holds(rules[name], known)}
    return {name: value for name, value in decides.items() if name != "train"} | {"settings": kept}


def _holds(rule: Rule, known: SimpleNamespace) -> bool:
    try:
        return bool(rule(known))
    except (AttributeError, TypeError):
        return True  # a cell of other code, whose settings the rule cannot read


# ---- the launcher --------------------------------------------------------------------------------------------------

_SAYS_HOW_TO_MEET = frozenset(
    {
        *("compute_environment", "debug", "enable_cpu_affinity", "log_dir", "machine_rank", "main_process_ip"),
        *("main_process_port", "main_training_function", "monitor_interval", "quiet", "rdzv_backend", "rdzv_conf"),
        *("role", "same_network", "tee"),
    }
)
"""What a launcher is told that decides no number."""


def launched(words: Sequence[str]) -> dict[str, Any]:
    """Return what of a launcher's command line decides a training.

    The contents of its `--config_file` count, not where it lies; flags win over them. `mixed_precision` and
    `num_processes` are always there: None where neither says and the launcher looks at the machine.

    Args:
        words: such as `accelerate launch --mixed_precision bf16 --num_processes 8`.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    flags: dict[str, Any] = {}
    plain: list[str] = []
    name = None
    for word in words:
        if word.startswith("--"):
            name, equals, text = word[2:].replace("-", "_").partition("=")
            flags[name] = _value(text) if equals else True
            name = None if equals else name
        elif name:
            flags[name], name = _value(word), None
        else:
            plain.append(word)
    file = flags.pop("config_file", None)
    told = {key: "no" if value is False and key == "mixed_precision" else value for key, value in _read(file).items()}
    told = {"mixed_precision": None, "num_processes": None} | told | flags
    return {"launcher": plain} | {key: told[key] for key in sorted(told) if key not in _SAYS_HOW_TO_MEET}


def _value(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _read(file: str | None) -> dict[str, Any]:
    return {} if file is None else read_yaml(_ROOT / Path(file).expanduser())
