"""HTTP transport to one endpoint, which uses aiohttp's connections and parser, and adds proxies and size limits.
aiohttp's sessions are not used, because they build headers, URL and payload anew for every request. Every error is
converted to a `Failure`. This module is imported at the first request, because importing aiohttp takes about 0.3 s."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import urllib.request
import zlib
from collections.abc import AsyncGenerator, Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback
from harness.models.failures import BROKE_OFF, AttemptFailed, Failure, bad_reply, clean

BODY_CAP = 64 * 1024 * 1024
"""Maximum bytes of a reply after decompression. The longest replies, with log-probabilities, have a few MB."""

LARGE_REPLY = 4 * 1024 * 1024
"""Size in bytes above which a reply is read only when fewer than `LARGE_AT_ONCE` other large replies are being read.
Text of a million tokens is smaller."""

LARGE_AT_ONCE = 4
"""Maximum number of large replies of one endpoint that are read at the same time, which limits their memory to 256
MB."""

ERROR_CAP = 64 * 1024
"""Maximum number of bytes that are read of the body of an error. A message contains only 300 characters of the body."""

ERROR_PATIENCE = 5.0
"""Timeout in seconds for reading the body of an error. The status is already known, and a broken proxy may never finish
sending the body."""

KEEPALIVE = 4.0
"""Seconds for which an idle connection is kept open. Servers based on uvicorn (vLLM, SGLang) and Node close idle
connections after 5 s, and a request on a connection that is being closed would have to be retried."""

DNS_TTL = 300
"""Seconds for which a DNS lookup is cached. One lookup for each of 256 connections would overload small resolvers."""

PIECE = 1024 * 1024
"""Maximum number of bytes decompressed at a time, since a compressed megabyte may expand a thousandfold."""


@dataclass(eq=False, slots=True)
class Reply:
    """Status, headers and body of an HTTP reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_Route: TypeAlias = tuple[aiohttp.ClientRequest, dict[str, str]]
"""Two parts that all requests to a path share: the request object with which aiohttp's connector finds or opens a
connection, and the header lines by lower-case name, with the first line of the HTTP request under ""."""


class Transport:
    """HTTP connections to one endpoint, without aiohttp's default limits (100 connections, 300 s).

    Args:
        url: Base URL.
        headers: Headers of every request.
        connect_timeout: Timeout in seconds for name lookup, connection and TLS.
        body_cap: Maximum size of a reply in bytes.

    Raises:
        ConfigError: the environment sets a proxy that cannot be used.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, connect_timeout: float, body_cap: int = BODY_CAP
    ) -> None:
        self._base, _, query = url.partition("?")
        self._query = f"?{query}" if query else ""  # some hosts put the API version there
        self._headers = {"Accept-Encoding": "gzip, deflate", **headers}
        self._routes: dict[str, _Route] = {}
        self._proxy = find_proxy(URL(self._base))
        self._body_cap = body_cap
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        # `connect` includes name lookup and TLS, unlike `sock_connect`. The caller limits the whole request.
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout)
        self._connector = aiohttp.TCPConnector(
            limit=0, ttl_dns_cache=DNS_TTL, keepalive_timeout=KEEPALIVE, socket_factory=_make_socket
        )

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Awaitable[Reply]:
        """Send `body` to `path` and read the whole reply. Redirects are not followed, since they would forward the
        prompt, and perhaps the key, to another host.

        Args:
            path: Path below the base URL.
            body: Body of the request.
            headers: Headers that override those of the endpoint.

        Raises:
            AttemptFailed: no complete reply was received.
        """
        return self._send("POST", path, body, headers or {})

    async def probe(self) -> bool:
        """Send `GET /models`, and return whether any HTTP answer was received."""
        try:
            await self._send("GET", "/models", None, {})
        except AttemptFailed:
            return False
        return True

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()

    async def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """Send one request over a free or new connection, and read the reply; without a request body, only its head."""
        connection = None
        try:
            request, lines = self._routes.get(path) or self._prepare(method, path)
            try:
                connection = await self._connector.connect(request, [], self._timeout)
            except TimeoutError as error:
                raise AttemptFailed(
                    Failure("unreachable", "connection", "no connection in time", True, slow=True)
                ) from error
            transport, protocol = connection.transport, connection.protocol
            if transport is None or protocol is None or transport.is_closing():
                raise aiohttp.ClientConnectionError("the connection was closed immediately after it was opened")
            # aiohttp accepts truncated compressed bodies; `_unpacked` does not.
            protocol.set_response_params(read_until_eof=True, auto_decompress=False)
            transport.write(_head(request, lines, headers, body) + (body or b""))
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, content = await protocol.read()
            status, fields = message.code, message.headers
            if body is None:
                data = b""
            elif status >= 300:
                data = await _read_error(fields, content)
            else:
                data = await self._read(status, fields, content)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, aiohttp.ClientError | HttpProcessingError | OSError | ValueError):
                raise AttemptFailed(_translate(error)) from error
            raise
        connection.release()  # closes it if the reply was not read to its end
        return Reply(status, fields, data)

    def _prepare(self, method: str, path: str) -> _Route:
        """Build the parts that all requests to `path` share: connection parameters and header lines."""
        url = URL(self._base.rstrip("/") + path + self._query)
        request = aiohttp.ClientRequest(method, url, headers=self._headers, proxy=self._proxy)
        target = str(url) if self._proxy is not None and not request.is_ssl() else url.raw_path_qs
        lines = {name.lower(): f"{name}: {value}" for name, value in request.headers.items()}
        route = self._routes[path] = (request, {"": f"{method} {target} HTTP/1.1", **lines})
        return route

    async def _read(self, status: int, headers: Mapping[str, str], content: aiohttp.StreamReader) -> bytes:
        """Read and decompress a body. A large body waits until fewer than `LARGE_AT_ONCE` others are being read."""
        length = int(headers.get("Content-Length", -1))
        if 0 <= length <= LARGE_REPLY and "Content-Encoding" not in headers:
            return await content.read()
        too_large = bad_reply(f"the body is larger than {self._body_cap / 2**20:g} MB", status)
        if length > self._body_cap:
            raise AttemptFailed(too_large)
        body = bytearray()
        async with contextlib.AsyncExitStack() as held:
            async for piece in _unpacked(headers, content):
                if len(body) <= LARGE_REPLY < len(body) + len(piece):
                    await held.enter_async_context(self._large)
                body += piece
                if len(body) > self._body_cap:
                    raise AttemptFailed(too_large)
            return bytes(body)


def _head(
    request: aiohttp.ClientRequest, lines: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """Format the first line and the headers of a request. `headers` override the headers of the endpoint."""
    own = {name.lower(): f"{name}: {value}" for name, value in headers.items()}
    if not "".join(own.values()).isprintable():
        raise ValueError("a header contains a line break or another control character")
    if (authorization := request.headers.get("Proxy-Authorization")) is not None:  # set by the connector
        own["proxy-authorization"] = f"Proxy-Authorization: {authorization}"
    if body is not None:
        own["content-length"] = f"Content-Length: {len(body)}"
    return "\r\n".join((*{**lines, **own}.values(), "\r\n")).encode()


async def _unpacked(headers: Mapping[str, str], content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Yield the decompressed body of a reply. A compressed body is yielded in pieces of at most `PIECE` bytes.

    Raises:
        AttemptFailed: the encoding is not gzip, deflate or identity, or the data are damaged or incomplete.
    """
    name = headers.get("Content-Encoding", "").strip().lower()
    if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise AttemptFailed(bad_reply(f"the body is compressed as {clean(name)}, which was not requested"))
    stream: Any = None
    has_begun = False
    async for data in content.iter_any():
        if name in ("", "identity"):
            yield data
            continue
        while data:
            if stream is None:
                if has_begun and not data.strip(b"\0"):  # padding after the end
                    break
                # 47: gzip or zlib, detected by the header; −15: raw deflate, which some servers send.
                is_raw = data[0] & 0xF != 8 and data[0] != 0x1F
                stream, has_begun = zlib.decompressobj(-15 if is_raw else 47), True
            try:
                piece = stream.decompress(data, PIECE)
            except zlib.error as error:
                raise AttemptFailed(BROKE_OFF) from error
            yield piece
            data = stream.unconsumed_tail
            if stream.eof:
                data, stream = stream.unused_data, None
    if stream is not None:
        raise AttemptFailed(BROKE_OFF)


async def _read_error(headers: Mapping[str, str], content: aiohttp.StreamReader) -> bytes:
    """Read the beginning of the body of an error, with a timeout and a size limit."""
    body = bytearray()
    # A TimeoutError is an OSError.
    with contextlib.suppress(aiohttp.ClientError, OSError, AttemptFailed):
        async with asyncio.timeout(ERROR_PATIENCE):
            async for piece in _unpacked(headers, content):
                body += piece
                if len(body) >= ERROR_CAP:
                    break
    return bytes(body[:ERROR_CAP])


def _make_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """Create a socket with TCP keepalive, to detect a lost connection while a model reasons without sending data."""
    sock = socket.socket(*address[:3])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)  # Linux, macOS
    for option, value in ((idle, 60), (getattr(socket, "TCP_KEEPINTVL", None), 15)):
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


def find_proxy(url: URL) -> URL | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY set for `url`. Returns None if they set no
    proxy, and for loopback addresses.

    Called once per endpoint; aiohttp's own `trust_env` would read the environment and ~/.netrc for every request.

    Raises:
        ConfigError: the proxy is not an HTTP proxy, or its address is not a URL.
    """
    host = url.host or ""
    proxies = urllib.request.getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found or is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    try:
        proxy = URL(found if "://" in found else f"http://{found}")
    except ValueError as error:  # the message omits the URL, which may contain a password
        raise ConfigError(
            f"the proxy that the environment sets for {url.scheme}://{host} is not a URL ({error}): "
            f"correct {url.scheme.upper()}_PROXY, or add {host} to NO_PROXY"
        ) from None
    if proxy.scheme not in ("http", "https"):
        raise ConfigError(
            f"the environment sets a {proxy.scheme} proxy for {url.scheme}://{host}, but only http and https proxies "
            f"are supported: set {url.scheme.upper()}_PROXY to such a proxy, or add {host} to NO_PROXY"
        )
    return proxy


def _translate(error: Exception) -> Failure:
    """Convert an exception of aiohttp to a failure."""
    if isinstance(error, aiohttp.ClientConnectorError):
        if error.os_error.errno in (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL):
            detail = f"no sockets are left ({error.os_error}): lower max_concurrent or raise `ulimit -n`"
            return Failure("broken", "connection", detail, True)
        return Failure("unreachable", "connection", connection_error(error), True)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return Failure("unreachable", "connection", f"the proxy refused the connection with HTTP {error.status}", True)
    if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
        return Failure("broken", "bad_response", f"the answer is not valid HTTP ({clean(error.message)})", True)
    if isinstance(error, aiohttp.ClientPayloadError):
        return BROKE_OFF
    words = clean(str(error)) or type(error).__name__
    if isinstance(error, ValueError):
        return Failure("unsent", "bad_request", f"the request cannot be sent ({words})", False)
    return Failure("broken", "connection", f"the connection broke ({words})", True)


def connection_error(error: aiohttp.ClientConnectorError) -> str:
    """Describe why no connection could be made. The endpoint's own address is not repeated in the message."""
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"cannot reach the proxy at {error.host}:{error.port}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name {error.host} cannot be resolved"
    if isinstance(error.os_error, ConnectionRefusedError):
        return "connection refused"
    return f"cannot connect ({clean(str(error.os_error))})"
