"""Whose a key is: which hosts belong to the provider whose key a variable holds. Sends nothing and reads no key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from harness.core.loopback import is_loopback_url, litellm_provider
from harness.settings.providers import PROVIDERS
from harness.settings.schema import BUILTIN_KEY_VAR, BUILTIN_URL


def leak(url: str, key_var: str | None) -> str | None:
    """What would become of a key, in words: it goes to a host that its provider does not own. None if it does not.

    Args:
        url: Where it is sent; "" is the embedded server.
        key_var: The variable that holds it.
    """
    if not url or is_loopback_url(url):
        return None
    if litellm_provider(url) is not None:
        return f"send {key_var or 'a key that litellm finds'} to {url}"
    if key_var and not any(_same_place(url, own) for own in _hosts_of(key_var)):
        return f"send the key in {key_var} to {host_of(url)}"
    return None


def is_a_providers(url: str) -> bool:
    """Whether a host belongs to a provider that is known."""
    return any(_same_place(url, own) for own in (BUILTIN_URL, *(provider.url for provider in PROVIDERS.values())))


def is_a_providers_key(name: str) -> bool:
    """Whether a variable holds the key of a provider that is known."""
    return name == BUILTIN_KEY_VAR or any(name in provider.key_vars for provider in PROVIDERS.values())


def host_of(url: str) -> str:
    """The host of a url, with its port."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url
    except ValueError:
        return url


def _hosts_of(key_var: str) -> Iterator[str]:
    """Addresses of the provider whose key a variable holds, also where the user has moved them."""
    if key_var == BUILTIN_KEY_VAR:
        yield BUILTIN_URL
    for provider in PROVIDERS.values():
        if key_var in provider.key_vars:
            yield provider.url
            yield from filter(None, (os.environ.get(name, "") for name in provider.base_vars))


def _same_place(one: str, other: str) -> bool:
    # the scheme counts: a key that is meant for https must not travel in clear text
    try:
        first, second = urlsplit(one), urlsplit(other)
        return (first.scheme, first.hostname, first.port or 443) == (second.scheme, second.hostname, second.port or 443)
    except ValueError:
        return False
