"""Client of one endpoint. It runs a request from queueing to reply, in these steps: check the endpoint's health, wait
for a slot, send, evaluate the reply, back off. The slot is held from send to reply."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from harness.core.errors import BudgetSpent, ConfigError, ModelError, SystemicError
from harness.core.messages import Message, Name
from harness.core.redact import redactor
from harness.core.types import ROLLOUT_HEADER, ModelCall, ModelResponse, Usage
from harness.models.clock import Clock, within
from harness.models.delays import Delay
from harness.models.failures import AttemptFailed, Failure, clean, timed_out
from harness.models.health import Health
from harness.models.limits import Limiter
from harness.models.provider import Provider, open_provider
from harness.models.retry import BAD_REPLY_RETRIES, RetryPolicy
from harness.models.target import RequestTarget
from harness.models.wire import (
    asked_output_tokens,
    check_sampling_args,
    estimate_prompt_tokens,
    is_another_model,
)
from harness.usercode.deadline import waiting

logger = logging.getLogger(__name__)

MAX_OUTAGES = 8
"""Number of outages of the endpoint after which a call fails, so that the call ends even if the host fails again and
again. Attempts in which nothing was sent do not count as retries."""

_MAX_MODEL_PAIRS = 100
"""Maximum number of stored pairs of a requested model name and the name in the reply. A limit is needed because some
servers return a different name each time."""

_MAX_BLOCKED_SHARE = 0.25
"""A failed connection is not blamed on the endpoint if this process was blocked for at least this share of the
connection attempt's time."""

_SURELY_DEAD = 3
"""If an endpoint has never answered, it is given up after this number of attempts of a call without an HTTP reply."""


class ChatClient:
    """Client of one endpoint; implements `harness.core.types.Client`.

    Args:
        target: The endpoint.
        limiter: Limits of the endpoint; shared by all clients with the same URL and key.
        request_timeout: Timeout of one attempt in seconds, from sending the request to the last byte of the reply.
        request_retries: Number of retries after the first attempt.
        health: Health of the endpoint; shared by the same clients as the limiter.
        policy: Settings of the back-off; its `retries` are replaced by `request_retries`.
        clock: Clock for back-off and probes, replaceable in tests. The request timeout always uses the event loop's
            clock, and does not count time in which this process was blocked.
    """

    def __init__(
        self,
        target: RequestTarget,
        limiter: Limiter,
        *,
        request_timeout: float = 600.0,
        request_retries: int = 6,
        health: Health | None = None,
        policy: RetryPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.target = target
        self.limiter = limiter
        self._clock = clock or Clock()
        self.health = health or Health(target.label, clock=self._clock)
        self._timeout = request_timeout
        self._policy = replace(policy or RetryPolicy(), retries=request_retries)
        self._strips_rollout = not target.is_loopback
        self._provider: Provider | None = None
        self._closed = False
        self._model_pairs: set[tuple[str, str]] = set()
        """Pairs of a requested model name and the different name in the reply."""
        self.tokens = 0
        """Number of tokens of all replies so far."""

    @property
    def load(self) -> float:
        """Requests in flight and queued, as a share of the maximum in flight, to choose the least busy replica."""
        return (self.limiter.in_flight + self.limiter.queued) / self.limiter.bound

    def delays(self) -> list[Delay]:
        """Return the reasons why requests wait although the maximum in flight is not reached."""
        return [*self.health.delays(), *self.limiter.delays()]

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send `call` and return the reply. Temporary failures are retried.

        Raises:
            ModelError: the call failed, and retries did not help.
            SystemicError: every call to this endpoint would fail.
        """
        limiter, health, clock = self.limiter, self.health, self._clock
        call = self._checked(call)
        provider = self._provider or self.open()
        tokens = 0
        if limiter.counts_tokens:
            tokens = limiter.estimate(estimate_prompt_tokens(call.prompt), asked_output_tokens(call))
        progress = _Progress()
        while True:
            if not await self._take_slot(call, tokens, progress):
                continue
            sent_at, progress.blocked_before = clock.now(), clock.blocked_seconds()
            health.sent(progress, call.model, sent_at)
            try:
                with within(clock, self._timeout):
                    reply = await provider.complete(call)
            except AttemptFailed as error:
                failure = error.failure
            except TimeoutError:
                failure = timed_out(self._timeout)
            except ModelError:
                raise
            except Exception as error:  # boundary around the provider's code, which may be of another package
                words = clean(f"{type(error).__name__}: {error}")
                failure = Failure("reply", "bad_response", f"the code of this provider failed with {words}", True)
            else:
                self._note_reply(call, reply, tokens)
                return ModelResponse(
                    reply.message, reply.finish_reason, reply.usage, reply.model, reply.id,
                    clock.now() - sent_at, progress.attempts + 1, progress.wasted, reply.logprobs,
                )  # fmt: skip
            finally:
                health.ended(progress)
                limiter.release()
            if failure.resend:
                health.got_answer()
                continue
            if failure.kind == "timeout" and await self._is_gone(call, failure.detail, sent_at, progress):
                continue
            delay = self._settle(call, failure, progress, sent_at, tokens)
            if delay > 0.0:
                with limiter.sleeping(failure.reason, delay), waiting():
                    await clock.sleep(delay)

    def _checked(self, call: ModelCall) -> ModelCall:
        """Validate the sampling arguments, and remove the rollout header unless the endpoint is on this machine."""
        try:
            check_sampling_args(call.sampling_args)
        except ConfigError as error:
            raise ModelError(str(error), reason="bad_request") from error
        if self._strips_rollout and call.headers:
            kept = {name: value for name, value in call.headers.items() if name.lower() != ROLLOUT_HEADER.lower()}
            return replace(call, headers=kept)
        return call

    async def _take_slot(self, call: ModelCall, tokens: int, progress: _Progress) -> bool:
        """Wait for a slot. If the endpoint becomes unusable in the meantime, give the slot back and return False.

        Raises:
            BudgetSpent: the budget does not allow the call.
        """
        limiter, health = self.limiter, self.health
        if health.blocked or not limiter.try_acquire(tokens):
            with waiting():
                if health.blocked:
                    await health.admit(call.model, self._probe)
                await limiter.acquire(call.lane, call.urgent, tokens)
            # The endpoint may have become unusable while this call was waiting for its slot.
            if health.blocked and not health.admits(call.model):
                limiter.withdraw(tokens)
                return False
        if call.check is not None:
            try:
                call.check()
            except BudgetSpent as error:
                limiter.withdraw(tokens)
                error.wasted = progress.wasted
                raise
        return True

    async def close(self) -> None:
        """Close all connections; idempotent."""
        self._closed = True
        provider, self._provider = self._provider, None
        if provider is not None:
            await provider.close()

    def _note_reply(self, call: ModelCall, reply: ModelResponse, tokens: int) -> None:
        """Report a reply to limiter and health. Warn once if it comes from a model other than the requested one."""
        if reply.model and reply.model != call.model:
            pair = (call.model, reply.model)
            if pair not in self._model_pairs and len(self._model_pairs) < _MAX_MODEL_PAIRS:
                self._model_pairs.add(pair)
                if is_another_model(*pair):
                    logger.warning("%s: %s was requested, but %s answered", self.target.label, pair[0], clean(pair[1]))
        self.tokens += reply.usage.input_tokens + reply.usage.output_tokens
        self.health.answered(call.model)
        self.limiter.succeeded()
        if tokens and not reply.usage.unreported:
            self.limiter.used(tokens, reply.usage.input_tokens, reply.usage.output_tokens)

    async def _probe(self, seconds: float) -> bool:
        try:
            with within(self._clock, seconds):
                return await self.open().probe()
        except TimeoutError:
            return False

    async def _is_gone(self, call: ModelCall, why: str, sent_at: float, progress: _Progress) -> bool:
        """Return whether a request timed out because the host is gone. If so, the timeout is counted as an outage and
        not as an attempt."""
        if call.quick or self.target.provider:  # a provider's address is known only to litellm
            return False
        with waiting():
            gone = await self.health.is_gone(why, sent_at, self._probe)
        progress.outages += gone
        return gone and progress.outages <= MAX_OUTAGES

    def _settle(self, call: ModelCall, failure: Failure, progress: _Progress, sent_at: float, tokens: int) -> float:
        """Report a failure to limiter and health, and return the seconds to wait before the next attempt.

        Raises:
            ModelError: the call is not retried.
        """
        if failure.kind == "unreachable":
            return self._settle_unreachable(call.model, failure, progress, sent_at)
        progress.attempts += 1
        progress.earlier, progress.last = progress.last, sent_at
        progress.bad_replies += failure.reason == "bad_response"
        if failure.usage is not None:
            progress.wasted = (progress.wasted or Usage()) + failure.usage
        if failure.status is not None:
            self.health.got_answer()
        if failure.status == 429:
            self.limiter.refused(sent_at, self._policy.capped(failure.retry_after), tokens)
        if failure.denied:
            self.health.denied(call.model, self._denial(call, failure), failure.status, failure.reason)
        if call.quick and failure.kind in ("unsent", "page"):
            words = redactor.text(f"{self.target.label}: {failure.detail}")
            raise SystemicError(words, status=failure.status, reason=failure.reason)
        if call.quick and failure.kind != "broken":
            raise failure.error(self.target.label, progress.attempts, progress.wasted)
        too_many_bad = progress.bad_replies > BAD_REPLY_RETRIES
        retries = min(self._policy.retries, _SURELY_DEAD - 1) if call.quick else self._policy.retries
        if failure.retry and progress.attempts <= retries and not too_many_bad:
            return self._policy.delay(progress.attempts, failure.retry_after)
        if failure.kind == "page" and too_many_bad:
            message = str(failure.error(self.target.label, progress.attempts))
            self.health.got_only_pages(call.model, message, progress.earlier)
        if failure.kind == "broken" and not self.health.reachable and progress.attempts >= _SURELY_DEAD:
            self.health.give_up(f"{failure.detail} at every attempt, and it has never answered")
            return 0.0
        raise failure.error(self.target.label, progress.attempts, progress.wasted)

    def _settle_unreachable(self, model: str, failure: Failure, progress: _Progress, sent_at: float) -> float:
        """Report a failed connection, and return the seconds to wait before the next attempt. Since nothing was sent,
        the failure is not counted as an attempt."""
        progress.outages += 1
        blocked = self._clock.blocked_seconds() - progress.blocked_before
        if not failure.slow or blocked < _MAX_BLOCKED_SHARE * (self._clock.now() - sent_at):
            self.health.unreachable(failure.detail)
        if progress.outages > MAX_OUTAGES:
            raise failure.error(self.target.label, progress.outages)
        return self._policy.delay(progress.outages) if self.health.admits(model) else 0.0

    def _denial(self, call: ModelCall, failure: Failure) -> Message:
        """Return the error message for a rejected key or an unknown model, with advice."""
        target = self.target
        if failure.kind == "unsent":
            advice = ""
        elif failure.reason != "auth":
            advice = "; check the model name {model!r} and the base URL {url}"
        elif target.key:
            advice = "; check the key in {variable}" if target.key_name else "; check the key"
        else:
            found = "litellm found no key" if target.provider else "no key was sent"
            advice = f"; {found}: set {{api_key_var}} to the name of the variable that contains the key"
        return Message(
            "{problem}" + advice,
            problem=redactor.text(f"{target.label}: {failure.detail}"),
            variable=Name(target.key_name or ""),
            model=redactor.text(call.model),
            url=redactor.text(target.url.partition("?")[0]),
        )

    def open(self) -> Provider:
        """Return the provider, created at the first call because importing aiohttp is slow. Nothing is sent.

        Raises:
            ConfigError: the endpoint's provider is not installed, or litellm does not know it.
        """
        if self._closed:
            raise RuntimeError(f"the client of {self.target.label} is closed, so it cannot send requests")
        if self._provider is None:
            # Shorter than the request timeout, to distinguish a host that drops connections from a slow model.
            connect_timeout = min(self.health.policy.connect_deadline, 0.8 * self._timeout)
            self._provider = open_provider(self.target, timeout=self._timeout, connect_timeout=connect_timeout)
            self.health.begin()
        return self._provider


@dataclass(slots=True, eq=False)
class _Progress:
    """Progress of one call: its attempts and outages so far."""

    blocked_before: float = 0.0
    """Value of `Clock.blocked_seconds` when the last attempt began, in seconds."""
    attempts: int = 0
    """Number of failed requests that were sent."""
    bad_replies: int = 0
    """Number of replies with status 200 that could not be parsed."""
    wasted: Usage | None = None
    """Usage reported by failed replies."""
    outages: int = 0
    """Number of failed connections, and of timeouts because the host was gone."""
    earlier: float = 0.0
    """Time at which the second-to-last attempt was sent."""
    last: float = 0.0
    """Time at which the last attempt was sent."""
