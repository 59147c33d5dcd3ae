"""Client objects that callers of `evaluate()` pass in place of an address."""

from __future__ import annotations

from typing import Protocol, cast

from harness.agents.client import ExternalLLMClient
from harness.cli.call_arguments import dashed
from harness.core.errors import EnvironmentFault, UsageError
from harness.core.redact import redactor
from harness.core.types import ModelCall, ModelResponse
from harness.models.delays import Delay
from harness.models.pool import CallSettings, ClientPool
from harness.settings.endpoints import Endpoint


class ModelClient(Protocol):
    """Interface of a caller's own model client: any object with this method."""

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send `call`, and return the reply."""
        ...


def endpoint_of(client: object, model: str | None) -> Endpoint:
    """Make the endpoint for the client object that the caller passed.

    Raises:
        UsageError: the object is no client, or `model` is missing.
    """
    if isinstance(client, ExternalLLMClient):
        return client.endpoint()
    address, key = getattr(client, "base_url", None), getattr(client, "api_key", None)
    if address is not None and isinstance(key, str):
        if not model:
            raise UsageError("model is missing; give the name of the client's model, such as model='gpt-4.1-mini'")
        redactor.add(key)
        return Endpoint(str(address).rstrip("/"), None, model, key=key)
    if callable(getattr(client, "request", None)):
        name = model or type(client).__name__
        return Endpoint(f"http://{dashed(type(client).__name__)}.client.invalid/v1", None, name,
                        client=_OwnClient(cast(ModelClient, client)))  # fmt: skip
    raise UsageError(
        f"client must be an openai client, an ExternalLLMClient, or an object with async request(call) -> "
        f"ModelResponse, not {type(client).__name__}"
    )


class _OwnClient:
    """Adapter that lets the engine send requests through a client object of the caller."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client
        self.tokens = 0

    async def request(self, call: ModelCall) -> ModelResponse:
        """Send `call` through the caller's object.

        Raises:
            EnvironmentFault: the object belongs to another event loop.
        """
        try:
            response = await self._client.request(call)
        except RuntimeError as error:
            if "loop" not in str(error):  # asyncio has no exception of its own for this
                raise
            raise EnvironmentFault(
                f"{type(self._client).__name__}.request: {error}; the client belongs to another event loop: call "
                "`await aevaluate(…)` in that loop, or open its connections in `request`"
            ) from error
        self.tokens += response.usage.input_tokens + response.usage.output_tokens
        return response

    def connect(self, pool: ClientPool, settings: CallSettings) -> None:
        """Do nothing: the object sends its requests itself."""

    def delays(self) -> list[Delay]:
        """Return no delays, since the reason why the object waits is unknown."""
        return []

    async def close(self) -> None:
        """Do nothing: the object belongs to the caller."""
