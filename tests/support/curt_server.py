"""An endpoint that says the same to everybody: status, body and date as the test has them, over TLS if it wants; on
threads. Keeps what it was asked."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

REPLY = {
    "id": "x",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


@dataclass(frozen=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class CurtServer:
    """Serves as long as the `with` block.

    Args:
        status: Of every answer.
        message: Of an error; a model's reply without one.
        date: The `Date` of every answer; by default the time.
        tls: What it answers https with.
        together: Requests that must have come before any is answered.
    """

    def __init__(
        self,
        status: int = 200,
        message: str = "",
        *,
        date: str | None = None,
        tls: ssl.SSLContext | None = None,
        together: int = 1,
        is_silent: bool = False,
    ) -> None:
        self._status = status
        self._body = json.dumps({"error": {"message": message}} if message else REPLY).encode()
        self._date = date
        self._tls = tls
        self._gate = threading.Barrier(together)
        self._is_silent = is_silent
        self._end = threading.Event()
        self.asked: list[Asked] = []

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if self._tls is not None:
            # Handshakes belong to the thread of their connection: one that fails must not stop the others.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self.host}/v1"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # ssl.SSLError is one: the client does not trust us, and has gone
                    self.close_connection = True

            def finish(self) -> None:
                with contextlib.suppress(OSError):
                    super().finish()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                endpoint.asked.append(Asked(self.path, dict(self.headers), body))
                if endpoint._is_silent:
                    endpoint._end.wait(30)
                    return
                endpoint._gate.wait(60)
                self.send_response(endpoint._status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(endpoint._body)))
                self.end_headers()
                self.wfile.write(endpoint._body)

            def date_time_string(self, timestamp: float | None = None) -> str:
                return endpoint._date or super().date_time_string(timestamp)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
