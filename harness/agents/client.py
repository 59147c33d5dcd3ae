"""`ExternalLLMClient`: one model of the Python API, by name or address. Used alone, it has connections of its own. In a
runner the engine's clients send its requests, so that all rollouts share limits, retries and the endpoint's health."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from harness.agents.llm import AgentLLM
from harness.agents.loop import CompletionsResult
from harness.agents.schemas import MessageDict, OpenAIFunctionToolSchema, RolloutMetrics
from harness.agents.validation import validate_tools
from harness.core.errors import ConfigError, SystemicError, SystemicProviderError
from harness.core.messages import Labels
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.models.pool import BoundChat, CallSettings, ClientPool, PooledClient
from harness.models.preflight import preflight
from harness.settings.endpoints import Endpoint
from harness.settings.providers import Route, require_provider, route

LABELS = Labels({
    "api_base_url": "api_base", "num_examples": "rows", "rollouts_per_example": "n_runs", "resume": "resume=True",
})  # fmt: skip
"""How the Python API spells settings."""


class ExternalLLMClient:
    """A model behind an OpenAI-compatible endpoint, or of a provider.

    Connections are opened at the first call; the client can be used again after `close`. In a runner, many rollouts may
    share one client; used alone, `set_tools` and the metrics apply to one conversation at a time.

    Args:
        model: With `api_base`, the model's name at that endpoint, sent unchanged; else `provider/model`, or the name of
            an OpenAI model.
        api_key: Sent as bearer token; never recorded. The default is the provider's environment variable, or no key if
            `api_base` is given.
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
        """The event loop that the pool's connections belong to."""
        self._left: list[ClientPool] = []
        """Pools that send no more requests and are still to be closed."""

    def __repr__(self) -> str:
        return f"ExternalLLMClient({self.display_name!r}, api_base={self._api_base!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client's connections. May be called repeatedly; the next request opens new connections."""
        self._leave()
        while self._left:
            await self._left.pop().close()

    def set_tools(self, tools: Sequence[OpenAIFunctionToolSchema | JsonDict]) -> None:
        """Set the tools that the model is offered in later calls.

        Raises:
            ToolValidationError: an endpoint would refuse one of them.
        """
        self._tools = validate_tools(tools)

    def clear_tools(self) -> None:
        """Offer the model no tools in later calls."""
        self._tools = []

    def reset_metrics(self) -> None:
        """Reset the metrics to zero."""
        self._metrics = RolloutMetrics()

    def get_metrics(self) -> RolloutMetrics:
        """Calls of `chat_completions` since the last `reset_metrics`: their number, tokens and time."""
        return self._metrics.model_copy()

    async def chat_completions(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Ask the model for a reply.

        Args:
            messages: The whole conversation.
            **kwargs: Arguments of the request; `model` and `tools` replace the client's own.

        Raises:
            ProviderError: the call failed after all retries.
            SystemicProviderError: the endpoint is unusable: every other call would fail too.
            ConfigError: the provider's key is missing.
        """
        client, name = self._client()
        llm = AgentLLM(BoundChat(client, name), model=name, tools=self._tools)
        try:
            return await llm.chat_completions(messages, **kwargs)
        except SystemicProviderError:
            self._leave()  # the next call sees a repaired endpoint or a new key
            raise
        finally:
            self._add(llm.get_metrics())

    async def preflight_check(self) -> None:
        """Request one token to check that the model is reachable. A rate limit counts as reachable.

        Raises:
            SystemicProviderError: the model is not reachable.
            ConfigError: the provider's key is missing.
        """
        client, name = self._client()
        try:
            await preflight(client, name)
        except SystemicError as error:
            self._leave()
            raise SystemicProviderError(error.text(LABELS)) from error

    def endpoint(self) -> Endpoint:
        """The model's endpoint, for the engine.

        Raises:
            ConfigError: the provider's key is missing, or litellm is needed for this provider and not installed.
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
        """A client for the running event loop, and the model's name at its endpoint."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._leave()
            self._loop = loop
        endpoint = self.endpoint()
        if not endpoint.url:
            raise ConfigError(
                f"{self.display_name} is played inside a run; to ask it alone, give the address of `bench serve` as "
                "api_base"
            )
        if self._pool is None:
            self._pool = ClientPool()
        return self._pool.get([endpoint], CallSettings(max_in_flight=-1)), endpoint.model

    def _leave(self) -> None:
        if self._pool is not None:
            self._left.append(self._pool)
            self._pool = None

    def _add(self, call: RolloutMetrics) -> None:
        total = self._metrics
        total.llm_latency_ms += call.llm_latency_ms
        total.num_llm_calls += call.num_llm_calls
        total.prompt_tokens += call.prompt_tokens
        total.response_tokens += call.response_tokens
        total.max_context_tokens = max(total.max_context_tokens, call.max_context_tokens)
