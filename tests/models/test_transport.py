"""Size caps, proxies and addresses below HTTP."""

from __future__ import annotations

import asyncio
import gzip

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
