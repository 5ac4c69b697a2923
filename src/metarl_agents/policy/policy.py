"""Policy: messages to ids, ids to responses. Text becomes ids once, ids become text once.

Log-probabilities for learning are in `scoring.py`; both see the same distribution (same temperature and filters) of one
network (see `mode.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metarl_agents.errors import ConfigError, NonFiniteError
from metarl_agents.policy.mode import be_deterministic
from metarl_agents.policy.padding import left_pad
from metarl_agents.policy.processes import settle_deepspeed_accelerator
from metarl_agents.policy.quiet import quiet_progress
from metarl_agents.policy.sampling import Sampling
from metarl_agents.policy.scoring import base_model
from metarl_agents.policy.template import ChatTemplate, check_template
from metarl_agents.types import Response


class Policy:
    """A causal language model with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, *, enable_thinking: bool = False) -> None:
        """Wrap a loaded model; see `loading.load_policy`.

        Raises:
            ConfigError: the tokenizer has no chat template, or one that does not work (see `check_template`).
        """
        self.template = check_template(tokenizer, enable_thinking=enable_thinking)
        be_deterministic(model)
        self.model = model
        self.sampler: Any | None = None
        """What `generate` uses instead of `model`, where that is sharded (`sampling_copy.py`)."""
        self.tokenizer = tokenizer
        self.end_ids = _end_ids(model, self.template)
        self.pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end_ids[0]

    @property
    def _speaker(self) -> Any:
        return self.model if self.sampler is None else self.sampler

    @property
    def context_length(self) -> int | None:
        """Tokens the model can attend to, or None where its configuration does not say."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    def encode(self, messages: list[dict[str, str]]) -> tuple[int, ...]:
        """Return the prompt's ids (P,), chat template applied, ready for the assistant's answer.

        Messages cannot write control tokens: where one spells `<|im_end|>`, that is encoded as ordinary text.
        """
        return self.template.encode(messages)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`."""
        return self.tokenizer.decode(
            list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False
        )

    def decode_raw(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens included."""
        return self.decode(ids, skip_special_tokens=False)

    def answer_ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of an answer as the model would have sampled it, end token included (for warm starts)."""
        own = self.template.end_id
        return self.template.answer_ids(text, own if own in self.end_ids else self.end_ids[0])

    def save(self, folder: str | Path, weights: dict[str, Tensor] | None = None) -> None:
        """Write model (or adapter) in safetensors and tokenizer, so that `from_pretrained` loads them.

        Args:
            folder: where to.
            weights: {name: tensor} to write instead of the model's own, where that is sharded.
        """
        settle_deepspeed_accelerator()
        # peft would else ask the hub, at each save, whether the base has another vocabulary; ours is never resized.
        options = {"save_embedding_layers": False} if hasattr(self.model, "peft_config") else {}
        with quiet_progress():
            self.model.save_pretrained(folder, state_dict=weights, **options)
            self.tokenizer.save_pretrained(folder)

    @torch.no_grad()
    def generate(self, prompts: Sequence[tuple[int, ...]], sampling: Sampling, *, seed: int) -> list[Response]:
        """Answer each prompt, in the order asked.

        Prompts are sorted by length and sampled in chunks of at most `sampling.max_batch_tokens` padded tokens.

        Args:
            prompts: token ids of each prompt.
            sampling: the whole sampling distribution.
            seed: decides the draws; torch's global random state is left as it was.
        """
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        answers: dict[int, Response] = {}
        device = self._speaker.device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), self._sampling_config(sampling):
            torch.manual_seed(seed)
            for chunk in _chunks(order, [len(prompt) for prompt in prompts], sampling):
                responses = self._generate_chunk([prompts[index] for index in chunk], sampling)
                answers |= dict(zip(chunk, responses, strict=True))
        return [answers[index] for index in range(len(prompts))]

    def _generate_chunk(self, prompts: list[tuple[int, ...]], sampling: Sampling) -> list[Response]:
        ids, mask = left_pad(prompts, self.pad_id)
        recorder = LogprobRecorder(sampling)
        # Decode alone: trials end at different turns, so ranks must not wait for each other inside sampling.
        model = self._speaker
        output = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=model.generation_config,
            logits_processor=[recorder],
            synced_gpus=False,
        )  # (b, P + R)
        width = ids.shape[1]
        logprobs = recorder.finish(output).tolist()
        return [
            self._response(row[width:], row_logprobs, sampling.max_new_tokens)
            for row, row_logprobs in zip(output.tolist(), logprobs, strict=True)
        ]

    def _response(self, row: list[int], logprobs: list[float], limit: int) -> Response:
        """Cut a sampled row after its first end token; what follows is padding, even where pad equals end."""
        length = next((place + 1 for place, token in enumerate(row) if token in self.end_ids), None)
        ids = tuple(row[:length])
        said, written = self.template.read(ids)
        return Response(
            ids=ids,
            text=said,
            written=written,
            truncated=length is None and len(ids) >= limit,
            logprobs=tuple(logprobs[: len(ids)]),
        )

    @contextmanager
    def _sampling_config(self, sampling: Sampling) -> Iterator[None]:
        """Put our complete generation config in the model's place, so that nothing of its own leaks in."""
        # Adapters read the config of the model they are on, and write it back there: so it is put there, not on them.
        model = self._speaker
        base = base_model(model)
        own = base.generation_config
        base.generation_config = sampling.generation_config(self.pad_id, self.end_ids)
        be_deterministic(model)
        try:
            yield
        finally:
            base.generation_config = own


class LogprobRecorder:
    """A logits processor that notes the log-probability of each sampled token and changes nothing.

    The distribution is the one that tokens are drawn from, filters included. Processors run on logits before
    temperature and filters, and see the token chosen last; so only one step's (b, V) distribution is ever kept.
    """

    def __init__(self, sampling: Sampling) -> None:
        """Prepare for one `generate` call."""
        self._temperature = sampling.temperature or 1.0
        self._filters = sampling.filters
        self._pending: Tensor | None = None
        self._columns: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Note the previous choice, keep this step's distribution, and return `scores` as they came.

        Raises:
            NonFiniteError: a row of `scores` is no distribution; torch would end with an error of its own, on a GPU
                with one that leaves the device useless.
        """
        self._take(input_ids)
        self._pending = self._filters.apply(scores.float() / self._temperature).log_softmax(dim=-1)
        # One NaN or infinite logit makes the whole row NaN, so one column tells of all.
        if bool(self._pending[:, 0].isnan().any()):
            raise NonFiniteError(
                "the model's outputs are no finite numbers, so nothing can be sampled: its weights are damaged, were "
                "trained with too high a `learning_rate`, or do not fit the `dtype`."
            )
        return scores

    def finish(self, output: Tensor) -> Tensor:
        """Return (b, R) log-probabilities of the sampled part of `output` (b, P + R)."""
        self._take(output)
        return torch.stack(self._columns, dim=1)

    def _take(self, ids: Tensor) -> None:
        if self._pending is not None:
            self._columns.append(self._pending.gather(-1, ids[:, -1:]).squeeze(-1))
            self._pending = None


def _end_ids(model: Any, template: ChatTemplate) -> list[int]:
    """Return every id that ends a turn: the tokenizer's, the model's and the template's, in a fixed order.

    A token that the template also writes between a thought and what is said is none, unless there is no other.

    Raises:
        ConfigError: there is none, so that no answer could end.
    """
    own = getattr(model.generation_config, "eos_token_id", None)
    found = [template.tokenizer.eos_token_id, *(own if isinstance(own, list) else [own]), template.end_id]
    ids = list(dict.fromkeys(token for token in found if token is not None))
    if not ids:
        raise ConfigError("neither the tokenizer nor the model names an end-of-turn token: set `eos_token` there.")
    return [token for token in ids if token not in template.inner_ids] or ids


def _chunks(order: list[int], lengths: list[int], sampling: Sampling) -> Iterator[list[int]]:
    """Split indices sorted by length so that each chunk's padded tokens stay within the budget."""
    chunk: list[int] = []
    for index in order:
        if chunk and (len(chunk) + 1) * (lengths[index] + sampling.max_new_tokens) > sampling.max_batch_tokens:
            yield chunk
            chunk = []
        chunk.append(index)
    if chunk:
        yield chunk
