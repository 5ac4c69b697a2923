"""Small random models of many architectures, and what the sampler and the scorer say of each.

    python tests/policy/zoo.py                      # print the table of docs/models.md
    python tests/policy/zoo.py --write docs/models.md

Every kind of noise that a family's configuration knows is switched on, and the model comes in training mode.
"""

import argparse
import os
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from metarl_agents.config import ModelConfig
from metarl_agents.policy.adapters import add_adapters
from metarl_agents.policy.agreement import sampling_gap
from metarl_agents.policy.mode import recompute_activations
from metarl_agents.policy.padding import right_pad
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import TokenScorer
from metarl_agents.policy.tiny import build_tokenizer

BOUND = 1e-4
"""Nats, in fp32: what rounding explains."""
BRIEF = Sampling(max_new_tokens=4)
NOISE = ("dropout", "pdrop", "layerdrop", "jitter")
BEGIN, END = "<!-- table: make test-zoo -->", "<!-- end of table -->"

LLAMA = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "initializer_range": 0.3,
}  # fmt: skip
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "initializer_range": 0.3}
WINDOW = LLAMA | {"sliding_window": 16}
FOUR = WINDOW | {"num_hidden_layers": 4}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "initializer_range": 0.3}
HYBRID = LLAMA | {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 16,
}  # fmt: skip
DELTA = LLAMA | {
    "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "initializer_range": 0.1,
}  # fmt: skip
LATENT = LLAMA | EXPERTS | {
    "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "kv_lora_rank": 8,
    "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1,
}  # fmt: skip
LATENT.pop("head_dim")
JAMBA = LLAMA | {
    "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2,
    "expert_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1, "mamba_d_state": 8, "mamba_dt_rank": 4,
    "use_mamba_kernels": False,
}  # fmt: skip
FAMILIES = {
    "llama": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "gpt2": GPT2, "gemma2": FOUR | {"query_pre_attn_scalar": 8},
    "mistral": WINDOW, "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3},
    "mixtral": LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "opt": {
        "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32,
        "max_position_embeddings": 256, "init_std": 0.3,
    },
    "mamba2": MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16},
    "gemma": LLAMA, "gemma3_text": FOUR | {"query_pre_attn_scalar": 8, "num_hidden_layers": 6}, "phi": LLAMA,
    "gemma4_text": FOUR | {"num_hidden_layers": 6},
    "phi3": LLAMA, "gpt_neox": LLAMA, "gptj": GPT2 | {"rotary_dim": 4}, "codegen": GPT2 | {"rotary_dim": 4},
    "gpt_bigcode": GPT2, "openai-gpt": GPT2,
    "gpt_neo": {
        "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
        "window_size": 16, "max_position_embeddings": 256, "initializer_range": 0.3,
    },
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 256, "initializer_range": 0.3},
    "qwen2_moe": LLAMA | EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 16},
    "qwen3_moe": LLAMA | EXPERTS | {"num_experts": 4, "decoder_sparse_step": 1},
    "gpt_oss": WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3": LATENT, "llama4_text": FOUR | {
        "num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 48, "attention_chunk_size": 16,
    },
    "olmo2": LLAMA, "olmo3": FOUR, "smollm3": LLAMA | {"num_hidden_layers": 4}, "cohere": LLAMA | {"logit_scale": 1.0},
    "cohere2": FOUR | {"logit_scale": 1.0}, "granite": LLAMA, "stablelm": LLAMA, "starcoder2": WINDOW, "glm4": LLAMA,
    "ministral": WINDOW, "exaone4": FOUR | {"sliding_window_pattern": 4}, "ernie4_5": LLAMA, "seed_oss": LLAMA,
    "hunyuan_v1_dense": LLAMA, "nanochat": LLAMA, "helium": LLAMA, "persimmon": LLAMA,
    "biogpt": LLAMA,
    "mamba": MAMBA, "falcon_mamba": MAMBA, "falcon_h1": HYBRID | {"mamba_d_ssm": 32, "mamba_n_heads": 4},
    "bamba": HYBRID | {"attn_layer_indices": [1]}, "jamba": JAMBA,
    "granitemoehybrid": HYBRID | {
        "layer_types": ["mamba", "attention"], "num_local_experts": 2, "num_experts_per_tok": 1,
        "shared_intermediate_size": 16,
    },
    "qwen3_next": DELTA | EXPERTS | {
        "num_experts": 2, "num_experts_per_tok": 1, "shared_expert_intermediate_size": 16,
    },
    "qwen3_5_text": DELTA, "lfm2": LLAMA | {"num_hidden_layers": 4, "full_attn_idxs": [1, 3]}, "olmo_hybrid": LLAMA,
    "minimax": LLAMA | {"num_local_experts": 2, "num_experts_per_tok": 1, "block_size": 16},
    "rwkv": {"hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32, "context_length": 256},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "initializer_range": 0.3},
}  # fmt: skip
DISAGREE = {
    "rwkv": "no: what it samples for several rows at once is not what it scores",
    "xlnet": "no: it is not causal; every token's state depends on later ones",
}
"""Families of which no batch may be sampled, and why."""


class Measured(NamedTuple):
    """What one family gave; gaps in nats between sampled and scored log-probabilities, at most."""

    family: str
    unpadded: float
    padded: float
    adapted: float
    kept: float
    """Bytes that autograd keeps with checkpointing, divided by those without."""
    gradient: float
    """Largest relative difference of a gradient with checkpointing from the one without."""

    @property
    def works(self) -> bool:
        """Whether sampler and scorer agree everywhere."""
        return max(self.unpadded, self.padded, self.adapted) < BOUND and self.gradient < BOUND


@cache
def tokenizer():
    """The built-in tokenizer."""
    return build_tokenizer()


def noisy_model(family: str):
    """Return a random model of a family in training mode, all noise that its configuration knows switched on."""
    from transformers import AutoConfig, AutoModelForCausalLM

    own = tokenizer()
    ends = {"pad_token_id": own.pad_token_id, "eos_token_id": own.eos_token_id, "bos_token_id": None}
    config = AutoConfig.for_model(family, vocab_size=len(own), **ends, **FAMILIES[family])
    for name, value in config.to_dict().items():
        if any(word in name for word in NOISE) and isinstance(value, int | float) and not isinstance(value, bool):
            setattr(config, name, 0.2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).train()


def rows(*lengths: int) -> list[tuple[int, ...]]:
    """Return prompts of these lengths."""
    draws = torch.Generator().manual_seed(1)
    return [tuple(torch.randint(300, 600, (length,), generator=draws).tolist()) for length in lengths]


def backward(policy: Policy) -> tuple[float, dict[str, torch.Tensor]]:
    """Return (bytes that autograd keeps, gradients) of a few scored rows."""
    storages: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    weights = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    batch = right_pad(rows(30, 17), rows(8, 5), policy.pad_id)
    policy.model.zero_grad(set_to_none=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = TokenScorer(policy.model)(*batch)
    kept = sum(size for place, size in storages.items() if place not in weights)
    scores.logprobs.sum().backward()
    return kept, {n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None}


def measure(family: str) -> Measured:
    """Sample and score a family: rows of one length and of several, with adapters, with recomputed activations."""
    policy = Policy(noisy_model(family), tokenizer())
    unpadded = sampling_gap(policy, rows(24, 24), BRIEF)
    padded = sampling_gap(policy, rows(29, 7, 1, 18), BRIEF)
    whole, expected = backward(policy)
    recompute_activations(policy.model)
    kept, found = backward(policy)
    assert expected.keys() == found.keys()
    largest = max(float(grad.abs().max()) for grad in expected.values())
    gradient = max(float((found[name] - grad).abs().max()) for name, grad in expected.items()) / largest
    add_adapters(policy, ModelConfig(use_peft=True, lora_r=2))
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    adapted = sampling_gap(policy, rows(29, 7, 1, 18), BRIEF)
    return Measured(family, unpadded, padded, adapted, kept / whole, gradient)


HEAD = (
    "| family | gap | left-padded | with LoRA | memory kept with checkpointing | verdict |\n|---|---|---|---|---|---|"
)


def line(one: Measured) -> str:
    """Return a row of the table."""
    verdict = "works" if one.works else DISAGREE[one.family]
    gaps = " | ".join(f"{gap:.0e}" for gap in (one.unpadded, one.padded, one.adapted))
    return f"| {one.family} | {gaps} | {one.kept:.0%} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="a document whose table is replaced")
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(HEAD, flush=True)
    lines = []
    for family in chosen.families:
        lines.append(line(measure(family)))
        print(lines[-1], flush=True)
    if chosen.write:
        text = chosen.write.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        table = "\n".join([HEAD, *lines])
        chosen.write.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
