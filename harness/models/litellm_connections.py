"""Restrictions on the connections of litellm: no redirects, no default host of another provider, no proxy for loopback
addresses. They are applied by replacing litellm's cache of HTTP clients. Also records whether each request was sent."""

from __future__ import annotations

import os
import urllib.request
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import orjson

from harness.models.failures import BROKE_OFF, Failure, bad_reply, error_inside, json_object, unlisted
from harness.models.transport import BODY_CAP
from harness.models.wire import first_choice

_OPENAI_HOST = "api.openai.com"


@dataclass(slots=True)
class Passage:
    """Record of one outgoing request."""

    provider: str
    sent: bool = False
    """Whether the request was passed to a connection."""
    failure: Failure | None = None
    """Failure that litellm does not detect (a wrong host or an incomplete reply), or whose error code litellm drops (an
    error in a reply with status 200); None without one."""
    position: int = 0
    """List position of the choice with index 0, since litellm renumbers the choices by their position."""


PASSAGE: ContextVar[Passage | None] = ContextVar("PASSAGE", default=None)
"""Record of the request that is being sent in this context."""


class Rejected(Exception):
    """Raised when a request or its reply is rejected. The `Passage` of the request contains the failure."""


def guard(package: Any) -> None:
    """Replace litellm's cache of HTTP clients by one that restricts the connections of every client; idempotent.

    Args:
        package: The module litellm.
    """
    base: Any = import_module("litellm.caching.llm_caching_handler").LLMClientCache
    if type(package.in_memory_llm_clients_cache) is not base:
        return  # already replaced

    class RestrictedClients(base):
        """litellm's cache of HTTP clients, which restricts the connections of each client that is stored."""

        def set_cache(self, key: object, value: object, **options: object) -> None:
            """Restrict the connections of an HTTP client, and store the client in the cache."""
            _restrict(value)
            store: Any = super()
            store.set_cache(key, value, **options)

    package.in_memory_llm_clients_cache.flush_cache()
    package.in_memory_llm_clients_cache = RestrictedClients()


def spare_loopback() -> None:
    """Exclude loopback addresses from the proxies that are set in environment variables."""
    if not urllib.request.getproxies_environment() or urllib.request.proxy_bypass("127.0.0.1"):
        return
    name = "no_proxy" if "no_proxy" in os.environ else "NO_PROXY"
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), "localhost,127.0.0.1,::1"]))


def _restrict(client: Any) -> None:
    """Disable redirects of an HTTP client, and check its requests and replies."""
    httpx: Any = import_module("httpx")
    # litellm's handlers and the OpenAI SDK's clients wrap an httpx client.
    wrapped: tuple[Any, ...] = (client, getattr(client, "client", None), getattr(client, "_client", None))
    for one in wrapped:
        if isinstance(one, httpx.Client | httpx.AsyncClient):
            # A redirect would forward the prompt, and keys in headers other than Authorization.
            one.follow_redirects = False
        if isinstance(one, httpx.AsyncClient):
            hooks = one.event_hooks
            one.event_hooks = {
                "request": [*hooks["request"], _check_request],
                "response": [*hooks["response"], _check_response],
            }


async def _check_request(request: Any) -> None:
    """Raise an error if a request goes to a wrong host; otherwise record that the request was sent."""
    passage = PASSAGE.get()
    if passage is None:
        return
    if request.url.host == _OPENAI_HOST and passage.provider not in ("openai", "text-completion-openai"):
        # litellm's default for a provider without an address; the request would contain that provider's key.
        words = f"litellm has no address for this provider, and would have sent the request to {_OPENAI_HOST}"
        passage.failure = Failure("unsent", "not_found", words, False, denied=True)
        raise Rejected
    passage.sent = True


async def _check_response(response: Any) -> None:
    """Record facts that litellm ignores in a 2xx reply: truncation, an error, and the position of the first choice."""
    passage = PASSAGE.get()
    if passage is None or not response.is_success:
        return
    if response.status_code == 206:
        passage.failure = bad_reply("the reply is incomplete (partial content)", 206)
    if response.status_code != 200 or "json" not in response.headers.get("Content-Type", ""):
        return
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > BODY_CAP:
            passage.failure = bad_reply(f"the body is larger than {BODY_CAP / 2**20:g} MB")
            raise Rejected
    response._content = bytes(body)  # as `aread` does
    if _is_cut(response):
        passage.failure = BROKE_OFF
        return
    try:
        fields = json_object(unlisted(orjson.loads(body)))
    except orjson.JSONDecodeError:
        return
    if "choices" in fields or "error" in fields:  # other formats use other names
        choice = first_choice(fields.get("choices"))
        passage.failure = error_inside(fields, choice)
        if choice is not None:
            passage.position = next(place for place, each in enumerate(fields["choices"]) if each is choice)


def _is_cut(response: Any) -> bool:
    """Return whether the compressed body of a reply is truncated, which httpx does not detect."""
    decoder = getattr(response, "_decoder", None)
    decompressors = [getattr(each, "decompressor", None) for each in (decoder, *getattr(decoder, "children", ()))]
    return any(getattr(each, "eof", True) is False for each in decompressors)
