"""Access control of the server: token, cookie, and the headers Host and Origin. Without the check of Host, a web page
could reach the server under a name of its own that resolves to a loopback address (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import secrets
import socket

from aiohttp import web

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response."""

_NO_TOKEN = "Open the link that bench view printed in the terminal: it contains the token that this page needs."
_DEFAULT_PORT = 80


class Access:
    """The token of a server, and the names under which the server may be addressed.

    Args:
        host: Address on which the server listens.
        port: Port on which the server listens.
    """

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.cookie = f"bench_view_{port}"
        self._port = port
        self._is_wildcard = _is_wildcard(host)
        names = ["127.0.0.1", "localhost", "[::1]"]
        names += [socket.gethostname()] if self._is_wildcard else [bracketed(host)]
        self._hosts = {self._with_port(name.lower()) for name in names}
        if port == _DEFAULT_PORT:
            self._hosts |= {name.lower() for name in names}

    def refusal(self, request: web.BaseRequest) -> str:
        """Return why a request is refused regardless of its token; "" if it is allowed."""
        host = request.headers.get("Host", "").lower()
        if not self._serves(host):
            return "This server was addressed by a wrong name: open the link that bench view printed."
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return "Requests from other web pages are refused."
        return ""

    def refusal_to_write(self, request: web.BaseRequest) -> str:
        """Return why a request that changes something is refused; "" if it is allowed. Browsers send Origin with each
        such request, and ask before they send JSON to another origin."""
        if "Origin" not in request.headers:
            return "A request that changes something needs the header Origin."
        if request.content_type != "application/json":
            return "A request that changes something has the content type application/json."
        return ""

    def is_valid(self, token: str | None) -> bool:
        """Compare a token with that of the server, in constant time."""
        return token is not None and secrets.compare_digest(token.encode("utf-8", "replace"), self.token.encode())

    def has_cookie(self, request: web.BaseRequest) -> bool:
        """Return whether a request has the cookie with the token."""
        return self.is_valid(request.cookies.get(self.cookie))

    def signed_in(self) -> web.Response:
        """Response to the link: it sets the cookie and redirects to the page, without the token in the address."""
        response = web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})
        response.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict", path="/")
        return response

    def _serves(self, host: str) -> bool:
        if host in self._hosts:
            return True
        # A wildcard address is reached by any address of this machine, but never by a name that others can define.
        name, _, port = host.rpartition(":")
        return self._is_wildcard and port == str(self._port) and _is_address(name.strip("[]"))

    def _with_port(self, name: str) -> str:
        return f"{name}:{self._port}"


def refused(reason: str = _NO_TOKEN) -> web.Response:
    """Response 403 with one sentence."""
    return web.Response(status=403, text=f"{reason}\n", headers={"Cache-Control": "no-store"})


def bracketed(host: str) -> str:
    """Write a host as in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
