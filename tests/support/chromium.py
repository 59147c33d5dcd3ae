"""A real Chromium for tests that look at pages: started without a window, spoken to over its debugging protocol.

Where there is none, a test that needs one is skipped on a developer's machine and fails where `BENCH_REQUIRE_BROWSER`
is set, as it is in CI."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

REQUIRED = "BENCH_REQUIRE_BROWSER"

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

PATIENCE = 60.0

T = TypeVar("T")


def program() -> str:
    """The browser, or the end of the test that asks for it."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    why = f"no browser: none of {', '.join(NAMES)} is installed. Install one (Debian, Ubuntu: apt-get install chromium)"
    if os.environ.get(REQUIRED):
        pytest.fail(why)
    pytest.skip(why)


class Tab:
    """One page. Everything that the browser complains about is kept."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []
        """Errors of scripts, refusals of the page's policy, requests that failed."""
        self.requests: list[str] = []
        """Every address that was asked for."""

    async def call(self, method: str, **parameters: Any) -> Any:
        """One call of the protocol, and its result."""
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await self._read(lambda said: said.get("id") == number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    async def _read(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while True:
                said = await self._socket.receive_json()
                self._note(said)
                if is_it(said):
                    return said

    def _note(self, said: dict[str, Any]) -> None:
        method, about = said.get("method"), said.get("params", {})
        if method == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(about["exceptionDetails"].get("exception", about["exceptionDetails"])))
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    async def load(self, url: str) -> None:
        """Go to an address; returns when it is loaded."""
        await self.call("Page.navigate", url=url)
        await self._read(lambda said: said.get("method") == "Page.loadEventFired")

    async def open(self, url: str) -> float:
        """Open an address; returns the seconds until it was loaded and drawn, its script included."""
        began = time.perf_counter()
        await self.load(url)
        await self.js("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        return time.perf_counter() - began

    async def js(self, source: str) -> Any:
        """The value of an expression in the page; what it promises is awaited."""
        result = await self.call("Runtime.evaluate", expression=source, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, source: str) -> None:
        """Wait until an expression of the page is true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.js(source):
                await self.js("new Promise((done) => setTimeout(done, 10))")

    async def gives(self, source: str, value: object) -> None:
        """Wait until an expression of the page has that value; the failure says what it was at last."""
        seen: object = None
        try:
            async with asyncio.timeout(PATIENCE):
                while (seen := await self.js(source)) != value:
                    await self.js("new Promise((done) => setTimeout(done, 10))")
        except TimeoutError:
            assert seen == value, source

    async def look(self, width: int, *, height: int = 900, scheme: str = "light", media: str = "screen") -> None:
        """Become a window of that width, with or without the wish for a dark page."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", media=media, features=features)

    async def screenshot(self) -> bytes:
        """What the window shows, as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])

    async def pdf(self) -> bytes:
        """What a printer would get."""
        answer = await self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])


class Browser:
    """A running browser; every visit has a page of its own."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/json"

    def __call__(self, visit: Callable[[Tab], Coroutine[Any, Any, T]]) -> T:
        """Visit pages, and close the one that it was done in."""
        return asyncio.run(self._visit(visit))

    async def _visit(self, visit: Callable[[Tab], Coroutine[Any, Any, T]]) -> T:
        async with aiohttp.ClientSession(trust_env=False) as session:
            async with session.put(f"{self._address}/new?about:blank") as reply:
                page = await reply.json()
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await tab.call(f"{domain}.enable")
                found = await visit(tab)
            async with session.get(f"{self._address}/close/{page['id']}"):
                return found


@contextmanager
def browser() -> Generator[Browser]:
    """A browser, gone at the end with everything that it wrote."""
    command = program()
    with tempfile.TemporaryDirectory(prefix="bench-chromium-", ignore_cleanup_errors=True) as profile:
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
            "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
        ]  # fmt: skip
        process = subprocess.Popen(
            [command, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile}, start_new_session=True,
        )  # fmt: skip
        try:
            yield Browser(_port(Path(profile) / "DevToolsActivePort", process))
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """The browser says its port in a file."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the browser ended with {process.returncode}"
        if file.exists() and (lines := file.read_text().split()):
            return int(lines[0])
        time.sleep(0.02)
    raise AssertionError("the browser does not say its port")
