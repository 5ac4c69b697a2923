"""check_model: what must hold of a model before it plays or learns, tried once on the loaded weights.

Each check is one function that returns a few words on what it found, or raises ConfigError with one sentence and a
cure. `metarl_agents.doctor` prints them all. What the chat template must do is checked in `template.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metarl_agents.errors import ConfigError
from metarl_agents.policy.agreement import agreement_bound, later_token_gap, sampling_gap
from metarl_agents.policy.mode import refuse_noise
from metarl_agents.policy.policy import Policy
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import base_model

_CHUNK = 2**24
_TOKENS = 4
"""Tokens that are sampled after each prompt."""
_WORST = 5
"""How far beyond the mean difference that rounding explains a single token may be."""
_TEXTS = ("Hi", "Which of the two doors?", "Choose one of the two doors, and say in one word why you choose it.")
"""Users' messages of several lengths, so that some rows of a batch are padded."""


class Check(NamedTuple):
    """One thing that must hold."""

    title: str
    run: Callable[[Policy], str]

    def __call__(self, policy: Policy) -> str:
        """Return what was found.

        Raises:
            ConfigError: it does not hold, or the model fails on the way.
        """
        try:
            return self.run(policy)
        except (ConfigError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a model is a program of whoever wrote it
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
            raise ConfigError(
                f"{type(base_model(policy.model)).__name__} fails on a short prompt ({reason}): try another version of "
                "transformers, `--attn_implementation eager`, or another model."
            ) from error


def check_model(policy: Policy) -> None:
    """Refuse a model that would fail, or learn something else, later.

    Run before weights are sharded. Takes milliseconds for the built-in model and a few short forward passes for any
    other; weights and global random state are left as they were.

    Raises:
        ConfigError: a check failed; the sentence says which cure there is.
    """
    with runnable(policy):
        for check in CHECKS:
            check(policy)


@contextmanager
def runnable(policy: Policy) -> Iterator[None]:
    """Put the model in evaluation mode inside the block, and on the accelerator if its kernels work nowhere else."""
    training = [module for module in policy.model.modules() if module.training]
    kernel = str(getattr(policy.model.config, "_attn_implementation", None) or "")
    home = policy.model.device
    moves = "flash" in kernel and home.type == "cpu" and torch.accelerator.is_available()
    if moves:
        policy.model.to(torch.accelerator.current_accelerator())
    policy.model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
        if moves:
            policy.model.to(home)


def _finite(policy: Policy) -> str:
    count = 0
    for name, weight in policy.model.named_parameters():
        count += 1
        if not weight.is_meta and not all(_is_finite(part) for part in weight.detach().flatten().split(_CHUNK)):
            raise ConfigError(
                f"the weight {name} holds NaN or infinite numbers, so every answer would be noise: the file is damaged "
                "or its training diverged; fetch it again, or choose an earlier checkpoint."
            )
    return f"{count} tensors"


def _is_finite(part: Tensor) -> bool:
    if not part.is_floating_point() or not part.numel():
        return True
    # Both are NaN where any number is; eight-bit numbers have no minimum.
    low, high = torch.aminmax(part if part.element_size() > 1 else part.float())
    return bool(torch.isfinite(low) & torch.isfinite(high))


def _vocabulary(policy: Policy) -> str:
    rows = embedding_rows(policy.model)
    vocabulary = policy.tokenizer.get_vocab()
    largest = max(vocabulary.values(), default=-1)
    token = next(iter(_beyond(policy, vocabulary, rows)), None) if largest >= rows else None
    if token is not None:
        raise ConfigError(
            f"the token {token!r} of the tokenizer has id {vocabulary[token]}, but the embedding has {rows} rows "
            f"for a tokenizer of {len(policy.tokenizer)} tokens: load the tokenizer that belongs to the model, or call "
            "`model.resize_token_embeddings(len(tokenizer))`, save both and train."
        )
    unused = sum(number >= rows for number in vocabulary.values())
    note = f"; {unused} special tokens beyond them are never used" if unused else ""
    return f"{len(policy.tokenizer)} tokens, {rows} embedding rows{note}"


def embedding_rows(model: Any) -> int:
    """Return how many token ids a model can both read and predict."""
    base = base_model(model)
    parts = (base.get_input_embeddings(), base.get_output_embeddings())
    sizes = [part.weight.shape[0] for part in parts if getattr(part, "weight", None) is not None]
    return min(sizes, default=int(base.config.get_text_config().vocab_size))


def _beyond(policy: Policy, vocabulary: dict[str, int], rows: int) -> list[str]:
    """Return the tokens without an embedding that a run can meet, lowest id first.

    Special tokens cannot come out of a text, so those count only where prompts, padding or ends of answers have them.
    """
    special = {number for number, token in policy.tokenizer.added_tokens_decoder.items() if token.special}
    used = {policy.pad_id, *policy.end_ids}
    for text in _TEXTS:
        used |= set(policy.encode([{"role": "user", "content": text}]))
    met = [(number, token) for token, number in vocabulary.items() if number >= rows]
    return [token for number, token in sorted(met) if number in used or number not in special]


def _causal(policy: Policy) -> str:
    base = base_model(policy.model)
    # The class's own field: encoders that may serve as decoders have it.
    if "is_decoder" in vars(type(base.config)) and not base.config.is_decoder:
        raise ConfigError(
            f"{type(base).__name__} is not causal: its configuration has `is_decoder: false`, so each token reads "
            "those after it; choose a decoder trained to predict the next token."
        )
    gap = later_token_gap(policy, _prompts(policy)[1])
    narrow = next(policy.model.parameters()).dtype in (torch.bfloat16, torch.float16)
    if gap > (1e-2 if narrow else 1e-5):  # the same kernels on the same shapes: a causal model gives 0
        raise ConfigError(
            f"{type(base).__name__} is not causal: another last token changes what it predicts before that token by "
            f"{gap:.2g} nats, as in an encoder such as BERT; choose a decoder trained to predict the next token."
        )
    return "later tokens change nothing before them"


def _agrees(policy: Policy) -> str:
    bound = _WORST * agreement_bound(next(policy.model.parameters()).dtype)
    gap = sampling_gap(policy, _prompts(policy), Sampling(max_new_tokens=_TOKENS))
    if gap > bound:
        raise ConfigError(
            f"sampled tokens and their scores disagree by up to {gap:.2g} nats (at most {bound:g} is rounding), so "
            "this model with its cache or padding is another one while it plays than while it learns: try "
            "`--attn_implementation eager`, a newer transformers, or another model."
        )
    return f"within {gap:.1g} nats"


def _prompts(policy: Policy) -> list[tuple[int, ...]]:
    return [policy.encode([{"role": "user", "content": text}]) for text in _TEXTS]


def _deterministic(policy: Policy) -> str:
    refuse_noise(policy.model, type(base_model(policy.model)).__name__)
    return "two passes agree"


CHECKS = (
    Check("weights are finite", _finite),
    Check("every token has an embedding", _vocabulary),
    Check("nothing is random", _deterministic),  # noise makes the checks below fail, too
    Check("the model is causal", _causal),
    Check("sampler and scorer agree", _agrees),
)
"""All checks, in the order in which they make sense."""
