"""Restrictions of litellm's connections: no redirects, no host but the provider's, no proxy for loopback. Replaces
litellm's cache of HTTP clients. Also records per request whether it was sent."""

from __future__ import annotations

import os
import urllib.request
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import orjson

from harness.models.failures import BROKE_OFF, Failure, bad_reply, error_inside, unlisted
from harness.models.transport import BODY_CAP
from harness.models.wire import first_choice

_OPENAI_HOST = "api.openai.com"
_OPENAI_PROVIDERS = frozenset({"openai", "text-completion-openai"})

_LOOPBACK = "localhost,127.0.0.1,::1"


@dataclass(slots=True)
class Passage:
    """Record of one outgoing request."""

    provider: str
    sent: bool = False
    """Whether the request was passed to a connection."""
    stray: str = ""
    """Host, other than the provider's, that the request was blocked from."""
    failure: Failure | None = None
    """An incomplete reply, or an error inside a 200; litellm misses both, or drops the error's code."""
    position: int = 0
    """List position of the choice with index 0: litellm renumbers choices by position."""


PASSAGE: ContextVar[Passage | None] = ContextVar("PASSAGE", default=None)
"""Record of the current request."""


class StrayHost(Exception):
    """A request was addressed to a host other than the provider's."""


class TooLarge(Exception):
    """A reply exceeds the size limit."""


def guard(package: Any) -> None:
    """Replace litellm's cache of HTTP clients by one that restricts each client; idempotent.

    Args:
        package: The module litellm.
    """
    base: Any = import_module("litellm.caching.llm_caching_handler").LLMClientCache
    if type(package.in_memory_llm_clients_cache) is not base:
        return  # already replaced

    class TamedClients(base):
        """Cache in which litellm puts every new client."""

        def set_cache(self, key: object, value: object, **options: object) -> None:
            """Restrict a client and store it in the cache."""
            _tame(value)
            store: Any = super()
            store.set_cache(key, value, **options)

    package.in_memory_llm_clients_cache.flush_cache()
    package.in_memory_llm_clients_cache = TamedClients()


def spare_loopback() -> None:
    """Exclude loopback addresses from proxies set in the environment."""
    if not urllib.request.getproxies_environment() or urllib.request.proxy_bypass("127.0.0.1"):
        return
    name = "no_proxy" if "no_proxy" in os.environ else "NO_PROXY"
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), _LOOPBACK]))


def _tame(client: object) -> None:
    httpx: Any = import_module("httpx")
    # litellm's handlers and the OpenAI SDK's clients wrap an httpx client.
    for one in (client, getattr(client, "client", None), getattr(client, "_client", None)):
        if isinstance(one, httpx.Client | httpx.AsyncClient):
            tamed: Any = one
            # A redirect would forward the prompt, and keys in headers other than Authorization.
            tamed.follow_redirects = False
            if isinstance(one, httpx.AsyncClient):
                hooks = tamed.event_hooks
                tamed.event_hooks = {
                    "request": [*hooks["request"], _leave],
                    "response": [*hooks["response"], _look_inside],
                }


async def _leave(request: Any) -> None:
    passage = PASSAGE.get()
    if passage is None:
        return
    if request.url.host == _OPENAI_HOST and passage.provider not in _OPENAI_PROVIDERS:
        # litellm's default for a provider without an address; the request would carry that provider's key.
        passage.stray = _OPENAI_HOST
        raise StrayHost
    passage.sent = True


async def _look_inside(response: Any) -> None:
    """Record problems of a 2xx reply that litellm ignores: incomplete, an error inside, the place of choice 0."""
    passage = PASSAGE.get()
    if passage is None or not response.is_success:
        return
    if response.status_code == 206:
        passage.failure = bad_reply("it is only a part of a reply (partial content)", 206)
    if response.status_code != 200 or "json" not in response.headers.get("Content-Type", ""):
        return
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > BODY_CAP:
            passage.failure = bad_reply(f"its body is larger than {BODY_CAP / 2**20:g} MB")
            raise TooLarge
    response._content = body = b"".join(parts)  # as `aread` does
    if _is_cut(response):
        passage.failure = BROKE_OFF
        return
    try:
        value = unlisted(orjson.loads(body))
    except orjson.JSONDecodeError:
        return
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "choices" in fields or "error" in fields:  # other formats use other names
        choices = fields.get("choices")
        choice = first_choice(choices)
        passage.failure = error_inside(fields, choice)
        if choice is not None:
            places = enumerate(cast("list[object]", choices))
            passage.position = next(place for place, each in places if each is choice)


def _is_cut(response: Any) -> bool:
    """Whether a compressed body is truncated, which httpx does not detect."""
    decoder = getattr(response, "_decoder", None)
    packed = [getattr(each, "decompressor", None) for each in (decoder, *getattr(decoder, "children", ()))]
    return any(getattr(each, "eof", True) is False for each in packed)
