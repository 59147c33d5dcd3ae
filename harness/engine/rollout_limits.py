"""Limits of each attempt at a rollout: the number of model calls (`message_limit`), tokens (`token_limit`) and dollars
(`cost_limit`). A call that exceeds a limit is refused without being sent.

Calls are counted when they are sent, including those that fail, so that parallel requests are counted exactly. Messages
of the conversation are not counted, since an agent that only repeats one call adds none.

Tokens are counted when a reply arrives. Until then, a request reserves its `max_tokens`, and other requests wait if
they would exceed the limit together with it. Dollars are also counted when a reply arrives, but they are not reserved.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import orjson

from harness.core.errors import BudgetSpent, ContextLengthError, LimitReached, ModelError
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Usage
from harness.engine.prices import pricing_of
from harness.models.wire import CHARS_PER_TOKEN, estimate_prompt_tokens, merge_sampling_args
from harness.settings.resolver import ResolvedRun
from harness.settings.schema import ROLLOUT_LIMITS
from harness.usercode.deadline import waiting

REFUSALS = 100
"""Maximum number of refused calls, after which a rollout is cancelled. Otherwise, code that catches every refusal and
calls again would never end."""

_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens")
"""Names of request arguments that limit the tokens of a reply."""

_REFUSED_STATUSES = (400, 422)
"""HTTP statuses with which an endpoint rejects a `max_tokens` above the model's maximum."""


@dataclass(slots=True)
class RolloutLimits:
    """The limits of each rollout of a run, from the settings in `ROLLOUT_LIMITS`."""

    message_limit: int | None = None
    """Maximum number of model calls of one attempt; None for no limit."""
    token_limit: int | None = None
    """Maximum number of input and output tokens of one attempt; None for no limit."""
    cost_limit: float | None = None
    """Maximum cost of one attempt in US dollars; None for no limit or if the model is free."""
    is_refusable: bool = False
    """Whether calls may also be refused for another reason: a spent budget, or the end of a replayed recording."""
    largest_max_tokens: int = field(default=sys.maxsize, repr=False)
    """Largest `max_tokens` to send for a call that does not set it. Lowered when the endpoint rejects a value."""

    @classmethod
    def of(cls, run: ResolvedRun, *, is_refusable: bool) -> RolloutLimits:
        """Return the limits in the settings of a run."""
        env = run.settings.env
        limits = {name: getattr(env, name) for name in ROLLOUT_LIMITS}
        if pricing_of(run.endpoints).is_free:
            limits["cost_limit"] = None
        return cls(**limits, is_refusable=is_refusable)

    @property
    def given(self) -> dict[str, Any]:
        """The limits that are set, by name."""
        return {name: limit for name in ROLLOUT_LIMITS if (limit := getattr(self, name)) is not None}

    @property
    def may_refuse(self) -> bool:
        """Whether any call of a rollout may be refused."""
        return self.is_refusable or bool(self.given)

    def times(self, count: int) -> RolloutLimits:
        """Return the limits of `count` attempts together."""
        return replace(self, **{name: limit * count for name, limit in self.given.items()})


@dataclass(slots=True)
class CallGate:
    """Counts the calls, tokens and dollars of one attempt at a rollout, and refuses calls that exceed its limits."""

    limits: RolloutLimits
    sampling_args: Mapping[str, Any]
    """Sampling arguments of the run, which those of a call override."""
    stop: Callable[[], object]
    """Callback that cancels the rollout."""
    calls: int = 0
    """Number of calls sent."""
    tokens: int = 0
    """Number of tokens of all ended calls, estimated from their length if the endpoint does not report it."""
    cost: float = 0.0
    """Cost in US dollars of all replies whose cost is known."""
    is_cost_known: bool = True
    """Whether the cost of every reply is known."""
    refusal: LimitReached | BudgetSpent | None = None
    """The error of the first refused call."""
    _refused: int = 0
    _reserved: int = 0
    _waiters: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])

    async def enter(self, sampling_args: Mapping[str, Any] | None) -> Ticket:
        """Count a call that the caller is about to send. Waits if the call does not fit into the token limit yet.

        Raises:
            LimitReached: the call exceeds a limit.
            BudgetSpent: an earlier call was refused because the budget was spent.
        """
        limits = self.limits
        while True:
            if self.refusal is not None:
                await self.refuse(self.refusal)
            if limits.message_limit is not None and self.calls >= limits.message_limit:
                await self.refuse(LimitReached(_CALLS.format(limits.message_limit), reason="message_limit"))
            if limits.cost_limit is not None and (words := self._cost_refusal(limits.cost_limit)):
                await self.refuse(LimitReached(words, reason="cost_limit"))
            if limits.token_limit is None:
                self.calls += 1
                return Ticket(self, sampling_args, 0)
            left = limits.token_limit - self.tokens
            if left <= 0:
                words = _TOKENS.format(self.tokens, limits.token_limit)
                await self.refuse(LimitReached(words, reason="token_limit"))
            asked = output_limit(merge_sampling_args(self.sampling_args, sampling_args))
            share = left if asked is None else min(asked, left)
            if not self._reserved or self._reserved + share <= left:
                break
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            with waiting():
                await waiter
        self.calls += 1
        self._reserved += share
        return Ticket(self, sampling_args, share, is_unlimited=asked is None)

    def _cost_refusal(self, limit: float) -> str:
        """Return the reason why `cost_limit` allows no further call; "" if it allows one."""
        if not self.is_cost_known:
            return f"the cost of a reply is unknown, so cost_limit (${limit:g}) cannot be enforced"
        is_reached = self.cost >= limit or math.isclose(self.cost, limit)  # ten replies at $0.01 are $0.10
        return f"the rollout has cost ${self.cost:.4g} of the ${limit:g} that cost_limit allows" if is_reached else ""

    def settle(self, share: int, tokens: int, usages: Sequence[Usage]) -> None:
        """Count the tokens and the cost of an ended call, and wake waiting calls."""
        self._reserved -= share
        self.tokens += tokens
        for usage in usages:
            if usage.cost is not None and 0 <= usage.cost < math.inf:
                self.cost += usage.cost
            else:
                self.is_cost_known = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def refuse(self, error: LimitReached | BudgetSpent) -> NoReturn:
        """Refuse a call, or record that it was refused because the budget is spent or a recording has ended.

        Raises:
            LimitReached, BudgetSpent: always.
        """
        self.refusal = self.refusal or error
        self._refused += 1
        if self._refused > REFUSALS:
            self.stop()
            await asyncio.get_running_loop().create_future()  # until this task is cancelled
        await asyncio.sleep(0)  # a loop around refused calls must not block the event loop
        raise type(error)(str(error), reason=error.reason)


_CALLS = "the rollout has made the {:,} model calls that message_limit allows"
_TOKENS = "the rollout has used {:,} of the {:,} tokens that token_limit allows"


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to send one model call."""

    gate: CallGate
    sampling_args: Mapping[str, Any] | None
    share: int
    """Maximum number of tokens of the reply; 0 for no limit."""
    is_unlimited: bool = False
    """Whether the call does not set a token limit itself."""

    async def send(self, inner: Chat, prompt: Prompt, tools: Any) -> ModelResponse:
        """Send the call through `inner`, with `max_tokens` reduced to the remaining tokens, and count its tokens."""
        return await self._counted(self._ask(inner, prompt, tools), prompt)

    async def relay(self, inner: Chat, prompt: Prompt, tools: Any) -> ModelResponse:
        """Send the call through `inner` with unchanged arguments: an isolated process has reduced `max_tokens`."""
        try:
            return await self._counted(inner(prompt, tools=tools, sampling_args=self.sampling_args), prompt)
        except ModelError as error:
            if self.share and error.status in _REFUSED_STATUSES:
                self.gate.calls -= 1  # the retry without `max_tokens` counts as the same call
            raise

    async def _counted(self, asking: Awaitable[ModelResponse], prompt: Prompt) -> ModelResponse:
        tokens, usages = 0, list[Usage]()
        try:
            response = await asking
            usages = [response.usage, *([] if response.wasted is None else [response.wasted])]
            tokens = tokens_of(response.usage, prompt, response.message)
            tokens += sum(tokens_of(wasted, prompt) for wasted in usages[1:])
            return response
        except ModelError as error:
            usages = [] if error.wasted is None else [error.wasted]
            tokens = sum(tokens_of(wasted, prompt) for wasted in usages)
            raise
        finally:
            self.gate.settle(self.share, tokens, usages)

    async def _ask(self, inner: Chat, prompt: Prompt, tools: Any) -> ModelResponse:
        limits = self.gate.limits
        if not self.share:
            return await inner(prompt, tools=tools, sampling_args=self.sampling_args)
        if not self.is_unlimited:
            return await inner(prompt, tools=tools, sampling_args=self._cut())
        # A completion model without max_tokens replies with a few tokens; setting it would ask for more.
        if isinstance(prompt, str) or self.share > limits.largest_max_tokens:
            return await inner(prompt, tools=tools, sampling_args=self.sampling_args)
        try:
            return await inner(
                prompt, tools=tools, sampling_args={**(self.sampling_args or {}), "max_tokens": self.share}
            )
        except ModelError as error:
            if not isinstance(error, ContextLengthError) and error.status not in _REFUSED_STATUSES:
                raise
        # The remaining tokens may exceed the model's maximum reply, which many endpoints refuse.
        limits.largest_max_tokens = min(limits.largest_max_tokens, self.share // 2)
        return await inner(prompt, tools=tools, sampling_args=self.sampling_args)

    def _cut(self) -> JsonDict:
        """Return the call's sampling arguments, with each token limit lowered to the tokens reserved for the call."""
        merged = merge_sampling_args(self.gate.sampling_args, self.sampling_args)
        over: JsonDict = dict(self.sampling_args or {})
        over.update(_lowered(merged, self.share))
        extra = merged.get("extra_body")
        if isinstance(extra, Mapping) and (lowered := _lowered(cast("Mapping[str, Any]", extra), self.share)):
            over["extra_body"] = {**(over.get("extra_body") or {}), **lowered}
        return over


def output_limit(sampling_args: Mapping[str, Any]) -> int | None:
    """Return the lowest limit on the tokens of a reply in a request's sampling arguments; None if they set none."""
    bodies: list[Mapping[str, Any]] = [sampling_args]
    if isinstance(extra := sampling_args.get("extra_body"), Mapping):
        bodies.append(cast("Mapping[str, Any]", extra))
    found = [body[name] for body in bodies for name in _OUTPUT_LIMITS if _is_count(body.get(name))]
    return min(found, default=None)


def _lowered(body: Mapping[str, Any], most: int) -> JsonDict:
    return {name: most for name in _OUTPUT_LIMITS if _is_count(body.get(name)) and body[name] > most}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def tokens_of(usage: Usage, prompt: Prompt, message: JsonDict | None = None) -> int:
    """Return the number of tokens of one call, estimated from its length if the endpoint does not report it.

    Args:
        usage: The usage that the endpoint reported.
        prompt: The prompt of the call.
        message: The reply; None if it could not be used.
    """
    told = usage.input_tokens + usage.output_tokens
    missing = usage.unreported if told > 0 or usage.unreported else 1
    if not missing:
        return told
    reply = 0 if message is None else len(orjson.dumps(message, default=str)) // CHARS_PER_TOKEN
    return told + missing * (estimate_prompt_tokens(prompt) + 1) + reply
