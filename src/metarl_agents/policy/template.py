"""A tokenizer's chat template: what it writes around messages, and how conversations become token ids and back.

`check_template` renders a few short conversations once and refuses, in one sentence, what cannot work. What lives
elsewhere: the markings of thoughts (`thoughts.py`), sampling (`policy.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from metarl_agents.errors import ConfigError
from metarl_agents.thoughts import (
    CHANNEL,
    CHANNEL_TOKENS,
    FINAL_MESSAGE,
    MARKINGS,
    Marking,
    final_text,
    has_thought,
    open_thought,
)

Messages = Sequence[dict[str, Any]]

_ASKED, _SAID, _THOUGHT = "quokka7431", "wombat8642", "numbat9753"
"""Texts that are looked for in what a template writes."""
_MARKS = {mark for marking in MARKINGS for mark in marking}
_SENTINELS = (range(0xFDD0, 0xFDF0), range(0xF0000, 0xFFFFE))
"""Code points that Unicode reserves for use inside a program: noncharacters, then private ones."""
_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


def check_template(tokenizer: Any, *, enable_thinking: bool = False, name: str | None = None) -> ChatTemplate:
    """Run all probes of a tokenizer's chat template; takes milliseconds and needs no model.

    Args:
        tokenizer: a tokenizer of transformers.
        enable_thinking: passed to the template.
        name: the model's name, for messages.

    Returns:
        The template; its `notes` are sentences that a user should read once.

    Raises:
        ConfigError: there is no template, it fails on a user's message, leaves its text out, or ends an answer by
            something that is not one token.
    """
    return ChatTemplate(tokenizer, enable_thinking=enable_thinking, name=name)


class ChatTemplate:
    """Encodes conversations and reads answers by one tokenizer's chat template."""

    def __init__(self, tokenizer: Any, *, enable_thinking: bool = False, name: str | None = None) -> None:
        """Probe the template; see `check_template`."""
        self.tokenizer = tokenizer
        self._options = {"enable_thinking": enable_thinking}
        self._of = f"the chat template{f' of {name}' if name else ''}"
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                f"the tokenizer{f' of {name}' if name else ''} has no chat template, so prompts cannot be put to this "
                "model: choose an instruct or chat model, or add a `chat_template.jinja` to its folder."
            )
        self._in_parts = False
        self._expected: dict[tuple[str, ...], list[int] | None] = {}
        prompt = self._probe_user()
        begun = self._generation_prompt(prompt)
        self.markings: tuple[Marking, ...] = ()
        """How this template marks thoughts, beside the usual markings."""
        self.end_id: int | None = None
        """The token that the template writes after an assistant's message; None where it writes nothing there."""
        self.inner_ids: frozenset[int] = frozenset()
        """Tokens that the template writes between a thought and what is said, so that they end no answer."""
        self._lead = ""
        """What an assistant's message begins with, beyond the prompt."""
        self._probe_assistant(prompt)
        self.begun = begun if CHANNEL in begun or open_thought(begun, self.markings) else ""
        """What the template writes of an answer's thought or channel; "" where it leaves none open."""
        if final_text(self._lead + _SAID, self.begun, self.markings) != _SAID:
            due = open_thought(self.begun + self._lead, self.markings)
            self._lead += FINAL_MESSAGE if due is None else f"\n{self._spelling(due)}\n\n"
        self.notes = self._notes()
        """Sentences that a user should read once."""

    # ---- encoding ----------------------------------------------------------------------------------------------

    def encode(self, messages: Messages) -> tuple[int, ...]:
        """Return a prompt's ids (P,), ready for the assistant's answer.

        Control tokens come from the template alone: where a message spells one, it is encoded as ordinary text.
        """
        ids = self._encode_text(self._render(messages))
        if self._control_of(ids) != self._expected_control(messages):
            sentinel = _unused("".join(message["content"] for message in messages))
            safe = [message | {"content": self._escaped(message["content"], sentinel)} for message in messages]
            if any(sentinel in message["content"] for message in safe):
                ids = self._encode_without(self._render(safe), sentinel)
        return tuple(ids)

    def answer_ids(self, text: str, end_id: int) -> tuple[int, ...]:
        """Return the ids of an answer as the model would have sampled it, `end_id` included.

        Where the template writes something between the prompt and an assistant's message, as the name of a channel, so
        does the answer. A thought in `text` is kept with its markings; a prompt that opened it is not repeated.

        Args:
            text: the answer, with or without a thought.
            end_id: the token that ends it.
        """
        keep: set[str] = set()
        if has_thought(text, self.markings):
            keep = self._marks | (set(CHANNEL_TOKENS) if CHANNEL in text else set())
            lead, text = "", self._without_opening(text)
        else:
            lead = self._lead
        sentinel = _unused(text)
        ids = self._encode_without(self._escaped(text, sentinel, keep), sentinel)
        while ids and ids[-1] == end_id:
            ids.pop()
        return (*(self._encode_text(lead) if lead else ()), *ids, end_id)

    def _without_opening(self, text: str) -> str:
        """Drop an opening mark that the prompt has written already."""
        stripped = text.lstrip()
        for opening, closing in (*MARKINGS, *self.markings):
            if closing.lower() == open_thought(self.begun, self.markings) and stripped.lower().startswith(
                opening.lower()
            ):
                return stripped[len(opening) :].lstrip("\n")
        return text

    def _encode_text(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode_without(self, text: str, sentinel: str) -> list[int]:
        """Return the ids of `text`, those of the sentinel left out."""
        if sentinel not in text:
            return self._encode_text(text)
        if getattr(self.tokenizer, "is_fast", False):
            coded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            covered = [text[start:end] for start, end in coded["offset_mapping"]]
            if not any(sentinel in part and part.strip(sentinel) for part in covered):
                pairs = zip(coded["input_ids"], covered, strict=True)
                return [number for number, part in pairs if sentinel not in part]
        return [number for part in text.split(sentinel) if part for number in self._encode_text(part)]

    def _escaped(self, text: str, sentinel: str, keep: set[str] = frozenset()) -> str:
        """Put sentinels into the control tokens that `text` spells, so that none of them is recognised."""
        kept = {number for token, number in self._control.items() if token.lower() in keep}

        def is_safe(candidate: str) -> bool:
            return set(self._control_of(self._encode_text(candidate))) <= kept

        if is_safe(text):
            return text

        def split(match: re.Match[str]) -> str:
            token = match[0]
            return token if token.lower() in keep else token[0] + sentinel + token[1:]

        # The rest of one token's spelling may be that of another.
        broken = text
        while (again := self._spelled.sub(split, broken)) != broken:
            broken = again
        # A tokenizer may recognise tokens after it has changed the text, so that they are spelled otherwise here.
        return broken if is_safe(broken) else sentinel.join(text)

    def _control_of(self, ids: Sequence[int]) -> list[int]:
        control = self._control_ids
        return [number for number in ids if number in control]

    def _expected_control(self, messages: Messages) -> list[int] | None:
        """Return the control tokens that the template writes around messages with such roles."""
        roles = tuple(message["role"] for message in messages)
        if roles not in self._expected:
            try:
                neutral = self._render([{"role": role, "content": _ASKED} for role in roles])
                self._expected[roles] = self._control_of(self._encode_text(neutral))
            except Exception:  # the template objects to the text; then every prompt is looked at closely
                self._expected[roles] = None
        return self._expected[roles]

    @cached_property
    def _control(self) -> dict[str, int]:
        """Special tokens that are no pair, and added tokens that the template writes or that mark a thought."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        return {
            token.content: number
            for number, token in self.tokenizer.added_tokens_decoder.items()
            if number != unknown
            and number not in self._pairs
            and token.content.strip()
            and (token.special or token.content in self._source or token.content.lower() in _MARKS)
        }

    @cached_property
    def _source(self) -> str:
        template = self.tokenizer.chat_template
        return " ".join(template.values()) if isinstance(template, dict) else str(template)

    def _spelling(self, mark: str) -> str:
        """Return a mark in the letters of the template or of the tokenizer."""
        found = re.search(re.escape(mark), " ".join([self._source, *self._control]), re.IGNORECASE)
        return found[0] if found else mark

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self._control.values())

    @cached_property
    def _spelled(self) -> re.Pattern[str]:
        tokens = sorted((token for token in self._control if len(token) > 1), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, tokens)) if tokens else r"(?!)", re.IGNORECASE)

    # ---- reading -----------------------------------------------------------------------------------------------

    def read(self, ids: Sequence[int]) -> tuple[str, str]:
        """Return (what an answer finally says, all that it says, thoughts and their markings included).

        Tokens that end, pad or frame an answer are in neither; a special token that is one of a pair, such as
        `<action>` and `</action>`, is text.
        """
        in_channels = self._control.get(CHANNEL) in ids
        shown = self._text_ids | (self._channel_ids if in_channels else frozenset())
        if shown.isdisjoint(ids):
            written = self._decode(ids, skip_special_tokens=True)
        else:
            visible = [number for number in ids if number in shown or number not in self._special_ids]
            written = self._decode(visible, skip_special_tokens=False)
        return final_text(written, self.begun, self.markings), written

    def _decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return self.tokenizer.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )

    @property
    def _marks(self) -> set[str]:
        return _MARKS | {mark.lower() for marking in self.markings for mark in marking}

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self.tokenizer.added_tokens_decoder.items()
        return frozenset({number for number, token in added if token.special} | {*self.tokenizer.all_special_ids})

    @cached_property
    def _special(self) -> dict[str, int]:
        return {str(self.tokenizer.convert_ids_to_tokens(number)): number for number in self._special_ids}

    @cached_property
    def _pairs(self) -> frozenset[int]:
        """Special tokens `<name>` and `</name>` that the template does not write: they are tags of a text."""
        named = {getattr(self.tokenizer, name, None) for name in _NAMED}
        free = {token for token in self._special if len(token) > 2} - named - _MARKS
        pairs = [(token, f"{token[0]}/{token[1:]}") for token in free if token not in self._source]
        return frozenset(self._special[token] for pair in pairs if free.issuperset(pair) for token in pair)

    @cached_property
    def _text_ids(self) -> frozenset[int]:
        """Special tokens that are part of what is written: pairs, and marks of thoughts."""
        marks = self._marks
        return self._pairs | {number for token, number in self._special.items() if token.lower() in marks}

    @cached_property
    def _channel_ids(self) -> frozenset[int]:
        return frozenset(self._control[token] for token in CHANNEL_TOKENS if token in self._control)

    # ---- probing -----------------------------------------------------------------------------------------------

    def _render(self, messages: Messages, *, asks: bool = True) -> str:
        if self._in_parts:
            messages = [m | {"content": [{"type": "text", "text": m["content"]}]} for m in messages]
        return self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=asks, **self._options
        )

    def _probe_user(self) -> str:
        """Find how a user's message must be given, and return the prompt that asks `_ASKED`."""
        asked = [{"role": "user", "content": _ASKED}]
        reasons: list[str] = []
        for self._in_parts in (False, True):
            prompt, reason = self._attempt(asked)
            if prompt is not None and _ASKED in prompt:
                return prompt
            reasons += [reason] if reason else []
        self._in_parts = False
        if not reasons:
            raise ConfigError(
                f"{self._of} leaves out what the user says, so the model would read no prompt: mend its "
                "`chat_template.jinja`, which should print `message['content']`."
            )
        with_system, _ = self._attempt([{"role": "system", "content": "Be brief."}, *asked])
        if with_system is not None:
            raise ConfigError(
                f"{self._of} refuses a conversation without a system message ({reasons[0]}), but a prompt is one user "
                "message: let its `chat_template.jinja` write a default system message."
            )
        raise ConfigError(f"{self._of} fails on a user's message ({reasons[0]}): mend its `chat_template.jinja`.")

    def _attempt(self, messages: Messages, *, asks: bool = True) -> tuple[str | None, str]:
        """Return (what the template writes, or None; why it fails, or "")."""
        try:
            return self._render(messages, asks=asks), ""
        except ImportError:
            raise
        except Exception as error:  # a template is a program of whoever wrote it
            return None, " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")

    def _generation_prompt(self, prompt: str) -> str:
        """Return what the template writes of the assistant's turn."""
        without, _ = self._attempt([{"role": "user", "content": _ASKED}], asks=False)
        if without is not None and prompt.startswith(without) and len(prompt) > len(without):
            return prompt[len(without) :]
        return prompt.rpartition(_ASKED)[2]

    def _probe_assistant(self, prompt: str) -> None:
        """Learn what stands before and after an assistant's message, and around a thought in it."""
        asked, said = {"role": "user", "content": _ASKED}, {"role": "assistant", "content": _SAID}
        talk, _ = self._attempt([asked, said], asks=False)
        if talk is None or _SAID not in talk:
            return  # the template knows no assistant's messages; the tokenizer's own end token has to do
        place = talk.index(_SAID)
        if talk.startswith(prompt) and place >= len(prompt):
            self._lead = talk[len(prompt) : place]
        self.end_id = self._end_after(talk[place + len(_SAID) :])
        thinking, _ = self._attempt([asked, said | {"reasoning_content": _THOUGHT, "thinking": _THOUGHT}], asks=False)
        if thinking is None or not 0 <= thinking.find(_THOUGHT) < thinking.find(_SAID):
            return
        before, _, after = thinking.partition(_THOUGHT)
        between = after[: after.index(_SAID)]
        self.inner_ids = frozenset(self._control_of(self._encode_text(between)))
        opening, closing = before[len(os.path.commonprefix([before, talk])) :].strip(), between.strip()
        if opening and closing and not has_thought(opening + closing):
            self.markings = (Marking(self._control_in(opening, -1), self._control_in(closing, 0)),)

    def _control_in(self, text: str, place: int) -> str:
        """Return the first or last control token in `text`, or all of it where there is none."""
        found = self._control_of(self._encode_text(text))
        return str(self.tokenizer.convert_ids_to_tokens(found[place])) if found else text

    def _end_after(self, text: str) -> int | None:
        """Return the token that `text`, written after an assistant's message, begins with.

        Raises:
            ConfigError: it begins with something else than one token that cannot be part of an answer.
        """
        text = text.lstrip()
        if not text:
            return None
        ends = {*self._control_ids, self.tokenizer.eos_token_id}
        ids = self._encode_text(text)
        first = next((number for number in ids if number in ends or self._decode_one(number).strip()), None)
        if first in ends:
            return first
        shown = text.splitlines()[0][:40]
        raise ConfigError(
            f'{self._of} writes "{shown}" after an assistant\'s message, which is no control token of this tokenizer, '
            "so no answer could end there: add it to the tokenizer as a special token, or let the template write the "
            "tokenizer's own end token."
        )

    def _decode_one(self, number: int) -> str:
        return self._decode([number], skip_special_tokens=False)

    def _notes(self) -> list[str]:
        begins = getattr(self.tokenizer, "bos_token_id", None)
        if begins is None or begins in self.encode([{"role": "user", "content": _ASKED}])[:1]:
            return []
        return [
            f"{self._of} writes no {self.tokenizer.bos_token}, the tokenizer's token for the beginning of a text, so "
            "prompts have none (the convention of Hugging Face's chat templates)."
        ]


def _unused(text: str) -> str:
    """Return a character that `text` does not hold."""
    return next(sign for sign in map(chr, chain(*_SENTINELS)) if sign not in text)
