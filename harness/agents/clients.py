"""Model clients that a caller of the Python API brings: any object with `chat_completions`, one instance for each
concurrent rollout. Assigns the instances to rollouts and translates between their calls and the engine's. An
`ExternalLLMClient` needs none of this, since the engine's own clients send its requests."""

from __future__ import annotations

import inspect
import logging
import time
from collections import ChainMap
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

from harness.agents.client import ExternalLLMClient
from harness.agents.loop import LLM, AgentLike, RolloutContext, RolloutResult
from harness.agents.schemas import OpenAIFunctionToolSchema, RolloutRequest
from harness.agents.turns import turn
from harness.agents.validation import validate_tools
from harness.core.errors import (
    EnvironmentFault,
    ModelError,
    ProviderError,
    ResponseError,
    SystemicError,
    SystemicProviderError,
)
from harness.core.types import JsonDict, Message, ModelCall, ModelResponse, Usage
from harness.models.pool import CallSettings, ClientPool, Clients, EndpointLike, PooledClient
from harness.settings.endpoints import Endpoint

ClientFactory = Callable[[], "LLM | Awaitable[LLM]"]
"""Makes one more client instance; may be async."""

logger = logging.getLogger(__name__)

_COUNTS = ("prompt_tokens", "response_tokens")


def is_ours(client: object) -> bool:
    """Whether the engine can send the client's requests: it is an `ExternalLLMClient` with unchanged
    `chat_completions`."""
    return isinstance(client, ExternalLLMClient) and type(client).chat_completions is ExternalLLMClient.chat_completions


def display_name(client: object) -> str:
    """The model's name in reports: the client's `display_name` or `model`, else its class name."""
    for name in ("display_name", "model"):
        value = getattr(client, name, None)
        if isinstance(value, str) and value:
            return value
    return type(client).__name__


class CallerClients(Clients):
    """The clients of all runs of one evaluation.

    Args:
        environ: Variables in which API keys are looked up that were not given as text.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self.tokens = 0
        """Tokens of all replies, including those of rollouts that left no record."""
        self._keys: dict[str, str] = {}
        self._pool = ClientPool(environ=ChainMap(self._keys, environ))
        self._shelves: dict[str, InstancePool] = {}

    def endpoint(self, client: ExternalLLMClient) -> Endpoint:
        """The endpoint of an `ExternalLLMClient`; a key given as text is kept here under a variable name."""
        return client.endpoint(self._keys)

    def shelf(self, name: str, client: LLM, factory: ClientFactory | None) -> InstancePool:
        """Create a pool of callers' clients, or reuse that of the same `client`; a run selects it by `shelf.url`.

        Args:
            name: Unique among the runs of the evaluation.
            client: The caller's client.
            factory: Makes the instances that are used instead of `client`.
        """
        known = next((shelf for shelf in self._shelves.values() if shelf.has_only(client)), None)
        if known is not None and factory is None:
            return known  # both models share one instance, still used by one rollout at a time
        shelf = InstancePool(f"http://{name}.client.invalid/v1", self, client, factory)
        self._shelves[shelf.url] = shelf
        return shelf

    def engine_client(self, endpoint: Endpoint, settings: CallSettings | None) -> PooledClient:
        """The engine's client for an endpoint."""
        return self._pool.get([endpoint], settings)

    def get(self, endpoints: Sequence[EndpointLike], settings: CallSettings | None = None) -> PooledClient:
        """The instance pool whose URL is the first endpoint's, else the engine's client."""
        shelf = self._shelves.get(endpoints[0].url)
        if shelf is not None:
            shelf.settings = settings
        return _Counted(self, self._pool.get(endpoints, settings) if shelf is None else shelf)

    def open(self) -> None:
        """Prepare the engine's clients."""
        self._pool.open()

    async def close(self) -> None:
        """Close the clients that were made here, but not those of the caller. May be called repeatedly."""
        try:
            for shelf in self._shelves.values():
                await shelf.close()
        finally:
            await self._pool.close()


class _Counted(PooledClient):
    """A client that adds up the tokens of its replies."""

    def __init__(self, desk: CallerClients, client: PooledClient) -> None:
        self._desk = desk
        self._client = client

    async def request(self, call: ModelCall) -> ModelResponse:
        response = await self._client.request(call)
        self._desk.tokens += response.usage.input_tokens + response.usage.output_tokens
        return response

    async def close(self) -> None:
        await self._client.close()

    def waiting_note(self) -> str:
        return self._client.waiting_note()


class InstancePool(PooledClient):
    """The client instances of one model, each used by one rollout at a time; itself a client of the engine.

    Args:
        url: The pool's address in a run's settings. Its host can never be resolved (RFC 6761).
        desk: Has the engine's clients, for instances that are an `ExternalLLMClient`.
        client: The caller's client: the only instance if there is no factory; never closed here.
        factory: Makes an instance when no free one is left; these instances are closed at the end.
    """

    def __init__(self, url: str, desk: CallerClients, client: LLM, factory: ClientFactory | None) -> None:
        self.url = url
        self.settings: CallSettings | None = None
        """Call settings of the run that uses this pool."""
        self._desk = desk
        self._client = client
        self._factory = factory
        self._free: list[LLM] = []
        self._made: list[LLM] = []
        self._out: list[_Loan] = []

    def has_only(self, client: LLM) -> bool:
        """Whether `client` is the only instance of this pool."""
        return self._factory is None and self._client is client

    @asynccontextmanager
    async def loan(self, tools: Sequence[object]) -> AsyncGenerator[None]:
        """Reserve an instance for one rollout, with its tools set and its metrics reset."""
        client = self._client if self._factory is None else self._free.pop() if self._free else await self._make()
        try:
            async with _alone(client):
                loan = _Loan(client, validate_tools(tools), _current.get())
                self._out.append(loan)
                token = _current.set(loan)
                try:
                    await loan.begin(tools)
                    yield
                finally:
                    _current.reset(token)
                    self._out.remove(loan)
                    await loan.end()
        finally:
            if self._factory is not None:
                self._free.append(client)

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send the request through the instance that the calling rollout has reserved.

        Raises:
            ModelError: the call failed.
        """
        loan = self._loan()
        if is_ours(loan.client):
            ours = self._desk.endpoint(cast(ExternalLLMClient, loan.client))
            return await self._desk.engine_client(ours, self.settings).request(replace(call, model=ours.model))
        return await loan.request(call)

    async def close(self) -> None:
        """Close the instances that were made here; may be called repeatedly. A failure to close one is only logged."""
        made, self._made = self._made, []
        for client in {id(client): client for client in made}.values():
            if client is self._client:
                continue
            try:
                await _call(client, "close")
            except Exception:  # boundary around the caller's client: the evaluation is finished and paid for
                logger.warning("%s.close() raised", type(client).__name__, exc_info=True)

    def waiting_note(self) -> str:
        """Empty: a caller's client does not say why it waits."""
        return ""

    def _loan(self) -> _Loan:
        loan = _current.get()
        if loan in self._out:
            return loan
        if len(self._out) == 1:  # e.g. asked from a thread of the agent, which lacks its context
            return self._out[0]
        raise EnvironmentFault("a model call outside of its rollout: nothing says which client it belongs to")

    async def _make(self) -> LLM:
        assert self._factory is not None, "the run's bound is the number of its instances"
        try:
            client = await _settled(self._factory())
        except Exception as error:  # boundary around the caller's factory: no client, no evaluation
            words = f"the client factory raised {type(error).__name__}: {error}"
            raise SystemicError(words, reason="client_factory") from error
        if not callable(getattr(client, "chat_completions", None)):
            words = f"the client factory returned {type(client).__name__}, which has no chat_completions"
            raise SystemicError(words, reason="client_factory")
        self._made.append(cast(LLM, client))
        return cast(LLM, client)


class Seated:
    """An agent whose every rollout uses a client instance of its own.

    Args:
        agent: The caller's agent.
        shelf: The pool of client instances.
    """

    def __init__(self, agent: AgentLike, shelf: InstancePool) -> None:
        self._agent = agent
        self._shelf = shelf
        self.name = agent.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """The tools of the agent."""
        return self._agent.get_tools(request)

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Play one rollout of the agent with a reserved client instance."""
        async with self._shelf.loan(ctx.tools):
            return await self._agent.run(ctx)


@dataclass(slots=True, eq=False)
class _Loan:
    """A client instance that one rollout has reserved."""

    client: LLM
    offered: list[JsonDict]
    """The rollout's tools, as they are sent to an endpoint."""
    outer: _Loan | None = None
    """The enclosing loan, if this evaluation was started by the agent of another rollout."""
    is_over: bool = False
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    """Tokens of the client's own metrics that are already counted."""

    async def begin(self, tools: Sequence[object]) -> None:
        await _call(self.client, "reset_metrics")
        if tools:
            await _call(self.client, "set_tools", list(tools))

    async def end(self) -> None:
        self.is_over = True
        await _call(self.client, "clear_tools")

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send the request through the instance.

        Raises:
            ModelError: the client raised one of the documented errors.
            Exception: any other error that the client raised.
        """
        arguments = {name: value for name, value in call.sampling_args.items() if value is not None}
        if (tools := list(call.tools or [])) != self.offered:
            arguments["tools"] = tools or None
        started = time.monotonic()
        try:
            reply: object = await self.client.chat_completions(cast("list[Message]", list(call.prompt)), **arguments)
        except SystemicProviderError as error:
            raise SystemicError(str(error), reason="provider_error") from error
        except ProviderError as error:
            raise ModelError(str(error), reason="provider_error") from error
        seconds = time.monotonic() - started
        return replace(await self._read(reply), seconds=seconds)

    async def _read(self, reply: object) -> ModelResponse:
        message: object = getattr(reply, "message", None)
        if not isinstance(message, dict):
            who = type(self.client).__name__
            raise ResponseError(
                f"{who}.chat_completions returned {type(reply).__name__}; it must return a CompletionsResult, whose "
                "message is a dict",
                reason="bad_response",
            )
        finish: object = getattr(reply, "finish_reason", None)
        return ModelResponse(
            cast(Message, message),
            finish if isinstance(finish, str) else None,
            await self._usage(getattr(reply, "usage", None)),
        )

    async def _usage(self, reported: object) -> Usage:
        """The token usage that the reply reports, else the growth of the client's metrics."""
        metrics = await self._metrics()
        grown = {name: metrics.get(name, 0) - self.counted[name] for name in _COUNTS}
        self.counted = {name: metrics.get(name, 0) for name in _COUNTS}
        if isinstance(reported, Mapping) and reported:
            said = cast("Mapping[str, object]", reported)
            return Usage(_number(said.get("prompt_tokens")), _number(said.get("completion_tokens")), requests=1)
        return Usage(
            grown["prompt_tokens"], grown["response_tokens"], requests=1, unreported=int(not any(grown.values()))
        )

    async def _metrics(self) -> dict[str, int]:
        metrics = await _call(self.client, "get_metrics")
        return {name: _number(getattr(metrics, name, 0)) for name in _COUNTS}


_current: ContextVar[_Loan | None] = ContextVar("loan", default=None)
"""The client loan of the rollout that the current task belongs to."""


@asynccontextmanager
async def _alone(client: LLM) -> AsyncGenerator[None]:
    """Hold the client exclusively, across all evaluations of the process. An `ExternalLLMClient` may be shared
    freely, since the engine sends its requests; a rollout's client may also be used by an evaluation that its own
    agent starts."""
    loan, is_held = _current.get(), False
    while loan is not None and not is_held:
        is_held, loan = loan.client is client and not loan.is_over, loan.outer
    if is_held or is_ours(client):
        yield
    else:
        async with turn(client):
            yield


async def _call(client: object, name: str, *arguments: object) -> object:
    """Call a client's optional method, which may be sync or async; None if the client lacks it."""
    method = getattr(client, name, None)
    return await _settled(method(*arguments)) if callable(method) else None


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


async def _settled(value: object) -> object:
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value
