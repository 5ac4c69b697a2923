"""The unit test of meta-RL: a world that can be learned with memory and in no other way."""

from pathlib import Path

import pytest
import yaml

from metarl_agents import train

PRESET = Path(__file__).parents[2] / "recipes" / "configs" / "two_doors" / "tiny.yaml"


def second_episodes(folder, memory):
    """Solved share of the second episodes that were reached, before and after the recipe's own training."""
    settings = yaml.safe_load(PRESET.read_text(encoding="utf-8"))
    settings |= {"memory": memory, "eval_steps": 0, "save_trajectories_steps": 0, "report_to": ["none"]}
    result = train(**settings, output_dir=str(folder))
    counts = [evaluation.episode_counts[1] for evaluation in (result.before, result.after)]
    assert min(reached for reached, _ in counts) >= 90
    return [solved / reached for reached, solved in counts]


@pytest.mark.slow
def test_two_doors_is_learned_with_memory(tmp_path):
    before, after = second_episodes(tmp_path / "run", "reflection")
    assert before < 0.65
    assert after > 0.9


@pytest.mark.slow
def test_two_doors_is_not_learned_without_memory(tmp_path):
    before, after = second_episodes(tmp_path / "run", "none")
    assert before < 0.65
    assert after < 0.65
