"""The built-in tiny model: a small Qwen3 configuration and its own tokenizer.

The tokenizer is a byte-level BPE without merges: a piece of text that is a word of the built-in wordings is one
token, everything else falls back to its bytes, so that any text round-trips. One cell "(2, 3)" is one token, one
board row header too, which keeps a MineSweeper prompt near forty tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

PAD, END, USER, ASSISTANT, SYSTEM = "<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"
SPECIAL = (PAD, END, USER, ASSISTANT, SYSTEM)

# One piece per match, first alternative that fits: a board row header (with its line break), a cell, a tag,
# a word with its blank, a digit, any other sign, white space.
PIECES = r"\n?Row \d+:| ?\(\d, \d\)| ?</?[a-z]+>| ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]|\s"

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

# Words of the compact wordings and of the scripted players' remarks. Adding a word changes the vocabulary, so that
# shipped checkpoints must be made again (`recipes/warm_start.py`).
WORDS = (
    "Open a cell. What to remember? Attempt failed: succeeded: drew: failed. avoid mine at be faster open then safe "
    "cells none no valid action lost won hit try next last row col try first time out of turns I you the and or is was "
    "not it in to for this that did do with task plan wrong went because so again same different Choose one door A B "
    "prize empty behind Doors: door. found nothing opened Opened answer Answer left right up down go take look use "
    "move north south east west yes No Yes Notes from earlier attempts Step Action Observation Your remark after "
    "This so far"
)
TAGS = ("<action>", "</action>", "<remark>", "</remark>")


def frequent_pieces(texts: Iterable[str], limit: int = 1000, at_least: int = 3) -> list[str]:
    """Return the commonest pieces of some texts: the words a tokenizer needs to speak an environment's language.

    Args:
        texts: prompts and answers.
        limit: how many pieces at most.
        at_least: how often a piece must occur.
    """
    counts = Counter(piece for text in texts for piece in re.findall(PIECES, text))
    return [piece for piece, count in counts.most_common(limit) if count >= at_least]


def _vocabulary(extra: Iterable[str]) -> dict[str, int]:
    """Return {token: id}: special tokens, 256 bytes, the built-in words with and without a blank, extra pieces."""
    from tokenizers.pre_tokenizers import ByteLevel

    words = re.findall(r"[A-Za-z]+|[^\sA-Za-z]", WORDS)
    words += [f"({row}, {col})" for row in range(1, 9) for col in range(1, 9)]
    words += [*"0123456789", "?", ".", "*", "#", "_", "X", "O", "P", "S", *TAGS]
    pieces = [form for word in dict.fromkeys(words) for form in (word, f" {word}")]
    pieces += [form for row in range(1, 11) for form in (f"Row {row}:", f"\nRow {row}:")]
    pieces += extra
    # ByteLevel maps each byte to a printable character; tokens are spelled in that alphabet.
    spell = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    spelled = ["".join(part for part, _ in spell(piece)) for piece in pieces]
    ordered = dict.fromkeys([*SPECIAL, *sorted(ByteLevel.alphabet()), *spelled])
    return {token: number for number, token in enumerate(ordered)}


def build_tokenizer(extra: Iterable[str] = ()) -> Any:
    """Return the tiny model's tokenizer, a `PreTrainedTokenizerFast` with a chat template.

    Args:
        extra: further pieces that are to be one token each (see `frequent_pieces`).
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # ignore_merges: a piece that is in the vocabulary is one token; any other piece is its bytes.
    tokenizer = Tokenizer(models.BPE(vocab=_vocabulary(extra), merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def build_model(
    tokenizer: Any,
    *,
    layers: int = 3,
    hidden: int = 96,
    seed: int = 0,
    max_length: int = 2048,
    initializer_range: float = 0.02,
) -> Any:
    """Return a randomly initialised Qwen3 of about 0.4M parameters (defaults), ready for a warm start.

    Args:
        tokenizer: gives vocabulary size and special ids.
        layers: number of blocks.
        hidden: width; heads are 32 wide at most.
        seed: decides the initial weights; the global random state is left as it was.
        max_length: longest prompt plus response, in tokens.
        initializer_range: standard deviation of the initial weights; the default is that of large models.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        initializer_range=initializer_range,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)
