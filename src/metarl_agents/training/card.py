"""What a run's model card tells: base model, results on the fixed tasks, progress, versions.

What lives here: finding the facts of a run. What does not: the card's text, and that edited cards stay
(`tracking/model_card.py`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from metarl_agents.envs.factory import in_process, opened, tiny_model_name
from metarl_agents.envs.guard import call_guarded
from metarl_agents.envs.registry import make
from metarl_agents.evaluation.games import format_games
from metarl_agents.evaluation.layout import lay_out
from metarl_agents.evaluation.results import EvaluationResult, format_table
from metarl_agents.policy.gguf import SMOLLM2, locate_gguf
from metarl_agents.policy.loading import TINY, needs_warm_start, shipped_folder, shipped_tiny_models
from metarl_agents.tracking.markdown import escape
from metarl_agents.tracking.model_card import CARD_FILE, CardFacts, render_card, write_card
from metarl_agents.training.population import AGENT
from metarl_agents.training.run_folder import saved_result
from metarl_agents.training.snapshots import read_ratings
from metarl_agents.training.start import BASE_FOLDER

if TYPE_CHECKING:
    from metarl_agents.training.setup import Run

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_OWN_LICENSE = "apache-2.0"
_SMOLLM2_ON_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"


def write_model_card(run: Run, folder: Path, versions: dict[str, str], *, is_adapter: bool | None = None) -> None:
    """Write the card of the model in `folder`; what goes wrong is told and ends nothing, the model being saved.

    Args:
        run: the run, at the step of the weights.
        folder: where the model lies.
        versions: of what decides the numbers.
        is_adapter: whether the folder holds adapters; default: whether the policy has any.
    """
    if is_adapter is None:
        is_adapter = hasattr(run.policy.model, "peft_config")
    try:
        card = render_card(card_facts(run, versions, is_adapter=is_adapter))
        path = write_card(folder, card)
    except OSError as error:
        run.logger.message(f"The model card in {folder} could not be written ({error}); the model is complete.")
        return
    if path.name != CARD_FILE:
        run.logger.message(f"{folder / CARD_FILE} was edited and stays as it is; the new model card is {path.name}.")


def card_facts(run: Run, versions: dict[str, str], *, is_adapter: bool) -> CardFacts:
    """Return what the card of the run's model tells, the results read from the run's `eval/` folder."""
    base, on_hub, license_name = _base(run)
    progress = run.progress
    found = {name: run.results.get(name) or saved_result(run.output_dir, name) for name in ("before", "after")}
    examined = {name: result for name, result in found.items() if result is not None}
    return CardFacts(
        name=run.output_dir.resolve().name,
        config=run.config,
        base=base,
        base_on_hub=on_hub,
        license=license_name,
        is_adapter=is_adapter,
        env_keywords=_keywords(in_process(run.make_env)) or dict(run.config.trial.env_kwargs),
        steps=progress.step,
        optimizer_steps=progress.optimizer_steps,
        num_episodes=progress.num_episodes,
        num_tokens=progress.num_tokens,
        num_processes=run.accelerator.num_processes,
        results=_results(run, examined),
        # Evaluations tell of opponents, and no environment need be built for it once more.
        is_game=run.population is not None or any(result.meta.get("games") for result in examined.values()),
        notes=_notes(run),
        versions=versions,
        device=str(run.device.type),
    )


def _results(run: Run, examined: dict[str, EvaluationResult]) -> str:
    """Return the table before and after, and what was won from whom; an `after` of other weights is left out."""
    told = {name: result for name, result in examined.items() if name == "before" or result.step == run.progress.step}
    rows = [_escaped(result, f"{name} training") for name, result in told.items()]
    parts = [format_table(rows, markdown=True)] if rows else []
    games = told["after"].meta.get("games") if "after" in told else None
    if games and "summary" in games:
        parts += ["What was won from whom, after training:", format_games(_escaped_games(games), markdown=True)]
    return "\n\n".join(parts + _ratings(run))


def _ratings(run: Run) -> list[str]:
    """Return the table of Elo ratings with what must be known to read it, or nothing where nobody was rated."""
    try:
        ratings = read_ratings(run.output_dir)
    except (OSError, ValueError, KeyError, TypeError):  # a damaged file is no reason to lose the card
        return []
    rows = [
        [escape(name, bars=False), f"{rating:.0f}", f"[{low:.0f}, {high:.0f}]", f"{games:.0f}"]
        for name, rating, low, high, games in ratings
    ]
    table = lay_out(["player", "Elo", "95 %", "games"], rows, markdown=True)
    return [f"Ratings from the games of training; `{AGENT}` is the model as it last was rated:", table] if rows else []


def _escaped_games(games: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics of games with the names of players and opponents as Markdown text."""

    def escaped(value: Any) -> Any:
        return escape(value, bars=False) if isinstance(value, str) else value

    parts = {
        part: [{key: escaped(value) for key, value in row.items()} for row in games.get(part, ())]
        for part in ("summary", "exact", "unframed")
    }
    return {**games, **parts, "players": [escaped(player) for player in games["players"]]}


def _escaped(result: EvaluationResult, label: str) -> EvaluationResult:
    """Return the result with everything that an environment or a user named as Markdown text."""
    return replace(
        result,
        label=label,
        env=escape(result.env),
        env_kwargs={escape(name): escape(value) for name, value in result.env_kwargs.items()},
        sampling=escape(result.sampling),
        split=escape(result.split),
        crashed=[{"seed": crash["seed"], "error": escape(crash["error"])} for crash in result.crashed],
    )


def _notes(run: Run) -> tuple[str, ...]:
    config, progress = run.config.run, run.progress
    if progress.best_step is None or progress.best_metric is None:
        return ()
    best = f"Validation {config.metric_for_best_model} was best after step {progress.best_step}"
    weights = "these are the weights" if config.load_best_model_at_end else "these are the weights of the last step"
    return (f"{best} ({progress.best_metric:.3f}); {weights}.",)


def _keywords(make_env: Any) -> dict[str, Any]:
    """Return the keywords that partials around an environment hold, the outer ones winning."""
    found: dict[str, Any] = {}
    while isinstance(make_env, partial):
        found = {**make_env.keywords, **found}
        make_env = make_env.args[0] if make_env.func is make and make_env.args else make_env.func
    return found


def _base(run: Run) -> tuple[str, str | None, str | None]:
    """Return (base model in words, its name on the hub or None, its license or None)."""
    model, loaded = run.config.model, _loaded_from(run)
    name = model.model_name_or_path
    if name == TINY:
        tiny_name = _tiny_name(run, loaded)
        kind = _kind_of_tiny(run, loaded, tiny_name)
        if kind == "made":
            return "a small model made for this run", None, None
        if kind == "shipped":
            return f"the built-in tiny model {tiny_name}", None, _OWN_LICENSE
        name = loaded
    if name == SMOLLM2:
        return _SMOLLM2_ON_HUB, _SMOLLM2_ON_HUB, _OWN_LICENSE
    place = locate_gguf(name, model.gguf_file)[0]
    folder = Path(place).expanduser()
    if folder.exists() or not _HUB_NAME.fullmatch(place):
        return name, None, _license_of(folder)
    return name, place, None


def _tiny_name(run: Run, loaded: str) -> str | None:
    """Return which shipped model knows the environment; where that cannot be built just now, the one it came from."""
    limit = run.config.trial.env_timeout_s
    try:
        with opened(run.make_env, limit) as env:
            return call_guarded(partial(tiny_model_name, env), limit)
    except (Exception, SystemExit):  # a user's environment may fail at any time; the model is trained and saved
        folders = {name: shipped_folder(name) for name in shipped_tiny_models()}
        return next((name for name, folder in folders.items() if folder == Path(loaded).absolute()), None)


def _kind_of_tiny(run: Run, loaded: str, tiny_name: str | None) -> Literal["made", "shipped", "given"]:
    """Tell what stands behind the name `tiny`, which is also the setting's default where `train` was given a policy."""
    if not loaded or Path(loaded).absolute() == (run.output_dir / BASE_FOLDER).absolute():
        return "made"
    shipped = shipped_folder(tiny_name) if tiny_name else None
    own = [run.output_dir, *([shipped] if shipped else [])]
    if not any(Path(loaded).absolute().is_relative_to(folder.absolute()) for folder in own):
        return "given"
    return "made" if needs_warm_start(run.config.model, tiny_name) else "shipped"


def _loaded_from(run: Run) -> str:
    """Return where the (base) model was loaded from; empty for one made in memory."""
    configs = getattr(run.policy.model, "peft_config", {})
    names = [config.base_model_name_or_path for config in configs.values()]
    return next(iter(names), None) or getattr(run.policy.model, "name_or_path", "") or ""


def _license_of(folder: Path) -> str | None:
    """Return the license that a local model's own card names."""
    import yaml

    try:
        opened, _, rest = (folder / CARD_FILE).read_text(encoding="utf-8").partition("---\n")
        found = yaml.safe_load(rest.partition("\n---")[0]) if not opened.strip() else None
    except (OSError, ValueError, yaml.YAMLError):
        return None
    name = found.get("license") if isinstance(found, dict) else None
    return name if isinstance(name, str) and re.fullmatch(r"[\w.-]+", name) else None
