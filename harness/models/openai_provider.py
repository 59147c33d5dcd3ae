"""Provider for APIs with OpenAI's wire format: `/chat/completions` and `/completions`. The module `wire` builds request
bodies and parses replies, and `transport` manages connections. This module is imported at the first request, because
importing aiohttp is slow."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from urllib.parse import urlsplit

from harness.core.openai_client import CHAT_PATH, COMPLETIONS_PATH
from harness.core.types import ModelCall, ModelResponse
from harness.models.failures import AttemptFailed, from_status
from harness.models.retry import read_retry_after
from harness.models.target import RequestTarget
from harness.models.transport import Transport
from harness.models.wire import build_request, read_reply, request_fields


class OpenAIProvider(Transport):
    """Connections to one OpenAI-compatible endpoint.

    Args:
        target: The endpoint.
        connect_timeout: Timeout in seconds for name lookup, connection and TLS.

    Raises:
        ConfigError: the environment sets a proxy that cannot be used.
    """

    def __init__(self, target: RequestTarget, *, connect_timeout: float) -> None:
        headers = {"Authorization": f"Bearer {target.key}"} if target.key else {}
        super().__init__(target.url, target.over(headers), connect_timeout=connect_timeout)
        self._target = target
        self._completion_tokens: set[str] = set()
        """Names of models that rejected `max_tokens` and need `max_completion_tokens`."""

    async def complete(self, call: ModelCall) -> ModelResponse:
        """Send `call` and parse the reply.

        Raises:
            AttemptFailed: the request failed.
            ModelError: the call contains a value that JSON cannot represent.
        """
        renames = call.model in self._completion_tokens or takes_completion_tokens(self._target.url, call.model)
        is_chat = not isinstance(call.prompt, str)
        body = build_request(call, completion_tokens=renames)
        reply = await self.post(CHAT_PATH if is_chat else COMPLETIONS_PATH, body, call.headers)
        if reply.status >= 300:
            failure = from_status(reply.status, reply.body, reply.headers)
        else:
            outcome = read_reply(reply.body, reply.status, is_chat=is_chat)
            if isinstance(outcome, ModelResponse):
                return outcome
            failure = outcome
            if failure.status is not None:
                failure = replace(failure, retry_after=read_retry_after(reply.headers, failure.status))
        if failure.wants_completion_tokens and is_chat and not renames and "max_tokens" in request_fields(call):
            self._completion_tokens.add(call.model)
            failure = replace(failure, resend=True)
        raise AttemptFailed(failure)


@lru_cache(maxsize=1024)
def takes_completion_tokens(url: str, model: str) -> bool:
    """Return whether requests must use `max_completion_tokens` instead of `max_tokens`, according to the URL and the
    model's name. OpenAI accepts the former for every model; Azure's older models do not. For all other endpoints the
    result is false, and the first rejection of `max_tokens` shows that the former is needed."""
    host = (urlsplit(url).hostname or "").lower()
    return host.endswith("api.openai.com") or (host.endswith(_AZURE_HOSTS) and bool(_REASONING.match(model.lower())))


_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com", ".azure-api.net")
_REASONING = re.compile(r"(?:[\w.-]+/)*(?:o[1-9]|gpt-?[5-9])(?![a-z\d])")
