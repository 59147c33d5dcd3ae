"""Open MCP servers. Owns a thread with an event loop of its own, in which clients are opened, called and closed; what
they say is `tools.mcp`'s.

A client must be left by the task that entered it, while a rollout may be cancelled at any time, and an environment may
outlive its event loop. So a session is a task of this loop that enters, waits and leaves; whoever uses it only sends
messages. A server in this process that blocks holds up this loop, and not the one that runs rollouts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TextIO, TypeVar

from harness.errors import EnvironmentFault
from harness.tools.mcp import MCPServer, ServerTool, make_client, read_result, read_tools, translated
from harness.types import JsonDict

T = TypeVar("T")

logger = logging.getLogger(__name__)

_CLOSED = "the MCP servers are closed"

_LAST_WORDS = 800
"""Characters of a server's stderr that a message about it repeats."""


class MCPSession:
    """Clients of all servers, open until `leave`."""

    def __init__(self, host: MCPHost, servers: Sequence[MCPServer], startup_timeout: float) -> None:
        self.tools: list[ServerTool] = []
        """What the servers offer; there once the session is open."""
        self.named: dict[str, ServerTool] | None = None
        """The tools by the name that models call them; for whoever gives the names."""
        self.is_broken = False
        """Whether a server failed: a session that is shared is then opened anew."""
        self._host = host
        self._servers = servers
        self._startup_timeout = startup_timeout
        self._clients: dict[str, Any] = {}
        self._opened = _promise()
        self._closed = _promise()
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def ready(self) -> None:
        """Wait until all servers are open.

        Raises:
            EnvironmentFault: one cannot be opened; says which and why.
        """
        await asyncio.wrap_future(self._opened)

    async def call(self, tool: ServerTool, arguments: JsonDict) -> str | list[JsonDict]:
        """Call a tool.

        Returns:
            Its result as message content, not capped.

        Raises:
            ToolCallError: the tool failed, or refused the arguments; in its own words.
            EnvironmentFault: the server failed.
        """
        try:
            return await self._host.run(lambda: self._call(tool, arguments))
        except EnvironmentFault:
            self.is_broken = True
            raise

    def leave(self) -> None:
        """Begin to close; returns at once, from any thread."""
        self._host.post(self._begin_to_leave)

    async def closed(self) -> None:
        """Wait until everything is closed."""
        await asyncio.wrap_future(self._closed)

    # In the host's loop

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start to open."""
        self._task = tasks.create_task(self._keep())

    def refuse(self, error: Exception) -> None:
        """It will never be open."""
        self._settle(error)
        self._closed.set_result(None)

    async def _keep(self) -> None:
        """The session's life."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                for server in self._servers:
                    self._clients[server.name] = await self._enter(stack, server)
                self._opened.set_result(None)
                await self._leave.wait()
        except asyncio.CancelledError:
            self._settle(EnvironmentFault("the MCP servers were closed while they were being opened"))
        except Exception as error:  # the boundary around clients and servers
            if not self._settle(error):
                logger.warning("closing MCP servers failed: %s: %s", type(error).__name__, error)
        finally:
            self._host.forget(self)
            self._closed.set_result(None)

    def _begin_to_leave(self) -> None:
        self._leave.set()
        if self._task is not None and not self._opened.done():
            self._task.cancel()

    async def _enter(self, stack: contextlib.AsyncExitStack, server: MCPServer) -> Any:
        log = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))  # noqa: SIM115
        try:
            async with asyncio.timeout(self._startup_timeout):
                client = make_client(server, log)
                await stack.enter_async_context(client)
                self.tools += read_tools(server.name, await client.list_tools())
                return client
        except TimeoutError as error:
            words = f"MCP server {server.name!r} did not start within {self._startup_timeout:g} s"
            raise EnvironmentFault(words + _last_words(log)) from error
        except Exception as error:  # whatever fastmcp, anyio or the author's server raise
            fault = translated(error, server.name, "it was opened")
            raise EnvironmentFault(str(fault) + _last_words(log)) from error

    async def _call(self, tool: ServerTool, arguments: JsonDict) -> str | list[JsonDict]:
        try:
            client = self._clients[tool.server]
            return read_result(await client.call_tool_mcp(name=tool.name, arguments=arguments))
        except Exception as error:  # as in `_enter`
            raise translated(error, tool.server, f"{tool.name} was called") from error

    def _settle(self, error: Exception) -> bool:
        """Tell whoever waits for the opening; False if it is over."""
        if self._opened.done():
            return False
        self._opened.set_exception(error)
        return True


class MCPHost:
    """The thread. It starts with the first session and ends with `close`; after that it may start again.

    Args:
        servers: What every session opens.
        startup_timeout: Seconds that one server may take to be open.
    """

    def __init__(self, servers: Sequence[MCPServer], startup_timeout: float) -> None:
        self._servers = servers
        self._startup_timeout = startup_timeout
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._end: asyncio.Event | None = None
        self._sessions: set[MCPSession] = set()

    def open(self) -> MCPSession:
        """Begin to open a session; returns at once."""
        if self._thread is None or not self._thread.is_alive():
            started = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(started,), name="bench-mcp", daemon=True)
            self._thread.start()
            started.wait()
        session = MCPSession(self, self._servers, self._startup_timeout)
        if not self.post(lambda: self._begin(session)):
            session.refuse(EnvironmentFault(_CLOSED))
        return session

    def post(self, function: Callable[[], object]) -> bool:
        """Call `function` in the host's loop, some time; False if it has ended."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function)
                return True
        except RuntimeError:
            pass  # closed meanwhile
        return False

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await `make()` in the host's loop; cancelling cancels it there.

        Raises:
            EnvironmentFault: the host has ended, or does so meanwhile.
        """
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            raise EnvironmentFault(_CLOSED)
        task = asyncio.current_task()
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self._loop))
        except asyncio.CancelledError:
            if task is not None and not task.cancelling():
                raise EnvironmentFault(_CLOSED) from None  # the host's loop ended, nobody cancelled us
            raise

    def forget(self, session: MCPSession) -> None:
        """A session is over."""
        self._sessions.discard(session)

    def close(self, timeout: float) -> bool:
        """Close all sessions and end the thread; blocks.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether it has ended.
        """
        thread, end = self._thread, self._end
        if thread is None or end is None:
            return True
        self.post(end.set)
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self, started: threading.Event) -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        async with asyncio.TaskGroup() as self._tasks:
            started.set()
            await self._end.wait()
            for session in list(self._sessions):
                session.leave()

    def _begin(self, session: MCPSession) -> None:
        assert self._tasks is not None and self._end is not None
        if self._end.is_set():
            session.refuse(EnvironmentFault(_CLOSED))
            return
        self._sessions.add(session)
        session.begin(self._tasks)


def _promise() -> Future[None]:
    """A future that several may await; one of them that is cancelled does not cancel it for all."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _last_words(log: TextIO) -> str:
    """What a server wrote to its stderr at last, as the end of a sentence."""
    log.seek(0)
    text = log.read().strip()
    return f"; its last words: …{text[-_LAST_WORDS:]}" if text else ""
