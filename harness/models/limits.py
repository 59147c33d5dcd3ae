"""Limits of one endpoint, identified by URL and key: slots for requests in flight, requests and tokens per minute, and
adaptive concurrency. Also decides which request is sent next. This module does not send or retry requests. The caller
holds a slot from sending a request until the reply arrives."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.models.clock import Clock
from harness.models.delays import Delay

CUT = 0.5
"""Factor by which a 429 reduces the window (the current maximum of requests in flight). TCP halves it, too."""

GROWTH = 0.05
"""Share of its upper bound by which the window (the current maximum of requests in flight) grows in one round, that is,
after as many successful requests as the window has slots. Growing from half to full takes ten rounds."""

COOLDOWN = 1.0
"""Minimum seconds between two reductions of the window; a longer `Retry-After` extends this time."""

BURST_SECONDS = 1.0
"""Seconds of unused rate that may be spent at once. With 1, at most 61 seconds' worth is sent in a minute."""

TYPICAL_OUTPUT = 256
"""Estimated output tokens of a request without `max_tokens`, until a reply has reported its usage."""


class Bucket:
    """Token bucket for a rate per minute. The level of the bucket may become negative, so that a large request is
    delayed but not blocked forever."""

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
        """Subtract `cost` from the level of the bucket; a negative cost is a refund."""
        self._level -= cost


@dataclass(eq=False, slots=True)
class Waiter:
    """A queued request."""

    lane: str
    tokens: int
    """Estimated tokens of the request."""
    future: asyncio.Future[None]
    """Future that is done when the request gets its slot."""


class LaneQueue:
    """Queue of requests in lanes, with one lane for each run: first in, first out within a lane, and round robin
    between lanes."""

    __slots__ = ("_lanes", "_turns")

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Waiter]] = {}
        self._turns: deque[str] = deque()

    def put(self, waiter: Waiter) -> None:
        """Append a waiting request to its lane."""
        lane = self._lanes.get(waiter.lane)
        if lane is None:
            self._lanes[waiter.lane] = lane = deque[Waiter]()
            self._turns.append(waiter.lane)
        lane.append(waiter)

    def head(self) -> Waiter | None:
        """Return the next waiting request; None if the queue is empty. Cancelled requests are removed only here, since
        removing each of them at once would require a scan of its lane."""
        while self._turns:
            lane = self._lanes[self._turns[0]]
            while lane:
                if not lane[0].future.done():
                    return lane[0]
                lane.popleft()
            del self._lanes[self._turns.popleft()]
        return None

    def pop(self) -> None:
        """Remove the request that `head` returned, and move its lane to the end of the round."""
        name = self._turns.popleft()
        lane = self._lanes[name]
        lane.popleft()
        if lane:
            self._turns.append(name)
        else:
            del self._lanes[name]


class Limiter:
    """Limiter of one endpoint, identified by URL and key. Must be used in one event loop only.

    The window, which is the current maximum of requests in flight, starts at its upper bound. A reply with status 429
    halves the window, at most once per back-off and only if the request was sent after the last reduction. Every
    successful request widens the window again, up to the bound. The window never has less than one slot.

    Args:
        bound: Maximum number of requests in flight; `math.inf` for no bound.
        rpm: Requests per minute, or None.
        tpm: Tokens per minute, or None. A request is charged for its estimated prompt tokens plus `max_tokens` (or the
            mean length of replies so far) when it is sent. The charge is corrected when the reply reports its usage.
        clock: Clock, replaceable in tests.
    """

    def __init__(
        self, bound: float, rpm: float | None = None, tpm: float | None = None, *, clock: Clock | None = None
    ) -> None:
        if bound < 1:
            raise ValueError(f"the number of concurrent requests must be at least 1, not {bound}")
        self._clock = clock or Clock()
        self.bound = bound
        self.cap = math.inf
        self.window: float = bound
        self.in_flight = 0
        self.peak = 0
        """Highest number of requests in flight so far."""
        self.queued = 0
        """Number of requests that wait for a slot."""
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
        """Raise the limiter's bound to `bound` if that is larger. Runs that share a limiter get their largest bound."""
        bound = min(bound, self.cap)
        if bound > self.bound:
            untouched = self.window == self.bound
            self.bound = bound
            if untouched:
                self._resize(bound)

    def fit(self, cap: float) -> None:
        """Never allow more than `cap` requests in flight, even if a larger bound is requested."""
        self.cap = max(1.0, cap)
        if self.bound > self.cap:
            self.bound = self.cap
            self._resize(min(self.window, self.cap))

    def slow_down(self, rpm: float | None, tpm: float | None) -> None:
        """Lower the rates to `rpm` and `tpm` if these are lower: a provider's limit applies to all runs together."""
        now = self._clock.now()
        if rpm is not None and (self._rpm is None or rpm < self._rpm.per_minute):
            self._rpm = Bucket(rpm, now)
        if tpm is not None and (self._tpm is None or tpm < self._tpm.per_minute):
            self._tpm = Bucket(tpm, now)

    @property
    def counts_tokens(self) -> bool:
        """Whether token estimates are needed, because a limit of tokens per minute is set."""
        return self._tpm is not None

    def estimate(self, prompt_tokens: int, max_tokens: int | None) -> int:
        """Estimate the tokens of a request, with which it is charged before the reply is received."""
        return prompt_tokens + int(self._typical_output if max_tokens is None else max_tokens)

    # --- slots ---

    def try_acquire(self, tokens: int = 0) -> bool:
        """Take a slot if one is free and no request waits. Return whether a slot was taken."""
        if self.queued or self.in_flight >= self._slots or self._pace(tokens):
            return False
        self._grant(tokens)
        return True

    async def acquire(self, lane: str = "", urgent: bool = False, tokens: int = 0) -> None:
        """Wait for a slot and take it; the caller returns it with `release`.

        Args:
            lane: Name of the run that sends the request. Runs take turns.
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
        """Give a slot back to the limiter."""
        self.in_flight -= 1
        if self.queued:
            self._pump()

    def withdraw(self, tokens: int) -> None:
        """Give back the slot of a request that was not sent, and refund its charge."""
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
        """Return the seconds for which a request of `tokens` tokens has to wait because of the rate limits."""
        if self._rpm is None and self._tpm is None:
            return 0.0
        now = self._clock.now()
        wait = 0.0 if self._rpm is None else self._rpm.wait(1.0, now)
        return wait if self._tpm is None else max(wait, self._tpm.wait(tokens, now))

    def _pump(self) -> None:
        """Give slots to waiting requests, as far as free slots and rate limits allow."""
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
        """Record a successful reply, and widen the window."""
        if self.window < self.bound:
            bound = self.bound if math.isfinite(self.bound) else self.window
            # At most doubling per round, so that a window of one does not grow by the step of a large bound.
            step = min(max(1.0, bound * GROWTH), self.window)
            self._resize(min(self.bound, self.window + step / self.window))

    def used(self, estimated: int, usage_input: int, usage_output: int) -> None:
        """Correct the charge of a request from its estimated tokens to the reported usage."""
        if self._tpm is not None:
            self._typical_output += (usage_output - self._typical_output) * 0.05
            self._tpm.take(usage_input + usage_output - estimated)
            self._pump()

    def refused(self, sent_at: float, retry_after: float | None, estimated: int = 0) -> None:
        """Record a reply with status 429: halve the window, at most once per back-off.

        Args:
            sent_at: Time, on the limiter's clock, at which the request was sent. If this was before the last reduction
                of the window, the window is not reduced again.
            retry_after: Seconds to wait, as requested by the endpoint; None if the endpoint sent no value.
            estimated: Tokens with which the request was charged, which are refunded.
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
        """Context manager during which a request counts as backing off for `seconds`, as reported by `delays`."""
        until = self._clock.now() + seconds
        ends = self._sleeping.setdefault(why, [])
        ends.append(until)
        try:
            yield
        finally:
            ends.remove(until)

    def delays(self) -> list[Delay]:
        """Return the reasons why requests wait although the maximum number in flight is not reached. Thread-safe."""
        now = self._clock.now()
        sleeping = [(why, list(ends)) for why, ends in sorted(self._sleeping.items())]
        found = [Delay(f"{len(ends)} backing off ({why}), the next", min(ends) - now) for why, ends in sleeping if ends]
        if self.window < self.bound:
            bound = f"{self.bound:.0f}" if math.isfinite(self.bound) else "unlimited"
            found.append(Delay(f"limited to {int(self._slots)} of {bound} slots after status 429"))
        if self._timer is not None and self.queued:
            names = " and ".join(
                f"{bucket.per_minute:g} {name}" for bucket, name in ((self._rpm, "rpm"), (self._tpm, "tpm")) if bucket
            )
            found.append(Delay(f"{self.queued} waiting for {names}"))
        return found
