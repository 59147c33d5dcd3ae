"""Latency and failures that the reference server shows on request. Owns what happens to which request: rules, their
counts and draws. What faults there are is `catalogue`, how rules are written is `script`, and `inject` does it. Another
source of faults needs only `next`."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import chain, repeat
from typing import Literal, Protocol, TypeAlias, cast

import orjson

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.reference.header import RolloutHeader

Act: TypeAlias = Literal["answer", "status", "reset", "close", "hang", "body", "huge"]
"""`status` an HTTP error; `reset` the connection is cut; `close` it is ended in order, without a reply; `hang` nothing,
ever; `body` a 200 with a body of its own; `huge` a body that is made while it is sent."""

Delivery: TypeAlias = Literal["whole", "truncated", "reset", "close", "hang", "trickle"]
"""How a body goes out: `truncated` claims to be whole and is not; `reset`, `close` and `hang` happen in the middle."""

Per: TypeAlias = Literal["", "rollout", "example", "model"]

MALFORMED: tuple[bytes, ...] = (
    b'{"id": "x", "choices": [{"index": 0, "message": {"role": "assist',
    b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
    b'{"id": "x", "object": "chat.completion", "choices": []}',
    b"",
)
"""Bodies that no client can read: cut JSON, a proxy's page, no choices, nothing."""

COUNTED_KEYS = 200_000
"""Rollouts (or examples, models) that a rule counts one by one; it leaves further ones alone, so memory is bounded."""


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
    name: str = ""
    """How reports call it."""
    edit: str = ""
    """What is changed in an `answer`: see `spoil`."""
    value: str = ""
    """What `edit` needs to know."""
    delivery: Delivery = "whole"
    sent: float = 0.5
    """Share of the body that is sent before `delivery` goes wrong."""
    seconds: float = 0.0
    """How long a `trickle` takes."""
    size: int = 0
    """Bytes of a `huge` body."""
    gzip: bool = False
    """Whether a `huge` body is packed."""
    content_type: str = "application/json"

    @property
    def is_none(self) -> bool:
        """Whether the request is answered as if nothing had been asked for; it may still be late."""
        return self.act == "answer" and not self.edit and self.delivery == "whole"


class ObservedRequest:
    """One request, as far as rules can see it. The body is parsed only if one of them wants to."""

    __slots__ = ("_body", "number", "path", "raw", "rollout")

    def __init__(
        self,
        number: int = 0,
        path: str = "/v1/chat/completions",
        raw: bytes = b"",
        rollout: RolloutHeader | None = None,
    ) -> None:
        self.number = number
        self.path = path
        self.raw = raw
        self.rollout = rollout
        self._body: JsonDict | None = None

    @property
    def body(self) -> JsonDict:
        """The body; empty when it is no JSON object."""
        if self._body is None:
            try:
                value: object = orjson.loads(self.raw)
            except orjson.JSONDecodeError:
                value = None
            self._body = cast("JsonDict", value) if isinstance(value, dict) else {}
        return self._body

    @property
    def model(self) -> str:
        """The model's name, or ""."""
        model: object = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def prompt(self) -> str:
        """All that the model is told, as text that can be searched."""
        asked: object = self.body.get("messages", self.body.get("prompt", ""))
        return asked if isinstance(asked, str) else orjson.dumps(asked).decode()

    def key(self, of: Per) -> str:
        """Of the rollout, example or model that asks; "" when it is not known, or none is meant."""
        if of == "model":
            return self.model
        if not of or self.rollout is None:
            return ""
        return self.rollout.rollout_key if of == "rollout" else self.rollout.example_key


NOBODY = ObservedRequest()
"""A request of which nothing is known."""


class FaultSource(Protocol):
    """Decides about requests in the order of their arrival."""

    def next(self, asked: ObservedRequest = NOBODY, /) -> Fault:
        """The fate of the next request."""
        ...


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Which requests meet which fault. All that is given has to hold."""

    faults: tuple[Fault, ...]
    """Of several one is drawn evenly."""
    label: str = ""
    """How people wrote it; for reports."""
    at: tuple[tuple[int, int | None], ...] = ()
    """Ranges of numbers, from 1, both ends included; None is open. Counted are the requests that the filters let in."""
    every: int = 0
    """Each so-manieth of them."""
    share: float | None = None
    """Of them, drawn."""
    times: int = 0
    """At most so many; 0 is no bound."""
    per: Per = ""
    """Whose requests are counted, drawn and bounded on their own; "" is everybody's together."""
    filters: Mapping[str, str] = field(default_factory=dict[str, str])
    """Patterns (`*`, `?`) by `path`, `model`, `rollout`, `example`; `prompt` is a text that it must contain."""
    in_turn: bool = False
    """Of several faults one after the other, instead of a draw."""

    def lets_in(self, asked: ObservedRequest) -> bool:
        """Whether the rule is about this request at all."""
        if self.per in ("rollout", "example") and asked.rollout is None:
            return False
        if "path" not in self.filters and not asked.path.endswith("/completions"):
            return False
        for name, pattern in self.filters.items():
            if name == "prompt":
                if pattern not in asked.prompt:
                    return False
            elif not ((seen := _seen(name, asked)) and fnmatchcase(seen, pattern)):
                return False  # also what does not say who it is
        return True


def _seen(name: str, asked: ObservedRequest) -> str:
    if name == "path":
        return asked.path
    return asked.key(cast("Per", name))


@dataclass(slots=True)
class Tally:
    """What became of one rule."""

    rule: FaultRule
    requests: int = 0
    """Requests that it was about."""
    hits: int = 0
    """Requests that met its fault."""
    _seen: Counter[str] = field(default_factory=Counter[str])
    _hit: Counter[str] = field(default_factory=Counter[str])

    def count(self, key: str) -> int:
        """The number of this request among those of `key`; 0 when there is no room for another key."""
        self.requests += 1
        if key not in self._seen and len(self._seen) >= COUNTED_KEYS:
            return 0
        self._seen[key] += 1
        return self._seen[key]

    def is_due(self, key: str, number: int) -> bool:
        """Whether request `number` of `key` is one that the rule names, draws apart."""
        rule = self.rule
        if not number or (rule.times and self._hit[key] >= rule.times):
            return False
        if rule.at and not any(low <= number and (high is None or number <= high) for low, high in rule.at):
            return False
        return not (rule.every and number % rule.every)

    def hit(self, key: str, rng: random.Random) -> Fault:
        """The fault that strikes."""
        self.hits += 1
        self._hit[key] += 1
        faults = self.rule.faults
        if len(faults) == 1:
            return faults[0]
        return faults[self.hits % len(faults)] if self.rule.in_turn else rng.choice(faults)


class FaultScript:
    """Rules, tried from the first to the last: the first that strikes decides. Every rule counts every request that it
    is about, also those that an earlier one took.

    Shares share one draw, so that 0.1 and 0.2 are a tenth and a fifth of all requests, not of what the other left.
    Draws follow from the seed and the order of arrival; those of a rule with `per` from the seed, the key and how often
    it has asked, so that concurrent requests cannot change them.

    Args:
        rules: In their order.
        latency: Median, in seconds, of every request.
        sigma: Of the logarithm of the latency.
        seed: Of all draws.
    """

    def __init__(
        self, rules: Sequence[FaultRule] = (), *, latency: float = 0.0, sigma: float = 0.0, seed: int = 0
    ) -> None:
        check_rules(rules)
        self.tallies = tuple(Tally(rule) for rule in rules)
        self.seed = seed
        self.latency = latency
        self.sigma = sigma
        self._rng = random.Random(seed)

    def next(self, asked: ObservedRequest = NOBODY, /) -> Fault:
        """Draw latency, then find the rule that strikes."""
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


def check_rules(rules: Sequence[FaultRule]) -> None:
    """Refuse shares that cannot be had.

    Raises:
        ConfigError: those of everybody's requests sum to more than 1.
    """
    shares = [rule.share for rule in rules if rule.share is not None and not rule.filters and not rule.per]
    if sum(shares) > 1.0 + 1e-9:
        given = " + ".join(f"{share:g}" for share in shares)
        raise ConfigError(f"the shares of all requests sum to {sum(shares):g} ({given}); at most 1 is possible")


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
        if self.retry_after is not None and not self.retry_after.isprintable():
            raise ConfigError(f"retry_after {self.retry_after!r} is no HTTP header")
        if not self.fail_status:
            raise ConfigError("fail_status needs at least one status")

    def rules(self) -> tuple[FaultRule, ...]:
        """The rates as rules."""
        headers = () if self.retry_after is None else (("Retry-After", self.retry_after),)
        failures = tuple(Fault("status", status=n, headers=headers, name=str(n)) for n in self.fail_status)
        bodies = tuple(Fault("body", body=body, name="malformed") for body in MALFORMED)
        wanted = (
            (self.fail_rate, "|".join(map(str, self.fail_status)), failures),
            (self.reset_rate, "reset", (Fault("reset", name="reset"),)),
            (self.hang_rate, "hang", (Fault("hang", name="hang"),)),
            (self.malformed_rate, "malformed", bodies),
        )
        return tuple(
            FaultRule(faults, f"{label}@share={rate:g}", share=rate, in_turn=label == "malformed")
            for rate, label, faults in wanted
            if rate
        )


class RandomFaults(FaultScript):
    """Independent draws from `Faults`, the same for the same seed and order of arrival."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(faults.rules(), latency=faults.latency, sigma=faults.sigma, seed=faults.seed)


class ScriptedFaults:
    """A given fate for each of the first requests, then another for all that follow."""

    def __init__(self, script: Iterable[Fault], then: Fault | None = None) -> None:
        self._steps = chain(script, repeat(then or Fault()))

    def next(self, asked: ObservedRequest = NOBODY, /) -> Fault:
        """The next line of the script; only requests for completions have one."""
        return next(self._steps) if asked.path.endswith("/completions") else Fault()
