"""How many servers are opened at once, whose time that takes, and what becomes of those that block."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from fastmcp import FastMCP

from harness.core.errors import ToolServerError
from harness.tools.mcp import MCPServer, ServerTool
from harness.tools.mcp_host import MCPHost, MCPSession, ServerLimits
from harness.usercode.deadline import Deadline

OPEN = "now it is open"


@contextmanager
def host_of(
    limits: ServerLimits, opening: Callable[[], Awaitable[object]], *tools: Callable[..., Any]
) -> Generator[MCPHost]:
    """A host whose one server awaits `opening` before it is open."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncGenerator[None]:
        await opening()
        yield

    def make() -> FastMCP[Any]:
        server: FastMCP[Any] = FastMCP("slow", lifespan=lifespan)
        for tool in tools:
            server.tool(tool)
        return server

    host = MCPHost([MCPServer("slow", server=make)], limits)
    try:
        yield host
    finally:
        host.close(30)


async def end(*sessions: MCPSession) -> None:
    for session in sessions:
        session.leave()
    for session in sessions:
        await session.closed()


def test_no_more_sessions_are_opened_at_once_than_may_be() -> None:
    busy, most = 0, 0

    async def opening() -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        for _ in range(100):  # whoever else may begin does so meanwhile
            await asyncio.sleep(0)
        busy -= 1

    async def main(host: MCPHost) -> None:
        sessions = [host.open() for _ in range(9)]
        for session in sessions:
            await session.ready()
        await end(*sessions)

    with host_of(ServerLimits(starts_at_once=3), opening) as host:
        asyncio.run(main(host))
    assert (busy, most) == (0, 3)


def test_by_default_there_is_a_turn_for_every_core_and_one_to_spare_on_a_single_one() -> None:
    busy, most = 0, 0

    async def opening() -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        for _ in range(100):
            await asyncio.sleep(0)
        busy -= 1

    async def main(host: MCPHost) -> None:
        sessions = [host.open() for _ in range(40)]
        for session in sessions:
            await session.ready()
        await end(*sessions)

    with host_of(ServerLimits(), opening) as host:
        asyncio.run(main(host))
    assert most == min(40, max(2, len(os.sched_getaffinity(0))))


def test_the_time_to_start_begins_with_ones_turn() -> None:
    opened = 0

    async def opening() -> None:
        nonlocal opened
        opened += 1
        await asyncio.sleep(0.2)

    async def main(host: MCPHost) -> tuple[float, list[bool]]:
        started = time.monotonic()
        sessions = [host.open() for _ in range(8)]
        for session in sessions:
            await session.ready()
        took, broken = time.monotonic() - started, [session.is_broken for session in sessions]
        await end(*sessions)
        return took, broken

    limits = ServerLimits(1.2, starts_at_once=1)
    with host_of(limits, opening) as host:
        took, broken = asyncio.run(main(host))
    assert (opened, broken) == (8, [False] * 8)
    assert took > limits.startup_seconds, "the last of them waited longer than one may take to start"


def test_waiting_for_a_turn_is_not_the_rollouts_time() -> None:
    may_open = threading.Event()

    async def opening() -> None:
        while not may_open.is_set():  # noqa: ASYNC110  # another thread tells
            await asyncio.sleep(0.01)

    async def main(host: MCPHost) -> tuple[float, float]:
        first, second = host.open(), host.open()
        in_turn, out_of_turn = Deadline(60), Deadline(60)

        async def wait(session: MCPSession, deadline: Deadline) -> None:
            with deadline:
                await session.ready()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wait(first, in_turn))
            tasks.create_task(wait(second, out_of_turn))
            await asyncio.sleep(0.4)
            may_open.set()
        await end(first, second)
        return in_turn.waited, out_of_turn.waited

    with host_of(ServerLimits(starts_at_once=1), opening) as host:
        in_turn, out_of_turn = asyncio.run(main(host))
    assert in_turn < 0.3 <= out_of_turn


def test_a_session_that_is_left_while_it_waits_takes_no_turn() -> None:
    may_open = threading.Event()
    opened = 0

    async def opening() -> None:
        nonlocal opened
        opened += 1
        while not may_open.is_set():  # noqa: ASYNC110  # another thread tells
            await asyncio.sleep(0.01)

    async def main(host: MCPHost) -> None:
        first, second, third = host.open(), host.open(), host.open()
        await end(second)
        with pytest.raises(ToolServerError, match="closed while they were being opened"):
            await second.ready()
        may_open.set()
        await first.ready()
        await third.ready()
        await end(first, third)

    with host_of(ServerLimits(starts_at_once=1), opening) as host:
        asyncio.run(main(host))
    assert opened == 2


def test_a_start_that_failed_breaks_its_session() -> None:
    may_fail = threading.Event()

    async def opening() -> None:
        while not may_fail.is_set():  # noqa: ASYNC110  # another thread tells
            await asyncio.sleep(0.01)
        raise OSError("no database")

    async def main(host: MCPHost) -> bool:
        session = host.open()
        assert not session.is_broken
        may_fail.set()
        with pytest.raises(ToolServerError, match="MCP server 'slow' failed while being opened"):
            await session.ready()
        return session.is_broken

    with host_of(ServerLimits(), opening) as host:
        assert asyncio.run(main(host))


async def at_once() -> None:
    """Nothing to wait for."""


@pytest.mark.slow
def test_a_server_that_blocks_for_good_is_left_to_itself() -> None:
    release, blocked = threading.Event(), threading.Event()

    async def block() -> str:
        blocked.set()
        release.wait()  # on the loop that all sessions share
        return "released"

    async def say() -> str:
        return OPEN

    async def main(host: MCPHost) -> object:
        first, second = host.open(), host.open()
        await first.ready()
        await second.ready()
        with pytest.raises(ToolServerError, match=r"did not answer block within 1 s: .* blocks its event loop"):
            await first.call(ServerTool("slow", "block", "", {}), {})
        assert blocked.is_set()
        await end(first, second)  # nobody waits for a loop that is blocked
        third = host.open()
        await third.ready()
        said = await third.call(ServerTool("slow", "say", "", {}), {})
        await end(third)
        return said

    try:
        with host_of(ServerLimits(call_seconds=1.0), at_once, block, say) as host:
            assert asyncio.run(main(host)) == OPEN
    finally:
        release.set()


@pytest.mark.slow
def test_sessions_that_wait_for_a_turn_behind_a_server_that_blocks_are_told() -> None:
    release = threading.Event()

    async def opening() -> None:
        release.wait()  # on the loop

    async def main(host: MCPHost) -> None:
        first, second = host.open(), host.open()
        for session in (second, first):
            with pytest.raises(ToolServerError, match="blocks its event loop"):
                await session.ready()

    try:
        with host_of(ServerLimits(1.0, starts_at_once=1), opening) as host:
            asyncio.run(main(host))
    finally:
        release.set()
