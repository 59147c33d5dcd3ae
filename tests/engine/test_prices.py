"""Costs from the registry's prices: known only where tokens and both prices are known."""

from __future__ import annotations

import pytest

from harness.engine.prices import priced
from harness.types import Usage

PRICE = {"input": 2.0, "output": 8.0, "cached_input": 0.5}
SOME = Usage(input_tokens=1000, output_tokens=500, cached_tokens=400, requests=1)


def test_tokens_times_price() -> None:
    assert priced(SOME, PRICE).cost == pytest.approx((600 * 2 + 400 * 0.5 + 500 * 8) / 1e6)


def test_without_a_price_of_its_own_cached_input_costs_what_input_costs() -> None:
    assert priced(SOME, {"input": 2.0, "output": 8.0}).cost == pytest.approx((1000 * 2 + 500 * 8) / 1e6)


def test_what_the_endpoint_says_wins() -> None:
    assert priced(Usage(1000, 500, requests=1, cost=0.25), PRICE).cost == 0.25


@pytest.mark.parametrize("price", [{}, {"input": 2.0}, {"output": 8.0}])
def test_half_a_price_is_no_price(price: dict[str, float]) -> None:
    assert priced(SOME, price).cost is None


def test_unreported_tokens_have_no_cost() -> None:
    assert priced(Usage(requests=1, unreported=1), PRICE).cost is None
