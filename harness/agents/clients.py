"""Use of the model client that a caller of the Python API passes: any object with a method `chat_completions`. Each
concurrent rollout reserves a client instance, and the engine's requests become calls of that instance's
`chat_completions`. Only the requests of an `ExternalLLMClient` are sent by the engine's own clients instead."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from harness.agents.client import ExternalLLMClient
from harness.agents.loop import LLM, AgentLike, RolloutContext, RolloutResult
from harness.agents.schemas import OpenAIFunctionToolSchema, RolloutRequest
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
from harness.models.delays import Delay
from harness.models.pool import CallSettings, ClientPool
from harness.usercode.scope import scope, scoped

ClientFactory = Callable[[], "LLM | Awaitable[LLM]"]
"""Function that creates a model client; may be async."""

logger = logging.getLogger(__name__)

_COUNTS = ("prompt_tokens", "response_tokens")


def is_ours(client: object) -> bool:
    """Return whether the engine can send a client's requests itself: the client must be an `ExternalLLMClient` whose
    `chat_completions` is not overridden."""
    return isinstance(client, ExternalLLMClient) and type(client).chat_completions is ExternalLLMClient.chat_completions


def display_name(client: object) -> str:
    """Return the model's name for reports: the client's `display_name` or `model`, else the client's class name."""
    for name in ("display_name", "model"):
        value = getattr(client, name, None)
        if isinstance(value, str) and value:
            return value
    return type(client).__name__


class InstancePool:
    """Pool of instances of a caller's model client, each used by one rollout at a time. To the engine, the pool is a
    single client (see `models.pool.CallerClient`).

    Args:
        name: The pool's name, unique among the runs of the evaluation.
        client: The caller's client, which is the only instance if there is no factory. The pool never closes it.
        factory: Function that creates an instance when none is free. The pool closes these instances at the end.
    """

    def __init__(self, name: str, client: LLM, factory: ClientFactory | None) -> None:
        self.url = f"http://{name}.client.invalid/v1"
        """Placeholder URL of the pool in a run's records and identity. No request is sent to it."""
        self.tokens = 0
        """Tokens of all replies, except those to requests that the engine's clients sent and counted."""
        self._engine: tuple[ClientPool, CallSettings] | None = None
        self._client = client
        self._factory = factory
        self._free: list[LLM] = []
        self._made: list[LLM] = []
        self._reserved: list[_ReservedClient] = []

    def has_only(self, client: LLM) -> bool:
        """Return whether `client` is the pool's only instance."""
        return self._factory is None and self._client is client

    @asynccontextmanager
    async def reserve(self, tools: Sequence[object]) -> AsyncGenerator[None]:
        """Reserve a client instance for one rollout, with its tools set and its metrics reset."""
        client = self._client if self._factory is None else self._free.pop() if self._free else await self._make()
        try:
            async with _exclusive(client):
                reserved = _ReservedClient(client, validate_tools(tools))
                self._reserved.append(reserved)
                try:
                    with scoped(held=(*scope().held, reserved)):
                        await _call(client, "reset_metrics")
                        if tools:
                            await _call(client, "set_tools", list(tools))
                        yield
                finally:
                    self._reserved.remove(reserved)
                    reserved.is_over = True
                    await _call(client, "clear_tools")
        finally:
            if self._factory is not None:
                self._free.append(client)

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send a request through the client instance that the calling rollout has reserved.

        Raises:
            ModelError: the call failed.
        """
        held = [each for each in self._reserved if each in scope().held]
        if not held and len(self._reserved) == 1:  # e.g. a call from a thread of the agent, which lacks its context
            held = self._reserved
        if not held:
            raise EnvironmentFault(
                "the model was called from a thread without a client; await ctx.chat() within the agent's run()"
            )
        reserved = held[-1]
        if is_ours(reserved.client):
            assert self._engine is not None, "connect() must be called before the first request"
            pool, settings = self._engine
            ours = cast(ExternalLLMClient, reserved.client).endpoint()
            return await pool.get([ours], settings).request(replace(call, model=ours.model))
        response = await reserved.request(call)
        self.tokens += response.usage.input_tokens + response.usage.output_tokens
        return response

    def connect(self, pool: ClientPool, settings: CallSettings) -> None:
        """Set the engine's clients, which send the requests of instances that are `ExternalLLMClient` objects."""
        self._engine = pool, settings

    async def close(self) -> None:
        """Close the instances that the factory created. May be called repeatedly. An error on closing is only
        logged."""
        made, self._made = self._made, []
        for client in {id(client): client for client in made}.values():
            if client is self._client:
                continue
            try:
                await _call(client, "close")
            except Exception:  # boundary around the caller's client: the evaluation is finished and paid for
                logger.warning("%s.close() failed; the results are not affected", type(client).__name__, exc_info=True)

    def delays(self) -> list[Delay]:
        """Return no delays, since it is unknown why a caller's client waits."""
        return []

    async def _make(self) -> LLM:
        assert self._factory is not None, "a new client instance requires a client factory"
        try:
            client = await _awaited(self._factory())
        except Exception as error:  # boundary around the caller's factory: no client, no evaluation
            text = f"the client factory raised {type(error).__name__}: {error}"
            raise SystemicError(text, reason="client_factory") from error
        if not callable(getattr(client, "chat_completions", None)):
            text = f"the client factory returned {type(client).__name__}, which has no method chat_completions"
            raise SystemicError(text, reason="client_factory")
        self._made.append(cast(LLM, client))
        return cast(LLM, client)


class AgentWithClients:
    """Wrapper of an agent that reserves a client instance for each rollout.

    Args:
        agent: The caller's agent.
        instances: The pool of client instances.
    """

    def __init__(self, agent: AgentLike, instances: InstancePool) -> None:
        self._agent = agent
        self._instances = instances
        self.name = agent.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """Return the tools of the wrapped agent."""
        return self._agent.get_tools(request)

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Run one rollout of the agent with a reserved client instance."""
        async with self._instances.reserve(ctx.tools):
            return await self._agent.run(ctx)


@dataclass(slots=True, eq=False)
class _ReservedClient:
    """A client instance reserved for one rollout."""

    client: LLM
    offered: list[JsonDict]
    """The rollout's tools, as they are sent to an endpoint."""
    is_over: bool = False
    """Whether the rollout has ended."""
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    """Totals in the client's own metrics after the previous reply, to compute the usage of the next reply."""

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send a request through the reserved client instance.

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
        message: object = getattr(reply, "message", None)
        if not isinstance(message, dict):
            raise ResponseError(
                f"{type(self.client).__name__}.chat_completions returned {type(reply).__name__}; it must return a "
                "CompletionsResult, whose message is a dict",
                reason="bad_response",
            )
        finish: object = getattr(reply, "finish_reason", None)
        usage = await self._usage(getattr(reply, "usage", None))
        return ModelResponse(
            cast(Message, message), finish if isinstance(finish, str) else None, usage, seconds=seconds
        )

    async def _usage(self, reported: object) -> Usage:
        """Return the token usage that a reply reports, else the increase in the client's own metrics."""
        metrics = await _call(self.client, "get_metrics")
        total = {name: _number(getattr(metrics, name, 0)) for name in _COUNTS}
        grown = {name: total[name] - self.counted[name] for name in _COUNTS}
        self.counted = total
        if isinstance(reported, Mapping) and reported:
            counts = cast("Mapping[str, object]", reported)
            return Usage(_number(counts.get("prompt_tokens")), _number(counts.get("completion_tokens")), requests=1)
        return Usage(
            grown["prompt_tokens"], grown["response_tokens"], requests=1, unreported=int(not any(grown.values()))
        )


@dataclass(slots=True, eq=False)
class _Waiter:
    """A task that waits for a client."""

    ready: asyncio.Future[None]
    has_turn: bool = False


_queues: dict[int, tuple[object, deque[_Waiter]]] = {}
"""The clients in use, each with the tasks that wait for it, by `id(client)`, since a caller's object may be neither
hashable nor weakly referable."""

_guard = threading.RLock()
"""Lock for `_queues`, which the event loops of several threads share. It is reentrant, because garbage collection can
run the cleanup of an abandoned task in the thread that has the lock."""


@asynccontextmanager
async def turn(client: object) -> AsyncGenerator[None]:
    """Reserve a model client exclusively for the `with` block. Waiting tasks are served in order. Not reentrant."""
    waiter = None
    with _guard:
        queue = _queues.get(id(client))
        if queue is None:
            _queues[id(client)] = client, deque()
        else:
            waiter = _Waiter(asyncio.get_running_loop().create_future())
            queue[1].append(waiter)
    if queue is not None and waiter is not None:
        try:
            await waiter.ready
        except BaseException:
            with _guard, suppress(ValueError):  # already removed from the queue: it got the client, or it was skipped
                queue[1].remove(waiter)
            if waiter.has_turn:
                _leave(client)
            raise
    try:
        yield
    finally:
        _leave(client)


def _leave(client: object) -> None:
    with _guard:
        waiting = _queues[id(client)][1]
        while waiting:
            waiter = waiting.popleft()
            with suppress(RuntimeError):  # its loop is closed, so no task waits there
                waiter.ready.get_loop().call_soon_threadsafe(_notify, waiter.ready)
                waiter.has_turn = True
                return
        del _queues[id(client)]


def _notify(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@asynccontextmanager
async def _exclusive(client: LLM) -> AsyncGenerator[None]:
    """Reserve a caller's client exclusively, across all evaluations in the process.

    An `ExternalLLMClient` needs no reservation, since the engine sends its requests. If an agent starts an evaluation
    with the client of its own rollout, that evaluation shares the client."""
    held = [each for each in scope().held if isinstance(each, _ReservedClient)]
    if is_ours(client) or any(each.client is client and not each.is_over for each in held):
        yield
    else:
        async with turn(client):
            yield


async def _call(client: object, name: str, *arguments: object) -> object:
    """Call an optional sync or async method of a client; return None if the client lacks it."""
    method = getattr(client, name, None)
    return await _awaited(method(*arguments)) if callable(method) else None


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


async def _awaited(value: object) -> object:
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value
