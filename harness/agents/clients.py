"""Clients that a caller of the Python API brings: anything with `chat_completions`, one instance for each rollout in
flight. Owns the bounded set of instances, who has which, and the translation between their calls and the engine's. Our
own `ExternalLLMClient` needs none of this: it is an endpoint, and the engine's clients ask it."""

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
"""Makes one more instance; may be async."""

logger = logging.getLogger(__name__)

_COUNTS = ("prompt_tokens", "response_tokens")


def is_ours(client: object) -> bool:
    """Whether the engine can ask in the client's place: it is an `ExternalLLMClient` whose calls nobody has changed."""
    return isinstance(client, ExternalLLMClient) and type(client).chat_completions is ExternalLLMClient.chat_completions


def display_name(client: object) -> str:
    """What reports call the client's model: what its owner calls it, else its class."""
    for name in ("display_name", "model"):
        value = getattr(client, name, None)
        if isinstance(value, str) and value:
            return value
    return type(client).__name__


class CallerClients(Clients):
    """Where the runs of one evaluation get their clients.

    Args:
        environ: Where keys are looked up that are not given in person.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self.tokens = 0
        """Of every reply, also where the rollout that got it has left no record."""
        self._keys: dict[str, str] = {}
        self._pool = ClientPool(environ=ChainMap(self._keys, environ))
        self._shelves: dict[str, InstancePool] = {}

    def endpoint(self, client: ExternalLLMClient) -> Endpoint:
        """Where our own client's model is asked; a key that it was given stays here, under the name of a variable."""
        return client.endpoint(self._keys)

    def shelf(self, name: str, client: LLM, factory: ClientFactory | None) -> InstancePool:
        """A new set of callers' clients, which the run that asks at `shelf.url` gets.

        Args:
            name: Unique among the runs of the evaluation.
            client: The caller's own.
            factory: Makes those that are used instead of it.
        """
        known = next((shelf for shelf in self._shelves.values() if shelf.has_only(client)), None)
        if known is not None and factory is None:
            return known  # one instance for both models: it is still used by one rollout at a time
        shelf = InstancePool(f"http://{name}.client.invalid/v1", self, client, factory)
        self._shelves[shelf.url] = shelf
        return shelf

    def engine_client(self, endpoint: Endpoint, settings: CallSettings | None) -> PooledClient:
        """The engine's client of an endpoint."""
        return self._pool.get([endpoint], settings)

    def get(self, endpoints: Sequence[EndpointLike], settings: CallSettings | None = None) -> PooledClient:
        """The shelf that the URL stands for, else the engine's client."""
        shelf = self._shelves.get(endpoints[0].url)
        if shelf is not None:
            shelf.settings = settings
        return _Counted(self, self._pool.get(endpoints, settings) if shelf is None else shelf)

    def open(self) -> None:
        """Make the engine's clients ready."""
        self._pool.open()

    async def close(self) -> None:
        """Close what was made here; idempotent. A client that the caller made is the caller's."""
        try:
            for shelf in self._shelves.values():
                await shelf.close()
        finally:
            await self._pool.close()


class _Counted(PooledClient):
    """A client whose replies' tokens are added up."""

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
    """The instances of one model, each in the hands of one rollout at a time; a client of the engine.

    Args:
        url: What stands for it in a run's settings. The host can never be looked up (RFC 6761).
        desk: Has the engine's clients, for those instances that are ours.
        client: The caller's own: the only instance if there is no factory; never closed here.
        factory: Makes an instance when a rollout finds none; those are closed in the end.
    """

    def __init__(self, url: str, desk: CallerClients, client: LLM, factory: ClientFactory | None) -> None:
        self.url = url
        self.settings: CallSettings | None = None
        """Of the run that asks here."""
        self._desk = desk
        self._client = client
        self._factory = factory
        self._free: list[LLM] = []
        self._made: list[LLM] = []
        self._out: list[_Loan] = []

    def has_only(self, client: LLM) -> bool:
        """Whether `client` is its only instance."""
        return self._factory is None and self._client is client

    @asynccontextmanager
    async def loan(self, tools: Sequence[object]) -> AsyncGenerator[None]:
        """An instance for the rollout that enters, with its tools set and its metrics at zero."""
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
        """Ask the instance of the rollout that calls.

        Raises:
            ModelError: the call failed.
        """
        loan = self._loan()
        if is_ours(loan.client):
            ours = self._desk.endpoint(cast(ExternalLLMClient, loan.client))
            return await self._desk.engine_client(ours, self.settings).request(replace(call, model=ours.model))
        return await loan.request(call)

    async def close(self) -> None:
        """Close the instances that were made here; idempotent. One that cannot be closed costs no result."""
        made, self._made = self._made, []
        for client in {id(client): client for client in made}.values():
            if client is self._client:
                continue
            try:
                await _call(client, "close")
            except Exception:  # the boundary around the caller's client: the evaluation is done, and paid for
                logger.warning("%s.close() raised", type(client).__name__, exc_info=True)

    def waiting_note(self) -> str:
        """Nothing is known of what a caller's client waits for."""
        return ""

    def _loan(self) -> _Loan:
        loan = _current.get()
        if loan in self._out:
            return loan
        if len(self._out) == 1:  # asked from a thread of the agent's own, say, which has not its context
            return self._out[0]
        raise EnvironmentFault("a model call outside of its rollout: nothing says which client it belongs to")

    async def _make(self) -> LLM:
        assert self._factory is not None, "the run's bound is the number of its instances"
        try:
            client = await _settled(self._factory())
        except Exception as error:  # the boundary around the caller's function: without clients nothing can be done
            words = f"the client factory raised {type(error).__name__}: {error}"
            raise SystemicError(words, reason="client_factory") from error
        if not callable(getattr(client, "chat_completions", None)):
            words = f"the client factory returned {type(client).__name__}, which has no chat_completions"
            raise SystemicError(words, reason="client_factory")
        self._made.append(cast(LLM, client))
        return cast(LLM, client)


class Seated:
    """An agent each of whose rollouts has a client of its own.

    Args:
        agent: The caller's.
        shelf: Where the clients are.
    """

    def __init__(self, agent: AgentLike, shelf: InstancePool) -> None:
        self._agent = agent
        self._shelf = shelf
        self.name = agent.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def get_tools(self, request: RolloutRequest) -> Sequence[OpenAIFunctionToolSchema | JsonDict]:
        """The agent's."""
        return self._agent.get_tools(request)

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """One rollout of the agent."""
        async with self._shelf.loan(ctx.tools):
            return await self._agent.run(ctx)


@dataclass(slots=True, eq=False)
class _Loan:
    """One instance while one rollout has it."""

    client: LLM
    offered: list[JsonDict]
    """The rollout's tools in the wire's shape."""
    outer: _Loan | None = None
    """That of the rollout whose agent makes this evaluation, if there is one."""
    is_over: bool = False
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))
    """What of the client's own metrics is in the account already."""

    async def begin(self, tools: Sequence[object]) -> None:
        await _call(self.client, "reset_metrics")
        if tools:
            await _call(self.client, "set_tools", list(tools))

    async def end(self) -> None:
        self.is_over = True
        await _call(self.client, "clear_tools")

    async def request(self, call: ModelCall) -> ModelResponse:
        """Ask the instance.

        Raises:
            ModelError: it raised one of the documented errors.
            Exception: whatever else it raised.
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
        """What the reply says it cost, else what the client's metrics have grown by."""
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
"""The loan of the rollout that this task belongs to."""


@asynccontextmanager
async def _alone(client: LLM) -> AsyncGenerator[None]:
    """Nobody else has the client: no rollout of this evaluation, nor of another one. An `ExternalLLMClient` may be had
    by any number, since the engine asks; and so may that of a rollout by an evaluation that its own agent makes."""
    loan, is_held = _current.get(), False
    while loan is not None and not is_held:
        is_held, loan = loan.client is client and not loan.is_over, loan.outer
    if is_held or is_ours(client):
        yield
    else:
        async with turn(client):
            yield


async def _call(client: object, name: str, *arguments: object) -> object:
    """Call a method that a client may have, and that may be async."""
    method = getattr(client, name, None)
    return await _settled(method(*arguments)) if callable(method) else None


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


async def _settled(value: object) -> object:
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value
