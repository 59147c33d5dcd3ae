"""Connections to one HTTP endpoint. aiohttp's connector opens connections (name lookup, proxy, TLS); this module keeps
the idle ones for further requests. A reply that arrives in one piece is parsed here, and any other reply by aiohttp."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
import aiohttp.connector
from aiohttp.http import RawResponseMessage
from multidict import CIMultiDict
from yarl import URL

from harness.models.failures import AttemptFailed, Failure

KEEPALIVE = 4.0
"""Seconds for which an idle connection is kept open. Servers based on uvicorn (vLLM, SGLang) and Node close idle
connections after 5 s, and a request on a connection that is being closed would have to be retried."""

DNS_TTL = 300
"""Seconds for which a DNS lookup is cached. One lookup for each of 256 connections would overload small resolvers."""

_HEAD_CAP = 8190
"""Maximum bytes of a head that is parsed here, the limit of aiohttp for one header."""

_LINES = (
    rb"(?:(?!(?i:content-|transfer-|connection|trailer|upgrade))[\w!#$%&'*+.^`|~-]+:[\t -~\x80-\xff]*\r\n"
    rb"|(?i:content-type):[\t -~]*\r\n|(?i:connection):[ \t]*(?i:keep-alive)[ \t]*\r\n)*"
)
_HEAD = re.compile(rb"HTTP/1\.1 200 [\t -~]*\r\n%s(?i:content-length):[ \t]*(\d{1,9})\r\n%s\r\n" % (_LINES, _LINES))
"""Head of a reply with status 200 whose body has a stated length and is neither compressed nor chunked. The connection
remains open. Obsolete and unusual syntax does not match."""


@dataclass(eq=False, slots=True)
class Reply:
    """Status, head and body of an HTTP reply."""

    status: int
    head: Mapping[str, str] | bytes
    """Headers by case-insensitive name, or the head as it was received."""
    body: bytes

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by case-insensitive name."""
        if not isinstance(self.head, bytes):
            return self.head
        lines = self.head.decode("utf-8", "replace").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return CIMultiDict((name, value.strip()) for name, _, value in pairs)


class HttpConnection(asyncio.Protocol):
    """One open connection.

    Args:
        opened: The connection as aiohttp opened it.

    Raises:
        ClientConnectionError: the connection is closed already.
    """

    def __init__(self, opened: aiohttp.connector.Connection) -> None:
        transport, protocol = opened.transport, opened.protocol
        if transport is None or protocol is None or transport.is_closing():
            opened.close()
            raise aiohttp.ClientConnectionError("the connection was closed immediately after it was opened")
        self._opened, self._transport, self._protocol = opened, transport, protocol
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[re.Match[bytes] | None] | None = None
        """Future of a request of which no data have arrived yet."""
        self.idle_since = 0.0
        """Time at which the connection became idle, in monotonic seconds."""
        transport.set_protocol(self)
        # aiohttp accepts truncated compressed bodies; the module `transport` does not.
        protocol.set_response_params(read_until_eof=True, auto_decompress=False)

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent: the last reply was read to its end, no other data have arrived, and the
        server has not closed the connection."""
        protocol = self._protocol
        return protocol.is_connected() and not protocol.should_close

    async def exchange(self, request: bytes) -> Reply | tuple[RawResponseMessage, aiohttp.StreamReader]:
        """Send a request, and return the reply, or only its head and a stream of its body if it arrives in pieces.

        Raises:
            ClientError, HttpProcessingError, OSError: the connection broke, or the reply is not HTTP.
        """
        waiter = self._waiter = self._loop.create_future()
        self._transport.write(request)
        if (match := await waiter) is not None:
            end = match.end()
            return Reply(200, match.string[:end], match.string[end:])
        message, content = await self._protocol.read()
        while 100 <= message.code < 200 and message.code != 101:
            message, content = await self._protocol.read()
        return message, content

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._opened.close()

    def data_received(self, data: bytes) -> None:
        """Wake the waiting request with the reply that `data` contains, or pass the data to aiohttp's parser."""
        waiter, self._waiter = self._waiter, None
        match = None
        if waiter is not None and not waiter.done():
            match = _HEAD.match(data, 0, _HEAD_CAP)
            if match is not None and match.end() + int(match[1]) != len(data):
                match = None
            waiter.set_result(match)
        if match is None:
            self._protocol.data_received(data)

    def eof_received(self) -> None:
        """Report the end of the data to aiohttp's protocol."""
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection to aiohttp's protocol, which fails the request, and wake the request."""
        self._protocol.connection_lost(exc)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpConnections:
    """Idle connections to one endpoint, and the means to open further ones.

    Args:
        url: URL with scheme, host and port.
        headers: Headers of the requests.
        proxy: URL of the proxy, or None.
        connect_timeout: Timeout in seconds for name lookup, connection and TLS.
    """

    def __init__(self, url: str, headers: Mapping[str, str], proxy: URL | None, connect_timeout: float) -> None:
        self._url, self._headers, self._proxy = url, headers, proxy
        self._request: aiohttp.ClientRequest | None = None
        # `connect` includes name lookup and TLS, unlike `sock_connect`. The caller limits the whole request.
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout)
        self._connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=DNS_TTL, socket_factory=_make_socket)
        self._idle: deque[HttpConnection] = deque()
        """Idle connections, in the order in which they became idle."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def proxy_authorization(self) -> str | None:
        """Value of the header Proxy-Authorization for requests to an HTTP proxy; None without a password."""
        return None if self._request is None else self._request.headers.get("Proxy-Authorization")

    async def take(self) -> HttpConnection:
        """Take the idle connection that was used last, or open a connection.

        Raises:
            AttemptFailed: no connection was made within the timeout.
            ClientError, OSError, ValueError: no connection could be made.
        """
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and time.monotonic() - connection.idle_since <= KEEPALIVE:
                return connection
            connection.close()
        if self._request is None:
            self._request = aiohttp.ClientRequest("POST", URL(self._url), headers=self._headers, proxy=self._proxy)
        try:
            return HttpConnection(await self._connector.connect(self._request, [], self._timeout))
        except TimeoutError as error:
            raise AttemptFailed(
                Failure("unreachable", "connection", "no connection in time", True, slow=True)
            ) from error

    def give_back(self, connection: HttpConnection) -> None:
        """Keep a connection for the next request, or close it if it cannot be used again."""
        if not connection.is_usable:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEEPALIVE, self._close_idle)

    async def close(self) -> None:
        """Close all connections."""
        if self._timer is not None:
            self._timer.cancel()
        while self._idle:
            self._idle.popleft().close()
        await self._connector.close()

    def _close_idle(self) -> None:
        """Close the connections that have been idle for too long, and set the timer for the next one."""
        self._timer = None
        oldest = time.monotonic() - KEEPALIVE
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().close()
        if self._idle:
            wait = self._idle[0].idle_since - oldest
            self._timer = asyncio.get_running_loop().call_later(wait, self._close_idle)


def _make_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """Create a socket with TCP keepalive, to detect a lost connection while a model reasons without sending data."""
    sock = socket.socket(*address[:3])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)  # Linux, macOS
    for option, value in ((idle, 60), (getattr(socket, "TCP_KEEPINTVL", None), 15)):
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
