"""Provider that sends requests through the package litellm, for APIs whose wire format is not OpenAI's. The replies and
errors of litellm are converted to those of this package."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import re
import sys
from collections.abc import Mapping, Set
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

import aiohttp
from multidict import CIMultiDict

from harness.core.errors import ConfigError
from harness.core.messages import Message
from harness.core.redact import redactor
from harness.core.types import JsonDict, ModelCall, ModelResponse
from harness.models.failures import AttemptFailed, Failure, clean, from_status, json_object, timed_out
from harness.models.litellm_connections import PASSAGE, Passage, guard, spare_loopback
from harness.models.target import RequestTarget
from harness.models.transport import connection_error
from harness.models.wire import plain_json, read_fields, request_fields
from harness.settings.providers import missing_litellm, require_address, unknown_provider

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise its import downloads prices from GitHub
    "LITELLM_MODE": "PRODUCTION",  # otherwise its import loads the working directory's .env
}

_SECRET_NAME = re.compile(r"(?:^|_)(?:\w*APIKEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?|PAT|JWT)(?:_|$)")
"""Pattern of names of environment variables that may contain a credential for litellm."""

_SHORTEST_SECRET = 12
"""Minimum length of a credential, in characters. Shorter values (`MAX_TOKEN=100000`, `X_API_KEY=ollama`) are not
redacted, because ordinary words and numbers in replies would be redacted, too."""

_OWN_OPTIONS = frozenset({
    "api_base", "api_key", "base_url", "cache", "caching", "client", "context_window_fallback_dict",
    "custom_llm_provider", "fallbacks", "force_timeout", "headers", "litellm_credential_name", "max_retries",
    "mock_delay", "mock_response", "mock_timeout", "mock_tool_calls", "model_list", "num_retries", "request_timeout",
    "retry_policy", "retry_strategy", "shared_session", "timeout", "use_litellm_proxy",
})  # fmt: skip
"""Arguments of litellm that are not part of a request and are rejected as sampling arguments. They change the provider,
the key or the number of retries, or make litellm return a mock reply."""

_TAKE_NO_RETRIES = frozenset({"gradient_ai", "oci"})
"""Providers whose code in litellm rejects `max_retries` and does not retry."""

_NOISE = re.compile(
    r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout):?[\s-]+)+|\s*Traceback \(most recent.*|\s*Handle with `.*",
    re.DOTALL,
)
"""Pattern of the exception names before the text of litellm's errors and the stack trace or advice after it, which are
removed from messages."""

_NO_CONNECTION = frozenset({"ConnectError", "ConnectTimeout", "ClientConnectorError", "ConnectionRefusedError"})
"""Names of exceptions of HTTP libraries that mean that nothing was sent. Names are used instead of classes, because the
library depends on the provider and on litellm's version."""

_BROKEN = frozenset(
    {"NetworkError", "RemoteProtocolError", "ClientOSError", "ServerDisconnectedError", "ClientPayloadError"}
)
"""Names of exceptions that mean that the connection broke."""

_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"})
"""Names of exceptions that mean that cloud credentials are missing."""

_SETUP_WORDS = re.compile(
    r"api[ _]?key|credential|api[ _]base|base_url|account_id|tenant|pip install|must be installed|access token",
    re.IGNORECASE,
)
"""Pattern of litellm's errors that mean that a setting of the provider is missing, so that every request would fail."""

_NETWORK_PACKAGES = frozenset({"httpx", "httpcore", "aiohttp", "requests", "urllib3", "botocore", "google", "grpc"})
"""Top-level packages whose exceptions may have a network cause: HTTP libraries used by provider code."""

_CHAIN = 12
"""Maximum depth of the exception chain that is searched."""

_CLOSING = 2.0
"""Timeout in seconds for the background work of litellm after the last reply."""


class LiteLLMProvider:
    """Connections to one of litellm's providers.

    Args:
        target: The endpoint. Without a key, litellm searches its own environment variables and files for credentials.
        timeout: Timeout of one request in seconds.
        connect_timeout: Timeout of the connection in seconds, if the provider's code supports one.

    Raises:
        ConfigError: litellm is not installed or does not support the provider.
    """

    _open = 0
    """Number of open providers in this process. litellm's connections are closed with the last one."""

    def __init__(self, target: RequestTarget, *, timeout: float, connect_timeout: float) -> None:
        provider = target.provider
        require_address(provider, os.environ)
        self._litellm = load(provider)
        if provider not in {str(getattr(known, "value", known)) for known in self._litellm.provider_list}:
            raise unknown_provider(
                f"{provider}/…", Message("litellm does not know the provider {provider!r}", provider=provider)
            )
        self._provider = provider
        self._headers = dict(target.headers)
        self._options: JsonDict = {"stream": False}
        if provider not in _TAKE_NO_RETRIES:
            self._options |= {"num_retries": 0, "max_retries": 0}
        self._timeouts = (float(timeout), float(connect_timeout))  # most providers reject integers
        if target.key is not None:
            self._options["api_key"] = target.key
        # litellm finds credentials in these variables by itself, and a provider's error message may repeat one.
        for name, value in os.environ.items():
            if len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name.upper()) and not os.path.exists(value):
                redactor.add(value)
        self._completion_tokens: set[str] = set()
        """Names of models that rejected `max_tokens` and need `max_completion_tokens`."""
        self._is_open = True
        LiteLLMProvider._open += 1

    async def complete(self, call: ModelCall) -> ModelResponse:
        """Send `call` and parse the reply.

        Raises:
            AttemptFailed: no usable reply was received.
        """
        if isinstance(call.prompt, str):
            words = "a text prompt cannot be sent through litellm; set the base URL to that of a completions endpoint"
            raise AttemptFailed(Failure("unsent", "bad_request", words, False))
        # A copy, since the code of some of litellm's providers changes the messages.
        asked = deepcopy(request_fields(call, completion_tokens=call.model in self._completion_tokens))
        if own := sorted(_OWN_OPTIONS.intersection(asked)):
            words = f"{', '.join(own)}: an option of litellm is not allowed as a sampling argument; remove it"
            raise AttemptFailed(Failure("unsent", "bad_request", words, False))
        total, connect = self._timeouts
        arguments: JsonDict = {**asked, **self._options}
        arguments["timeout"] = import_module("httpx").Timeout(total, connect=connect)
        arguments["model"] = f"{self._provider}/{call.model}"
        if extra := {**self._headers, **call.headers}:
            arguments["extra_headers"] = extra
        passage = Passage(self._provider)
        known = PASSAGE.set(passage)
        try:
            reply = _fields_of(await self._litellm.acompletion(**arguments), passage.position)
            outcome = passage.failure or read_fields(reply, 200, is_chat=True)
        except Exception as error:
            # A provider's code may raise any exception; `_translate` converts it.
            failure = passage.failure or _translate(error, total, passage.sent)
            if failure.wants_completion_tokens and "max_tokens" in asked:
                self._completion_tokens.add(call.model)
                failure = replace(failure, resend=True)
            raise AttemptFailed(failure) from error
        finally:
            PASSAGE.reset(known)
        if isinstance(outcome, Failure):
            raise AttemptFailed(outcome)
        return outcome

    async def probe(self) -> bool:
        """Return True without sending a request, since only litellm knows the provider's address. The next request then
        tests the connection."""
        return True

    async def close(self) -> None:
        """Close litellm's connections, if no other provider of this process is open; idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        LiteLLMProvider._open -= 1
        if LiteLLMProvider._open:
            return
        await _end_callbacks()
        # Closed explicitly: litellm's cache could reuse a client on a later event loop with the same id, and its own
        # close function skips clients of the OpenAI SDK.
        cache: Any = getattr(self._litellm, "in_memory_llm_clients_cache", None)
        cached: list[Any] = list(getattr(cache, "cache_dict", {}).values())
        await self._litellm.close_litellm_async_clients()
        for client in cached:
            if (close := getattr(client, "close", None)) is not None and inspect.iscoroutinefunction(close):
                with contextlib.suppress(Exception):  # may be closed already, or belong to another loop
                    await close()
        if cache is not None:
            cache.flush_cache()


def load(provider: str) -> Any:
    """Import litellm without network access, without reading ./.env and without output on stdout.

    Args:
        provider: Name of the provider, for the error message.

    Returns:
        The module litellm.

    Raises:
        ConfigError: litellm is not installed.
    """
    if "litellm" not in sys.modules:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    try:
        package: Any = import_module("litellm")
    except ImportError as error:
        raise ConfigError(missing_litellm(provider)) from error
    package.suppress_debug_info = True
    package.telemetry = False
    guard(package)
    spare_loopback()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        # Its own handlers would bypass live display and redactor.
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)  # at INFO it logs every request
    return package


async def _end_callbacks() -> None:
    """Wait for the background work of litellm, which Python would otherwise cancel with a warning."""
    try:
        worker: Any = import_module("litellm.litellm_core_utils.logging_worker").GLOBAL_LOGGING_WORKER
    except (ImportError, AttributeError):
        return
    reached = asyncio.Event()

    async def reach() -> None:
        reached.set()

    worker.ensure_initialized_and_enqueue(reach())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await reached.wait()
    await worker.stop()


def _fields_of(response: Any, position: int) -> JsonDict:
    """Convert a reply from litellm to the fields of an OpenAI reply with only one choice, the one at `position`."""
    fields = cast("JsonDict", plain_json(response.model_dump(exclude_none=True, warnings=False)))
    if 0 < position < len(choices := cast("list[JsonDict]", fields.get("choices") or [])):
        fields["choices"] = [{**choices[position], "index": 0}]
    for choice in cast("list[JsonDict]", fields.get("choices") or []):
        message: JsonDict = choice.get("message") or {}
        if own := json_object(message.get("provider_specific_fields")):
            kept = {name: value for name, value in own.items() if value is not None}
            message["provider_specific_fields"] = kept or None
    if "usage" in fields and not json_object(fields["usage"]).get("prompt_tokens"):
        # litellm reports 0 prompt tokens if the provider sends no usage.
        del fields["usage"]
    return fields


def _translate(error: Exception, timeout: float, sent: bool) -> Failure:
    """Convert an exception of litellm to a failure.

    An HTTP error in the exception chain has priority, because it has the provider's status and message, whereas litellm
    changes some statuses and reports any unexpected error as a connection error.

    Args:
        error: The exception.
        timeout: Timeout of the request in seconds.
        sent: Whether the request was passed to a connection.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < _CHAIN:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    kinds = {kind.__name__ for kind in type(error).__mro__}
    words = clean(_NOISE.sub("", str(getattr(error, "message", "") or error)))
    if names & _NO_CONNECTION:
        known = next((each for each in causes if isinstance(each, aiohttp.ClientConnectorError)), None)
        detail = f"cannot connect ({words})" if known is None else connection_error(known)
        return Failure("unreachable", "connection", detail, True)
    answered = next((each for each in causes if type(each).__name__ == "HTTPStatusError"), None)
    if answered is not None and (failure := _from_http(answered, words)) is not None:
        return replace(failure, too_long=failure.too_long or "ContextWindowExceededError" in kinds)
    if kinds & {"Timeout", "TimeoutError"}:
        return timed_out(timeout)
    if names & _BROKEN:
        return Failure("broken", "connection", f"the connection broke ({words})", True)
    has_reached_network = sent or any(type(each).__module__.partition(".")[0] in _NETWORK_PACKAGES for each in causes)
    is_auth = not _NO_CREDENTIALS.isdisjoint(type(each).__name__ for each in causes)
    kinds = {*kinds, "AuthenticationError"} if is_auth else kinds
    return _from_kinds(kinds, getattr(error, "status_code", None), words, has_reached_network)


def _from_kinds(kinds: Set[str], status: int | None, words: str, has_reached_network: bool) -> Failure:
    """Create the failure for an exception of litellm without an HTTP or connection error in its chain.

    Args:
        kinds: Names of the exception's class and of its base classes.
        status: HTTP status according to litellm.
        words: The cleaned message.
        has_reached_network: Whether the request was sent, or may have failed in an HTTP library.
    """
    if kinds & {"AuthenticationError", "BudgetExceededError"}:
        return Failure("status", "auth", words, False, status, denied=True)
    if kinds & {"NotFoundError", "LiteLLMUnknownProvider"} or "LLM Provider NOT provided" in words:
        return Failure("status", "not_found", words, False, status, denied=True)
    if "UnsupportedParamsError" in kinds:
        return Failure("status", "bad_request", words, False, status)
    if not has_reached_network:
        return Failure("unsent", "bad_request", words, False, denied=bool(_SETUP_WORDS.search(words)))
    if kinds & {"BadRequestError", "UnprocessableEntityError"}:  # litellm rejects an argument for this provider
        too_long = "ContextWindowExceededError" in kinds
        return Failure("status", "bad_request", words, False, status, too_long=too_long)
    return Failure("reply", "bad_response", f"litellm cannot read the reply: {words}", True)


def _from_http(error: BaseException, words: str) -> Failure | None:
    """Parse the provider's reply in an `httpx.HTTPStatusError`. Returns None if the error contains no reply."""
    response: Any = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if not isinstance(status, int) or not 300 <= status <= 599:
        return None
    headers = CIMultiDict[str](cast("Mapping[str, str]", response.headers))
    try:
        body = cast("bytes", response.content)
    except RuntimeError:  # httpx: a streamed body that was not read
        body = words.encode()
    return from_status(status, body, headers)
