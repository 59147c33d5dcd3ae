"""`ExternalLLMClient`: a model in the Python API, given by name or address. Used alone, it opens its own connections.
In a runner, the engine's clients send its requests, so that all rollouts share limits, retries and the endpoint's
state."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from harness.agents.llm import AgentLLM, SdkChat
from harness.agents.loop import CompletionsResult
from harness.agents.schemas import MessageDict, OpenAIFunctionToolSchema, RolloutMetrics
from harness.agents.validation import validate_tools
from harness.core.errors import ConfigError, SystemicError, SystemicProviderError
from harness.core.messages import Labels
from harness.core.openai_client import async_openai
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.models.pool import BoundChat, CallSettings, ClientPool, PooledClient
from harness.models.preflight import preflight
from harness.settings.endpoints import Endpoint
from harness.settings.providers import Route, require_provider, route

if TYPE_CHECKING:
    from openai import AsyncOpenAI

T = TypeVar("T")

LABELS = Labels({
    "api_base_url": "api_base", "num_examples": "rows", "rollouts_per_example": "n_runs", "resume": "resume=True",
})  # fmt: skip
"""Names that error messages use for settings in the Python API: the argument's name by the setting's TOML name."""


class ExternalLLMClient:
    """Client for a model at an OpenAI-compatible endpoint or at a known provider.

    Connections are opened at the first call; the client can be used again after `close`. In a runner, many rollouts may
    share one client. Used alone, it serves one conversation at a time, because it has one set of tools and metrics.

    Args:
        model: With `api_base`, the model's name at that endpoint, sent unchanged; else `provider/model`, or the name of
            an OpenAI model.
        api_key: API key, sent as a bearer token and never recorded. By default it is read from the provider's
            environment variable; with `api_base`, no key is sent by default.
        api_base: Base URL, such as `http://localhost:8000/v1`.

    Raises:
        ConfigError: no provider has a model of that name, or `api_base` is not a URL.
    """

    def __init__(self, model: str = "gpt-5-mini", api_key: str | None = None, api_base: str | None = None) -> None:
        self.display_name = model
        """The model's name as the caller gave it, for reports."""
        self._api_key = api_key
        self._api_base = api_base
        if api_key:
            redactor.add(api_key)
        self.model = self._route(has_key=True).model
        """The model's name in requests."""
        self._tools: list[JsonDict] = []
        self._metrics = RolloutMetrics()
        self._pool: ClientPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the connections in `_pool`."""
        self._retired: list[ClientPool] = []
        """Pools that send no more requests and must still be closed."""

    def __repr__(self) -> str:
        return f"ExternalLLMClient({self.display_name!r}, api_base={self._api_base!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client's connections. May be called repeatedly; the next request opens new connections."""
        self._retire_pool()
        while self._retired:
            await self._retired.pop().close()

    def set_tools(self, tools: Sequence[OpenAIFunctionToolSchema | JsonDict]) -> None:
        """Set the tools that later requests offer to the model.

        Raises:
            ToolValidationError: a tool is invalid; an endpoint would reject it.
        """
        self._tools = validate_tools(tools)

    def clear_tools(self) -> None:
        """Stop offering tools to the model in later requests."""
        self._tools = []

    def reset_metrics(self) -> None:
        """Reset the client's counts of calls, tokens and time to zero."""
        self._metrics = RolloutMetrics()

    def get_metrics(self) -> RolloutMetrics:
        """Return the number, tokens and duration of all `chat_completions` calls since the last `reset_metrics`."""
        return self._metrics.model_copy()

    async def chat_completions(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Request a reply from the model.

        Args:
            messages: The whole conversation.
            **kwargs: Arguments of the request; `model` and `tools` replace the client's own.

        Raises:
            ProviderError: the call failed after all retries.
            SystemicProviderError: the endpoint is unusable; every call would fail.
            MissingApiKey: the provider's API key is missing.
        """
        return await self._request(lambda llm: llm.chat_completions(messages, **kwargs))

    @property
    def openai(self) -> AsyncOpenAI:
        """A new `openai.AsyncOpenAI` client for the model, for code written for that SDK. Its requests have the
        retries and limits of `chat_completions` and are included in the metrics."""
        chat = SdkChat(self.model, lambda messages, kwargs: self._request(lambda llm: llm.respond(messages, kwargs)))
        return async_openai(chat, names={self.display_name})

    async def _request(self, send: Callable[[AgentLLM], Awaitable[T]]) -> T:
        """Send a request through a new `AgentLLM`, and count it in the metrics."""
        client, name = self._client()
        llm = AgentLLM(BoundChat(client, name), model=name, tools=self._tools)
        try:
            return await send(llm)
        except SystemicProviderError:
            self._retire_pool()  # a pool remembers that its endpoint is unusable
            raise
        finally:
            total, call = self._metrics, llm.get_metrics()
            total.llm_latency_ms += call.llm_latency_ms
            total.num_llm_calls += call.num_llm_calls
            total.prompt_tokens += call.prompt_tokens
            total.response_tokens += call.response_tokens
            total.max_context_tokens = max(total.max_context_tokens, call.max_context_tokens)

    async def preflight_check(self) -> None:
        """Request one token to check that the model is reachable. A rate-limit error also shows that it is reachable.

        Raises:
            SystemicProviderError: the model is not reachable.
            MissingApiKey: the provider's API key is missing.
        """
        client, name = self._client()
        try:
            await preflight(client, name)
        except SystemicError as error:
            self._retire_pool()
            raise SystemicProviderError(error.text(LABELS)) from error

    def endpoint(self) -> Endpoint:
        """Return the address and API key of the client's model, for the engine.

        Raises:
            ConfigError: the provider's API key is missing, or the provider needs litellm, which is not installed.
        """
        found = self._route(has_key=bool(self._api_key))
        require_provider(found.url)
        return Endpoint(found.url, found.key_var, found.model, key=self._api_key or "")

    def _route(self, *, has_key: bool) -> Route:
        try:
            return route(self.display_name, self._api_base, environ=os.environ, has_key=has_key)
        except ConfigError as error:
            error.labels = LABELS
            raise

    def _client(self) -> tuple[PooledClient, str]:
        """Return a client for the running event loop, and the model's name at its endpoint."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._retire_pool()
            self._loop = loop
        endpoint = self.endpoint()
        if not endpoint.url:
            raise ConfigError(
                f"{self.display_name} is a reference model, which answers only inside a run; to use it alone, pass the "
                "address of `bench serve` as api_base"
            )
        if self._pool is None:
            self._pool = ClientPool()
        return self._pool.get([endpoint], CallSettings(max_in_flight=-1)), endpoint.model

    def _retire_pool(self) -> None:
        if self._pool is not None:
            self._retired.append(self._pool)
            self._pool = None
