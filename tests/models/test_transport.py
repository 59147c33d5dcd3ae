"""Size caps, proxies and addresses below HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Mapping

import pytest
from yarl import URL

from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback
from harness.models.failures import AttemptFailed
from harness.models.transport import Transport, find_proxy


def fetch(head: bytes, body: bytes, cap: int = 1000) -> bytes:
    async def main() -> bytes:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body)
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1?api-version=1"
        transport = Transport(url, {}, connect_timeout=5.0, body_cap=cap)
        try:
            return (await transport.post("/chat/completions", b"{}")).body
        finally:
            await transport.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(main())


def test_a_reply_up_to_the_cap_is_read() -> None:
    assert fetch(b"Content-Length: 1000", b"x" * 1000) == b"x" * 1000
    assert fetch(b"Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n") == b"hello"
    packed = gzip.compress(b"y" * 900, mtime=0)
    assert fetch(b"Content-Encoding: gzip\r\nContent-Length: %d" % len(packed), packed) == b"y" * 900


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Content-Length: 100000000", b"x" * 10),
        (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (5000, b"z" * 5000)),
        (
            b"Content-Encoding: gzip\r\nContent-Length: %d" % len(gzip.compress(b"y" * 50_000, mtime=0)),
            gzip.compress(b"y" * 50_000, mtime=0),
        ),
    ],
)
def test_a_larger_reply_is_not(head: bytes, body: bytes) -> None:
    with pytest.raises(AttemptFailed, match="the body is larger than") as caught:
        fetch(head, body)
    assert caught.value.failure.reason == "bad_response"


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "localhost.example", "127.example.com", "10.0.0.1", "0.0.0.0", "api.openai.com"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_proxy(URL("https://api.example/v1")) is None
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "internal.example,.corp")
    assert find_proxy(URL("https://api.example/v1")) == URL("http://proxy:3128")
    assert find_proxy(URL("http://api.example/v1")) is None
    assert find_proxy(URL("https://internal.example/v1")) is None
    assert find_proxy(URL("https://host.corp/v1")) is None
    assert find_proxy(URL("https://localhost:8000/v1")) is None
    assert find_proxy(URL("https://127.0.0.1:8000/v1")) is None
    monkeypatch.setenv("all_proxy", "proxy:1")
    assert find_proxy(URL("http://api.example/v1")) == URL("http://proxy:1")


def test_a_socks_proxy_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://proxy:1080")
    with pytest.raises(ConfigError, match=r"socks5 proxy.*HTTPS_PROXY"):
        find_proxy(URL("https://api.example/v1"))


def test_a_proxy_that_is_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def main() -> None:
        transport = Transport("http://api.example.invalid/v1", {}, connect_timeout=5.0)
        try:
            with pytest.raises(AttemptFailed, match=r"cannot reach the proxy at 127\.0\.0\.1:1") as caught:
                await transport.post("/chat/completions", b"{}")
            assert caught.value.failure.kind == "unreachable"
            assert not await transport.probe()
        finally:
            await transport.close()

    asyncio.run(main())


async def let_run(times: int = 30) -> None:
    """Run the event loop until all data have arrived."""
    for _ in range(times):
        await asyncio.sleep(0)


class Script:
    """A server that answers each request on a connection with the next of the given replies.

    Args:
        replies: Pieces of each reply; an empty piece closes the connection.
    """

    def __init__(self, *replies: tuple[bytes, ...]) -> None:
        self.heads: list[bytes] = []
        self.connections = 0
        self._replies = list(replies)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self._replies:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                for piece in self._replies.pop(0):
                    if not piece:
                        return
                    writer.write(piece)
                    await let_run(3)  # the client reads this piece
            await reader.read()

    def fetch(self, count: int, headers: Mapping[str, str] | None = None) -> list[bytes | str]:
        """Send `count` requests one after the other, and return their bodies or errors."""

        async def main() -> list[bytes | str]:
            server = await asyncio.start_server(self.talk, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            transport = Transport(url, {"X-Team": "a", "Accept": "text/plain"}, connect_timeout=5.0)
            found: list[bytes | str] = []
            try:
                for _ in range(count):
                    try:
                        found.append((await transport.post("/chat/completions", b"{}", headers)).body)
                    except AttemptFailed as error:
                        found.append(error.failure.detail)
                    await let_run()  # data that no request asked for arrive
            finally:
                await transport.close()
                await let_run()
                server.close()
                await server.wait_closed()
            return found

        return asyncio.run(main())


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        ((OK,), b"{}"),
        ((OK[:30], OK[30:]), b"{}"),
        ((OK[:-1], OK[-1:]), b"{}"),
        ((OK.replace(b"Content-T", b"connection: Keep-Alive\r\nContent-T"),), b"{}"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK), b"{}"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n" + OK,), b"{}"),
        (
            (OK.replace(b"Content-Length: 2\r\n", b"transfer-encoding: chunked\r\n")[:-2] + b"2\r\n{}\r\n0\r\n\r\n",),
            b"{}",
        ),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",), b""),
        ((b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy",), b"busy"),
    ],
)
def test_replies_in_one_piece_and_in_several_share_a_connection(reply: tuple[bytes, ...], body: bytes) -> None:
    script = Script(reply, (OK,), reply)
    assert script.fetch(3) == [body, b"{}", body]
    assert script.connections == 1


@pytest.mark.parametrize(
    "reply",
    [
        OK + OK,  # a reply that no request asked for
        OK.replace(b"Content-T", b"Connection: close\r\nContent-T"),
        OK.replace(b"/1.1", b"/1.0"),
    ],
)
def test_a_connection_in_an_unclear_state_is_not_used_again(reply: bytes) -> None:
    script = Script((reply,), (OK,))
    assert script.fetch(2) == [b"{}", b"{}"]
    assert script.connections == 2


def test_data_on_an_idle_connection_are_not_taken_for_a_reply() -> None:
    late = OK.replace(b"{}", b"[]").replace(b"200 OK", b"408 Request Timeout")
    script = Script((OK, late), (OK,))
    assert script.fetch(2) == [b"{}", b"{}"]
    assert script.connections == 2


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    script = Script((OK, b""), (OK,))
    assert script.fetch(2) == [b"{}", b"{}"]
    assert script.connections == 2


@pytest.mark.parametrize(
    "reply",
    [
        OK + b"x",
        OK.replace(b"Content-T", b"Content-Length: 3\r\nContent-T"),
        OK.replace(b"Length: 2", b"Length: -2"),
        OK.replace(b"Content-T", b"Transfer-Encoding: chunked\r\nContent-T"),
        OK.replace(b"Content-T", b"Bad Name: x\r\nContent-T"),
        OK.replace(b"Content-T", b"A: \0\r\nContent-T"),
    ],
)
def test_replies_that_break_the_rules_of_http_fail(reply: bytes) -> None:
    (detail,) = Script((reply,)).fetch(1)
    assert "the answer is not valid HTTP" in str(detail)


def test_a_reply_that_ends_early_broke_off() -> None:
    assert Script((OK[:-1], b"")).fetch(1) == ["the reply broke off in the middle"]


def test_headers_of_a_call_override_those_of_the_endpoint() -> None:
    script = Script((OK,), (OK,))
    assert script.fetch(2, {"x-team": "b", "X-Rollout": "1"}) == [b"{}", b"{}"]
    for head in script.heads:
        lines = head.decode().split("\r\n")
        assert lines[0] == "POST /v1/chat/completions HTTP/1.1"
        assert sorted(line for line in lines if line.lower().startswith(("x-", "accept:", "content-l"))) == [
            "Accept: text/plain", "Content-Length: 2", "X-Rollout: 1", "x-team: b",
        ]  # fmt: skip
