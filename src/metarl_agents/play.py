"""Watch an agent play one trial in the terminal, or play a game against it.

    python -m metarl_agents.play --model runs/minesweeper-20260101-120000
    python -m metarl_agents.play minesweeper --model tiny --seed 3
    python -m metarl_agents.play my_package.my_env:MyEnv --model Qwen/Qwen3-4B --num_episodes 2
    python -m metarl_agents.play kuhn --model runs/kuhn-20260101-120000                         # you against the model
    python -m metarl_agents.play kuhn --model runs/kuhn-20260101-120000 --opponent aggressive   # watch it

A run's folder brings its own environment and trial settings along; flags win. `--seed N` shows the N-th test task. In a
game you take the opponent's seat, and see what the model has read and written when all is over. The built-in model
`tiny` brings along what `recipes/configs/<ENV>/tiny.yaml` says.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TextIO

from metarl_agents.cli import (
    TRIAL_SETTINGS,
    build_parser,
    discard_output,
    model_settings,
    parse_with_extras,
    run_cli,
    trial_defaults,
)
from metarl_agents.config import Config, TrialConfig
from metarl_agents.envs.games import GameEnvironment, HumanOpponent
from metarl_agents.envs.games.seating import Seating
from metarl_agents.errors import ConfigError
from metarl_agents.types import Episode, StepResult

SETTINGS = {*TRIAL_SETTINGS, "dtype", "gguf_file", "trust_remote_code"} - {"env", "eval_temperature"}
"""Settings with a flag; the environment is named by position, and `--temperature` is evaluation's."""
HUMAN, OWN = "human", "own"


def main(argv: list[str] | None = None) -> int:
    """Load a model, play one trial while showing it, and return the exit status."""
    config, extras = parse_with_extras(argv, _parser(), _defaults)
    if config.model.model_name_or_path == "":
        raise ConfigError("there is nobody to play: name a model with `--model FOLDER`, or try `--model tiny`.")
    if extras["task"] < 0 or (extras["delay"] or 0) < 0:
        raise ConfigError("`seed` and `delay` must be at least 0: set them accordingly.")
    try:
        return _play(config, extras["task"], extras["delay"], extras["opponent"])
    except KeyboardInterrupt:
        sys.stdout.write("\nStopped.\n")
        return 130
    except BrokenPipeError:
        discard_output()
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = build_parser(__doc__ or "", only=SETTINGS)
    parser.prog = "python -m metarl_agents.play"
    parser.add_argument("env", nargs="?", metavar="ENV", help="registered name or address `package.module:Class`")
    parser.add_argument("--model", dest="model_name_or_path", metavar="X", help="run folder, hub name, or `tiny`")
    parser.add_argument("--temperature", dest="eval_temperature", metavar="X", help="0 = greedy [0.7]")
    parser.add_argument("--seed", dest="task", type=int, default=0, metavar="N", help="which test task [0]")
    parser.add_argument(
        "--opponent", metavar="X", help=f"games: `{HUMAN}` = you, `{OWN}` = the settings', or a name [{HUMAN}]"
    )
    parser.add_argument("--delay", type=float, metavar="S", help="seconds after each turn [0.3 in a terminal]")
    return parser


def _defaults(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the model's own run, or those that the tiny model knows."""
    model = flags.get("model_name_or_path", "")
    return {"model_name_or_path": model, **trial_defaults(model_settings(model, flags.get("env")), flags)}


def _play(config: Config, task: int, delay: float | None, opponent: str | None) -> int:
    from metarl_agents.envs.factory import environment_factory

    config.trial, is_human = against(config.trial, opponent)
    make_env = environment_factory(config.trial)
    env = make_env()
    # torch is imported from here on, after everything that can be checked without it.
    from metarl_agents.agent import OF_ONE_TRIAL, Agent, run_trial
    from metarl_agents.policy.sampling import Sampling
    from metarl_agents.rollout.tasks import evaluation_seeds
    from metarl_agents.tracking.screen import Screen
    from metarl_agents.training.setup import fit_context
    from metarl_agents.training.start import build_policy

    policy = build_policy(config, make_env)
    fit_context(config, policy)
    agent = Agent(policy, Sampling.for_evaluation(config), max_prompt_tokens=config.sampling.max_prompt_tokens)
    agent.to_accelerator()
    trial, is_game = config.trial, isinstance(env, GameEnvironment)
    payoff = partial(_payoff, config, env.reward_scale) if is_game else None
    screen = Screen(sys.stdout, num_episodes=trial.num_episodes, payoff=payoff)
    screen.header(_headline(config, task, is_human), _facts(config, agent.sampling.describe(), is_game))
    table = None
    if is_human:
        words = _in_words(trial)
        sys.stdout.write(f"\n{words.describe()}\n")
        table = PersonsTable(env, words, sys.stdout, trial.num_episodes)
    played = run_trial(
        agent,
        table or env,
        evaluation_seeds("test", 1)[0] + task,
        on_turn=_shows(screen, delay) if table is None else None,
        # A person may think as long as they like.
        **{name: getattr(trial, name) for name in OF_ONE_TRIAL} | ({"env_timeout_s": None} if is_human else {}),
    )
    if table is not None:
        table.leave()
        for _, _, turn in played.rows():
            screen.turn(played, turn)
    screen.verdict(played)
    env.close()
    return 0


def _payoff(config: Config, scale: float, episode: Episode) -> float:
    """Return what the model earned in one play of a game."""
    from metarl_agents.evaluation.games import episode_payoff

    return episode_payoff(episode, config.trial, scale, config.sampling.max_new_tokens_per_turn)


def _shows(screen: Any, delay: float | None) -> Callable[[Any, Any], None]:
    """Return what writes each turn to the screen and pauses."""
    pause = (0.3 if sys.stdout.isatty() else 0.0) if delay is None else delay

    def on_turn(trial: Any, turn: Any) -> None:
        screen.turn(trial, turn)
        time.sleep(pause)

    return on_turn


def against(trial: TrialConfig, opponent: str | None) -> tuple[TrialConfig, bool]:
    """Return the settings of a trial with the opponent that was asked for, and whether that is a person.

    In a game all episodes are played, whoever wins.

    Args:
        trial: the settings.
        opponent: `human`, `own` (whom the settings name), another name that the game knows, or None for the default: a
            person in a game.

    Raises:
        ConfigError: an opponent is named where there is none, or the game does not know it.
    """
    from metarl_agents.envs.factory import environment_factory
    from metarl_agents.evaluation.game_values import facing

    env = environment_factory(trial)()
    if not isinstance(env, GameEnvironment):
        if opponent is not None:
            raise ConfigError(f"`opponent` is {opponent}, but {trial.env} is no game: leave `--opponent` out.")
        return trial, False
    opponent = opponent or HUMAN
    named = {} if opponent in (HUMAN, OWN) else {"env_kwargs": facing(trial.env_kwargs, [opponent])}
    return replace(trial, stop_on_success=False, **named), opponent == HUMAN


def _in_words(trial: TrialConfig) -> GameEnvironment:
    """Return the game in the wording for those who do not know it, whatever the model reads."""
    from metarl_agents.envs.factory import environment_factory

    return environment_factory(replace(trial, wording="paper", env_kwargs=_without_wording(trial)))()


def _without_wording(trial: TrialConfig) -> dict[str, Any]:
    return {name: value for name, value in trial.env_kwargs.items() if name != "wording"}


class PersonsTable:
    """A game in which a person takes the opponent's seat; it shows what that seat may know, and nothing else.

    Args:
        env: the game, with two seats, as the model reads it.
        words: the same game as the person reads it.
        out: where to write; answers are read from standard input.
        num_games: games of a trial.
    """

    def __init__(self, env: GameEnvironment, words: GameEnvironment, out: TextIO, num_games: int):
        if len(env.game.players) != 2:
            raise ConfigError("a person can sit at games for two only: watch this one with `--opponent own`.")
        person = HumanOpponent(self._ask, parse=env.parse_action)
        env.seating = Seating((person,), (1.0,), env.seating.seats)
        self._env, self._out, self._num_games = env, out, num_games
        self._seat, self._show_model, self._show_person = 0, env.show, words.show
        env.show = self._show
        self._games, self._is_open = 0, False
        self._earned, self._totals = 0.0, [0.0, 0.0]

    def __getattr__(self, name: str) -> Any:
        """Give what the game has."""
        return getattr(self._env, name)

    def reset(self, *, seed: int) -> tuple[str, dict[str, Any]]:
        """Begin the first game."""
        self._seat = 1 - self._env.seating.of(seed)[1]
        self._open()
        return self._env.reset(seed=seed)

    def restart(self) -> tuple[str, dict[str, Any]]:
        """Begin the next game."""
        self._open()
        return self._env.restart()

    def step(self, action: Any) -> StepResult:
        """Play the model's action, ask the person, and show the end.

        The action itself is told at the end only: in some games the person must not know it before answering.
        """
        result = self._env.step(action)
        self._earned += sum(result.info["rewards"].values()) / self._env.reward_scale
        if result.terminated:
            self._is_open = False
            self._totals[0] += self._earned
            self._totals[1] += result.info["payoff"]
            self._out.write(
                f"{self._env.observe(self._env.players()[self._seat])}\n"
                f"Game {self._games} is over: you get {self._earned:+g}, the model {result.info['payoff']:+g}.\n"
            )
        return result

    def leave(self) -> None:
        """Say what came of all games, and that the record follows."""
        self._tell_unfinished()
        yours, models = self._totals
        self._out.write(
            f"\nThat was all: you got {yours:+g}, the model {models:+g}.\n\nWhat the model read and wrote:\n"
        )

    def _show(self, state: Any, seat: int) -> str:
        """Return a state as who sits there reads it."""
        return (self._show_person if seat == self._seat else self._show_model)(state, seat)

    def _open(self) -> None:
        self._tell_unfinished()
        self._games, self._is_open, self._earned = self._games + 1, True, 0.0
        self._out.write(f"\n== Game {self._games} of {self._num_games} ==\n")

    def _tell_unfinished(self) -> None:
        if self._is_open:
            self._out.write(f"Game {self._games} stays unfinished: the model found no move.\n")
        self._is_open = False

    def _ask(self, page: str) -> str:
        self._out.write(page)
        self._out.flush()
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt  # nobody is there to answer
        return line


def _headline(config: Config, task: int, is_human: bool) -> str:
    left_out = ("opponent", "opponents", "weights") if is_human else ()
    named = {name: value for name, value in config.trial.env_kwargs.items() if name not in left_out}
    keywords = ", ".join(f"{name} {value}" for name, value in named.items())
    return f"{config.trial.env}{f' ({keywords})' if keywords else ''}{' against you' * is_human}, test task {task}"


def _facts(config: Config, sampling: str, is_game: bool) -> list[str]:
    trial = config.trial
    many, noun = trial.num_episodes > 1, "game" if is_game else "attempt"
    count = f"{trial.num_episodes} {noun}s" if many else f"1 {noun}"
    first = "up to " if many and not is_game else ""
    memory = f", memory: {trial.memory}" if many else ""
    return [
        f"model {config.model.model_name_or_path}",
        f"{first}{count} of at most {trial.max_turns} turns{memory}",
        sampling,
    ]


if __name__ == "__main__":
    run_cli(main)
