"""The floor: a bare aiohttp + orjson loop that sends the requests that bench sends and appends as many bytes as bench
journals, with a bounded pool of workers and nothing else. Run as a child process, so that its CPU can be read off.

    python -m benchmarks.bare URL CONVERSATIONS IN_FLIGHT BYTES TURNS

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


async def drive(url: str, conversations: int, in_flight: int, line: bytes, turns: int) -> dict[str, float]:
    """Have `conversations`, at most `in_flight` at once, and append `line` for each."""
    numbers: Iterator[int] = iter(range(conversations))
    rows = Rows(conversations)
    busy = 0.0

    async def worker(session: aiohttp.ClientSession) -> None:
        nonlocal busy
        for number in numbers:
            messages = [{"role": "user", "content": rows[number]["question"]}]
            for _ in range(turns):
                body = orjson.dumps({"model": "load", "messages": messages})
                started = time.monotonic()
                async with session.post(
                    f"{url}/chat/completions", data=body, headers={"Content-Type": "application/json"}
                ) as reply:
                    answer = orjson.loads(await reply.read())
                busy += time.monotonic() - started
                said = answer["choices"][0]["message"]
                assert said["content"]
                messages += [said, {"role": "user", "content": "Are you sure? Say it again."}]
            file.write(line)

    with tempfile.TemporaryFile() as file:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
            started = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(in_flight, conversations)):
                    tasks.create_task(worker(session))
            return {"wall_s": time.monotonic() - started, "busy_s": busy}


def main() -> None:
    """Read the arguments, run, print."""
    url, conversations, in_flight, size, turns = sys.argv[1], *map(int, sys.argv[2:6])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(drive(url, conversations, in_flight, b"x" * size, turns))
    sys.stdout.buffer.write(orjson.dumps(result))


if __name__ == "__main__":
    main()
