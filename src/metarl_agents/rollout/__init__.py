"""The field: playing trials. Read first: `runner.py`, then `collect.py`."""

from metarl_agents.rollout.collect import Speaker, collect_trials
from metarl_agents.rollout.runner import TrialRunner
from metarl_agents.rollout.speaker import PolicySpeaker
from metarl_agents.rollout.tasks import TaskStream, evaluation_seeds

__all__ = ["PolicySpeaker", "Speaker", "TaskStream", "TrialRunner", "collect_trials", "evaluation_seeds"]
