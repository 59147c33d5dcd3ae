"""The one HTTP exchange of a request, made by litellm: for providers whose wire format is not OpenAI's. Owns the import
of litellm and the reading of its replies and errors; limits, retries, health and time limits stay in `chat`, which
calls this in `transport`'s place."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol, cast

import aiohttp
from multidict import CIMultiDict

from harness.core.errors import ConfigError
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.models.failures import Failure, WireFault, clean, from_status, timed_out
from harness.models.litellm_connections import PASSAGE, Passage, guard, spare_loopback
from harness.models.retry import read_retry_after
from harness.models.transport import Reply, connect_words
from harness.models.wire import CHAT_PATH
from harness.settings.providers import missing_litellm, require_address, unknown_provider

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or its import asks GitHub for prices, for seconds without a network
    "LITELLM_MODE": "PRODUCTION",  # or its import reads the .env of the working directory
}

_LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")

_SECRET_NAME = re.compile(r"(?:^|_)(?:\w*APIKEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?|PAT|JWT)(?:_|$)")
"""Of variables that litellm may take a credential from."""

_SHORTEST_SECRET = 12
"""Characters. A shorter value of such a variable (`MAX_TOKEN=100000`, `X_API_KEY=ollama`) is no credential, and would
be cut out of every answer as well."""

_OWN_OPTIONS = frozenset({
    "api_base", "api_key", "base_url", "cache", "caching", "client", "context_window_fallback_dict",
    "custom_llm_provider", "fallbacks", "force_timeout", "headers", "litellm_credential_name", "max_retries",
    "mock_delay", "mock_response", "mock_timeout", "mock_tool_calls", "model_list", "num_retries", "request_timeout",
    "retry_policy", "retry_strategy", "shared_session", "timeout", "use_litellm_proxy",
})  # fmt: skip
"""Arguments of litellm's that are no part of a request: they choose who answers, whose key is sent, how often it is
tried, or have nobody asked at all."""

_TAKE_NO_RETRIES = frozenset({"gradient_ai", "oci"})
"""Providers whose code refuses `max_retries`, and retries nothing."""

_NOISE = re.compile(
    r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout):?[\s-]+)+|\s*Traceback \(most recent.*|\s*Handle with `.*",
    re.DOTALL,
)
"""Names of its own exceptions that litellm puts in front of the words; stack and advice that it puts behind them."""

_NO_CONNECTION = frozenset({"ConnectError", "ConnectTimeout", "ClientConnectorError", "ConnectionRefusedError"})
"""What lies below an error of litellm's when nothing was sent. By name, since it depends on the provider and on
litellm's version which HTTP library it uses."""

_BROKEN = frozenset(
    {"NetworkError", "RemoteProtocolError", "ClientOSError", "ServerDisconnectedError", "ClientPayloadError"}
)
"""The same for a connection that died on the way."""

_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"})
"""The same for the clouds' own ways to log in."""

_SETUP_WORDS = re.compile(
    r"api[ _]?key|credential|api[ _]base|base_url|account_id|tenant|pip install|must be installed|access token",
    re.IGNORECASE,
)
"""In the words of litellm about what it lacks for this provider, whatever is asked."""

_NETWORK_PACKAGES = frozenset({"httpx", "httpcore", "aiohttp", "requests", "urllib3", "botocore", "google", "grpc"})
"""Where exceptions come from that a network can cause, for providers whose code brings its own HTTP library."""

_CHAIN = 12
"""Causes of an exception that are looked at."""

_CHAT_ONLY = "a text prompt cannot be asked through litellm; give the address of a completions endpoint as base URL"

_CLOSING = 2.0
"""Seconds that litellm's own work after the last reply may take."""


class LiteLLM(Protocol):
    """What is used of the package."""

    provider_list: list[object]

    async def acompletion(self, **arguments: object) -> object:
        """One chat completion."""
        ...

    async def close_litellm_async_clients(self) -> None:
        """Close all connections of the process."""
        ...


class LiteLLMTransport:
    """Connections to one provider; answers as `transport.Transport` does.

    Args:
        provider: As litellm calls it.
        key: None lets litellm look for the provider's credentials itself, in variables and files of its own.
        headers: Sent with every request.
        timeout: Seconds for one request.
        connect_timeout: Seconds for the connection alone, where the provider's code can tell.

    Raises:
        ConfigError: litellm is not installed, or knows no such provider.
    """

    _open = 0
    """Of all in this process: litellm's connections are shared, and closed with the last one."""

    def __init__(
        self, provider: str, key: str | None, headers: Mapping[str, str], *, timeout: float, connect_timeout: float
    ) -> None:
        require_address(provider, os.environ)
        self._litellm = load(provider)
        if provider not in {str(getattr(known, "value", known)) for known in self._litellm.provider_list}:
            raise ConfigError(unknown_provider(f"{provider}/…", f"litellm knows no provider {provider!r}"))
        self._provider = provider
        self._headers = dict(headers)
        self._options: JsonDict = {"stream": False}
        if provider not in _TAKE_NO_RETRIES:
            self._options |= {"num_retries": 0, "max_retries": 0}
        self._timeouts = (float(timeout), float(connect_timeout))  # litellm refuses integers for most providers
        if key is not None:
            self._options["api_key"] = key
        _hide_credentials()
        self._is_open = True
        LiteLLMTransport._open += 1

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None) -> Reply:
        """Ask for what `body` says, in the OpenAI format, and give the reply in that format.

        Raises:
            WireFault: there is no reply.
        """
        if path != CHAT_PATH:
            raise WireFault(Failure("unsent", "bad_request", _CHAT_ONLY, False))
        asked: JsonDict = json.loads(body)
        if own := sorted(_OWN_OPTIONS.intersection(asked)):
            words = f"{', '.join(own)}: an option of litellm's, not a field of a request; remove it"
            raise WireFault(Failure("unsent", "bad_request", words, False))
        arguments: JsonDict = {**asked, **self._options, "timeout": self._timeout()}
        arguments["model"] = f"{self._provider}/{asked['model']}"
        if extra := {**self._headers, **(headers or {})}:
            arguments["extra_headers"] = extra
        passage = Passage(self._provider)
        known = PASSAGE.set(passage)
        try:
            reply = _as_wire(await self._litellm.acompletion(**arguments), passage.position)
            body = json.dumps(reply, default=str).encode()
        except Exception as error:
            # Whatever a provider's code raises is one failed request; what it means is `_translate`'s to say.
            raise WireFault(passage.failure or _translate(error, self._timeouts[0], passage)) from error
        finally:
            PASSAGE.reset(known)
        if passage.failure is not None:
            raise WireFault(passage.failure)
        return Reply(200, CIMultiDict[str](), body)

    async def probe(self) -> bool:
        """Let the next request find out whether the provider is back: only litellm knows its address."""
        return True

    async def close(self) -> None:
        """Close litellm's connections if nobody else here uses them; idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        LiteLLMTransport._open -= 1
        if LiteLLMTransport._open:
            return
        await _end_callbacks()
        # Its cache would hand a closed client to a later event loop that happens to get the same id, and its own
        # closing passes over the clients of the OpenAI SDK.
        cache: Any = getattr(self._litellm, "in_memory_llm_clients_cache", None)
        cached = list(cast("dict[str, object]", getattr(cache, "cache_dict", {})).values())
        await self._litellm.close_litellm_async_clients()
        for client in cached:
            if (close := getattr(client, "close", None)) is not None and inspect.iscoroutinefunction(close):
                with contextlib.suppress(Exception):  # closing twice, or on another loop: gone it is
                    await close()
        if cache is not None:
            cache.flush_cache()

    def _timeout(self) -> object:
        total, connect = self._timeouts
        return import_module("httpx").Timeout(total, connect=connect)


def load(provider: str) -> LiteLLM:
    """The package, imported without network, without the working directory's .env and without a word on stdout.

    Args:
        provider: Whose sake it is for, in the message.

    Raises:
        ConfigError: it is not installed.
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
    for name in _LOGGERS:  # its own handlers would write over the live display, and past the redactor
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)  # below that it says of every request that it was made
    return cast("LiteLLM", package)


def _hide_credentials() -> None:
    """Make unsayable what litellm may find: a provider's error message can repeat a key."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name.upper()) and not os.path.exists(value):
            redactor.add(value)


async def _end_callbacks() -> None:
    """Let litellm finish what it does after replies: whatever is still queued would be dropped with a warning."""
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


def _as_wire(response: object, position: int = 0) -> JsonDict:
    """A reply of litellm's as the body that an OpenAI endpoint would have sent, with the choice at `position` alone."""
    fields: JsonDict = cast("Any", response).model_dump(exclude_none=True, warnings=False)
    if 0 < position < len(choices := cast("list[JsonDict]", fields.get("choices") or [])):
        fields["choices"] = [{**choices[position], "index": 0}]
    for choice in cast("list[JsonDict]", fields.get("choices") or []):
        message = cast("JsonDict", choice.get("message") or {})
        own: object = message.get("provider_specific_fields")
        if isinstance(own, dict):
            kept = {name: value for name, value in cast("JsonDict", own).items() if value is not None}
            message["provider_specific_fields"] = kept or None
    usage: object = fields.get("usage")
    if isinstance(usage, dict) and not cast("JsonDict", usage).get("prompt_tokens"):
        # Where the provider reports nothing litellm says 0, and no prompt has 0 tokens.
        del fields["usage"]
    return fields


def _translate(error: Exception, timeout: float, passage: Passage) -> Failure:
    """What an exception of litellm's means for a request.

    The HTTP error below it comes first: its status and words are the provider's, while litellm gives some of them
    another status, and calls whatever its own code does not expect a connection error.
    """
    causes = list(_causes(error))
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    kinds = {kind.__name__ for kind in type(error).__mro__}
    words = clean(_NOISE.sub("", str(getattr(error, "message", "") or error)))
    if names & _NO_CONNECTION:
        return Failure("unreachable", "connection", _why_no_connection(causes, words), True)
    answered = next((cause for cause in causes if type(cause).__name__ == "HTTPStatusError"), None)
    if answered is not None:
        failure = _from_http(answered, words)
        if failure is not None:
            return replace(failure, too_long=failure.too_long or "ContextWindowExceededError" in kinds)
    if kinds & {"Timeout", "TimeoutError"}:
        return timed_out(timeout)
    if names & _BROKEN:
        return Failure("broken", "connection", f"the connection broke ({words})", True)
    return _unanswered(error, causes, words, passage)


def _unanswered(error: Exception, causes: Sequence[BaseException], words: str, passage: Passage) -> Failure:
    """The same for an exception that neither an HTTP error nor a connection has caused."""
    if passage.stray:
        words = f"litellm has no address for this provider, and was about to ask {passage.stray}"
        return Failure("unsent", "not_found", words, False, denied=True)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status_code", None)
    if _NO_CREDENTIALS.intersection(type(cause).__name__ for cause in causes) or kinds & {
        "AuthenticationError",
        "BudgetExceededError",
    }:
        return Failure("status", "auth", words, False, status, denied=True)
    if kinds & {"NotFoundError", "LiteLLMUnknownProvider"} or "LLM Provider NOT provided" in words:
        return Failure("status", "not_found", words, False, status, denied=True)
    if "UnsupportedParamsError" in kinds:
        return Failure("status", "bad_request", words, False, status)
    if not passage.sent and not any(type(cause).__module__.partition(".")[0] in _NETWORK_PACKAGES for cause in causes):
        return Failure("unsent", "bad_request", words, False, denied=bool(_SETUP_WORDS.search(words)))
    if kinds & {"BadRequestError", "UnprocessableEntityError"}:  # an argument that litellm refuses for this provider
        too_long = "ContextWindowExceededError" in kinds
        return Failure("status", "bad_request", words, False, status, too_long=too_long)
    return Failure("reply", "bad_response", f"litellm cannot read the reply: {words}", True)


def _why_no_connection(causes: Sequence[BaseException], words: str) -> str:
    found = next((cause for cause in causes if isinstance(cause, aiohttp.ClientConnectorError)), None)
    return f"cannot connect ({words})" if found is None else connect_words(found)


def _from_http(error: BaseException, words: str) -> Failure | None:
    """Read the provider's own reply, as `httpx.HTTPStatusError` keeps it."""
    response: Any = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if not isinstance(status, int) or not 300 <= status <= 599:
        return None
    headers = CIMultiDict[str](cast("Mapping[str, str]", response.headers))
    try:
        body = cast("bytes", response.content)
    except RuntimeError:  # httpx: it was being streamed, and nobody has read it
        body = words.encode()
    return from_status(status, body, read_retry_after(headers, status, time.time()), headers.get("Location"))


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_CHAIN):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__
