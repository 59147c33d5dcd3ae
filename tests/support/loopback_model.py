"""The HTTP half of a model that a test plays: an OpenAI-compatible server on the loopback interface, on threads. What
it answers is a subclass's. Standard library only: it also runs where nothing of ours is installed."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class LoopbackModel:
    """Serves as long as the `with` block.

    Args:
        port: 0 picks a free one.
        name: What `/models` lists.
    """

    def __init__(self, port: int = 0, name: str = "scripted") -> None:
        self._port = port
        self._name = name

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def reply(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any]]:
        """Status and body of the reply to a request; `key` is its Authorization header."""
        raise NotImplementedError

    def hear(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Status and body of the reply to a request with these headers."""
        return self.reply(body, headers.get("Authorization"))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length))
                self._send(*model.hear(body, dict(self.headers.items())))

            def do_GET(self) -> None:
                self._send(200, {"object": "list", "data": [{"id": model._name, "object": "model"}]})

            def _send(self, status: int, reply: dict[str, Any]) -> None:
                data = json.dumps(reply).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:
                    self.close_connection = True  # the client was stopped, which is its business

            def log_message(self, format: str, *args: Any) -> None:
                """Keep quiet."""

        return Handler
