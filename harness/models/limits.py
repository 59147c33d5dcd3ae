"""How many requests, and how fast, go to one (url, key): slots in flight, requests and tokens a minute, and adaptive
concurrency. Owns who is served next; knows no HTTP and never retries. A slot is held from send to reply, by the caller.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from harness.models.clock import Clock, LoopClock, Timer

CUT = 0.5
"""What a 429 leaves of the window. Half is TCP's choice: two cuts in a row already mean a quarter of the load."""

GROWTH = 0.05
"""Share of the bound that a window's worth of successes gives back, at least one slot: from half to full in ten rounds
of replies, where +1 a round would take hundreds of requests."""

COOLDOWN = 1.0
"""Seconds after a cut in which no further one is made; `Retry-After` lengthens it."""

BURST_SECONDS = 1.0
"""Idle allowance that may be spent at once, in seconds of the rate: a minute holds at most 61 seconds' worth."""

TYPICAL_OUTPUT = 256
"""Output tokens assumed of a request without `max_tokens` before the first reply has reported any."""


class Bucket:
    """A rate per minute that may run into debt, so that one large request neither blocks for ever nor goes for free."""

    __slots__ = ("_burst", "_level", "_stamp", "per_minute")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self._burst = max(1.0, per_minute / 60.0 * BURST_SECONDS)
        self._level = self._burst
        self._stamp = now

    def wait(self, cost: float, now: float) -> float:
        """Seconds until a request of `cost` may go; 0 when it may go now."""
        rate = self.per_minute / 60.0
        self._level = min(self._burst, self._level + (now - self._stamp) * rate)
        self._stamp = now
        missing = min(cost, self._burst) - self._level
        return 0.0 if missing <= 1e-9 else missing / rate

    def take(self, cost: float) -> None:
        """Charge `cost`; a negative one is given back."""
        self._level -= cost


class Waiter:
    """A request in the queue: its lane, its estimated tokens and the future that grants its slot."""

    __slots__ = ("future", "lane", "tokens")

    def __init__(self, lane: str, tokens: int, future: asyncio.Future[None]) -> None:
        self.lane = lane
        self.tokens = tokens
        self.future = future


class LaneQueue:
    """First come, first served within a lane; one of each lane in turn between lanes."""

    __slots__ = ("_lanes", "_turns")

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Waiter]] = {}
        self._turns: deque[str] = deque()

    def put(self, waiter: Waiter) -> None:
        """Queue `waiter` at the end of its lane."""
        lane = self._lanes.get(waiter.lane)
        if lane is None:
            self._lanes[waiter.lane] = lane = deque[Waiter]()
            self._turns.append(waiter.lane)
        lane.append(waiter)

    def head(self) -> Waiter | None:
        """Who is next. Cancelled waiters are dropped on the way: removing them at once would cost a scan each."""
        while self._turns:
            lane = self._lanes[self._turns[0]]
            while lane:
                if not lane[0].future.done():
                    return lane[0]
                lane.popleft()
            del self._lanes[self._turns.popleft()]
        return None

    def pop(self) -> None:
        """Take the waiter that `head` showed; its lane goes to the end of the turn."""
        name = self._turns.popleft()
        lane = self._lanes[name]
        lane.popleft()
        if lane:
            self._turns.append(name)
        else:
            del self._lanes[name]

    def clear(self) -> None:
        """Forget everybody."""
        self._lanes.clear()
        self._turns.clear()


class Limiter:
    """The gate in front of one (url, key). One event loop only.

    The window starts at the bound. A 429 halves it, at most once a back-off window and only if the request was sent
    after the last cut; every success widens it again, up to the bound. It never falls below one slot.

    Args:
        bound: Most requests in flight; `math.inf` for no bound.
        rpm: Requests a minute, or None.
        tpm: Tokens a minute, or None. A request is charged its estimated prompt plus `max_tokens` (or the running mean
            of replies) when it is sent, and corrected when the reply reports its usage.
        clock: Time; for tests.
    """

    def __init__(
        self, bound: float, rpm: float | None = None, tpm: float | None = None, *, clock: Clock | None = None
    ) -> None:
        if bound < 1:
            raise ValueError(f"a limiter needs at least one slot, not {bound}")
        self._clock: Clock = clock or LoopClock()
        self.bound = bound
        self.cap = math.inf
        self.window: float = bound
        self.in_flight = 0
        self.peak = 0
        self._slots = bound
        self._queued = 0
        self._urgent = LaneQueue()
        self._normal = LaneQueue()
        self._rpm: Bucket | None = None
        self._tpm: Bucket | None = None
        self._typical_output = float(TYPICAL_OUTPUT)
        self._last_cut = -math.inf
        self._next_cut = -math.inf
        self._timer: Timer | None = None
        self._due = math.inf
        self._sleeping: dict[str, list[float]] = {}
        self.slow_down(rpm, tpm)

    # --- settings that grow with the runs that share the limiter ---

    def widen(self, bound: float) -> None:
        """Raise the bound to `bound`, if it is larger: the bound is the largest that any sharer asks for."""
        bound = min(bound, self.cap)
        if bound > self.bound:
            untouched = self.window == self.bound
            self.bound = bound
            if untouched:
                self._resize(bound)

    def fit(self, cap: float) -> None:
        """Never let more than `cap` requests be in flight, whatever sharers ask for."""
        self.cap = max(1.0, cap)
        if self.bound > self.cap:
            self.bound = self.cap
            self._resize(min(self.window, self.cap))

    def slow_down(self, rpm: float | None, tpm: float | None) -> None:
        """Lower the rates to these, where they are lower: a provider's limit holds for all sharers."""
        now = self._clock.now()
        if rpm is not None and (self._rpm is None or rpm < self._rpm.per_minute):
            self._rpm = Bucket(rpm, now)
        if tpm is not None and (self._tpm is None or tpm < self._tpm.per_minute):
            self._tpm = Bucket(tpm, now)

    @property
    def counts_tokens(self) -> bool:
        """Whether estimates are of any use here."""
        return self._tpm is not None

    @property
    def queued(self) -> int:
        """Requests waiting for a slot."""
        return self._queued

    def estimate(self, prompt_tokens: int, max_tokens: int | None) -> int:
        """Tokens to charge for a request before its reply is in."""
        return prompt_tokens + int(self._typical_output if max_tokens is None else max_tokens)

    # --- slots ---

    async def acquire(self, lane: str = "", urgent: bool = False, tokens: int = 0) -> None:
        """Wait for a slot and hold it until `release`.

        Args:
            lane: Who asks; lanes take turns.
            urgent: Served before everything that is not.
            tokens: Estimated tokens of the request.
        """
        if not self._queued and self.in_flight < self._slots and not self._pace(tokens):
            self._grant(tokens)
            return
        waiter = Waiter(lane, tokens, asyncio.get_running_loop().create_future())
        (self._urgent if urgent else self._normal).put(waiter)
        self._queued += 1
        # Not needed by an ordinary waiter, whom a release wakes; it arms the timer of one that waits for its pace.
        self._pump()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.future.cancelled():
                self._queued -= 1
                self._forget_if_empty()
            else:
                # Granted and cancelled in the same turn of the loop: the slot would leak, and the charge with it.
                self._refund(tokens)
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self.in_flight -= 1
        if self._queued:
            self._pump()

    def withdraw(self, tokens: int) -> None:
        """Give a slot back that was not used: nothing was sent."""
        self._refund(tokens)
        self.release()

    def _grant(self, tokens: int) -> None:
        self.in_flight += 1
        if self.in_flight > self.peak:
            self.peak = self.in_flight
        if self._rpm is not None:
            self._rpm.take(1.0)
        if self._tpm is not None:
            self._tpm.take(tokens)

    def _refund(self, tokens: int) -> None:
        if self._rpm is not None:
            self._rpm.take(-1.0)
        if self._tpm is not None:
            self._tpm.take(-tokens)

    def _pace(self, tokens: int) -> float:
        """Seconds that a request of `tokens` has to wait for the rates."""
        if self._rpm is None and self._tpm is None:
            return 0.0
        now = self._clock.now()
        wait = 0.0 if self._rpm is None else self._rpm.wait(1.0, now)
        return wait if self._tpm is None else max(wait, self._tpm.wait(tokens, now))

    def _pump(self) -> None:
        """Grant slots for as long as there are slots, waiters and pace."""
        while self._queued and self.in_flight < self._slots:
            queue = self._urgent
            waiter = queue.head()
            if waiter is None:
                queue = self._normal
                waiter = queue.head()
            if waiter is None:
                return
            wait = self._pace(waiter.tokens)
            if wait > 0.0:
                self._arm(wait)
                return
            queue.pop()
            self._queued -= 1
            self._grant(waiter.tokens)
            waiter.future.set_result(None)

    def _arm(self, wait: float) -> None:
        due = self._clock.now() + wait
        if due < self._due:  # an urgent small request may be due before the large one that set the timer
            if self._timer is not None:
                self._timer.cancel()
            self._due = due
            self._timer = self._clock.call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._due = None, math.inf
        self._pump()

    def _resize(self, window: float) -> None:
        self.window = window
        self._slots = float(int(window)) if math.isfinite(window) else window
        self._pump()

    def _forget_if_empty(self) -> None:
        if not self._queued:
            self._urgent.clear()
            self._normal.clear()

    # --- what replies teach ---

    def succeeded(self) -> None:
        """A reply came: widen the window by its share."""
        if self.window < self.bound:
            bound = self.bound if math.isfinite(self.bound) else self.window
            # At most doubling a round: a window of one must not jump to the step of a large bound.
            step = min(max(1.0, bound * GROWTH), self.window)
            self._resize(min(self.bound, self.window + step / self.window))

    def used(self, estimated: int, usage_input: int, usage_output: int) -> None:
        """Replace the estimate of a request by what its reply reported."""
        if self._tpm is not None:
            self._typical_output += (usage_output - self._typical_output) * 0.05
            self._tpm.take(usage_input + usage_output - estimated)
            self._pump()

    def refused(self, sent_at: float, retry_after: float | None, estimated: int = 0) -> None:
        """A 429 came: halve the window, unless this back-off window has had its cut.

        Args:
            sent_at: When the refused request was sent, on the limiter's clock. One sent before the last cut says
                nothing about the window that the cut made.
            retry_after: Seconds that the endpoint asked for, if it did.
            estimated: Tokens charged for the request; they were not spent.
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

    # --- what people see ---

    @contextmanager
    def sleeping(self, why: str, seconds: float) -> Generator[None]:
        """Count a request as backing off for `seconds` while the block runs; it holds no slot."""
        until = self._clock.now() + seconds
        ends = self._sleeping.setdefault(why, [])
        ends.append(until)
        try:
            yield
        finally:
            ends.remove(until)

    def waiting_note(self) -> str:
        """What holds requests up beyond the bound that was asked for, and for how long, or ""."""
        now = self._clock.now()
        parts = [
            f"{len(ends)} backing off ({why}), the next for {max(0.0, min(ends) - now):.0f} s more"
            for why, ends in sorted(self._sleeping.items())
            if ends
        ]
        if self.window < self.bound:
            bound = f"{self.bound:.0f}" if math.isfinite(self.bound) else "unlimited"
            parts.append(f"{int(self._slots)} of {bound} slots after 429")
        if self._timer is not None and self._queued:
            names = " and ".join(
                f"{bucket.per_minute:g} {name}" for bucket, name in ((self._rpm, "rpm"), (self._tpm, "tpm")) if bucket
            )
            parts.append(f"{self._queued} waiting for {names}")
        return ", ".join(parts)
