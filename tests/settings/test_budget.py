"""How a budget is written, what is refused, and which of two holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.settings.budget import BudgetLimits, flags_of
from harness.settings.resolver import Resolution, resolve

Write = Callable[[str, str], Path]


def limits(target: str = "toy-env", *sets: str, **flags: str) -> BudgetLimits:
    return resolved(target, *sets, **flags).limits


def resolved(target: str = "toy-env", *sets: str, **flags: str) -> Resolution:
    return resolve(target, {"model": "reference/null", **flags}, sets)


def bounds(found: BudgetLimits) -> tuple[float | None, int | None, float | None]:
    return found.max_cost, found.max_tokens_total, found.max_time


@pytest.fixture
def suite(write: Write) -> str:
    write("s.toml", '[budget]\nmax_cost = 5\nmax_time = "1h30m"\n\n[[eval]]\nenv_id = "toy-env"\n')
    return "s.toml"


def test_without_a_word_there_is_no_bound(here: Path) -> None:
    assert bounds(limits()) == (None, None, None)
    assert not limits() and limits(max_time="1s")


def test_flags_are_read_from_text(here: Path) -> None:
    found = limits(max_cost="2.50", max_tokens_total="1000000", max_time="90")
    assert bounds(found) == (2.5, 1_000_000, 90.0)
    assert found.sources == {
        "max_cost": "--max-cost 2.50", "max_tokens_total": "--max-tokens-total 1000000", "max_time": "--max-time 90",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("0.2", 0.2)]
)
def test_times_have_units(here: Path, text: str, seconds: float) -> None:
    assert limits(max_time=text).max_time == pytest.approx(seconds)


@pytest.mark.parametrize("bound", ["max_cost", "max_tokens_total", "max_time"])
@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much", "", "1e999", "9" * 400])
def test_what_is_no_bound_is_refused_by_name(here: Path, bound: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"--{bound.replace('_', '-')} {text}.*: must be"):
        limits(**{bound: text})


@pytest.mark.parametrize("bound", ["max_cost", "max_tokens_total", "max_time"])
def test_a_whole_number_that_no_float_holds_is_no_bound_of_a_file(write: Write, bound: str) -> None:
    write("s.toml", f'[budget]\n{bound} = {"9" * 400}\n[[eval]]\nenv_id = "toy-env"\n')
    with pytest.raises(ConfigError, match=f"budget.{bound} = 9.*: must be"):
        limits("s.toml")


@pytest.mark.parametrize("text", ["1.5", "12k"])
def test_tokens_are_whole(here: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="whole number of tokens"):
        limits(max_tokens_total=text)


@pytest.mark.parametrize("text", ["1h30", "5x", "h", "1 h", "-5m"])
def test_a_time_that_is_none(here: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="90s, 30m, 1h30m"):
        limits(max_time=text)


def test_a_suite_file_has_a_table_for_it(suite: str) -> None:
    found = limits(suite)
    assert bounds(found) == (5.0, None, 5400.0)
    assert found.sources["max_cost"] == "s.toml: budget.max_cost = 5"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("max_cots = 5", 'budget.max_cots: unknown key; did you mean "max_cost"?'),
        ("max_cost = true", "budget.max_cost = true: must be an amount of US dollars"),
        ('max_cost = "5"', "must be an amount of US dollars"),
        ("max_cost = 0", "must be an amount of US dollars"),
        ("max_tokens_total = 1.0", "must be a whole number of tokens"),
        ("max_time = false", "must be a duration above 0"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_place(write: Write, table: str, words: str) -> None:
    write("s.toml", f'[budget]\n{table}\n\n[[eval]]\nenv_id = "toy-env"\n')
    with pytest.raises(ConfigError, match=r"s\.toml: budget") as refused:
        limits("s.toml")
    assert words in str(refused.value)


def test_it_is_a_table(write: Write) -> None:
    write("s.toml", 'budget = 5\n\n[[eval]]\nenv_id = "toy-env"\n')
    with pytest.raises(ConfigError, match=r"s.toml: budget: must be a table: \[budget\]"):
        limits("s.toml")


@pytest.mark.parametrize(
    "text",
    [
        'max_cost = 5\n[[eval]]\nenv_id = "toy-env"\n',
        '[[eval]]\nenv_id = "toy-env"\nmax_time = 5\n',
        '[[eval]]\nenv_id = "toy-env"\n[eval.budget]\nmax_cost = 5\n',
        '[[ablation]]\nenv_id = "toy-env"\nmax_tokens_total = 5\n[ablation.sweep]\nshuffle_seed = [1, 2]\n',
    ],
)
def test_no_single_run_has_one(write: Write, text: str) -> None:
    write("s.toml", text)
    with pytest.raises(ConfigError, match="a budget applies to all runs of the file together: set it once"):
        limits("s.toml")


def test_of_flag_and_file_the_smaller_holds_and_the_other_is_told(suite: str) -> None:
    smaller = resolved(suite, max_cost="2", max_time="1h")
    assert bounds(smaller.limits) == (2.0, None, 3600.0)
    assert not [notice for notice in smaller.notices if "max" in notice]
    larger = resolved(suite, max_cost="9", max_tokens_total="100")
    assert bounds(larger.limits) == (5.0, 100, 5400.0)
    assert [notice for notice in larger.notices if "max" in notice] == [
        "--max-cost 9 has no effect: s.toml: budget.max_cost = 5 is smaller; use --set budget.max_cost=9"
    ]


def test_set_beats_both_and_none_takes_it_away(suite: str) -> None:
    found = limits(suite, "budget.max_cost=9", "budget.max_time=none", max_cost="2", max_time="1h")
    assert bounds(found) == (9.0, None, None)
    assert found.sources == {"max_cost": "--set budget.max_cost=9"}
    assert limits(suite, 'budget.max_time="10m"').max_time == 600


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("budget.max_cots=5", 'unknown setting; did you mean "budget.max_cost"?'),
        ("budget=5", "unknown setting"),
        ("toy-env:budget.max_cost=5", "a budget applies to all runs of the invocation together; remove toy-env:"),
        ("budget.max_cost=-5", "--set budget.max_cost=-5: must be an amount"),
    ],
)
def test_a_set_that_is_wrong(here: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        limits("toy-env", text)
    assert words in str(refused.value)


def test_the_file_that_repeats_a_run_holds_none_of_it(suite: str) -> None:
    [run] = resolved(suite).runs
    assert "budget" not in run.to_toml() and "max_cost" not in str(run.described())


def test_a_price_may_be_said_by_the_endpoint_itself(write: Write) -> None:
    entry = '[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://localhost:1/v1"\nprice = "reported"\n'
    write("configs/endpoints.toml", entry)
    [run] = resolve("toy-env", {"model": "a"}).runs
    assert run.endpoints[0].price == {}
    write("again.toml", run.to_toml())
    [again] = resolve("again.toml", {}).runs
    assert again.endpoints[0].price == {}


@pytest.mark.parametrize("price", ["{}", '"known"', "3"])
def test_a_price_that_is_none(write: Write, price: str) -> None:
    entry = f'[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "http://localhost:1/v1"\nprice = {price}\n'
    write("configs/endpoints.toml", entry)
    with pytest.raises(ConfigError, match=r'price: must be a table of US dollars.*or "reported"'):
        resolve("toy-env", {"model": "a"})


def test_the_way_on_is_read_back_from_a_manifest_however_it_was_edited() -> None:
    met = {"max_cost": 0.5, "max_tokens_total": None, "max_time": 60.0, "spent": {"cost": 1.2}, "reached": "max_cost"}
    assert flags_of(met) == ["--max-cost", "2", "--max-time", "60"]
    assert flags_of({**met, "reached": None}) == ["--max-cost", "0.5", "--max-time", "60"]
    assert flags_of({**met, "spent": {"cost": 0.5 - 1e-12}}) == ["--max-cost", "1", "--max-time", "60"]
    unknown = {**met, "spent": {"cost": None}}  # it ended for a reply of unknown cost: no larger one is needed
    assert flags_of(unknown) == ["--max-cost", "0.5", "--max-time", "60"]
    assert flags_of({}) == flags_of({"max_cost": "5", "max_time": True, "max_tokens_total": -1, "spent": 7}) == []
    assert flags_of({"max_cost": 1.0, "spent": {"cost": float("inf")}, "reached": "max_cost"}) == ["--max-cost", "1"]
