"""Fault rules of the reference server: which requests get added latency or a failure, with counts and random draws.
`catalogue` defines the faults, `script` parses them, `inject` sends them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain, repeat
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.reference.fault_sources import ObservedRequest, Per

if TYPE_CHECKING:
    from aiohttp import web

Act: TypeAlias = Literal["answer", "status", "reset", "close", "hang", "body", "huge"]
"""The kind of response: `answer` a normal reply; `status` an HTTP error; `reset` a TCP reset; `close` an orderly close
without a reply; `hang` no reply, ever; `body` a 200 with the fault's own body; `huge` a very large body generated while
it is sent."""

Delivery: TypeAlias = Literal["whole", "truncated", "reset", "close", "hang", "trickle"]
"""How the body is sent: `truncated` is cut JSON of matching length; `reset`, `close`, `hang` occur midway; `trickle`
slow."""

MALFORMED: tuple[bytes, ...] = (
    b'{"id": "x", "choices": [{"index": 0, "message": {"role": "assist',
    b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
    b'{"id": "x", "object": "chat.completion", "choices": []}',
    b"",
)
"""Bodies that no client can parse: cut JSON, a proxy's error page, no choices, an empty body."""

COUNTED_KEYS = 200_000
"""Maximum number of rollouts (or examples, models) that a rule counts separately; it ignores further ones, to bound
memory."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault to inject: the response to one request."""

    act: Act = "answer"
    latency: float = 0.0
    """Seconds to wait before the fault."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """Body sent in place of the default body for the HTTP status."""
    name: str = ""
    """Name of the fault in reports."""
    edit: str = ""
    """Name of the change that makes a normal reply faulty, from the table in `spoil`; "" for none."""
    value: str = ""
    """Parameter of the change that `edit` names."""
    delivery: Delivery = "whole"
    sent: float = 0.5
    """Share of the body that is sent before the connection fails."""
    seconds: float = 0.0
    """Seconds within which a slow reply (`trickle`) is sent."""
    size: int = 0
    """Size of a huge reply in bytes."""
    gzip: bool = False
    """Whether a `huge` body is gzip-compressed."""
    content_type: str = "application/json"

    @property
    def is_none(self) -> bool:
        """Whether the request gets its normal answer, possibly after `latency`."""
        return self.act == "answer" and not self.edit and self.delivery == "whole"

    @property
    def label(self) -> str:
        """Name of the fault in reports: `name`, or else the kind of response; "" for a normal answer."""
        return self.name or ("" if self.is_none else self.act)

    async def send(
        self, request: web.BaseRequest, asked: ObservedRequest, answer: Callable[[], JsonDict]
    ) -> web.StreamResponse | None:
        """Send the fault as the response to a request; return None if the request gets its normal answer."""
        from harness.plugins.faults.inject import inject

        return await inject(request, asked, self, answer)


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A rule that assigns faults to requests. All conditions that are set must hold."""

    faults: tuple[Fault, ...]
    """The possible faults; one is drawn uniformly."""
    label: str = ""
    """The rule as the user wrote it, for reports."""
    at: tuple[tuple[int, int | None], ...] = ()
    """Ranges of request numbers from 1, inclusive; None means no upper limit. Requests that the filters reject are not
    counted."""
    every: int = 0
    """Apply to every n-th request that passes the filters; 0 for no such condition."""
    share: float | None = None
    """Probability of the fault for each request that passes the filters; None for no such condition."""
    times: int = 0
    """Maximum number of faults of this rule; 0 for no limit."""
    per: Per = ""
    """Apply the rule's counts, draws and limits separately to each rollout, example or model; "" for all together."""
    filters: Mapping[str, str] = field(default_factory=dict[str, str])
    """Conditions on the request: a pattern with `*` and `?` for its `path`, `model`, `rollout` or `example`; for
    `prompt` a text that the prompt must contain."""
    in_turn: bool = False
    """Use several faults in turn instead of drawing one."""

    def lets_in(self, asked: ObservedRequest) -> bool:
        """Return whether the request passes the rule's filters."""
        if self.per in ("rollout", "example") and asked.rollout is None:
            return False
        if "path" not in self.filters and not asked.path.endswith("/completions"):
            return False
        for name, pattern in self.filters.items():
            if name == "prompt":
                fits = pattern in asked.prompt
            else:
                value = asked.path if name == "path" else asked.key(cast("Per", name))
                fits = bool(value) and fnmatchcase(value, pattern)  # an unknown value does not match
            if not fits:
                return False
        return True


@dataclass(slots=True)
class Tally:
    """Number of requests and faults of one fault rule."""

    rule: FaultRule
    requests: int = 0
    """Requests that passed the rule's filters."""
    hits: int = 0
    """Requests that got the rule's fault."""
    _seen: Counter[str] = field(default_factory=Counter[str])
    _hit: Counter[str] = field(default_factory=Counter[str])

    def count(self, key: str) -> int:
        """Count a request and return its number for `key`; 0 if no further key can be counted."""
        self.requests += 1
        if key not in self._seen and len(self._seen) >= COUNTED_KEYS:
            return 0
        self._seen[key] += 1
        return self._seen[key]

    def is_due(self, key: str, number: int) -> bool:
        """Return whether the rule's conditions, except the random `share`, select the request with this number among
        those of `key`."""
        rule = self.rule
        if not number or (rule.times and self._hit[key] >= rule.times):
            return False
        if rule.at and not any(low <= number and (high is None or number <= high) for low, high in rule.at):
            return False
        return not (rule.every and number % rule.every)

    def hit(self, key: str, rng: random.Random) -> Fault:
        """Count a request that gets a fault of this rule, and return the fault."""
        self.hits += 1
        self._hit[key] += 1
        faults = self.rule.faults
        if len(faults) == 1:
            return faults[0]
        return faults[self.hits % len(faults)] if self.rule.in_turn else rng.choice(faults)


class FaultScript:
    """Fault rules in order; the first that applies decides. Every rule counts all requests that pass its filters.

    Shares use one common draw, so that 0.1 and 0.2 are a tenth and a fifth of all requests, not of the remaining ones.
    Draws depend on the seed and on the order in which requests arrive. For a rule with `per`, they depend on the seed,
    the key and the request's number for that key, so that concurrency does not affect them.

    Args:
        rules: The rules, in order.
        latency: Median latency of every request, in seconds.
        sigma: Standard deviation of the logarithm of the latency.
        seed: Seed of all draws.

    Raises:
        ConfigError: the shares of rules for all requests sum to more than 1.
    """

    def __init__(
        self, rules: Sequence[FaultRule] = (), *, latency: float = 0.0, sigma: float = 0.0, seed: int = 0
    ) -> None:
        shares = [rule.share for rule in rules if rule.share is not None and not rule.filters and not rule.per]
        if sum(shares) > 1.0 + 1e-9:
            given = " + ".join(f"{share:g}" for share in shares)
            raise ConfigError(f"the shares of the faults sum to {sum(shares):g} ({given}), but must not exceed 1")
        self.tallies = tuple(Tally(rule) for rule in rules)
        self.seed = seed
        self.latency = latency
        self.sigma = sigma
        self._rng = random.Random(seed)

    def next(self, asked: ObservedRequest, /) -> Fault:
        """Draw a latency, then return the fault of the first rule that applies."""
        latency, rng = self.latency, self._rng
        if latency and self.sigma:
            latency *= math.exp(rng.gauss(0.0, self.sigma))
        drawn = rng.random()
        struck: Fault | None = None
        for index, tally in enumerate(self.tallies):
            rule = tally.rule
            if not rule.lets_in(asked):
                continue
            key = asked.key(rule.per)
            number = tally.count(key)
            if struck is not None or not tally.is_due(key, number):
                continue
            own = random.Random(f"{self.seed}:{index}:{key}:{number}") if rule.per else rng
            if rule.share is not None:
                chance = own.random() if rule.per else drawn
                if chance >= rule.share:
                    drawn -= 0.0 if rule.per else rule.share
                    continue
            struck = tally.hit(key, own)
        if struck is None:
            return Fault(latency=latency)
        return replace(struck, latency=struck.latency + latency) if latency else struck


class ScriptedFaults:
    """A fixed fault for each of the first requests, then one default fault for all later requests."""

    def __init__(self, script: Iterable[Fault], then: Fault | None = None) -> None:
        self._steps = chain(script, repeat(then or Fault()))

    def next(self, asked: ObservedRequest, /) -> Fault:
        """Return the next fault of the script; requests for paths other than completions get none and do not count."""
        return next(self._steps) if asked.path.endswith("/completions") else Fault()
