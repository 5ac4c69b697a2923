"""The exam: a policy on fixed tasks, and what the outcomes can and cannot say. Nothing is trained here.

Read first: `metrics.py` (the two kinds of pass@k, intervals, paired comparison), then `results.py` (what an
evaluation leaves behind, and the table of several).
"""

from metarl_agents.evaluation.diversity import (
    Diversity,
    entropy_interval,
    trajectory_diversity,
    trajectory_entropies,
)
from metarl_agents.evaluation.metrics import (
    PairedDifference,
    SeedSpread,
    holm_adjusted,
    independent_pass_at_k,
    independent_pass_interval,
    independent_per_task,
    paired_bootstrap,
    pooled,
    seed_spread,
    sequential_pass_at_k,
    wilson_interval,
)
from metarl_agents.evaluation.results import EvaluationResult, format_table

__all__ = [
    "Diversity",
    "EvaluationResult",
    "PairedDifference",
    "SeedSpread",
    "entropy_interval",
    "format_table",
    "holm_adjusted",
    "independent_pass_at_k",
    "independent_pass_interval",
    "independent_per_task",
    "paired_bootstrap",
    "pooled",
    "seed_spread",
    "sequential_pass_at_k",
    "trajectory_diversity",
    "trajectory_entropies",
    "wilson_interval",
]
