"""Tests for loopback hosts and for `litellm://` URLs. Loopback hosts need no API key, use no proxy and may receive the
rollout header."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LITELLM_SCHEME = "litellm"
"""Scheme of `litellm://<provider>` URLs. litellm itself knows the provider's address and wire format."""


def is_loopback(host: str) -> bool:
    """Whether `host` (a name, or an address without brackets) is this machine's loopback interface."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_url(url: str) -> bool:
    """Whether requests to `url` stay on this machine. True for an empty URL, which stands for the embedded reference
    server."""
    return not url or (litellm_provider(url) is None and is_loopback(urlsplit(url).hostname or ""))


def plugin_provider(url: str) -> str:
    """The provider in front of the scheme, as in `acme+https://host`; "" for other URLs."""
    name, plus, _ = url.partition("://")[0].rpartition("+")
    return name if plus else ""


def litellm_provider(url: str) -> str | None:
    """The provider of a `litellm://` URL; None for other URLs."""
    scheme, _, rest = url.partition("://")
    return rest.rstrip("/") if scheme == LITELLM_SCHEME else None
