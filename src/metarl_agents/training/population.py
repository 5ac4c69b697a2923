"""Whom the agent trains against: a pool of opponents with weights, dealt to groups, and how it fares against each.

What lives here: members, the rule by which they are met, results, ratings, and what a checkpoint keeps of all that.
What does not: taking and loading snapshots (`snapshots.py`), and how a model plays (`rollout/opponents.py`).

A group meets one opponent in one seat ("stationary grouping" of MAGE, arXiv 2603.03680), so that its trials differ by
nothing but the agent's play. Read first: `Population.deal`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from metarl_agents.config import PopulationConfig
from metarl_agents.envs.base import MakeEnv
from metarl_agents.envs.games import GameEnvironment, Opponent
from metarl_agents.errors import CheckpointError, ConfigError
from metarl_agents.evaluation.ratings import Rating, Record, elo_ratings
from metarl_agents.rollout.opponent_lists import MODEL, SELF, Listed, read_listed
from metarl_agents.rollout.opponents import OpponentFailure, SeatedEnvironments
from metarl_agents.rollout.tasks import mix
from metarl_agents.training.credit import drop_crashed_groups
from metarl_agents.types import Episode, Outcome, Trial

AGENT = "agent"
_RESERVED = re.compile(rf"{AGENT}( \d+)?|snapshot-\d+")
"""Names that a run gives itself: the agent in ratings, and its snapshots."""
_STREAM = 0x9091
"""Part of the seed of every deal: a stream of its own."""
_MEMORY = 0.9
"""What of the agent's failures against a member is remembered one step later."""
_PERIOD = 50
"""Steps for which the agent counts as one player in ratings, where no snapshot sets the pace."""
_RESAMPLES = 200


@dataclass
class Member:
    """One opponent of the pool."""

    name: str
    """Unlike all others': results, ratings and metrics go by it."""
    weight: float
    source: str | None = None
    """A model's hub name or folder; None for opponents of the environment and for snapshots."""
    joined: int | None = None
    """The step whose weights a snapshot holds; None for others."""
    failures: float = 0.0
    """Trials against it that the agent did not win, draws half, recent ones counting more."""
    trials: float = 0.0
    """All trials against it, weighed alike."""

    @property
    def failure_rate(self) -> float:
        """How often the agent fails against it: 1/2 before anything is known."""
        return (self.failures + 1) / (self.trials + 2)


class Population:
    """The pool. All processes hold the same one, since they deal from it and add up their results.

    Args:
        config: rule, grouping and limits.
        env: one of the environments, for its players, its own opponents and the agent's possible seats.
        seed: the run's.
        group_size: trials of a group.
        seat_model: builds the opponent of a member that is a model.

    Raises:
        ConfigError: `opponents` names somebody unknown, or one twice, or nobody is left to play against.
    """

    def __init__(
        self,
        config: PopulationConfig,
        env: GameEnvironment,
        *,
        seed: int,
        group_size: int,
        seat_model: Callable[[Member], Opponent],
    ) -> None:
        self.config, self.period = config, config.snapshot_every or _PERIOD
        self._own = {opponent.name: opponent for opponent in env.seating.opponents}
        self._seats, self._players = env.seating.seats, env.game.players
        self._seed, self._group_size, self._seat_model = seed, group_size, seat_model
        shares = dict(zip(self._own, env.seating.shares, strict=True))
        self.members, self.snapshot_weight = _first_members(config.opponents, shares)
        self.starts_with_self = self.snapshot_weight is not None
        self._models: dict[str, Opponent] = {}
        self._results: dict[tuple[int, str, int], list[int]] = {}
        self._seated: SeatedEnvironments | None = None

    # ---- who is met ----------------------------------------------------------------------------------------------

    def probabilities(self) -> list[float]:
        """Return how often each member is met now, adding up to 1."""
        rule = self.config.population_rule
        scores = [1.0 if rule == "uniform" else member.weight for member in self.members]
        if rule == "prioritised":
            scores = [score * member.failure_rate for score, member in zip(scores, self.members, strict=True)]
        return [score / sum(scores) for score in scores]

    def deal(self, step: int, groups: int) -> list[list[tuple[str, int]]]:
        """Return (opponent's name, the agent's seat) of each trial of each group: a function of (run seed, step, pool).

        Opponents get their shares of the groups, up to one, by one random offset; seats alternate among the groups of
        an opponent and so are taken equally often, up to one. With `opponent_grouping: mixed` each trial of a group has
        an opponent of its own; the seat is the group's all the same, so no baseline ever mixes seats.
        """
        rng = Random(mix(self._seed, _STREAM, step))
        offset = rng.randrange(len(self._seats))
        drawn = self._spread(groups, rng)
        seated = [(name, self._seats[(offset + place) % len(self._seats)]) for place, name in enumerate(drawn)]
        rng.shuffle(seated)
        if self.config.opponent_grouping == "stationary":
            return [[pair] * self._group_size for pair in seated]
        return [[(name, seat) for name in self._spread(self._group_size, rng)] for _, seat in seated]

    def seat(
        self, make_env: MakeEnv, step: int, groups: int, rank: int, world: int, timeout_s: float | None
    ) -> MakeEnv:
        """Return what builds the environments of this process's trials of a step, in their order.

        Args:
            make_env: builds one environment.
            step: training steps finished.
            groups: tasks of the step, over all processes.
            rank: which process this is.
            world: how many there are.
            timeout_s: seconds one environment call may take.
        """
        own = [pair for group in self.deal(step, groups)[rank::world] for pair in group]
        self._seated = SeatedEnvironments(make_env, [(self.opponent(name), seat) for name, seat in own], timeout_s)
        return self._seated

    def _spread(self, count: int, rng: Random) -> list[str]:
        """Draw `count` names, each member's share of them up to one, in the members' order."""
        point, shares = rng.random() / count, self.probabilities()
        drawn, reached = [], 0.0
        for member, share in zip(self.members, shares, strict=True):
            reached += share
            while len(drawn) < count and point + len(drawn) / count < reached:
                drawn.append(member.name)
        return drawn + [self.members[-1].name] * (count - len(drawn))  # the shares' sum may be a hair below 1

    def opponent(self, name: str) -> Opponent:
        """Return the player of that name."""
        if name in self._own:
            return self._own[name]
        if name not in self._models:
            self._models[name] = self._seat_model(next(member for member in self.members if member.name == name))
        return self._models[name]

    # ---- who joins and leaves ------------------------------------------------------------------------------------

    def join(self, step: int) -> Member:
        """Let the snapshot of a step join; beyond `snapshot_limit` the oldest leaves."""
        name = snapshot_name(step)
        self.members = [member for member in self.members if member.name != name]
        self.members.append(Member(name, self.snapshot_weight or 1.0, joined=step))
        snapshots = [member for member in self.members if member.joined is not None]
        leaving = {member.name for member in snapshots[: -self.config.snapshot_limit]}
        self.members = [member for member in self.members if member.name not in leaving]
        for gone in leaving | {name}:
            self._models.pop(gone, None)
        return self.members[-1]

    # ---- how it goes ---------------------------------------------------------------------------------------------

    def record(
        self, trials: Sequence[Trial], step: int, sum_over_ranks: Callable[[Tensor], Tensor]
    ) -> dict[str, float]:
        """Note how trials ended, add up over processes, and return metrics.

        Ratings and win rates look at first episodes, which neither side begins with a memory of the other; the
        prioritised rule looks at whole trials. An unfinished play counts as lost; groups that crashed do not count.

        Args:
            trials: this process's.
            step: training steps finished, theirs included.
            sum_over_ranks: adds a tensor over all processes.
        """
        places = {member.name: place for place, member in enumerate(self.members)}
        counts = torch.zeros(len(places), len(self._players), 6, dtype=torch.float64)
        for trial in drop_crashed_groups(trials):
            row = counts[places[str(trial.opponent)], trial.seat]
            row[_result(trial.episodes[:1])] += 1
            row[3 + _result(trial.episodes)] += 1
        failed = sum((trial.error or "").startswith(OpponentFailure.__name__) for trial in trials)
        beside = torch.tensor([failed, len(trials)], dtype=torch.float64)
        total = sum_over_ranks(torch.cat([counts.flatten(), beside]))
        counts = total[:-2].reshape(counts.shape)
        for member, rows in zip(self.members, counts.tolist(), strict=True):
            self._note(member, rows, (step - 1) // self.period)
        return self._metrics(counts, *total[-2:].tolist())

    def _note(self, member: Member, rows: list[list[float]], period: int) -> None:
        won, drawn, lost = (sum(row[3 + place] for row in rows) for place in range(3))
        member.failures = _MEMORY * member.failures + drawn / 2 + lost
        member.trials = _MEMORY * member.trials + won + drawn + lost
        for seat, row in enumerate(rows):
            if any(row[:3]):
                before = self._results.setdefault((period, member.name, seat), [0, 0, 0])
                before[:] = [old + round(new) for old, new in zip(before, row[:3], strict=True)]

    def _metrics(self, counts: Tensor, failed: float, trials: float) -> dict[str, float]:
        metrics = {"population/size": float(len(self.members)), "population/failure_rate": failed / max(trials, 1.0)}
        for member, rows, share in zip(self.members, counts, self.probabilities(), strict=True):
            metrics[f"population/share/{member.name}"] = share
            metrics |= _win_rate(f"population/win_rate/{member.name}", rows.sum(dim=0))
        for player, rows in zip(self._players, counts.transpose(0, 1), strict=True):
            metrics |= _win_rate(f"population/seat_win_rate/{player}", rows.sum(dim=0))
        desk = self._seated.desk if self._seated is not None else None
        if desk is not None and desk.batches:
            metrics |= {"time/opponents": desk.seconds, "population/batch_size": desk.answers / desk.batches}
        return metrics

    def ratings(self) -> list[Rating]:
        """Return Elo ratings of the members that were met, and of the agent as it is now, strongest first.

        The agent of each stretch between two snapshots is a player of its own, which links members that joined at
        different times. A group's first episodes count as one game, because they share deal and opponent.
        """
        latest = max((period for period, _, _ in self._results), default=0)
        size = self._group_size
        records = [
            Record(AGENT if period == latest else f"{AGENT} {period}", name, *(count / size for count in counts))
            for (period, name, _), counts in sorted(self._results.items())
        ]
        shown = {AGENT, *(member.name for member in self.members)}
        return [rating for rating in elo_ratings(records, resamples=_RESAMPLES) if rating.name in shown]

    # ---- what a checkpoint keeps ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that decides later deals and ratings, as plain values."""
        return {
            "members": [asdict(member) for member in self.members],
            "results": [[*key, *counts] for key, counts in sorted(self._results.items())],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put the pool back to where a checkpoint left it.

        Raises:
            CheckpointError: it holds an opponent that the environment does not have.
        """
        members = [Member(**values) for values in state["members"]]
        for member in members:
            if member.source is None and member.joined is None and member.name not in self._own:
                raise CheckpointError(
                    f'the checkpoint\'s population holds the opponent "{member.name}", but the environment has '
                    f"{', '.join(self._own)}: resume with the `--env_kwargs` of its run."
                )
        self.members, self._models = members, {}
        self._results = {(period, name, seat): counts for period, name, seat, *counts in state["results"]}


def snapshot_name(step: int) -> str:
    """Return what the snapshot of a step is called."""
    return f"snapshot-{step}"


def _first_members(listed: list[str] | None, shares: dict[str, float]) -> tuple[list[Member], float | None]:
    """Return the pool before any snapshot, and the weight of snapshots where `self` gives one.

    Args:
        listed: the setting `opponents`; None takes the environment's own, at their weights (1 on average).
        shares: {name: share} of the environment's own.
    """
    if listed is None:
        return [_scripted(name, share * len(shares), shares) for name, share in shares.items()], None
    entries = [read_listed(entry) for entry in listed]
    names = iter(_model_names([entry for entry in entries if entry.source is not None], shares))
    members, own_weight = [], None
    for name, weight, source in entries:
        if name == SELF and source is None:
            own_weight = weight
        elif source is not None:
            members.append(Member(next(names), weight, source=source))
        else:
            members.append(_scripted(name, weight, shares))
    if len({member.name for member in members}) < len(members) or (own_weight is None and not members):
        raise ConfigError(f"`opponents` is {listed}, but must name at least one opponent, and none twice.")
    return members, own_weight


def _scripted(name: str, weight: float, shares: dict[str, float]) -> Member:
    """Return a member that the environment seats, under the name that it has there."""
    if name not in shares:
        raise ConfigError(
            f'`opponents` names "{name}", but the environment has {", ".join(shares)}: name one of these, '
            f"`{MODEL}<folder or hub name>` or `{SELF}`."
        )
    if _RESERVED.fullmatch(name):
        raise ConfigError(
            f'an opponent of the environment is called "{name}", as a run calls its own agent or a snapshot of it: '
            "give it another name."
        )
    return Member(name, weight)


def _model_names(models: Sequence[Listed], taken: Collection[str]) -> list[str]:
    """Return a name for each model: the last part of its address; where somebody else may be called so, all of it."""
    alike = Counter(model.name for model in models)
    return [
        f"{MODEL}{source}" if alike[name] > 1 or name in taken or _RESERVED.fullmatch(name) else name
        for name, _, source in models
    ]


def _result(episodes: Sequence[Episode]) -> int:
    """Return 0 for won, 1 for drawn, 2 for anything else; the best of several episodes."""
    outcomes = {episode.outcome for episode in episodes}
    return 0 if Outcome.SUCCESS in outcomes else 1 if Outcome.DRAW in outcomes else 2


def _win_rate(name: str, row: Tensor) -> dict[str, float]:
    """Return the share of first episodes won, or nothing where there were none."""
    games = float(row[:3].sum())
    return {name: float(row[0]) / games} if games else {}
