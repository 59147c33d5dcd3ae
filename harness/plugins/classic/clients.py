"""Model calls of classic environments, to the rollout's model or through a client that the environment's author
supplies. Includes the client classes of the newer, typed API (generation C): a subclass converts prompt and tools to
the format of its endpoint, sends the request, and converts the reply to a `vf.Response`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.core.errors import EnvironmentFault, HarnessError
from harness.core.state import State
from harness.core.types import JsonDict, ModelResponse, Prompt
from harness.plugins.classic import faults
from harness.plugins.classic.messages import tools_of, tools_to_wire
from harness.plugins.classic.own_rollouts import awaited
from harness.plugins.classic.records import Record, plain
from harness.plugins.classic.responses import Response, as_response


async def ask(
    state: State,
    prompt: Prompt,
    *,
    tools: Sequence[JsonDict],
    sampling_args: Mapping[str, Any] | None,
    client: Any = None,
    model: str | None = None,
) -> ModelResponse | Response:
    """Send a prompt to the rollout's model, or with `client` if it is given.

    Raises:
        ModelError: the call failed.
        EnvironmentFault: `model` is not the run's model, and no client for it is given.
    """
    chat = state.chat
    args: JsonDict = {**(state["sampling_args"] or {}), **(sampling_args or {})}
    own: Any = dict(state).get("client")  # only if already created; reading it from the state would create one
    if chat is None or (client is not None and client is not own):
        chosen: Any = own if client is None else client
        return await _through(chosen, state, prompt, tools, args, model or state["model"])
    if model is not None and model not in (chat.model, state["model"]):
        raise EnvironmentFault(
            f"the environment requested the model {model!r}, but the model of the run is {chat.model!r}; "
            "to call another model, pass `client` to get_model_response"
        )
    return await chat(prompt, tools=list(tools) or None, sampling_args=args)


async def _through(
    client: Any, state: State, prompt: Prompt, tools: Sequence[JsonDict], args: JsonDict, model: str
) -> Response:
    try:
        if not hasattr(client, "get_response"):
            return as_response(await _send(client, prompt, model, args, tools))
        # Only client classes of generation C have this method.
        reply = client.get_response(
            prompt=prompt, model=model, tools=tools_of(list(tools), "C") or None, state=state,
            sampling_args={name: value for name, value in args.items() if value is not None},
        )  # fmt: skip
        return as_response(await awaited(reply))
    except HarnessError:
        raise
    except Exception as error:  # any exception of the author's client is a failed model call
        from harness.core.openai_client import original

        inner = original(error)
        if isinstance(inner, HarnessError):
            raise inner from error
        raise faults.ModelError(f"{type(error).__name__}: {error}") from error


async def _send(client: Any, prompt: Any, model: str, args: Mapping[str, Any], tools: Sequence[Any] | None) -> Any:
    """Send a request with a client of the openai package, sync or async."""
    given = {name: value for name, value in args.items() if value is not None}
    if isinstance(prompt, str):
        reply = client.completions.create(model=model, prompt=prompt, **given)
    else:
        offered: JsonDict = {"tools": list(tools)} if tools else {}
        reply = client.chat.completions.create(model=model, messages=plain(prompt), **offered, **given)
    return await awaited(reply)


class ClientConfig(Record):
    """Configuration of a model client in the classic API."""

    defaults: ClassVar[Mapping[str, object]] = {
        "api_key_var": "OPENAI_API_KEY",
        "api_base_url": "https://api.openai.com/v1",
        "extra_headers": {},
    }


class Client:
    """`vf.Client`: base class for clients that environment authors write.

    Args:
        client_or_config: The client to wrap, or a `vf.ClientConfig` for `setup_client`.

    The constructor of this class itself returns the wrapped client, so that `state["client"]` is an `AsyncOpenAI`.
    """

    def __new__(cls, client_or_config: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Create an instance of a subclass; for the base classes, return the wrapped client."""
        if not cls.__module__.startswith("harness."):
            return super().__new__(cls)
        if client_or_config is None:
            raise EnvironmentFault(f"vf.{cls.__name__}(…): pass a client to wrap, such as an openai.AsyncOpenAI")
        return client_or_config

    def __init__(self, client_or_config: Any = None) -> None:
        self.logger = logging.getLogger(f"verifiers.clients.{type(self).__name__}")
        is_config = isinstance(client_or_config, ClientConfig)
        self._config = client_or_config if is_config else None
        self._client: Any = self.setup_client(client_or_config) if is_config else client_or_config

    @property
    def client(self) -> Any:
        """The client that this object wraps, such as an `openai.AsyncOpenAI`."""
        return self._client

    def setup_client(self, config: ClientConfig) -> Any:
        """Create the wrapped client from a configuration."""
        raise NotImplementedError(
            f"{type(self).__name__} has no client: pass one to the constructor, or return one from setup_client"
        )

    async def to_native_tool(self, tool: Any) -> Any:
        """Convert a tool to the endpoint's format; by default that of the OpenAI API."""
        return tools_to_wire([tool])[0]

    async def to_native_tools(self, tools: Sequence[Any] | None) -> list[Any] | None:
        """Convert all tools to the endpoint's format."""
        return None if tools is None else [await self.to_native_tool(tool) for tool in tools]

    async def to_native_prompt(self, messages: Prompt) -> tuple[Any, JsonDict]:
        """Convert the prompt to the endpoint's format; return it with further arguments for the request."""
        return plain(messages), {}

    async def get_native_response(
        self, prompt: Any, model: str, sampling_args: JsonDict, tools: list[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Send the request; by default with the openai package."""
        return await _send(self.client, prompt, model, sampling_args, tools)

    async def raise_from_native_response(self, response: Any) -> None:
        """Raise a `vf.ModelError` if the reply is invalid."""

    async def from_native_response(self, response: Any) -> Response:
        """Convert the endpoint's reply to a `vf.Response`."""
        return as_response(response)

    async def get_response(
        self, prompt: Prompt, model: str, sampling_args: JsonDict, tools: Sequence[Any] | None = None, **kwargs: Any
    ) -> Response:
        """Call the model: convert prompt and tools, send the request, and convert and check the reply.

        Raises:
            ModelError: a step failed.
        """
        try:
            asked, further = await self.to_native_prompt(prompt)
            offered = await self.to_native_tools(tools)
            answer = await self.get_native_response(asked, model, sampling_args, offered, **further, **kwargs)
            await self.raise_from_native_response(answer)
            return await self.from_native_response(answer)
        except (faults.Error, HarnessError):
            raise
        except Exception as error:  # any exception of an author's client means that the model call failed
            raise faults.ModelError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Do nothing, since the wrapped client is closed by the code that created it."""
