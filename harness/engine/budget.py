"""What one invocation spends, and the bounds on that. Owns the count of dollars, tokens and seconds of all its runs and
judges, and whether a rollout may begin and a call may be sent. Prices are `engine.prices`' business; a request that was
sent is never cut off by money or tokens.

    reply ──► PricedChat ──► Budget.charge ◄── replies of earlier attempts, from the journals that a resume goes on with
                   └───────► Budget.check
                                  │
    Schedule ──► may_start ───────┘"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import cast

from harness.core.errors import BudgetSpent, ConfigError
from harness.core.records import BUDGET_SPENT
from harness.core.types import JsonDict, Usage
from harness.engine.derived import Derivation
from harness.engine.prices import EXTRA, Pricing, pricing_of
from harness.engine.spending import given_up_earlier, spent_in
from harness.settings.budget import BOUNDS, BUDGET, FLAGS, Bound, BudgetLimits, flags_of
from harness.settings.endpoints import Endpoint

SLACK = 1e-9
"""Part of a bound that rounding may be short of: ten replies at $0.01 are $0.10."""


class Budget:
    """The bounds of an invocation, and what has been spent of them.

    Counts change on the event loop only; a display may read them from another thread.

    Args:
        limits: The bounds; without any, everything is only counted.
        clock: Monotonic seconds. Time counts from here.
    """

    def __init__(self, limits: BudgetLimits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or BudgetLimits()
        self.reached: Bound | None = None
        """The bound that was met first."""
        self.on_reached: Callable[[], None] = lambda: None
        """Called once, when that happens. Must not raise."""
        self.cost = 0.0
        """Dollars, of the replies whose cost is known."""
        self.tokens = 0
        self.requests = 0
        """Replies that were counted."""
        self.unpriced = 0
        """Replies whose cost is unknown."""
        self.unreported = 0
        """Replies whose tokens are unknown."""
        self.before: JsonDict = {}
        """What earlier attempts had spent: `cost`, `tokens`."""
        self._why = ""
        self._is_expired = False
        self._clock = clock
        self._began = clock()

    @property
    def seconds(self) -> float:
        """Since the invocation began."""
        return self._clock() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Until the time is up; None if it is not bounded."""
        return None if self.limits.max_time is None else max(0.0, self.limits.max_time - self.seconds)

    @property
    def is_time_up(self) -> bool:
        """Whether the bound on time is met."""
        return self._is_expired or self.seconds_left == 0

    def expire(self) -> None:
        """The time is up, by a timer that was set to `seconds_left`: its clock may be a little ahead of ours."""
        self._is_expired = True
        self.may_start()

    def may_start(self) -> bool:
        """Whether a rollout may begin."""
        if self.reached is None and self.is_time_up:
            self._reach("max_time")
        return self.reached is None

    def may_score(self) -> bool:
        """Whether a score may be made that asks nobody: it costs nothing, but time."""
        return self.may_start() or not self.is_time_up

    def check(self) -> None:
        """Refuse a call once money or tokens are spent. When the time is up, calls of begun rollouts still have until
        these are given up.

        Raises:
            BudgetSpent: nothing may be asked any more.
        """
        if self.reached is not None and self.reached != "max_time":
            raise BudgetSpent(self.note(), reason=BUDGET_SPENT)

    def charge(self, usage: Usage, pricing: Pricing, model: str) -> None:
        """Count a reply.

        A bound that cannot be watched any more, because a reply does not say what it took, is as good as met.
        """
        self._count(usage, is_free=pricing.is_free)
        if self.reached is not None:
            return
        if self.limits.max_cost is not None and not pricing.is_free and not _is_amount(usage.cost):
            self._reach("max_cost", f"a reply of {model} came without a cost that is known, so it cannot be kept")
        elif self.limits.max_tokens_total is not None and usage.unreported:
            self._reach("max_tokens_total", f"a reply of {model} did not say its tokens, so it cannot be kept")
        else:
            self._look()

    def begin(self, runs: Sequence[Asking]) -> None:
        """Refuse what cannot be kept, and count what the runs that are gone on with have spent already. Blocking.

        Raises:
            ConfigError: see `refuse_unpriced`.
            StoreError: a journal cannot be read.
        """
        refuse_unpriced(self.limits, runs)
        if self.limits.max_cost is None and self.limits.max_tokens_total is None:
            return
        for run in runs:
            if run.journal is not None and (run.model is not None or run.derivation is not None):
                model, judge = run.pricings()
                recorded = spent_in(run.journal, model, judge, derivation=run.derivation)
                for usage, is_free in chain(recorded, given_up_earlier(run.given_up, model)):
                    self._count(usage, is_free=is_free)
        if self.requests:
            self.before = {"cost": self._known_cost(), "tokens": self._known_tokens()}
        self._look()

    def note(self) -> str:
        """Which bound was met, what was reached, and how to go on; "" if none was."""
        if self.reached is None:
            return ""
        source = self.limits.sources.get(self.reached, FLAGS[self.reached])
        why = self._why or f"{self._spent(self.reached)} spent"
        return f"the budget is reached ({source}): {why}; {self._advice(self.reached)}"

    def words(self) -> str:
        """What is spent of each bound: `$0.12 of $5.00`; "" if there is none."""
        parts = [
            f"{self._spent(bound).removesuffix(' tokens')} of {_shown(bound, limit)}"
            for bound in BOUNDS
            if (limit := self.limits.of(bound)) is not None
        ]
        return ", ".join(parts)

    def flags(self) -> list[str]:
        """The bounds as options of the command that goes on, the one that was met with a larger amount."""
        return flags_of(self.to_json())

    def enlarged(self, argv: Sequence[str]) -> list[str]:
        """A command line with the bound that was met replaced by a larger one; nothing is changed if none was.

        Args:
            argv: The arguments behind `bench`.
        """
        words = list(argv)
        if self.reached in (None, "max_time"):
            return words
        flags = self.flags()
        flag = FLAGS[self.reached]
        value = flags[flags.index(flag) + 1]
        if not self.limits.sources.get(self.reached, flag).startswith(flag):
            return [*words, "--set", f"{BUDGET}.{self.reached}={value}"]  # it is not the flag that set it
        words = [f"{flag}={value}" if word.startswith(f"{flag}=") else word for word in words]
        return [value if index and words[index - 1] == flag else word for index, word in enumerate(words)]

    def to_json(self) -> JsonDict:
        """As in `run.json` and `--json`. What is unknown is null, never 0."""
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
        for bound in BOUNDS:
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
            return "go on with --resume; the time counts anew"
        if self._why:
            told = f"price in the [[endpoint]] table of the model, or {EXTRA}" if bound == "max_cost" else "endpoint"
            return f"go on with --resume, and a {told}; or without {FLAGS[bound]}"
        return f"go on with --resume and a larger {FLAGS[bound]}: what is spent counts"

    def _known_cost(self) -> float | None:
        return None if self.unpriced and self.unpriced >= self.requests else self.cost

    def _known_tokens(self) -> int | None:
        return None if self.unreported and self.unreported >= self.requests else self.tokens


@dataclass(frozen=True, slots=True)
class Asking:
    """One run before its first request, as far as money matters."""

    name: str
    """What tables call it."""
    model: Sequence[Endpoint] | None
    """None if no model is asked."""
    judges: Sequence[Sequence[Endpoint]] = ()
    journal: Path | None = None
    """Of the run that it goes on with."""
    given_up: JsonDict = field(default_factory=dict[str, object])
    """What of that run is in no journal: `Manifest.given_up`."""
    derivation: Derivation | None = None
    """How it is made from another run, whose replies are not its own."""
    rollouts: int = 0
    """It has at most."""
    in_flight: int = 1
    """Rollouts that may be generated at once; −1 is unlimited."""

    @property
    def is_all_at_once(self) -> bool:
        """Whether every rollout may have begun before the first reply is there."""
        return self.model is not None and self.rollouts > 1 and not 0 <= self.in_flight < self.rollouts

    def pricings(self) -> tuple[Pricing | None, Pricing | None]:
        """Of the model and of its judge; None where there is none, or no single one."""
        model = None if self.model is None else pricing_of(self.model)
        return model, pricing_of(self.judges[0]) if len(self.judges) == 1 else None


def refuse_unpriced(limits: BudgetLimits, runs: Sequence[Asking]) -> None:
    """Refuse a bound on dollars where what a model costs cannot be known. Sends nothing.

    Raises:
        ConfigError: names the models and judges, and says what to do.
    """
    if limits.max_cost is None:
        return
    unknown: dict[str, None] = {}
    for name, endpoints in _asked(runs):
        if not pricing_of(endpoints).is_known:
            differ = any(each.price != endpoints[0].price for each in endpoints)
            why = ", whose replicas have different prices: give all of them the highest" if differ else ""
            unknown[f"{endpoints[0].model} ({name}{why})"] = None
    if unknown:
        source = limits.sources.get("max_cost", FLAGS["max_cost"])
        raise ConfigError(
            f"{source}: the price of {', '.join(unknown)} is unknown, so this budget could not be kept. Give the "
            "[[endpoint]] in configs/endpoints.toml a price = { input = …, output = … } (US dollars a million tokens), "
            f'or price = "reported" if its replies say what they cost; or {EXTRA}, which knows the prices of many '
            f"providers; or bound the tokens: {FLAGS['max_tokens_total']}"
        )


def loose_notices(limits: BudgetLimits, runs: Sequence[Asking]) -> list[str]:
    """Runs that a bound on dollars or tokens may not stop, since requests in flight are finished."""
    names = list(dict.fromkeys(run.name for run in runs if run.is_all_at_once))
    if not names or (limits.max_cost is None and limits.max_tokens_total is None):
        return []
    return [
        f"{', '.join(names)}: all rollouts may be in flight at once, and requests in flight are finished, so the "
        "budget may stop nothing; a smaller -c keeps it closer"
    ]


def price_notices(runs: Sequence[Asking]) -> list[str]:
    """Prices that somebody wrote and that do not count, since the extra's list has another one for the model."""
    notices: dict[str, None] = {}
    for name, endpoints in _asked(runs):
        if endpoints[0].price and pricing_of(endpoints).listed is not None:
            words = f"{name}: the price of {endpoints[0].model} in its [[endpoint]] has no effect: genai-prices has one"
            notices[words] = None
    return list(notices)


def _asked(runs: Sequence[Asking]) -> Iterator[tuple[str, Sequence[Endpoint]]]:
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
