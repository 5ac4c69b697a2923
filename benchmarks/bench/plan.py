"""From a plan file to the cells that its tables need.

A plan (`benchmarks/plans/<preset>.yaml`) names blocks, one for each table; a block names an environment's preset, rows
(`benchmarks/plans/methods.yaml`) and, for an ablation, variants of each row. Rows that need the same model or the same
evaluation share a cell. What does not live here: what decides a cell's result (`cells.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.cells import EVALUATED, ROOT, decides_evaluation, decides_training, key_of, stem
from bench.fairness import check_fair, check_measure
from bench.measures import PASS
from metarl_agents.cli import coerce, read_yaml
from metarl_agents.config import Config, ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.evaluation.agents import AGENTS

PLANS = ROOT / "benchmarks" / "plans"
PRESETS = ("smoke", "cpu", "gpu")
_BLOCK_KEYS = frozenset(
    {
        *("name", "title", "like", "kind", "requires", "recipe", "config", "seeds", "rows", "reference", "published"),
        *("figures", "vary", "train", "evaluate", "methods", "cost", "note", "measure", "on_demand"),
    }
)
_PLAN_KEYS = frozenset({"title", "jobs", "hours", "launch", "episodes_per_task", "train", "evaluate", "methods"})
_PLAN_KEYS |= {"cost", "blocks"}
_METHOD_KEYS = frozenset({"label", "train", "train_as", "evaluate", "agent", "cost"})
_MODEL = tuple(item.name for item in fields(ModelConfig) if item.name not in EVALUATED)
"""Settings that say which model it is and how to load it."""


@dataclass(frozen=True)
class Job:
    """A cell that is wanted: what decides it, and what must be run to get it."""

    kind: str
    name: str
    key: str
    decides: dict[str, Any] = field(compare=False, repr=False)
    config: Config = field(compare=False, repr=False)
    recipe: str = ""
    agent: str = "policy"
    split: str = "test"
    train: Job | None = None
    """The model that an evaluation plays; None for the base model."""
    seed: int | None = None
    cost_s: float = 0.0
    """Expected wall-clock on the machine that the plan was written for."""
    on_demand: bool = field(default=False, compare=False)
    """Whether it is made only where a pattern names it."""

    @property
    def stem(self) -> str:
        """Return the name of the job's files and folder."""
        return stem(self.name, self.key)


@dataclass(frozen=True)
class Row:
    """One row of a table: a method, perhaps in one variant, over its seeds."""

    id: str
    label: str
    method: str
    variant: str | None
    jobs: tuple[Job, ...]
    """One evaluation for each seed; a single one for the base model."""
    meaningful: bool = True
    """False where a prompting baseline is asked of a model that cannot follow prompts."""

    @property
    def trained(self) -> bool:
        """Whether the row shows trained models."""
        return self.jobs[0].train is not None


@dataclass(frozen=True)
class Block:
    """One table."""

    name: str
    title: str
    env: str
    kind: str
    rows: tuple[Row, ...]
    reference: str
    """The row, or the method in the same variant, that the others are compared with."""
    vary: dict[str, Any] | None = None
    published: str | None = None
    figures: tuple[str, ...] = ()
    note: str | None = None
    measure: str = "pass"
    """What the table leads with: "pass" (pass@k), or "exploited" in a game (see `measures.py`)."""


@dataclass(frozen=True)
class Plan:
    """All tables of a preset."""

    preset: str
    title: str
    blocks: tuple[Block, ...]
    skipped: tuple[dict[str, str], ...]
    """Blocks that cannot be run here, with the reason."""
    jobs: int = 1
    hours: float | None = None
    """What the whole plan may take."""
    launch: tuple[str, ...] = ()
    episodes_per_task: int = 24

    def jobs_wanted(self, *only: str, seeds: Iterable[int] | None = None) -> list[Job]:
        """Return every cell once, in the order of the tables, each model before what plays it.

        Args:
            only: patterns for blocks or rows, as in `minesweeper` or `*/lamer*`: what any of them names; none for all.
            seeds: training seeds; None for all. The base model's rows have none and always stay.

        Raises:
            ConfigError: one of the patterns names nothing, or no row of them has the seeds.
        """
        chosen = None if seeds is None else set(seeds)
        if idle := [pattern for pattern in only if not any(self.rows(pattern))]:
            self._refuse(f"`{idle[0]}` names nothing in this plan")
        found: dict[str, Job] = {}
        for _, row in self.rows(*only):
            for job in row.jobs:
                if chosen is None or job.seed is None or job.seed in chosen:
                    found |= {part.key: part for part in (job.train, job) if part and part.key not in found}
        if not found and chosen is not None:
            self._refuse("nothing in this plan matches")
        return list(found.values())

    def _refuse(self, why: str) -> None:
        names = ", ".join(block.name for block in self.blocks)
        raise ConfigError(f"{why}; its blocks are {names} (`--list` shows all rows).")

    def rows(self, *only: str) -> Iterator[tuple[Block, Row]]:
        """Yield the rows that any of the patterns names, with their blocks; all rows where there are none."""
        for block in self.blocks:
            for row in block.rows:
                if not only or any(matches(pattern, block, row) for pattern in only):
                    yield block, row

    def hours_needed(self, wanted: Iterable[Job] | None = None) -> float:
        """Return the estimate for these cells, or for all but those on demand, with the plan's number of processes."""
        jobs = [job for job in self.jobs_wanted() if not job.on_demand] if wanted is None else wanted
        return sum(job.cost_s for job in jobs) / self.jobs / 3600


def matches(pattern: str, block: Block, row: Row) -> bool:
    """Whether a pattern names the block, the row, or both as `block/row`; `*` stands for anything."""
    return any(fnmatch(text, pattern) for text in (block.name, row.id, f"{block.name}/{row.id}"))


def load_plan(preset: str, folder: Path = PLANS) -> Plan:
    """Read a plan and work out its cells.

    Raises:
        ConfigError: a name in it is unknown, a setting does not fit, or the rows of a table may not be compared.
    """
    path = folder / f"{preset}.yaml"
    values = read_yaml(path)
    _check_names(values, _PLAN_KEYS, str(path))
    methods = read_yaml(folder / "methods.yaml")
    for name, method in methods.items():
        _check_names(method, _METHOD_KEYS, f"the method {name}")
    written: dict[str, dict[str, Any]] = {}
    blocks, skipped = [], []
    for block in values["blocks"]:
        _check_names(block, _BLOCK_KEYS, f"the block {block.get('name')} of {path}")
        block = written[block["name"]] = _inherit(block, written)
        missing = [file for file in (block["recipe"], block["config"]) if not (ROOT / file).is_file()]
        missing += [package for package in block.get("requires", ()) if not _importable(package)]
        if missing:
            skipped.append({"block": block["name"], "reason": f"{', '.join(missing)} is not there"})
        else:
            blocks.append(_Expander(values, methods, block).block())
    return Plan(
        preset=preset,
        title=values["title"],
        blocks=tuple(blocks),
        skipped=tuple(skipped),
        jobs=values.get("jobs", 1),
        hours=values.get("hours"),
        launch=tuple(values.get("launch", ())),
        episodes_per_task=values.get("episodes_per_task", 24),
    )


class _Expander:
    """Turns a block of the file into rows and jobs."""

    def __init__(self, plan: dict[str, Any], methods: dict[str, Any], block: dict[str, Any]) -> None:
        self.plan, self.methods, self.written = plan, methods, block
        self.preset = read_yaml(ROOT / block["config"])
        self.cost = plan.get("cost", {}) | block.get("cost", {})

    def block(self) -> Block:
        written = self.written
        variants = (written.get("vary") or {}).get("variants") or {None: {}}
        rows = tuple(
            self._row(method, variant, changes or {})
            for method in written["rows"]
            for variant, changes in variants.items()
        )
        block = Block(
            name=written["name"],
            title=written["title"],
            env=rows[0].jobs[0].config.trial.env,
            kind=written.get("kind", "main"),
            rows=rows,
            reference=str(written["reference"]),
            vary={"name": written["vary"]["name"], "values": [str(v) for v in variants]}
            if written.get("vary")
            else None,
            published=written.get("published"),
            figures=tuple(written.get("figures", ())),
            note=written.get("note"),
            measure=written.get("measure", PASS.name),
        )
        check_fair(block, self.plan.get("episodes_per_task", 24))
        check_measure(block)
        return block

    def _row(self, name: str, variant: Any, changes: dict[str, Any]) -> Row:
        from metarl_agents.policy.loading import is_tiny

        method = self._method(name)
        trained = "train" in method or "train_as" in method
        seeds = self.written["seeds"] if trained else [None]
        row_id = name if variant is None else f"{name}:{variant}"
        jobs = tuple(self._evaluation(row_id, name, changes, seed) for seed in seeds)
        asked = AGENTS[method.get("agent", "policy")].play_request is not None
        label = method["label"] if variant is None else f"{method['label']}; {self.written['vary']['name']} {variant}"
        return Row(
            id=row_id,
            label=label,
            method=name,
            variant=None if variant is None else str(variant),
            jobs=jobs,
            meaningful=not (asked and is_tiny(jobs[0].config.model.model_name_or_path)),
        )

    def _evaluation(self, row_id: str, method: str, changes: dict[str, Any], seed: int | None) -> Job:
        train = None if seed is None else self._training(row_id, method, changes, seed)
        own = self._method(method)
        parts = [self.plan.get("evaluate"), self.written.get("evaluate"), own.get("evaluate"), changes.get("evaluate")]
        # `opponents` is training's pool, and would win over the `env_kwargs` of a variant that meets others.
        config = _config(self.preset | {"opponents": None}, *parts, _model_of(train))
        agent = own.get("agent", "policy")
        decides = decides_evaluation(config, agent=agent, split="test", train_key=train and train.key)
        return Job(
            kind="evaluate",
            name=self._name(row_id, seed),
            key=key_of(decides),
            decides=decides,
            config=config,
            agent=agent,
            train=train,
            seed=seed,
            on_demand=self.written.get("on_demand", False),
            cost_s=float((self.cost | own.get("cost", {}))["evaluation"]),
        )

    def _training(self, row_id: str, method: str, changes: dict[str, Any], seed: int) -> Job:
        trained_as = self._method(method).get("train_as", method)
        parts = [self.plan.get("train"), self.written.get("train"), self._method(trained_as)["train"]]
        config = _config(self.preset, *parts, changes.get("train"), {"seed": seed})
        decides = decides_training(config, self.plan.get("launch", ()))
        cost = self.cost | self._method(trained_as).get("cost", {})
        step_s = cost["meta_step" if config.trial.num_episodes > 1 else "rl_step"]
        return Job(
            kind="train",
            name=self._name(trained_as if "train" not in changes else row_id, seed),
            key=key_of(decides),
            decides=decides,
            config=config,
            recipe=self.written["recipe"],
            seed=seed,
            on_demand=self.written.get("on_demand", False),
            cost_s=float(step_s) * config.run.max_steps,
        )

    def _method(self, name: str) -> dict[str, Any]:
        """Return a method as `methods.yaml` has it, with what plan and block add."""
        if name not in self.methods:
            raise ConfigError(f"there is no method `{name}`: methods.yaml has {', '.join(self.methods)}.")
        method = dict(self.methods[name])
        for more in (self.plan.get("methods", {}).get(name, {}), self.written.get("methods", {}).get(name, {})):
            for part, values in more.items():
                method[part] = method.get(part, {}) | values if isinstance(values, dict) else values
        return method

    def _name(self, row_id: str, seed: int | None) -> str:
        return "/".join([self.written["name"], row_id, *([] if seed is None else [f"s{seed}"])])


def _model_of(train: Job | None) -> dict[str, Any]:
    """Return which model a training leaves behind; nothing else of how it was trained may enter its evaluation."""
    return {} if train is None else {name: getattr(train.config.model, name) for name in _MODEL}


def _config(*parts: dict[str, Any] | None) -> Config:
    """Merge settings, later ones winning."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part or {}
    # Seeds and variants ask for the same settings again and again; checking their types is what takes time.
    config = Config.from_flat(_coerced(json.dumps(merged)))
    config.check()
    return config


@lru_cache(maxsize=1024)
def _coerced(text: str) -> dict[str, Any]:
    return coerce(json.loads(text))


def _inherit(block: dict[str, Any], written: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Take from the block `like` names what this one does not say: where to play and what it costs, not which rows."""
    if "like" not in block:
        return dict(block)
    if block["like"] not in written:
        raise ConfigError(f"the block {block['name']} is like `{block['like']}`, which no block above it is called.")
    other = written[block["like"]]
    shared = ("requires", "recipe", "config", "seeds", "cost", "train", "evaluate", "methods", "measure")
    return {name: other[name] for name in shared if name in other} | block


def _check_names(values: dict[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(f"{where} has the key `{unknown[0]}`, but may have {', '.join(sorted(known))} only.")


def _importable(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None
