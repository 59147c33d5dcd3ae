"""Fault injection for the reference server: send error responses, broken connections and changed replies. `rules`
chooses the fault of each request."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import socket
import struct
import time
import zlib
from collections.abc import Callable
from email.utils import formatdate
from itertools import chain

import orjson
from aiohttp import web

from harness.core.types import JsonDict
from harness.plugins.faults.rules import Fault
from harness.plugins.faults.spoil import EDITS, refused
from harness.reference.fault_sources import ObservedRequest

_BLOCK = 256 * 1024
"""Number of bytes of a huge reply that are generated and sent at a time."""

_LATER = re.compile(r"date([+-]\d{1,9})")

_PIECES = 400
"""Maximum number of pieces in which a slow reply (`trickle`) is sent, since a timer per byte would be too costly."""

_JSON = "application/json"

_HEAD = (
    b'{"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "'
)
_TAIL = b'"}, "finish_reason": "stop"}]}'


async def inject(
    request: web.BaseRequest, asked: ObservedRequest, fault: Fault, answer: Callable[[], JsonDict]
) -> web.StreamResponse | None:
    """Carry out `fault`; return None if the request gets its normal answer.

    Args:
        request: The request.
        asked: The same request as fault rules see it.
        fault: The fault to carry out.
        answer: Creates the normal reply; called only for faults that change it, and may raise to refuse the request.
    """
    if fault.latency:
        await asyncio.sleep(fault.latency)
    if fault.is_none:
        return None
    try:
        return await _do(request, asked, fault, answer)
    except ConnectionError:  # the client closed the connection
        return web.Response()


async def _do(
    request: web.BaseRequest, asked: ObservedRequest, fault: Fault, answer: Callable[[], JsonDict]
) -> web.StreamResponse:
    if fault.act == "hang":
        await asyncio.Event().wait()
    if fault.act in ("reset", "close"):
        _cut(request, hard=fault.act == "reset")
        return web.Response()
    if fault.act == "huge":
        return await _send_huge(request, fault)
    if (error := refused(fault.edit, asked.body)) is not None:
        return web.Response(status=400, body=orjson.dumps(error), content_type=_JSON)
    body = fault.body
    if body is None and fault.act == "status":
        error = {"message": f"injected fault: {fault.status}", "type": "reference_server", "code": "injected"}
        body = orjson.dumps({"error": error})
    elif body is None:
        reply = answer()
        if fault.edit:
            EDITS[fault.edit](reply, fault.value, asked.body)
        body = orjson.dumps(reply)
    if fault.edit == "partial":
        return web.Response(status=206, body=body, content_type=_JSON)
    if fault.edit == "cut-gzip":
        packed = gzip.compress(body)[:-8]
        return web.Response(body=packed, content_type=_JSON, headers={"Content-Encoding": "gzip"})
    if fault.delivery == "truncated":
        body = body[: int(len(body) * fault.sent)]
    elif fault.delivery != "whole":
        return await _send_badly(request, fault, body)
    return web.Response(status=fault.status, body=body, headers=_headers(fault), content_type=fault.content_type)


def _headers(fault: Fault) -> list[tuple[str, str]]:
    """Return the headers of the reply; `date+30` is replaced by the HTTP date 30 seconds from now."""
    return [
        (name, formatdate(time.time() + int(match[1]), usegmt=True) if (match := _LATER.fullmatch(value)) else value)
        for name, value in fault.headers
    ]


async def _send_badly(request: web.BaseRequest, fault: Fault, body: bytes) -> web.StreamResponse:
    response = web.StreamResponse(status=fault.status, headers=_headers(fault))
    response.content_type = fault.content_type
    response.content_length = len(body)
    await response.prepare(request)
    if fault.delivery == "trickle":
        size = max(1, -(-len(body) // _PIECES))
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(fault.seconds / len(pieces))
        return response
    # At least one byte must be missing, otherwise the reply would be complete.
    await response.write(body[: min(int(len(body) * fault.sent), len(body) - 1)])
    if fault.delivery == "hang":
        await asyncio.Event().wait()
    _cut(request, hard=fault.delivery == "reset")
    return response


async def _send_huge(request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
    """Stream a huge but valid reply, without keeping it in memory."""
    response = web.StreamResponse(status=fault.status, headers=_headers(fault))
    response.content_type = _JSON
    if fault.gzip:
        response.headers["Content-Encoding"] = "gzip"
    response.enable_chunked_encoding()
    await response.prepare(request)
    packer = zlib.compressobj(level=1, wbits=31) if fault.gzip else None
    block = b"x" * _BLOCK
    blocks = (block[: fault.size - start] for start in range(0, fault.size, _BLOCK))
    for part in chain([_HEAD], blocks, [_TAIL]):
        if data := packer.compress(part) if packer else part:  # an empty piece would end a chunked body
            await response.write(data)
        await asyncio.sleep(0)  # compression seldom yields output, and other requests must run
    if packer:
        await response.write(packer.flush())
    return response


def _cut(request: web.BaseRequest, *, hard: bool) -> None:
    """Close the connection: with a TCP reset (RST) if `hard`, else with an orderly FIN."""
    transport = request.transport
    if transport is None:
        return
    if not hard:
        transport.close()
        return
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # A duplicate of the socket, because sockets of event loops refuse setsockopt; the option applies to both.
        with socket.socket(fileno=os.dup(sock.fileno())) as duplicate:
            duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
