"""Latency and failures that the reference server shows on request. Owns what happens to which request; the server does
it. Another source of faults needs only `next`."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import chain, repeat
from typing import Literal, Protocol, TypeAlias

from harness.errors import ConfigError

Act: TypeAlias = Literal["answer", "status", "reset", "hang", "body"]
"""`status` an HTTP error; `reset` the connection is cut; `hang` nothing, ever; `body` a 200 with a body of its own."""

MALFORMED: tuple[bytes, ...] = (
    b'{"id": "x", "choices": [{"index": 0, "message": {"role": "assist',
    b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
    b'{"id": "x", "object": "chat.completion", "choices": []}',
    b"",
)
"""Bodies that no client can read: cut JSON, a proxy's page, no choices, nothing."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request."""

    act: Act = "answer"
    latency: float = 0.0
    """Seconds before it happens."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """Instead of the body that `status` would get."""


class FaultSource(Protocol):
    """Decides about requests in the order of their arrival."""

    def next(self) -> Fault:
        """The fate of the next request."""
        ...


@dataclass(frozen=True, slots=True)
class Faults:
    """Settings of `RandomFaults`. Rates are shares of all requests and may sum to at most 1."""

    latency: float = 0.0
    """Median, in seconds."""
    sigma: float = 0.0
    """Of the logarithm of the latency: 0 is constant, 0.8 is what a busy provider looks like."""
    fail_rate: float = 0.0
    fail_status: tuple[int, ...] = (500,)
    """Drawn from evenly."""
    retry_after: str | None = None
    """`Retry-After` header of those failures: seconds or an HTTP-date."""
    reset_rate: float = 0.0
    hang_rate: float = 0.0
    malformed_rate: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("latency", "sigma"):
            if not (math.isfinite(value := getattr(self, name)) and value >= 0.0):
                raise ConfigError(f"{name} must be a number of 0 or more, not {value}")
        rates = {field.name: getattr(self, field.name) for field in fields(self) if field.name.endswith("_rate")}
        for name, value in rates.items():
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name} must be from 0 to 1, not {value}")
        if sum(rates.values()) > 1.0 + 1e-9:
            raise ConfigError(f"the rates {', '.join(rates)} sum to {sum(rates.values()):g}; at most 1 is possible")
        for status in self.fail_status:
            if not 400 <= status <= 599:
                raise ConfigError(f"fail_status {status} is no HTTP error; use 400 to 599")
        if not self.fail_status:
            raise ConfigError("fail_status needs at least one status")


class RandomFaults:
    """Independent draws from `Faults`, the same for the same seed and order of arrival."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._rng = random.Random(faults.seed)
        self._malformed = 0

    def next(self) -> Fault:
        """Draw latency, then whether and how the request fails."""
        faults, rng = self._faults, self._rng
        latency = faults.latency
        if latency and faults.sigma:
            latency *= math.exp(rng.gauss(0.0, faults.sigma))
        drawn = rng.random()
        if drawn < faults.fail_rate:
            headers = () if faults.retry_after is None else (("Retry-After", faults.retry_after),)
            return Fault("status", latency, rng.choice(faults.fail_status), headers)
        drawn -= faults.fail_rate
        if drawn < faults.reset_rate:
            return Fault("reset", latency)
        drawn -= faults.reset_rate
        if drawn < faults.hang_rate:
            return Fault("hang", latency)
        drawn -= faults.hang_rate
        if drawn < faults.malformed_rate:
            self._malformed += 1
            return Fault("body", latency, body=MALFORMED[self._malformed % len(MALFORMED)])
        return Fault("answer", latency)


class ScriptedFaults:
    """A given fate for each of the first requests, then another for all that follow."""

    def __init__(self, script: Iterable[Fault], then: Fault | None = None) -> None:
        self._steps = chain(script, repeat(then or Fault()))

    def next(self) -> Fault:
        """The next line of the script."""
        return next(self._steps)
