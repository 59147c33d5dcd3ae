"""What a reply cost: as its endpoint says, else by the extra's list, else by the registry; known only where tokens and
both prices are known."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tables import for_each_row

from harness.core.types import Usage
from harness.engine.budget import Budget, BudgetedRun, price_notices
from harness.engine.prices import Listed, Pricing, priced, pricing_of
from harness.settings.budget import BudgetLimits
from harness.settings.endpoints import Endpoint

PRICE = {"input": 2.0, "output": 8.0, "cached_input": 0.5}
SOME = Usage(input_tokens=1000, output_tokens=500, cached_tokens=400, requests=1)


def test_tokens_times_price() -> None:
    assert priced(SOME, PRICE).cost == pytest.approx((600 * 2 + 400 * 0.5 + 500 * 8) / 1e6)


def test_without_a_price_of_its_own_cached_input_costs_what_input_costs() -> None:
    assert priced(SOME, {"input": 2.0, "output": 8.0}).cost == pytest.approx((1000 * 2 + 500 * 8) / 1e6)


def test_no_reply_earns_money_whatever_is_said_of_the_cache() -> None:
    odd = Usage(10, 0, cached_tokens=1_000_000, requests=1)
    assert priced(odd, {"input": 2.0, "cached_input": 0.5, "output": 1.0}).cost == pytest.approx(10 * 0.5 / 1e6)


def test_what_the_endpoint_says_wins() -> None:
    assert priced(Usage(1000, 500, requests=1, cost=0.25), PRICE).cost == 0.25


@for_each_row("price", [{}, {"input": 2.0}, {"output": 8.0}])
def test_half_a_price_is_no_price(price: dict[str, float]) -> None:
    assert priced(SOME, price).cost is None


def test_unreported_tokens_have_no_cost() -> None:
    assert priced(Usage(requests=1, unreported=1), PRICE).cost is None


# The extra's list

OPENAI = "https://api.openai.com/v1"
MILLION = Usage(1_000_000, 1_000_000, requests=1)


def listed(model: str, url: str = OPENAI) -> float | None:
    return Listed(model, url).cost_of(MILLION)


def test_the_list_prices_models_at_hosts_that_it_knows() -> None:
    assert listed("gpt-4o-mini") == pytest.approx(0.15 + 0.60)
    assert listed("gpt-4o-mini", "litellm://openai") == pytest.approx(0.15 + 0.60)
    assert listed("gpt-4o-mini", "https://inference.example/v1") is None, "that host may ask what it likes"
    assert listed("no-such-model") is None
    assert listed("gpt-4o-mini", "litellm://no-such-provider") is None


def test_cached_input_is_cheaper_by_the_list_too() -> None:
    cached = Usage(1_000_000, 0, cached_tokens=1_000_000, requests=1)
    assert Listed("gpt-4o-mini", OPENAI).cost_of(cached) == pytest.approx(0.075)


def test_reply_then_list_then_registry() -> None:
    own = {"input": 1000.0, "output": 1000.0}
    found = pricing_of([Endpoint(OPENAI, None, "gpt-4o-mini", price=own)])
    assert found.priced(Usage(1_000_000, 1_000_000, requests=1, cost=0.25)).cost == 0.25
    assert found.priced(MILLION).cost == pytest.approx(0.75)
    assert pricing_of([Endpoint(OPENAI, None, "no-such-model", price=own)]).priced(MILLION).cost == 2000.0
    assert pricing_of([Endpoint(OPENAI, None, "no-such-model")]).priced(MILLION).cost is None
    assert found.priced(Usage(requests=1, unreported=1)).cost is None, "tokens that nobody knows have no price"


def test_a_price_that_the_list_overrules_is_told() -> None:
    overruled = Endpoint(OPENAI, None, "gpt-4o-mini", price={"input": 1.0, "output": 1.0})
    assert price_notices([BudgetedRun("gsm8k", [overruled]), BudgetedRun("wordle", None, [[overruled]])]) == [
        f"{name}: the price of gpt-4o-mini in its [[endpoint]] is ignored, because the genai-prices package has a "
        "price for this model"
        for name in ("gsm8k", "a judge of wordle")
    ]


def test_a_listed_price_is_enough_for_a_budget() -> None:
    listed = Endpoint(OPENAI, None, "gpt-4o-mini")
    budget = Budget(BudgetLimits(max_cost=1.0))
    budget.begin([BudgetedRun("a", [listed])])
    pricing = pricing_of([listed])
    budget.charge(pricing.priced(MILLION), pricing, "gpt-4o-mini")
    assert budget.words() == "$0.750 of $1.00"


def test_a_model_on_this_machine_is_not_looked_up_whatever_its_name() -> None:
    assert pricing_of([Endpoint("http://localhost:8000/v1", None, "gpt-4o-mini")]) == Pricing()


OFFLINE = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"asks the network: {arguments}")

sys.addaudithook(refuse)
from harness.engine.prices import Listed
from harness.core.types import Usage
import threading
cost = Listed("gpt-4o-mini", "https://api.openai.com/v1").cost_of(Usage(1000, 1000, requests=1))
print(cost is not None, [each.name for each in threading.enumerate()])
"""

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "genai_prices":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from importlib.util import find_spec
import harness.engine.prices as prices
prices.importlib.util.find_spec = lambda name: None
from harness.settings.budget import BudgetLimits
from harness.settings.endpoints import Endpoint
found = prices.pricing_of([Endpoint("https://api.openai.com/v1", None, "gpt-4o-mini")])
print(found.is_known, "genai_prices" in sys.modules)
"""


def test_the_list_is_read_from_its_package_and_never_fetched() -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True ['MainThread']\n"), done.stderr


def test_without_the_extra_the_price_is_unknown() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "False False\n"), done.stderr
