"""What a reply cost: what its endpoint says, else what the price list of the `prices` extra says, else its tokens at
the registry's price. Owns that order and the arithmetic; an unknown price stays unknown and is never 0.

This is the one door to `genai_prices`. Its data come with the package: nothing is fetched."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from harness.core.errors import ModelError
from harness.core.loopback import is_loopback_url, litellm_provider
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Usage
from harness.settings.endpoints import Endpoint

EXTRA = "pip install 'bench-harness[prices]'"

_PER = 1_000_000
"""Prices are in US dollars for a million tokens."""

_TELLING = frozenset({"openrouter.ai"})
"""Hosts that document a cost in every reply."""

_SAMPLE = Usage(input_tokens=1000, output_tokens=1000, requests=1)
"""Asked of a price list, to learn whether it knows a model."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A model in the price list of the extra. Prices may depend on a reply's length, so each reply is looked up."""

    model: str
    url: str
    """Of its endpoint; only hosts that the list knows have a price, whatever a model elsewhere is called."""

    def cost_of(self, usage: Usage) -> float | None:
        """US dollars; None if the list does not know the host or the model."""
        from genai_prices import Usage as Tokens
        from genai_prices import calc_price

        tokens = Tokens(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=min(usage.cached_tokens, usage.input_tokens),
        )
        provider = litellm_provider(self.url)
        try:
            if provider is None:
                found = calc_price(tokens, self.model, provider_api_url=self.url)
            else:
                found = calc_price(tokens, self.model, provider_id=provider)
            cost = float(found.total_price)
        except (LookupError, ValueError, ArithmeticError):
            return None
        return cost if math.isfinite(cost) and cost >= 0 else None


@dataclass(frozen=True, slots=True)
class Pricing:
    """What is known of a model's price before it is asked. Built by `pricing_of`."""

    listed: Listed | None = None
    """In the extra's list; None if that is not installed or does not know the model."""
    price: Mapping[str, float] | None = None
    """The registry's."""
    tells: bool = False
    """Whether the endpoint is known to say what a reply cost."""
    is_free: bool = False
    """The embedded reference server costs nothing, as long as nobody gives it a price."""

    @property
    def is_known(self) -> bool:
        """Whether a reply will have a cost, if its endpoint keeps its word."""
        return self.is_free or self.tells or self.listed is not None or _is_whole(self.price)

    def priced(self, usage: Usage) -> Usage:
        """`usage` with its cost, as far as that can be known."""
        if self.listed is not None and usage.cost is None and not usage.unreported:
            usage = replace(usage, cost=self.listed.cost_of(usage))
        return priced(usage, self.price or {})


def pricing_of(endpoints: Sequence[Endpoint]) -> Pricing:
    """What is known of the price of a model at its endpoints.

    Which replica answers is not known to a run: a price counts only if it is that of all.
    """
    first = endpoints[0]
    price = first.price if all(each.price == first.price for each in endpoints) else None
    listed = [_listed(each.model, each.url) for each in endpoints]
    samples = [None if each is None else each.cost_of(_SAMPLE) for each in listed]
    return Pricing(
        listed=listed[0] if samples[0] is not None and len(set(samples)) == 1 else None,
        price=price,
        tells=all(each.price == {} or urlsplit(each.url).hostname in _TELLING for each in endpoints),
        is_free=all(not each.url and each.price is None for each in endpoints),
    )


@cache
def _listed(model: str, url: str) -> Listed | None:
    if is_loopback_url(url) or importlib.util.find_spec("genai_prices") is None:
        return None
    found = Listed(model, url)
    return None if found.cost_of(_SAMPLE) is None else found


def _is_whole(price: Mapping[str, float] | None) -> bool:
    return price is not None and "input" in price and "output" in price


def priced(usage: Usage, price: Mapping[str, float]) -> Usage:
    """`usage` with its cost, unless the endpoint reported one, reported no tokens, or half the price is missing.

    Args:
        usage: Of one reply.
        price: `input`, `output` and, where cached input is cheaper, `cached_input`, in dollars a million tokens.
    """
    if usage.cost is not None or usage.unreported or not _is_whole(price):
        return usage
    cached = min(usage.cached_tokens, usage.input_tokens)  # whatever an endpoint says: no reply earns money
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
    pricing: Pricing
    spend: Callable[[Usage, Pricing, str], None]
    """Told of every reply as soon as it is there: its usage, how it is priced, and the model's name."""
    check: Callable[[], None]
    """Called before every request; raises `BudgetSpent` if none may be sent any more."""

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
        """Ask the model and price its reply.

        Raises:
            BudgetSpent: the budget is spent; nothing was sent.
        """
        self.check()
        try:
            response = await self.inner(prompt, tools=tools, sampling_args=sampling_args)
        except ModelError as error:
            if error.wasted is not None:
                error.wasted = self._spent(error.wasted)
            raise
        wasted = None if response.wasted is None else self._spent(response.wasted)
        return replace(response, usage=self._spent(response.usage), wasted=wasted)

    def _spent(self, usage: Usage) -> Usage:
        usage = self.pricing.priced(usage)
        self.spend(usage, self.pricing, self.model)
        return usage
