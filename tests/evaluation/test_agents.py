"""Where a row of a table says that it means nothing."""

from metarl_agents.evaluation.agents import AGENTS, agent_label
from metarl_agents.policy.loading import shipped_folder

NOTE = " (not meaningful for the tiny model)"


def test_untrained_requests_mean_nothing_to_the_built_in_model_wherever_it_lies(tmp_path):
    (tmp_path / "config.yaml").write_text("model_name_or_path: tiny\nenv: minesweeper\n", encoding="utf-8")
    for model in ("tiny", str(tmp_path), str(shipped_folder("minesweeper_4x4"))):
        for name, spec in AGENTS.items():
            assert agent_label(name, model) == name + (NOTE if spec.play_request else "")
            assert agent_label(name, model, "mine") == "mine" + (NOTE if spec.play_request else "")


def test_they_mean_something_to_other_models(tmp_path):
    (tmp_path / "config.yaml").write_text("model_name_or_path: Qwen/Qwen3-4B\nenv: minesweeper\n", encoding="utf-8")
    for model in ("Qwen/Qwen3-4B", str(tmp_path), str(tmp_path / "not_there")):
        assert all(agent_label(name, model) == name for name in AGENTS)
