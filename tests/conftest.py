"""What several test folders share: a small tokenizer, small random models of several families, a scripted speaker."""

import os
from collections.abc import Callable, Sequence

import pytest
import torch

torch.set_num_threads(1)
# Nothing here may wait for a network; read by the libraries when they are imported, which happens later.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_collection_modifyitems(items):
    """Leave out what is marked `gpu` where there is none, whatever `-m` has chosen: a test may be `slow` as well."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
GPT2_SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
DROPOUT = {"resid_pdrop": 0.3, "embd_pdrop": 0.3, "attn_pdrop": 0.3}


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """The built-in tokenizer. Shared: a test that changes a tokenizer builds its own."""
    from metarl_agents.policy.tiny import build_tokenizer

    return build_tokenizer()


@pytest.fixture
def make_model(tiny_tokenizer) -> Callable:
    """Build a fresh random model: `make_model("gpt2")`, with wide weights so that its choices are far from uniform."""

    def build(family: str = "qwen3", *, vocabulary: int | None = None, seed: int = 0, **settings):
        from transformers import AutoConfig, AutoModelForCausalLM

        sizes = GPT2_SIZES | DROPOUT if family == "gpt2" else SIZES
        config = AutoConfig.for_model(
            family,
            **{
                "vocab_size": vocabulary or len(tiny_tokenizer),
                "pad_token_id": tiny_tokenizer.pad_token_id,
                "eos_token_id": tiny_tokenizer.eos_token_id,
                "bos_token_id": None,
                "initializer_range": 0.3,
                **sizes,
                **settings,
            },
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return AutoModelForCausalLM.from_config(config)

    return build


@pytest.fixture
def make_policy(make_model, tiny_tokenizer) -> Callable:
    """Build a policy on a fresh random model: `make_policy("llama")`."""

    def build(family: str = "qwen3", *, tokenizer=None, **settings):
        from metarl_agents.policy.policy import Policy

        return Policy(make_model(family, **settings), tokenizer or tiny_tokenizer)

    return build


@pytest.fixture(scope="session")
def tiny_policy(tiny_tokenizer):
    """The built-in tiny model, one layer, with its tokenizer. Shared: a test must leave it as it was."""
    from metarl_agents.policy.policy import Policy
    from metarl_agents.policy.tiny import build_model

    return Policy(build_model(tiny_tokenizer, layers=1, hidden=32).eval(), tiny_tokenizer)


class ScriptedSpeaker:
    """Answers with given texts, or as a function of the page, and remembers all that it was asked.

    A page's ids are its UTF-8 bytes, and an answer's ids are its bytes plus 1000, so that ids say where they are from.
    """

    def __init__(self, answers: Sequence[str] | Callable[[str], str], truncated: bool = False):
        self._answers = answers if callable(answers) else iter(answers)
        self._truncated = truncated
        self.encoded: list[str] = []
        """Every page that was turned into ids."""
        self.waves: list[list[tuple[int, ...]]] = []
        """The prompts of each call of `generate`."""
        self.calls: list[int] = []

    @property
    def pages(self) -> list[str]:
        """Every page that was asked, in order."""
        return [bytes(prompt).decode() for wave in self.waves for prompt in wave]

    def encode(self, messages):
        """Return the bytes of a single user message."""
        ((role, page),) = [(message["role"], message["content"]) for message in messages]
        assert role == "user"
        self.encoded.append(page)
        return tuple(page.encode())

    def generate(self, prompts, call):
        """Answer each prompt with the next text."""
        from metarl_agents.types import Response

        self.waves.append(list(prompts))
        self.calls.append(call)
        if callable(self._answers):
            texts = [self._answers(bytes(prompt).decode()) for prompt in prompts]
        else:
            texts = [next(self._answers) for _ in prompts]  # a script that is too short fails here
        ids = [tuple(1000 + byte for byte in text.encode()) for text in texts]
        return [Response(ids=own, text=text, truncated=self._truncated) for own, text in zip(ids, texts, strict=True)]


@pytest.fixture
def scripted_speaker():
    """The class `ScriptedSpeaker`."""
    return ScriptedSpeaker
