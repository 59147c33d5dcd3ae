"""Health of an endpoint: detects rejected keys, unknown models and dead hosts; breaks the circuit to unreachable hosts.

This module sends no requests itself (callers pass a function that sends a probe) and retries none.

    never answered   3 refused connections, or 10 s without a connection           → SystemicError for all requests
                     accepts connections, but a request times out and a probe too  → the same
    answered, gone   circuit opens: one probe at a time for `grace` s, others wait → resumes, or SystemicError
    401, 403, 404    before this model ever answered: at once; after: 3 in a row   → SystemicError
    a web page       at every attempt of a call, before this model ever answered, and with
                     no earlier request still in flight                            → SystemicError
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from harness.core.errors import SystemicError
from harness.core.messages import Message
from harness.models.clock import Clock
from harness.models.delays import Delay

Probe: TypeAlias = Callable[[float], Awaitable[bool]]
"""Function that sends a request to the host, with a timeout in seconds, and returns whether any HTTP answer came."""


SILENCE = 20.0
"""Seconds without any answer after which the display reports it: the model may be slow, or the host dead."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Thresholds and timeouts for endpoints that fail."""

    refusals: int = 3
    """Number of refused connections after which an endpoint that never answered is given up."""
    connect_deadline: float = 10.0
    """Seconds after the first request within which an endpoint must accept a connection if it has never answered. Also
    the timeout of each connection attempt and of each probe."""
    grace: float = 60.0
    """Seconds after which an endpoint that has answered before and can no longer be reached is given up."""
    probe_gap: float = 0.1
    """Seconds before the first probe. The time doubles after each probe, up to `probe_gap_cap`."""
    probe_gap_cap: float = 5.0
    """Maximum seconds between two probes."""
    strikes: int = 3
    """Number of consecutive rejections after which a key or model that has worked before is given up."""


@dataclass(slots=True)
class _ModelHealth:
    """State of one model at an endpoint."""

    answered: bool = False
    strikes: int = 0
    """Number of consecutive rejections."""
    verdict: tuple[Message | str, int | None, str] | None = None
    """Message, HTTP status and reason of the error, once the model is given up."""


@dataclass(slots=True)
class Health:
    """Health of one endpoint. Must be used in one event loop only."""

    label: str
    """Name of the endpoint for messages."""
    policy: HealthPolicy = field(default_factory=HealthPolicy)
    clock: Clock = field(default_factory=Clock)
    blocked: bool = False
    """Whether a request may have to wait or fail. If false, `admit` need not be called."""
    reachable: bool = False
    """Whether any HTTP reply was ever received, with any status."""
    _out: dict[object, tuple[str, float]] = field(default_factory=dict[object, tuple[str, float]])
    """Model and send time of each request in flight."""
    _models: dict[str, _ModelHealth] = field(default_factory=dict[str, _ModelHealth])
    _dead: str | None = None
    _first_try: float | None = None
    _refusals: int = 0
    _away_since: float | None = None
    """Start of the current outage, as returned by `_awake_time`; None if there is no outage."""
    _away_why: str = ""
    _probing: bool = False
    _last_answer: float = -math.inf
    """Time at which the last HTTP answer was received."""
    _last_away: float = -math.inf
    """Time at which the last outage was detected."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """At the first request, start the time within which the endpoint must accept a connection."""
        if self._first_try is None:
            self._first_try = self._awake_time()

    async def admit(self, model: str, probe: Probe) -> None:
        """Wait until a request may be sent, that is, until the endpoint can be reached. The caller must hold no slot.

        One of the waiting calls probes the endpoint for all; if that call is cancelled, another continues.

        Raises:
            SystemicError: the endpoint is given up.
        """
        while True:
            self._raise_verdict(model)
            if self._probing:
                await self._changed.wait()
                continue
            if self._away_since is None:
                return
            self._probing = True
            try:
                await self._probe_until_settled(probe)
            finally:
                self._probing = False
                self._wake()

    def admits(self, model: str) -> bool:
        """Return whether `admit` would return at once for this model. `blocked` may be due to another model."""
        state = self._models.get(model)
        is_open = self._dead is None and self._away_since is None and not self._probing
        return is_open and (state is None or state.verdict is None)

    def answered(self, model: str) -> None:
        """Record a valid reply of a model."""
        self.got_answer()
        state = self._models.get(model)
        if state is None:
            self._models[model] = _ModelHealth(answered=True)
        else:
            state.answered = True
            state.strikes = 0

    def got_answer(self) -> None:
        """Record an HTTP answer of any status."""
        self.reachable = True
        self._last_answer = self.clock.now()

    def denied(self, model: str, message: Message, status: int | None, reason: str) -> None:
        """Record that the key or the model was rejected.

        Raises:
            SystemicError: the model has never replied before, or too many requests in a row were rejected.
        """
        state = self._models.setdefault(model, _ModelHealth())
        if state.answered:
            state.strikes += 1
            if state.strikes < self.policy.strikes:
                return
        if state.verdict is None:
            state.verdict = (message, status, reason)
            self.blocked = True
        self._raise_verdict(model)

    def sent(self, request: object, model: str, moment: float) -> None:
        """Register a request as in flight, sent at `moment`."""
        self._out[request] = (model, moment)

    def ended(self, request: object) -> None:
        """Register a request as no longer in flight."""
        del self._out[request]

    def got_only_pages(self, model: str, message: str, since: float) -> None:
        """Record a call whose every attempt got a web page or an empty body instead of a reply from an API.

        The model is not given up while a request sent before `since` is in flight: web pages are returned at once, so
        that request must have reached a working host. One broken host among several must not stop a run.

        Args:
            model: Model name in the request.
            message: Error message if the model is given up.
            since: Time, on the clock of this object, at which the call's second-to-last attempt was sent.

        Raises:
            SystemicError: this model has never answered and has no such request in flight, so the address is wrong.
        """
        state = self._models.setdefault(model, _ModelHealth())
        is_awaited = any(other == model and moment <= since for other, moment in self._out.values())
        if not state.answered and state.verdict is None and not is_awaited:
            state.verdict = (message, None, "bad_response")
            self.blocked = True
        self._raise_verdict(model)

    def unreachable(self, why: str) -> None:
        """Record a failed connection. If the endpoint seems unreachable, `admit` then waits for it or raises."""
        if self.reachable:
            if self._away_since is None:
                self._away_since, self._last_away = self._awake_time(), self.clock.now()
                self.blocked = True
            self._away_why = why
            return
        self._refusals += 1
        self.begin()
        waited = self._awake_time() - (self._first_try or 0.0)
        if self._refusals >= self.policy.refusals or waited >= self.policy.connect_deadline:
            self.give_up(f"{why}, and it has never answered; is the server running, and is the base URL right?")

    async def is_gone(self, why: str, since: float, probe: Probe) -> bool:
        """Return whether the host was gone when a request that was sent at `since` timed out.

        A slow model may also time out, but then the host answers other requests. If nothing was received after `since`,
        one probe is sent for all waiting calls, and requests wait for its result. If the host is gone, later calls of
        `admit` wait for it or raise an error.

        Args:
            why: Description of the timeout, for the error message.
            since: Time, on the clock of this object, at which the request was sent.
            probe: Function that probes the host.
        """
        while self._probing and self._away_since is None:
            await self._changed.wait()
        if self._dead is not None or self._last_away >= since:
            return True
        if self._last_answer >= since:
            return False
        self._probing = self.blocked = True
        try:
            is_there = await probe(self.policy.connect_deadline)
        finally:
            self._probing = False
            self._settle()
            self._wake()
        if is_there:
            self.got_answer()
        if self._last_answer >= since:
            return False
        if self.reachable:
            self.unreachable(why)
        else:
            self.give_up(f"{why}, and it has never answered any request; is the base URL right, and does it work?")
        return True

    def give_up(self, why: str) -> None:
        """Make every further request to this endpoint fail with the reason `why`."""
        if self._dead is None:
            self._dead = f"{self.label}: {why}"
            self.blocked = True
            self._wake()

    def delays(self) -> list[Delay]:
        """Return the reason why requests wait because of the endpoint's health; empty if they do not."""
        if self._dead is not None:
            return [Delay("endpoint given up")]
        if self._away_since is None:
            now = self.clock.now()
            _, oldest = next(iter(self._out.values()), ("", now))
            silent = now - max(oldest, self._last_answer)
            return [Delay(f"endpoint silent for {silent:.0f} s")] if silent >= SILENCE else []
        left = self._away_since + self.policy.grace - self._awake_time()
        return [Delay("endpoint cannot be reached, probing it", left)]

    def _awake_time(self) -> float:
        """Return the monotonic time in seconds, not counting time in which this process was blocked."""
        return self.clock.now() - self.clock.blocked_seconds()

    def _raise_verdict(self, model: str) -> None:
        """Raise `SystemicError` if the endpoint or the model was given up."""
        if self._dead is not None:
            raise SystemicError(self._dead, retryable=True, reason="connection")
        state = self._models.get(model)
        if state is not None and state.verdict is not None:
            message, status, reason = state.verdict
            raise SystemicError(message, status=status, reason=reason)

    async def _probe_until_settled(self, probe: Probe) -> None:
        """Probe an endpoint that cannot be reached until it answers or is given up."""
        gap = self.policy.probe_gap
        while self._dead is None and self._away_since is not None:
            left = self._away_since + self.policy.grace - self._awake_time()
            if left <= 0.0:
                self.give_up(f"{self._away_why}; it answered before, but not for the last {self.policy.grace:g} s")
                return
            await self.clock.sleep(min(gap, left))
            left = self._away_since + self.policy.grace - self._awake_time()
            if await probe(min(max(left, 0.05), self.policy.connect_deadline)):
                self._away_since = None
                self._settle()
                return
            gap = min(gap * 2.0, self.policy.probe_gap_cap)

    def _settle(self) -> None:
        """Recompute `blocked` from the current outage and the verdicts on the endpoint and its models."""
        self.blocked = (
            self._dead is not None
            or self._away_since is not None
            or any(state.verdict is not None for state in self._models.values())
        )

    def _wake(self) -> None:
        """Wake the calls that wait for the result of a probe."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
