"""Price of a reply: the cost that its endpoint reports, or else the price in the list of the `prices` extra, or else
the price per token in the endpoint registry. An unknown price is never taken to be 0. Only this module imports
`genai_prices`. The package contains the prices, so nothing is downloaded."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import urlsplit

from harness.core.loopback import is_loopback_url, litellm_provider
from harness.core.types import Usage
from harness.settings.endpoints import Endpoint

EXTRA = "pip install 'bench-harness[prices]'"

_PER = 1_000_000
"""Number of tokens that a price refers to: prices are in US dollars per million tokens."""

_TELLING = frozenset({"openrouter.ai"})
"""Hosts that, according to their documentation, report the cost in every reply."""

_SAMPLE = Usage(input_tokens=1000, output_tokens=1000, requests=1)
"""Sample usage, to test whether a price list contains a model."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A model in the price list of `genai_prices`. Each reply is looked up, since prices may depend on its length."""

    model: str
    url: str
    """URL of the model's endpoint: the list has prices only for models at known hosts."""

    def cost_of(self, usage: Usage) -> float | None:
        """Return the cost in US dollars of a reply with this usage; None if the list lacks the host or the model."""
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
    """How the cost of a model's replies is determined. Created by `pricing_of`."""

    listed: Listed | None = None
    """Entry in the list of `genai_prices`; None if this package is not installed or does not contain the model."""
    price: Mapping[str, float] | None = None
    """Price in the endpoint registry; None if it has none."""
    tells: bool = False
    """Whether the endpoint is known to report the cost of each reply."""
    is_free: bool = False
    """Whether calls are free, as those of the embedded reference server are unless a price is configured."""

    @property
    def is_known(self) -> bool:
        """Whether the cost of each reply will be known, provided that the endpoint reports it as documented."""
        return self.is_free or self.tells or self.listed is not None or _is_whole(self.price)

    def priced(self, usage: Usage) -> Usage:
        """Return `usage` with its cost added, if that is known."""
        if self.listed is not None and usage.cost is None and not usage.unreported:
            usage = replace(usage, cost=self.listed.cost_of(usage))
        return priced(usage, self.price or {})


def pricing_of(endpoints: Sequence[Endpoint]) -> Pricing:
    """Return the pricing of a model at its endpoints. A run does not know which replica answers, so a price is used
    only if all replicas have the same price."""
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
    """Return `usage` with its cost; unchanged if the endpoint reported a cost or no tokens, or the price is incomplete.

    Args:
        usage: Usage of one reply.
        price: Keys `input`, `output` and, if cached input is cheaper, `cached_input`, in dollars per million tokens.
    """
    if usage.cost is not None or usage.unreported or not _is_whole(price):
        return usage
    cached = min(usage.cached_tokens, usage.input_tokens)  # clamp, so that no reported value gives a negative cost
    dollars = (
        (usage.input_tokens - cached) * price["input"]
        + cached * price.get("cached_input", price["input"])
        + usage.output_tokens * price["output"]
    )
    return replace(usage, cost=dollars / _PER)
