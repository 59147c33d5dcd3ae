"""What must be known of a Ray cluster before Ray connects: whether one answers, and whether it demands a token.

Ray waits for minutes for what does not answer like a cluster. It sends its token (`~/.ray/auth_token`) to a cluster
that it finds itself (`auto`), and none to a given address; but a cluster that demands none ends the actors of a driver
that does, and one that demands it refuses a driver without.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

from harness.plugins.ray_executor.library import part

_MODE, _TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"

VARIABLES = (_MODE, _TOKEN)
"""Environment variables that this module sets; the caller removes them when Ray is connected."""

_CONNECT_SECONDS = 10.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS_FRAME = b"\x04"


def meet(address: str) -> None:
    """Check that a cluster answers, and let Ray send its token if the cluster demands one.

    Args:
        address: `auto`, `HOST:PORT` or `ray://HOST:PORT`.

    Raises:
        Exception: of several kinds: there is no cluster, or it demands a token that is missing or wrong.
    """
    if address.startswith("ray://"):
        _require_answer(address.removeprefix("ray://"))
        return
    place = part("ray._private.services").canonicalize_bootstrap_address(address)
    _require_answer(place)
    library = part("ray._raylet")
    if _MODE in os.environ or not hasattr(library, "AuthenticationTokenLoader"):
        return
    refused = part("ray.exceptions").AuthenticationError
    _set_mode(library, "disabled")
    try:
        library.GcsClient(address=place)
    except refused:
        _set_mode(library, "token")
        try:
            if not library.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
                raise
            library.GcsClient(address=place)
        except refused as error:
            words = "it demands a token that this computer lacks; copy ~/.ray/auth_token from its first computer"
            raise ConnectionError(words) from error


def own_token() -> None:
    """Set a token for a cluster that is started here: Ray would leave one in the home folder, which all clusters that
    are started later would demand."""
    library = part("ray._raylet")
    if _MODE not in os.environ and hasattr(library, "AuthenticationTokenLoader"):
        os.environ.setdefault(_TOKEN, secrets.token_hex(32))
        _set_mode(library, "token")


def _set_mode(library: Any, mode: str) -> None:
    os.environ[_MODE] = mode
    library.Config.initialize("")
    library.AuthenticationTokenLoader.instance().reset_cache()


def _require_answer(place: str) -> None:
    """Raise an error if nothing at `HOST:PORT` speaks Ray's protocol."""
    host, _, port = place.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("0", "false"):
            connection.sendall(_GREETING)
            if connection.recv(9)[3:4] != _SETTINGS_FRAME:
                raise ConnectionError("what listens there is no Ray cluster")
