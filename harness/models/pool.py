"""Pool of all clients of a process, in which runs share one limiter and one health state per URL and key. Also defines
replicas of a model, and `BoundChat`, with which environments call models. The module `chat` sends the requests."""

from __future__ import annotations

import logging
import math
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from harness.core.errors import ConfigError, ModelError, SystemicError
from harness.core.types import Client, JsonDict, ModelCall, ModelResponse, Prompt, Sampling, Tools, Usage, value_class
from harness.models.chat import ChatClient
from harness.models.clock import Clock
from harness.models.delays import Delay
from harness.models.health import Health, HealthPolicy
from harness.models.limits import Limiter
from harness.models.retry import RetryPolicy
from harness.models.target import RequestTarget
from harness.models.wire import check_sampling_args, merge_sampling_args
from harness.settings.endpoints import Endpoint
from harness.settings.providers import require_provider

logger = logging.getLogger(__name__)

FILES_BESIDE = 128
"""Number of open files reserved for uses other than connections: journals, datasets, libraries, environments."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Settings of one run for its requests, including rate limits."""

    max_in_flight: int = 32
    """Maximum number of requests of the run in flight; −1 for no limit."""
    rpm: float | None = None
    """Maximum number of requests per minute; None for the endpoint's own limit."""
    tpm: float | None = None
    """Maximum number of tokens per minute; None for the endpoint's own limit."""
    request_timeout: float = 600.0
    """Timeout of one attempt in seconds."""
    request_retries: int = 6
    """Number of retries after the first attempt."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that override those of the endpoint; names are case-insensitive."""


class PooledClient(Client, Protocol):
    """A client that can report why requests wait."""

    def delays(self) -> list[Delay]:
        """Return why requests wait although fewer are in flight than requested; empty if there is no reason."""
        ...


class CallerClient(PooledClient, Protocol):
    """A client object that was passed to the Python API by its caller; see `Endpoint.client`."""

    @property
    def tokens(self) -> int:
        """Tokens of the replies that this client received itself, not counting those of the pool's clients."""
        ...

    def connect(self, pool: ClientPool, settings: CallSettings) -> None:
        """Use `pool` and `settings` for requests that this client passes on to other clients."""
        ...


class ClientPool:
    """All clients of a process.

    Args:
        environ: Environment variables with API keys; by default `os.environ`.
        policy: Settings of the back-off of all clients.
        health: Thresholds for the health of all endpoints.
        clock: Clock of limits, back-off and probes, replaceable in tests.
        sharing: Maximum number of concurrent runs. The limit of requests in flight to an endpoint is the largest one
            that a run sets, multiplied by this number.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        sharing: int = 1,
        policy: RetryPolicy | None = None,
        health: HealthPolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._policy = policy or RetryPolicy()
        self._health_policy = health or HealthPolicy()
        self._clock = clock or Clock()
        self._limiters: dict[tuple[str, str | None], Limiter] = {}
        self._healths: dict[tuple[str, str | None], Health] = {}
        self._clients: dict[tuple[object, ...], ChatClient] = {}
        self._sharing = sharing
        self._caller_clients: list[CallerClient] = []
        self._tokens = 0
        """Number of tokens of the clients that are closed."""
        self._has_warned = False
        """Whether the warning about the limit of open files was already logged."""

    @property
    def tokens(self) -> int:
        """Number of tokens of all replies to all clients so far, including those of rollouts that were not recorded."""
        return self._tokens + sum(client.tokens for client in (*self._clients.values(), *self._caller_clients))

    def get(self, endpoints: Sequence[Endpoint], settings: CallSettings | None = None) -> PooledClient:
        """Return a client for `endpoints`. If there are several, each request is sent to the least busy one.

        All clients with the same URL and key share a limiter, which applies the largest requested concurrency (but at
        most the endpoint's own `max_concurrent`) and the lowest requested rates.

        Raises:
            ConfigError: a URL is malformed, the variable with a key is not set (loopback endpoints need no key), or
                litellm is needed but not installed.
        """
        settings = settings or CallSettings()
        if endpoints and (own := cast("CallerClient | None", endpoints[0].client)) is not None:
            own.connect(self, settings)
            if own not in self._caller_clients:
                self._caller_clients.append(own)
            return own
        members = [(self._client(endpoint, settings), endpoint.model) for endpoint in endpoints]
        if not members:
            raise ConfigError("a model needs at least one endpoint")
        return members[0][0] if len(members) == 1 else Replicas(members)

    def open(self) -> None:
        """Create the provider of every client before the first rollout, because importing aiohttp is slow. No requests
        are sent."""
        for client in self._clients.values():
            client.open()

    async def close(self) -> None:
        """Close every client; idempotent."""
        try:
            for own in self._caller_clients:
                await own.close()
        finally:
            while self._clients:
                _, client = self._clients.popitem()
                self._tokens += client.tokens
                await client.close()

    def _client(self, endpoint: Endpoint, settings: CallSettings) -> ChatClient:
        target = target_of(endpoint, self._environ, settings.headers)
        shared = (target.url.rstrip("/"), target.key)
        asked = settings.max_in_flight
        bound = math.inf if asked < 0 else float(asked * self._sharing)
        if endpoint.max_concurrent is not None and endpoint.max_concurrent >= 0:
            bound = min(bound, float(endpoint.max_concurrent))
        limiter = self._limiters.get(shared)
        if limiter is None:
            self._limiters[shared] = limiter = Limiter(bound, clock=self._clock)
            self._healths[shared] = Health(target.label, self._health_policy, self._clock)
        limiter.widen(bound)
        self._fit_open_files(bound, target)
        limiter.slow_down(
            endpoint.rpm if settings.rpm is None else settings.rpm,
            endpoint.tpm if settings.tpm is None else settings.tpm,
        )
        headers = tuple(sorted(target.headers.items()))
        identity = (*shared, headers, settings.request_timeout, settings.request_retries)
        client = self._clients.get(identity)
        if client is None:
            self._clients[identity] = client = ChatClient(
                target,
                limiter,
                request_timeout=settings.request_timeout,
                request_retries=settings.request_retries,
                health=self._healths[shared],
                policy=self._policy,
                clock=self._clock,
            )
        return client

    def _fit_open_files(self, asked: float, target: RequestTarget) -> None:
        """Return the maximum number of requests in flight to an endpoint, limited by the files that this process may
        open. One endpoint gets at most half of these files, since judges or an embedded server may need the other
        half."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            return
        share = max(1, (files - FILES_BESIDE) // max(2, len(self._limiters)))
        for limiter in self._limiters.values():
            limiter.fit(share)
        if asked > share and not self._has_warned and files < _MANY_FILES:
            self._has_warned = True
            wanted = "any number" if math.isinf(asked) else f"{asked:.0f}"
            logger.warning(
                "%s: at most %s instead of %s can be in flight, because this process may open only %d files; "
                "raise the limit of open files (ulimit -Hn) to allow more",
                target.label, "1 request" if share == 1 else f"{share} requests", wanted, files,
            )  # fmt: skip


_MANY_FILES = 65_536
"""If the limit of open files is at least this number, no warning is logged when it reduces the requests in flight."""


def target_of(
    endpoint: Endpoint, environ: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> RequestTarget:
    """Return the validated address, key and headers of `endpoint`.

    Args:
        endpoint: The endpoint.
        environ: Environment variables with the key of the endpoint.
        headers: Headers that override those of the endpoint. Names are case-insensitive.

    Raises:
        ConfigError: the URL is malformed, the variable with the key is not set (loopback endpoints need no key), the
            key contains invalid characters, or litellm is needed but not installed.
    """
    require_provider(endpoint.url)
    headers = headers or {}
    over = {name.lower() for name in headers}
    merged = {name: value for name, value in endpoint.headers.items() if name.lower() not in over}
    key_name = endpoint.key_var or ""
    # `export KEY="$(cat file)"` and .env files often leave a line break at the end.
    key = (endpoint.key or (environ.get(key_name, "") if key_name else "")).strip()
    target = RequestTarget(endpoint.url, key or None, {**merged, **headers}, key_name=key_name)
    if key_name and not key and not target.is_loopback:
        raise ConfigError(
            f"{target.label}: the environment variable {key_name}, which must contain its key, is not set"
        )
    return target


class Replicas:
    """Several endpoints of one model. Each request is sent to the endpoint with the smallest share of its slots in use.

    Args:
        members: Clients of the endpoints, each with the model's name at its endpoint.
    """

    def __init__(self, members: Sequence[tuple[ChatClient, str]]) -> None:
        self._members = list(members)
        self._primary = members[0][1]
        self._alive = list(members)
        self._turn = 0

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send `call` to one of the replicas. A replica that raises `SystemicError` is not used again.

        Raises:
            SystemicError: the last usable replica failed.
            ModelError: the call failed, and retries did not help.
        """
        while True:
            # The start is rotated, so that idle replicas share the work.
            self._turn = (self._turn + 1) % len(self._alive)
            candidates = self._alive[self._turn :] + self._alive[: self._turn]
            client, model = member = min(candidates, key=lambda each: each[0].load)
            own = replace(call, model=model) if call.model == self._primary and model != call.model else call
            try:
                return await client.request(own)
            except SystemicError as error:
                if member in self._alive:
                    if len(self._alive) == 1:
                        raise
                    self._alive.remove(member)
                    logger.warning("a replica of %s is no longer used: %s", self._primary, error)

    async def close(self) -> None:
        """Close every replica's client; idempotent."""
        for client, _ in self._members:
            await client.close()

    def delays(self) -> list[Delay]:
        """Return the reasons why requests to the replicas wait, and how many replicas are left if some have failed."""
        found = [delay for client, _ in self._alive for delay in client.delays()]
        if len(self._alive) < len(self._members):
            found.insert(0, Delay(f"{len(self._alive)} of {len(self._members)} replicas left"))
        return found


@value_class
class BoundChat:
    """A model bound to its client, sampling arguments and rollout; implements `harness.core.types.Chat`.

    Raises:
        ConfigError: the sampling arguments have an unsupported value (`stream`, `n` > 1).
    """

    client: Client
    model: str
    sampling_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Sampling arguments of the run, which those of a call override."""
    lane: str = ""
    """Name of the run in the limiter's queue, in which runs take turns."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of each request. For an endpoint on this machine, they include the header that names the rollout."""
    urgent: bool = False
    """Whether requests are sent before waiting requests that are not urgent, as for judges."""
    tools: Sequence[JsonDict] | None = None
    """Tools for calls that do not pass their own."""
    check: Callable[[], None] | None = None
    """Called before each request, and again when the request has a slot; see `ModelCall.check`."""
    charge: Callable[[Usage], Usage] | None = None
    """Called with the usage of each reply as soon as the reply arrives; returns the usage with its cost."""

    def __post_init__(self) -> None:
        check_sampling_args(self.sampling_args)

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Send a prompt to the model. `sampling_args` override the run's own; `extra_body` is merged key by key.

        Raises:
            BudgetSpent: the budget is spent; nothing was sent.
            ModelError: the call failed, and retries did not help.
        """
        check, charge = self.check, self.charge
        if check is not None:
            check()
        merged = merge_sampling_args(self.sampling_args, sampling_args) if sampling_args else self.sampling_args
        tools = self.tools if tools is None else tools
        try:
            response = await self.client.request(
                ModelCall(self.model, prompt, tools, merged, self.headers, self.lane, self.urgent, check)
            )
        except ModelError as error:
            if error.wasted is not None and charge is not None:
                error.wasted = charge(error.wasted)
            raise
        if charge is None:
            return response
        usage = charge(response.usage)
        wasted = None if response.wasted is None else charge(response.wasted)
        if usage is response.usage and wasted is None:
            return response
        return replace(response, usage=usage, wasted=wasted)
