"""What a reply cost, where its endpoint does not say: the registry's price of its tokens. Owns the arithmetic; an
unknown price stays unknown and is never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.types import Chat, JsonDict, ModelResponse, Prompt, Usage

_PER = 1_000_000
"""Prices are in US dollars for a million tokens."""


def priced(usage: Usage, price: Mapping[str, float]) -> Usage:
    """`usage` with its cost, unless the endpoint reported one, reported no tokens, or half the price is missing.

    Args:
        usage: Of one reply.
        price: `input`, `output` and, where cached input is cheaper, `cached_input`, in dollars a million tokens.
    """
    if usage.cost is not None or usage.unreported or "input" not in price or "output" not in price:
        return usage
    cached = usage.cached_tokens
    dollars = (
        (usage.input_tokens - cached) * price["input"]
        + cached * price.get("cached_input", price["input"])
        + usage.output_tokens * price["output"]
    )
    return replace(usage, cost=dollars / _PER)


@dataclass(frozen=True, slots=True)
class PricedChat:
    """A `Chat` whose replies carry what they cost."""

    inner: Chat
    price: Mapping[str, float]

    @property
    def model(self) -> str:
        """The model's name at its endpoint."""
        return self.inner.model

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        """Ask the model and price its reply."""
        response = await self.inner(prompt, tools=tools, sampling_args=sampling_args)
        return replace(response, usage=priced(response.usage, self.price))
