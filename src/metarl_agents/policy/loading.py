"""From a name to a policy: hub name, local folder, GGUF file, or the built-in tiny model.

What lives here: everything that is checked or built before the first prompt. What does not: making the tiny
model's skill (`training/warm_start.py`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.quiet import quiet_progress
from metarl_agents.policy.scoring import disable_dropout
from metarl_agents.policy.tiny import build_model, build_tokenizer

TINY = "tiny"
_SHIPPED = Path(__file__).parent / "tiny_models"


def shipped_tiny_models() -> list[str]:
    """Return the names of the warm-started tiny models that come with the package."""
    return sorted(path.parent.name for path in _SHIPPED.glob("*/config.json"))


def shipped_folder(name: str) -> Path | None:
    """Return the folder of a shipped tiny model, or None where there is no such model."""
    return _SHIPPED / name if name in shipped_tiny_models() else None


def check_model_name(config: ModelConfig) -> None:
    """Refuse a model that cannot exist, before anything heavy is imported.

    Raises:
        ConfigError: a local path without a model in it.
    """
    name = config.model_name_or_path
    path = Path(name).expanduser()
    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1 or os.sep in name and path.exists()
    if path.is_dir():
        wanted = [config.gguf_file] if config.gguf_file else ["config.json", "adapter_config.json"]
        if not any((path / file).is_file() for file in wanted):
            raise ConfigError(f"the folder {name} holds no {' or '.join(wanted)}: give the folder of a saved model.")
    elif looks_local:
        raise ConfigError(f"there is no model folder {name}: check `--model_name_or_path`.")


def load_policy(config: ModelConfig, *, tiny_name: str | None = None) -> Policy:
    """Load model and tokenizer.

    Args:
        config: which model, in which dtype, with or without adapters.
        tiny_name: the shipped tiny model that fits the environment; used for the model name `tiny`. Where none
            fits, `tiny` is an untrained model that wants a warm start (`needs_warm_start`).

    Raises:
        ConfigError: the model cannot be found or read, or has no chat template.
    """
    check_model_name(config)
    if config.model_name_or_path == TINY:
        folder = shipped_folder(tiny_name) if tiny_name else None
        if folder is None:
            tokenizer = build_tokenizer()
            return Policy(build_model(tokenizer), tokenizer)
        model, tokenizer = _from_pretrained(str(folder), config)
    else:
        model, tokenizer = _from_pretrained(config.model_name_or_path, config)
    disable_dropout(model)
    model.eval()
    return Policy(model, tokenizer, enable_thinking=config.enable_thinking)


def needs_warm_start(config: ModelConfig, tiny_name: str | None) -> bool:
    """Whether `load_policy` gives a model that knows nothing yet."""
    return config.model_name_or_path == TINY and (tiny_name is None or shipped_folder(tiny_name) is None)


def enable_gradient_checkpointing(model: Any) -> None:
    """Let the backward pass recompute activations; generation keeps its cache, because it runs in eval mode."""
    # transformers 5.24 renamed the method; the old name goes with version 6.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def _from_pretrained(name: str, config: ModelConfig) -> tuple[Any, Any]:
    """Load (model, tokenizer), a trained adapter included, and turn every failure into one sentence."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
    if config.gguf_file:
        options["gguf_file"] = config.gguf_file
    model_options = {"dtype": config.dtype, "use_safetensors": None if config.gguf_file else True}
    if config.attn_implementation:
        model_options["attn_implementation"] = config.attn_implementation
    base, adapter = _adapter_base(name)
    try:
        with quiet_progress():
            tokenizer = AutoTokenizer.from_pretrained(name if adapter else base, **options)
            model = AutoModelForCausalLM.from_pretrained(base, **options, **model_options)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:400]
        raise ConfigError(f"cannot load the model {name}: {reason}") from None
    if adapter:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, name, is_trainable=True)
    return model, tokenizer


def _adapter_base(name: str) -> tuple[str, bool]:
    """Return (base model, whether `name` is a folder of adapters on it)."""
    adapter_config = Path(name).expanduser() / "adapter_config.json"
    if not adapter_config.is_file():
        return str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name, False
    return json.loads(adapter_config.read_text(encoding="utf-8"))["base_model_name_or_path"], True
