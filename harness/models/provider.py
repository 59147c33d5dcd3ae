"""The interface of providers, which send a request to an API and parse its reply. The module `chat` adds limits,
retries, budgets and health to every provider. `openai_provider` is the provider for the OpenAI wire format, `litellm`
that for litellm; packages add others in the entry-point group `bench.providers` (docs/concepts/plugins.md)."""

from __future__ import annotations

from typing import Protocol

from harness.core.types import ModelCall, ModelResponse
from harness.models.target import RequestTarget
from harness.settings.providers import provider_entry, require_provider


class Provider(Protocol):
    """Sends requests to one API in the API's wire format."""

    async def complete(self, call: ModelCall) -> ModelResponse:
        """Send `call` once and return the reply; limits, retries and timeouts are applied by the caller.

        Raises:
            AttemptFailed: the request failed; the `failure` of this error says whether a retry may help.
            ModelError: the call cannot be sent in this wire format, so it is not retried.
        """
        ...

    async def probe(self) -> bool:
        """Return whether the host answers a request, with any HTTP status."""
        ...

    async def close(self) -> None:
        """Close all connections; idempotent."""
        ...


def open_provider(target: RequestTarget, *, timeout: float, connect_timeout: float) -> Provider:
    """Create the provider of an endpoint. No request is sent.

    Args:
        target: The endpoint; the scheme of its URL names the provider.
        timeout: Timeout of one request in seconds; the caller enforces it as well.
        connect_timeout: Timeout of a connection attempt in seconds.

    Raises:
        ConfigError: the provider is not installed.
    """
    if target.provider:
        from harness.models.litellm import LiteLLMProvider

        return LiteLLMProvider(target, timeout=timeout, connect_timeout=connect_timeout)
    if not target.plugin:
        from harness.models.openai_provider import OpenAIProvider

        return OpenAIProvider(target, connect_timeout=connect_timeout)
    require_provider(target.url)
    entry = provider_entry(target.plugin)
    assert entry is not None and entry.create is not None, "checked by require_provider"
    return entry.create(target, timeout=timeout, connect_timeout=connect_timeout)
