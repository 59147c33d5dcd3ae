"""Limits of one endpoint, identified by URL and key: slots for requests in flight, requests and tokens per minute, and
adaptive concurrency. Decides which request is next. Nothing is sent or retried here. The caller holds a slot from send
to reply."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.models.clock import Clock

CUT = 0.5
"""Factor by which a 429 reduces the window of requests in flight. Half, as in TCP: two cuts leave a quarter."""

GROWTH = 0.05
"""Share of the bound by which the window grows, per as many successful requests as it has slots; at least one slot.
From half to full takes ten rounds of replies; +1 per round would take hundreds of requests."""

COOLDOWN = 1.0
"""Minimum seconds between two cuts of the window; a longer `Retry-After` extends it."""

BURST_SECONDS = 1.0
"""Unused part of a rate that may be spent at once, in seconds. With 1, a minute has at most 61 seconds' worth."""

TYPICAL_OUTPUT = 256
"""Estimated output tokens of a request without `max_tokens`, until the first reply has reported usage."""


class Bucket:
    """Token bucket for a rate per minute. Its level may become negative, so that a large request is delayed but not
    blocked for ever."""

    __slots__ = ("_burst", "_level", "_stamp", "per_minute")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self._burst = max(1.0, per_minute / 60.0 * BURST_SECONDS)
        self._level = self._burst
        self._stamp = now

    def wait(self, cost: float, now: float) -> float:
        """Return the seconds until a request of `cost` may be sent; 0 if it may be sent now."""
        rate = self.per_minute / 60.0
        self._level = min(self._burst, self._level + (now - self._stamp) * rate)
        self._stamp = now
        missing = min(cost, self._burst) - self._level
        return 0.0 if missing <= 1e-9 else missing / rate

    def take(self, cost: float) -> None:
        """Charge `cost`; a negative cost is a refund."""
        self._level -= cost


@dataclass(eq=False, slots=True)
class Waiter:
    """A queued request."""

    lane: str
    tokens: int
    """Estimated tokens of the request."""
    future: asyncio.Future[None]
    """Set when the request gets its slot."""


class LaneQueue:
    """Queue of requests: first in, first out within a lane, round robin between lanes. A lane contains the requests of
    one run."""

    __slots__ = ("_lanes", "_turns")

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Waiter]] = {}
        self._turns: deque[str] = deque()

    def put(self, waiter: Waiter) -> None:
        """Append `waiter` to its lane."""
        lane = self._lanes.get(waiter.lane)
        if lane is None:
            self._lanes[waiter.lane] = lane = deque[Waiter]()
            self._turns.append(waiter.lane)
        lane.append(waiter)

    def head(self) -> Waiter | None:
        """Return the next waiter; None if the queue is empty. Cancelled waiters are removed here, since removing each
        one at once would need a scan of its lane."""
        while self._turns:
            lane = self._lanes[self._turns[0]]
            while lane:
                if not lane[0].future.done():
                    return lane[0]
                lane.popleft()
            del self._lanes[self._turns.popleft()]
        return None

    def pop(self) -> None:
        """Remove the waiter returned by `head`; its lane moves to the end of the round."""
        name = self._turns.popleft()
        lane = self._lanes[name]
        lane.popleft()
        if lane:
            self._turns.append(name)
        else:
            del self._lanes[name]


class Limiter:
    """Limiter of one endpoint, identified by URL and key. For one event loop only.

    The window, the current maximum of requests in flight, starts at the bound. A 429 halves it, at most once per
    back-off and only if the request was sent after the last cut; every success widens it again, up to the bound. It is
    never smaller than one slot.

    Args:
        bound: Maximum number of requests in flight; `math.inf` for no bound.
        rpm: Requests per minute, or None.
        tpm: Tokens per minute, or None. A request is charged its estimated prompt plus `max_tokens` (or the running
            mean of replies) when it is sent, and corrected when the reply reports its usage.
        clock: Clock; for tests.
    """

    def __init__(
        self, bound: float, rpm: float | None = None, tpm: float | None = None, *, clock: Clock | None = None
    ) -> None:
        if bound < 1:
            raise ValueError(f"a limiter needs at least one slot, not {bound}")
        self._clock = clock or Clock()
        self.bound = bound
        self.cap = math.inf
        self.window: float = bound
        self.in_flight = 0
        self.peak = 0
        """Highest number of requests in flight so far."""
        self.queued = 0
        """Number of requests waiting for a slot."""
        self._slots = bound
        self._urgent = LaneQueue()
        self._normal = LaneQueue()
        self._rpm: Bucket | None = None
        self._tpm: Bucket | None = None
        self._typical_output = float(TYPICAL_OUTPUT)
        self._last_cut = -math.inf
        self._next_cut = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._sleeping: dict[str, list[float]] = {}
        self.slow_down(rpm, tpm)

    # --- settings merged from all runs that share the limiter ---

    def widen(self, bound: float) -> None:
        """Raise the bound to `bound`, if that is larger: runs that share the limiter get the largest bound."""
        bound = min(bound, self.cap)
        if bound > self.bound:
            untouched = self.window == self.bound
            self.bound = bound
            if untouched:
                self._resize(bound)

    def fit(self, cap: float) -> None:
        """Never allow more than `cap` requests in flight, for any requested bound."""
        self.cap = max(1.0, cap)
        if self.bound > self.cap:
            self.bound = self.cap
            self._resize(min(self.window, self.cap))

    def slow_down(self, rpm: float | None, tpm: float | None) -> None:
        """Lower the rates to `rpm` and `tpm` where these are lower: a provider's limit applies to all runs together."""
        now = self._clock.now()
        if rpm is not None and (self._rpm is None or rpm < self._rpm.per_minute):
            self._rpm = Bucket(rpm, now)
        if tpm is not None and (self._tpm is None or tpm < self._tpm.per_minute):
            self._tpm = Bucket(tpm, now)

    @property
    def counts_tokens(self) -> bool:
        """Whether a limit of tokens per minute is set, so that token estimates are needed."""
        return self._tpm is not None

    def estimate(self, prompt_tokens: int, max_tokens: int | None) -> int:
        """Estimate the tokens of a request, to charge before its reply is received."""
        return prompt_tokens + int(self._typical_output if max_tokens is None else max_tokens)

    # --- slots ---

    def try_acquire(self, tokens: int = 0) -> bool:
        """Take a slot if one is free and no request waits; return whether it was taken."""
        if self.queued or self.in_flight >= self._slots or self._pace(tokens):
            return False
        self._grant(tokens)
        return True

    async def acquire(self, lane: str = "", urgent: bool = False, tokens: int = 0) -> None:
        """Wait for a slot and take it; the caller returns it with `release`.

        Args:
            lane: Name of the requesting run; lanes take turns.
            urgent: Whether to serve the request before all requests that are not urgent.
            tokens: Estimated tokens of the request.
        """
        if self.try_acquire(tokens):
            return
        waiter = Waiter(lane, tokens, asyncio.get_running_loop().create_future())
        (self._urgent if urgent else self._normal).put(waiter)
        self.queued += 1
        # Starts the timer for a request that waits for a rate; other waiters are woken by `release`.
        self._pump()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if not waiter.future.cancelled():
                # Granted and cancelled in the same iteration of the event loop: the slot and the charge must not leak.
                self.withdraw(tokens)
                raise
            self.queued -= 1
            raise

    def release(self) -> None:
        """Return a slot to the limiter."""
        self.in_flight -= 1
        if self.queued:
            self._pump()

    def withdraw(self, tokens: int) -> None:
        """Return the slot of a request that was not sent, and refund its charge."""
        if self._rpm is not None:
            self._rpm.take(-1.0)
        if self._tpm is not None:
            self._tpm.take(-tokens)
        self.release()

    def _grant(self, tokens: int) -> None:
        self.in_flight += 1
        if self.in_flight > self.peak:
            self.peak = self.in_flight
        if self._rpm is not None:
            self._rpm.take(1.0)
        if self._tpm is not None:
            self._tpm.take(tokens)

    def _pace(self, tokens: int) -> float:
        """Seconds that a request of `tokens` has to wait for the rate limits."""
        if self._rpm is None and self._tpm is None:
            return 0.0
        now = self._clock.now()
        wait = 0.0 if self._rpm is None else self._rpm.wait(1.0, now)
        return wait if self._tpm is None else max(wait, self._tpm.wait(tokens, now))

    def _pump(self) -> None:
        """Grant slots to waiting requests, as far as slots and rate limits allow."""
        while self.queued and self.in_flight < self._slots:
            queue, waiter = self._urgent, self._urgent.head()
            if waiter is None:
                queue, waiter = self._normal, self._normal.head()
            if waiter is None:
                return
            wait = self._pace(waiter.tokens)
            if wait > 0.0:
                due = self._clock.now() + wait
                if due < self._due:  # a small urgent request may be due earlier
                    if self._timer is not None:
                        self._timer.cancel()
                    self._due = due
                    self._timer = self._clock.call_later(wait, self._on_timer)
                return
            queue.pop()
            self.queued -= 1
            self._grant(waiter.tokens)
            waiter.future.set_result(None)

    def _on_timer(self) -> None:
        self._timer, self._due = None, math.inf
        self._pump()

    def _resize(self, window: float) -> None:
        self.window = window
        self._slots = float(int(window)) if math.isfinite(window) else window
        self._pump()

    # --- adaptation to replies ---

    def succeeded(self) -> None:
        """Record a successful reply: widen the window."""
        if self.window < self.bound:
            bound = self.bound if math.isfinite(self.bound) else self.window
            # At most doubling per round, so that a window of one does not grow by the step of a large bound.
            step = min(max(1.0, bound * GROWTH), self.window)
            self._resize(min(self.bound, self.window + step / self.window))

    def used(self, estimated: int, usage_input: int, usage_output: int) -> None:
        """Replace the estimated tokens of a request by the reported usage."""
        if self._tpm is not None:
            self._typical_output += (usage_output - self._typical_output) * 0.05
            self._tpm.take(usage_input + usage_output - estimated)
            self._pump()

    def refused(self, sent_at: float, retry_after: float | None, estimated: int = 0) -> None:
        """Record a 429: halve the window, at most once per back-off window.

        Args:
            sent_at: Send time of the request, on the limiter's clock. If it was sent before the last cut, the window
                is not cut again.
            retry_after: Seconds to wait, as requested by the endpoint; None if it sent no value.
            estimated: Tokens charged for the request; refunded.
        """
        now = self._clock.now()
        if self._tpm is not None:
            self._tpm.take(-estimated)
        if sent_at < self._last_cut or now < self._next_cut:
            return
        base = self.window if math.isfinite(self.window) else float(max(self.in_flight, 2))
        self._resize(max(1.0, base * CUT))
        self._last_cut = now
        self._next_cut = now + max(COOLDOWN, retry_after or 0.0)

    # --- status display ---

    @contextmanager
    def sleeping(self, why: str, seconds: float) -> Generator[None]:
        """Count a request as backing off for `seconds` while the block runs, for `waiting_note`."""
        until = self._clock.now() + seconds
        ends = self._sleeping.setdefault(why, [])
        ends.append(until)
        try:
            yield
        finally:
            ends.remove(until)

    def waiting_note(self) -> str:
        """Return the reasons why requests wait although fewer are in flight than requested, and how long they wait; ""
        without reason."""
        now = self._clock.now()
        parts = [
            f"{len(ends)} backing off ({why}), the next for {max(0.0, min(ends) - now):.0f} s more"
            for why, ends in sorted(self._sleeping.items())
            if ends
        ]
        if self.window < self.bound:
            bound = f"{self.bound:.0f}" if math.isfinite(self.bound) else "unlimited"
            parts.append(f"{int(self._slots)} of {bound} slots after 429")
        if self._timer is not None and self.queued:
            names = " and ".join(
                f"{bucket.per_minute:g} {name}" for bucket, name in ((self._rpm, "rpm"), (self._tpm, "tpm")) if bucket
            )
            parts.append(f"{self.queued} waiting for {names}")
        return ", ".join(parts)
