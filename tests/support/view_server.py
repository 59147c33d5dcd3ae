"""A server of `bench view` on a free port, in a thread of its own, and a client that has opened its link."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from harness.plugins.view.index_file import cache_folder
from harness.plugins.view.run_list import RunList
from harness.plugins.view.server import ViewServer


@dataclass
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Requests to one server. Sends the cookie once the link was opened."""

    link: str
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return urlsplit(self.link).port or 0

    def send(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
        """Send a request, with more headers or others; `_` in a name stands for `-`. An empty header is not sent."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {"Cookie": self.cookie, **self.headers, "Content-Length": str(len(body)) if body else ""}
        given |= {k.replace("_", "-"): v for k, v in headers.items()}
        try:
            connection.putrequest(method, path, skip_host="Host" in given)
            for name, value in given.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def open_link(self) -> Answer:
        parts = urlsplit(self.link)
        answer = self.send(f"{parts.path}?{parts.query}")
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return answer

    def get(self, path: str, **query: object) -> Any:
        """The JSON of an answer that must be a success."""
        answer = self.send(f"{path}?{urlencode(query)}" if query else path)
        assert answer.status == 200, (path, query, answer.status, answer.body[:2000])
        return answer.json

    def post(self, path: str, value: object, **headers: str) -> Answer:
        """Send JSON as the page does."""
        own = {"Content_Type": "application/json", "Origin": f"http://127.0.0.1:{self.port}"}
        return self.send(path, "POST", json.dumps(value).encode(), **{**own, **headers})

    def error(self, path: str, **query: object) -> tuple[int, str]:
        """Status and sentence of an answer that must be an error."""
        answer = self.send(f"{path}?{urlencode(query)}" if query else path)
        assert answer.status >= 400, (path, query, answer.status)
        return answer.status, answer.json["error"]


def until(holds: Callable[[], bool], most: int = 2_000) -> None:
    """Ask again until an answer is as expected; each request takes some time."""
    for _ in range(most):
        if holds():
            return
    raise AssertionError("the answer never was as expected")


@contextmanager
def own_cache(folder: Path) -> Iterator[Path]:
    """Indexes in a folder instead of the user's cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    cache_folder.cache_clear()
    try:
        yield folder / "bench" / "view"
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
        cache_folder.cache_clear()


@contextmanager
def viewing(
    output_dir: Path | str = "outputs", paths: list[Path] | None = None, author: str = "ann"
) -> Iterator[Client]:
    """A running server, and a client that has opened its link."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ViewServer(RunList(Path(output_dir), paths), author)
    try:
        link = asyncio.run_coroutine_threadsafe(server.start(), loop).result(60)
        client = Client(link)
        client.open_link()
        yield client
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
