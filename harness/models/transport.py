"""HTTP transport of one endpoint: an aiohttp session with its connections, proxy and size limits. Every aiohttp error
is converted to a `Failure`. Imported at the first request, because importing aiohttp takes about 0.3 s."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import socket
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback
from harness.models.failures import BROKE_OFF, AttemptFailed, Failure, bad_reply, clean

BODY_CAP = 64 * 1024 * 1024
"""Maximum bytes of a reply after decompression. The longest replies, with log-probabilities, have a few MB."""

LARGE_REPLY = 4 * 1024 * 1024
"""Size in bytes above which a reply waits until fewer than `LARGE_AT_ONCE` others are being read; a text of a million
tokens is smaller."""

LARGE_AT_ONCE = 4
"""Maximum number of large replies of one endpoint that are read at the same time, which limits their memory to 256
MB."""

ERROR_CAP = 64 * 1024
"""Maximum bytes read of the body of an error; a message contains only 300 characters of it."""

ERROR_PATIENCE = 5.0
"""Timeout in seconds for reading the body of an error. Its status is known by then, and a broken proxy may never
finish."""

LARGE_BODY = 2**20
"""Size in bytes above which a request body is passed to aiohttp as a file, which it sends in chunks."""

KEEPALIVE = 4.0
"""Seconds that an idle connection is kept. uvicorn (vLLM, SGLang) and Node close idle connections after 5 s. A request
on a connection that is being closed needs a retry; a new connection needs only a handshake."""

DNS_TTL = 300
"""Seconds that a DNS lookup is cached. One lookup for each of 256 connections would overload small resolvers."""

PIECE = 1024 * 1024
"""Maximum bytes decompressed at a time, since a compressed megabyte may expand a thousandfold."""


@dataclass(eq=False, slots=True)
class Reply:
    """Status, headers and body of an HTTP reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to one endpoint. aiohttp's default limits (100 connections, 300 s) are disabled.

    Args:
        url: Base URL.
        headers: Headers of every request.
        connect_timeout: Timeout in seconds for name lookup, connection and TLS.
        body_cap: Maximum bytes of a reply.

    Raises:
        ConfigError: the environment sets a proxy that cannot be used.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, connect_timeout: float, body_cap: int = BODY_CAP
    ) -> None:
        self._base, _, query = url.partition("?")
        self._query = f"?{query}" if query else ""  # some hosts put the API version there
        self._urls: dict[str, URL] = {}
        self._proxy = find_proxy(URL(self._base))
        self._body_cap = body_cap
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ttl_dns_cache=DNS_TTL, keepalive_timeout=KEEPALIVE, socket_factory=_make_socket
            ),
            # `connect` includes name lookup and TLS, unlike `sock_connect`. The caller limits the whole request.
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout),
            headers=CIMultiDict({"Accept-Encoding": "gzip, deflate", **headers}),
            auto_decompress=False,  # aiohttp accepts truncated compressed bodies
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None) -> Reply:
        """Send `body` to `path` and read the whole reply.

        Raises:
            AttemptFailed: no complete reply was received.
        """
        url = self._urls.get(path)
        if url is None:
            self._urls[path] = url = self._url(path)
        try:
            # No redirects: they would forward the prompt, and perhaps the key, to another host.
            async with self._session.post(
                url,
                data=body if len(body) <= LARGE_BODY else io.BytesIO(body),
                headers=headers,
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                if response.status >= 300:
                    return Reply(response.status, response.headers, await _read_error(response))
                length = response.content_length
                if length is not None and length <= LARGE_REPLY and "Content-Encoding" not in response.headers:
                    return Reply(response.status, response.headers, await response.read())
                return Reply(response.status, response.headers, await self._read_capped(response))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AttemptFailed(_translate(error)) from error

    async def probe(self) -> bool:
        """Send `GET /models` and return whether any HTTP answer came."""
        try:
            async with self._session.get(self._url("/models"), proxy=self._proxy, allow_redirects=False):
                return True
        except (aiohttp.ClientError, OSError, ValueError):
            return False

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def _url(self, path: str) -> URL:
        return URL(self._base.rstrip("/") + path + self._query)

    async def _read_capped(self, response: aiohttp.ClientResponse) -> bytes:
        """Read and decompress a body. A large one waits until fewer than `LARGE_AT_ONCE` others are being read."""
        if (response.content_length or 0) > self._body_cap:
            raise self._too_large(response)
        body, unpacker = bytearray(), Unpacker(response.headers.get("Content-Encoding", ""))
        async with contextlib.AsyncExitStack() as held:
            async for part in response.content.iter_any():
                for piece in unpacker.feed(part):
                    if len(body) <= LARGE_REPLY < len(body) + len(piece):
                        await held.enter_async_context(self._large)
                    body += piece
                    if len(body) > self._body_cap:
                        raise self._too_large(response)
            unpacker.end()
            return bytes(body)

    def _too_large(self, response: aiohttp.ClientResponse) -> AttemptFailed:
        response.close()
        return AttemptFailed(bad_reply(f"its body is larger than {self._body_cap / 2**20:g} MB", response.status))


class Unpacker:
    """Decompresses a body in chunks.

    Args:
        encoding: The Content-Encoding of the reply; "" for none.

    Raises:
        AttemptFailed: the encoding is not gzip, deflate or identity.
    """

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise AttemptFailed(bad_reply(f"its body is compressed as {clean(name)}, which was not requested"))
        self._is_compressed = name not in ("", "identity")
        self._stream: Any = None
        self._has_begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress `data`, at most `PIECE` bytes at a time.

        Raises:
            AttemptFailed: the data is not compressed as announced, or is damaged.
        """
        if not self._is_compressed:
            yield data
            return
        while data:
            if self._stream is None:
                if self._has_begun and not data.strip(b"\0"):  # padding after the end
                    return
                # 47: gzip or zlib, detected by the header; −15: raw deflate, which some servers send.
                is_raw = data[0] & 0xF != 8 and data[0] != 0x1F
                self._stream, self._has_begun = zlib.decompressobj(-15 if is_raw else 47), True
            try:
                piece = self._stream.decompress(data, PIECE)
            except zlib.error as error:
                raise AttemptFailed(BROKE_OFF) from error
            yield piece
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                data, self._stream = self._stream.unused_data, None

    def end(self) -> None:
        """Check that the body is complete.

        Raises:
            AttemptFailed: the compressed body is truncated.
        """
        if self._stream is not None:
            raise AttemptFailed(BROKE_OFF)


async def _read_error(response: aiohttp.ClientResponse) -> bytes:
    """Read the beginning of an error's body, with a timeout and a size limit."""
    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_PATIENCE):
            unpacker = Unpacker(response.headers.get("Content-Encoding", ""))
            async for part in response.content.iter_any():
                for piece in unpacker.feed(part):
                    body += piece
                    if len(body) >= ERROR_CAP:
                        response.close()
                        return bytes(body[:ERROR_CAP])
    except (aiohttp.ClientError, OSError, AttemptFailed):  # a TimeoutError is an OSError
        response.close()
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
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY set for `url`; None if there is none, and
    for loopback.

    Called once per endpoint, since aiohttp's own `trust_env` reads the environment and ~/.netrc for every request.

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
            f"the environment sets a {proxy.scheme} proxy for {url.scheme}://{host}; only http and https proxies work: "
            f"set {url.scheme.upper()}_PROXY to one, or add {host} to NO_PROXY"
        )
    return proxy


def _translate(error: Exception) -> Failure:
    """Convert an exception of aiohttp to a failure."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Failure("unreachable", "connection", "no connection in time", True, slow=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        if error.os_error.errno in (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL):
            detail = f"this process has no sockets left ({error.os_error}): lower max_concurrent or raise `ulimit -n`"
            return Failure("broken", "connection", detail, True)
        return Failure("unreachable", "connection", connect_words(error), True)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return Failure("unreachable", "connection", f"the proxy refused the connection with HTTP {error.status}", True)
    if isinstance(error, aiohttp.ClientResponseError):
        return Failure("broken", "bad_response", f"the answer is not HTTP ({clean(error.message)})", True)
    if isinstance(error, aiohttp.ClientPayloadError):
        return BROKE_OFF
    words = clean(str(error)) or type(error).__name__
    if isinstance(error, ValueError):
        return Failure("unsent", "bad_request", f"the request cannot be sent ({words})", False)
    return Failure("broken", "connection", f"the connection broke ({words})", True)


def connect_words(error: aiohttp.ClientConnectorError) -> str:
    """Describe why no connection was made. The message names only addresses other than the endpoint's."""
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"cannot reach the proxy at {error.host}:{error.port}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name {error.host} cannot be resolved"
    if isinstance(error.os_error, ConnectionRefusedError):
        return "connection refused"
    return f"cannot connect ({clean(str(error.os_error))})"
