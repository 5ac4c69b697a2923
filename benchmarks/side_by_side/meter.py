"""What is the same for all contenders: forced response lengths, clocks, and counts of tokens and padding.

`ForcedLengths` decides how long the answer to a prompt is, from a seeded table; `watch` puts it and a `Meter` into a
model, below `generate` and below the trained network, so that no contender counts or stops by itself.
"""

from __future__ import annotations

import math
import random
import time
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from device_check import GIB, peak_gib, synchronize
from torch import Tensor


class ForcedLengths:
    """Response lengths from a seeded table: a function of the prompt, and of how often it was asked before.

    Equal prompts (the first turn of a group) get different lengths; in which order prompts come, and in batches of
    which size, changes none of the lengths that a set of prompts gets.
    """

    def __init__(self, median: float, sigma: float, longest: int, seed: int = 0) -> None:
        """Draw from a log-normal distribution with this median, cut at `longest`."""
        self._parameters = (math.log(median), sigma)
        self._longest, self._seed = longest, seed
        self._asked: Counter[int] = Counter()

    def begin(self) -> None:
        """Forget what was asked: a new iteration."""
        self._asked.clear()

    def take(self, prompt: Sequence[int]) -> int:
        """Return the length of the answer to `prompt`, its end token included."""
        key = zlib.crc32(array("q", prompt).tobytes())
        self._asked[key] += 1
        drawn = random.Random(f"{self._seed}/{key}/{self._asked[key]}").lognormvariate(*self._parameters)
        return min(max(round(drawn), 1), self._longest)


class EndAt:
    """A logits processor that ends each row after its own number of tokens, and never before.

    It writes one column of the scores, so that its cost is the same small one for all.
    """

    def __init__(self, lengths: list[int], width: int, end_id: int, device: torch.device) -> None:
        """Prepare for one `generate` call on prompts padded to `width`."""
        self._lengths = torch.tensor(lengths, device=device)
        self._width, self._end_id = width, end_id

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Make the end token certain where a row's time has come, impossible elsewhere."""
        ends = self._lengths <= input_ids.shape[1] - self._width + 1
        # Far above any logit, so that its probability is exactly 1; the other columns stay as they are.
        scores[:, self._end_id] = torch.where(ends, 1e4, -torch.inf).to(scores.dtype)
        return scores


class Meter:
    """Seconds, peaks and tokens of one iteration at a time."""

    def __init__(self, lengths: ForcedLengths) -> None:
        """Start with an empty iteration."""
        self.lengths = lengths
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._real: Tensor | None = None
        self._started = time.perf_counter()

    def __deepcopy__(self, memo: dict[int, Any]) -> Meter:
        """A copied network is measured by the same meter."""
        return self

    def begin(self) -> None:
        """Begin an iteration."""
        synchronize()
        self.lengths.begin()
        self.seconds, self.peaks, self._real = {}, {}, None
        self._counts.clear()
        self._started = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside and note its peak of GPU memory; phases of one name add up."""
        synchronize()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        yield
        synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
        if torch.cuda.is_available():
            # Not `peak_gib`, whose rounding is for print.
            self.peaks[name] = max(self.peaks.get(name, 0.0), torch.cuda.max_memory_allocated() / GIB)

    def finish(self) -> dict[str, Any]:
        """End the iteration and return what was measured (`protocol.Iteration`)."""
        synchronize()
        self.seconds["iteration"] = time.perf_counter() - self._started
        counts = self._counts
        trained = 0 if self._real is None else int(self._real)
        # A process cannot forget its peak on a CPU, so there it is one for all phases.
        peaks = self.peaks if torch.cuda.is_available() else {"process": peak_gib()}
        return {
            "seconds": dict(self.seconds),
            "tokens": {
                "sampled": counts["prompts"] + counts["responses"],
                "responses": counts["responses"],
                "trained": trained,
            },
            "rows": counts["rows"],
            "padding": {
                "rollout": _rest(counts["prompts"] + counts["responses"], counts["sampled_places"]),
                "update": _rest(trained, counts["trained_places"]),
            },
            "peak_gib": dict(peaks),
        }

    def note_generation(
        self, prompts: list[list[int]], width: int, lengths: list[int], steps: int, places: int | None = None
    ) -> None:
        """Count one `generate` call: real tokens, and the places of its rectangle, or as many as are given."""
        self._counts.update(
            rows=len(prompts),
            prompts=sum(map(len, prompts)),
            responses=sum(lengths),
            sampled_places=len(prompts) * (width + steps) if places is None else places,
        )

    def note_forward(self, module: Any, arguments: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        """Count a forward pass that a backward pass will follow (a hook on the network below its head)."""
        if not torch.is_grad_enabled():
            return
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        self._counts["trained_places"] += ids.numel()
        real = mask.sum()  # stays on its device: reading it here would make the GPU wait
        self._real = real if self._real is None else self._real + real


def _rest(real: int, places: int) -> float:
    return 1 - real / places if places else 0.0


def watch(model: Any, meter: Meter, end_id: int) -> Any:
    """Let `meter` force and count what `model` generates and what is trained on; returns `model`."""
    kind = type(model)

    class Watched(kind):
        """The same network, whose answers have given lengths. A class, so that copies of the network have them too."""

        def generate(
            self, input_ids: Tensor, attention_mask: Tensor, logits_processor: Sequence[Any] = (), **options: Any
        ) -> Tensor:
            """Generate with each row's own length."""
            rows = zip(input_ids.tolist(), attention_mask.tolist(), strict=True)
            prompts = [[token for token, real in zip(*row, strict=True) if real] for row in rows]
            lengths = [meter.lengths.take(prompt) for prompt in prompts]
            width = input_ids.shape[1]
            # Last, so that a processor that notes log-probabilities sees the network's own.
            processors = [*logits_processor, EndAt(lengths, width, end_id, input_ids.device)]
            output = super().generate(
                input_ids=input_ids, attention_mask=attention_mask, logits_processor=processors, **options
            )
            meter.note_generation(prompts, width, lengths, output.shape[1] - width)
            return output

        def generate_batch(self, inputs: list[list[int]], *arguments: Any, **options: Any) -> Any:
            """Generate by continuous batching, which pads nothing, with each request's own length."""
            outputs = super().generate_batch(inputs, *arguments, **options)
            answers = [output.generated_tokens for output in outputs.values()]
            for answer in answers:
                answer[-1] = end_id
            lengths = [len(answer) for answer in answers]
            meter.note_generation(inputs, 0, lengths, 0, places=sum(map(len, inputs)) + sum(lengths))
            return outputs

        @contextmanager
        def continuous_batching_context_manager(self, *arguments: Any, **options: Any) -> Iterator[Any]:
            """Give every request its own length and let no token end it sooner."""
            with super().continuous_batching_context_manager(*arguments, **options) as manager:

                def add_requests(inputs: list[list[int]], *unused: Any, **ignored: Any) -> list[str | None]:
                    lengths = [meter.lengths.take(prompt) for prompt in inputs]
                    pairs = zip(inputs, lengths, strict=True)
                    return [manager.add_request(ids, max_new_tokens=n, eos_token_id=-1) for ids, n in pairs]

                manager.add_requests = add_requests
                yield manager

    Watched.__name__ = Watched.__qualname__ = kind.__name__
    model.__class__ = Watched
    getattr(model, model.base_model_prefix).register_forward_pre_hook(meter.note_forward, with_kwargs=True)
    return model
