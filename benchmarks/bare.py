"""The floor: a bare aiohttp + orjson loop that sends the requests that bench sends and appends as many bytes as bench
journals, with a bounded pool of workers and nothing else. Run as a child process, so that its CPU can be read off.

    python -m benchmarks.bare URL REQUESTS IN_FLIGHT BYTES

Prints {"wall_s", "busy_s"} as JSON: wall time from the first request to the last byte, and the sum of the times that
requests were in flight."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator

import aiohttp
import orjson
import uvloop

from benchmarks.environment.bench_load import Rows


async def drive(url: str, requests: int, in_flight: int, line: bytes) -> dict[str, float]:
    """Ask `requests` questions, at most `in_flight` at once, and append `line` for each reply."""
    numbers: Iterator[int] = iter(range(requests))
    rows = Rows(requests)
    busy = 0.0

    async def worker(session: aiohttp.ClientSession) -> None:
        nonlocal busy
        for number in numbers:
            body = {"model": "load", "messages": [{"role": "user", "content": rows[number]["question"]}]}
            started = time.monotonic()
            async with session.post(
                f"{url}/chat/completions", data=orjson.dumps(body), headers={"Content-Type": "application/json"}
            ) as reply:
                answer = orjson.loads(await reply.read())
            busy += time.monotonic() - started
            assert answer["choices"][0]["message"]["content"]
            file.write(line)

    with tempfile.TemporaryFile() as file:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
            started = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(in_flight, requests)):
                    tasks.create_task(worker(session))
            return {"wall_s": time.monotonic() - started, "busy_s": busy}


def main() -> None:
    """Read the arguments, run, print."""
    url, requests, in_flight, size = sys.argv[1], *map(int, sys.argv[2:5])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(drive(url, requests, in_flight, b"x" * size))
    sys.stdout.buffer.write(orjson.dumps(result))


if __name__ == "__main__":
    main()
