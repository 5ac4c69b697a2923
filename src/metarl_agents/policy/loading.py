"""From a name to a policy: hub name, local folder, GGUF file, or the built-in tiny model.

What lives here: everything that is checked or built before the first prompt. What does not: making the tiny
model's skill (`training/warm_start.py`), and what is special about GGUF files (`gguf.py`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from metarl_agents.config import ModelConfig
from metarl_agents.errors import ConfigError
from metarl_agents.expect import expect
from metarl_agents.policy.gguf import (
    gguf_name,
    loading_options,
    locate_gguf,
    make_ordinary,
    name_control_tokens,
    names_gguf,
)
from metarl_agents.policy.model_check import check_model
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.quiet import quiet_peft, quiet_progress
from metarl_agents.policy.template import check_template
from metarl_agents.policy.tiny import build_model, build_tokenizer

TINY = "tiny"
_ADAPTERS = "adapter_config.json"
_RUNS = "runs"
_RUN_FILE = "config.yaml"
_TAUGHT = "warm_start.json"
"""What a warm start leaves beside the model that it made."""
_INSIDE_A_RUN = ("checkpoint-", "snapshot-", "merged", "base", "population")
"""How folders begin that a run leaves inside its own."""
_said: set[str] = set()
_SHIPPED = Path(__file__).parent / "tiny_models"


def shipped_tiny_models() -> list[str]:
    """Return the names of the warm-started tiny models that come with the package."""
    return sorted(path.parent.name for path in _SHIPPED.glob("*/config.json"))


def shipped_folder(name: str) -> Path | None:
    """Return the folder of a shipped tiny model, or None where there is no such model."""
    return _SHIPPED / name if name in shipped_tiny_models() else None


def shipped_env(name: str | None) -> str | None:
    """Return the environment that a shipped tiny model was taught, or None where there is no such model."""
    folder = shipped_folder(name) if name else None
    return json.loads((folder / _TAUGHT).read_text(encoding="utf-8"))["env"] if folder else None


def check_model_name(config: ModelConfig) -> None:
    """Refuse a model that cannot exist, before anything heavy is imported.

    Raises:
        ConfigError: a local path without a model in it, a GGUF file named twice, or `smollm2` not installed.
    """
    given = config.model_name_or_path
    if config.gguf_file and names_gguf(given):
        raise ConfigError(f"`{given}` names a GGUF file by itself: leave out `--gguf_file`.")
    name, gguf_file = locate_gguf(given, config.gguf_file)
    path = Path(name).expanduser()
    if path.is_dir():
        # Adapters bring the name of their base along, GGUF file included.
        wanted = [gguf_file or "config.json", *([] if names_gguf(given) else [_ADAPTERS])]
        if not any((path / file).is_file() for file in wanted):
            raise ConfigError(f"the folder {name} holds no {' or '.join(wanted)}: give the folder of a saved model.")
    elif _looks_local(name) or names_gguf(given) and given.count("/") < 2:
        raise ConfigError(f"there is no model folder {name}: check `--model_name_or_path`.")


def _looks_local(name: str) -> bool:
    """Whether a name can only be meant for a folder of this machine: the hub's are `owner/model`, with one slash."""
    first, slash, _ = name.partition("/")
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1
    # Every run lies in runs/; and a first part that is a folder here is a place, not an owner.
    return is_path or first == _RUNS or bool(slash) and Path(first).is_dir()


def load_policy(config: ModelConfig, *, tiny_name: str | None = None, check: bool = True) -> Policy:
    """Load model and tokenizer, and check that they can be sampled from and learn (`model_check.py`).

    Args:
        config: which model, in which dtype, with or without adapters.
        tiny_name: the shipped tiny model that fits the environment; used for the model name `tiny`. Where none
            fits, `tiny` is an untrained model that wants a warm start (`needs_warm_start`).
        check: False leaves the checks to the caller.

    Raises:
        ConfigError: the model cannot be found or read, has no chat template, or fails a check.
    """
    expect("config", config, ModelConfig, "a `ModelConfig`, as in `ModelConfig(model_name_or_path=NAME)`")
    check_model_name(config)
    if config.model_name_or_path == TINY:
        folder = shipped_folder(tiny_name) if tiny_name else None
        if folder is None:
            tokenizer = build_tokenizer()
            return Policy(build_model(tokenizer), tokenizer)
        model, tokenizer = _from_pretrained(str(folder), config)
    else:
        model, tokenizer = _from_pretrained(config.model_name_or_path, config)
    policy = Policy(model, tokenizer, enable_thinking=config.enable_thinking)
    if check:
        check_model(policy)
    _say_once(policy.template.notes)
    return policy


def _say_once(sentences: list[str]) -> None:
    """Write sentences to standard error, each once, from the first of several processes."""
    for sentence in sentences:
        if sentence not in _said and os.environ.get("RANK", "0") == "0":
            _said.add(sentence)
            sys.stderr.write(f"Note: {sentence}\n")


def needs_warm_start(config: ModelConfig, tiny_name: str | None) -> bool:
    """Whether `load_policy` gives a model that knows nothing yet."""
    return config.model_name_or_path == TINY and (tiny_name is None or shipped_folder(tiny_name) is None)


def is_tiny(name: str) -> bool:
    """Whether a model is the built-in one: by its name, or a folder that it was saved to, taught or trained.

    A run may have begun with the folder of another, so the beginnings are followed back to the first.
    """
    seen: set[str] = set()
    while name not in seen and name != TINY:
        seen.add(name)
        if (Path(name).expanduser() / _TAUGHT).is_file():
            return True
        name = _begun_with(name) or name
    return name == TINY


def _begun_with(folder: str) -> str | None:
    """Return the model that the run which left `folder` began with, or None where no run did."""
    place = Path(folder).expanduser().absolute()
    while place.name.startswith(_INSIDE_A_RUN) and not (place / _RUN_FILE).is_file():
        place = place.parent
    try:
        values = yaml.safe_load((place / _RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return values.get("model_name_or_path") if isinstance(values, dict) else None


def load_tokenizer(folder: str | Path) -> Any:
    """Load a tokenizer that was saved without a model, from a local folder.

    Raises:
        ConfigError: the folder is not there, or holds none.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"there is no tokenizer folder {folder}: it is saved beside what was encoded with it.")
    with _one_sentence(str(folder), None):
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(folder))


def _from_pretrained(name: str, config: ModelConfig) -> tuple[Any, Any]:
    """Load (model, tokenizer), a trained adapter included, and turn every failure into one sentence."""
    base, has_adapters = _adapter_base(name)
    folder, gguf_file = locate_gguf(base, config.gguf_file)
    options: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
    from_file = {"gguf_file": gguf_file} if gguf_file else {}
    weights = {"dtype": config.dtype, **(loading_options() if gguf_file else {"use_safetensors": True})}
    if config.attn_implementation:
        weights["attn_implementation"] = config.attn_implementation
    with quiet_progress(), _one_sentence(name, gguf_file):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(
            name if has_adapters else folder, **options, **({} if has_adapters else from_file)
        )
    # Weights may take minutes to fetch and read, so what they cannot mend is said before.
    check_template(tokenizer, enable_thinking=config.enable_thinking, name=name)
    with quiet_progress(), _one_sentence(name, gguf_file):
        from transformers import AutoModelForCausalLM

        model, found = AutoModelForCausalLM.from_pretrained(
            folder, **options, **from_file, **weights, output_loading_info=True
        )
        if found["missing_keys"]:
            missing = sorted(found["missing_keys"])
            raise ValueError(f"{len(missing)} of its weights are not there, {missing[0]} for one")
    if gguf_file:
        make_ordinary(model, gguf_name(base, gguf_file))
    if gguf_file and not has_adapters:
        name_control_tokens(tokenizer, model.config)
    if has_adapters:
        from peft import PeftModel

        with quiet_peft():
            model = PeftModel.from_pretrained(model, name, is_trainable=True)
    return model, tokenizer


@contextmanager
def _one_sentence(name: str, gguf_file: str | None) -> Iterator[None]:
    """Turn what goes wrong while a model is read into one sentence.

    Raises:
        ConfigError: something did.
    """
    # What a damaged GGUF file does to its reader can be anything.
    kinds = (Exception,) if gguf_file else (OSError, ValueError, KeyError, ImportError, RuntimeError)
    try:
        yield
    except kinds as error:
        reason = " ".join(str(error).split())[:400] or type(error).__name__
        if gguf_file:
            reason = f"{reason.rstrip('.')}; if {gguf_file} is damaged, fetch it anew."
        raise ConfigError(f"cannot load the model {name}: {reason}") from None


def _adapter_base(name: str) -> tuple[str, bool]:
    """Return (base model, whether `name` is a folder of adapters on it)."""
    folder = Path(name).expanduser()
    if not (folder / _ADAPTERS).is_file():
        return str(folder) if folder.is_dir() else name, False
    base = json.loads((folder / _ADAPTERS).read_text(encoding="utf-8"))["base_model_name_or_path"]
    if not base:
        raise ConfigError(
            f"the adapters in {name} do not name the model they sit on: load that one and put them on it."
        )
    return base, True
