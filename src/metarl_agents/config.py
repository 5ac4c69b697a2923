"""Every setting, once: argument dataclasses, one per concern, each validating its own numbers.

Defaults are the papers' (LaMer, arXiv 2512.16848, unless a field says otherwise); presets live in
`recipes/configs/`. `cli.py` turns these fields into flags and YAML keys. Precision, ZeRO stage and process count
are not here: they belong to the launcher (`recipes/accelerate_configs/`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Real
from typing import Any, Literal

from metarl_agents.addresses import ESTIMATOR, RETURN_MODE, did_you_mean, has_mark, load, nearest
from metarl_agents.errors import ConfigError
from metarl_agents.hints import foreign_hint, tracker_hint

Scheduler = Literal["constant", "constant_with_warmup", "linear", "cosine"]


def setting(default: Any, help_text: str, *aliases: str, names: Iterable[str] = (), part_of: Iterable[str] = ()) -> Any:
    """Declare a field with its default, its help text, other spellings of its flag, and the names it takes.

    A setting with `names` takes one of them, or an address "package.module:function". `part_of` names the
    lists that it belongs to (`flags.settings_of`).
    """
    metadata = {"help": help_text, "aliases": aliases, "names": tuple(names), "part_of": frozenset(part_of)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


trial_setting = partial(setting, part_of=("trial",))
"""Declare what shapes a trial in play and in evaluation: a run brings these settings along."""


def _require(ok: bool, name: str, value: Any, expected: str) -> None:
    if not ok:
        raise ConfigError(f"`{name}` is {value!r}, but must be {expected}: set `--{name}` accordingly.")


def unknown_choice(name: str, value: Any, choices: Iterable[str], otherwise: str = "") -> ConfigError:
    """Return the error for a word that a setting does not know, with the nearest one that it does.

    Args:
        name: of the setting.
        value: what came.
        choices: the words that it knows.
        otherwise: what else it takes, in words that continue the list of them.
    """
    known = [str(choice) for choice in choices]
    near = nearest(str(value), known)
    hint = "." if near is None else f"; did you mean {near!r}?"
    return ConfigError(f"`{name}` is {value!r}, but must be one of {', '.join(known)}{otherwise}{hint}")


def _require_names(config: Any) -> None:
    """Refuse a word that is neither a short name nor, with its colon, meant as an address."""
    for item in fields(config):
        names, value = item.metadata["names"], getattr(config, item.name)
        if names and value not in names and ":" not in str(value):
            raise unknown_choice(item.name, value, names, ', or your own by its address, "my_module:my_function"')


def require_all(config: Any, rules: dict[str, tuple[float, float]]) -> None:
    """Refuse fields that are neither None nor a number within (least, largest), by ConfigError."""
    for name, (low, high) in rules.items():
        value = getattr(config, name)
        expected = f"between {low:g} and {high:g}" if high < math.inf else f"at least {low:g}"
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        _require(value is None or is_number and low <= value <= high, name, value, expected)


@dataclass
class ModelConfig:
    """Which network speaks."""

    model_name_or_path: str = setting("tiny", "hub name, local folder, GGUF file, `smollm2`, or `tiny` (built in)")
    gguf_file: str | None = setting(None, "file name of GGUF weights inside the model folder")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting("float32", "dtype of the weights")
    attn_implementation: str | None = setting(None, "attention kernel, as in from_pretrained")
    trust_remote_code: bool = setting(False, "run code that a hub model brings along")
    enable_thinking: bool = trial_setting(False, "let chat templates that know thinking open a thinking block")
    gradient_checkpointing: bool = setting(False, "recompute activations in the backward pass")
    use_peft: bool = setting(False, "train LoRA adapters instead of all weights")
    lora_r: int = setting(16, "rank of the adapters")
    lora_alpha: int = setting(32, "scale of the adapters")
    lora_dropout: float = setting(0.0, "must be 0: sampling and learning see one network, without dropout")
    lora_target_modules: list[str] | None = setting(None, "module names to adapt; default: all linear layers")
    merge_and_save: bool = setting(False, "also save adapters and base as one model, in the run's merged/")

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_all(self, {"lora_r": (1, math.inf), "lora_alpha": (1, math.inf), "lora_dropout": (0, 0.99)})


SAMPLING_BOUNDS = {
    "temperature": (0, 100), "top_p": (1e-6, 1), "top_k": (0, math.inf), "min_p": (0, 1),
    "repetition_penalty": (1e-6, 100),
}  # fmt: skip
"""Field of a sampling distribution -> (least, largest)."""


@dataclass
class SamplingConfig:
    """How training responses are drawn. Every field is passed on explicitly (method: sampling never leaks in)."""

    temperature: float = setting(1.0, "sampling temperature in training")
    top_p: float = setting(1.0, "nucleus mass in training; 1 = off")
    top_k: int = setting(0, "largest number of candidate tokens in training; 0 = off")
    min_p: float = setting(0.0, "smallest relative probability in training; 0 = off")
    repetition_penalty: float = setting(1.0, "must be 1: training has no repetition penalty")
    max_new_tokens_per_turn: int = trial_setting(1024, "response tokens of ONE turn (not of an episode or trial)")
    max_prompt_tokens: int = trial_setting(2048, "prompt tokens of ONE turn; longer prompts lose history, oldest first")
    max_tokens_per_generate_batch: int = setting(262_144, "padded prompt + response tokens sampled at once")

    def __post_init__(self) -> None:
        """Check the numbers."""
        counts = ("max_new_tokens_per_turn", "max_prompt_tokens", "max_tokens_per_generate_batch")
        require_all(self, SAMPLING_BOUNDS | dict.fromkeys(counts, (1, math.inf)))


@dataclass
class EvalSamplingConfig:
    """How evaluation responses are drawn; independent of training's settings."""

    eval_temperature: float = trial_setting(0.7, "sampling temperature in evaluation; 0 = greedy")
    eval_top_p: float = trial_setting(0.8, "nucleus mass in evaluation; 1 = off")
    eval_top_k: int = trial_setting(20, "largest number of candidate tokens in evaluation; 0 = off")
    eval_min_p: float = trial_setting(0.0, "smallest relative probability in evaluation; 0 = off")
    eval_repetition_penalty: float = trial_setting(1.0, "repetition penalty in evaluation; 1 = off")

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_all(self, {f"eval_{name}": bounds for name, bounds in SAMPLING_BOUNDS.items()})


@dataclass
class TrialConfig:
    """What a trial is."""

    env: str = trial_setting(
        "minesweeper", "name, address `package.module:Class`, or `gymnasium:<id>`, `textarena:<id>`, `openspiel:<name>`"
    )
    env_kwargs: dict[str, Any] = trial_setting(dict, "keywords of the environment, as YAML or JSON")
    num_episodes: int = trial_setting(3, "episodes of a trial, N; 1 is plain RL")
    max_turns: int = trial_setting(7, "LLM calls of ONE episode")
    group_size: int = setting(8, "trials of one task, G", "num_generations")
    tasks_per_step: int = setting(16, "tasks of one training step, over all processes")
    memory: Literal["reflection", "trajectory", "both", "none"] = trial_setting("reflection", "inter-episode memory")
    stop_on_success: bool = trial_setting(True, "end a trial at its first success")
    wording: Literal["paper", "compact"] = trial_setting("paper", "the environment's texts")
    invalid_action_penalty: float = trial_setting(0.5, "cost of a response without a usable action")
    penalty_scope: Literal["return", "row"] = trial_setting("return", "penalties enter returns, or only their own row")
    length_penalty: float = trial_setting(0.0, "cost of a response at the token limit, growing from half of it (MAGE)")
    max_remark_chars: int = trial_setting(2000, "characters of a remark that are kept")
    env_timeout_s: float | None = trial_setting(60.0, "seconds one environment call may take; empty = no limit")
    env_workers: int = setting(0, "processes for environments, per training process; 0 = in the process itself")
    tasks: str | None = setting(None, "JSONL file or hub dataset of task seeds (column `seed`, optional `split`)")

    def __post_init__(self) -> None:
        """Check the numbers."""
        at_least_one = dict.fromkeys(("num_episodes", "max_turns", "group_size", "tasks_per_step"), (1, math.inf))
        costs = dict.fromkeys(
            ("invalid_action_penalty", "length_penalty", "max_remark_chars", "env_workers"), (0, math.inf)
        )
        require_all(self, at_least_one | costs | {"env_timeout_s": (1e-3, math.inf)})


@dataclass
class CreditConfig:
    """How rewards become one advantage per turn."""

    gamma_step: float = setting(0.95, "discount between turns of an episode")
    gamma_traj: float = setting(0.6, "discount between episodes of a trial")
    return_mode: str = setting("paper", "return rule, or address `my_module:my_returns`", names=RETURN_MODE.names)
    advantages: str = setting("gigpo", "estimator, or address `my_module:my_advantages`", names=ESTIMATOR.names)
    step_weight: float = setting(1.0, "GiGPO: weight w of the step-level term")
    norm: Literal["mean", "mean_std"] = setting("mean", "GiGPO: subtract the mean, or also divide by the std")
    episode_score: Literal["return", "reward"] = setting("return", "score of an episode: G_0 or its reward sum")
    anchor_scope: Literal["global", "episode"] = setting("global", "GiGPO: compare equal observations across episodes")
    anchor_visits: Literal["matched", "pooled"] = setting(
        "matched", "GiGPO: compare k-th visits of an observation with each other, or all visits (as the paper)"
    )
    credit_unit: Literal["trial", "row"] = setting("trial", "count each trial once, or each row (as public code)")
    normalise_by_role: bool = setting(
        True, "games: compare only trials against the same opponent in the same seat (gigpo, grpo, rloo)"
    )
    scale_advantages: Literal["none", "batch_std"] = setting("none", "divide by the std over the batch's rows")
    advantage_clip: float | None = setting(None, "bound of |advantage| after scaling; empty = none")
    gae_lambda: float = setting(1.0, "PPO: lambda of generalised advantage estimation")

    def __post_init__(self) -> None:
        """Check the numbers and names."""
        unit = dict.fromkeys(("gamma_step", "gamma_traj", "gae_lambda"), (0, 1))
        require_all(self, unit | {"step_weight": (0, math.inf), "advantage_clip": (1e-9, math.inf)})
        # What is shipped goes by one name, so that whatever tells of a run knows it.
        self.advantages = ESTIMATOR.short_name(self.advantages)
        self.return_mode = RETURN_MODE.short_name(self.return_mode)
        _require_names(self)


@dataclass
class PopulationConfig:
    """Whom the agent trains against in a game; off unless one of the first two settings is given."""

    opponents: list[str] | None = setting(
        None, "games: NAME, model:FOLDER or self, each with =WEIGHT if wanted; default: the environment's own"
    )
    snapshot_every: int = setting(0, "games: the policy joins its opponents every so many steps; 0 = never")
    snapshot_limit: int = setting(4, "games: snapshots that are kept; the oldest leaves")
    population_rule: Literal["ratio", "uniform", "prioritised"] = setting(
        "ratio", "games: meet opponents by their weights, equally, or by weight times how often the agent fails"
    )
    opponent_grouping: Literal["stationary", "mixed"] = setting(
        "stationary",
        "games: one opponent for a whole group, or one for each trial, which leaves few to compare by role",
    )

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_all(self, {"snapshot_every": (0, math.inf), "snapshot_limit": (1, math.inf)})

    @property
    def is_on(self) -> bool:
        """Whether the run has a population of its own."""
        return self.opponents is not None or self.snapshot_every > 0

    @property
    def seats_models(self) -> bool:
        """Whether models sit opposite: snapshots of the policy, or those that `opponents` names."""
        listed = self.opponents or ()
        named = any(entry.startswith("model:") or entry.partition("=")[0] == "self" for entry in listed)
        return named or self.snapshot_every > 0


@dataclass
class UpdateConfig:
    """How advantages become weights."""

    learning_rate: float = setting(1e-6, "AdamW learning rate")
    lr_scheduler_type: Scheduler = setting("constant", "learning-rate schedule")
    warmup_steps: int = setting(0, "linear warm-up, in optimizer steps")
    weight_decay: float = setting(0.01, "AdamW weight decay")
    adam_beta1: float = setting(0.9, "AdamW beta 1")
    adam_beta2: float = setting(0.999, "AdamW beta 2")
    max_grad_norm: float = setting(1.0, "gradient clipping")
    clip_low: float = setting(0.2, "ratio clip below 1", "epsilon")
    clip_high: float = setting(0.2, "ratio clip above 1", "epsilon_high")
    dual_clip: float | None = setting(3.0, "bound of the loss for negative advantages; empty = none")
    loss_aggregation: Literal["token_mean", "sequence_mean"] = setting("token_mean", "how token losses are averaged")
    entropy_coef: float = setting(0.001, "entropy bonus")
    beta: float = setting(0.0, "coefficient of the KL to the frozen reference; 0 loads none")
    reference: Literal["start", "base"] = setting("start", "KL to: the policy at the start, or its adapters' base")
    updates_per_batch: int = setting(1, "optimizer steps per batch of trials")
    max_tokens_per_micro_batch: int = setting(16_384, "padded tokens of one forward and backward pass")
    halve_on_oom: bool = setting(False, "one process: halve max_tokens_per_micro_batch once when memory runs out")
    critic: Literal["head", "separate"] = setting("head", "PPO: value head on the policy, or a second model")
    critic_learning_rate: float = setting(1e-5, "PPO: learning rate of the critic")
    value_clip: float | None = setting(0.5, "PPO: clip range of the value update; empty = none")

    def __post_init__(self) -> None:
        """Check the numbers."""
        counts = dict.fromkeys(("updates_per_batch", "max_tokens_per_micro_batch"), (1, math.inf))
        amounts = ("weight_decay", "clip_low", "clip_high", "entropy_coef", "beta", "warmup_steps")
        betas = {"adam_beta1": (0, 0.9999999), "adam_beta2": (0, 0.9999999), "dual_clip": (1, math.inf)}
        rates = {"max_grad_norm": (1e-9, math.inf), "value_clip": (0, math.inf)}
        # Beyond, a step is no float32 number, and torch ends with an error of its own.
        rates |= dict.fromkeys(("learning_rate", "critic_learning_rate"), (0, 1e30))
        require_all(self, counts | dict.fromkeys(amounts, (0, math.inf)) | betas | rates)


TARGETS = ("tensorboard", "none")
"""What `report_to` takes."""


def check_targets(report_to: Iterable[str]) -> None:
    """Refuse a word that `report_to` does not take.

    Raises:
        ConfigError: there is one.
    """
    for target in report_to:
        if target not in TARGETS:
            raise ConfigError(f"{unknown_choice('report_to', target, TARGETS)}{tracker_hint(target)}")


@dataclass
class RunConfig:
    """How a run is driven, watched and saved."""

    output_dir: str | None = setting(None, "run folder; default runs/<recipe>-<date>-<time>")
    run_name: str | None = setting(None, "name of the run; default: the recipe's")
    max_steps: int = setting(300, "training steps: batches of trials, each with `updates_per_batch` updates")
    seed: int = setting(0, "the one seed of the run")
    logging_steps: int = setting(1, "log every so many steps")
    save_steps: int = setting(50, "checkpoint every so many steps; 0 = only at the end")
    save_total_limit: int | None = setting(2, "checkpoints to keep; empty = all")
    save_trajectories_steps: int = setting(10, "write trajectories every so many steps; 0 = never")
    eval_steps: int = setting(50, "evaluate on validation tasks every so many steps; 0 = only before and after")
    eval_tasks: int = setting(512, "fixed evaluation tasks")
    eval_validation_tasks: int = setting(128, "validation tasks during training")
    eval_samples: int = setting(8, "independent first episodes a task, for pass@k and diversity at the end; 0 = skip")
    report_to: list[str] = setting(lambda: ["tensorboard"], f"where metrics go: {', '.join(TARGETS)}")
    resume_from_checkpoint: str | None = setting(None, "checkpoint folder, or `latest`")
    load_best_model_at_end: bool = setting(False, "finish with the best validation checkpoint")
    metric_for_best_model: str = setting("pass@3", "validation metric that decides, higher is better")
    collective_timeout_s: float = setting(1800.0, "seconds a process waits for the others before the run ends")
    dry_run: bool = setting(False, "print prompts, settings and token counts, and train nothing")

    def __post_init__(self) -> None:
        """Check the numbers."""
        names = ("max_steps", "save_steps", "eval_steps", "eval_validation_tasks", "eval_samples", "seed")
        rules = dict.fromkeys((*names, "save_trajectories_steps"), (0, math.inf))
        ones = dict.fromkeys(("logging_steps", "save_total_limit", "eval_tasks", "collective_timeout_s"), (1, math.inf))
        require_all(self, rules | ones)
        check_targets(self.report_to)


@dataclass
class Config:
    """All settings of a run. Field names are unique across the parts, so flags and YAML keys are flat."""

    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    eval_sampling: EvalSamplingConfig = field(default_factory=EvalSamplingConfig)
    trial: TrialConfig = field(default_factory=TrialConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    run: RunConfig = field(default_factory=RunConfig)

    given = frozenset[str]()  # no field: the names that `from_flat` was given

    def flat(self) -> dict[str, Any]:
        """Return {name: value} over all parts, in declaration order."""
        parts = (getattr(self, part.name) for part in fields(self))
        return {item.name: getattr(part, item.name) for part in parts for item in fields(part)}

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> Config:
        """Build from {name: value}; names that are missing keep their defaults.

        Raises:
            ConfigError: a name is unknown (with the nearest known one) or a number is out of range.
        """
        parts = {part.name: part.default_factory for part in fields(cls)}
        owner = {item.name: name for name, part in parts.items() for item in fields(part)}
        chosen: dict[str, dict[str, Any]] = {name: {} for name in parts}
        for key, value in values.items():
            if key not in owner:
                hint = (
                    foreign_hint(key, owner) or did_you_mean(key, owner, quote="`") or " `--help` lists all settings."
                )
                raise ConfigError(f"there is no setting `{key}`.{hint}")
            chosen[owner[key]][key] = value
        config = cls(**{name: part(**chosen[name]) for name, part in parts.items()})
        config.given = frozenset(values)
        return config

    def check(self) -> None:
        """Check rules that cross concerns, before any weight is loaded.

        Raises:
            ConfigError: two settings contradict each other.
        """
        trial, credit, run = self.trial, self.credit, self.run
        allowed = [f"pass@{k}" for k in range(1, trial.num_episodes + 1)]
        if run.load_best_model_at_end and run.metric_for_best_model not in allowed:
            raise ConfigError(
                f"`metric_for_best_model` is {run.metric_for_best_model!r}, but a run with {trial.num_episodes} "
                f"episode(s) measures {', '.join(allowed)}: choose one of these."
            )
        if run.load_best_model_at_end and not (run.eval_steps and run.eval_validation_tasks):
            raise ConfigError("`load_best_model_at_end` needs validation: set `--eval_steps` to at least 1.")
        if self.sampling.temperature == 0:
            raise ConfigError("`temperature` is 0, but training must explore: set `--temperature` above 0.")
        if self.model.merge_and_save and not self.model.use_peft:
            raise ConfigError("`merge_and_save` merges adapters into their base: add `--use_peft`, or drop it.")
        # Runs of versions that accepted it, and ignored it, can still be resumed.
        if self.model.lora_dropout and not run.resume_from_checkpoint:
            raise ConfigError(
                f"`lora_dropout` is {self.model.lora_dropout:g}, but would have no effect, because sampling and "
                "learning must see one network, without dropout: leave it out."
            )
        if self.population.seats_models and trial.env_workers:
            raise ConfigError(
                f"`env_workers` is {trial.env_workers}, but models that sit opposite answer in the agent's process: "
                "set `--env_workers 0`, or leave out `--snapshot_every` and the models among `--opponents`."
            )
        # Last, because whether an estimator compares is written at the function, whose import takes seconds.
        if trial.group_size < 2 and has_mark(load(credit.advantages, ESTIMATOR), "compares_trials"):
            raise ConfigError(
                f"`group_size` is {trial.group_size}, but `{credit.advantages}` compares a trial with the other trials "
                "of its group and needs at least 2: set `--group_size 8`, or choose `--advantages reinforce` or `ppo`."
            )
