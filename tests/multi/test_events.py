"""Who is told of an evaluation: a file line by line, listeners one event after the other; what a failing one costs."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import closing
from pathlib import Path

import pytest

from harness.core.errors import StoreError
from harness.core.types import JsonDict
from harness.multi.document import Started
from harness.multi.events import EventFile, Events, listening


def test_lines_are_added_and_on_disk_at_once(workplace: Path) -> None:
    path = workplace / "deep" / "events.jsonl"
    path.parent.mkdir()
    path.write_text("before\n")
    with closing(EventFile(path)) as file:
        events = Events(Started("r", 1, 1), [file.write])
        events.start()
        assert len(path.read_text().splitlines()) == 2
        events.progress("m", "t\ud800", 1)
        events.complete(5, [])
    before, *lines = path.read_text().splitlines()
    assert before == "before"
    assert [json.loads(line)["payload"] for line in lines] == [
        {"runId": "r", "tasks": 1, "models": 1, "totalRuns": 1},
        {"runId": "r", "modelId": "m", "taskId": "t\ud800", "completed": 1, "totalRuns": 1},
        {"runId": "r", "durationMs": 5, "summary": []},
    ]
    file.write("late", {})
    assert len(path.read_text().splitlines()) == 4


def test_a_file_that_cannot_be_opened(workplace: Path) -> None:
    (workplace / "taken").write_text("")
    for path in ("taken/events.jsonl", "."):
        with pytest.raises(StoreError, match="cannot open"):
            EventFile(path)


def test_a_full_disk_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "harness.multi.events"), closing(EventFile("/dev/full")) as file:
        for number in range(3):
            file.write("event", {"number": number})
    assert [each.getMessage() for each in caplog.records] == [
        "cannot write /dev/full: No space left on device; later events are not written"
    ]


def test_a_slow_listener_gets_every_event_in_order_before_the_block_ends() -> None:
    heard: list[str] = []
    inside = 0

    async def listen(name: str, payload: JsonDict) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        for _ in range(5):
            await asyncio.sleep(0)
        heard.append(name)
        inside -= 1

    async def main() -> None:
        async with listening(listen) as [sink]:
            for number in range(10):
                sink(str(number), {})
            assert heard == []
        assert heard == [str(number) for number in range(10)]

    asyncio.run(main())


def test_an_error_inside_the_block_is_raised_as_it_is_and_the_events_are_told() -> None:
    heard: list[str] = []

    async def main() -> None:
        async with listening(lambda name, _: heard.append(name)) as [sink]:
            sink("before", {})
            raise StoreError("gone")

    with pytest.raises(StoreError, match=r"^gone$"):
        asyncio.run(main())
    assert heard == ["before"]


def test_cancelling_does_not_wait_for_a_listener_that_hangs() -> None:
    async def listen(name: str, payload: JsonDict) -> None:
        hanging.set()
        await asyncio.Event().wait()

    async def block() -> None:
        async with listening(listen) as [sink]:
            sink("first", {})
            await asyncio.Event().wait()

    hanging = asyncio.Event()

    async def main() -> None:
        async with asyncio.timeout(60):
            task = asyncio.ensure_future(block())
            await hanging.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_without_a_listener_there_is_no_sink() -> None:
    async def main() -> list[object]:
        async with listening(None) as sinks:
            return list(sinks)

    assert asyncio.run(main()) == []
