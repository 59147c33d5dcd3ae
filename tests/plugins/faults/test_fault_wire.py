"""What each fault puts on the wire, read from a plain socket: the bytes, and how the connection ends."""

from __future__ import annotations

import email.utils
import gzip
import json
import socket
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fault_server import FaultServer
from tables import for_each_row

from harness.plugins.faults.catalogue import EVENTS, HTML, KINDS
from harness.plugins.faults.rules import MALFORMED
from harness.plugins.faults.spoil import GARBLINGS
from harness.reference.http import FIXED_TEXT

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
CALL = {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}


@dataclass
class Wire:
    """What came back on one connection."""

    raw: bytes
    end: str
    """`whole`: the reply is complete; `eof`, `reset`: the peer ended it before; `silence`: nothing more came."""

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def message(self) -> dict[str, Any]:
        return self.json["choices"][0]["message"]


def ask(url: str, patience: float = 20.0, path: str = "/chat/completions", **more: object) -> Wire:
    """Send one request and read until the reply is whole, the peer ends it, or nothing comes for `patience`."""
    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    asked = {"prompt": "hi"} if path == "/completions" else {"messages": [{"role": "user", "content": "hi"}]}
    body = json.dumps({"model": "m", **asked, **more}).encode()
    head = f"POST /v1{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    raw = b""
    with socket.create_connection((host, int(port)), timeout=patience) as sock:
        sock.sendall(head + body)
        try:
            while not _is_whole(raw):
                part = sock.recv(1 << 20)
                if not part:
                    return Wire(raw, "eof")
                raw += part
        except ConnectionResetError:
            return Wire(raw, "reset")
        except TimeoutError:
            return Wire(raw, "silence")
    return Wire(raw, "whole")


def _is_whole(raw: bytes) -> bool:
    head, separator, body = raw.partition(b"\r\n\r\n")
    if not separator:
        return False
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        return body.endswith(b"0\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in lowered.split(b"\r\n") if line.startswith(b"content-length:"))
    return len(body) >= length


def unchunked(body: bytes) -> bytes:
    """The data of a chunked body."""
    parts: list[bytes] = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        parts.append(rest[: int(size, 16)])
        body = rest[int(size, 16) + 2 :]
    return b"".join(parts)


@pytest.fixture
def plain() -> Iterator[Wire]:
    with FaultServer() as server:
        yield ask(server.url)


@for_each_row("status", [400, 401, 403, 404, 408, 418, 429, 500, 502, 503, 529])
def test_an_error(status: int) -> None:
    with FaultServer(str(status)) as server:
        wire = ask(server.url)
        assert (wire.status, wire.end) == (status, "whole")
        assert wire.json["error"]["message"] == f"injected fault: {status}"
        assert "retry-after" not in wire.headers
        assert server.met == [str(status)]


DATES = ("Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 99999 07:28:00 +9999999999999")


@for_each_row("text", ["1", "0", "-1", "0.25", "86400", "1e9", "nan", "soon", "", "12, 12", *DATES])
def test_retry_after_goes_out_as_it_was_written(text: str) -> None:
    with FaultServer(f"429@retry_after={text},message=slow down,code=busy") as server:
        wire = ask(server.url)
        assert wire.headers["retry-after"] == text
        assert wire.json == {"error": {"message": "slow down", "code": "busy"}}


def test_a_date_of_later_is_made_when_it_is_sent() -> None:
    with FaultServer("503@retry_after=date+30,header.x-ratelimit-reset-requests=1s") as server:
        wire = ask(server.url)
        ahead = email.utils.parsedate_to_datetime(wire.headers["retry-after"]).timestamp() - time.time()
        assert 25 < ahead <= 30
        assert wire.headers["x-ratelimit-reset-requests"] == "1s"


@for_each_row(("name", "end"), [("reset", "reset"), ("close", "eof"), ("hang", "silence")])
def test_an_end_before_the_reply(name: str, end: str) -> None:
    with FaultServer(name) as server:
        wire = ask(server.url, patience=0.3 if name == "hang" else 20.0)
        assert (wire.raw, wire.end) == (b"", end)


@for_each_row(("name", "end"), [("reset-body", "reset"), ("close-body", "eof"), ("hang-body", "silence")])
@for_each_row("sent", [0.0, 0.5, 1.0])
def test_an_end_in_the_reply(name: str, end: str, sent: float) -> None:
    with FaultServer(f"{name}@sent={sent}") as server:
        wire = ask(server.url, patience=0.3 if name == "hang-body" else 20.0)
        assert (wire.status, wire.end) == (200, end)
        length = int(wire.headers["content-length"])
        assert len(wire.body) == min(int(length * sent), length - 1)
        if sent == 1.0:
            assert json.loads(wire.body + b"}")["choices"][0]["message"]["content"] == FIXED_TEXT


def test_a_trickle_is_right_and_slow() -> None:
    with FaultServer("trickle@seconds=0.5") as server:
        started = time.monotonic()
        wire = ask(server.url)
        assert time.monotonic() - started >= 0.5
        assert wire.message["content"] == FIXED_TEXT
        assert ask(server.url, patience=0.5).end == "whole", "every pause is shorter than that"


def test_slow_and_delay_come_late() -> None:
    with FaultServer("slow@seconds=0.2,at=1", "429@delay=0.2,at=2") as server:
        for status in (200, 429):
            started = time.monotonic()
            assert ask(server.url).status == status
            assert time.monotonic() - started >= 0.2
        assert server.met == ["slow", "429"]


@for_each_row(
    ("spec", "body"),
    [
        ("html", HTML),
        ("empty-body", b""),
        ("event-stream", EVENTS),
        ("invalid-json", b"{'choices': [None]}"),
        ("bad-gzip", b"\x1f\x8bnot gzip at all"),
        ("wrapped-error@code=503",
         b'{"error": {"message": "the provider behind this router failed", "code": 503}}'),
        ('body@text={"a": 1, "b": [2]}', b'{"a": 1, "b": [2]}'),
    ],
)  # fmt: skip
def test_a_body_of_its_own(spec: str, body: bytes) -> None:
    with FaultServer(spec) as server:
        wire = ask(server.url)
        assert (wire.status, wire.end, wire.body) == (200, "whole", body)
        assert wire.headers.get("content-encoding") == ("gzip" if spec == "bad-gzip" else None)


def test_bodies_take_a_status_and_a_type() -> None:
    with FaultServer("html@status=502,at=1", "body@text=no,status=500,content_type=text/plain") as server:
        assert (ask(server.url).status, ask(server.url).headers["content-type"]) == (502, "text/plain")
        assert ask(server.url).status == 500


def test_malformed_bodies_take_turns() -> None:
    with FaultServer("malformed") as server:
        assert {ask(server.url).body for _ in MALFORMED} == set(MALFORMED)


def test_truncated_json_is_a_whole_body(plain: Wire) -> None:
    with FaultServer("truncated@sent=0.9") as server:
        wire = ask(server.url)
        assert (wire.status, wire.end) == (200, "whole")
        assert plain.body[:20] == wire.body[:20]
        assert len(wire.body) == int(len(plain.body) * 0.9)
        with pytest.raises(json.JSONDecodeError):
            json.loads(wire.body)


@for_each_row("packed", [False, True])
def test_a_huge_body_is_a_reply_that_nobody_wants(packed: bool) -> None:
    with FaultServer(f"huge@megabytes=3.5,gzip={str(packed).lower()}") as server:
        wire = ask(server.url)
        assert wire.end == "whole"
        data = unchunked(wire.body)
        assert len(data) < 100_000 if packed else len(data) > 3.5 * 2**20
        reply = json.loads(gzip.decompress(data) if packed else data)
        assert len(reply["choices"][0]["message"]["content"]) == 3.5 * 2**20


def test_a_client_that_leaves_a_huge_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with FaultServer("huge@megabytes=200,at=1") as server:
        host, _, port = server.url.removeprefix("http://").removesuffix("/v1").partition(":")
        with socket.create_connection((host, int(port))) as sock:
            body = b'{"model": "m", "messages": []}'
            sock.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            assert sock.recv(1000)
        assert ask(server.url).status == 200
    assert caplog.records == []


@for_each_row(
    ("spec", "message", "finish"),
    [
        ("null-content", {"role": "assistant", "content": None}, "stop"),
        ("empty-content", {"role": "assistant", "content": ""}, "stop"),
        ("content-filter", {"role": "assistant", "content": ""}, "content_filter"),
        ("refusal@text=no, never", {"role": "assistant", "content": None, "refusal": "no, never"}, "stop"),
        ("length@tokens=3", {"role": "assistant", "content": FIXED_TEXT[:12]}, "length"),
        ("wrong-model", {"role": "assistant", "content": FIXED_TEXT}, "stop"),
        ("no-usage", {"role": "assistant", "content": FIXED_TEXT}, "stop"),
    ],
)
def test_a_spoilt_answer(spec: str, message: dict[str, Any], finish: str) -> None:
    with FaultServer(spec) as server:
        wire = ask(server.url)
        assert (wire.status, wire.end, wire.message) == (200, "whole", message)
        assert wire.json["choices"][0]["finish_reason"] == finish
        assert wire.json["model"] == ("another-model" if spec == "wrong-model" else "m")
        assert ("usage" in wire.json) == (spec != "no-usage")
        if spec.startswith("length"):
            assert wire.json["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}


@for_each_row(
    ("spec", "text", "finish"),
    [
        ("null-content", None, "stop"),
        ("refusal@text=no", "no", "stop"),
        ("content-filter", "", "content_filter"),
        ("length@tokens=1", FIXED_TEXT[:4], "length"),
    ],
)
def test_completions_are_spoilt_too(spec: str, text: str | None, finish: str) -> None:
    with FaultServer(spec) as server:
        choice = ask(server.url, path="/completions").json["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (text, finish)


def test_no_choices() -> None:
    with FaultServer("no-choices") as server:
        assert ask(server.url).json["choices"] == []


def test_a_part_and_a_packing_without_its_end() -> None:
    with FaultServer("partial@at=1", "cut-gzip@at=2") as server:
        assert ask(server.url).status == 206
        packed = ask(server.url)
        assert (packed.status, packed.end) == (200, "whole")
        stream = zlib.decompressobj(31)
        assert json.loads(stream.decompress(packed.body))["choices"] and not stream.eof


def test_two_choices() -> None:
    with FaultServer("two-choices") as server:
        choices = ask(server.url).json["choices"]
        assert [(each["index"], each["message"]["content"]) for each in choices] == [(1, "?"), (0, FIXED_TEXT)]


def test_a_model_that_refuses_max_tokens() -> None:
    with FaultServer("no-max-tokens") as server:
        assert ask(server.url, max_completion_tokens=50).json["choices"]
        refused = ask(server.url, max_tokens=50)
        assert (refused.status, refused.json["error"]["param"]) == (400, "max_tokens")


GARBLED: dict[str, dict[str, Any]] = {
    "cut": {**CALL, "function": {"name": "add", "arguments": '{"x": "half a wo'}},
    "quote": {**CALL, "function": {"name": "add", "arguments": '{"x": 1}"'}},
    "array": {**CALL, "function": {"name": "add", "arguments": "[1, 2]"}},
    "empty": {**CALL, "function": {"name": "add", "arguments": ""}},
    "null": {**CALL, "function": {"name": "add", "arguments": None}},
    "object": {**CALL, "function": {"name": "add", "arguments": {"x": 1}}},
    "unknown": {**CALL, "function": {"name": "no_such_tool", "arguments": '{"x": 1}'}},
    "nameless": {**CALL, "function": {"arguments": '{"x": 1}'}},
    "id": {**CALL, "id": 7},
}


@for_each_row("form", GARBLINGS)
def test_a_garbled_tool_call(form: str) -> None:
    with FaultServer(f"bad-tool-call@form={form}") as server:
        wire = ask(server.url, tools=TOOLS)
        assert wire.message == {"role": "assistant", "content": None, "tool_calls": [GARBLED[form]]}
        assert wire.json["choices"][0]["finish_reason"] == "tool_calls"


def test_every_fault_there_is_stands_in_a_test_of_its_wire() -> None:
    with open(__file__, encoding="utf-8") as file:
        source = file.read()
    assert [name for name in KINDS if f'"{name}' not in source] == []
