"""What the connections of litellm may do: follow no redirect, ask nobody but the provider, and leave loopback to no
proxy. Also keeps whether a request left at all. Owns litellm's store of HTTP clients; reads no reply and no error."""

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
    """What became of one request on its way out."""

    provider: str
    sent: bool = False
    """Whether it was handed to a connection."""
    stray: str = ""
    """The host that it was kept from, which is not the provider's."""
    failure: Failure | None = None
    """The error inside a 200: litellm passes over one in a choice, and forgets the code of any other. Also a reply that
    is not whole, which it takes."""
    position: int = 0
    """Where in the list the choice of index 0 is: litellm numbers choices by their places."""


PASSAGE: ContextVar[Passage | None] = ContextVar("PASSAGE", default=None)
"""Of the request that is being made."""


class StrayHost(Exception):
    """A request was on its way to somebody else."""


class TooLarge(Exception):
    """A reply is larger than is read."""


def guard(package: Any) -> None:
    """Make litellm take its HTTP clients from a store that tames each before its first request; idempotent.

    Args:
        package: litellm.
    """
    base: Any = import_module("litellm.caching.llm_caching_handler").LLMClientCache
    if type(package.in_memory_llm_clients_cache) is not base:
        return  # tamed already

    class TamedClients(base):
        """litellm puts every client here as soon as it has made it."""

        def set_cache(self, key: object, value: object, **options: object) -> None:
            """Keep a client."""
            _tame(value)
            store: Any = super()
            store.set_cache(key, value, **options)

    package.in_memory_llm_clients_cache.flush_cache()
    package.in_memory_llm_clients_cache = TamedClients()


def spare_loopback() -> None:
    """Have proxies of the environment left out for this machine, as everywhere else here."""
    if not urllib.request.getproxies_environment() or urllib.request.proxy_bypass("127.0.0.1"):
        return
    name = "no_proxy" if "no_proxy" in os.environ else "NO_PROXY"
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), _LOOPBACK]))


def _tame(client: object) -> None:
    httpx: Any = import_module("httpx")
    # litellm's own handlers and the clients of the OpenAI SDK each hold one of httpx.
    for one in (client, getattr(client, "client", None), getattr(client, "_client", None)):
        if isinstance(one, httpx.Client | httpx.AsyncClient):
            tamed: Any = one
            # A redirect takes the prompt with it, and every key that is in no Authorization header.
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
        # Where litellm sends what it has no address for, with the key of whoever was meant.
        passage.stray = _OPENAI_HOST
        raise StrayHost
    passage.sent = True


async def _look_inside(response: Any) -> None:
    """Keep what litellm overlooks in a 2xx: that it is not whole, an error in it, and which choice has index 0."""
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
    response._content = body = b"".join(parts)  # where `aread` puts it
    if _is_cut(response):
        passage.failure = BROKE_OFF
        return
    try:
        value = unlisted(orjson.loads(body))
    except orjson.JSONDecodeError:
        return
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "choices" in fields or "error" in fields:  # other providers' formats call other things so
        choices = fields.get("choices")
        choice = first_choice(choices)
        passage.failure = error_inside(fields, choice)
        if choice is not None:
            places = enumerate(cast("list[object]", choices))
            passage.position = next(place for place, each in places if each is choice)


def _is_cut(response: Any) -> bool:
    """Whether a packed body has no end: httpx unpacks it all the same."""
    decoder = getattr(response, "_decoder", None)
    packed = [getattr(each, "decompressor", None) for each in (decoder, *getattr(decoder, "children", ()))]
    return any(getattr(each, "eof", True) is False for each in packed)
