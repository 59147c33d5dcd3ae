"""Which hosts are this machine itself (they need no key, use no proxy and may see the rollout header), and which URLs
name no host at all. Owns these questions, for settings, clients and commands alike."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LITELLM_SCHEME = "litellm"
"""`litellm://<provider>`: litellm knows that provider's address and wire format."""


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, without brackets) is this machine's own loopback interface."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_loopback_url(url: str) -> bool:
    """Whether `url` cannot leave this machine. An empty one does not: it stands for the embedded reference server."""
    return not url or (litellm_provider(url) is None and is_loopback(urlsplit(url).hostname or ""))


def litellm_provider(url: str) -> str | None:
    """The provider that `url` leaves to litellm; None for an endpoint that is asked directly."""
    scheme, _, rest = url.partition("://")
    return rest.rstrip("/") if scheme == LITELLM_SCHEME else None
