"""Rules for retries: retryable HTTP statuses, back-off, and parsing of `Retry-After`. The module `chat` waits."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRY_AFTER_CAP = 120.0
"""Maximum number of seconds to wait because of a `Retry-After`. Providers count requests per minute, but some servers
ask clients to wait for a day."""

SPREAD = 0.25
"""Maximum share by which a `Retry-After` is randomly extended, so that requests are not retried all at once."""

BAD_REPLY_RETRIES = 2
"""Maximum number of retries after replies with status 200 that cannot be parsed. Retries help against a temporary error
of a proxy, but a wrong address should fail soon."""

_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")

_EPOCH_FLOOR = 1e9
"""Values of a reset header from this number on are a Unix time in seconds (after 2001) and not a duration. Values from
a thousand times this number on are a Unix time in milliseconds."""


def retryable_status(status: int) -> bool:
    """Return whether the same request may succeed later: true for 408, 409, 429 and 5xx, false for all others."""
    return status in (408, 409, 429) or status >= 500


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of retries of a request, and the waiting times before them."""

    retries: int = 6
    """Number of retries after the first attempt."""
    base: float = 0.5
    """Upper limit of the first back-off, in seconds."""
    cap: float = 30.0
    """Upper limit of every back-off, in seconds."""
    retry_after_cap: float = RETRY_AFTER_CAP
    rng: random.Random = field(default_factory=random.Random)

    def delay(self, attempt: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (1-based).

        Without `retry_after`: full jitter, uniform over [0, min(cap, base · 2^(attempt-1))] (Brooker, "Exponential
        Backoff And Jitter", 2015). With it: that many seconds, plus up to a quarter. If `retry_after` is below `base`
        (some servers send 0), the longer of the two waits, so that the retries are not used up at once."""
        own = self.rng.uniform(0.0, min(self.cap, self.base * 2.0 ** min(attempt - 1, 30)))
        asked = self.capped(retry_after)
        if asked is None:
            return own
        asked += self.rng.uniform(0.0, SPREAD * asked)
        return asked if asked >= self.base else max(asked, own)

    def capped(self, retry_after: float | None) -> float | None:
        """Limit `retry_after` to `retry_after_cap`; None stays None."""
        return None if retry_after is None else min(retry_after, self.retry_after_cap)


def read_retry_after(headers: Mapping[str, str], status: int, wall: float | None = None) -> float | None:
    """Return the seconds for which a reply asks the client to wait, with no upper limit; None if it does not ask.

    The headers are read in this order: `retry-after-ms`; `Retry-After` as seconds or as an HTTP-date (relative to the
    reply's own `Date`, in case the local clock is wrong); for status 429 also `x-ratelimit-reset-*` of the limits whose
    `x-ratelimit-remaining-*` is 0, or of all limits if none is 0.

    Args:
        headers: Headers of the reply; names are case-insensitive if the mapping's are.
        status: HTTP status of the reply.
        wall: Current Unix time; by default that of the local clock.
    """
    wall = time.time() if wall is None else wall
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("Retry-After")
    if text is not None:
        seconds = _number(text)
        if seconds is None and (then := _http_date(text)) is not None:
            now = _http_date(headers.get("Date", ""))
            seconds = max(0.0, then - (wall if now is None else now))
        if seconds is not None:
            return seconds
    return _read_reset(headers, wall) if status == 429 else None


def _number(text: str | None) -> float | None:
    """Parse a finite number that is not negative. Returns None for any other text."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None


def _http_date(text: str) -> float | None:
    """Parse an HTTP-date, and return it as a Unix time. Returns None for any other text."""
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):  # OverflowError for an absurdly long time zone
        return None


def _read_reset(headers: Mapping[str, str], wall: float) -> float | None:
    """Return the seconds until exhausted rate limits are reset, according to a reply's headers; None if unknown."""
    exhausted: list[float] = []
    others: list[float] = []
    for name, text in headers.items():
        lowered = name.lower()
        if not (lowered.startswith(("x-ratelimit-reset", "anthropic-ratelimit-")) and "reset" in lowered):
            continue
        seconds = _reset_seconds(text, wall)
        if seconds is not None:
            remaining = headers.get(lowered.replace("reset", "remaining"))
            (exhausted if _number(remaining) == 0.0 else others).append(seconds)
    # Exhausted limits must all reset; if none is marked as exhausted, the earliest reset is tried.
    return max(exhausted) if exhausted else min(others, default=None)


def _reset_seconds(text: str, wall: float) -> float | None:
    """Parse the value of a rate-limit reset header: `1s`, `6m0s`, `120ms`, `7.66`, a Unix time in seconds or
    milliseconds, or an RFC 3339 time. Returns the seconds from now; None for any other text."""
    value = _number(text)
    if value is not None:
        if value >= 1000.0 * _EPOCH_FLOOR:
            value /= 1000.0
        return max(0.0, value - wall) if value >= _EPOCH_FLOOR else value
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text.strip():
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - wall)
    except (ValueError, OverflowError):
        return None
