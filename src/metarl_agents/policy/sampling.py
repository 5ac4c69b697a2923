"""How a response is drawn: one complete, explicit sampling distribution.

Unset generation fields are filled from a model's own generation config (many instruct models ship `top_k`), so the
policy never leaves one unset.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from metarl_agents.config import SAMPLING_BOUNDS, Config, require_all
from metarl_agents.errors import ConfigError
from metarl_agents.expect import expect, expect_count

if TYPE_CHECKING:
    from torch import Tensor


class Filters(NamedTuple):
    """What leaves unlikely tokens out of a draw, after the temperature; what remains is drawn by its share of the rest.

    A tuple, so that it passes through whatever shards a module.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def warpers(self) -> list[Any]:
        """Return the logits processors that `generate` itself applies for these settings, in its order."""
        from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        found: list[Any] = [TopKLogitsWarper(self.top_k)] if self.top_k else []
        found += [TopPLogitsWarper(self.top_p)] if self.top_p < 1 else []
        found += [MinPLogitsWarper(self.min_p)] if self.min_p > 0 else []
        return found

    def apply(self, scores: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return scores in which filtered tokens have probability 0.

        The set that is kept has no gradient. A filtered score is the lowest finite number and not minus infinity, of
        which an entropy would be NaN.

        Args:
            scores: (n, V) logits, divided by the temperature.
            keep: (n,) one token a row that stays in any case: one that was drawn when the weights were others.
        """
        import torch

        left, warpers = scores.detach(), self.warpers()
        if not warpers:
            return scores
        for warper in warpers:
            left = warper(None, left)
        filtered = left == -float("inf")
        if keep is not None:
            filtered = filtered.scatter(-1, keep[:, None], False)
        return scores.masked_fill(filtered, torch.finfo(scores.dtype).min)


@dataclass(frozen=True)
class Sampling:
    """A sampling distribution and its limits; temperature 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_new_tokens: int = 1024
    max_batch_tokens: int = 262_144

    def __post_init__(self) -> None:
        """Check the numbers, by the bounds of the settings.

        Raises:
            ConfigError: one is out of range.
        """
        for name in ("top_k", "max_new_tokens", "max_batch_tokens"):
            expect_count(name, getattr(self, name), least=int(name != "top_k"))
        for name in SAMPLING_BOUNDS:
            expect(name, getattr(self, name), Real, "a number")
        require_all(self, SAMPLING_BOUNDS)

    @classmethod
    def for_training(cls, config: Config) -> Sampling:
        """Return what `--temperature` and its siblings say.

        Raises:
            ConfigError: there is a repetition penalty, which the scores of an update do not know.
        """
        s = config.sampling
        if s.repetition_penalty != 1:
            raise ConfigError(
                f"`repetition_penalty` is {s.repetition_penalty:g}, but training scores tokens without it, so updates "
                "would be off-policy: leave it out, or set `--eval_repetition_penalty` for evaluation."
            )
        return cls(
            s.temperature,
            s.top_p,
            s.top_k,
            s.min_p,
            s.repetition_penalty,
            s.max_new_tokens_per_turn,
            s.max_tokens_per_generate_batch,
        )

    @classmethod
    def for_evaluation(cls, config: Config) -> Sampling:
        """Return what `--eval_temperature` and its siblings say."""
        e, s = config.eval_sampling, config.sampling
        return cls(
            e.eval_temperature,
            e.eval_top_p,
            e.eval_top_k,
            e.eval_min_p,
            e.eval_repetition_penalty,
            s.max_new_tokens_per_turn,
            s.max_tokens_per_generate_batch,
        )

    @property
    def filters(self) -> Filters:
        """The filters that shape the distribution; none where decoding is greedy."""
        return Filters() if self.temperature == 0 else Filters(self.top_k, self.top_p, self.min_p)

    def describe(self) -> str:
        """Return the effective values in one line, as tables and logs print them."""
        if self.temperature == 0:
            return f"greedy, at most {self.max_new_tokens} tokens a turn"
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        values = ", ".join(f"{name} {getattr(self, name):g}" for name in names)
        return f"{values}, at most {self.max_new_tokens} tokens a turn"

    def generation_config(self, pad_id: int, end_ids: list[int]) -> Any:
        """Return a `GenerationConfig` in which every field that shapes the distribution is set."""
        from transformers import GenerationConfig

        greedy = self.temperature == 0
        shape = {} if greedy else {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        if not greedy and self.min_p > 0:
            shape["min_p"] = self.min_p
        return GenerationConfig(
            do_sample=not greedy,
            num_beams=1,
            repetition_penalty=self.repetition_penalty,
            max_new_tokens=self.max_new_tokens,
            pad_token_id=pad_id,
            eos_token_id=end_ids,
            use_cache=True,
            **shape,
        )
