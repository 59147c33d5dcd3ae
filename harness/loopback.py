"""Which hosts are this machine itself: they need no key, use no proxy and may see the rollout header. Owns that one
question, for settings, clients and commands alike."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


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
    return not url or is_loopback(urlsplit(url).hostname or "")
