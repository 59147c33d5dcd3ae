"""Functions that recognize loopback hosts and `litellm://` URLs. Loopback hosts need no API key, are reached without a
proxy, and may receive the HTTP header that names the rollout."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LITELLM_SCHEME = "litellm"
"""Scheme of `litellm://<provider>` URLs. The package litellm knows the address and the wire format of the provider."""


def is_loopback(host: str) -> bool:
    """Return whether `host` (a name, or an address without brackets) is this machine's loopback interface."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_url(url: str) -> bool:
    """Return whether requests to `url` stay on this machine. True for an empty URL, which means the embedded reference
    server."""
    return not url or (litellm_provider(url) is None and is_loopback(urlsplit(url).hostname or ""))


def plugin_provider(url: str) -> str:
    """Return the provider in front of the scheme, such as `acme` in `acme+https://host`; "" for other URLs."""
    name, plus, _ = url.partition("://")[0].rpartition("+")
    return name if plus else ""


def litellm_provider(url: str) -> str | None:
    """Return the provider in a `litellm://` URL; None for other URLs."""
    scheme, _, rest = url.partition("://")
    return rest.rstrip("/") if scheme == LITELLM_SCHEME else None
