"""What a recipe does around `train()`: dry run, headline, the tables before and after."""

from __future__ import annotations

import sys

from metarl_agents.cli import NOTHING_LEARNED, is_first_process
from metarl_agents.config import Config
from metarl_agents.envs.factory import environment_factory
from metarl_agents.evaluation.games import format_games
from metarl_agents.evaluation.ratings import format_ratings
from metarl_agents.evaluation.results import format_table
from metarl_agents.training.snapshots import read_ratings
from metarl_agents.training.trainer import TrainResult, train


def run_and_report(config: Config) -> int:
    """Train as `config` says and write the table to standard output; return the exit status.

    0; 130 where the run was interrupted; `NOTHING_LEARNED` where it took no update, or none from some step on because
    trials crashed, prompts did not fit or numbers were not finite.
    """
    make_env = environment_factory(config.trial)
    if config.run.dry_run:
        from metarl_agents.training.dry_run import describe_run

        if is_first_process():
            sys.stdout.write(describe_run(config, make_env))
        return 0
    result = train(make_env, config)
    if result.interrupted:
        return 130
    if is_main_process():
        sys.stdout.write(report(result))
    return 0 if result.learned else NOTHING_LEARNED


def report(result: TrainResult) -> str:
    """Return the pass@k table, of games what the trained model takes from each opponent, and where things are."""
    rows = [row for row in (result.before, result.after) if row is not None]
    examined = result.after.meta.get("games", {}) if result.after is not None else {}
    games = f"After training:\n\n{format_games(examined)}\n\n" if "summary" in examined else ""
    ratings = read_ratings(result.output_dir)
    opponents = f"{format_ratings(ratings)}\n\n" if ratings else ""
    is_whole = result.after is not None
    places = {
        "Model": result.output_dir if is_whole else None,
        "Curves": f"tensorboard --logdir {result.output_dir}",
        "Trajectories": f"python -m metarl_agents.tracking.viewer {result.output_dir}",
        "Play": f"python -m metarl_agents.play --model {result.output_dir}" if is_whole else None,
        "Ending": result.ending or None,
    }
    listed = "".join(f"{name + ':':13} {text}\n" for name, text in places.items() if text is not None)
    return f"\n{format_table(rows)}\n\n{games}{opponents}{listed}"


def is_main_process() -> bool:
    """Whether this process is the one that writes."""
    from accelerate import PartialState

    return PartialState().is_main_process
