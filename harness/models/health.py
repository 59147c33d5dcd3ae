"""Whether an endpoint as a whole can be used: refused keys, unknown models, dead hosts, and the circuit that waits for
a host that went away. Owns the verdicts; sends nothing itself (the probe is handed in) and retries nothing.

    never answered   3 refused connections, or 10 s without a connection           → SystemicError for everybody
                     takes connections, and answers neither a request in its time
                     nor a probe after it                                          → the same
    answered, gone   circuit opens: one probe at a time for `grace` s, others wait → resumes, or SystemicError
    401, 403, 404    before this model ever answered: at once; after: 3 in a row   → SystemicError
    a web page       at every attempt of a call, before this model ever answered, and with
                     no earlier request under way that still may be                → SystemicError
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from harness.core.errors import SystemicError
from harness.models.clock import Clock, LoopClock

Probe: TypeAlias = Callable[[float], Awaitable[bool]]
"""Asks the host for any HTTP answer within so many seconds; True if one came."""


SILENCE = 20.0
"""Seconds without any word after which people are told. A model may think for longer; a dead port looks the same."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """How much patience an endpoint gets."""

    refusals: int = 3
    """Refused connections before an endpoint that never answered is given up."""
    connect_deadline: float = 10.0
    """Seconds after the first request in which an endpoint that never answered must have accepted a connection; also
    the bound on each connection attempt and on each probe."""
    grace: float = 60.0
    """Seconds that an endpoint which has answered may be away."""
    probe_gap: float = 0.1
    """Seconds before the first probe; doubled after each, up to `probe_gap_cap`."""
    probe_gap_cap: float = 5.0
    strikes: int = 3
    """Refusals in a row of a key or model that has worked before."""


@dataclass(slots=True)
class _ModelHealth:
    answered: bool = False
    strikes: int = 0
    verdict: tuple[str, int | None, str] | None = None


@dataclass(slots=True)
class Health:
    """What is known of one endpoint. One event loop only."""

    label: str
    """The endpoint, as people know it."""
    policy: HealthPolicy = field(default_factory=HealthPolicy)
    clock: Clock = field(default_factory=LoopClock)
    blocked: bool = False
    """Whether anything at all is wrong: False on the hot path, where `admit` need not be asked."""
    reachable: bool = False
    """Whether any HTTP reply ever came, whatever its status."""
    completion_tokens: set[str] = field(default_factory=set[str])
    """Models that have refused `max_tokens` and want `max_completion_tokens`."""
    _out: dict[object, tuple[str, float]] = field(default_factory=dict[object, tuple[str, float]])
    """Model and time of each request that is under way."""
    _models: dict[str, _ModelHealth] = field(default_factory=dict[str, _ModelHealth])
    _dead: str | None = None
    _first_try: float | None = None
    _refusals: int = 0
    _away_since: float | None = None
    """On the scale of `_awake`, as `_first_try`."""
    _away_why: str = ""
    _probing: bool = False
    _heard: float = -math.inf
    """When the last HTTP reply came."""
    _gone: float = -math.inf
    """When the endpoint was last found to be away."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """A first request is about to be sent: the connect deadline runs from here."""
        if self._first_try is None:
            self._first_try = self._awake()

    async def admit(self, model: str, probe: Probe) -> None:
        """Return when a request may be sent; while the endpoint is away, wait without a slot.

        One of those who wait probes for all; if it is cancelled, another takes over.

        Raises:
            SystemicError: it never may.
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
        """Whether `admit` would return at once. `blocked` may be about another model."""
        state = self._models.get(model)
        is_open = self._dead is None and self._away_since is None and not self._probing
        return is_open and (state is None or state.verdict is None)

    def answered(self, model: str) -> None:
        """A model reply came."""
        self.spoke()
        state = self._models.get(model)
        if state is None:
            self._models[model] = _ModelHealth(answered=True)
        else:
            state.answered = True
            state.strikes = 0

    def spoke(self) -> None:
        """An HTTP answer came, if only an error: somebody is there."""
        self.reachable = True
        self._heard = self.clock.now()

    def denied(self, model: str, message: str, status: int | None, reason: str) -> None:
        """The key or the model was refused.

        Raises:
            SystemicError: it was refused before it ever worked, or for the last time.
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

    @contextmanager
    def sending(self, model: str, moment: float) -> Generator[None]:
        """Keep a request that is sent at `moment` in mind until it has come back."""
        request = object()
        self._out[request] = (model, moment)
        try:
            yield
        finally:
            del self._out[request]

    def never_spoke(self, model: str, message: str, since: float) -> None:
        """A call got only what no such API would send (a web page, nothing), at every attempt.

        A page comes at once. A request that was sent before `since` and has not come back is met by something else:
        one broken host of several must not stop a run whose answers take their time.

        Raises:
            SystemicError: this model has never answered here and is not about to, so the address is wrong.
        """
        state = self._models.setdefault(model, _ModelHealth())
        is_awaited = any(other == model and moment <= since for other, moment in self._out.values())
        if not state.answered and state.verdict is None and not is_awaited:
            state.verdict = (message, None, "bad_response")
            self.blocked = True
        self._raise_verdict(model)

    def unreachable(self, why: str) -> None:
        """No connection could be made; `admit` then waits or raises, if that settles the matter."""
        if self.reachable:
            if self._away_since is None:
                self._away_since, self._gone = self._awake(), self.clock.now()
                self.blocked = True
            self._away_why = why
            return
        self._refusals += 1
        self.begin()
        waited = self._awake() - (self._first_try or 0.0)
        if self._refusals >= self.policy.refusals or waited >= self.policy.connect_deadline:
            self.give_up(f"{why}, and it has never answered; is the server running, and is the base URL right?")

    async def is_gone(self, why: str, since: float, probe: Probe) -> bool:
        """Whether a request that was sent at `since`, and got nothing in all its time, met nobody.

        A model may think for that long, but whoever serves it answers others meanwhile; sockets that nobody reads
        answer nobody. Where nothing has come since then, one probe asks for all who wait, and meanwhile nothing is
        sent. `admit` then waits for the endpoint, or raises.

        Args:
            why: What happened to the request.
            since: On the clock of `clock`.
            probe: How to ask.
        """
        while self._probing and self._away_since is None:
            await self._changed.wait()
        if self._dead is not None or self._gone >= since:
            return True
        if self._heard >= since:
            return False
        self._probing = self.blocked = True
        try:
            is_there = await probe(self.policy.connect_deadline)
        finally:
            self._probing = False
            self._settle()
            self._wake()
        if is_there:
            self.spoke()
        if self._heard >= since:
            return False
        if self.reachable:
            self.unreachable(why)
        else:
            self.give_up(f"{why}, and it has never answered anything; is it the right address, and does it work?")
        return True

    def give_up(self, why: str) -> None:
        """The endpoint is dead: every request fails from now on, with this reason."""
        if self._dead is None:
            self._dead = f"{self.label}: {why}"
            self.blocked = True
            self._wake()

    def note(self) -> str:
        """What the endpoint's state holds up, or ""."""
        if self._dead is not None:
            return "endpoint given up"
        if self._away_since is None:
            silent = self._silent()
            return f"endpoint silent for {silent:.0f} s" if silent >= SILENCE else ""
        left = max(0.0, self._away_since + self.policy.grace - self._awake())
        return f"endpoint away, probing for {left:.0f} s more"

    def _awake(self) -> float:
        """Seconds in which this process could look at the network: what it lost itself is no patience with others."""
        return self.clock.now() - self.clock.lost()

    def _silent(self) -> float:
        """Seconds for which requests have been under way and nothing at all has come back."""
        if not self._out:
            return 0.0
        _, oldest = next(iter(self._out.values()))
        return self.clock.now() - max(oldest, self._heard)

    def _raise_verdict(self, model: str) -> None:
        if self._dead is not None:
            raise SystemicError(self._dead, retryable=True, reason="connection")
        state = self._models.get(model)
        if state is not None and state.verdict is not None:
            message, status, reason = state.verdict
            raise SystemicError(message, status=status, reason=reason)

    async def _probe_until_settled(self, probe: Probe) -> None:
        gap = self.policy.probe_gap
        while self._dead is None and self._away_since is not None:
            left = self._away_since + self.policy.grace - self._awake()
            if left <= 0.0:
                self.give_up(f"{self._away_why}; it had answered before, but not for {self.policy.grace:g} s now")
                return
            await self.clock.sleep(min(gap, left))
            left = self._away_since + self.policy.grace - self._awake()
            if await probe(min(max(left, 0.05), self.policy.connect_deadline)):
                self._away_since = None
                self._settle()
                return
            gap = min(gap * 2.0, self.policy.probe_gap_cap)

    def _settle(self) -> None:
        self.blocked = (
            self._dead is not None
            or self._away_since is not None
            or any(state.verdict is not None for state in self._models.values())
        )

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
