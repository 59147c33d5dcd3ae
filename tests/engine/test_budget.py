"""What an invocation spends is counted reply by reply, and a schedule that asks begins nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_parts import fresh, generated, items_of, outline, play, standing
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.core.records import Failed, Record, Scored
from harness.core.types import Usage
from harness.engine.budget import Budget, BudgetedRun, price_notices, spent_in
from harness.engine.derived import Derivation, How
from harness.engine.prices import Pricing, pricing_of
from harness.engine.scheduler import Bounds
from harness.settings.budget import BudgetLimits
from harness.settings.endpoints import Endpoint
from harness.store.journal import Journal
from harness.store.journal_index import Recorded
from harness.store.rundir import RunDir

PAID = Pricing(price={"input": 1.0, "output": 1.0})
FREE = Pricing(is_free=True)
CENT = Usage(10, 5, requests=1, cost=0.01)
SILENT = Usage(requests=1, unreported=1)


class Clock:
    """Time in the test's hands."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def spend(budget: Budget, usage: Usage, times: int = 1, pricing: Pricing = PAID) -> list[bool]:
    """Whether anything might begin after each of these replies."""
    found: list[bool] = []
    for _ in range(times):
        budget.charge(usage, pricing, "some/model")
        found.append(budget.may_start())
    return found


# Counting


def test_ten_replies_at_a_cent_are_ten_cents() -> None:
    assert sum([0.01] * 10) < 0.1, "binary fractions fall short, which is the point"
    budget = Budget(BudgetLimits(max_cost=0.1))
    assert spend(budget, CENT, 10) == [True] * 9 + [False]
    assert budget.reached == "max_cost"


def test_tokens_are_those_in_and_out() -> None:
    budget = Budget(BudgetLimits(max_tokens_total=45))
    assert spend(budget, CENT, 3) == [True, True, False]
    assert (budget.reached, budget.tokens) == ("max_tokens_total", 45)


def test_without_a_bound_everything_is_counted_and_nothing_stops() -> None:
    budget = Budget()
    assert spend(budget, CENT, 1000) == [True] * 1000
    assert budget.cost == pytest.approx(10) and budget.tokens == 15_000
    assert (budget.words(), budget.note(), budget.flags(), budget.seconds_left) == ("", "", [], None)


def test_time_is_up_when_the_clock_says_so() -> None:
    clock = Clock()
    budget = Budget(BudgetLimits(max_time=60), clock=clock)
    clock.now += 59
    assert budget.may_start() and budget.seconds_left == 1
    clock.now += 1
    assert not budget.may_start() and budget.seconds_left == 0
    assert budget.reached == "max_time"
    clock.now -= 50
    assert not budget.may_start(), "what was stopped stays stopped"


def test_what_stops_it_is_told_once() -> None:
    told: list[str | None] = []
    budget = Budget(BudgetLimits(max_cost=0.02, max_tokens_total=15))
    budget.on_reached = lambda: told.append(budget.reached)
    spend(budget, CENT, 5)
    assert told == ["max_tokens_total"]
    assert budget.cost == pytest.approx(0.05), "what is in flight is counted to its end"


def test_a_score_that_asks_nobody_is_made_when_the_money_is_spent_but_not_when_the_time_is_up() -> None:
    clock = Clock()
    budget = Budget(BudgetLimits(max_cost=0.01, max_time=60), clock=clock)
    spend(budget, CENT)
    assert (budget.may_start(), budget.may_score()) == (False, True)
    clock.now += 60
    assert (budget.may_start(), budget.may_score()) == (False, False)


# What is unknown


def test_a_reply_of_unknown_cost_ends_a_bound_on_dollars() -> None:
    budget = Budget(BudgetLimits(max_cost=5.0, sources={"max_cost": "--max-cost 5"}))
    assert spend(budget, Usage(10, 5, requests=1)) == [False]
    assert budget.note() == (
        "the budget is reached (--max-cost 5): the cost of a reply of some/model is unknown, so it "
        "cannot be enforced; resume the run with a price in the [[endpoint]] table of the model (or pip install "
        "'bench-harness[prices]'), or without max_cost"
    )
    assert budget.to_json()["spent"] | {"seconds": 0} == {
        "cost": None, "unpriced": 1, "tokens": 15, "unreported": 0, "seconds": 0,
    }  # fmt: skip
    assert budget.words() == "unknown of $5.00"


@for_each_row("cost", [float("nan"), float("inf"), -0.5])
def test_a_cost_that_is_no_amount_is_unknown(cost: float) -> None:
    budget = Budget(BudgetLimits(max_cost=5.0))
    assert spend(budget, Usage(10, 5, requests=1, cost=cost)) == [False]
    assert (budget.cost, budget.unpriced) == (0.0, 1)


def test_unreported_tokens_end_a_bound_on_tokens_and_no_other() -> None:
    tokens = Budget(BudgetLimits(max_tokens_total=1000))
    assert spend(tokens, SILENT) == [False]
    assert "did not report the tokens" in tokens.note()
    dollars = Budget(BudgetLimits(max_cost=1.0))
    assert spend(dollars, Usage(requests=1, unreported=1, cost=0.1)) == [True]


def test_part_of_the_truth_is_a_lower_bound() -> None:
    budget = Budget(BudgetLimits(max_tokens_total=1000))
    spend(budget, CENT)
    spend(budget, SILENT)
    assert budget.words() == "at least 15 of 1,000 tokens"
    assert budget.to_json()["spent"]["tokens"] == 15 and budget.to_json()["spent"]["unreported"] == 1


def test_the_embedded_server_is_known_to_cost_nothing() -> None:
    budget = Budget(BudgetLimits(max_cost=0.01))
    assert spend(budget, Usage(10, 5, requests=1), 100, FREE) == [True] * 100
    assert budget.to_json()["spent"]["cost"] == 0.0
    priced = pricing_of([Endpoint("", None, "reference/oracle", price={"input": 8000.0, "output": 4000.0})])
    assert not priced.is_free and priced.priced(Usage(10, 5, requests=1)).cost == pytest.approx(0.1)


def test_nothing_asked_is_a_known_zero() -> None:
    assert Budget(BudgetLimits(max_cost=1.0)).to_json()["spent"]["cost"] == 0.0


# Words


def test_a_note_says_what_was_reached_and_how_to_go_on() -> None:
    budget = Budget(BudgetLimits(max_cost=0.05, sources={"max_cost": "s.toml: budget.max_cost = 0.05"}))
    spend(budget, CENT, 6)
    assert budget.note() == (
        "the budget is reached (s.toml: budget.max_cost = 0.05): $0.0600 spent; resume the run with a larger "
        "max_cost: it includes the amount already spent"
    )


def test_time_counts_anew_and_says_so() -> None:
    clock = Clock()
    budget = Budget(BudgetLimits(max_time=90), clock=clock)
    clock.now += 95
    budget.may_start()
    assert budget.note().endswith("1 min 35 s spent; resume the run to continue; the time limit then starts again")
    assert budget.flags() == ["--max-time", "90"]


def test_the_way_on_has_a_larger_bound_where_one_was_met() -> None:
    budget = Budget(BudgetLimits(max_cost=0.02, max_tokens_total=1000, max_time=60))
    assert budget.enlarged(["eval", "--max-cost", "0.02"]) == ["eval", "--max-cost", "0.02"], "nothing was met"
    spend(budget, CENT, 5)
    assert budget.flags() == ["--max-cost", "0.08", "--max-tokens-total", "1000", "--max-time", "60"]
    assert budget.enlarged(["eval", "--max-cost", "0.02", "-q"]) == ["eval", "--max-cost", "0.08", "-q"]
    assert budget.enlarged(["eval", "--max-cost=0.02"]) == ["eval", "--max-cost=0.08"]

    # The flag is there and has no effect: a larger one would have none either.
    other = Budget(BudgetLimits(max_cost=0.02, sources={"max_cost": "--set budget.max_cost=0.02"}))
    spend(other, CENT, 2)
    typed = ["eval", "--max-cost", "5", "--set", "budget.max_cost=0.02"]
    assert other.enlarged(typed) == [*typed, "--set", "budget.max_cost=0.04"]


def test_the_display_shows_every_bound() -> None:
    budget = Budget(BudgetLimits(max_cost=5.0, max_tokens_total=20_000, max_time=3600), clock=Clock())
    spend(budget, CENT, 12)
    assert budget.words() == "$0.120 of $5.00, 180 of 20,000 tokens, 0 s of 1 h 00 min"


# What earlier attempts spent


def write(path: Path, records: list[Record]) -> None:
    async def main() -> None:
        journal = Journal.open(path)
        for record in records:
            journal.submit(record)
        await journal.flush()
        journal.close()

    play(main)


def judgement(cost: float | None) -> dict[str, object]:
    return {"model": "judge", "usage": {"input_tokens": 100, "output_tokens": 1, "requests": 1, "cost": cost}}


def test_a_journal_is_counted_with_every_attempt_and_every_judge(tmp_path: Path) -> None:
    first, second, third = [items_of(number)[0] for number in range(3)]
    again = Failed(second.key, second.example.key, 0, "generation", "timeout", "timeout!", True, usage=CENT)
    early = generated(first, usage=CENT, state={"judgements": [judgement(0.5)]})
    records: list[Record] = [
        first.example, early,
        # Scored twice: each score repeats what the rollout had been told before it.
        Scored(first.key, "unscored", None, {}, {"*": "x"}, 0.0, {"judgements": [judgement(0.5), judgement(1.0)]}),
        Scored(first.key, "scored", 1.0, {}, {}, 0.0, {"judgements": [judgement(0.5), judgement(2.0)]}),
        second.example, again, generated(second, usage=CENT),
        third.example, generated(third, usage=Usage(), state={"judgements": "the environment's own"}),
    ]  # fmt: skip
    write(tmp_path / "j", records)
    found = [usage.cost for usage, _ in spent_in(tmp_path / "j")]
    assert found == [0.01, 0.5, 1.0, 2.0, 0.01, 0.01]
    budget = Budget(BudgetLimits(max_cost=5.0))
    endpoints = [Endpoint("http://localhost/v1", None, "m", price={"input": 1.0, "output": 1.0})]
    budget.begin([BudgetedRun("a", endpoints, journal=tmp_path / "j")])
    assert budget.to_json()["before"] == {"cost": pytest.approx(3.53), "tokens": 3 * 15 + 3 * 101}
    assert budget.may_start()


def test_what_had_no_cost_then_has_the_price_of_today(tmp_path: Path) -> None:
    item = items_of(0)[0]
    write(tmp_path / "j", [item.example, generated(item, usage=Usage(10, 5, requests=1))])
    endpoints = [Endpoint("http://localhost/v1", None, "m", price={"input": 8000.0, "output": 4000.0})]
    budget = Budget(BudgetLimits(max_cost=0.1))
    budget.begin([BudgetedRun("a", endpoints, journal=tmp_path / "j")])
    assert (budget.cost, budget.reached) == (pytest.approx(0.1), "max_cost")


def test_the_replies_of_a_run_that_asks_no_model_were_paid_for_by_another(tmp_path: Path) -> None:
    item = items_of(0)[0]
    write(tmp_path / "j", [item.example, generated(item, usage=CENT)])
    budget = Budget(BudgetLimits(max_cost=5.0))
    budget.begin([BudgetedRun("a", None, journal=tmp_path / "j")])
    assert budget.to_json()["before"] == {} and budget.cost == 0.0


@pytest.mark.parametrize(
    ("how", "only", "model", "expected"),
    [
        ("rescore", None, None, [2.0, 4.0]),  # its own judges; the rollouts, and what was said of them before, are not
        ("rescore", "unscored", None, [4.0]),  # nor is the score that it left alone
        ("replay", None, None, [0.5, 2.0, 4.0]),  # played anew without a model: judges are asked all the same
        ("replay", None, "m", [0.01, 0.5, 0.01, 2.0, 4.0]),
    ],
)
def test_a_run_that_is_made_from_another_has_paid_for_what_it_asked_itself(
    tmp_path: Path, how: How, only: str | None, model: str | None, expected: list[float]
) -> None:
    first, second = [items_of(number)[0] for number in range(2)]
    played: list[Record] = [
        first.example, generated(first, usage=CENT, state={"judgements": [judgement(0.5)]}),
        second.example, generated(second, usage=CENT),
    ]  # fmt: skip
    kept = Scored(first.key, "scored", 1.0, {}, {}, 0.0, {"judgements": [judgement(0.5), judgement(2.0)]})
    own = Scored(second.key, "scored", 1.0, {}, {}, 0.0, {"judgements": [judgement(4.0)]})
    parent = RunDir(tmp_path / "parent")
    parent.path.mkdir()
    write(parent.journal_path, [*played, kept, Scored(second.key, "unscored", None, {}, {"*": "x"})])
    write(tmp_path / "j", [*played, kept, own])
    derivation = Derivation(how, parent, Recorded.load(parent.journal_path), only, model)
    assert [usage.cost for usage, _ in spent_in(tmp_path / "j", derivation=derivation)] == expected


# Prices that nobody knows


def test_an_unknown_price_is_refused_with_every_way_out() -> None:
    unknown = [Endpoint("http://localhost:8000/v1", None, "mine")]
    half = [Endpoint("http://localhost:8000/v1", None, "half", price={"input": 1.0})]
    known = [Endpoint("http://localhost:8000/v1", None, "known", price={"input": 1.0, "output": 0.0})]
    runs = [BudgetedRun("gsm8k", unknown), BudgetedRun("wordle", known, [half])]
    budget = Budget(BudgetLimits(max_cost=5.0, sources={"max_cost": "--max-cost 5"}))
    with pytest.raises(ConfigError) as refused:
        budget.begin(runs)
    assert str(refused.value).startswith(
        "--max-cost 5: the price of mine (gsm8k), half (a judge of wordle) is unknown, so this budget cannot be "
        "enforced."
    )
    for way in ("price = {", 'price = "reported"', "bench-harness[prices]", "max_tokens_total"):
        assert way in str(refused.value)
    Budget(BudgetLimits(max_tokens_total=5)).begin(runs)
    Budget(BudgetLimits(max_time=5)).begin(runs)


def test_endpoints_that_say_their_cost_are_taken_at_their_word() -> None:
    told = [Endpoint("http://localhost:8000/v1", None, "m", price={})]
    router = [Endpoint("https://openrouter.ai/api/v1", None, "some/unheard-of")]
    budget = Budget(BudgetLimits(max_cost=5.0))
    budget.begin([BudgetedRun("a", told), BudgetedRun("b", router)])
    assert budget.words() == "$0.00 of $5.00"
    for endpoints in (told, router):
        pricing = pricing_of(endpoints)
        assert pricing.is_known
        assert pricing.priced(Usage(requests=1, cost=0.25)).cost == 0.25


def test_replicas_must_agree_on_a_price() -> None:
    one, other = ({"input": 1.0, "output": 1.0}, {"input": 2.0, "output": 1.0})
    replicas = [Endpoint(f"http://localhost:{port}/v1", None, "m", price=p) for port, p in ((1, one), (2, other))]
    assert not pricing_of(replicas).is_known
    assert pricing_of(replicas[:1]).is_known
    with pytest.raises(ConfigError, match=r"of m \(a, whose replicas have different prices: give all .*\) is unknown"):
        Budget(BudgetLimits(max_cost=5.0)).begin([BudgetedRun("a", replicas)])


def test_a_price_of_a_model_that_no_list_has_is_not_remarked_upon() -> None:
    assert price_notices([BudgetedRun("a", [Endpoint("http://localhost/v1", None, "m", price={"input": 1.0})])]) == []


# The schedule


def bounds(budget: Budget, generation: int = 3) -> Bounds:
    return Bounds(generation, 3, 100, may_start=budget.may_start)


def test_a_schedule_begins_nothing_more_and_finishes_what_is_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        budget = Budget(BudgetLimits(max_cost=0.02))
        async with standing(tmp_path / "j", fresh(10), bounds(budget)) as run:
            await run.settled()
            assert list(run.generation.open) == ["0.0", "1.0", "2.0"]
            spend(budget, CENT)
            run.generation.end("0.0")
            await run.settled()
            assert list(run.generation.open) == ["1.0", "2.0", "3.0"]
            spend(budget, CENT)
            run.generation.end("1.0")
            await run.settled()
            assert list(run.generation.open) == ["2.0", "3.0"], "those that were begun before go on"
            assert await run.finish() is None
            assert run.generation.started == ["0.0", "1.0", "2.0", "3.0"]
            assert (run.progress.done, run.generation.cancelled) == (4, [])
        assert [line for line in outline(tmp_path / "j") if line.startswith("scored")] == [
            f"scored key-{number}.0" for number in range(4)
        ]

    play(main)


def test_a_schedule_asks_the_clock_before_every_dispatch(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        budget = Budget(BudgetLimits(max_time=10), clock=clock)
        async with standing(tmp_path / "j", fresh(10), bounds(budget, generation=1)) as run:
            for number in range(4):
                await run.settled()
                assert list(run.generation.open) == [f"{number}.0"]
                clock.now += 3
                run.generation.end(f"{number}.0")
            assert await run.finish() is None
            assert run.generation.started == ["0.0", "1.0", "2.0", "3.0"], "begun at 0, 3, 6 and 9 seconds"

    play(main)


def test_a_budget_that_is_spent_before_it_begins_asks_for_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        budget = Budget(BudgetLimits(max_cost=0.01))
        spend(budget, CENT)
        async with standing(tmp_path / "j", fresh(10), bounds(budget)) as run:
            assert await run.finish() is None
            assert (run.generation.started, run.progress.done) == ([], 0)

    play(main)
