"""`python -m metarl_agents.doctor`: what it prints of a sound model and of broken ones, and how it exits."""

import subprocess
import sys

import pytest
import torch

from metarl_agents import doctor
from metarl_agents.errors import ConfigError
from metarl_agents.policy.footprint import activations_per_token, checkpointed_per_token, training_state
from metarl_agents.policy.tiny import build_tokenizer


def report(capsys, *argv):
    """(exit status, what was printed, line breaks between words gone)."""
    status = doctor.main([str(word) for word in argv])
    return status, " ".join(capsys.readouterr().out.split())


@pytest.fixture
def folder(tmp_path, make_policy):
    make_policy("llama").save(tmp_path / "model")
    return tmp_path / "model"


def test_a_sound_model_passes_with_an_environment(capsys, folder):
    status, text = report(
        capsys, folder, "--env", "two_doors", "--max_new_tokens_per_turn", 4, "--max_tokens_per_micro_batch", 1000
    )
    assert status == 0 and "All checks passed." in text and "FAIL" not in text
    for part in ("ok the model loads LlamaForCausalLM: ", "context 512 tokens", "an answer ends with '<|end|>'",
                 "ok weights are finite", "ok every token has an embedding 641 tokens, 641 embedding rows",
                 "ok the model is causal", "ok sampler and scorer agree", "ok the first prompt fits", "are allowed",
                 "ok an answer is played", f"torch {torch.__version__}", "micro-batches of 1,000 tokens",
                 "--use_peft --gradient_checkpointing"):  # fmt: skip
        assert part in text, part


def test_a_prompt_that_does_not_fit_is_a_failure(capsys, folder):
    status, text = report(
        capsys, folder, "--env", "two_doors", "--max_prompt_tokens", 5, "--max_new_tokens_per_turn", 8
    )
    assert status == 1 and "1 check failed." in text
    assert "FAIL the first prompt fits" in text and "allow 5: raise `--max_prompt_tokens`" in text


def test_an_environment_that_nobody_knows_is_a_failure(capsys, folder):
    status, text = report(capsys, folder, "--env", "three_doors")
    assert status == 1 and "FAIL the model loads" in text and "two_doors" in text


def test_broken_models_fail_with_their_sentence(capsys, tmp_path, make_model):
    tokenizer = build_tokenizer()
    rows = len(tokenizer)
    broken = make_model("qwen3", vocabulary=rows)
    with torch.no_grad():
        broken.lm_head.weight[0, 0] = float("nan")
    tokenizer.save_pretrained(tmp_path / "nan")
    broken.save_pretrained(tmp_path / "nan")
    status, text = report(capsys, tmp_path / "nan")
    assert status == 1 and "FAIL weights are finite" in text and "- every token has an embedding not tried" in text
    make_model("bert").save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    status, text = report(capsys, tmp_path / "bert")
    assert status == 1 and "FAIL the model is causal" in text and "ok every token has an embedding" in text
    tokenizer.add_tokens(["northward"])
    make_model("gpt2", vocabulary=rows).save_pretrained(tmp_path / "token")
    tokenizer.save_pretrained(tmp_path / "token")
    status, text = report(capsys, tmp_path / "token")
    assert status == 1 and "FAIL every token has an embedding the token 'northward' of the tokenizer" in text
    status, text = report(capsys, tmp_path / "nowhere")
    assert status == 1 and "FAIL the model loads there is no model folder" in text


def test_an_adapter_target_that_the_model_lacks_is_a_failure(capsys, folder):
    status, text = report(capsys, folder, "--lora_target_modules", "q_prog")
    assert status == 1 and "FAIL LoRA adapters fit" in text and "q_prog" in text


def test_memory_is_counted_and_measured(make_policy):
    policy = make_policy("llama", num_hidden_layers=4, hidden_size=64, intermediate_size=96)
    assert training_state(policy.model) == 16 * sum(p.numel() for p in policy.model.parameters())
    per_token = activations_per_token(policy)
    # A layer keeps at least the inputs of its norms, of its matrices and of what lies between up and down.
    assert 4 * 4 * (4 * 64 + 3 * 96) < per_token < 4 * 4 * (30 * 64 + 10 * 96)
    assert 4 * 4 * 64 < checkpointed_per_token(policy, per_token) < 0.5 * per_token
    policy.model.requires_grad_(False)
    assert training_state(policy.model) == 4 * sum(p.numel() for p in policy.model.parameters())


def test_a_model_must_be_named_and_help_is_quick():
    with pytest.raises(ConfigError, match="MODEL"):
        doctor.main([])
    code = "import sys\nfrom metarl_agents import doctor\ntry: doctor.main(['--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "MODEL" in done.stdout and "--env ENV" in done.stdout
