"""Known hosts of providers, used to detect a key that would be sent to another host. Reads no keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from harness.core.loopback import is_loopback_url, litellm_provider
from harness.settings.endpoint_selection import same_host
from harness.settings.providers import PROVIDERS
from harness.settings.schema import BUILTIN_KEY_VAR, BUILTIN_URL


def leak(url: str, key_var: str | None) -> str | None:
    """Return a description of the request if it would send an API key to a host other than its provider's, else None.

    Args:
        url: Address of the request; "" for the embedded reference server.
        key_var: Environment variable with the key.
    """
    if not url or is_loopback_url(url):
        return None
    if litellm_provider(url) is not None:
        return f"send {key_var or 'a key that litellm finds'} to {url}"
    if key_var and not any(same_host(url, own) for own in _hosts_of(key_var)):
        return f"send the key in {key_var} to {host_of(url)}"
    return None


def is_a_providers(url: str) -> bool:
    """Return whether a URL has the host of a known provider."""
    return any(same_host(url, own) for own in (BUILTIN_URL, *(provider.url for provider in PROVIDERS.values())))


def is_a_providers_key(name: str) -> bool:
    """Return whether an environment variable contains the key of a known provider, according to its name."""
    return name == BUILTIN_KEY_VAR or any(name in provider.key_vars for provider in PROVIDERS.values())


def host_of(url: str) -> str:
    """Return the host and port of a URL."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url
    except ValueError:
        return url


def _hosts_of(key_var: str) -> Iterator[str]:
    """Return the addresses of a key variable's provider, including those set in environment variables."""
    if key_var == BUILTIN_KEY_VAR:
        yield BUILTIN_URL
    for provider in PROVIDERS.values():
        if key_var in provider.key_vars:
            yield provider.url
            yield from filter(None, (os.environ.get(name, "") for name in provider.base_vars))
