"""When to try again: statuses, back-off and every form of Retry-After."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from harness.models.retry import RETRY_AFTER_CAP, RetryPolicy, read_retry_after, retryable_status

NOW = 1_700_000_000.0


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_may_heal_is_retried(status: int) -> None:
    assert retryable_status(status)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422])
def test_what_will_not_heal_is_never_retried(status: int) -> None:
    assert not retryable_status(status)


def read(at: int = 429, /, **headers: str) -> float | None:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return read_retry_after(named, at, NOW)


def test_seconds() -> None:
    assert read(Retry_After="7") == 7.0
    assert read(503, retry_after="0.25") == 0.25


def test_http_date_is_read_against_the_replys_own_date() -> None:
    at = format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True)
    assert read(Retry_After=at) == 30.0
    # The server's clock is an hour behind ours, and its dates agree with each other.
    skewed = format_datetime(datetime.fromtimestamp(NOW - 3600 + 5, UTC), usegmt=True)
    date = format_datetime(datetime.fromtimestamp(NOW - 3600, UTC), usegmt=True)
    assert read(Retry_After=skewed, Date=date) == 5.0
    past = format_datetime(datetime.fromtimestamp(NOW - 9, UTC), usegmt=True)
    assert read(Retry_After=past) == 0.0


def test_milliseconds_are_finer_and_win() -> None:
    assert read(retry_after_ms="250", Retry_After="1") == 0.25


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("120ms", 0.12), ("1h2m3.5s", 3723.5), ("7.66", 7.66), ("7.66s", 7.66)],
)
def test_reset_durations(value: str, seconds: float) -> None:
    assert read(x_ratelimit_reset_requests=value) == pytest.approx(seconds)


def test_reset_moments() -> None:
    assert read(X_RateLimit_Reset=str(int(NOW) + 12)) == pytest.approx(12.0)
    assert read(X_RateLimit_Reset=str((int(NOW) + 12) * 1000)) == pytest.approx(12.0)
    moment = datetime.fromtimestamp(NOW + 12, UTC).isoformat().replace("+00:00", "Z")
    assert read(anthropic_ratelimit_tokens_reset=moment) == pytest.approx(12.0)


def test_the_exhausted_limit_decides_between_resets() -> None:
    both = {"x_ratelimit_reset_requests": "1s", "x_ratelimit_reset_tokens": "20s"}
    assert read(**both) == 1.0
    assert read(**both, x_ratelimit_remaining_tokens="0", x_ratelimit_remaining_requests="12") == 20.0


def test_resets_are_read_for_429_only() -> None:
    assert read(500, x_ratelimit_reset_requests="20s") is None


@pytest.mark.parametrize("value", ["soon", "-3", "nan", "inf", "", "Mon, 99 Foo 2026"])
def test_nonsense_is_ignored(value: str) -> None:
    assert read(Retry_After=value) is None
    assert read(x_ratelimit_reset_tokens=value) is None


ABSURD_ZONE = "Wed, 21 Oct 2015 07:28:00 +9999999999999999999"


@pytest.mark.parametrize("name", ["Retry-After", "retry-after-ms", "x-ratelimit-reset-requests"])
def test_a_time_zone_beyond_all_bounds_is_no_time(name: str) -> None:
    assert read_retry_after({name: ABSURD_ZONE}, 429, NOW) is None
    date = format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True)
    assert read(Retry_After=date, Date=ABSURD_ZONE) == 30.0


NAMES = ("Retry-After", "retry-after-ms", "x-ratelimit-reset-requests", "anthropic-ratelimit-tokens-reset")
HTTP_DATES = st.from_regex(r"[A-Z][a-z]{2}, \d{1,9} Oct \d{1,9} \d\d:\d\d:\d\d [+-]\d{1,30}", fullmatch=True)
TIMES = st.from_regex(r"\d{1,9}-\d\d-\d\dT\d\d:\d\d:\d\d([+-]\d\d:\d\d)?", fullmatch=True)


@given(st.sampled_from(NAMES), st.text(max_size=40) | HTTP_DATES | TIMES | st.floats().map(str))
def test_no_header_breaks_the_reader_or_makes_a_wait_without_end(name: str, text: str) -> None:
    policy = RetryPolicy(rng=random.Random(0))
    asked = read_retry_after(CIMultiDict({name: text, "Date": text}), 429, NOW)
    assert asked is None or asked >= 0.0
    assert 0.0 <= policy.delay(1, asked) <= 1.25 * RETRY_AFTER_CAP


def test_an_absurd_value_is_capped() -> None:
    delay = RetryPolicy().delay(1, 86_400.0)
    assert RETRY_AFTER_CAP <= delay <= RETRY_AFTER_CAP * 1.25


@given(st.integers(1, 2000), st.floats(0.5, 100.0), st.integers())
def test_delays_keep_their_bounds(attempt: int, asked: float, seed: int) -> None:
    policy = RetryPolicy(base=0.5, cap=30.0, rng=random.Random(seed))
    assert 0.0 <= policy.delay(attempt) <= min(30.0, 0.5 * 2 ** min(attempt - 1, 20))
    assert asked <= policy.delay(attempt, asked) <= asked * 1.25


def test_retry_after_zero_still_backs_off() -> None:
    policy = RetryPolicy(rng=random.Random(1))
    assert sum(policy.delay(attempt, 0.0) for attempt in range(1, 7)) > 1.0
