"""Retry rules: retryable statuses, back-off, and parsing of `Retry-After`. The waiting itself is in `chat`."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRY_AFTER_CAP = 120.0
"""Maximum seconds of a `Retry-After`. Providers' rate windows last a minute, but some servers send a day. After the
capped wait the request is retried, and it fails as `rate_limit` after its last retry."""

BACKOFF_BASE = 0.5
"""Upper end of the first back-off, in seconds."""

BACKOFF_CAP = 30.0
"""Upper end of any back-off, in seconds."""

SPREAD = 0.25
"""Random share added to a `Retry-After`, so that rejected requests do not all return at the same time."""

BAD_REPLY_RETRIES = 2
"""Retries after a 200 that cannot be parsed: enough for a proxy error, while a wrong address fails soon."""

_RETRY_STATUS = frozenset({408, 409, 429})

_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")

_EPOCH_FLOOR = 1e9
"""A larger reset value (2001 in Unix seconds) is a point in time, not a duration."""

_MILLI_EPOCH_FLOOR = 1e12


def retryable_status(status: int) -> bool:
    """Whether the same request may succeed later: 408, 409, 429 and 5xx; never 400, 401, 403, 404 or 422."""
    return status in _RETRY_STATUS or status >= 500


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of retries, and back-off."""

    retries: int = 6
    """Number of retries after the first attempt."""
    base: float = BACKOFF_BASE
    cap: float = BACKOFF_CAP
    retry_after_cap: float = RETRY_AFTER_CAP
    rng: random.Random = field(default_factory=random.Random)

    def delay(self, attempt: int, retry_after: float | None = None) -> float:
        """Seconds to wait after failed attempt number `attempt` (1-based). Without `retry_after`: full jitter, uniform
        over [0, min(cap, base · 2^(attempt-1))] (Brooker, "Exponential Backoff And Jitter", 2015). With it: that long,
        plus up to a quarter, never less. If `retry_after` is below `base` (some servers send 0), the jittered back-off
        if that is longer, so that the retries are not used up at once."""
        own = self.rng.uniform(0.0, min(self.cap, self.base * 2.0 ** min(attempt - 1, 30)))
        asked = self.believed(retry_after)
        if asked is None:
            return own
        asked += self.rng.uniform(0.0, SPREAD * asked)
        return asked if asked >= self.base else max(asked, own)

    def believed(self, retry_after: float | None) -> float | None:
        """The `retry_after` to use: capped at `retry_after_cap`; None stays None."""
        return None if retry_after is None else min(retry_after, self.retry_after_cap)


def read_retry_after(headers: Mapping[str, str], status: int, wall: float | None = None) -> float | None:
    """Parse the wait that a reply asks for, in seconds and uncapped; None if it has none.

    In this order: `retry-after-ms`; `Retry-After` as seconds or as an HTTP-date (relative to the reply's own `Date`, in
    case the local clock is wrong); for 429 also `x-ratelimit-reset-*` of the limits whose `x-ratelimit-remaining-*` is
    0, or of all if none is 0.

    Args:
        headers: Headers of the reply; names are case-insensitive if the mapping's are.
        status: HTTP status of the reply.
        wall: Unix time; the local clock's by default.
    """
    wall = time.time() if wall is None else wall
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("Retry-After")
    if text is not None:
        seconds = _number(text)
        if seconds is None:
            seconds = _until(text, headers.get("Date"), wall)
        if seconds is not None:
            return seconds
    return _read_reset(headers, wall) if status == 429 else None


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None


def _until(text: str, date: str | None, wall: float) -> float | None:
    then = _http_date(text)
    if then is None:
        return None
    now = _http_date(date) if date is not None else None
    return max(0.0, then - (wall if now is None else now))


def _http_date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):  # OverflowError for an absurdly long time zone
        return None


def _read_reset(headers: Mapping[str, str], wall: float) -> float | None:
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
    """Parse `1s`, `6m0s`, `120ms`, `7.66`, a Unix time in seconds or milliseconds, or an RFC 3339 time. Returns the
    seconds from now, or None."""
    value = _number(text)
    if value is not None:
        if value >= _MILLI_EPOCH_FLOOR:
            value /= 1000.0
        return max(0.0, value - wall) if value >= _EPOCH_FLOOR else value
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text.strip():
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp() - wall)
    except (ValueError, OverflowError):
        return None
