"""Count the dollars, tokens and seconds that all runs and judges of one invocation spend, and enforce the budget.

This module decides whether a rollout may begin and whether a call may be sent; `engine.prices` computes prices. A limit
on money or tokens never cancels a request that was sent.

    reply ──► BoundChat ──► Budget.charge ◄── replies of earlier attempts, from the journals of resumed runs
                   └───────► Budget.check
                                  │
    Schedule ──► may_start ───────┘
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import cast

from harness.core.errors import BudgetSpent, ConfigError
from harness.core.records import BUDGET_SPENT
from harness.core.types import JsonDict, Usage
from harness.engine.derived import Derivation
from harness.engine.prices import EXTRA, Pricing, pricing_of
from harness.engine.spending import priced_usages, spent_in
from harness.settings.budget import BOUNDS, BUDGET, FLAGS, Bound, BudgetLimits, flags_of
from harness.settings.endpoints import Endpoint
from harness.settings.resolved_run import ResolvedRun

SLACK = 1e-9
"""Relative tolerance for rounding errors when spending is compared with a limit: ten replies at $0.01 are $0.10."""


class Budget:
    """Limits on the spending of one invocation, and the amounts spent so far.

    The amounts change only on the event loop; other threads, such as a display, may read them.

    Args:
        limits: Limits on money, tokens and time; without any, amounts are only counted.
        clock: Returns monotonic seconds. The time limit counts from the construction of this object.
    """

    def __init__(self, limits: BudgetLimits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or BudgetLimits()
        self.reached: Bound | None = None
        """The first limit that was reached; None if none was."""
        self.on_reached: Callable[[], None] = lambda: None
        """Called once, when the first limit is reached. Must not raise."""
        self.cost = 0.0
        """Dollars spent on the replies whose cost is known."""
        self.tokens = 0
        self.requests = 0
        """Number of counted replies."""
        self.unpriced = 0
        """Number of replies whose cost is unknown."""
        self.unreported = 0
        """Number of replies whose tokens are unknown."""
        self.before: JsonDict = {}
        """Amounts that were spent before the runs were resumed, under `cost` and `tokens`."""
        self._bounds: tuple[Bound, ...] = tuple(bound for bound in BOUNDS if self.limits.of(bound) is not None)
        self._why = ""
        self._is_expired = False
        self._clock = clock
        self._began = clock()

    @property
    def seconds(self) -> float:
        """Seconds since the invocation began."""
        return self._clock() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the time limit is reached; None if there is no time limit."""
        return None if self.limits.max_time is None else max(0.0, self.limits.max_time - self.seconds)

    @property
    def is_time_up(self) -> bool:
        """Whether the time limit is reached."""
        return self._is_expired or self.seconds_left == 0

    def expire(self) -> None:
        """Mark the time limit as reached. Called by a timer, whose clock may run slightly ahead of the budget's."""
        self._is_expired = True
        self.may_start()

    def may_start(self) -> bool:
        """Return whether a new rollout may begin."""
        has_clock = self._is_expired or self.limits.max_time is not None
        if has_clock and self.reached is None and self.is_time_up:
            self._reach("max_time")
        return self.reached is None

    def may_score(self) -> bool:
        """Return whether scoring that calls no judge may begin. It costs no money, so only the time limit stops it."""
        return self.may_start() or not self.is_time_up

    def check(self) -> None:
        """Refuse a model call if the budget for money or tokens is spent. After the time limit, rollouts that have
        begun may still call the model until they are cancelled.

        Raises:
            BudgetSpent: the budget allows no further call.
        """
        if self.reached is not None and self.reached != "max_time":
            raise BudgetSpent(self.note(), reason=BUDGET_SPENT)

    def charge(self, usage: Usage, pricing: Pricing, model: str) -> None:
        """Count the usage of one reply. If the reply does not report its cost or tokens, a limit on them can no longer
        be enforced and counts as reached."""
        self._count(usage, is_free=pricing.is_free)
        if self.reached is not None:
            return
        if self.limits.max_cost is not None and not pricing.is_free and not _is_amount(usage.cost):
            self._reach("max_cost", f"the cost of a reply of {model} is unknown, so it cannot be enforced")
        elif self.limits.max_tokens_total is not None and usage.unreported:
            self._reach("max_tokens_total", f"{model} did not report the tokens of a reply, so it cannot be enforced")
        else:
            self._look()

    def begin(self, runs: Sequence[BudgetedRun]) -> None:
        """Refuse limits that cannot be enforced, and count what resumed runs have already spent. Blocking.

        Raises:
            ConfigError: the price of a model is unknown, as in `refuse_unpriced`.
            StoreError: a journal cannot be read.
        """
        refuse_unpriced(self.limits, runs)
        if self.limits.max_cost is None and self.limits.max_tokens_total is None:
            return
        for run in runs:
            if run.journal is not None and (run.model is not None or run.derivation is not None):
                model = None if run.model is None else pricing_of(run.model)
                judge = pricing_of(run.judges[0]) if len(run.judges) == 1 else None
                recorded = spent_in(run.journal, model, judge, derivation=run.derivation)
                for usage, is_free in chain(recorded, priced_usages([run.given_up], model)):
                    self._count(usage, is_free=is_free)
        if self.requests:
            self.before = {"cost": self._known_cost(), "tokens": self._known_tokens()}
        self._look()

    def note(self) -> str:
        """Message with the limit that was reached, the amount spent and how to resume; "" if no limit was reached."""
        if self.reached is None:
            return ""
        source = self.limits.sources.get(self.reached, FLAGS[self.reached])
        why = self._why or f"{self._spent(self.reached)} spent"
        return f"the budget is reached ({source}): {why}; {self._advice(self.reached)}"

    def words(self) -> str:
        """Amount spent and limit, such as `$0.12 of $5.00`, of each limit; "" if there are no limits."""
        parts = [
            f"{self._spent(bound).removesuffix(' tokens')} of {_shown(bound, limit)}"
            for bound in BOUNDS
            if (limit := self.limits.of(bound)) is not None
        ]
        return ", ".join(parts)

    def flags(self) -> list[str]:
        """The limits as options of the resume command, with a larger amount for the limit that was reached."""
        return flags_of(self.to_json())

    def enlarged(self, argv: Sequence[str]) -> list[str]:
        """Return a command line with a larger value for the limit that was reached; unchanged if none was reached.

        Args:
            argv: The arguments after `bench`.
        """
        words = list(argv)
        if self.reached in (None, "max_time"):
            return words
        flags = self.flags()
        flag = FLAGS[self.reached]
        value = flags[flags.index(flag) + 1]
        if not self.limits.sources.get(self.reached, flag).startswith(flag):
            return [*words, "--set", f"{BUDGET}.{self.reached}={value}"]  # the bound was set elsewhere
        words = [f"{flag}={value}" if word.startswith(f"{flag}=") else word for word in words]
        return [value if index and words[index - 1] == flag else word for index, word in enumerate(words)]

    def to_json(self) -> JsonDict:
        """The budget as in `run.json` and `--json`. Unknown amounts are null, never 0."""
        return {
            **{bound: self.limits.of(bound) for bound in BOUNDS},
            "spent": {
                "cost": self._known_cost(),
                "unpriced": self.unpriced,
                "tokens": self._known_tokens(),
                "unreported": self.unreported,
                "seconds": round(self.seconds, 3),
            },
            "before": dict(self.before),
            "reached": self.reached,
        }

    def _count(self, usage: Usage, *, is_free: bool = False) -> None:
        replies = usage.requests or 1
        self.requests += replies
        self.tokens += usage.input_tokens + usage.output_tokens
        self.unreported += usage.unreported
        if _is_amount(usage.cost):
            self.cost += cast(float, usage.cost)
        elif not is_free:
            self.unpriced += replies

    def _look(self) -> None:
        for bound in self._bounds:
            limit = self.limits.of(bound)
            if limit is not None and self.reached is None and self._amount(bound) >= limit * (1 - SLACK):
                self._reach(bound)

    def _reach(self, bound: Bound, why: str = "") -> None:
        self.reached, self._why = bound, why
        self.on_reached()

    def _amount(self, bound: Bound) -> float:
        return {"max_cost": self.cost, "max_tokens_total": self.tokens, "max_time": self.seconds}[bound]

    def _spent(self, bound: Bound) -> str:
        words = _shown(bound, self._amount(bound))
        missing = {"max_cost": self.unpriced, "max_tokens_total": self.unreported, "max_time": 0}[bound]
        if not missing:
            return words
        return "unknown" if missing >= self.requests else f"at least {words}"

    def _advice(self, bound: Bound) -> str:
        if bound == "max_time":
            return "resume the run to continue; the time limit then starts again"
        if self._why:
            price = f"a price in the [[endpoint]] table of the model (or {EXTRA})"
            remedy = price if bound == "max_cost" else "an endpoint that reports tokens"
            return f"resume the run with {remedy}, or without {bound}"
        return f"resume the run with a larger {bound}: it includes the amount already spent"

    def _known_cost(self) -> float | None:
        return None if self.unpriced and self.unpriced >= self.requests else self.cost

    def _known_tokens(self) -> int | None:
        return None if self.unreported and self.unreported >= self.requests else self.tokens


@dataclass(frozen=True, slots=True)
class BudgetedRun:
    """A run that the budget checks before the first request: its models, journal and number of rollouts."""

    name: str
    """Name of the run in tables."""
    model: Sequence[Endpoint] | None
    """Endpoints of the model; None if no model is called."""
    judges: Sequence[Sequence[Endpoint]] = ()
    journal: Path | None = None
    """Journal of the resumed run; None for a new run."""
    given_up: JsonDict = field(default_factory=dict[str, object])
    """Usage, from the manifest of a resumed run, of replies that were paid for but are not in its journal."""
    derivation: Derivation | None = None
    """How the run is derived from another run, whose replies are not counted again; None for an ordinary run."""
    rollouts: int = 0
    """Maximum number of rollouts."""
    in_flight: int = 1
    """Maximum number of concurrently generating rollouts; −1 is unlimited."""
    resolved: ResolvedRun | None = None
    """All settings of the run, with their origins."""


def refuse_unpriced(limits: BudgetLimits, runs: Sequence[BudgetedRun]) -> None:
    """Refuse a limit on dollars, or a `cost_limit` of a run, if the price of a model is unknown. Sends nothing.

    Raises:
        ConfigError: a price is unknown; the message names the models and judges and says how to set a price.
    """
    if limits.max_cost is not None:
        source = limits.sources.get("max_cost", "max_cost")
        _require_prices(source, "budget", _asked(runs), "{max_tokens_total}")
    for run in runs:
        if run.resolved is not None and run.model is not None and run.resolved.settings.env.cost_limit is not None:
            source = run.resolved.origins["env.cost_limit"].source
            _require_prices(source, "limit", [(run.name, run.model)], "{token_limit}")


def _require_prices(source: str, kind: str, asked: Iterable[tuple[str, Sequence[Endpoint]]], instead: str) -> None:
    unknown: dict[str, None] = {}
    for name, endpoints in asked:
        if not pricing_of(endpoints).is_known:
            differ = any(each.price != endpoints[0].price for each in endpoints)
            why = ", whose replicas have different prices: give all of them the highest" if differ else ""
            unknown[f"{endpoints[0].model} ({name}{why})"] = None
    if unknown:
        raise ConfigError(
            f"{source}: the price of {', '.join(unknown)} is unknown, so this {kind} cannot be enforced.",
            remedy="Give the [[endpoint]] in configs/endpoints.toml a price = {{ input = …, output = … }} (US dollars "
            'per million tokens), or price = "reported" if its replies report their cost; or '
            f"{EXTRA}, which knows the prices of many providers; or limit the tokens: {instead}",
        )


def overrun_notices(limits: BudgetLimits, runs: Sequence[BudgetedRun]) -> list[str]:
    """Notices about runs that may exceed a limit on dollars or tokens, because requests in flight are not cancelled."""
    at_once = (run for run in runs if run.model is not None and run.rollouts > 1)
    names = list(dict.fromkeys(run.name for run in at_once if not 0 <= run.in_flight < run.rollouts))
    if not names or (limits.max_cost is None and limits.max_tokens_total is None):
        return []
    return [
        f"{', '.join(names)}: all rollouts may be in flight at once, and requests in flight are not cancelled, so "
        "they may exceed the budget; set a smaller max_concurrent to exceed it less"
    ]


def price_notices(runs: Sequence[BudgetedRun]) -> list[str]:
    """Notices about configured prices that are ignored because the genai-prices package lists a price for the model."""
    notices: dict[str, None] = {}
    for name, endpoints in _asked(runs):
        if endpoints[0].price and pricing_of(endpoints).listed is not None:
            model = endpoints[0].model
            words = f"{name}: the price of {model} in its [[endpoint]] is ignored"
            notices[f"{words}, because the genai-prices package has a price for this model"] = None
    return list(notices)


def _asked(runs: Sequence[BudgetedRun]) -> Iterator[tuple[str, Sequence[Endpoint]]]:
    for run in runs:
        if run.model is not None:
            yield run.name, run.model
        yield from ((f"a judge of {run.name}", endpoints) for endpoints in run.judges)


def _is_amount(cost: float | None) -> bool:
    return cost is not None and math.isfinite(cost) and cost >= 0


def _shown(bound: Bound, amount: float) -> str:
    if bound == "max_tokens_total":
        return f"{int(amount):,} tokens"
    if bound == "max_time":
        return _duration(amount)
    digits = 2 if amount >= 1 or amount == 0 else max(2, 2 - math.floor(math.log10(amount)))
    return f"${amount:,.{digits}f}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
