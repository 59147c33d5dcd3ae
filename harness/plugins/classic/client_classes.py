"""The client classes of generation C. One that an author derives works as documented: it turns prompt and tools into
those of its endpoint, asks, and turns the answer into a `vf.Response`. Ours only stand for the client they wrap."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any

from harness.core.errors import EnvironmentFault, HarnessError
from harness.core.types import JsonDict, Prompt
from harness.plugins.classic.faults import Error, ModelError
from harness.plugins.classic.messages import tools_to_wire
from harness.plugins.classic.names import ClientConfig
from harness.plugins.classic.records import plain
from harness.plugins.classic.responses import Response, as_response


class Client:
    """`vf.Client`: the base of an author's own clients.

    Args:
        client_or_config: The client that is wrapped, or a `vf.ClientConfig` for `setup_client`.

    Without a derived class, making one gives the wrapped client: `state["client"]` is an `AsyncOpenAI`.
    """

    def __new__(cls, client_or_config: Any = None, *args: Any, **kwargs: Any) -> Any:
        """A derived client, or the client that one of ours was to wrap."""
        if not cls.__module__.startswith("harness."):
            return super().__new__(cls)
        if client_or_config is None:
            raise EnvironmentFault(f"vf.{cls.__name__} wraps a client: pass an openai.AsyncOpenAI")
        return client_or_config

    def __init__(self, client_or_config: Any = None) -> None:
        self.logger = logging.getLogger(f"verifiers.clients.{type(self).__name__}")
        is_config = isinstance(client_or_config, ClientConfig)
        self._config = client_or_config if is_config else None
        self._client: Any = self.setup_client(client_or_config) if is_config else client_or_config

    @property
    def client(self) -> Any:
        """The client that is wrapped."""
        return self._client

    def setup_client(self, config: ClientConfig) -> Any:
        """Make the wrapped client of a configuration."""
        raise NotImplementedError(f"{type(self).__name__}.setup_client: pass a client, or make one there")

    async def to_native_tool(self, tool: Any) -> Any:
        """A tool as the endpoint wants it; the OpenAI wire's by default."""
        return tools_to_wire([tool])[0]

    async def to_native_tools(self, tools: Sequence[Any] | None) -> list[Any] | None:
        """All tools as the endpoint wants them."""
        return None if tools is None else [await self.to_native_tool(tool) for tool in tools]

    async def to_native_prompt(self, messages: Prompt) -> tuple[Any, JsonDict]:
        """The prompt as the endpoint wants it, and further arguments of the call."""
        return plain(messages), {}

    async def get_native_response(
        self, prompt: Any, model: str, sampling_args: JsonDict, tools: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Ask; by default as the openai package does."""
        args = {name: value for name, value in sampling_args.items() if value is not None}
        if isinstance(prompt, str):
            reply = self.client.completions.create(model=model, prompt=prompt, **args)
        else:
            offered: JsonDict = {"tools": tools} if tools else {}
            reply = self.client.chat.completions.create(model=model, messages=prompt, **offered, **args)
        return await reply if inspect.isawaitable(reply) else reply

    async def raise_from_native_response(self, response: Any) -> None:
        """Raise a `vf.ModelError` for an answer that is none."""

    async def from_native_response(self, response: Any) -> Response:
        """The `vf.Response` of an answer."""
        return as_response(response)

    async def get_response(
        self, prompt: Prompt, model: str, sampling_args: JsonDict, tools: Sequence[Any] | None = None, **kwargs: Any
    ) -> Response:
        """Ask, step by step.

        Raises:
            ModelError: a step failed.
        """
        try:
            asked, further = await self.to_native_prompt(prompt)
            offered = await self.to_native_tools(tools)
            answer = await self.get_native_response(asked, model, sampling_args, offered, **further, **kwargs)
            await self.raise_from_native_response(answer)
            return await self.from_native_response(answer)
        except (Error, HarnessError):
            raise
        except Exception as error:  # as documented: whatever a step raises is a failed call
            raise ModelError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Nothing: the wrapped client is its maker's to close."""


class OpenAIChatCompletionsClient(Client):
    """See `Client`."""


class OpenAICompletionsClient(Client):
    """See `Client`."""


class OpenAIResponsesClient(Client):
    """See `Client`."""


class AnthropicMessagesClient(Client):
    """See `Client`."""
