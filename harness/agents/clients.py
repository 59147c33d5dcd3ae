"""Model clients that a caller of the Python API brings: any object with `chat_completions`, one instance for each
concurrent rollout. Assigns the instances to rollouts and translates between their calls and the engine's. An
`ExternalLLMClient` needs none of this, since the engine's own clients send its requests."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
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
from harness.models.pool import CallSettings, ClientPool
from harness.usercode.scope import scope, scoped

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


class InstancePool:
    """The client instances of one model, each used by one rollout at a time; itself a client of the engine
    (`models.pool.CallerClient`).

    Args:
        name: Unique among the runs of the evaluation.
        client: The caller's client: the only instance if there is no factory; never closed here.
        factory: Makes an instance when no free one is left; these instances are closed at the end.
    """

    def __init__(self, name: str, client: LLM, factory: ClientFactory | None) -> None:
        self.url = f"http://{name}.client.invalid/v1"
        """The pool's name in the records of a run, and part of its identity. Nothing is sent there (RFC 6761)."""
        self.tokens = 0
        """Tokens of all replies of the instances, except those that the engine's clients count."""
        self._engine: tuple[ClientPool, CallSettings] | None = None
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
                loan = _Loan(client, validate_tools(tools))
                self._out.append(loan)
                try:
                    with scoped(held=(*scope().held, loan)):
                        await loan.begin(tools)
                        yield
                finally:
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
            assert self._engine is not None, "the engine connects a client before its first request"
            pool, settings = self._engine
            ours = cast(ExternalLLMClient, loan.client).endpoint()
            return await pool.get([ours], settings).request(replace(call, model=ours.model))
        response = await loan.request(call)
        self.tokens += response.usage.input_tokens + response.usage.output_tokens
        return response

    def connect(self, pool: ClientPool, settings: CallSettings) -> None:
        """Use the engine's clients for instances that are an `ExternalLLMClient`."""
        self._engine = pool, settings

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
        if held := [loan for loan in self._out if loan in scope().held]:
            return held[-1]
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


class AgentWithClients:
    """An agent whose every rollout uses a client instance of its own.

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
        """The tools of the agent."""
        return self._agent.get_tools(request)

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Play one rollout of the agent with a reserved client instance."""
        async with self._instances.loan(ctx.tools):
            return await self._agent.run(ctx)


@dataclass(slots=True, eq=False)
class _Loan:
    """A client instance that one rollout has reserved."""

    client: LLM
    offered: list[JsonDict]
    """The rollout's tools, as they are sent to an endpoint."""
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


@asynccontextmanager
async def _alone(client: LLM) -> AsyncGenerator[None]:
    """Hold the client exclusively, across all evaluations of the process. An `ExternalLLMClient` may be shared
    freely, since the engine sends its requests; a rollout's client may also be used by an evaluation that its own
    agent starts."""
    loans = [loan for loan in scope().held if isinstance(loan, _Loan)]
    is_held = any(loan.client is client and not loan.is_over for loan in loans)
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
