"""When a failed request is tried again. Owns the retryable statuses, the back-off and the reading of `Retry-After`;
does not wait itself and does not know which request it is."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRY_AFTER_CAP = 120.0
"""Most seconds a `Retry-After` can ask for. Providers' own windows are a minute; a header that says a day (seen in the
field) would look like a hang. The request is then tried again, and fails as `rate_limit` when its retries are spent."""

BACKOFF_BASE = 0.5
"""Seconds: upper end of the first back-off."""

BACKOFF_CAP = 30.0
"""Seconds: upper end of any back-off."""

SPREAD = 0.25
"""Share of a `Retry-After` that is added at random, so that the refused do not come back as one."""

BAD_REPLY_RETRIES = 2
"""Further attempts after a 200 that cannot be read: a proxy's hiccup heals at once, a wrong address never does."""

_RETRY_STATUS = frozenset({408, 409, 429})

_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")

_EPOCH_FLOOR = 1e9
"""A reset larger than this (2001 in Unix seconds) is a moment, not a duration."""

_MILLI_EPOCH_FLOOR = 1e12


def retryable_status(status: int) -> bool:
    """Whether the same request may succeed later: 408, 409, 429 and 5xx; never 400, 401, 403, 404 or 422."""
    return status in _RETRY_STATUS or status >= 500


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon."""

    retries: int = 6
    """Further attempts after the first."""
    base: float = BACKOFF_BASE
    cap: float = BACKOFF_CAP
    retry_after_cap: float = RETRY_AFTER_CAP
    rng: random.Random = field(default_factory=random.Random)

    def delay(self, attempt: int, retry_after: float | None = None) -> float:
        """Seconds to wait after failed attempt number `attempt` (1-based).

        Without `retry_after`: full jitter, uniform over [0, min(cap, base · 2^(attempt-1))] (Brooker, "Exponential
        Backoff And Jitter", 2015). With it: that long, plus up to a quarter, never less; below `base` (some say 0)
        the jittered back-off if that is longer, lest all retries be spent in no time.
        """
        own = self.rng.uniform(0.0, min(self.cap, self.base * 2.0 ** min(attempt - 1, 30)))
        asked = self.believed(retry_after)
        if asked is None:
            return own
        asked += self.rng.uniform(0.0, SPREAD * asked)
        return asked if asked >= self.base else max(asked, own)

    def believed(self, retry_after: float | None) -> float | None:
        """What a reply asks to wait for, as far as it is obeyed: by this call, and by whatever else it slows down."""
        return None if retry_after is None else min(retry_after, self.retry_after_cap)


def read_retry_after(headers: Mapping[str, str], status: int, wall: float) -> float | None:
    """Seconds that a reply asks to wait for, uncapped; None when it does not say.

    In this order: `retry-after-ms`; `Retry-After` as seconds or as an HTTP-date (read against the reply's own `Date`,
    so that a clock that is off here does no harm); for 429 also `x-ratelimit-reset-*` of the limits whose
    `x-ratelimit-remaining-*` is 0, or of all when none is.

    Args:
        headers: Of the reply; names compare case-insensitively if the mapping does.
        status: Of the reply.
        wall: Unix time here.
    """
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
    except (ValueError, OverflowError):  # the latter for a time zone of a thousand digits
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
    # An exhausted limit has to come back; when nobody says which one is, the soonest is worth a try.
    return max(exhausted) if exhausted else min(others, default=None)


def _reset_seconds(text: str, wall: float) -> float | None:
    """`1s`, `6m0s`, `120ms`, `7.66`, a Unix time in seconds or milliseconds, or an RFC 3339 time."""
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
