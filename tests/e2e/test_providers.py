"""A provider of another package with a wire format of its own, in one file and one line of registration: the one of
docs/concepts/plugins.md. All else is as with every other provider."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from bench_runs import Workshop, count, summary
from dead_ports import free_port
from documented import ROOT, blocks

KEY = "canary-key-acme-0123456789"
OVERLOADED = (529, {}, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
LIMITED = (429, {"Retry-After": "0"}, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}})
UNREADABLE = (200, {}, {"type": "message", "content": [], "stop_reason": "end_turn"})
DENIED = (401, {}, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}})


class Acme:
    """What the server of the provider was asked, and how it answers before it answers well."""

    def __init__(self, *answers: tuple[int, dict[str, str], Any]) -> None:
        self.url = ""
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._answers: Iterator[tuple[int, dict[str, str], Any]] = iter(answers)
        self._lock = threading.Lock()
        self._in_flight = 0
        self.peak = 0

    def take(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        with self._lock:
            self._in_flight += 1
            self.peak = max(self.peak, self._in_flight)
            self.asked.append((path, headers, body))
            return next(self._answers, None) or (200, {}, reply_to(body))

    def leave(self) -> None:
        with self._lock:
            self._in_flight -= 1


def reply_to(body: dict[str, Any]) -> dict[str, Any]:
    first, _, second = body["messages"][-1]["content"].partition(" + ")
    return {
        "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
        "content": [{"type": "text", "text": str(int(first) + int(second))}],
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }  # fmt: skip


@contextmanager
def answering(*answers: tuple[int, dict[str, str], Any]) -> Generator[Acme]:
    acme = Acme(*answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, body = acme.take(self.path, dict(self.headers), asked)
            payload = json.dumps(body).encode()
            acme.leave()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(payload))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    acme.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield acme
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def installed(shop: Workshop) -> Workshop:
    [block] = [each for each in blocks(ROOT / "docs/concepts/plugins.md") if "`bench_oldkit/acme.py`" in each.before]
    shop.environment("acme_provider", block.text + "\n")
    metadata = shop.modules / "acme_provider-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-provider\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[bench.providers]\nacme = acme_provider:PROVIDER\n")
    return shop


def test_its_models_have_its_name(installed: Workshop) -> None:
    with answering() as acme:
        environ = {**ENVIRON, "ACME_BASE_URL": acme.url}
        reply = installed.python(ASK, env=environ)
    assert reply == {"role": "assistant", "content": "4"}
    [(path, headers, body)] = acme.asked
    assert (path, headers["x-api-key"], body["model"]) == ("/v1/messages", KEY, "large-1")


ASK = """
import asyncio, json
from harness.agents import ExternalLLMClient

async def main():
    async with ExternalLLMClient("acme/large-1") as client:
        reply = await client.chat_completions([{"role": "user", "content": "2 + 2"}])
        print(json.dumps(reply.message))

asyncio.run(main())
"""
ENVIRON = {"ACME_API_KEY": KEY}


def asking(url: str) -> tuple[str, ...]:
    return ("-m", "large-1", "-b", f"acme+{url}", "-k", "ACME_API_KEY")


SUMS = ("run", "sums", "-n", "6", "-r", "1", "--json", "-q")


def test_a_run_gets_past_the_failures_of_a_provider_and_records_its_replies(installed: Workshop) -> None:
    with answering(OVERLOADED, LIMITED, UNREADABLE) as acme:
        done = installed.bench(*SUMS, *asking(acme.url), "-c", "2", "-T", "0.5", env=ENVIRON)
        assert done.code == 0, done.err
        assert done.run["summary"]["reward"]["mean"] == 1.0
        resumed = installed.bench(*SUMS, *asking(acme.url), "-n", "8", "-T", "0.5", "--resume", env=ENVIRON)
        assert resumed.code == 0 and resumed.run["summary"]["reward"]["mean"] == 1.0, resumed.err
    assert len(acme.asked) == 3 + 8 and acme.peak <= 2
    path, headers, body = acme.asked[0]
    assert path == "/v1/messages" and headers["x-api-key"] == KEY and "Authorization" not in headers
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("large-1", 0.5, 1024)
    usage = summary(installed.run_dir())["usage"]
    assert count(installed.run_dir(), "generated") == 8
    assert (usage["input_tokens"], usage["output_tokens"]) == (40, 16)
    assert f"acme+{acme.url}" in (installed.run_dir() / "run.json").read_text()
    written = b"".join(path.read_bytes() for path in installed.cwd.rglob("*") if path.is_file())
    assert KEY.encode() not in written


def test_a_budget_stops_a_run_of_a_provider(installed: Workshop) -> None:
    with answering() as acme:
        options = (*asking(acme.url), "-c", "1", "--max-tokens-total", "21")
        done = installed.bench("run", "sums", "-n", "20", "-r", "1", "--json", *options, env=ENVIRON)
        assert done.code == 1 and done.run["state"] == "stopped", done.err
        assert len(acme.asked) <= 4


def test_a_rejected_key_and_a_dead_host_stop_a_run_of_a_provider(installed: Workshop) -> None:
    with answering(*[DENIED] * 20) as acme:
        done = installed.bench("run", "sums", *asking(acme.url), env=ENVIRON)
        assert done.code == 1 and "invalid x-api-key" in done.said and "ACME_API_KEY" in done.said, done.err
        assert KEY not in done.said + done.out
    done = installed.bench("run", "sums", *asking(f"http://127.0.0.1:{free_port()}"), env=ENVIRON)
    assert done.code == 1 and "connection refused" in done.said, done.err


def test_a_provider_that_is_not_installed_is_named_before_anything_is_asked(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-m", "m", "-b", "acme+http://127.0.0.1:9/v1")
    assert done.code == 2 and "the provider 'acme' is not installed" in done.said, done.err
    assert "bench.providers" in done.said
