"""Restrictions of litellm's connections: no redirects, no default host of another provider, no proxy for loopback. They
are set by replacing litellm's cache of HTTP clients. Also records for each request whether it was sent."""

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
    """A wrong host, an incomplete reply, or an error inside a 200; litellm does not notice them, or drops the code of
    the error."""
    position: int = 0
    """List position of the choice with index 0, since litellm numbers the choices anew by position."""


PASSAGE: ContextVar[Passage | None] = ContextVar("PASSAGE", default=None)
"""Record of the current request."""


class Rejected(Exception):
    """This module has rejected a request or its reply; the `Passage` contains the failure."""


def guard(package: Any) -> None:
    """Replace litellm's cache of HTTP clients by one that restricts the connections of each client; idempotent.

    Args:
        package: The module litellm.
    """
    base: Any = import_module("litellm.caching.llm_caching_handler").LLMClientCache
    if type(package.in_memory_llm_clients_cache) is not base:
        return  # already replaced

    class RestrictedClients(base):
        """Cache in which litellm stores every new client."""

        def set_cache(self, key: object, value: object, **options: object) -> None:
            """Restrict a client and store it in the cache."""
            _restrict(value)
            store: Any = super()
            store.set_cache(key, value, **options)

    package.in_memory_llm_clients_cache.flush_cache()
    package.in_memory_llm_clients_cache = RestrictedClients()


def spare_loopback() -> None:
    """Exclude loopback addresses from proxies set in the environment."""
    if not urllib.request.getproxies_environment() or urllib.request.proxy_bypass("127.0.0.1"):
        return
    name = "no_proxy" if "no_proxy" in os.environ else "NO_PROXY"
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), "localhost,127.0.0.1,::1"]))


def _restrict(client: Any) -> None:
    """Disable redirects of a client, and check its requests and replies."""
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
    """Reject a request to a wrong host, or record that it was sent."""
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
    """Record what litellm ignores in a 2xx reply: that it is incomplete, an error in it, the position of choice 0."""
    passage = PASSAGE.get()
    if passage is None or not response.is_success:
        return
    if response.status_code == 206:
        passage.failure = bad_reply("it is only a part of a reply (partial content)", 206)
    if response.status_code != 200 or "json" not in response.headers.get("Content-Type", ""):
        return
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > BODY_CAP:
            passage.failure = bad_reply(f"its body is larger than {BODY_CAP / 2**20:g} MB")
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
    """Whether a compressed body is truncated, which httpx does not detect."""
    decoder = getattr(response, "_decoder", None)
    decompressors = [getattr(each, "decompressor", None) for each in (decoder, *getattr(decoder, "children", ()))]
    return any(getattr(each, "eof", True) is False for each in decompressors)
