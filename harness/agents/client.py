"""`ExternalLLMClient`: one model of the Python API, by name or address. Owns its documented methods and its connections
when it is used alone; in a runner the engine's clients ask in its place, so that limits, retries and the endpoint's
health are shared by all rollouts."""

from __future__ import annotations

import asyncio
import os
from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from types import TracebackType
from typing import Any, Self

from harness.agents.llm import AgentLLM
from harness.agents.loop import CompletionsResult
from harness.agents.schemas import MessageDict, OpenAIFunctionToolSchema, RolloutMetrics
from harness.agents.validation import validate_tools
from harness.agents.wording import of_a_client
from harness.core.errors import ConfigError, SystemicError, SystemicProviderError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.models.pool import BoundChat, CallSettings, ClientPool, PooledClient
from harness.models.preflight import preflight
from harness.settings.endpoints import Endpoint
from harness.settings.providers import LITERAL_KEY_VAR, Route, require_litellm, route


class ExternalLLMClient:
    """A model behind an OpenAI-compatible endpoint, or of a provider.

    Opens its connections at the first call and may be used again after `close`. Cheap to make. In a runner, any number
    of rollouts may share one; used alone, `set_tools` and the metrics are those of one conversation at a time.

    Args:
        model: With `api_base` the name that is served there, sent as it is; else `provider/model`, or the name of an
            OpenAI model.
        api_key: Sent as bearer token; never recorded. By default the provider's variable is read from the process's
            environment, and an `api_base` gets none.
        api_base: Base URL, such as `http://localhost:8000/v1`.

    Raises:
        ConfigError: the name leads to no model, or the URL is none.
    """

    def __init__(self, model: str = "gpt-5-mini", api_key: str | None = None, api_base: str | None = None) -> None:
        self.display_name = model
        """The name as it was given, which reports show."""
        self._api_key = api_key
        self._api_base = api_base
        if api_key:
            redactor.add(api_key)
        self.model = self._route(None, has_key=True).model
        """The name that is sent."""
        self._tools: list[JsonDict] = []
        self._metrics = RolloutMetrics()
        self._keys: dict[str, str] = {}
        self._pool: ClientPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The pool's: connections belong to one event loop."""
        self._left: list[ClientPool] = []
        """Pools that ask no more and are still to be closed."""

    def __repr__(self) -> str:
        return f"ExternalLLMClient({self.display_name!r}, api_base={self._api_base!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections; idempotent, and no end: the next call opens new ones."""
        self._leave()
        while self._left:
            await self._left.pop().close()

    def set_tools(self, tools: Sequence[OpenAIFunctionToolSchema | JsonDict]) -> None:
        """Offer these to the model from now on.

        Raises:
            ToolValidationError: an endpoint would refuse one of them.
        """
        self._tools = validate_tools(tools)

    def clear_tools(self) -> None:
        """Offer no tools any more."""
        self._tools = []

    def reset_metrics(self) -> None:
        """Count from zero."""
        self._metrics = RolloutMetrics()

    def get_metrics(self) -> RolloutMetrics:
        """Calls of `chat_completions` since the last `reset_metrics`: their number, tokens and time."""
        return self._metrics.model_copy()

    async def chat_completions(self, messages: list[MessageDict], **kwargs: Any) -> CompletionsResult:
        """Ask the model.

        Args:
            messages: The whole conversation.
            **kwargs: Arguments of the request; `model` and `tools` replace the client's own.

        Raises:
            ProviderError: the call failed for good.
            SystemicProviderError: so would every other.
            ConfigError: the provider's key is missing.
        """
        client, name = self._client()
        llm = AgentLLM(BoundChat(client, name), model=name, tools=self._tools)
        try:
            return await llm.chat_completions(messages, **kwargs)
        except SystemicProviderError:
            self._leave()  # whoever has mended the endpoint, or exported the key, is heard at the next call
            raise
        finally:
            self._add(llm.get_metrics())

    async def preflight_check(self) -> None:
        """Ask for one token, to find out whether the model can be asked at all. A rate limit says that it can.

        Raises:
            SystemicProviderError: it cannot.
            ConfigError: the provider's key is missing.
        """
        client, name = self._client()
        try:
            await preflight(client, name)
        except SystemicError as error:
            self._leave()
            raise SystemicProviderError(of_a_client(str(error))) from error

    def endpoint(self, keys: MutableMapping[str, str]) -> Endpoint:
        """Where the engine finds the model.

        Args:
            keys: Gets the key, if one was given, under the name by which the endpoint calls it.

        Raises:
            ConfigError: the provider's key is missing, or litellm, which would ask it.
        """
        name = _name_for(self._api_key, keys) if self._api_key else None
        found = self._route(name)
        require_litellm(found.url)
        return Endpoint(found.url, found.key_var, found.model)

    def _route(self, key_var: str | None, *, has_key: bool = False) -> Route:
        has_key = has_key or key_var is not None
        try:
            return route(self.display_name, self._api_base, environ=os.environ, key_var=key_var, has_key=has_key)
        except ConfigError as error:
            raise ConfigError(of_a_client(str(error))) from None

    def _client(self) -> tuple[PooledClient, str]:
        """A client of the running loop, and the model's name there."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._leave()
            self._loop = loop
        endpoint = self.endpoint(self._keys)
        if not endpoint.url:
            raise ConfigError(
                f"{self.display_name} is played inside a run; to ask it alone, give the address of `bench serve` as "
                "api_base"
            )
        if self._pool is None:
            self._pool = ClientPool(environ=ChainMap(self._keys, os.environ))
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


def _name_for(key: str, keys: MutableMapping[str, str]) -> str:
    """What a key goes by that was given in person: settings and run folders name variables only."""
    known = next((name for name, value in keys.items() if value == key), None)
    if known is None:
        known = LITERAL_KEY_VAR if not keys else f"{LITERAL_KEY_VAR}_{len(keys) + 1}"
        keys[known] = key
    return known
