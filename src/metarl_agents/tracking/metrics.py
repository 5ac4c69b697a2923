"""Trials become metrics: `summarize` and `group_statistics` give sums and counts, `finish` divides.

Why pairs: every process sums up its own trials, the pairs of all processes are combined, and only then is there
a division, so that the result does not depend on how trials were dealt out. All processes get the same keys in the
same order, whatever they played. Crashed trials enter `env/failure_rate` and nothing else. What does not live here:
intervals, tests and independent pass@k (`evaluation/metrics.py`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from metarl_agents.types import Episode, Outcome, Trial, Turn

Sums = dict[str, tuple[float, float]]
"""Metric name to (sum, count)."""

MAX_METRICS = frozenset({"completions/max_length", "prompt/max_length"})
"""Metrics whose first entry is a maximum: combined by `max`, never divided."""

TOTAL_METRICS = frozenset({"num_tokens", "num_episodes", "num_rows", "advantages/lone_trials"})
"""Metrics that are totals: combined by adding, never divided."""

_SAME_REWARD = 1e-6


def summarize(trials: Sequence[Trial], *, num_episodes: int, seats: int | None = None) -> Sums:
    """Sum up trials.

    | name | mean over | of |
    |---|---|---|
    | `pass@{k}`, k = 1..N | trials | solved within the first k episodes (sequential) |
    | `episode_{n}/success`, n = 0..N-1 | trials that reached episode n | solved in episode n |
    | `reward` | episodes | undiscounted sum of the episode's rewards |
    | `turns/mean` | episodes | play turns |
    | `valid_action_ratio` | play turns | readable and not refused by the game |
    | `completions/mean_length`, `max_length`, `clipped_ratio` | turns | response tokens; cut by the length limit |
    | `prompt/shortened_ratio` | turns | history was dropped so that the prompt fits |
    | `prompt/too_long_ratio` | episodes | ended because a prompt does not fit, even without history |
    | `prompt/max_length` | (maximum) | tokens of the longest prompt, those included that do not fit |
    | `reflection/length`, `empty_ratio` | reflections | response tokens; no usable remark |
    | `reflection/too_long_ratio` | reflections and what is left out | left out because the prompt does not fit |
    | `seat_{k}/success`, `seat_{k}/reward`, k = 0.. | first episodes of games with the agent in seat k | won; reward |
    | `env/failure_rate` | all trials | crashed |
    | `num_tokens`, `num_episodes` | (totals) | prompt and response tokens; episodes played |

    Args:
        trials: any number of trials, none included.
        num_episodes: N, the largest number of episodes of a trial.
        seats: of the game, the largest number over all processes; default: `count_seats` of these trials.

    Returns:
        (sum, count) for each name, with count 0 where there was nothing to look at.
    """
    whole = [trial for trial in trials if not trial.crashed]
    episodes = [episode for trial in whole for episode in trial.episodes]
    turns = [turn for trial in whole for _, _, turn in trial.rows()]
    return {
        **_success(whole, num_episodes),
        **_play(episodes),
        **_text(turns),
        **_reflections([episode.reflection for episode in episodes if episode.reflection is not None]),
        **_limits(episodes, turns),
        **_seats(whole, count_seats(trials) if seats is None else seats),
        "env/failure_rate": _mean(trial.crashed for trial in trials),
    }


def count_seats(trials: Sequence[Trial]) -> int:
    """Return how many seats the agent may have had, as far as these trials show; 0 outside games."""
    return max((trial.seat + 1 for trial in trials if trial.opponent is not None), default=0)


def group_statistics(trials: Sequence[Trial]) -> Sums:
    """Sum up how far the trials of a group differ: without a difference there is nothing to learn from.

    The reward of a trial is the sum over its episodes. `reward_std` is the mean over groups of its (unbiased)
    standard deviation, `frac_reward_zero_std` the share of groups where it is 0. Groups of fewer than two trials
    have nothing to compare and count in neither.
    """
    rewards: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        if not trial.crashed:
            rewards[trial.group].append(sum(episode.reward for episode in trial.episodes))
    deviations = [statistics.stdev(group) for group in rewards.values() if len(group) > 1]
    return {
        "reward_std": _mean(deviations),
        "frac_reward_zero_std": _mean(deviation < _SAME_REWARD for deviation in deviations),
    }


def combine(parts: Iterable[Sums]) -> Sums:
    """Combine the pairs of several processes or batches: add, or take the maximum for `MAX_METRICS`.

    >>> combine([{"reward": (1.0, 2.0)}, {"reward": (3.0, 1.0)}])
    {'reward': (4.0, 3.0)}
    """
    combined: Sums = {}
    for part in parts:
        for name, (value, count) in part.items():
            old_value, old_count = combined.get(name, (0.0, 0.0))
            value = max(old_value, value) if name in MAX_METRICS else old_value + value
            combined[name] = (value, old_count + count)
    return combined


def finish(sums: Sums) -> dict[str, float]:
    """Divide sums by counts; a metric that saw nothing (count 0) is left out.

    >>> finish({"pass@1": (1.0, 4.0), "completions/max_length": (9.0, 4.0), "reflection/length": (0.0, 0.0)})
    {'pass@1': 0.25, 'completions/max_length': 9.0}
    """
    undivided = MAX_METRICS | TOTAL_METRICS
    return {name: value if name in undivided else value / count for name, (value, count) in sums.items() if count}


def _success(trials: Sequence[Trial], num_episodes: int) -> Sums:
    """Success within the first k episodes, and in each episode among the trials that reached it."""
    sums = {f"pass@{k}": _mean(trial.pass_at(k) for trial in trials) for k in range(1, num_episodes + 1)}
    for n in range(num_episodes):
        sums[f"episode_{n}/success"] = _mean(t.episodes[n].success for t in trials if len(t.episodes) > n)
    return sums


def _seats(trials: Sequence[Trial], seats: int) -> Sums:
    """How first episodes of games go, which neither side begins with a memory of the other, by the agent's seat."""
    sums: Sums = {}
    for seat in range(seats):
        firsts = [t.episodes[0] for t in trials if t.opponent is not None and t.seat == seat and t.episodes]
        sums[f"seat_{seat}/success"] = _mean(episode.success for episode in firsts)
        sums[f"seat_{seat}/reward"] = _mean(episode.reward for episode in firsts)
    return sums


def _play(episodes: Sequence[Episode]) -> Sums:
    """What happened in the environment."""
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "reward": _mean(episode.reward for episode in episodes),
        "turns/mean": _mean(len(episode.turns) for episode in episodes),
        "valid_action_ratio": _mean(turn.action is not None and not turn.invalid for turn in turns),
        "num_episodes": (float(len(episodes)), 1.0),
    }


def _text(turns: Sequence[Turn]) -> Sums:
    """What was read and written, reflections included."""
    lengths = [len(turn.response.ids) for turn in turns]
    return {
        "completions/mean_length": _mean(lengths),
        "completions/max_length": (float(max(lengths, default=0)), float(len(lengths))),
        "completions/clipped_ratio": _mean(turn.response.truncated for turn in turns),
        "prompt/shortened_ratio": _mean(turn.prompt_shortened for turn in turns),
        "num_tokens": (float(sum(lengths) + sum(len(turn.prompt_ids) for turn in turns)), 1.0),
    }


def _reflections(reflections: Sequence[Turn]) -> Sums:
    """How much is written between episodes, and how often nothing usable."""
    return {
        "reflection/length": _mean(len(turn.response.ids) for turn in reflections),
        "reflection/empty_ratio": _mean(not str(turn.action or "").strip() for turn in reflections),
    }


def _limits(episodes: Sequence[Episode], turns: Sequence[Turn]) -> Sums:
    """How long prompts are, and what was lost because one exceeds the limit."""
    lost = [length for e in episodes for length in (e.too_long_prompt, e.too_long_reflection) if length]
    lengths = [len(turn.prompt_ids) for turn in turns] + lost
    due = [episode for episode in episodes if episode.reflection is not None or episode.too_long_reflection]
    return {
        "prompt/too_long_ratio": _mean(episode.outcome is Outcome.OUT_OF_CONTEXT for episode in episodes),
        "prompt/max_length": (float(max(lengths, default=0)), float(len(lengths))),
        "reflection/too_long_ratio": _mean(episode.too_long_reflection > 0 for episode in due),
    }


def _mean(values: Iterable[float]) -> tuple[float, float]:
    """Return the sum and the count, the two halves of a mean."""
    values = list(values)
    return float(sum(values)), float(len(values))
